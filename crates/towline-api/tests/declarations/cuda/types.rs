//! What the shapes of the CUDA driver API need.

type CUresult = i32;
type CUdeviceptr = u64;
type CUhostFn = Option<unsafe extern "C" fn(userData: *mut c_void)>;

extern "C" {
    #[handle(tag = 1)]
    type CUcontext;
    #[handle(tag = 2)]
    type CUstream;
}

pub union CUvalue {
    pub small: u32,
    pub large: u64,
}

pub struct CUplace {
    pub kind: u32,
    #[unnamed]
    pub either: CUvalue,
}

pub struct CUwork {
    pub count: u32,
    pub words: *const u64,
}

pub struct CUextent {
    pub width: usize,
    pub height: usize,
}

pub struct CUDA_ROOM_DESCRIPTOR {
    pub extent: CUextent,
    pub scale: f32,
    pub name: [c_char; 40],
    pub reserved: [u32; 4],
}

pub const CUDA_SUCCESS: CUresult = 0;
pub const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
