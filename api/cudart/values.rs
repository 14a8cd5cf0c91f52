//! Values of the CUDA runtime. Of an error the documentation is what `cudaGetErrorString` says.

/// no error
const cudaSuccess: cudaError_t = 0;
/// invalid argument
const cudaErrorInvalidValue: cudaError_t = 1;
/// out of memory
const cudaErrorMemoryAllocation: cudaError_t = 2;
/// initialization error
const cudaErrorInitializationError: cudaError_t = 3;
/// driver shutting down
const cudaErrorCudartUnloading: cudaError_t = 4;
/// profiler disabled while using external profiling tool
const cudaErrorProfilerDisabled: cudaError_t = 5;
/// profiler not initialized: call cudaProfilerInitialize()
const cudaErrorProfilerNotInitialized: cudaError_t = 6;
/// profiler already started
const cudaErrorProfilerAlreadyStarted: cudaError_t = 7;
/// profiler already stopped
const cudaErrorProfilerAlreadyStopped: cudaError_t = 8;
/// invalid configuration argument
const cudaErrorInvalidConfiguration: cudaError_t = 9;
/// version translation
const cudaErrorVersionTranslation: cudaError_t = 10;
/// invalid pitch argument
const cudaErrorInvalidPitchValue: cudaError_t = 12;
/// invalid device symbol
const cudaErrorInvalidSymbol: cudaError_t = 13;
/// invalid host pointer
const cudaErrorInvalidHostPointer: cudaError_t = 16;
/// invalid device pointer
const cudaErrorInvalidDevicePointer: cudaError_t = 17;
/// invalid texture reference
const cudaErrorInvalidTexture: cudaError_t = 18;
/// invalid texture binding
const cudaErrorInvalidTextureBinding: cudaError_t = 19;
/// invalid channel descriptor
const cudaErrorInvalidChannelDescriptor: cudaError_t = 20;
/// invalid copy direction for memcpy
const cudaErrorInvalidMemcpyDirection: cudaError_t = 21;
/// address of constant
const cudaErrorAddressOfConstant: cudaError_t = 22;
/// texture fetch failed
const cudaErrorTextureFetchFailed: cudaError_t = 23;
/// texture not bound
const cudaErrorTextureNotBound: cudaError_t = 24;
/// synchronization error
const cudaErrorSynchronizationError: cudaError_t = 25;
/// invalid filter setting
const cudaErrorInvalidFilterSetting: cudaError_t = 26;
/// invalid norm setting
const cudaErrorInvalidNormSetting: cudaError_t = 27;
/// mixed device execution
const cudaErrorMixedDeviceExecution: cudaError_t = 28;
/// not yet implemented
const cudaErrorNotYetImplemented: cudaError_t = 31;
/// memory value too large
const cudaErrorMemoryValueTooLarge: cudaError_t = 32;
/// CUDA driver is a stub library
const cudaErrorStubLibrary: cudaError_t = 34;
/// CUDA driver version is insufficient for CUDA runtime version
const cudaErrorInsufficientDriver: cudaError_t = 35;
/// API call is not supported in the installed CUDA driver
const cudaErrorCallRequiresNewerDriver: cudaError_t = 36;
/// invalid surface
const cudaErrorInvalidSurface: cudaError_t = 37;
/// duplicate variable name
const cudaErrorDuplicateVariableName: cudaError_t = 43;
/// duplicate texture name
const cudaErrorDuplicateTextureName: cudaError_t = 44;
/// duplicate surface name
const cudaErrorDuplicateSurfaceName: cudaError_t = 45;
/// CUDA-capable device(s) is/are busy or unavailable
const cudaErrorDevicesUnavailable: cudaError_t = 46;
/// incompatible driver context
const cudaErrorIncompatibleDriverContext: cudaError_t = 49;
/// a launch without a configuration
const cudaErrorMissingConfiguration: cudaError_t = 52;
/// prior launch failure
const cudaErrorPriorLaunchFailure: cudaError_t = 53;
/// launch max depth exceeded
const cudaErrorLaunchMaxDepthExceeded: cudaError_t = 65;
/// launch file scoped tex
const cudaErrorLaunchFileScopedTex: cudaError_t = 66;
/// launch file scoped surf
const cudaErrorLaunchFileScopedSurf: cudaError_t = 67;
/// sync depth exceeded
const cudaErrorSyncDepthExceeded: cudaError_t = 68;
/// launch pending count exceeded
const cudaErrorLaunchPendingCountExceeded: cudaError_t = 69;
/// invalid device function
const cudaErrorInvalidDeviceFunction: cudaError_t = 98;
/// no CUDA-capable device is detected
const cudaErrorNoDevice: cudaError_t = 100;
/// invalid device ordinal
const cudaErrorInvalidDevice: cudaError_t = 101;
/// device doesn't have valid Grid license
const cudaErrorDeviceNotLicensed: cudaError_t = 102;
/// software validity not established
const cudaErrorSoftwareValidityNotEstablished: cudaError_t = 103;
/// startup failure
const cudaErrorStartupFailure: cudaError_t = 127;
/// device kernel image is invalid
const cudaErrorInvalidKernelImage: cudaError_t = 200;
/// invalid device context
const cudaErrorDeviceUninitialized: cudaError_t = 201;
/// mapping of buffer object failed
const cudaErrorMapBufferObjectFailed: cudaError_t = 205;
/// unmapping of buffer object failed
const cudaErrorUnmapBufferObjectFailed: cudaError_t = 206;
/// array is mapped
const cudaErrorArrayIsMapped: cudaError_t = 207;
/// resource already mapped
const cudaErrorAlreadyMapped: cudaError_t = 208;
/// no kernel image is available for execution on the device
const cudaErrorNoKernelImageForDevice: cudaError_t = 209;
/// resource already acquired
const cudaErrorAlreadyAcquired: cudaError_t = 210;
/// resource not mapped
const cudaErrorNotMapped: cudaError_t = 211;
/// resource not mapped as array
const cudaErrorNotMappedAsArray: cudaError_t = 212;
/// resource not mapped as pointer
const cudaErrorNotMappedAsPointer: cudaError_t = 213;
/// uncorrectable ECC error encountered
const cudaErrorECCUncorrectable: cudaError_t = 214;
/// limit is not supported on this architecture
const cudaErrorUnsupportedLimit: cudaError_t = 215;
/// exclusive-thread device already in use by a different thread
const cudaErrorDeviceAlreadyInUse: cudaError_t = 216;
/// peer access is not supported between these two devices
const cudaErrorPeerAccessUnsupported: cudaError_t = 217;
/// a PTX JIT compilation failed
const cudaErrorInvalidPtx: cudaError_t = 218;
/// invalid OpenGL or DirectX context
const cudaErrorInvalidGraphicsContext: cudaError_t = 219;
/// uncorrectable NVLink error detected during the execution
const cudaErrorNvlinkUncorrectable: cudaError_t = 220;
/// PTX JIT compiler library not found
const cudaErrorJitCompilerNotFound: cudaError_t = 221;
/// the provided PTX was compiled with an unsupported toolchain.
const cudaErrorUnsupportedPtxVersion: cudaError_t = 222;
/// PTX JIT compilation was disabled
const cudaErrorJitCompilationDisabled: cudaError_t = 223;
/// the provided execution affinity is not supported
const cudaErrorUnsupportedExecAffinity: cudaError_t = 224;
/// the provided PTX contains unsupported call to cudaDeviceSynchronize
const cudaErrorUnsupportedDevSideSync: cudaError_t = 225;
/// Invalid access of peer GPU memory over nvlink or a hardware error
const cudaErrorContained: cudaError_t = 226;
/// insufficient loader version
const cudaErrorInsufficientLoaderVersion: cudaError_t = 227;
/// device kernel image is invalid
const cudaErrorInvalidSource: cudaError_t = 300;
/// file not found
const cudaErrorFileNotFound: cudaError_t = 301;
/// shared object symbol not found
const cudaErrorSharedObjectSymbolNotFound: cudaError_t = 302;
/// shared object initialization failed
const cudaErrorSharedObjectInitFailed: cudaError_t = 303;
/// OS call failed or operation not supported on this OS
const cudaErrorOperatingSystem: cudaError_t = 304;
/// invalid resource handle
const cudaErrorInvalidResourceHandle: cudaError_t = 400;
/// the operation cannot be performed in the present state
const cudaErrorIllegalState: cudaError_t = 401;
/// attempted introspection would be semantically lossy
const cudaErrorLossyQuery: cudaError_t = 402;
/// named symbol not found
const cudaErrorSymbolNotFound: cudaError_t = 500;
/// device not ready
const cudaErrorNotReady: cudaError_t = 600;
/// an illegal memory access was encountered
const cudaErrorIllegalAddress: cudaError_t = 700;
/// too many resources requested for launch
const cudaErrorLaunchOutOfResources: cudaError_t = 701;
/// the launch timed out and was terminated
const cudaErrorLaunchTimeout: cudaError_t = 702;
/// launch uses incompatible texturing mode
const cudaErrorLaunchIncompatibleTexturing: cudaError_t = 703;
/// peer access is already enabled
const cudaErrorPeerAccessAlreadyEnabled: cudaError_t = 704;
/// peer access has not been enabled
const cudaErrorPeerAccessNotEnabled: cudaError_t = 705;
/// cannot set while device is active in this process
const cudaErrorSetOnActiveProcess: cudaError_t = 708;
/// context is destroyed
const cudaErrorContextIsDestroyed: cudaError_t = 709;
/// device-side assert triggered
const cudaErrorAssert: cudaError_t = 710;
/// peer mapping resources exhausted
const cudaErrorTooManyPeers: cudaError_t = 711;
/// part or all of the requested memory range is already mapped
const cudaErrorHostMemoryAlreadyRegistered: cudaError_t = 712;
/// pointer does not correspond to a registered memory region
const cudaErrorHostMemoryNotRegistered: cudaError_t = 713;
/// hardware stack error
const cudaErrorHardwareStackError: cudaError_t = 714;
/// an illegal instruction was encountered
const cudaErrorIllegalInstruction: cudaError_t = 715;
/// misaligned address
const cudaErrorMisalignedAddress: cudaError_t = 716;
/// operation not supported on global/shared address space
const cudaErrorInvalidAddressSpace: cudaError_t = 717;
/// invalid program counter
const cudaErrorInvalidPc: cudaError_t = 718;
/// unspecified launch failure
const cudaErrorLaunchFailure: cudaError_t = 719;
/// too many blocks in cooperative launch
const cudaErrorCooperativeLaunchTooLarge: cudaError_t = 720;
/// tensor memory not completely freed
const cudaErrorTensorMemoryLeak: cudaError_t = 721;
/// operation not permitted
const cudaErrorNotPermitted: cudaError_t = 800;
/// operation not supported
const cudaErrorNotSupported: cudaError_t = 801;
/// system not yet initialized
const cudaErrorSystemNotReady: cudaError_t = 802;
/// system has unsupported display driver / cuda driver combination
const cudaErrorSystemDriverMismatch: cudaError_t = 803;
/// forward compatibility was attempted on non supported HW
const cudaErrorCompatNotSupportedOnDevice: cudaError_t = 804;
/// MPS client failed to connect to the MPS control daemon or the MPS server
const cudaErrorMpsConnectionFailed: cudaError_t = 805;
/// the remote procedural call between the MPS server and the MPS client failed
const cudaErrorMpsRpcFailure: cudaError_t = 806;
/// MPS server is not ready to accept new MPS client requests
const cudaErrorMpsServerNotReady: cudaError_t = 807;
/// the hardware resources required to create MPS client have been exhausted
const cudaErrorMpsMaxClientsReached: cudaError_t = 808;
/// the hardware resources required to support device connections have been exhausted
const cudaErrorMpsMaxConnectionsReached: cudaError_t = 809;
/// the MPS client has been terminated by the server
const cudaErrorMpsClientTerminated: cudaError_t = 810;
/// is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it
const cudaErrorCdpNotSupported: cudaError_t = 811;
/// unsupported interaction between different versions of CUDA Dynamic Parallelism
const cudaErrorCdpVersionMismatch: cudaError_t = 812;
/// operation not permitted when stream is capturing
const cudaErrorStreamCaptureUnsupported: cudaError_t = 900;
/// operation failed due to a previous error during capture
const cudaErrorStreamCaptureInvalidated: cudaError_t = 901;
/// operation would result in a merge of separate capture sequences
const cudaErrorStreamCaptureMerge: cudaError_t = 902;
/// capture was not ended in the same stream as it began
const cudaErrorStreamCaptureUnmatched: cudaError_t = 903;
/// capturing stream has unjoined work
const cudaErrorStreamCaptureUnjoined: cudaError_t = 904;
/// dependency created on uncaptured work in another stream
const cudaErrorStreamCaptureIsolation: cudaError_t = 905;
/// operation would make the legacy stream depend on a capturing blocking stream
const cudaErrorStreamCaptureImplicit: cudaError_t = 906;
/// operation not permitted on an event last recorded in a capturing stream
const cudaErrorCapturedEvent: cudaError_t = 907;
/// attempt to terminate a thread-local capture sequence from another thread
const cudaErrorStreamCaptureWrongThread: cudaError_t = 908;
/// wait operation timed out
const cudaErrorTimeout: cudaError_t = 909;
/// the graph update was not performed because it included changes which violated constraints specific to instantiated graph update
const cudaErrorGraphExecUpdateFailure: cudaError_t = 910;
/// an async error has occured in external entity outside of CUDA
const cudaErrorExternalDevice: cudaError_t = 911;
/// a kernel launch error has occurred due to cluster misconfiguration
const cudaErrorInvalidClusterSize: cudaError_t = 912;
/// the function handle is not loaded when calling an API that requires a loaded function
const cudaErrorFunctionNotLoaded: cudaError_t = 913;
/// one or more resources passed in are not valid resource types for the operation
const cudaErrorInvalidResourceType: cudaError_t = 914;
/// one or more resources are insufficient or non-applicable for the operation
const cudaErrorInvalidResourceConfiguration: cudaError_t = 915;
/// the requested operation is not permitted because the stream is in a detached state
const cudaErrorStreamDetached: cudaError_t = 917;
/// graph recapture failed
const cudaErrorGraphRecaptureFailure: cudaError_t = 918;
/// fabric is not ready
const cudaErrorFabricNotReady: cudaError_t = 919;
/// unknown error
const cudaErrorUnknown: cudaError_t = 999;
/// api failure base
const cudaErrorApiFailureBase: cudaError_t = 10000;

// Directions of a copy.
const cudaMemcpyHostToHost: cudaMemcpyKind = 0;
const cudaMemcpyHostToDevice: cudaMemcpyKind = 1;
const cudaMemcpyDeviceToHost: cudaMemcpyKind = 2;
const cudaMemcpyDeviceToDevice: cudaMemcpyKind = 3;
const cudaMemcpyDefault: cudaMemcpyKind = 4;

// Kinds of elements.
const cudaChannelFormatKindSigned: cudaChannelFormatKind = 0;
const cudaChannelFormatKindUnsigned: cudaChannelFormatKind = 1;
const cudaChannelFormatKindFloat: cudaChannelFormatKind = 2;
const cudaChannelFormatKindNone: cudaChannelFormatKind = 3;
const cudaChannelFormatKindNV12: cudaChannelFormatKind = 4;
