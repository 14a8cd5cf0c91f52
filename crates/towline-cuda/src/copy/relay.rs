//! Copies that the server of the stream cannot make alone: one side lies on another server. The data goes through this process, in pieces,
//! over streams of our own, which stand behind nothing of the application's but copies to the device that have returned.

use std::sync::{Arc, Weak};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{Actor, DeviceBox, HostRows, Session, Source};
use towline_client::raw::HostPtr;

use crate::context::Context;
use crate::driver::{Acting, Driver, actor, read};

/// Bytes that are under way at once.
const PIECE: usize = 8 << 20;

/// One side of a copy on devices.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The context whose device it is on.
    pub(super) context: u64,
    pub(super) place: DeviceBox,
}

/// A stream of our own in a context.
pub(super) struct Port {
    /// A copy that waits for its stream keeps no session.
    session: Weak<Session>,
    context: u64,
    stream: wire::StreamHandle,
}

impl Port {
    fn open(there: &Acting<'_>) -> Result<Self, CUresult> {
        let stream = wire::StreamHandle(there.mint(wire::StreamHandle::TAG));
        let port = Self {
            session: Arc::downgrade(there.session),
            context: there.context.number,
            stream,
        };
        there.post(&wire::StreamCreate {
            phStream: stream,
            Flags: CU_STREAM_NON_BLOCKING,
        })?;
        there.session.note_apart(stream.0);
        Ok(port)
    }

    pub(super) fn stream(&self) -> wire::StreamHandle {
        self.stream
    }

    /// The session, and the calling thread in the port's context.
    fn there(&self) -> Result<(Arc<Session>, Actor), CUresult> {
        let session = self.session.upgrade();
        let session = session.ok_or(CUDA_ERROR_DEVICE_UNAVAILABLE)?;
        Ok((session, actor(self.context)))
    }

    fn synchronise(&self) -> Result<(), CUresult> {
        let (session, actor) = self.there()?;
        let request = wire::SynchronizeStream {
            stream: self.stream,
        };
        let stream = Some(self.stream.0);
        session.synchronise(actor, "cuStreamSynchronize", &request, stream)?;
        let failure = session.take_failure(Some(self.stream.0));
        failure.map_or(Ok(()), Err)
    }

    /// Posts a request on the port's stream, and waits for it.
    pub(super) fn run<'a, R: Request<'a>>(&self, request: &R) -> Result<(), CUresult> {
        let (session, actor) = self.there()?;
        session.post(actor, request)?;
        self.synchronise()
    }

    pub(super) fn write(
        &self,
        call: &'static str,
        address: u64,
        source: HostPtr,
        size: usize,
    ) -> Result<(), CUresult> {
        let ((session, actor), stream) = (self.there()?, self.stream.0);
        session.write(actor, call, stream, address, source, size, Source::Fleeting)?;
        self.synchronise()
    }

    pub(super) fn read(
        &self,
        call: &'static str,
        target: HostPtr,
        address: u64,
        size: usize,
    ) -> Result<(), CUresult> {
        let ((session, actor), stream) = (self.there()?, self.stream.0);
        session.read(actor, call, stream, address, target, size, true)
    }

    pub(super) fn write_box(
        &self,
        call: &'static str,
        to: DeviceBox,
        from: HostRows,
        size: [usize; 3],
    ) -> Result<(), CUresult> {
        let ((session, actor), stream) = (self.there()?, self.stream.0);
        session.write_box(actor, call, stream, to, from, size, Source::Fleeting)
    }

    pub(super) fn read_box(
        &self,
        call: &'static str,
        from: DeviceBox,
        to: HostRows,
        size: [usize; 3],
    ) -> Result<(), CUresult> {
        let ((session, actor), stream) = (self.there()?, self.stream.0);
        session.read_box(actor, call, stream, from, to, size, true)
    }

