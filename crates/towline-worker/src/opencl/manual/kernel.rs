//! Kernel arguments.

use std::ffi::c_void;

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::{CloseCode, ProtocolError};

use super::program::argument;
use crate::decode::aligned;
use crate::opencl::session::Session;

/// What an argument is; the numbers are the protocol's.
pub(crate) mod kind {
    /// Plain bytes.
    pub(crate) const BYTES: u32 = 0;
    /// A memory object's number.
    pub(crate) const MEM: u32 = 1;
    /// A sampler's number.
    pub(crate) const SAMPLER: u32 = 2;
    /// A device queue's number.
    pub(crate) const QUEUE: u32 = 3;
    /// No value: local memory of a size, or a NULL memory object.
    pub(crate) const NONE: u32 = 4;
    /// An address in shared virtual memory.
    pub(crate) const SVM: u32 = 5;
}

/// What the compiler expects of an argument: a vendor takes the bytes of a handle for a pointer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A memory object.
    Mem,
    /// A sampler.
    Sampler,
    /// A device queue.
    Queue,
    /// A size of local memory.
    Local,
    /// Plain bytes.
    Value,
    /// The compiler has not recorded it, or there is no such argument: the vendor judges.
    Unknown,
}

impl Expected {
    /// Why something else was refused.
    fn refusal(self) -> cl_int {
        match self {
            Self::Mem => CL_INVALID_MEM_OBJECT,
            Self::Sampler => CL_INVALID_SAMPLER,
            Self::Queue => CL_INVALID_DEVICE_QUEUE,
            Self::Local | Self::Value | Self::Unknown => CL_INVALID_ARG_VALUE,
        }
    }
}

impl Session {
    pub(crate) fn SetArg(
        &mut self,
        number: u64,
        request: wire::SetArg<'_>,
    ) -> Result<(), ProtocolError> {
        let status = self.set_arg(
            request.kernel,
            request.index,
            request.kind,
            request.size,
            request.value,
        )?;
        if let Ok(kernel) = self.native(request.kernel.0, wire::KernelHandle::TAG)? {
            self.note_argument(kernel, request.index, status);
        }
        self.settle(number, <wire::SetArg<'_> as Request<'_>>::ID, status);
        Ok(())
    }

    pub(crate) fn CheckArg(
        &mut self,
        number: u64,
        request: wire::CheckArg<'_>,
    ) -> Result<(), ProtocolError> {
        let status = self.set_arg(
            request.kernel,
            request.index,
            request.kind,
            request.size,
            request.value,
        )?;
        // One that is refused leaves the argument as it was, on both sides.
        if let Ok(kernel) = self.native(request.kernel.0, wire::KernelHandle::TAG)?
            && status == CL_SUCCESS
        {
            self.note_argument(kernel, request.index, status);
        }
        self.reply(number, status, &wire::CheckArgReply {});
        Ok(())
    }

    fn set_arg(
        &mut self,
        kernel: wire::KernelHandle,
        index: u32,
        what: u32,
        size: u64,
        value: &[u8],
    ) -> Result<cl_int, ProtocolError> {
        let malformed = |detail: &str| {
            ProtocolError::new(CloseCode::Malformed, format!("kernel argument: {detail}"))
        };
        let kernel: cl_kernel = match self.native(kernel.0, wire::KernelHandle::TAG)? {
            Ok(kernel) => kernel.cast(),
            Err(status) => return Ok(status),
        };
        let expected = self.expected(kernel, index);
        // What an application passes for a handle is a value: of the wrong size, or of no object, it is refused like any other.
        let number = value.try_into().map(u64::from_le_bytes);
        let (tag, own) = match what {
            kind::BYTES => {
                if value.len() as u64 != size {
                    return Err(malformed("the value is not as long as it says"));
                }
                return Ok(match expected {
                    Expected::Value | Expected::Unknown => self.set_bytes(kernel, index, value),
                    Expected::Local => CL_INVALID_ARG_VALUE,
                    _ if value.len() != size_of::<*mut c_void>() => CL_INVALID_ARG_SIZE,
                    other => other.refusal(),
                });
            }
            kind::NONE => {
                let size = usize::try_from(size)
                    .map_err(|_| malformed("local memory beyond the address space"))?;
                // SAFETY: the kernel is live; NULL is a legal value.
                return Ok(unsafe {
                    self.api
                        .clSetKernelArg(kernel, index, size, std::ptr::null())
                });
            }
            kind::SVM => {
                let Ok(address) = number else {
                    return Ok(CL_INVALID_ARG_SIZE);
                };
                if address != 0 && !self.owns(address, 0) {
                    return Ok(CL_INVALID_ARG_VALUE);
                }
                let address = std::ptr::with_exposed_provenance::<c_void>(address as usize);
                // SAFETY: the kernel is live, the address lies in memory of this session's own or is NULL.
                return Ok(unsafe { self.api.clSetKernelArgSVMPointer(kernel, index, address) });
            }
            kind::MEM => (wire::MemHandle::TAG, Expected::Mem),
            kind::SAMPLER => (wire::SamplerHandle::TAG, Expected::Sampler),
            kind::QUEUE => (wire::CommandQueueHandle::TAG, Expected::Queue),
            other => return Err(malformed(&format!("kind {other} has no meaning"))),
        };
        match expected {
            // Bytes that happen to be a number of the client's are bytes.
            Expected::Value => return Ok(self.set_bytes(kernel, index, value)),
            Expected::Unknown => {}
            expected if expected == own => {}
            other => return Ok(other.refusal()),
        }
        let handle = match number.map(|number| self.native(number, tag)) {
            Ok(Ok(Ok(raw))) => raw,
            Ok(Ok(Err(status))) => return Ok(status),
            Ok(Err(_)) => return Ok(own.refusal()),
            Err(_) => return Ok(CL_INVALID_ARG_SIZE),
        };
        // SAFETY: the kernel is live; the value is a live handle of the vendor's.
        Ok(unsafe {
            self.api.clSetKernelArg(
                kernel,
                index,
                size_of::<*mut c_void>(),
                (&raw const handle).cast(),
            )
        })
    }

