//! Buffers.

use std::ptr;
use std::sync::Arc;

use super::super::super::contract::*;
use super::super::super::handles::Destructor;
use super::super::super::*;
use super::super::memory::Memory;
use super::super::registry::Context;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    pub(super) unsafe fn clCreateBuffer(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        // SAFETY: the caller's contract, passed on.
        unsafe {
            self.clCreateBufferWithProperties(
                context,
                ptr::null(),
                flags,
                size,
                host_ptr,
                errcode_ret,
            )
        }
    }

    pub(super) unsafe fn clCreateBufferWithProperties(
        &self,
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        let made = (|| {
            let context: Arc<Context> = self.get(context)?;
            // SAFETY: the caller's contract.
            let properties = unsafe { pairs(properties) }?;
            require(properties.len() <= 1, CL_INVALID_PROPERTY)?;
            let number = self.shared.registry.mint();
            let account = (&self.shared.allocated, self.alive());
            let made = Memory::new(number, context, flags, size, host_ptr, properties, account)?;
            self.shared.registry.name(number, Arc::new(made));
            Ok(number)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clCreateSubBuffer(
        &self,
        buffer: cl_mem,
        flags: cl_mem_flags,
        buffer_create_type: cl_buffer_create_type,
        buffer_create_info: *const c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        let made = (|| {
            let parent: Arc<Memory> = self.get(buffer)?;
            let is_region = buffer_create_type == CL_BUFFER_CREATE_TYPE_REGION;
            require(is_region && !buffer_create_info.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract: for this type it points to a region.
            let region = unsafe { buffer_create_info.cast::<cl_buffer_region>().read() };
            let number = self.shared.registry.mint();
            let made = Memory::part(number, parent, flags, region, self.alive())?;
            self.shared.registry.name(number, Arc::new(made));
            Ok(number)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clGetMemObjectInfo(
        &self,
        memobj: cl_mem,
        param_name: cl_mem_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Memory, _>(memobj).and_then(|object| {
            let parent = object.parent.as_ref();
            let answer = match param_name {
                CL_MEM_TYPE => CL_MEM_OBJECT_BUFFER.bytes(),
                CL_MEM_FLAGS => object.flags.bytes(),
                CL_MEM_SIZE => object.size.bytes(),
                CL_MEM_HOST_PTR => object.host_ptr.bytes(),
                CL_MEM_MAP_COUNT => (object.map_count() as cl_uint).bytes(),
                CL_MEM_REFERENCE_COUNT => self.references(memobj),
                CL_MEM_CONTEXT => object.context.handle.bytes(),
                CL_MEM_ASSOCIATED_MEMOBJECT => {
                    parent.map_or(0, |(parent, _)| parent.handle).bytes()
                }
                CL_MEM_OFFSET => parent.map_or(0, |(_, origin)| *origin).bytes(),
                CL_MEM_USES_SVM_POINTER => CL_FALSE.bytes(),
                CL_MEM_PROPERTIES => object.properties.bytes(),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    pub(super) unsafe fn clSetMemObjectDestructorCallback(
        &self,
        memobj: cl_mem,
        pfn_notify: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        status(self.get::<Memory, _>(memobj).and_then(|object| {
            let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
            let destructor = Destructor::new(function, memobj, user_data);
            object.destructors.add(destructor);
            Ok(())
        }))
    }
}
