//! Types of NCCL, as of version 2.32. Numbers are in the declarations' order there.

type ncclResult_t = i32;
type ncclDataType_t = i32;
type ncclRedOp_t = i32;
type ncclScalarResidence_t = i32;
type ncclCommMemStat_t = i32;

// Handles. A configuration is as long as it says itself, in its first word.
type ncclComm_t = *mut c_void;
type ncclWindow_t = *mut c_void;
type ncclConfig_t = u64;
type ncclCollConfig_t = c_void;
type ncclSimInfo_t = c_void;
type ncclParamHandle_t = *mut c_void;
type cudaStream_t = CUstream;

/// An id under which the ranks of a communicator find each other.
pub struct ncclUniqueId {
    pub internal: [c_char; 128],
}
