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
    /// The program that it comes from.
    program: u64,
    /// What is known of the program's kernels, and which of them this is.
    facts: Option<(Arc<Facts>, usize)>,
    /// Execution hints, as they were last given.
    hints: Vec<(u32, Box<[u8]>)>,
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

impl Argument {
    fn request(&self, kernel: u64, index: usize) -> wire::SetArg<'_> {
        wire::SetArg {
            kernel: wire::KernelHandle(kernel),
            index: index as u32,
            kind: self.kind,
            size: self.size,
            value_size: self.value.len() as u64,
            value: &self.value,
        }
    }
}

/// Highest argument index that is believed before the device has judged it.
const INDEX_LIMIT: u32 = 4096;

impl Kernel {
    fn new(program: u64, facts: Option<(Arc<Facts>, usize)>) -> Self {
        let mut kernel = Self {
            program,
            facts,
            ..Self::default()
        };
        let count = kernel.facts().map_or(0, |facts| facts.num_args as usize);
        kernel.arguments.resize(count, Argument::default());
        kernel
    }

    fn facts(&self) -> Option<&facts::Kernel> {
        let (facts, index) = self.facts.as_ref()?;
        facts.kernels.get(*index)
    }

    fn known(&self, index: u32) -> Option<&facts::Argument> {
        self.facts()?.arguments.as_ref()?.get(index as usize)
    }

