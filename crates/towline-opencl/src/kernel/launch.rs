//! Launches: ranges, the memory that arguments name, and the arguments that a part has not got yet.

use smallvec::SmallVec;
use towline_backend::opencl::*;

use crate::arena::{Kind, Ref, get};
use crate::coherence::Access;
use crate::command::{WaitList, Waits, submit};
use crate::event::Event;
use crate::info::{self, Key};
use crate::memory::Mem;
use crate::queue::Queue;
use crate::raw::{Out, provider};
use crate::timeline;

use super::Kernel;
use super::args::{Arg, Args, Value, address};

/// A group of so many items has room on every GPU, whatever registers its kernel takes: 65,536 of them for at most 255 an item (CUDA C++
/// Programming Guide, "Technical specifications per compute capability"), and AMD's take no more than 256 items unless a kernel asks for it.
const SMALL_GROUP: usize = 256;

impl Kernel {
    /// Whether the kernel accepts the work-group size. A provider of this process says so at the launch; for the others a kernel
    /// that may name a size, or that is launched with large groups, is asked for it, once.
    #[inline]
    fn expect_group(&self, queue: &Queue, range: &Range<'_>) -> Result<(), cl_int> {
        if queue.part().provider.local {
            return Ok(());
        }
        if self.names_group {
            self.expect_named_group(queue, range)?;
        }
        match range.group_items() {
            Some(items) if items > SMALL_GROUP => self.expect_room(queue, items),
            _ => Ok(()),
        }
    }

    /// Sizes that the kernel has for the queue's device.
    fn group_sizes(
        &self,
        queue: &Queue,
        name: cl_kernel_work_group_info,
    ) -> Result<SmallVec<[usize; 3]>, cl_int> {
        let (device, raw) = (&queue.device, self.raw_on(queue.part)?);
        let key = Key(2, name, device.handle().addr());
        let bytes = self.answers.get(key, |room, value, needed| {
            provider!(
                queue.part().provider.api,
                clGetKernelWorkGroupInfo(raw, device.raw.0, name, room, value, needed)
            )
        })?;
        Ok(info::values(&bytes, usize::from_ne_bytes).collect())
    }

    fn expect_room(&self, queue: &Queue, items: usize) -> Result<(), cl_int> {
        let most = self.group_sizes(queue, CL_KERNEL_WORK_GROUP_SIZE)?;
        match most.first().is_some_and(|most| items > *most) {
            true => Err(CL_INVALID_WORK_GROUP_SIZE),
            false => Ok(()),
        }
    }

    fn expect_named_group(&self, queue: &Queue, range: &Range<'_>) -> Result<(), cl_int> {
        let required = self.group_sizes(queue, CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        if required.iter().all(|len| *len == 0) {
            return Ok(());
        }
        let given = |axis: usize| {
            range
                .local
                .map(|local| local.get(axis).copied().unwrap_or(1))
        };
        let global = |axis: usize| range.global.and_then(|global| global.get(axis).copied());
        for (axis, required) in required.iter().enumerate() {
            let divides = global(axis).unwrap_or(1).is_multiple_of((*required).max(1));
            if given(axis).is_some_and(|given| given != *required) || !divides {
                return Err(CL_INVALID_WORK_GROUP_SIZE);
            }
        }
        Ok(())
    }
}

/// The range of a launch, checked against the queue's device.
pub(crate) struct Range<'a> {
    pub(super) dims: cl_uint,
    pub(super) offset: Option<&'a [usize]>,
    pub(super) global: Option<&'a [usize]>,
    local: Option<&'a [usize]>,
}

impl<'a> Range<'a> {
    pub(crate) fn new(
        queue: &Queue,
        dims: cl_uint,
        offset: Option<&'a [usize]>,
        global: Option<&'a [usize]>,
        local: Option<&'a [usize]>,
    ) -> Result<Self, cl_int> {
        let limits = &queue.device.limits;
        if dims == 0 || dims as usize > limits.max_work_items.len().max(3) {
            return Err(CL_INVALID_WORK_DIMENSION);
        }
        let empty = global.is_none_or(|global| global.contains(&0));
        if empty && limits.version < (2, 1) {
            return Err(CL_INVALID_GLOBAL_WORK_SIZE);
        }
        if let (Some(offset), Some(global)) = (offset, global)
            && offset
                .iter()
                .zip(global)
                .any(|(offset, global)| offset.checked_add(*global).is_none())
        {
            return Err(CL_INVALID_GLOBAL_OFFSET);
        }
        // Without items there is no group to judge.
        if let Some(local) = local.filter(|_| !empty) {
            if local.contains(&0) {
                return Err(CL_INVALID_WORK_GROUP_SIZE);
            }
            let group = local
                .iter()
                .try_fold(1_usize, |product, len| product.checked_mul(*len));
            if group.is_none_or(|group| group > limits.max_work_group) {
                return Err(CL_INVALID_WORK_GROUP_SIZE);
            }
            if local
                .iter()
                .zip(&limits.max_work_items)
                .any(|(local, most)| local > most)
            {
                return Err(CL_INVALID_WORK_ITEM_SIZE);
            }
            let uneven = !limits.non_uniform_groups
                && global.is_some_and(|global| {
                    global
                        .iter()
                        .zip(local)
                        .any(|(global, local)| !global.is_multiple_of(*local))
                });
            if uneven {
                return Err(CL_INVALID_WORK_GROUP_SIZE);
            }
        }
        Ok(Self {
            dims,
            offset,
            global,
            local,
        })
    }

