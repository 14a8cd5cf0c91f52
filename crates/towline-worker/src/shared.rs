//! What all threads of a session share: the way back to the client, payload under way, reads that have not been sent.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use towline_backend::opencl::*;
use towline_session::Outbox;
use towline_transport::Connection;
use towline_wire::error::ProtocolError;
use towline_wire::push::Push;

use crate::completion::Watch;
use crate::payload::Payloads;
use crate::peer::Peers;
use crate::print::Printing;
use crate::waiters::Waiters;

/// Figures of a session, for `towline status`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Device memory held now.
    pub device_memory_bytes: AtomicU64,
    /// Bytes from the client.
    pub received_bytes: AtomicU64,
    /// Bytes to the client.
    pub sent_bytes: AtomicU64,
    /// Requests carried out.
    pub calls: AtomicU64,
}

/// Where a worker's time goes, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The lane thread at work.
    pub(crate) lane_ns: AtomicU64,
    /// Threads that wait for the device because the client waits.
    pub(crate) device_ns: AtomicU64,
}

impl Usage {
    /// Runs `wait` and counts its time as the device's.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let started = std::time::Instant::now();
        let result = wait();
        self.device_ns
            .fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

/// A native object as threads pass it around. OpenCL objects may be used from any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Raw(pub(crate) *mut c_void);

// SAFETY: OpenCL calls are thread-safe by specification, and nothing here dereferences the pointer.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

/// Bytes of pushes that may wait for a flush: a client that asks without reading blocks its lane and not the worker's memory.
const OUTBOX_LIMIT: usize = 4 << 20;
/// Most memory of the worker's own that reads and staged writes of a session hold at once.
const STAGED_LIMIT: u64 = 1 << 30;

/// Memory that a transfer is staged in, counted against the session's limit.
pub(crate) struct Staged {
    memory: Box<[u8]>,
    total: Arc<AtomicU64>,
}

impl Staged {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let length = self.memory.len() as u64;
        self.total.fetch_sub(length, Ordering::Relaxed);
    }
}

/// A read whose data is not on its way yet.
#[derive(Debug)]
struct OutstandingRead {
    payload: u64,
    done: Raw,
}

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) api: Arc<dyn OpenClApi>,
    pub(crate) lane: Arc<dyn Connection>,
    pub(crate) outbox: Outbox,
    pub(crate) received: AtomicU64,
    pub(crate) waiters: Waiters,
    pub(crate) payloads: Payloads,
    pub(crate) peers: Peers,
    pub(crate) counters: Arc<Counters>,
    pub(crate) usage: Usage,
    pub(crate) printing: Printing,
    staged: Arc<AtomicU64>,
    /// Pinned memory that transfers hold.
    pub(crate) pinned_bytes: AtomicU64,
    reads: Mutex<Vec<OutstandingRead>>,
    /// Events whose end the client has not been told, by its numbers.
    pub(crate) events: Mutex<HashMap<u64, Raw>>,
    /// Queues whose completions a thread waits for.
    pub(crate) watches: Mutex<HashMap<usize, Watch>>,
    ended: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        api: Arc<dyn OpenClApi>,
        lane: Arc<dyn Connection>,
        counters: Arc<Counters>,
        payloads: Payloads,
    ) -> Self {
        Self {
            api,
            lane,
            outbox: Outbox::new(),
            received: AtomicU64::new(0),
            waiters: Waiters::default(),
            payloads,
            peers: Peers::default(),
            counters,
            usage: Usage::default(),
            printing: Printing::global(),
            staged: Arc::default(),
            pinned_bytes: AtomicU64::new(0),
            reads: Mutex::new(Vec::new()),
            events: Mutex::default(),
            watches: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// Queues a push; it goes out with the next flush.
    pub(crate) fn post(&self, push: &Push<'_>) {
        let (_, waiting) = self.outbox.post(push.id(), |out| push.encode(out));
        if waiting >= OUTBOX_LIMIT {
            self.flush();
        }
    }

    /// Sends a push now.
    pub(crate) fn push(&self, push: &Push<'_>) {
        self.post(push);
        self.flush();
    }

    /// Sends what is queued. A client that is gone is noticed by the lane's reader.
    pub(crate) fn flush(&self) {
        let sent = self.outbox.flush(
            || self.received.load(Ordering::Acquire),
            |bytes| {
                self.counters
                    .sent_bytes
                    .fetch_add(bytes.len() as u64, Ordering::Relaxed);
                self.lane.send(&[std::io::IoSlice::new(bytes)])
            },
        );
        if let Err(error) = sent
            && !self.ended()
        {
            log::debug!("cannot send to the client: {error}");
            self.lane.shutdown();
        }
    }

    /// Answers request `to`.
    pub(crate) fn reply<'a>(&self, to: u64, status: i32, body: &impl Message<'a>) {
        let mut bytes = Vec::new();
        if status >= 0 {
            body.encode(&mut bytes);
        }
        self.answer(to, status, &bytes);
    }

    /// Answers request `to` with an encoded body.
    pub(crate) fn answer(&self, to: u64, status: i32, body: &[u8]) {
        let after = self.completed_reads();
        self.post(&Push::Reply {
            to,
            status,
            after: List::Values(&after),
            body,
        });
    }

    /// Ends the session because the client broke the rules.
    pub(crate) fn close(&self, error: &ProtocolError) {
        log::warn!("closing the session: {error}");
        self.push(&Push::Close {
            code: error.code as u16,
            text: error.detail.as_bytes(),
        });
        self.end();
    }

    /// Marks the session as over and wakes whoever reads or writes its lanes.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.lane.shutdown();
        self.payloads.shutdown();
        self.peers.shutdown();
    }

    /// Whether the session is over.
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Memory to stage a transfer in; `None` when the session holds too much already.
    pub(crate) fn stage(&self, size: usize) -> Option<Staged> {
        let length = size as u64;
        let before = self.staged.fetch_add(length, Ordering::Relaxed);
        if before.saturating_add(length) > STAGED_LIMIT {
            self.staged.fetch_sub(length, Ordering::Relaxed);
            return None;
        }
        Some(Staged {
            memory: vec![0; size].into(),
            total: Arc::clone(&self.staged),
        })
    }

    /// Notes a read whose data will go out once `done` is complete.
    pub(crate) fn read_started(&self, payload: u64, done: cl_event) {
        self.reads().push(OutstandingRead {
            payload,
            done: Raw(done.cast()),
        });
    }

    /// The data of a read is on its way.
    pub(crate) fn read_sent(&self, payload: u64) {
        self.reads().retain(|read| read.payload != payload);
    }

    /// Reads that are complete on the device and not sent: host memory must hold their data before the client sees any later
    /// completion.
    pub(crate) fn completed_reads(&self) -> SmallVec<[u64; 4]> {
        let reads = self.reads();
        reads
            .iter()
            .filter(|read| event_status(&*self.api, read.done.0.cast()) <= CL_COMPLETE)
            .map(|read| read.payload)
            .collect()
    }

    fn reads(&self) -> MutexGuard<'_, Vec<OutstandingRead>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Execution status of a native event; negative when it failed or cannot be asked.