    /// The request that makes it.
    pub(super) fn creation(&self, created: u64) -> Option<wire::CreateKernel<'_>> {
        Some(wire::CreateKernel {
            program: wire::ProgramHandle(self.program),
            kernel_name: &self.facts()?.name,
            created: wire::KernelHandle(created),
        })
    }

    /// The requests that set its present arguments, except those that name an object which `lives` denies.
    pub(super) fn settings(
        &self,
        id: u64,
        lives: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = wire::SetArg<'_>> {
        let usable = move |slot: &Argument| match slot.kind {
            kind::MEM | kind::SAMPLER | kind::QUEUE => slot
                .value
                .as_slice()
                .try_into()
                .is_ok_and(|bytes| lives(u64::from_ne_bytes(bytes))),
            kind::SVM => false,
            _ => true,
        };
        let slots = self.arguments.iter().enumerate();
        slots
            .filter(move |(_, slot)| slot.set && usable(slot))
            .map(move |(index, slot)| slot.request(id, index))
    }

    /// The requests that give its execution hints again.
    pub(super) fn hints(&self, id: u64) -> impl Iterator<Item = wire::KernelExecInfo<'_>> {
        let kernel = wire::KernelHandle(id);
        self.hints
            .iter()
            .map(move |(param_name, value)| wire::KernelExecInfo {
                kernel,
                param_name: *param_name,
                size: value.len() as u64,
                value,
            })
    }

    /// Its arguments are all at the server.
    pub(super) fn settled(&mut self) {
        self.dirty = false;
        self.arguments
            .iter_mut()
            .for_each(|slot| slot.dirty = false);
    }

    /// Bytes kept for making it again.
    pub(super) fn kept_bytes(&self) -> usize {
        let hints = self.hints.iter().map(|(_, value)| value.len());
        let spilled = self.arguments.iter().filter(|slot| slot.value.spilled());
        size_of::<Self>()
            + self.arguments.capacity() * size_of::<Argument>()
            + spilled.map(|slot| slot.value.capacity()).sum::<usize>()
            + self.hints.capacity() * size_of::<(u32, Box<[u8]>)>()
            + hints.sum::<usize>()
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
            Some(_) => match (known.type_name.as_slice(), size) {
                (b"sampler_t" | b"queue_t", size) if size != 8 => Err(CL_INVALID_ARG_SIZE),
                (b"sampler_t", _) if handle != Some(kind::SAMPLER) => Err(CL_INVALID_SAMPLER),
                (b"queue_t", _) if handle != Some(kind::QUEUE) => Err(CL_INVALID_DEVICE_QUEUE),
                (b"sampler_t", _) => Ok((kind::SAMPLER, true)),
                (b"queue_t", _) => Ok((kind::QUEUE, true)),
                (name, size) => Ok((kind::BYTES, size_of_type(name) == Some(size))),
            },
            None => Ok((kind::NONE, false)),
        }
    }

    /// Whether an argument can be a memory object that is this image, or none; `true` where the records do not tell.
    fn suits(&self, index: u32, image: Option<image::Image>) -> bool {
        let Some(known) = self.known(index) else {
            return true;
        };
        match (known.access, image) {
            (CL_KERNEL_ARG_ACCESS_NONE, Some(_)) => !known.type_name.ends_with(b"*"),
            _ if !known.type_name.starts_with(b"image") => true,
            (CL_KERNEL_ARG_ACCESS_READ_ONLY, Some(image)) => image.flags & CL_MEM_WRITE_ONLY == 0,
            (CL_KERNEL_ARG_ACCESS_WRITE_ONLY, Some(image)) => image.flags & CL_MEM_READ_ONLY == 0,
            (_, image) => image.is_some(),
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
        let mut names = facts.kernels.iter().map(|kernel| &kernel.name);
        let index = names
            .position(|known| known == name)
            .ok_or(CL_INVALID_KERNEL_NAME)?;
        let created = wire::KernelHandle(self.mint(wire::KernelHandle::TAG));
        let kernel = Kernel::new(program.addr() as u64, Some((facts, index)));
        self.post(&wire::CreateKernel {
            program: wire::ProgramHandle::from_raw(program),
            kernel_name: name,
            created,
        })?;
        self.enter_kernel(created, kernel);
        Ok(created.to_raw())
    }

    pub(super) fn clone_kernel(&self, source: cl_kernel) -> Result<cl_kernel, cl_int> {
        let kernel = self.kernel(source).ok_or(CL_INVALID_KERNEL)?;
        let mut kernel = lock(&kernel);
        let created = wire::KernelHandle(self.mint(wire::KernelHandle::TAG));
        // The server's clone has the arguments that the server knows: bring it up to date first.
        self.link().post_batch(|batch| {
            send_arguments(wire::KernelHandle::from_raw(source), &mut kernel, batch);
            let request = wire::CloneKernel {
                source_kernel: wire::KernelHandle::from_raw(source),
                created,
            };
            batch.post(wire::CloneKernel::ID, |out| request.encode(out));
        })?;
        let copy = Kernel {
            program: kernel.program,
            facts: kernel.facts.clone(),
            hints: kernel.hints.clone(),
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
        let certain = certain && !(kind == kind::MEM && self.is_odd(&found, index, value));
        let value = if kind == kind::NONE {
            &[]
        } else {
            value.unwrap_or_default()
        };
        self.store(kernel, &mut found, index, kind, size as u64, value, certain)
    }

    /// Whether a memory object is of another form or access than the argument. Some vendors take it so (PoCL 3.1), others do not: the
    /// device says.
    fn is_odd(&self, kernel: &Kernel, index: cl_uint, value: Option<&[u8]>) -> bool {
        let id = value.and_then(|value| value.try_into().ok());
        let id = u64::from_ne_bytes(id.unwrap_or_default());
        let image = lock(&self.images).get(&id).copied();
        !kernel.suits(index, image)
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
        let count = kernel.facts().map_or(INDEX_LIMIT, |facts| facts.num_args);
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
        if kind == kind::MEM {
            self.recipes.used(value);
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
        let handle = (!event.is_null()).then(|| self.mint_event(queue.addr() as u64));
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
        let posted = self.link().post_batch(|batch| {
            send_arguments(id, &mut found, batch);
            batch.post(wire::EnqueueNDRangeKernel::ID, |out| request.encode(out));
        });
        if let Some(handle) = handle {
            // SAFETY: the caller's contract of clEnqueueNDRangeKernel: `event` is writable.
            unsafe { event.write(handle.to_raw()) };
        }
        status_of(posted)
    }

    /// Posts the arguments that the server does not have, before a query whose answer depends on them.
    pub(super) fn post_arguments(&self, kernel: cl_kernel) {
        let Some(found) = self.kernel(kernel) else {
            return;
        };
        let mut found = lock(&found);
        if found.dirty {
            let id = wire::KernelHandle::from_raw(kernel);
            // A session that is over fails the query, too.
            let _ = self
                .link()
                .post_batch(|batch| send_arguments(id, &mut found, batch));
        }
    }

    pub(super) fn set_hint(&self, kernel: cl_kernel, name: cl_uint, value: &[u8]) -> cl_int {
        let Some(found) = self.kernel(kernel) else {
            return CL_INVALID_KERNEL;
        };
        let request = wire::KernelExecInfo {
            kernel: wire::KernelHandle::from_raw(kernel),
            param_name: name,
            size: value.len() as u64,
            value,
        };
        if let Err(status) = self.call_for("clSetKernelExecInfo", &request) {
            return status;
        }
        // Addresses mean nothing on another server, and a session that has any stays where it is.
        if name != CL_KERNEL_EXEC_INFO_SVM_PTRS {
            let mut found = lock(&found);
            found.hints.retain(|(known, _)| *known != name);
            found.hints.push((name, value.into()));
        }
        CL_SUCCESS
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
        let request = slot.request(id.0, index);
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
        let kernel = facts::Kernel {
            name: b"k".into(),
            num_args: 1,
            arguments: Some(vec![argument]),
        };
        let facts = Facts {
            kernels: vec![kernel],
        };
        Kernel::new(1, Some((Arc::new(facts), 0)))
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
            Kernel::new(1, None).judge(0, 8, Some(&mem)),
            Ok((kind::MEM, false))
        );
        assert_eq!(
            Kernel::new(1, None).judge(0, 8, Some(&7_u64.to_ne_bytes())),
            Ok((kind::BYTES, false))
        );
    }

    #[test]
    fn a_sampler_has_the_size_of_a_handle_and_is_one() {
        let kernel = recorded(CL_KERNEL_ARG_ADDRESS_PRIVATE, b"sampler_t");
        let handle =
            |tag: u8| (towline_session::HANDLE_BASE | (u64::from(tag) << 40) | 1).to_ne_bytes();
        let sampler = handle(wire::SamplerHandle::TAG);
        assert_eq!(
            kernel.judge(0, 8, Some(&sampler)),
            Ok((kind::SAMPLER, true))
        );
        for size in [0, 1, 4, 7, 9, 16] {
            let value = vec![1; size];
            let judged = kernel.judge(0, size, Some(&value));
            assert_eq!(judged, Err(CL_INVALID_ARG_SIZE), "{size}");
        }
        let mem = handle(wire::MemHandle::TAG);
        assert_eq!(kernel.judge(0, 8, Some(&mem)), Err(CL_INVALID_SAMPLER));
        assert_eq!(kernel.judge(0, 8, Some(&[0; 8])), Err(CL_INVALID_SAMPLER));
        let queue = recorded(CL_KERNEL_ARG_ADDRESS_PRIVATE, b"queue_t");
        assert_eq!(queue.judge(0, 8, Some(&mem)), Err(CL_INVALID_DEVICE_QUEUE));
        assert_eq!(queue.judge(0, 4, Some(&[0; 4])), Err(CL_INVALID_ARG_SIZE));
    }

    #[test]
    fn images_and_buffers_do_not_stand_for_each_other() {
        let image = |flags| {
            Some(image::Image {
                element: 4,
                layers_in_rows: false,
                flags,
            })
        };
        let taken = |access, type_name: &[u8]| {
            let mut kernel = recorded(CL_KERNEL_ARG_ADDRESS_GLOBAL, type_name);
            let facts = kernel.facts.as_mut().expect("it is recorded");
            let facts = Arc::get_mut(&mut facts.0).expect("nobody else has it");
            let arguments = facts.kernels[0].arguments.as_mut();
            arguments.expect("they are recorded")[0].access = access;
            let images = [
                None,
                image(0),
                image(CL_MEM_READ_ONLY),
                image(CL_MEM_WRITE_ONLY),
            ];
            images.map(|image| kernel.suits(0, image))
        };
        let (none, reads, writes, both) = (
            CL_KERNEL_ARG_ACCESS_NONE,
            CL_KERNEL_ARG_ACCESS_READ_ONLY,
            CL_KERNEL_ARG_ACCESS_WRITE_ONLY,
            CL_KERNEL_ARG_ACCESS_READ_WRITE,
        );
        assert_eq!(taken(none, b"int*"), [true, false, false, false]);
        assert_eq!(taken(none, b"my_image"), [true; 4]);
        assert_eq!(taken(reads, b"image2d_t"), [false, true, true, false]);
        assert_eq!(taken(writes, b"image2d_t"), [false, true, false, true]);
        assert_eq!(taken(both, b"image2d_t"), [false, true, true, true]);
        assert_eq!(taken(reads, b"int"), [true; 4], "a pipe");
        assert!(Kernel::new(1, None).suits(0, image(0)));
    }

    #[test]
    fn local_memory_takes_a_size_and_no_value() {
        let kernel = recorded(CL_KERNEL_ARG_ADDRESS_LOCAL, b"float*");
        assert_eq!(kernel.judge(0, 256, None), Ok((kind::NONE, true)));
        assert_eq!(kernel.judge(0, 8, Some(&[1; 8])), Err(CL_INVALID_ARG_VALUE));
    }
}
