//! Shared virtual memory: the worker's address is the client's too, so only ranges of this session's own are touched.

use std::sync::Arc;

use smallvec::SmallVec;
use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use crate::decode::aligned;
use crate::link::Charge;
use crate::opencl::session::{Session, Svm, SvmMemory};
use crate::opencl::shared::Raw;

/// Flags that a client may ask of a buffer over shared virtual memory.
const SVM_BUFFER_FLAGS: cl_mem_flags = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;

impl Session {
    pub(crate) fn SvmAlloc(
        &mut self,
        number: u64,
        request: wire::SvmAlloc,
    ) -> Result<(), ProtocolError> {
        let (mut address, mut status) = (0, CL_INVALID_VALUE);
        match (
            self.native(request.context.0, wire::ContextHandle::TAG)?,
            usize::try_from(request.size),
        ) {
            (Err(failed), _) => status = failed,
            (Ok(context), Ok(size)) if !context.is_null() => {
                let flags = request.flags as cl_svm_mem_flags;
                // The call has no better status for memory that cannot be had.
                status = CL_OUT_OF_RESOURCES;
                if let Some(charge) = Charge::new(&self.shared.counters, request.size) {
                    // SAFETY: the context is live.
                    let memory = unsafe {
                        self.api
                            .clSVMAlloc(context.cast(), flags, size, request.alignment)
                    };
                    if !memory.is_null() {
                        (address, status) = (memory.expose_provenance() as u64, CL_SUCCESS);
                        // SAFETY: the context is live; the reference lasts as long as the memory.
                        unsafe { self.api.clRetainContext(context.cast()) };
                        let memory = SvmMemory {
                            api: Arc::clone(&self.api),
                            address,
                            context: Raw(context),
                            _charge: charge,
                        };
                        let memory = Arc::new(memory);
                        self.svm.insert(
                            address,
                            Svm {
                                bytes: size,
                                memory,
                            },
                        );
                    }
                }
            }
            _ => {}
        }
        self.reply(
            number,
            status,
            &wire::SvmAllocReply {
                address: Some(address),
            },
        );
        Ok(())
    }

