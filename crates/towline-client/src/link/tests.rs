//! A link whose server, or whose lanes, fail while data is on its way.

use std::sync::mpsc::{Receiver, Sender, channel};

use towline_session::Landing;
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Transport};
use towline_wire::codec::List;
use towline_wire::frame::ChunkHeader;
use towline_wire::push::Push;

use super::*;
use crate::memory::HostBox;
use crate::state::{Covered, Event, Read, Slot, ToldBy, WRITE_LIMIT};

/// Bytes of the read, which come on the payload lane.
const SIZE: usize = 300 << 10;
/// The read's payload.
const PAYLOAD: u64 = 9;
/// The request that the server answers once the read is over.
const REQUEST: u64 = 3;

/// A server's ends of the command lane and the payload lane.
struct Server {
    command: Arc<dyn Connection>,
    payload: Arc<dyn Connection>,
    outbox: Outbox,
}

impl Server {
    fn push(&self, push: &Push<'_>) {
        self.outbox.post(push.id(), |out| push.encode(out));
        let sent = self.outbox.flush(
            || 0,
            |bytes| self.command.send(&[std::io::IoSlice::new(bytes)]),
        );
        sent.expect("the client takes it");
    }

    /// A chunk that announces the whole payload and brings its first bytes only.
    fn begin_chunk(&self) {
        let header = ChunkHeader {
            payload: PAYLOAD,
            offset: 0,
            length: SIZE as u32,
        };
        let begun = [7; 4096];
        let header = header.to_bytes();
        let parts = [&header[..], &begun].map(std::io::IoSlice::new);
        self.payload.send(&parts).expect("the client takes it");
    }

    /// A whole chunk of the payload's bytes from `offset` on.
    fn send_chunk(&self, offset: usize, length: usize) {
        let header = ChunkHeader {
            payload: PAYLOAD,
            offset: offset as u64,
            length: length as u32,
        };
        let (header, bytes) = (header.to_bytes(), vec![7; length]);
        let parts = [&header[..], &bytes].map(std::io::IoSlice::new);
        // A session that has ended takes nothing more.
        let _ = self.payload.send(&parts);
    }

    fn answer(&self) {
        self.push(&Push::Reply {
            to: REQUEST,
            status: 0,
            after: List::Values(&[PAYLOAD]),
            body: &[],
        });
    }
}

fn read(target: &mut [u8], told_by: ToldBy) -> Read {
    Read {
        target: HostBox::linear(target.as_ptr(), target.len()),
        landing: Landing::new(target.len() as u64),
        active: 0,
        failed: None,
        event: None,
        told_by,
        place: (0, 0),
        covered: Covered::new(),
    }
}

/// A link with a read under way and a request whose answer comes after it. The control connection is listened to, so a broken lane waits
/// for the server's last words before it ends the session.
fn reading(target: &mut [u8], told_by: ToldBy) -> (Arc<Link>, Server) {
    let network = MemoryTransport::new();
    let address: Address = "memory://server".parse().expect("it is well formed");
    let listener = network.listen(&address).expect("the name is free");
    let connect = || {
        let ours = network.connect(&address, &ConnectOptions::default());
        (
            ours.expect("it listens"),
            listener.accept().expect("a connection"),
        )
    };
    let ((command, theirs), (lane, their_lane)) = (connect(), connect());
    let link = Link::start("server", command, vec![lane], 64 << 10, OPENCL).expect("threads");
    link.expect_explanation();
    link.state().reads.insert(PAYLOAD, read(target, told_by));
    link.state()
        .replies
        .insert(REQUEST, Slot::Asked(Covered::new()));
    let server = Server {
        command: theirs,
        payload: their_lane,
        outbox: Outbox::new(),
    };
    (link, server)
}

#[test]
fn read_over_a_broken_lane_fails() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Call);
    server.begin_chunk();
    server.payload.shutdown();
    assert_eq!(link.wait_read(PAYLOAD), Err(LOST));
}

