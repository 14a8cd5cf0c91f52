//! Shared virtual memory: coarse-grained, in contexts of a single provider whose devices have it.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

use towline_backend::opencl::*;

use crate::arena::{Ref, get};
use crate::callback::CALLBACKS;
use crate::command::{Meets, WaitList, check_events, enqueue, enqueue_transfer, placeholder};
use crate::context::Context;
use crate::event::when_over;
use crate::platform::{Platform, SvmCalls};
use crate::queue::{Queue, host_queue};
use crate::raw::{self, Out, Shared, create, provider};

type FreeFn = unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void);

/// Refuses contexts without shared virtual memory.
pub(crate) fn expect(context: &Context) -> Result<(), cl_int> {
    let able = context
        .devices
        .iter()
        .any(|device| device.limits.svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0);
    if context.single() && able {
        Ok(())
    } else {
        Err(CL_INVALID_OPERATION)
    }
}

/// One allocation. Buffers over it keep it: it ends with the last of them, however early the application frees it.
pub(crate) struct Allocation {
    start: Shared<c_void>,
    size: usize,
}

impl Context {
    /// The allocation that the pointer is in, for a buffer of so many bytes from there on; `None` for other memory.
    pub(crate) fn svm_behind(
        &self,
        pointer: *const c_void,
        size: usize,
    ) -> Result<Option<Arc<Allocation>>, cl_int> {
        let allocations = self.svm.lock().unwrap_or_else(PoisonError::into_inner);
        let below = allocations.range(..=pointer.addr()).next_back();
        match below {
            Some((start, found)) if pointer.addr() - start < found.size => {
                if size <= found.size - (pointer.addr() - start) {
                    Ok(Some(Arc::clone(found)))
                } else {
                    Err(CL_INVALID_BUFFER_SIZE)
                }
            }
            _ => Ok(None),
        }
    }

    /// Whether any of so many bytes from a pointer on lies in shared virtual memory of this context.
    fn svm_touches(&self, pointer: *const c_void, size: usize) -> bool {
        let allocations = self.svm.lock().unwrap_or_else(PoisonError::into_inner);
        let end = pointer.addr().saturating_add(size);
        let below = allocations.range(..end).next_back();
        below.is_some_and(|(start, last)| start + last.size > pointer.addr())
    }

    /// Gives one hold on an allocation up; the last one frees it.
    pub(crate) fn svm_release(&self, allocation: Arc<Allocation>) {
        if let Some(last) = Arc::into_inner(allocation) {
            let part = &self.parts[0];
            provider!(part.provider.api, clSVMFree(part.raw.0, last.start.0));
        }
    }

    /// Whether so many bytes from a pointer on, one at the least, lie in one allocation of shared virtual memory of this context.
    pub(crate) fn svm_holds(&self, pointer: *const c_void, size: usize) -> bool {
        let allocations = self.svm.lock().unwrap_or_else(PoisonError::into_inner);
        holds(&allocations, pointer.addr(), size)
    }

    fn svm_free(&self, pointer: *mut c_void) {
        if pointer.is_null() {
            return;
        }
        let known = self
            .svm
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&pointer.addr());
        if let Some(allocation) = known {
            self.svm_release(allocation);
        }
    }
}

/// Whether one of the allocations holds so many bytes from an address on, one at the least.
fn holds(allocations: &BTreeMap<usize, Arc<Allocation>>, address: usize, size: usize) -> bool {
    let below = allocations.range(..=address).next_back();
    below.is_some_and(|(start, all)| {
        let end = (address - start).checked_add(size.max(1));
        end.is_some_and(|end| end <= all.size)
    })
}

/// Copies within the host's memory in its turn on the queue: through a buffer of the session, which alone knows when that is.
fn copy_on_host(
    queue: &Queue,
    blocking: cl_bool,
    (to, from, size): (*mut c_void, *const c_void, usize),
    (count, list, event): (cl_uint, *const cl_event, *mut cl_event),
) -> cl_int {
    let part = queue.part();
    let api = &part.provider.api;
    let (flags, none) = (CL_MEM_READ_WRITE, std::ptr::null_mut());
    let scratch = match create!(api, clCreateBuffer(part.raw.0, flags, size, none)) {
        Ok(scratch) => scratch,
        Err(status) => return status,
    };
    let (raw, mut written) = (queue.raw.0, std::ptr::null_mut());
    let mut status = provider!(
        api,
        clEnqueueWriteBuffer(
            raw,
            scratch,
            CL_FALSE,
            0,
            size,
            from,
            count,
            list,
            &raw mut written
        )
    );
    if status == CL_SUCCESS {
        status = provider!(
            api,
            clEnqueueReadBuffer(
                raw,
                scratch,
                blocking,
                0,
                size,
                to,
                1,
                &raw const written,
                event
            )
        );
        provider!(api, clReleaseEvent(written));
    }
    provider!(api, clReleaseMemObject(scratch));
    status
}

