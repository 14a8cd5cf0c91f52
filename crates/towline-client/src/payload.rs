//! Payload lanes at the client: granted writes leave straight out of the application's memory, reads land straight in it.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use towline_session::Claim;
use towline_transport::{Connection, TransportError, recv_exact};
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::frame::{CHUNK_HEADER, ChunkHeader};

use crate::link::Link;
use crate::memory::HostBox;
use crate::state::Callback;

/// A granted window of a write, cut into chunks as lanes become free.
struct Outgoing {
    payload: u64,
    source: HostBox,
    next: u64,
    end: u64,
    step: u64,
}

/// Smallest share of a payload that is worth a lane of its own.
const SHARE: u64 = 128 << 10;

/// See the module's text.
pub(crate) struct Payload {
    lanes: Mutex<Vec<Arc<dyn Connection>>>,
    count: usize,
    chunk_bytes: u64,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Outgoing>,
    /// Lanes that are reading from a source right now.
    active: usize,
    stopped: bool,
}

impl Payload {
    pub(crate) fn new(lanes: Vec<Arc<dyn Connection>>, chunk_bytes: u64) -> Self {
        Self {
            count: lanes.len(),
            lanes: Mutex::new(lanes),
            chunk_bytes: chunk_bytes.max(4096),
            queue: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Whether there are payload lanes at all.
    pub(crate) fn exists(&self) -> bool {
        self.count > 0
    }

    fn lanes(&self) -> Vec<Arc<dyn Connection>> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.clone()
    }

    /// After [`Self::shutdown`]: gives the connections back.
    pub(crate) fn clear(&self) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.clear();
    }

    /// Starts two threads per lane.
    pub(crate) fn start(link: &Arc<Link>) -> std::io::Result<()> {
        for lane in link.payload.lanes() {
            let (link_in, lane_in) = (Arc::clone(link), Arc::clone(&lane));
            crate::threads::named("towline-payload-in").spawn(move || {
                match receive(&link_in, &*lane_in) {
                    Ok(()) => link_in.lane_failed("the server closed a payload connection".into()),
                    Err(error) => link_in.lane_failed(error),
                }
            })?;
            let (link_out, lane_out) = (Arc::clone(link), lane);
            crate::threads::named("towline-payload-out").spawn(move || {
                if let Err(error) = transmit(&link_out, &*lane_out) {
                    link_out.lane_failed(error.to_string());
                }
            })?;
        }
        Ok(())
    }

    /// Queues a granted window.
    pub(crate) fn send(&self, payload: u64, source: HostBox, offset: u64, length: u64) {
        let step = self.step(length);
        let mut queue = self.queue();
        queue.jobs.push_back(Outgoing {
            payload,
            source,
            next: offset,
            end: offset + length,
            step,
        });
        drop(queue);
        if length > step {
            self.work.notify_all();
        } else {
            self.work.notify_one();
        }
    }

    /// Bytes of a chunk: small payload is spread over the lanes, so that their copies run side by side.
    fn step(&self, length: u64) -> u64 {
        let share = length.div_ceil(self.count.max(1) as u64);
        share
            .next_multiple_of(4096)
            .clamp(SHARE, self.chunk_bytes.max(SHARE))
    }

    pub(crate) fn shutdown(&self) {
        let mut queue = self.queue();
        queue.stopped = true;
        queue.jobs.clear();
        drop(queue);
        self.work.notify_all();
        self.lanes().iter().for_each(|lane| lane.shutdown());
    }