    /// Waits for all that was written.
    pub(super) fn finish(&self) -> Result<(), CUresult> {
        self.synchronise()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let request = wire::StreamDestroyV2 {
            hStream: self.stream,
        };
        // A session that is over has no streams.
        let _ = self.there().and_then(|(session, actor)| {
            session.forget_stream(self.stream.0);
            session.post(actor, &request)
        });
    }
}

/// Parts of a box that are small enough, whole slices and rows where such are: where each begins, and its size.
fn parts([width, height, depth]: [usize; 3]) -> impl Iterator<Item = ([usize; 3], [usize; 3])> {
    let columns = width.min(PIECE);
    let rows = (PIECE / width.max(1)).clamp(1, height.max(1));
    let slices = match rows == height {
        true => (PIECE / (width * height).max(1)).clamp(1, depth.max(1)),
        false => 1,
    };
    let starts = (0..depth).step_by(slices).flat_map(move |z| {
        let rows = (0..height).step_by(rows);
        rows.flat_map(move |y| (0..width).step_by(columns.max(1)).map(move |x| [x, y, z]))
    });
    starts.map(move |[x, y, z]| {
        let size = [
            columns.min(width - x),
            rows.min(height - y),
            slices.min(depth - z),
        ];
        ([x, y, z], size)
    })
}

fn shifted(place: DeviceBox, by: [usize; 3]) -> DeviceBox {
    let mut start = place.start;
    for (start, by) in start.iter_mut().zip(by) {
        *start += by;
    }
    DeviceBox { start, ..place }
}

/// Reads here and writes there, piece by piece.
fn carry(
    to: (&Port, DeviceBox),
    from: (&Port, DeviceBox),
    size: [usize; 3],
) -> Result<(), CUresult> {
    let call = "cuMemcpyPeer";
    let mut room: Vec<u8> = Vec::new();
    for (start, size) in parts(size) {
        let [width, height, depth] = size;
        room.resize(width * height * depth, 0);
        let area = HostRows {
            // SAFETY: the room is as large as the piece, and what was read or written has been when the calls return.
            start: unsafe { HostPtr::new(room.as_mut_ptr()) },
            pitch: width,
            slice_pitch: width * height,
        };
        from.0.read_box(call, shifted(from.1, start), area, size)?;
        to.0.write_box(call, shifted(to.1, start), area, size)?;
    }
    to.0.finish()
}

impl Driver {
    /// The context of a device address: that of its allocation, or of whoever acts where there is none.
    pub(crate) fn home(&self, acting: &Acting<'_>, address: u64) -> u64 {
        let memory = read(&self.memory);
        let found = memory.find(address);
        let Some((context, device)) = found.map(|(_, range)| (range.context, range.device)) else {
            return acting.context.number;
        };
        drop(memory);
        if context != 0 {
            return context;
        }
        // What is mapped at reserved addresses is of a device and of no context: any on its server will do.
        match (self.device(device), self.primary(device)) {
            (Ok(known), Ok(primary)) if known.session != acting.context.session => primary.number,
            _ => acting.context.number,
        }
    }

