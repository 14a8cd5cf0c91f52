//! What all threads of an OpenCL session share: besides the link, reads that have not been sent, and events to tell of.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use towline_backend::opencl::*;

use super::completion::{Outstanding, Watch};
use super::peer::Peers;
use super::queues_at_work::QueuesAtWork;
pub(crate) use crate::link::{Link, Raw, Staged};

/// A read whose data is not on its way yet.
#[derive(Debug)]
struct OutstandingRead {
    payload: u64,
    done: Raw,
}

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) api: Arc<dyn OpenClApi>,
    pub(crate) link: Arc<Link>,
    pub(crate) peers: Arc<Peers>,
    /// Pinned memory that transfers hold.
    pub(crate) pinned_bytes: AtomicU64,
    reads: Mutex<Vec<OutstandingRead>>,
    /// Events whose end the client has not been told, by its numbers.
    pub(crate) events: Mutex<HashMap<u64, Outstanding>>,
    /// Queues whose completions a thread waits for.
    pub(crate) watches: Mutex<HashMap<usize, Watch>>,
    /// Commands that have not ended, with a reference to each one's event, while somebody measures how long they take.
    pub(crate) at_work: Mutex<Vec<Raw>>,
    pub(crate) watched: AtomicBool,
    pub(crate) queues_at_work: QueuesAtWork,
    /// Launches whose ends count, with a reference to each one's event and the device's place.
    launches: Mutex<Vec<(u32, Raw)>>,
}

impl Deref for Shared {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Shared {
    pub(crate) fn new(api: Arc<dyn OpenClApi>, link: Arc<Link>, peers: Arc<Peers>) -> Self {
        Self {
            api,
            link,
            peers,
            pinned_bytes: AtomicU64::new(0),
            reads: Mutex::new(Vec::new()),
            events: Mutex::default(),
            watches: Mutex::default(),
            at_work: Mutex::default(),
            watched: AtomicBool::new(false),
            queues_at_work: QueuesAtWork::default(),
            launches: Mutex::default(),
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
        self.link.answer(to, status, &after, body);
    }

    /// Notes a read whose data will go out once `done` is complete. Other threads ask for its status until it has been sent, so it has
    /// a reference of its own until then.
    pub(crate) fn read_started(&self, payload: u64, done: cl_event) {
        // SAFETY: the caller's event is live.
        unsafe { self.api.clRetainEvent(done) };
        self.reads().push(OutstandingRead {
            payload,
            done: Raw(done.cast()),
        });
    }

    /// The data of a read is on its way.
    pub(crate) fn read_sent(&self, payload: u64) {
        let sent: SmallVec<[OutstandingRead; 1]> = self
            .reads()
            .extract_if(.., |read| read.payload == payload)
            .collect();
        for read in sent {
            self.release_event(read.done);
        }
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

    /// A launch that counts was enqueued, or failed and has no event.
    pub(crate) fn launched(&self, place: u32, event: cl_event) {
        if !event.is_null() {
            // SAFETY: the event is live.
            unsafe { self.api.clRetainEvent(event) };
        }
        self.launches().push((place, Raw(event.cast())));
    }

    /// Counted launches of a device that have ended since the last call.
    pub(crate) fn launches_ended(&self, place: u32) -> u64 {
        let mut launches = self.launches();
        let ended = launches.extract_if(.., |(at, event)| {
            *at == place
                && (event.0.is_null() || event_status(&*self.api, event.0.cast()) <= CL_COMPLETE)
        });
        let ended: Vec<_> = ended.collect();
        drop(launches);
        for (_, event) in ended.iter().filter(|(_, event)| !event.0.is_null()) {
            self.release_event(*event);
        }
        ended.len() as u64
    }

    fn launches(&self) -> MutexGuard<'_, Vec<(u32, Raw)>> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
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

    use towline_transport::Connection;
    use towline_wire::push::Push;

    use super::*;
    use crate::payload::Payloads;

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
            Arc::new(Shared::new(
                api,
                Arc::new(Link::new(lane, Arc::default(), payloads, None)),
                Arc::default(),
            )),
            client,
        )
    }

    #[test]
    fn a_read_keeps_its_event_until_its_data_has_been_sent() {
        let api: Arc<dyn OpenClApi> = Arc::new(NullOpenCl::new(1));
        let (shared, _client) = shared(Arc::clone(&api));
        let (mut device, none, mut status) = (std::ptr::null_mut(), std::ptr::null(), CL_SUCCESS);
        let kind = CL_DEVICE_TYPE_ALL as cl_device_type;
        let mut platform = std::ptr::null_mut();
        // SAFETY: one place for the platform.
        unsafe { api.clGetPlatformIDs(1, &raw mut platform, std::ptr::null_mut()) };
        // SAFETY: one place for the device.
        unsafe { api.clGetDeviceIDs(platform, kind, 1, &raw mut device, std::ptr::null_mut()) };
        // SAFETY: one device; one place for the status.
        let context = unsafe {
            api.clCreateContext(
                none,
                1,
                &raw const device,
                None,
                std::ptr::null_mut(),
                &raw mut status,
            )
        };
        // SAFETY: the context is live; one place for the status.
        let event = unsafe { api.clCreateUserEvent(context, &raw mut status) };
        assert_eq!(status, CL_SUCCESS);
        shared.read_started(7, event);
        shared.release_event(Raw(event.cast()));
        assert_eq!(event_status(&*api, event), CL_SUBMITTED);
        shared.read_sent(7);
        assert_eq!(event_status(&*api, event), CL_INVALID_EVENT);
    }

    #[test]
    fn an_event_that_another_thread_tells_is_told_before_a_wait_that_covers_it_is_answered() {
        let (shared, client) = shared(Arc::new(NullOpenCl::new(1)));
        shared
            .events
            .lock()
            .expect("nothing panicked")
            .insert(7, Outstanding::new(std::ptr::null_mut(), false));
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