    /// After [`Self::shutdown`]: waits until no lane reads from the application's memory any more. The connections are shut down, so
    /// that takes no time worth naming.
    pub(crate) fn quiesce(&self) {
        let mut queue = self.queue();
        while queue.active > 0 {
            queue = self
                .work
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A lane is through with a source.
    fn through(&self) {
        let mut queue = self.queue();
        queue.active -= 1;
        let over = queue.stopped && queue.active == 0;
        drop(queue);
        if over {
            self.work.notify_all();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<(ChunkHeader, HostBox)> {
        let mut queue = self.queue();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(job) = queue.jobs.front_mut() {
                let length = (job.end - job.next).min(job.step);
                let header = ChunkHeader {
                    payload: job.payload,
                    offset: job.next,
                    length: length as u32,
                };
                let source = job.source;
                job.next += length;
                if job.next == job.end {
                    queue.jobs.pop_front();
                }
                queue.active += 1;
                return Some((header, source));
            }
            queue = self
                .work
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn transmit(link: &Link, lane: &dyn Connection) -> Result<(), TransportError> {
    let mut packed = Vec::new();
    while let Some((header, source)) = link.payload.next() {
        let (offset, length) = (header.offset as usize, header.length as usize);
        let bytes: &[u8] = if source.is_linear() {
            let (address, length) = source
                .pieces(offset, length)
                .next()
                .unwrap_or((std::ptr::dangling_mut(), 0));
            // SAFETY: the application keeps the source of a write readable until its event is complete or, when it blocks, the call
            // has returned; both wait for this chunk.
            unsafe { std::slice::from_raw_parts(address, length) }
        } else {
            packed.clear();
            // SAFETY: as above.
            unsafe { source.gather(offset, length, &mut packed) };
            &packed
        };
        // Counted first: the server may be done with it before this thread goes on.
        link.meter.sent(header.length as usize + CHUNK_HEADER);
        let sent = lane.send(&[IoSlice::new(&header.to_bytes()), IoSlice::new(bytes)]);
        link.payload.through();
        sent?;
        link.sent(header.payload, header.length.into());
    }
    Ok(())
}

fn receive(link: &Link, lane: &dyn Connection) -> Result<(), String> {
    let mut packed = Vec::new();
    loop {
        let mut header = [0; CHUNK_HEADER];
        match lane.recv(&mut header).map_err(|error| error.to_string())? {
            0 => return Ok(()),
            count => {
                recv_exact(lane, &mut header[count..]).map_err(|error| error.to_string())?;
            }
        }
        let broken = |error: String| format!("the server broke the protocol: {error}");
        let chunk = ChunkHeader::from_bytes(&header).map_err(|error| broken(error.to_string()))?;
        let (offset, length) = (chunk.offset as usize, chunk.length as usize);
        let claimed = claim(link, chunk).map_err(|error| broken(error.to_string()))?;
        let Some((target, claim)) = claimed else {
            drop_chunk(lane, length).map_err(|error| error.to_string())?;
            link.meter.received(length + CHUNK_HEADER);
            continue;
        };
        let received = if target.is_linear() {
            let (address, length) = target
                .pieces(offset, length)
                .next()
                .unwrap_or((std::ptr::dangling_mut(), 0));
            // SAFETY: the application leaves the target of a read alone until the read is over, which waits for `release`; the claim
            // gave this range to this thread alone.
            recv_exact(lane, unsafe {
                std::slice::from_raw_parts_mut(address, length)
            })
        } else {
            packed.resize(length, 0);
            recv_exact(lane, &mut packed).inspect(|()| {
                // SAFETY: as above.
                unsafe { target.scatter(offset, &packed) };
            })
        };
        // Counted first: the read may be over with it, and its session reported.
        if received.is_ok() {
            link.meter.received(length + CHUNK_HEADER);
        }
        release(link, chunk.payload, received.is_ok().then_some(claim));
        received.map_err(|error| error.to_string())?;
    }
}

/// Takes a chunk of a read that has failed off the lane.
fn drop_chunk(lane: &dyn Connection, length: usize) -> Result<(), TransportError> {
    let mut scratch = [0; 16 << 10];
    let mut left = length;
    while left > 0 {
        let part = left.min(scratch.len());
        recv_exact(lane, &mut scratch[..part])?;
        left -= part;
    }
    Ok(())
}

/// Where a chunk goes; the read cannot end until [`release`]. `None` for a read that has failed: the news of it came on another lane.
fn claim(link: &Link, chunk: ChunkHeader) -> Result<Option<(HostBox, Claim)>, ProtocolError> {
    let unexpected = |detail: String| ProtocolError::new(CloseCode::UnexpectedPayload, detail);
    let (offset, length) = (chunk.offset, chunk.length.into());
    let mut state = link.state();
    if let Some(read) = state.reads.get_mut(&chunk.payload) {
        let claim = read.landing.claim(offset, length);
        let claim = claim.map_err(|error| unexpected(error.to_string()))?;
        read.active += 1;
        return Ok(Some((read.target, claim)));
    }
    let failed = state.failed_read(chunk.payload);
    let failed = failed
        .ok_or_else(|| unexpected(format!("payload {} is no read of ours", chunk.payload)))?;
    let claim = failed.claim(offset, length);
    drop(claim.map_err(|error| unexpected(error.to_string()))?);
    Ok(None)
}

/// A lane does not write to a read's target any more. `arrived` is the claim whose bytes are in place; without it the lane broke, and the
/// read stays open until the end of the session fails it.
fn release(link: &Link, payload: u64, arrived: Option<Claim>) {
    let mut due: Vec<(Callback, i32)> = Vec::new();
    {
        let mut state = link.state();
        let Some(read) = state.reads.get_mut(&payload) else {
            return;
        };
        read.active -= 1;
        let whole = arrived.and_then(|claim| read.landing.arrived(claim));
        match (read.failed, whole) {
            (Some(status), _) if read.active == 0 => state.read_failed(payload, status, &mut due),
            (None, Some(whole)) => state.landed(payload, whole, &mut due),
            _ => return,
        }
    }
    // A waiter may go by something that a callback changes.
    for (callback, status) in due {
        callback(status);
    }
    link.notify();
}