    /// Items of a group, where the application says it and there is any.
    fn group_items(&self) -> Option<usize> {
        let local = self.local?;
        let is_empty = self.global.is_none_or(|global| global.contains(&0));
        (!is_empty).then(|| local.iter().product())
    }
}

pub(super) fn pointer(list: Option<&[usize]>) -> *const usize {
    list.map_or(std::ptr::null(), <[usize]>::as_ptr)
}

/// Launches a kernel.
#[inline]
pub(crate) fn launch(
    queue: &Ref<Queue>,
    kernel: &Ref<Kernel>,
    range: &Range<'_>,
    command: cl_command_type,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
) -> Result<(), cl_int> {
    if !kernel.context.is(&queue.context) {
        return Err(CL_INVALID_CONTEXT);
    }
    let raw = kernel.raw_on(queue.part)?;
    let api = &queue.part().provider.api;
    kernel.expect_group(queue, range)?;
    kernel.expect_alive()?;
    let start = |count, list, event| {
        provider!(
            api,
            clEnqueueNDRangeKernel(
                queue.raw.0,
                raw,
                range.dims,
                pointer(range.offset),
                pointer(range.global),
                pointer(range.local),
                count,
                list,
                event
            )
        )
    };
    let note = |made: Option<Ref<Event>>| {
        if let Some(made) = made.filter(|_| timeline::notes(command)) {
            timeline::launched(queue, kernel, &made);
        }
    };
    if !queue.context.tends_contents() {
        let waits = Waits::resolve(queue, waits, false)?;
        return submit(queue, waits, event, command, &[], start).map(note);
    }
    let mut args = kernel.args();
    let mems = used(kernel, &args)?;
    let uses: SmallVec<[(&Ref<Mem>, Access); 8]> =
        mems.iter().map(|(mem, access)| (mem, *access)).collect();
    let waits = Waits::resolve(queue, waits, false)?;
    submit(
        queue,
        waits,
        event,
        command,
        &uses,
        |count, list, event| match replay(kernel, &mut args, queue.part, raw) {
            CL_SUCCESS => start(count, list, event),
            status => status,
        },
    )
    .map(note)
}

/// Memory objects and what a launch does with them.
type UsedMems = SmallVec<[(Ref<Mem>, Access); 8]>;

/// The memory objects among a kernel's arguments.
fn used(kernel: &Kernel, args: &Args) -> Result<UsedMems, cl_int> {
    let mut mems = SmallVec::new();
    for (index, arg) in args.list.iter().enumerate() {
        let Some(Arg {
            value: Value::Object(Kind::Mem, _),
            bytes,
            ..
        }) = arg
        else {
            continue;
        };
        let mem = get::<Mem>(std::ptr::with_exposed_provenance_mut(address(bytes)))
            .map_err(|_| CL_INVALID_KERNEL_ARGS)?;
        // With one provider nothing moves, so nobody has to know who writes.
        let read_only = kernel.context.single()
            || mem.flags & CL_MEM_READ_ONLY != 0
            || kernel.read_only().get(index).copied().unwrap_or(false);
        let access = if read_only {
            Access::Read
        } else {
            Access::Modify
        };
        mems.push((mem, access));
    }
    Ok(mems)
}

/// Gives a part's kernel the arguments that changed since it last got them.
pub(super) fn replay(kernel: &Kernel, args: &mut Args, part: usize, raw: cl_kernel) -> cl_int {
    for index in 0..args.list.len() {
        let Some(arg) = &args.list[index] else {
            continue;
        };
        let has = args
            .given
            .get(part)
            .and_then(|versions| versions.get(index))
            .copied();
        if has == Some(arg.version) {
            continue;
        }
        let status = kernel.give((part, raw), index, arg.value, arg.size, &arg.bytes);
        if status != CL_SUCCESS {
            return status;
        }
        let version = arg.version;
        args.given(part, index, version);
    }
    CL_SUCCESS
}