    pub(crate) fn SvmFree(
        &mut self,
        number: u64,
        request: wire::SvmFree,
    ) -> Result<(), ProtocolError> {
        let status = match self.svm.remove(&request.address) {
            None => CL_INVALID_VALUE,
            Some(memory) => {
                self.free_svm(memory);
                CL_SUCCESS
            }
        };
        self.settle(number, <wire::SvmFree as Request<'_>>::ID, status);
        Ok(())
    }

    pub(crate) fn SvmBuffer(
        &mut self,
        number: u64,
        request: wire::SvmBuffer,
    ) -> Result<(), ProtocolError> {
        let (mut native, mut status): (cl_mem, _) = (std::ptr::null_mut(), CL_INVALID_HOST_PTR);
        let flags = request.flags as cl_mem_flags;
        let below = self.svm.range(..=request.address).next_back();
        let memory = below.map(|(_, svm)| Arc::clone(&svm.memory));
        match (
            self.native(request.context.0, wire::ContextHandle::TAG)?,
            memory,
        ) {
            (Err(failed), _) => status = failed,
            (Ok(_), _) if flags & !SVM_BUFFER_FLAGS != 0 => status = CL_INVALID_VALUE,
            (Ok(context), Some(memory))
                if self.owns(request.address, request.size) && memory.context == Raw(context) =>
            {
                // SAFETY: the context is live, and the range is its own memory, which the buffer keeps as long as the vendor has it.
                native = unsafe {
                    self.api.clCreateBuffer(
                        context.cast(),
                        flags | CL_MEM_USE_HOST_PTR,
                        request.size as usize,
                        std::ptr::with_exposed_provenance_mut(request.address as usize),
                        &raw mut status,
                    )
                };
                if !native.is_null() && !self.keep_while(native, Arc::clone(&memory)) {
                    // The vendor does not say when it is done with the memory: it stays until the process ends.
                    std::mem::forget(memory);
                }
            }
            _ => {}
        }
        let created = wire::MemHandle(request.created.0);
        self.born(created.0, wire::MemHandle::TAG, native.cast(), status)?;
        self.settle(number, <wire::SvmBuffer as Request<'_>>::ID, status);
        Ok(())
    }

    pub(crate) fn SvmCopy(
        &mut self,
        number: u64,
        request: wire::SvmCopy<'_>,
    ) -> Result<(), ProtocolError> {
        let owned =
            self.owns(request.destination, request.size) && self.owns(request.source, request.size);
        let mut done: cl_event = std::ptr::null_mut();
        let status = match self.command(request.command_queue, request.event_wait_list)? {
            _ if !owned => CL_INVALID_VALUE,
            Err(status) => status,
            // SAFETY: both ranges belong to this session, queue and events are live.
            Ok((queue, waits)) => unsafe {
                self.api.clEnqueueSVMMemcpy(
                    queue,
                    CL_FALSE as cl_bool,
                    std::ptr::with_exposed_provenance_mut(request.destination as usize),
                    std::ptr::with_exposed_provenance(request.source as usize),
                    request.size as usize,
                    waits.len() as cl_uint,
                    if waits.is_empty() {
                        std::ptr::null()
                    } else {
                        waits.as_ptr()
                    },
                    if request.event.is_some() {
                        &raw mut done
                    } else {
                        std::ptr::null_mut()
                    },
                )
            },
        };
        self.born_event(request.event, done, status)?;
        self.settle_on(
            number,
            <wire::SvmCopy<'_> as Request<'_>>::ID,
            request.command_queue.0,
            status,
        );
        Ok(())
    }

    pub(crate) fn SvmFill(
        &mut self,
        number: u64,
        request: wire::SvmFill<'_>,
    ) -> Result<(), ProtocolError> {
        let owned = self.owns(request.destination, request.size);
        let pattern = aligned(request.pattern);
        let mut done: cl_event = std::ptr::null_mut();
        let status = match self.command(request.command_queue, request.event_wait_list)? {
            _ if !owned => CL_INVALID_VALUE,
            Err(status) => status,
            // SAFETY: the range belongs to this session, queue and events are live, the words hold at least as many bytes as the pattern.
            Ok((queue, waits)) => unsafe {
                self.api.clEnqueueSVMMemFill(
                    queue,
                    std::ptr::with_exposed_provenance_mut(request.destination as usize),
                    pattern.as_ptr().cast(),
                    request.pattern.len(),
                    request.size as usize,
                    waits.len() as cl_uint,
                    if waits.is_empty() {
                        std::ptr::null()
                    } else {
                        waits.as_ptr()
                    },
                    if request.event.is_some() {
                        &raw mut done
                    } else {
                        std::ptr::null_mut()
                    },
                )
            },
        };
        self.born_event(request.event, done, status)?;
        self.settle_on(
            number,
            <wire::SvmFill<'_> as Request<'_>>::ID,
            request.command_queue.0,
            status,
        );
        Ok(())
    }

    /// Whether a range lies in one allocation of this session: nothing else in the worker may be read or written by address.
    pub(crate) fn owns(&self, address: u64, size: u64) -> bool {
        let Some((start, Svm { bytes: length, .. })) = self.svm.range(..=address).next_back()
        else {
            return false;
        };
        (address - start)
            .checked_add(size)
            .is_some_and(|end| end <= *length as u64)
    }

    #[allow(
        clippy::type_complexity,
        reason = "a queue and its wait list, or the status of a handle that had failed"
    )]
    fn command(
        &self,
        queue: wire::CommandQueueHandle,
        waits: Option<List<'_, wire::EventHandle>>,
    ) -> Result<Result<(cl_command_queue, SmallVec<[cl_event; 8]>), i32>, ProtocolError> {
        let list = waits
            .iter()
            .flat_map(|list| list.iter())
            .map(|event| event.0);
        let list = self.natives(list, wire::EventHandle::TAG)?;
        Ok(
            match (self.native(queue.0, wire::CommandQueueHandle::TAG)?, list) {
                (Err(status), _) | (_, Err(status)) => Err(status),
                (Ok(queue), Ok(list)) => Ok((queue.cast(), list)),
            },
        )
    }
}