/// The queue of a command on shared virtual memory.
fn usable(queue: cl_command_queue) -> Result<Ref<Queue>, cl_int> {
    let queue = host_queue(queue)?;
    expect(&queue.context)?;
    if queue.device.limits.svm == 0 {
        return Err(CL_INVALID_OPERATION);
    }
    Ok(queue)
}

/// Frees pointers once what was enqueued before is complete.
fn free_later(
    queue: &Ref<Queue>,
    pointers: Vec<Shared<c_void>>,
    function: Option<FreeFn>,
    user_data: Shared<c_void>,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
) -> Result<(), cl_int> {
    // The event is wanted here even if the application does not want it.
    let mut own = std::ptr::null_mut();
    // SAFETY: the place is a local that outlives the call.
    let place = unsafe { Out::new(&raw mut own) };
    let made =
        placeholder(queue, waits, &place, CL_COMMAND_SVM_FREE)?.ok_or(CL_OUT_OF_HOST_MEMORY)?;
    let held = queue.clone();
    let freed = when_over(&made, move |_| {
        CALLBACKS.run(move || {
            let user_data = user_data;
            let mut list: Vec<*mut c_void> = pointers.iter().map(|pointer| pointer.0).collect();
            match function {
                // SAFETY: the application gave the function for these pointers and this data.
                Some(function) => unsafe {
                    function(
                        held.handle(),
                        list.len() as cl_uint,
                        list.as_mut_ptr(),
                        user_data.0,
                    )
                },
                None => {
                    for pointer in list {
                        held.context.svm_free(pointer);
                    }
                }
            }
        });
    });
    if event.wanted() && freed.is_ok() {
        event.set(own);
    } else {
        made.release()?;
    }
    freed
}

impl SvmCalls for Platform {
    unsafe fn clSVMAlloc(
        &self,
        context: cl_context,
        flags: cl_svm_mem_flags,
        size: usize,
        alignment: cl_uint,
    ) -> *mut c_void {
        let Ok(context) = get::<Context>(context) else {
            return std::ptr::null_mut();
        };
        let access = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
        let largest = context
            .devices
            .iter()
            .map(|device| device.limits.max_alloc)
            .min();
        if expect(&context).is_err()
            || flags & !access != 0
            || flags.count_ones() > 1
            || size == 0
            || largest.is_some_and(|largest| largest != 0 && size as u64 > largest)
            || (alignment != 0 && !alignment.is_power_of_two())
        {
            return std::ptr::null_mut();
        }
        let part = &context.parts[0];
        let pointer = provider!(
            part.provider.api,
            clSVMAlloc(part.raw.0, flags, size, alignment)
        );
        if !pointer.is_null() {
            context
                .svm
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(
                    pointer.expose_provenance(),
                    Arc::new(Allocation {
                        start: Shared(pointer),
                        size,
                    }),
                );
        }
        pointer
    }

    unsafe fn clSVMFree(&self, context: cl_context, svm_pointer: *mut c_void) {
        if let Ok(context) = get::<Context>(context) {
            context.svm_free(svm_pointer);
        }
    }

    unsafe fn clEnqueueSVMFree(
        &self,
        command_queue: cl_command_queue,
        num_svm_pointers: cl_uint,
        svm_pointers: *mut *mut c_void,
        pfn_free_func: Option<FreeFn>,
        user_data: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = usable(command_queue)?;
        // SAFETY: the application's contract: NULL or so many pointers.
        let pointers = unsafe { raw::slice(svm_pointers.cast_const(), num_svm_pointers as usize) };
        if pointers.is_none() != (num_svm_pointers == 0) {
            return Err(CL_INVALID_VALUE);
        }
        free_later(
            &queue,
            pointers
                .unwrap_or(&[])
                .iter()
                .map(|&pointer| Shared(pointer))
                .collect(),
            pfn_free_func,
            Shared(user_data),
            (num_events_in_wait_list, event_wait_list),
            &event,
        )
    }

