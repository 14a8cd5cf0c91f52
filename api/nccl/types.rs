//! Types and constants of NCCL, as of 2.32.
//!
//! Structures that begin with their own size grow at their ends: of a shorter one, only the fields within its size are read. Types
//! that only refused functions take, behind pointers, stand as `c_void`.

// Handles, which are ours, and streams, which are the driver's.
type ncclComm_t = *mut c_void;
type ncclWindow_t = *mut c_void;
type ncclParamHandle_t = *mut c_void;
type cudaStream_t = CUstream;
type cudaEvent_t = CUevent;

// Enumerations.
type ncclResult_t = i32;
type ncclDataType_t = i32;
type ncclRedOp_t = i32;
type ncclScalarResidence_t = i32;
type ncclCommMemStat_t = i32;
type ncclCftTeamMode_t = i32;

/// Bytes of an identifier.
const NCCL_UNIQUE_ID_BYTES: usize = 128;

/// Names a communicator to be, to every process that takes part.
pub struct ncclUniqueId {
    pub internal: [c_char; NCCL_UNIQUE_ID_BYTES],
}

/// Wishes for a communicator; any field may be left undefined.
pub struct ncclConfig_t {
    pub size: usize,
    pub magic: u32,
    pub version: u32,
    pub blocking: i32,
    pub cgaClusterSize: i32,
    pub minCTAs: i32,
    pub maxCTAs: i32,
    pub netName: *const c_char,
    pub splitShare: i32,
    pub trafficClass: i32,
    pub commName: *const c_char,
    pub collnetEnable: i32,
    pub CTAPolicy: i32,
    pub shrinkShare: i32,
    pub nvlsCTAs: i32,
    pub nChannelsPerNetPeer: i32,
    pub nvlinkCentricSched: i32,
    pub graphUsageMode: i32,
    pub numRmaCtx: i32,
    pub maxP2pPeers: i32,
    pub graphStreamOrdering: i32,
    pub launchOrderImplicit: i32,
    pub numRmaSig: i32,
    pub rmaEagerInit: i32,
    pub hostCftMode: i32,
    pub nvlsHostMode: i32,
}

/// Wishes for a single collective; any field may be left undefined.
pub struct ncclCollConfig_t {
    pub size: usize,
    pub magic: u32,
    pub version: u32,
    pub ext: *mut c_void,
    pub minCTAs: i32,
    pub maxCTAs: i32,
    pub nvlsCTAs: i32,
    pub cgaClusterSize: i32,
    pub algSelection: *const c_char,
    pub forceAlgSelection: i32,
    pub CTAPolicy: i32,
    pub userProfilerTag: u64,
    pub launchCompletionEvent: cudaEvent_t,
}

/// Receives the estimate for a group.
pub struct ncclSimInfo_t {
    pub size: usize,
    pub magic: u32,
    pub version: u32,
    pub estimatedTime: f32,
}

/// Signals from one rank to wait for.
pub struct ncclWaitSignalDesc_t {
    pub opCnt: i32,
    pub peer: i32,
    pub sigIdx: i32,
    pub ctx: i32,
}

/// A key to encrypt the connections between processes with.
pub struct ncclEncryptionConfig_t {
    pub size: usize,
    pub magic: u32,
    pub version: u32,
    pub mode: i32,
    pub psk: *const c_char,
}

/// Ranks at even distances.
pub struct ncclTeam_t {
    pub nRanks: i32,
    pub rank: i32,
    pub stride: i32,
}

/// Memory that one write reaches on several devices.
pub struct ncclMultimemHandle_t {
    pub mcBasePtr: *mut c_void,
}

/// The team of a communicator without teams.
const NO_TEAM: ncclTeam_t = ncclTeam_t {
    nRanks: 0,
    rank: 0,
    stride: 0,
};

/// The version whose functions and structures are declared here.
const NCCL_VERSION_CODE: i32 = 23203;

