//! Kernels: arguments are kept here and travel with the launch, only those that changed.

use smallvec::SmallVec;
use towline_wire::facts;

use super::event::status_of;
use super::*;
use crate::tuning::tuning;

/// What an argument is; the numbers are the protocol's.
mod kind {
    pub(super) const BYTES: u32 = 0;
    pub(super) const MEM: u32 = 1;
    pub(super) const SAMPLER: u32 = 2;
    pub(super) const QUEUE: u32 = 3;
    pub(super) const NONE: u32 = 4;
    pub(super) const SVM: u32 = 5;
}

/// A kernel and its arguments.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    facts: Option<facts::Kernel>,
    arguments: Vec<Argument>,
    /// Some argument is not at the server yet.
    dirty: bool,
}

/// One argument slot.
#[derive(Debug, Clone, Default)]
struct Argument {
    kind: u32,
    size: u64,
    value: SmallVec<[u8; 32]>,
    set: bool,
    dirty: bool,
    /// What the device has accepted in this slot: kind and size.
    accepted: SmallVec<[(u32, u64); 2]>,
}

/// Highest argument index that is believed before the device has judged it.
const INDEX_LIMIT: u32 = 4096;

impl Kernel {
    pub(super) fn new(facts: Option<facts::Kernel>) -> Self {
        let count = facts.as_ref().map_or(0, |facts| facts.num_args as usize);
        Self {
            facts,
            arguments: vec![Argument::default(); count],
            dirty: false,
        }
    }

    fn known(&self, index: u32) -> Option<&facts::Argument> {
        self.facts.as_ref()?.arguments.as_ref()?.get(index as usize)
    }

    /// Kind of a value, and whether the records leave no doubt that the device takes it. `Err` where they say that it does not.
    fn judge(&self, index: u32, size: usize, value: Option<&[u8]>) -> Result<(u32, bool), cl_int> {
        let handle = value.filter(|_| size == 8).and_then(handle_kind);
        let Some(known) = self.known(index) else {
            return Ok(match value {
                None => (kind::NONE, false),
                Some(_) => (handle.unwrap_or(kind::BYTES), false),
            });
        };
        let pointer = known.address == CL_KERNEL_ARG_ADDRESS_GLOBAL
            || known.address == CL_KERNEL_ARG_ADDRESS_CONSTANT;
        let image = known.access != CL_KERNEL_ARG_ACCESS_NONE;
        let null = value.is_none_or(|value| value.iter().all(|byte| *byte == 0));
        match value {
            None if known.address == CL_KERNEL_ARG_ADDRESS_LOCAL => Ok((kind::NONE, size > 0)),
            Some(_) if known.address == CL_KERNEL_ARG_ADDRESS_LOCAL => Err(CL_INVALID_ARG_VALUE),
            _ if pointer && !image && null => Ok((kind::NONE, size == 8)),
            Some(_) if pointer || image => match handle {
                Some(kind::MEM) => Ok((kind::MEM, true)),
                Some(_) => Err(CL_INVALID_MEM_OBJECT),
                None => Ok((kind::BYTES, false)),
            },
            Some(_) => match known.type_name.as_slice() {
                b"sampler_t" => Ok((kind::SAMPLER, handle == Some(kind::SAMPLER))),
                b"queue_t" => Ok((kind::QUEUE, handle == Some(kind::QUEUE))),
                name => Ok((kind::BYTES, size_of_type(name) == Some(size))),
            },
            None => Ok((kind::NONE, false)),
        }
    }
}

/// The kind of argument that a handle's bits name.
fn handle_kind(value: &[u8]) -> Option<u32> {
    let bits = u64::from_ne_bytes(value.try_into().ok()?);
    if bits >> 48 != towline_session::HANDLE_BASE >> 48 {
        return None;
    }
    match (bits >> 40) as u8 {
        wire::MemHandle::TAG => Some(kind::MEM),
        wire::SamplerHandle::TAG => Some(kind::SAMPLER),
        wire::CommandQueueHandle::TAG => Some(kind::QUEUE),
        _ => None,
    }
}

/// Size of a built-in type of OpenCL C by its name; `None` for structures and what else a program defines.
fn size_of_type(name: &[u8]) -> Option<usize> {
    let name = std::str::from_utf8(name).ok()?;
    let name = name.strip_prefix("unsigned ").unwrap_or(name);
    let digits = name
        .find(|letter: char| letter.is_ascii_digit())
        .unwrap_or(name.len());
    let (base, width) = name.split_at(digits);
    let element = match base {
        "char" | "uchar" => 1,
        "short" | "ushort" | "half" => 2,
        "int" | "uint" | "float" => 4,
        "long" | "ulong" | "double" => 8,
        _ => return None,
    };
    let lanes = match width {
        "" => 1,
        "2" => 2,
        // Three-component vectors take the room of four (OpenCL C, 6.3.5).
        "3" | "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => return None,
    };
    Some(element * lanes)
}