#[test]
fn wait_behind_a_read_over_a_broken_lane_fails() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.begin_chunk();
    server.payload.shutdown();
    server.answer();
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
}

#[test]
fn chunks_of_a_failed_read_are_dropped() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Call);
    server.push(&Push::NoData {
        payload: PAYLOAD,
        status: -5,
    });
    assert_eq!(link.wait_read(PAYLOAD), Err(-5));
    // They were sent before, on a lane that is slower.
    server.send_chunk(0, 100 << 10);
    server.send_chunk(100 << 10, 100 << 10);
    let mut next = vec![0; 4096];
    link.state()
        .reads
        .insert(PAYLOAD + 1, read(&mut next, ToldBy::Call));
    let header = ChunkHeader {
        payload: PAYLOAD + 1,
        offset: 0,
        length: 4096,
    };
    let (header, bytes) = (header.to_bytes(), [1; 4096]);
    let parts = [&header[..], &bytes].map(std::io::IoSlice::new);
    let sent = server.payload.send(&parts);
    assert_eq!((sent.is_ok(), link.wait_read(PAYLOAD + 1)), (true, Ok(())));
    assert_eq!((next, link.lost()), (vec![1; 4096], None));
    assert_eq!(target, vec![0; SIZE]);
}

#[test]
fn chunk_that_a_failed_read_had_before_ends_the_session() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Call);
    server.push(&Push::NoData {
        payload: PAYLOAD,
        status: -5,
    });
    assert_eq!(link.wait_read(PAYLOAD), Err(-5));
    server.send_chunk(0, 4096);
    server.send_chunk(0, 4096);
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
}

#[test]
fn read_without_data_but_with_success_ends_the_session() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.push(&Push::NoData {
        payload: PAYLOAD,
        status: 0,
    });
    server.answer();
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
    assert!(
        link.lost()
            .is_some_and(|reason| reason.contains("is no failure"))
    );
}

#[test]
fn data_shorter_than_the_read_ends_the_session() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.push(&Push::Data {
        payload: PAYLOAD,
        bytes: &[1; 100],
    });
    server.answer();
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
}

#[test]
fn positive_status_from_an_opencl_server_ends_the_session() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.push(&Push::Reply {
        to: REQUEST,
        status: 1,
        after: List::Values(&[]),
        body: &[],
    });
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
}

#[test]
fn fault_that_nobody_has_read_goes_before_the_reason() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    link.state().reads.clear();
    server.push(&Push::Failed {
        number: 0,
        call: 0,
        queue: 0,
        status: -5,
    });
    server.command.shutdown();
    link.explained("a kernel ran for too long".into());
    assert_eq!(link.lost(), Some("a kernel ran for too long"));
    assert_eq!(link.lost_status(), -5);
}

#[test]
fn words_of_a_server_reach_no_log_raw() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.push(&Push::Close {
        code: 1,
        text: b"\x1b[2Jgone\r\n",
    });
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
    let reason = link.lost().expect("the session is over");
    assert!(reason.contains("\\u{1b}[2Jgone\\r\\n"), "{reason}");
}

#[test]
fn message_about_a_context_reaches_its_listener() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    let (sender, told) = std::sync::mpsc::channel();
    let listener = move |text: &str| sender.send(text.to_string()).expect("the test listens");
    link.state().listeners.insert(7, Box::new(listener));
    for context in [6, 7] {
        let text = format!("of {context}");
        server.push(&Push::Notice {
            context,
            text: text.as_bytes(),
        });
    }
    server.command.shutdown();
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
    link.state().listeners.clear();
    assert_eq!(told.into_iter().collect::<Vec<_>>(), ["of 7"]);
}

