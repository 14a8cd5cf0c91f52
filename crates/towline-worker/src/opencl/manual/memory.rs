//! Buffers. What names memory of the host or objects of other kinds does not come from a client.

use std::ffi::c_void;

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use crate::link::Charge;
use crate::opencl::session::Session;

/// What a client may ask of a memory object. `CL_MEM_USE_HOST_PTR` is not among it: the bytes that came with the request are gone
/// when it has been carried out. Vendors' own flags are not either: several give the host pointer another meaning.
const BUFFER_FLAGS: cl_mem_flags = CL_MEM_READ_WRITE
    | CL_MEM_WRITE_ONLY
    | CL_MEM_READ_ONLY
    | CL_MEM_ALLOC_HOST_PTR
    | CL_MEM_COPY_HOST_PTR
    | CL_MEM_HOST_WRITE_ONLY
    | CL_MEM_HOST_READ_ONLY
    | CL_MEM_HOST_NO_ACCESS
    | CL_MEM_KERNEL_READ_AND_WRITE;

/// The same for images, whose contents travel as writes.
pub(super) const IMAGE_FLAGS: cl_mem_flags = BUFFER_FLAGS & !CL_MEM_COPY_HOST_PTR;

/// Whether a list of memory properties is empty. The specification has none; vendors' name descriptors, native handles and memory of
/// other programs.
pub(super) fn plain(properties: Option<List<'_, u64>>) -> bool {
    properties
        .iter()
        .flat_map(|list| list.iter())
        .next()
        .is_none_or(|first| first == 0)
}

/// The vendor gives the memory of an object back.
extern "C" fn memory_went<T>(_memory: cl_mem, keeper: *mut c_void) {
    // SAFETY: `Session::keep_while` made the box for exactly this call.
    drop(unsafe { Box::from_raw(keeper.cast::<T>()) });
}

impl Session {
    /// Keeps the charge for a memory object until the vendor gives its memory back: parts of it and commands hold it longer than its
    /// handle lives.
    pub(super) fn charged(
        &self,
        memory: cl_mem,
        status: cl_int,
        charge: Charge,
    ) -> (cl_mem, cl_int) {
        if memory.is_null()
            || self.keep_while(memory, charge)
            // It is not counted, and there is nothing that it counts for.
            || !self.shared.counters.is_memory_limited()
        {
            return (memory, status);
        }
        // SAFETY: the object was made for this call, and is in no table.
        unsafe { self.api.clReleaseMemObject(memory) };
        (std::ptr::null_mut(), CL_OUT_OF_RESOURCES)
    }

    /// Keeps something until the vendor gives the memory of an object back; whether the vendor says when that is.
    pub(super) fn keep_while<T: Send>(&self, memory: cl_mem, keeper: T) -> bool {
        let keeper = Box::into_raw(Box::new(keeper));
        // SAFETY: the object is live; the function takes the box, once.
        let told = unsafe {
            self.api
                .clSetMemObjectDestructorCallback(memory, Some(memory_went::<T>), keeper.cast())
        };
        if told != CL_SUCCESS {
            // SAFETY: nobody else has the box, for the vendor has not taken it.
            drop(unsafe { Box::from_raw(keeper) });
        }
        told == CL_SUCCESS
    }

    pub(crate) fn clCreateBuffer(
        &mut self,
        number: u64,
        request: wire::CreateBuffer<'_>,
    ) -> Result<(), ProtocolError> {
        let status = self.create_buffer(
            request.context,
            request.flags,
            request.size,
            request.host_ptr,
            request.created,
        )?;
        self.settle(number, <wire::CreateBuffer<'_> as Request<'_>>::ID, status);
        Ok(())
    }

    pub(crate) fn clCreateBufferWithProperties(
        &mut self,
        number: u64,
        request: wire::CreateBufferWithProperties<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::CreateBufferWithProperties<'_> as Request<'_>>::ID;
        let status = if plain(request.properties) {
            self.create_buffer(
                request.context,
                request.flags,
                request.size,
                request.host_ptr,
                request.created,
            )?
        } else {
            self.born(
                request.created.0,
                wire::MemHandle::TAG,
                std::ptr::null_mut(),
                CL_INVALID_PROPERTY,
            )?;
            CL_INVALID_PROPERTY
        };
        self.settle(number, call, status);
        Ok(())
    }

    fn create_buffer(
        &mut self,
        context: wire::ContextHandle,
        flags: u64,
        size: u64,
        contents: Option<&[u8]>,
        created: wire::MemHandle,
    ) -> Result<cl_int, ProtocolError> {
        let mut status = CL_SUCCESS;
        let mut native: cl_mem = std::ptr::null_mut();
        let flags = flags as cl_mem_flags;
        match (
            self.native(context.0, wire::ContextHandle::TAG)?,
            usize::try_from(size),
        ) {
            (Err(failed), _) => status = failed,
            (Ok(_), _) if flags & !BUFFER_FLAGS != 0 => status = CL_INVALID_VALUE,
            (Ok(_), Err(_)) => status = CL_INVALID_BUFFER_SIZE,
            (Ok(context), Ok(size)) => {
                let contents = contents.map_or(std::ptr::null(), <[u8]>::as_ptr);
                if let Some(charge) = Charge::new(&self.shared.counters, size as u64) {
                    // SAFETY: the context is live; the contents are `size` bytes, as was checked when the request was decoded, and no
                    // flag lets the vendor keep the pointer.
                    native = unsafe {
                        self.api.clCreateBuffer(
                            context.cast(),
                            flags,
                            size,
                            contents.cast_mut().cast(),
                            &raw mut status,
                        )
                    };
                    (native, status) = self.charged(native, status, charge);
                } else {
                    status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
                }
            }
        }
        self.born(created.0, wire::MemHandle::TAG, native.cast(), status)?;
        Ok(status)
    }
}