impl Remote {
    pub(super) fn create_kernel(
        &self,
        program: cl_program,
        name: &[u8],
    ) -> Result<cl_kernel, cl_int> {
        let facts = self.facts_of(program)?;
        let known = facts.kernel(name).ok_or(CL_INVALID_KERNEL_NAME)?.clone();
        let created = wire::KernelHandle(self.mint(wire::KernelHandle::TAG));
        self.enter_kernel(created, Kernel::new(Some(known)));
        self.post(&wire::CreateKernel {
            program: wire::ProgramHandle::from_raw(program),
            kernel_name: name,
            created,
        })?;
        Ok(created.to_raw())
    }

    pub(super) fn clone_kernel(&self, source: cl_kernel) -> Result<cl_kernel, cl_int> {
        let kernel = self.kernel(source).ok_or(CL_INVALID_KERNEL)?;
        let mut kernel = lock(&kernel);
        let created = wire::KernelHandle(self.mint(wire::KernelHandle::TAG));
        // The server's clone has the arguments that the server knows: bring it up to date first.
        self.link.post_batch(|batch| {
            send_arguments(wire::KernelHandle::from_raw(source), &mut kernel, batch);
            let request = wire::CloneKernel {
                source_kernel: wire::KernelHandle::from_raw(source),
                created,
            };
            batch.post(wire::CloneKernel::ID, |out| request.encode(out));
        })?;
        let copy = Kernel {
            facts: kernel.facts.clone(),
            arguments: kernel.arguments.clone(),
            dirty: kernel.dirty,
        };
        self.enter_kernel(created, copy);
        Ok(created.to_raw())
    }

    pub(super) fn release_kernel(&self, kernel: cl_kernel) -> cl_int {
        let id = kernel.addr() as u64;
        if self
            .kernels
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id)
            .is_none()
        {
            return CL_INVALID_KERNEL;
        }
        status_of(self.post(&wire::ReleaseKernel {
            kernel: wire::KernelHandle(id),
        }))
    }

    pub(super) fn set_arg(
        &self,
        kernel: cl_kernel,
        index: cl_uint,
        size: usize,
        value: Option<&[u8]>,
    ) -> cl_int {
        let Some(found) = self.kernel(kernel) else {
            return CL_INVALID_KERNEL;
        };
        let mut found = lock(&found);
        let (kind, certain) = match found.judge(index, size, value) {
            Ok(verdict) => verdict,
            Err(status) => return status,
        };
        let value = if kind == kind::NONE {
            &[]
        } else {
            value.unwrap_or_default()
        };
        self.store(kernel, &mut found, index, kind, size as u64, value, certain)
    }

    pub(super) fn set_arg_svm(
        &self,
        kernel: cl_kernel,
        index: cl_uint,
        address: *const c_void,
    ) -> cl_int {
        let Some(found) = self.kernel(kernel) else {
            return CL_INVALID_KERNEL;
        };
        let address = (address.addr() as u64).to_le_bytes();
        self.store(
            kernel,
            &mut lock(&found),
            index,
            kind::SVM,
            8,
            &address,
            false,
        )
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one argument slot, described in full"
    )]
    fn store(
        &self,
        id: cl_kernel,
        kernel: &mut Kernel,
        index: cl_uint,
        kind: u32,
        size: u64,
        value: &[u8],
        certain: bool,
    ) -> cl_int {
        let count = kernel
            .facts
            .as_ref()
            .map_or(INDEX_LIMIT, |facts| facts.num_args);
        if index >= count {
            return CL_INVALID_ARG_INDEX;
        }
        if kernel.arguments.len() <= index as usize {
            kernel
                .arguments
                .resize(index as usize + 1, Argument::default());
        }
        let Some(slot) = kernel.arguments.get_mut(index as usize) else {
            return CL_INVALID_ARG_INDEX;
        };
        let same =
            slot.set && slot.kind == kind && slot.size == size && slot.value.as_slice() == value;
        if same && tuning().argument_cache {
            return CL_SUCCESS;
        }
        let judged = certain || slot.accepted.contains(&(kind, size));
        if !judged {
            // The device's verdict on a new kind or size: this call waits for it, once.
            let request = wire::CheckArg {
                kernel: wire::KernelHandle::from_raw(id),
                index,
                kind,
                size,
                value_size: value.len() as u64,
                value,
            };
            if let Err(status) = self.call_for("clSetKernelArg", &request) {
                return status;
            }
            slot.accepted.push((kind, size));
        }
        slot.kind = kind;
        slot.size = size;
        slot.value = SmallVec::from_slice(value);
        slot.set = true;
        slot.dirty = judged;
        kernel.dirty |= judged;
        CL_SUCCESS
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the parameters of clEnqueueNDRangeKernel"
    )]
    pub(super) fn launch(
        &self,
        queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        offset: Option<&[usize]>,
        global: Option<&[usize]>,
        local: Option<&[usize]>,
        waits: &[cl_event],
        event: *mut cl_event,
    ) -> cl_int {
        let Some(found) = self.kernel(kernel) else {
            return CL_INVALID_KERNEL;
        };
        let mut found = lock(&found);
        if found.arguments.iter().any(|argument| !argument.set) {
            return CL_INVALID_KERNEL_ARGS;
        }
        let wide = |list: Option<&[usize]>| -> Option<SmallVec<[u64; 3]>> {
            list.map(|list| list.iter().map(|value| *value as u64).collect())
        };
        let (offset, global, local) = (wide(offset), wide(global), wide(local));
        let waits: SmallVec<[wire::EventHandle; 8]> = waits
            .iter()
            .map(|event| wire::EventHandle::from_raw(*event))
            .collect();
        let handle = (!event.is_null()).then(|| self.mint_event());
        let id = wire::KernelHandle::from_raw(kernel);
        let request = wire::EnqueueNDRangeKernel {
            command_queue: wire::CommandQueueHandle::from_raw(queue),
            kernel: id,
            work_dim,
            global_work_offset: offset.as_deref().map(wire::List::Values),
            global_work_size: global.as_deref().map(wire::List::Values),
            local_work_size: local.as_deref().map(wire::List::Values),
            num_events_in_wait_list: waits.len() as u32,
            event_wait_list: (!waits.is_empty()).then_some(wire::List::Values(&waits)),
            event: handle,
        };
        let posted = self.link.post_batch(|batch| {
            send_arguments(id, &mut found, batch);
            batch.post(wire::EnqueueNDRangeKernel::ID, |out| request.encode(out));
        });
        if let Some(handle) = handle {
            // SAFETY: the caller's contract of clEnqueueNDRangeKernel: `event` is writable.
            unsafe { event.write(handle.to_raw()) };
        }
        status_of(posted)
    }

    pub(super) fn kernel(&self, kernel: cl_kernel) -> Option<Arc<Mutex<Kernel>>> {
        self.kernels
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&(kernel.addr() as u64))
            .cloned()
    }

    fn enter_kernel(&self, id: wire::KernelHandle, kernel: Kernel) {
        self.kernels
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.0, Arc::new(Mutex::new(kernel)));
    }
}