#[test]
fn fault_is_told_when_reads_under_way_have_ended() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.push(&Push::Failed {
        number: 0,
        call: 0,
        queue: 0,
        status: -5,
    });
    server.push(&Push::Event {
        event: REQUEST,
        status: 0,
        after: List::Values(&[]),
        times: None,
    });
    link.state().events.insert(REQUEST, Event::default());
    let told = link.wait_told(|state| state.events[&REQUEST].status);
    assert_eq!((told, link.fault()), (Ok(0), 0));
    server.push(&Push::NoData {
        payload: PAYLOAD,
        status: -5,
    });
    let over = link.wait_told(|state| state.reads.is_empty().then_some(()));
    assert_eq!((over, link.fault()), (Ok(()), -5));
}

#[test]
fn wait_for_what_is_told_ends_with_the_read_before_it() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Call);
    link.state().events.insert(REQUEST, Event::default());
    server.push(&Push::Event {
        event: REQUEST,
        status: 0,
        after: List::Values(&[PAYLOAD]),
        times: None,
    });
    std::thread::scope(|scope| {
        let told = scope.spawn(|| link.wait_told(|state| state.events[&REQUEST].status));
        assert!(holds_soon(|| !link.state().held.is_empty()));
        // Its waiter has had time to go to sleep.
        std::thread::sleep(Duration::from_millis(50));
        server.send_chunk(0, SIZE);
        if !holds_soon(|| told.is_finished()) {
            link.fail("it does not end".into());
        }
        assert_eq!(told.join().expect("no panic"), Ok(0));
    });
}

/// Whether something comes to hold.
fn holds_soon(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    holds()
}

/// As many writes under way as may be.
fn fill(link: &Link) {
    let source = HostBox::linear(std::ptr::null(), 8);
    for number in 0..WRITE_LIMIT as u64 {
        link.expect_grants(1000 + number, source)
            .expect("there is room");
    }
}

#[test]
fn write_beyond_the_limit_waits_until_another_has_left() {
    let mut target = vec![0; SIZE];
    let (link, _server) = reading(&mut target, ToldBy::Queue(5));
    fill(&link);
    std::thread::scope(|scope| {
        let (sender, posted) = channel();
        let link = &link;
        scope.spawn(move || {
            let posted = link.expect_grants(7, HostBox::linear(std::ptr::null(), 8));
            sender.send(posted).expect("the test listens");
        });
        let early = posted.recv_timeout(Duration::from_millis(50));
        assert!(early.is_err(), "it does not wait");
        link.sent(1000, 8);
        assert_eq!(posted.recv(), Ok(Ok(())));
    });
}

#[test]
fn write_beyond_the_limit_fails_behind_an_event_of_the_application() {
    let mut target = vec![0; SIZE];
    let (link, _server) = reading(&mut target, ToldBy::Queue(5));
    fill(&link);
    let event = Event {
        user: true,
        ..Event::default()
    };
    link.state().events.insert(REQUEST, event);
    let posted = link.expect_grants(7, HostBox::linear(std::ptr::null(), 8));
    assert_eq!(posted, Err(CL_OUT_OF_RESOURCES));
    assert_eq!(link.lost(), None);
}

#[test]
fn wait_beyond_what_a_server_answers_at_once_fails() {
    let mut target = vec![0; SIZE];
    let (link, _server) = reading(&mut target, ToldBy::Queue(5));
    let request = towline_backend::opencl::Goodbye { reason: 0 };
    let failure = (0..100_000).find_map(|_| link.ask_only(&request).err());
    assert_eq!(failure, Some(CL_OUT_OF_RESOURCES));
    assert_eq!(link.lost(), None);
}

/// A payload lane that brings what the test sends it, and then keeps its reader, although it is shut down, until the test lets it go.
struct SlowLane {
    brought: Mutex<(Receiver<u8>, Receiver<()>)>,
    entered: Sender<()>,
    left: AtomicBool,
}

