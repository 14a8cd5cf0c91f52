//! Kernel arguments.

use std::ffi::c_void;

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::{CloseCode, ProtocolError};

use crate::session::Session;

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
        self.reply(number, status, &wire::CheckArgReply {});
        Ok(())
    }

    fn set_arg(
        &self,
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
        let number = || {
            value
                .try_into()
                .map(u64::from_le_bytes)
                .map_err(|_| malformed("a handle takes eight bytes"))
        };
        let handle: *mut c_void = match what {
            kind::BYTES => {
                if value.len() as u64 != size {
                    return Err(malformed("the value is not as long as it says"));
                }
                // SAFETY: the kernel is live, the value has `size` bytes.
                return Ok(unsafe {
                    self.api
                        .clSetKernelArg(kernel, index, value.len(), value.as_ptr().cast())
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
                let address = std::ptr::with_exposed_provenance::<c_void>(number()? as usize);
                // SAFETY: the kernel is live; the vendor judges the address, and the device's work on it is the tenant's own.
                return Ok(unsafe { self.api.clSetKernelArgSVMPointer(kernel, index, address) });
            }
            kind::MEM => match self.native(number()?, wire::MemHandle::TAG)? {
                Ok(raw) => raw,
                Err(status) => return Ok(status),
            },
            kind::SAMPLER => match self.native(number()?, wire::SamplerHandle::TAG)? {
                Ok(raw) => raw,
                Err(status) => return Ok(status),
            },
            kind::QUEUE => match self.native(number()?, wire::CommandQueueHandle::TAG)? {
                Ok(raw) => raw,
                Err(status) => return Ok(status),
            },
            other => return Err(malformed(&format!("kind {other} has no meaning"))),
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

    pub(crate) fn KernelExecInfo(
        &mut self,
        number: u64,
        request: wire::KernelExecInfo<'_>,
    ) -> Result<(), ProtocolError> {
        let status = match self.native(request.kernel.0, wire::KernelHandle::TAG)? {
            Err(status) => status,
            // SAFETY: the kernel is live, the value has as many bytes as it says; addresses in it are the vendor's to judge.
            Ok(kernel) => unsafe {
                self.api.clSetKernelExecInfo(
                    kernel.cast(),
                    request.param_name,
                    request.value.len(),
                    request.value.as_ptr().cast(),
                )
            },
        };
        self.reply(number, status, &wire::KernelExecInfoReply {});
        Ok(())
    }
}