pub(crate) fn event_status(api: &dyn OpenClApi, event: cl_event) -> i32 {
    let mut status: cl_int = 0;
    // SAFETY: whoever noted the event holds a reference to it; the answer is one `cl_int`.
    let asked = unsafe {
        api.clGetEventInfo(
            event,
            CL_EVENT_COMMAND_EXECUTION_STATUS,
            size_of::<cl_int>(),
            (&raw mut status).cast(),
            std::ptr::null_mut(),
        )
    };
    if asked == CL_SUCCESS { status } else { asked }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towline_transport::memory::MemoryTransport;
    use towline_transport::{Address, ConnectOptions, Transport};
    use towline_wire::frame::FrameReader;

    use super::*;

    /// A session's shared state, and the client's end of its command lane.
    fn shared(api: Arc<dyn OpenClApi>) -> (Arc<Shared>, Arc<dyn Connection>) {
        let transport = MemoryTransport::new();
        let address: Address = "memory://shared".parse().expect("it is well formed");
        let listener = transport.listen(&address).expect("the name is free");
        let client = transport
            .connect(&address, &ConnectOptions::default())
            .expect("the listener is there");
        let lane = listener.accept().expect("somebody has connected");
        let payloads = Payloads::new(1);
        (
            Arc::new(Shared::new(api, lane, Arc::default(), payloads)),
            client,
        )
    }

    #[test]
    fn an_event_that_another_thread_tells_is_told_before_a_wait_that_covers_it_is_answered() {
        let (shared, client) = shared(Arc::new(NullOpenCl::new(1)));
        shared
            .events
            .lock()
            .expect("nothing panicked")
            .insert(7, Raw(std::ptr::null_mut()));
        // Keeps the thread that tells of the event half-way.
        let reads = shared.reads();
        let telling = Arc::clone(&shared);
        let telling = std::thread::spawn(move || telling.event_done(7, CL_COMPLETE));
        let begun = || match shared.events.try_lock() {
            Ok(events) => events.is_empty(),
            Err(_) => true,
        };
        while !begun() {
            std::thread::yield_now();
        }
        let answering = Arc::clone(&shared);
        let answering = std::thread::spawn(move || {
            answering.settle_before_answer();
            answering.post(&Push::Sent { payload: 1 });
        });
        for _ in 0..100 {
            if answering.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(reads);
        telling.join().expect("it does not panic");
        answering.join().expect("it does not panic");
        shared.flush();
        let mut reader = FrameReader::new();
        let mut told = Vec::new();
        while told.len() < 2 {
            let count = client.recv(reader.space()).expect("the lane is open");
            reader.filled(count);
            while let Some(message) = reader.next().expect("it is framed well") {
                told.push(message.id);
            }
        }
        let event = Push::Event {
            event: 0,
            status: 0,
            after: List::Values(&[]),
            times: None,
        };
        assert_eq!(told, [event.id(), Push::Sent { payload: 0 }.id()]);
    }
}