/// no error
const ncclSuccess: ncclResult_t = 0;
/// a CUDA call failed
const ncclUnhandledCudaError: ncclResult_t = 1;
/// a call of the operating system, or a connection, failed
const ncclSystemError: ncclResult_t = 2;
/// the library failed inside
const ncclInternalError: ncclResult_t = 3;
/// an argument is not valid
const ncclInvalidArgument: ncclResult_t = 4;
/// the call is not valid here, or not supported
const ncclInvalidUsage: ncclResult_t = 5;
/// another process failed, or a connection to it was lost
const ncclRemoteError: ncclResult_t = 6;
/// the operation is in progress
const ncclInProgress: ncclResult_t = 7;
/// the operation took too long
const ncclTimeout: ncclResult_t = 8;

/// A number that was not given.
const NCCL_CONFIG_UNDEF_INT: i32 = i32::MIN;
/// The magic number of `ncclConfig_t`, `ncclCollConfig_t` and `ncclEncryptionConfig_t`.
const NCCL_API_MAGIC: u32 = 0xcafebeef;
/// The magic number of `ncclSimInfo_t`.
const NCCL_SIM_INFO_MAGIC: u32 = 0x74685283;
/// The estimate of a group that was not estimated.
const NCCL_UNDEF_FLOAT: f32 = -1.0;
/// The color of a rank that comes into no new communicator.
const NCCL_SPLIT_NOCOLOR: i32 = -1;

const NCCL_WIN_DEFAULT: i32 = 0x00;
const NCCL_WIN_COLL_SYMMETRIC: i32 = 0x01;
const NCCL_WIN_STRICT_ORDERING: i32 = 0x02;
const NCCL_WIN_GIN_ONLY: i32 = 0x04;
const NCCL_WIN_CFT_COUNTED: i32 = 0x08;
/// The alignment of a window in bytes.
const NCCL_WIN_REQUIRED_ALIGNMENT: usize = 4096;

const NCCL_CTA_POLICY_DEFAULT: i32 = 0x00;
const NCCL_CTA_POLICY_EFFICIENCY: i32 = 0x01;
const NCCL_CTA_POLICY_ZERO: i32 = 0x02;

const NCCL_SHRINK_DEFAULT: i32 = 0x00;
const NCCL_SHRINK_ABORT: i32 = 0x01;
const NCCL_REVOKE_DEFAULT: i32 = 0x00;
const NCCL_SUSPEND_MEM: i32 = 0x01;

const ncclInt8: ncclDataType_t = 0;
const ncclUint8: ncclDataType_t = 1;
const ncclInt32: ncclDataType_t = 2;
const ncclUint32: ncclDataType_t = 3;
const ncclInt64: ncclDataType_t = 4;
const ncclUint64: ncclDataType_t = 5;
const ncclFloat16: ncclDataType_t = 6;
const ncclFloat32: ncclDataType_t = 7;
const ncclFloat64: ncclDataType_t = 8;
const ncclBfloat16: ncclDataType_t = 9;
const ncclFloat8e4m3: ncclDataType_t = 10;
const ncclFloat8e5m2: ncclDataType_t = 11;
/// The number of data types.
const ncclNumTypes: ncclDataType_t = 12;

const ncclSum: ncclRedOp_t = 0;
const ncclProd: ncclRedOp_t = 1;
const ncclMax: ncclRedOp_t = 2;
const ncclMin: ncclRedOp_t = 3;
const ncclAvg: ncclRedOp_t = 4;
/// The number of operators that need not be made; the first number of one that is made.
const ncclNumOps: ncclRedOp_t = 5;
/// The largest number of an operator.
const ncclMaxRedOp: ncclRedOp_t = 0x7fffffff;

const ncclScalarDevice: ncclScalarResidence_t = 0;
const ncclScalarHostImmediate: ncclScalarResidence_t = 1;