/// Posts the arguments that the server does not have.
fn send_arguments(
    id: wire::KernelHandle,
    kernel: &mut Kernel,
    batch: &mut towline_session::Batch<'_>,
) {
    if !kernel.dirty {
        return;
    }
    kernel.dirty = false;
    for (index, slot) in kernel
        .arguments
        .iter_mut()
        .enumerate()
        .filter(|(_, slot)| slot.dirty)
    {
        slot.dirty = false;
        let request = wire::SetArg {
            kernel: id,
            index: index as u32,
            kind: slot.kind,
            size: slot.size,
            value_size: slot.value.len() as u64,
            value: &slot.value,
        };
        batch.post(<wire::SetArg<'_> as Request<'_>>::ID, |out| {
            request.encode(out)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(address: u32, type_name: &[u8]) -> Kernel {
        let access = CL_KERNEL_ARG_ACCESS_NONE;
        let argument = facts::Argument {
            address,
            access,
            type_name: type_name.into(),
            ..facts::Argument::default()
        };
        Kernel::new(Some(facts::Kernel {
            name: b"k".into(),
            num_args: 1,
            arguments: Some(vec![argument]),
        }))
    }

    #[test]
    fn recorded_types_settle_the_size_of_plain_values() {
        let kernel = recorded(CL_KERNEL_ARG_ADDRESS_PRIVATE, b"float3");
        assert_eq!(kernel.judge(0, 16, Some(&[1; 16])), Ok((kind::BYTES, true)));
        assert_eq!(
            kernel.judge(0, 12, Some(&[1; 12])),
            Ok((kind::BYTES, false))
        );
        assert_eq!(size_of_type(b"unsigned int"), Some(4));
        assert_eq!(size_of_type(b"struct S"), None);
        assert_eq!(size_of_type(b"int5"), None);
    }

    #[test]
    fn a_handle_is_known_by_its_bits_and_only_where_one_can_stand() {
        let mem = (towline_session::HANDLE_BASE | (u64::from(wire::MemHandle::TAG) << 40) | 1)
            .to_ne_bytes();
        assert_eq!(
            recorded(CL_KERNEL_ARG_ADDRESS_GLOBAL, b"int*").judge(0, 8, Some(&mem)),
            Ok((kind::MEM, true))
        );
        assert_eq!(
            recorded(CL_KERNEL_ARG_ADDRESS_PRIVATE, b"ulong").judge(0, 8, Some(&mem)),
            Ok((kind::BYTES, true))
        );
        assert_eq!(
            Kernel::new(None).judge(0, 8, Some(&mem)),
            Ok((kind::MEM, false))
        );
        assert_eq!(
            Kernel::new(None).judge(0, 8, Some(&7_u64.to_ne_bytes())),
            Ok((kind::BYTES, false))
        );
    }

    #[test]
    fn local_memory_takes_a_size_and_no_value() {
        let kernel = recorded(CL_KERNEL_ARG_ADDRESS_LOCAL, b"float*");
        assert_eq!(kernel.judge(0, 256, None), Ok((kind::NONE, true)));
        assert_eq!(kernel.judge(0, 8, Some(&[1; 8])), Err(CL_INVALID_ARG_VALUE));
    }
}
