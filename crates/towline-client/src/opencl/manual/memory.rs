//! Buffers, and the end of all memory objects.

use super::*;

impl Remote {
    #[allow(clippy::too_many_arguments, reason = "the parameters of two API calls")]
    unsafe fn create_buffer(
        &self,
        context: cl_context,
        properties: Option<&[u64]>,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        let created = wire::MemHandle(self.mint(wire::MemHandle::TAG));
        if flags & CL_MEM_USE_HOST_PTR as cl_mem_flags != 0 && self.svm_holds(host_ptr, size) {
            self.post(&wire::SvmBuffer {
                context: wire::ContextHandle::from_raw(context),
                flags: (flags & !HOST_FLAGS) as u64,
                address: host_ptr.addr() as u64,
                size: size as u64,
                created,
            })?;
            return Ok(created.to_raw());
        }
        let wanted = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) as cl_mem_flags != 0;
        let contents = match wanted && !host_ptr.is_null() {
            true if size > CONTENTS_LIMIT => return Err(CL_OUT_OF_HOST_MEMORY),
            // SAFETY: the caller's contract: the host pointer is readable for the buffer's size.
            true => unsafe { raw::slice(host_ptr.cast::<u8>().cast_const(), size) },
            false => None,
        };
        let copy = if contents.is_some() {
            CL_MEM_COPY_HOST_PTR as cl_mem_flags
        } else {
            0
        };
        let (context, flags) = (
            wire::ContextHandle::from_raw(context),
            ((flags & !HOST_FLAGS) | copy) as u64,
        );
        let size = size as u64;
        // Contents are not kept: the server has them.
        let bare = flags & !(CL_MEM_COPY_HOST_PTR as u64);
        match properties {
            None => {
                let request = |flags, host_ptr| wire::CreateBuffer {
                    context,
                    flags,
                    size,
                    host_ptr,
                    created,
                };
                self.post(&request(flags, contents))?;
                self.made(created.0, &request(bare, None));
            }
            Some(list) => {
                let request = |flags, host_ptr| wire::CreateBufferWithProperties {
                    context,
                    properties: Some(wire::List::Values(list)),
                    flags,
                    size,
                    host_ptr,
                    created,
                };
                self.post(&request(flags, contents))?;
                self.made(created.0, &request(bare, None));
            }
        }
        Ok(created.to_raw())
    }
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl MemoryCalls for Remote {
    unsafe fn clCreateBuffer(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        // SAFETY: the caller's contract of the C function.
        let result = unsafe { self.create_buffer(context, None, flags, size, host_ptr) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clCreateBufferWithProperties(
        &self,
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        // SAFETY: the caller's contract of the C function.
        let list = unsafe { raw::pairs(properties.cast()) };
        // SAFETY: the caller's contract of the C function.
        let result = unsafe { self.create_buffer(context, list.as_deref(), flags, size, host_ptr) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clReleaseMemObject(&self, memobj: cl_mem) -> cl_int {
        lock(&self.images).remove(&(memobj.addr() as u64));
        self.ended(memobj.addr() as u64);
        status_of(self.post(&wire::ReleaseMemObject {
            memobj: wire::MemHandle::from_raw(memobj),
        }))
    }
}