    /// Whether one of these contexts is of another server than whoever acts.
    pub(crate) fn apart(&self, acting: &Acting<'_>, contexts: &[u64]) -> Result<bool, CUresult> {
        for context in contexts {
            if self.context(*context)?.session != acting.context.session {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A stream of our own in a context.
    pub(super) fn port(&self, context: u64) -> Result<Port, CUresult> {
        let there = self.acting_in(self.context(context)?)?;
        let port = Port::open(&there)?;
        self.behind_written_once(&there, port.stream)?;
        Ok(port)
    }

    /// Where to go with memory that is another server's: a stream there, once all that stands before on the stream here is done.
    pub(super) fn beyond(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        address: u64,
    ) -> Result<Option<Port>, CUresult> {
        let home = self.home(acting, address);
        self.beyond_context(acting, stream, home)
    }

    /// As [`Self::beyond`], for what lies in a context.
    pub(super) fn beyond_context(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        context: u64,
    ) -> Result<Option<Port>, CUresult> {
        if context == acting.context.number || !self.apart(acting, &[context])? {
            return Ok(None);
        }
        acting.synchronise(stream)?;
        self.port(context).map(Some)
    }

    /// Copies between servers when the stream comes to it; the stream stands still meanwhile.
    pub(super) fn relay(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        to: End,
        from: End,
        size: [usize; 3],
    ) -> Result<(), CUresult> {
        // Opened now: of later copies the application may know that they come behind this one.
        let (target, source) = (self.port(to.context)?, self.port(from.context)?);
        let here = Arc::downgrade(acting.session);
        self.host_function_on(&self.own_calls, acting, stream, move |ended| {
            if ended != CUDA_SUCCESS {
                return;
            }
            let carried = carry((&target, to.place), (&source, from.place), size);
            if let (Err(status), Some(here)) = (carried, here.upgrade()) {
                here.note_failure(stream.0, status);
            }
        })
    }

    /// A copy between the memories of two contexts.
    pub(super) fn between_contexts(
        &self,
        (target, to): (u64, CUcontext),
        (source, from): (u64, CUcontext),
        size: usize,
        stream: CUstream,
        wait: bool,
    ) -> Result<(), CUresult> {
        let (acting, stream) = self.on_uncaptured(stream)?;
        let (to, from) = (self.context_or_current(to)?, self.context_or_current(from)?);
        if size == 0 {
            return Ok(());
        }
        if target == 0 || source == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let _posting = acting.context.mirrored.posting();
        for address in [target, source] {
            self.expect_within(address, size)?;
            self.before_use(&acting, stream, address, size)?;
        }
        let ends = [(&to, target), (&from, source)].map(|(context, address)| End {
            context: context.number,
            place: DeviceBox::bytes(address, size),
        });
        self.ordered(&acting, stream, (&to, &from), wait, || {
            if self.apart(&acting, &[to.number, from.number])? {
                let [to, from] = ends;
                return self.relay(&acting, stream, to, from, [size, 1, 1]);
            }
            acting.post(&wire::Copy {
                stream,
                destination: target,
                destination_context: wire::ContextHandle(to.number),
                source,
                source_context: wire::ContextHandle(from.number),
                size: size as u64,
            })
        })
    }

    /// Issues a copy between two contexts. One without a stream of its own stands behind and before everything in both: with `wait` they
    /// are idle when it starts, unless it is the stream's own context, and it is done when the call returns.
    pub(super) fn ordered(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        (to, from): (&Arc<Context>, &Arc<Context>),
        wait: bool,
        issue: impl FnOnce() -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        // The server must have the contexts that the message names.
        for context in [to, from] {
            let there = self.acting_in(Arc::clone(context))?;
            if wait && context.number != acting.context.number {
                let request = wire::SynchronizeContext {
                    context: wire::ContextHandle(context.number),
                };
                there.show_kernels()?;
                there.synchronise_for("cuMemcpyPeer", &request, None)?;
            }
        }
        issue()?;
        acting.touch(stream);
        if wait && (to.number, from.number) != (acting.context.number, acting.context.number) {
            acting.synchronise(stream)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_carried_in_parts_that_cover_it_once() {
        for size in [
            [1, 1, 1],
            [PIECE + 3, 2, 2],
            [3 << 20, 7, 3],
            [100, 100, 5000],
        ] {
            let mut bytes = 0;
            let mut next = [0, 0, 0];
            for (start, part) in parts(size) {
                assert_eq!(start, next);
                let count: usize = part.iter().product();
                assert!((1..=PIECE).contains(&count));
                bytes += count;
                // Columns first, then rows, then slices.
                next[0] += part[0];
                if next[0] == size[0] {
                    (next[0], next[1]) = (0, next[1] + part[1]);
                }
                if next[1] == size[1] {
                    (next[1], next[2]) = (0, next[2] + part[2]);
                }
            }
            assert_eq!(bytes, size.iter().product());
        }
    }
}
