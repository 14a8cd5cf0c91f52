//! What the calls of `calls.rs` need: no more than one type of each sort.

type cl_int = i32;
type cl_uint = u32;
type cl_bool = u32;

const CL_SUCCESS: cl_int = 0;

pub struct cl_region {
    pub origin: usize,
    pub size: usize,
}

extern "C" {
    #[handle(tag = 1)]
    type cl_context;
    #[handle(tag = 2)]
    type cl_mem;
    #[handle(tag = 3)]
    type cl_event;
    #[handle(tag = 4)]
    type cl_command_queue;
}