    unsafe fn clEnqueueSVMMemcpy(
        &self,
        command_queue: cl_command_queue,
        blocking_copy: cl_bool,
        dst_ptr: *mut c_void,
        src_ptr: *const c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = usable(command_queue)?;
        if dst_ptr.is_null() || src_ptr.is_null() || size == 0 {
            return Err(CL_INVALID_VALUE);
        }
        check_events(&queue, (num_events_in_wait_list, event_wait_list))?;
        let (to, from) = (dst_ptr.addr(), src_ptr.addr());
        if to < from.saturating_add(size) && from < to.saturating_add(size) {
            return Err(CL_MEM_COPY_OVERLAP);
        }
        // A session knows only its own memory by address.
        let shared = |pointer| queue.context.svm_touches(pointer, size);
        let beside_svm =
            queue.part().provider.session.is_some() && !shared(dst_ptr) && !shared(src_ptr);
        enqueue_transfer(
            &queue,
            Meets::writes(blocking_copy),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_SVM_MEMCPY,
            &[],
            |count, list, event| {
                if beside_svm {
                    return copy_on_host(
                        &queue,
                        blocking_copy,
                        (dst_ptr, src_ptr, size),
                        (count, list, event),
                    );
                }
                provider!(
                    queue.part().provider.api,
                    clEnqueueSVMMemcpy(
                        queue.raw.0,
                        blocking_copy,
                        dst_ptr,
                        src_ptr,
                        size,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueSVMMemFill(
        &self,
        command_queue: cl_command_queue,
        svm_ptr: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = usable(command_queue)?;
        if svm_ptr.is_null()
            || size == 0
            || pattern.is_null()
            || !pattern_size.is_power_of_two()
            || pattern_size > 128
            || !svm_ptr.addr().is_multiple_of(pattern_size)
            || !size.is_multiple_of(pattern_size)
        {
            return Err(CL_INVALID_VALUE);
        }
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_SVM_MEMFILL,
            &[],
            |count, list, event| {
                provider!(
                    queue.part().provider.api,
                    clEnqueueSVMMemFill(
                        queue.raw.0,
                        svm_ptr,
                        pattern,
                        pattern_size,
                        size,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueSVMMap(
        &self,
        command_queue: cl_command_queue,
        blocking_map: cl_bool,
        flags: cl_map_flags,
        svm_ptr: *mut c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = usable(command_queue)?;
        if svm_ptr.is_null() || size == 0 {
            return Err(CL_INVALID_VALUE);
        }
        crate::map::Request::new(blocking_map, flags)?;
        enqueue_transfer(
            &queue,
            Meets::reads(blocking_map),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_SVM_MAP,
            &[],
            |count, list, event| {
                provider!(
                    queue.part().provider.api,
                    clEnqueueSVMMap(
                        queue.raw.0,
                        blocking_map,
                        flags,
                        svm_ptr,
                        size,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueSVMUnmap(
        &self,
        command_queue: cl_command_queue,
        svm_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = usable(command_queue)?;
        if svm_ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_SVM_UNMAP,
            &[],
            |count, list, event| {
                provider!(
                    queue.part().provider.api,
                    clEnqueueSVMUnmap(queue.raw.0, svm_ptr, count, list, event)
                )
            },
        )
    }

    unsafe fn clEnqueueSVMMigrateMem(
        &self,
        command_queue: cl_command_queue,
        num_svm_pointers: cl_uint,
        svm_pointers: *mut *const c_void,
        sizes: Option<&[usize]>,
        flags: cl_mem_migration_flags,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = usable(command_queue)?;
        let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
        if num_svm_pointers == 0 || svm_pointers.is_null() || flags & !known != 0 {
            return Err(CL_INVALID_VALUE);
        }
        // SAFETY: the application's contract: so many pointers.
        let pointers = unsafe { raw::slice(svm_pointers.cast_const(), num_svm_pointers as usize) }
            .unwrap_or(&[]);
        for (index, pointer) in pointers.iter().enumerate() {
            let size = sizes.and_then(|sizes| sizes.get(index)).copied();
            if !queue.context.svm_holds(*pointer, size.unwrap_or(0)) {
                return Err(CL_INVALID_VALUE);
            }
        }
        // A single provider holds the only copy: it is where it is needed, and the command keeps its place in the order.
        placeholder(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_SVM_MIGRATE_MEM,
        )
        .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_in_one_allocation_and_not_in_two_that_touch() {
        let of = |size| {
            Arc::new(Allocation {
                start: Shared(std::ptr::null_mut()),
                size,
            })
        };
        let allocations = BTreeMap::from([(0x1000, of(0x100)), (0x1100, of(0x100))]);
        assert!(holds(&allocations, 0x1000, 0x100));
        assert!(holds(&allocations, 0x10ff, 0));
        assert!(holds(&allocations, 0x1100, 0x100));
        assert!(!holds(&allocations, 0x1000, 0x101));
        assert!(!holds(&allocations, 0x1200, 0));
        assert!(!holds(&allocations, 0xfff, 1));
        assert!(!holds(&allocations, 0x1001, usize::MAX));
    }
}