impl Connection for SlowLane {
    fn send(&self, _: &[std::io::IoSlice<'_>]) -> Result<(), TransportError> {
        Ok(())
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        Ok(bytes.len())
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        let brought = self.brought.lock().expect("one reader");
        let (bytes, release) = &*brought;
        if let Ok(byte) = bytes.recv() {
            buffer[0] = byte;
            return Ok(1);
        }
        // Where the test has failed, nobody listens, and nobody releases.
        let _ = self.entered.send(());
        let _ = release.recv();
        self.left.store(true, Ordering::SeqCst);
        Ok(0)
    }

    fn try_recv(&self, _: &mut [u8]) -> Result<Option<usize>, TransportError> {
        Ok(None)
    }

    fn wait_readable(&self, _: Option<Duration>) -> Result<bool, TransportError> {
        Ok(true)
    }

    fn shutdown(&self) {}

    fn peer(&self) -> String {
        "slow".into()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn lost_session_answers_when_no_lane_writes_any_more() {
    let network = MemoryTransport::new();
    let address: Address = "memory://slow".parse().expect("it is well formed");
    let listener = network.listen(&address).expect("the name is free");
    let command = network.connect(&address, &ConnectOptions::default());
    let theirs = listener.accept().expect("a connection");
    let header = ChunkHeader {
        payload: PAYLOAD,
        offset: 0,
        length: SIZE as u32,
    };
    let ((bring, bytes), (release, released)) = (channel(), channel());
    let (entered, is_entered) = channel();
    let lane = Arc::new(SlowLane {
        brought: Mutex::new((bytes, released)),
        entered,
        left: AtomicBool::new(false),
    });
    let (command, payload) = (command.expect("it listens"), Arc::clone(&lane) as _);
    let link = Link::start("server", command, vec![payload], 64 << 10, OPENCL).expect("threads");
    let mut target = vec![0; SIZE];
    let expected = read(&mut target, ToldBy::Queue(5));
    link.state().reads.insert(PAYLOAD, expected);
    for byte in header.to_bytes() {
        bring.send(byte).expect("the lane listens");
    }
    drop(bring);
    is_entered.recv().expect("the lane is read");
    std::thread::scope(|scope| {
        scope.spawn(|| link.fail("the test says so".into()));
        assert_eq!(theirs.recv(&mut [0]).expect("it ends in order"), 0);
        let waiter = scope.spawn(|| {
            let answer = link.wait_for(|_| None::<()>);
            (answer, lane.left.load(Ordering::SeqCst))
        });
        // For a wait that does not wait for the lane to answer too early.
        std::thread::sleep(Duration::from_millis(50));
        release.send(()).expect("the lane waits for it");
        let (answer, left) = waiter.join().expect("it does not panic");
        assert_eq!((answer, left), (Err(LOST), true));
    });
}

/// A link's knowledge once the server has pushed `pushes` and answered.
fn told(
    prepare: impl FnOnce(&mut State),
    pushes: impl FnOnce(&Server) + Send + 'static,
) -> Arc<Link> {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Call);
    prepare(&mut link.state());
    let serving = std::thread::spawn(move || {
        pushes(&server);
        server.push(&Push::Reply {
            to: REQUEST,
            status: 0,
            after: List::Values(&[]),
            body: &[],
        });
        server
    });
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Ok(0));
    drop(serving.join().expect("the server does not panic"));
    link
}

#[test]
fn failures_of_queues_that_are_not_there_are_kept_to_a_limit() {
    let link = told(
        |_| {},
        |server| {
            for queue in 0..6000 {
                server.push(&Push::Failed {
                    number: 1,
                    call: 0,
                    queue,
                    status: CL_OUT_OF_RESOURCES,
                });
            }
        },
    );
    assert_eq!(link.state().failures.len(), 4096);
}

#[test]
fn retired_bytes_beyond_those_posted_give_no_credit() {
    let prepare = |state: &mut State| state.inline_posted = 100;
    let link = told(prepare, |server| {
        server.push(&Push::Retired { bytes: u64::MAX });
    });
    let mut state = link.state();
    assert!(state.take_inline(10, 10));
    assert!(!state.take_inline(1, 10));
}
