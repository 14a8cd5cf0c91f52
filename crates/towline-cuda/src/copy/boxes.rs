//! Copies of rectangles and boxes: between host memory, device memory and arrays.

use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{DeviceBox, HostRows};
use towline_client::raw::HostPtr;

use super::Mode;
use super::relay::End;
use crate::context::Context;
use crate::driver::{Acting, Driver, read};

/// What one side of a copy is in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Memory {
    Host(HostPtr),
    Device(u64),
    Array(u64),
}

/// One side of a copy as the call describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub(super) memory: Memory,
    /// x in bytes, y, z.
    pub(super) start: [usize; 3],
    /// Bytes from a row to the next; 0 where the call does not say.
    pub(super) pitch: usize,
    /// Rows from a slice to the next; 0 where the call does not say.
    pub(super) height: usize,
}

/// A copy of a box.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoxCopy {
    pub(super) from: Side,
    pub(super) to: Side,
    /// Width in bytes, height, depth.
    pub(super) size: [usize; 3],
    /// The contexts of the destination and the source, where the call names them.
    pub(super) contexts: Option<(CUcontext, CUcontext)>,
}

/// A side whose pitches are known and that fits what it is in.
#[derive(Clone, Copy)]
enum Placed {
    Host(HostRows),
    /// With the number of its context.
    Device(DeviceBox, u64),
}

/// A pitch or height as the driver takes it: at least what the box reaches to, which it is where nothing is said.
fn given(given: usize, reach: usize) -> Result<usize, CUresult> {
    match given {
        0 => Ok(reach),
        given if given < reach => Err(CUDA_ERROR_INVALID_VALUE),
        given => Ok(given),
    }
}

/// The bytes from the first row's beginning to the last row's end, with what lies before the box.
fn reach(
    [x, y, z]: [usize; 3],
    [width, height, depth]: [usize; 3],
    pitch: usize,
    rows: usize,
) -> Option<usize> {
    let last = z.checked_add(depth - 1)?.checked_mul(rows)?;
    let last = last.checked_add(y)?.checked_add(height - 1)?;
    last.checked_mul(pitch)?.checked_add(x)?.checked_add(width)
}

impl BoxCopy {
    /// `count` bytes at offsets in arrays of one dimension, or in memory.
    pub(super) fn run(to: (Memory, usize), from: (Memory, usize), count: usize) -> Self {
        let side = |(memory, offset)| Side {
            memory,
            start: [offset, 0, 0],
            pitch: 0,
            height: 0,
        };
        Self {
            from: side(from),
            to: side(to),
            size: [count, 1, 1],
            contexts: None,
        }
    }
}

/// Bytes from the first of a box of host memory to its last.
fn bytes_of(area: &HostRows, size: [usize; 3]) -> usize {
    let [width, height, depth] = size;
    (depth - 1) * area.slice_pitch + (height - 1) * area.pitch + width
}

impl Driver {
    /// Sides that host and device both have are the device's, and so is the device's own memory where a call takes it for the host's (seen
    /// with driver 580.159).
    fn with_mirrors_on_device(&self, copy: &BoxCopy) -> Result<BoxCopy, CUresult> {
        let mut copy = *copy;
        let size = copy.size;
        let known = |given: usize, least: usize| if given == 0 { least } else { given };
        for side in [&mut copy.from, &mut copy.to] {
            if let Memory::Device(address) = side.memory
                && self.is_host(address)
            {
                // SAFETY: the application's contract of the copy: what it has pinned there is valid for it.
                side.memory = Memory::Host(unsafe { HostPtr::at(address as usize) });
            }
            if let Memory::Host(start) = side.memory {
                let address = start.addr() as u64;
                if read(&self.memory).is_device(address) {
                    side.memory = Memory::Device(address);
                    continue;
                }
                let [x, y, _] = side.start;
                let pitch = known(side.pitch, x.saturating_add(size[0]));
                let height = known(side.height, y.saturating_add(size[1]));
                // What cannot be is refused later.
                let bytes = reach(side.start, size, pitch, height).unwrap_or(1);
                if let Some(there) = self.device_side(address, bytes)? {
                    side.memory = Memory::Device(there);
                }
            }
        }
        Ok(copy)
    }

    /// What an address of the unified kind is in.
    pub(super) fn memory_at(&self, address: CUdeviceptr) -> Memory {
        match read(&self.memory).is_device(address) || self.is_both(address) {
            true => Memory::Device(address),
            // SAFETY: the application's contract of the copy, which names memory by addresses: it is not the device's.
            false => Memory::Host(unsafe { HostPtr::at(address as usize) }),
        }
    }