    fn set_bytes(&self, kernel: cl_kernel, index: u32, value: &[u8]) -> cl_int {
        let words = aligned(value);
        // SAFETY: the kernel is live, the words hold at least as many bytes as the value.
        unsafe {
            self.api
                .clSetKernelArg(kernel, index, value.len(), words.as_ptr().cast())
        }
    }

    /// What the compiler expects of an argument, asked once.
    fn expected(&mut self, kernel: cl_kernel, index: u32) -> Expected {
        let known = self
            .arguments
            .get(&kernel.addr())
            .and_then(|arguments| arguments.get(index as usize).copied());
        if let Some(expected) = known {
            return expected;
        }
        let mut count: cl_uint = 0;
        // SAFETY: the kernel is live or NULL; the answer is one `cl_uint`.
        let status = unsafe {
            self.api.clGetKernelInfo(
                kernel,
                CL_KERNEL_NUM_ARGS,
                size_of::<cl_uint>(),
                (&raw mut count).cast(),
                std::ptr::null_mut(),
            )
        };
        if status != CL_SUCCESS || index >= count {
            return Expected::Unknown;
        }
        let arguments: Vec<Expected> = (0..count)
            .map(|index| match argument(&*self.api, kernel, index) {
                None => Expected::Unknown,
                Some(argument) => match (argument.address, argument.type_name.as_slice()) {
                    (CL_KERNEL_ARG_ADDRESS_LOCAL, _) => Expected::Local,
                    (_, b"sampler_t") => Expected::Sampler,
                    (_, b"queue_t") => Expected::Queue,
                    (CL_KERNEL_ARG_ADDRESS_PRIVATE, _)
                        if argument.access == CL_KERNEL_ARG_ACCESS_NONE =>
                    {
                        Expected::Value
                    }
                    _ => Expected::Mem,
                },
            })
            .collect();
        let expected = arguments.get(index as usize).copied();
        self.arguments.insert(kernel.addr(), arguments);
        expected.unwrap_or(Expected::Unknown)
    }

    pub(crate) fn KernelExecInfo(
        &mut self,
        number: u64,
        request: wire::KernelExecInfo<'_>,
    ) -> Result<(), ProtocolError> {
        let strange = request.param_name == CL_KERNEL_EXEC_INFO_SVM_PTRS
            && request
                .value
                .chunks(size_of::<u64>())
                .any(|chunk| match chunk.try_into() {
                    Ok(bytes) => !self.owns(u64::from_le_bytes(bytes), 0),
                    Err(_) => true,
                });
        let status = match self.native(request.kernel.0, wire::KernelHandle::TAG)? {
            Err(status) => status,
            Ok(_) if strange => CL_INVALID_VALUE,
            Ok(kernel) => {
                let words = aligned(request.value);
                let value = if request.value.is_empty() {
                    std::ptr::null()
                } else {
                    words.as_ptr().cast()
                };
                // SAFETY: the kernel is live, the words hold at least as many bytes as the value; addresses are the session's own.
                unsafe {
                    self.api.clSetKernelExecInfo(
                        kernel.cast(),
                        request.param_name,
                        request.value.len(),
                        value,
                    )
                }
            }
        };
        self.reply(number, status, &wire::KernelExecInfoReply {});
        Ok(())
    }
}