    /// Checks a side as the driver does. `named` is the context that the call names for it.
    fn placed(
        &self,
        acting: &Acting<'_>,
        side: &Side,
        size: [usize; 3],
        named: Option<u64>,
    ) -> Result<Placed, CUresult> {
        let [x, y, z] = side.start;
        if let Memory::Array(number) = side.memory {
            let arrays = read(&self.arrays);
            let array = arrays.get(number)?;
            if !array.holds(side.start, size) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let place = DeviceBox {
                array: number,
                address: 0,
                start: side.start,
                pitch: 0,
                height: 0,
            };
            return Ok(Placed::Device(place, array.context));
        }
        let end =
            |start: usize, size: usize| start.checked_add(size).ok_or(CUDA_ERROR_INVALID_VALUE);
        let pitch = given(side.pitch, end(x, size[0])?)?;
        let height = given(side.height, end(y, size[1])?)?;
        let bytes = reach(side.start, size, pitch, height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let base = match side.memory {
            Memory::Host(start) => start.addr() as u64,
            Memory::Device(address) => address,
            Memory::Array(_) => 0,
        };
        // Nothing of this process lies where the device's memory was before it was freed.
        if matches!(side.memory, Memory::Host(_)) && self.addresses.is_held(base) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if base == 0 || base.checked_add(bytes as u64).is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Unlike bytes in a row (seen with driver 580.159).
        let is_device = matches!(side.memory, Memory::Device(_));
        if is_device && read(&self.memory).is_left(base, bytes as u64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(match side.memory {
            Memory::Host(start) => Placed::Host(HostRows {
                start: start.offset((z * height + y) * pitch + x),
                pitch,
                slice_pitch: pitch * height,
            }),
            _ => {
                self.expect_on_device(base)?;
                let place = DeviceBox {
                    array: 0,
                    address: base,
                    start: side.start,
                    pitch,
                    height,
                };
                Placed::Device(place, named.unwrap_or_else(|| self.home(acting, base)))
            }
        })
    }

    /// Whether all of an area is pinned.
    fn is_pinned(&self, area: &HostRows, size: [usize; 3]) -> bool {
        read(&self.memory).is_pinned(area.start.addr() as u64, bytes_of(area, size))
    }

    /// Copies a box.
    pub(super) fn copy_box(
        &self,
        call: &'static str,
        copy: &BoxCopy,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        let (acting, stream, captured) = self.enqueue_on(stream)?;
        if copy.size.contains(&0) {
            return Ok(());
        }
        let size = copy.size;
        if let Some(captured) = captured {
            return self.capture_copy(&acting, &captured, copy, mode);
        }
        let posting = acting.context.mirrored.posting();
        self.before_work(&acting, stream)?;
        let given = copy;
        let copy = &self.with_mirrors_on_device(copy)?;
        let named = match copy.contexts {
            None => None,
            Some((to, from)) => Some((
                self.context_named(to, &copy.to)?,
                self.context_named(from, &copy.from)?,
            )),
        };
        let number = |context: &Option<Arc<Context>>| context.as_ref().map(|found| found.number);
        let to_named = named.as_ref().and_then(|(to, _)| number(to));
        let from_named = named.as_ref().and_then(|(_, from)| number(from));
        let to = self.placed(&acting, &copy.to, size, to_named)?;
        let from = self.placed(&acting, &copy.from, size, from_named)?;
        match (to, from) {
            (Placed::Device(to, context), Placed::Host(from)) => {
                self.settle_pin(from.start.addr(), bytes_of(&from, size))?;
                if let Some(there) = self.beyond_context(&acting, stream, context)? {
                    there.write_box(call, to, from, size)?;
                    return there.finish();
                }
                let captured = mode != Mode::Async || !self.is_pinned(&from, size);
                let state = self.state_of_source(captured);
                let (session, actor) = (acting.session, acting.actor);
                session.write_box(actor, call, stream.0, to, from, size, state)?;
                let is_noticed = self.is_side_noticed(&given.to);
                if mode == Mode::Sync && !is_noticed {
                    return self.note_written(&acting, stream);
                }
                acting.touch(stream);
                drop(posting);
                if mode == Mode::Sync {
                    acting.synchronise(stream)?;
                }
            }
            (Placed::Host(to), Placed::Device(from, context)) => {
                if let Some(there) = self.beyond_context(&acting, stream, context)? {
                    return there.read_box(call, from, to, size);
                }
                // As the driver: a copy into pageable memory returns when it is done.
                let wait = mode == Mode::Sync || !self.is_pinned(&to, size);
                let (session, actor) = (acting.session, acting.actor);
                if wait {
                    acting.show_kernels()?;
                }
                let posted = acting.posted(stream);
                session.read_box(actor, call, stream.0, from, to, size, wait)?;
                if wait {
                    acting.note_done(stream.0, posted);
                    acting.show_twins()?;
                    acting.healthy(stream)?;
                } else {
                    acting.touch(stream);
                }
            }
            (Placed::Device(to, to_context), Placed::Device(from, from_context)) => {
                let to = End {
                    context: to_context,
                    place: to,
                };
                let from = End {
                    context: from_context,
                    place: from,
                };
                let contexts = (self.context(to_context)?, self.context(from_context)?);
                let issue = || self.on_devices(&acting, stream, to, from, size, named.is_some());
                match named {
                    Some(_) => {
                        let (to, from) = (&contexts.0, &contexts.1);
                        self.ordered(&acting, stream, (to, from), mode == Mode::Sync, issue)?;
                    }
                    None => {
                        issue()?;
                        acting.touch(stream);
                    }
                }
                drop(posting);
                if mode != Mode::Async && self.is_box_noticed(given) {
                    acting.synchronise(stream)?;
                }
            }
            (Placed::Host(to), Placed::Host(from)) => {
                acting.synchronise(stream)?;
                let [width, height, depth] = size;
                for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
                    let row =
                        |area: &HostRows| area.start.offset(z * area.slice_pitch + y * area.pitch);
                    row(&to).copy_from(row(&from), width);
                }
            }
        }
        Ok(())
    }

    /// Whether the host notices that a copy on the device is still to be done.
    fn is_box_noticed(&self, given: &BoxCopy) -> bool {
        let from = match given.from.memory {
            Memory::Device(address) => Some(address),
            Memory::Host(_) => return true,
            _ => None,
        };
        self.is_side_noticed(&given.to) || self.is_noticed(None, from)
    }

    /// Whether the host may look at what is written to a side.
    fn is_side_noticed(&self, to: &Side) -> bool {
        match to.memory {
            Memory::Device(address) => self.is_noticed(Some(address), None),
            Memory::Host(_) => true,
            _ => false,
        }
    }

    /// The context that a call names for a side; host memory needs none.
    fn context_named(
        &self,
        context: CUcontext,
        side: &Side,
    ) -> Result<Option<Arc<Context>>, CUresult> {
        match side.memory {
            Memory::Host(_) => Ok(None),
            _ => self.context_or_current(context).map(Some),
        }
    }

    fn on_devices(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        to: End,
        from: End,
        size: [usize; 3],
        named: bool,
    ) -> Result<(), CUresult> {
        if self.apart(acting, &[to.context, from.context])? {
            return self.relay(acting, stream, to, from, size);
        }
        let context = |end: &End| wire::ContextHandle(if named { end.context } else { 0 });
        let runs = to.place.linear(size).zip(from.place.linear(size));
        if let Some((destination, source)) = runs {
            return acting.post(&wire::Copy {
                stream,
                destination,
                destination_context: context(&to),
                source,
                source_context: context(&from),
                size: size.iter().map(|side| *side as u64).product(),
            });
        }
        let side = |end: &End| {
            let [x, y, z] = end.place.start;
            [x, y, z, 0, end.place.pitch, end.place.height]
        };
        let mut place = [0; 15];
        let words = side(&from).into_iter().chain(side(&to)).chain(size);
        for (place, word) in place.iter_mut().zip(words) {
            *place = word as u64;
        }
        acting.post(&wire::CopyBox {
            stream,
            destination_array: wire::ArrayHandle(to.place.array),
            destination: to.place.address,
            destination_context: context(&to),
            source_array: wire::ArrayHandle(from.place.array),
            source: from.place.address,
            source_context: context(&from),
            place: wire::List::Values(&place),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pitch_is_what_the_box_reaches_to_where_nothing_is_said() {
        assert_eq!(given(0, 12), Ok(12));
        assert_eq!(given(12, 12), Ok(12));
        assert_eq!(given(11, 12), Err(CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn a_box_that_reaches_beyond_all_memory_has_no_end() {
        assert_eq!(
            reach([1, 2, 3], [4, 5, 6], 10, 20),
            Some((8 * 20 + 6) * 10 + 5)
        );
        assert_eq!(reach([0, 0, 0], [1, 2, 1], usize::MAX, 2), None);
        assert_eq!(reach([0, 0, usize::MAX], [1, 1, 2], 1, 1), None);
        assert_eq!(reach([0, 0, 1 << 40], [1, 1, 1], 1 << 40, 1), None);
    }
}
