//! The CUDA engine on the host-memory device, with a client that says what each test likes.

#[path = "support/blocks.rs"]
mod blocks;
#[path = "support/collectives.rs"]
mod collectives;
#[path = "support/graphs.rs"]
mod graphs;
#[path = "support/limits.rs"]
mod limits;
#[path = "support/room.rs"]
mod room;
#[path = "support/shared_host.rs"]
mod shared_host;
#[path = "support/swap.rs"]
mod swap;

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towline_backend::cuda as wire;
use towline_backend::cuda::facts::ModuleFacts;
use towline_backend::cuda::snapshot::Snapshot;
use towline_backend::cuda::*;
use towline_session::{HANDLE_BASE, Outbox};
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Connection, Transport, recv_exact};
use towline_wire::cuda::graph as described;
use towline_wire::error::CloseCode;
use towline_wire::frame::{CHUNK_HEADER, ChunkHeader, FrameReader};
use towline_wire::push::Push;
use towline_worker::{Broker, Counters, CudaEngine, Limits, NoBroker, RunError, SideLane};

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

const CONTEXT: wire::ContextHandle = wire::ContextHandle(HANDLE_BASE | 1);
const A: wire::StreamHandle = wire::StreamHandle(HANDLE_BASE | 2);
const B: wire::StreamHandle = wire::StreamHandle(HANDLE_BASE | 3);
const MODULE: wire::ModuleHandle = wire::ModuleHandle(HANDLE_BASE | 4);
const EVENT: wire::EventHandle = wire::EventHandle(HANDLE_BASE | 5);
const DEFAULT: wire::StreamHandle = wire::StreamHandle(0);
const FIRST: u64 = HANDLE_BASE | 0x100;
const ADD_ONE: wire::FunctionHandle = wire::FunctionHandle(FIRST);
const SCALE: wire::FunctionHandle = wire::FunctionHandle(FIRST + 1);
const SPIN_UNTIL: wire::FunctionHandle = wire::FunctionHandle(FIRST + 2);
const FAULT: wire::FunctionHandle = wire::FunctionHandle(FIRST + 3);

const IMAGE: &[u8] = b"towline null image\nkernel add_one\nkernel scale\nkernel spin_until\nkernel fault\nglobal table 64";

#[derive(Default)]
struct Inbox {
    replies: HashMap<u64, (i32, Vec<u8>)>,
    failures: Vec<(u64, i32)>,
    grants: Vec<(u64, u64, u64)>,
    data: HashMap<u64, Vec<u8>>,
    /// Bytes of it that have come.
    landed: HashMap<u64, u64>,
    sent: Vec<u64>,
    no_data: Vec<(u64, i32)>,
    events: Vec<(u64, i32)>,
    closed: Option<u16>,
    ended: bool,
}

struct Client {
    null: Option<Arc<NullCuda>>,
    command: Arc<dyn Connection>,
    lanes: Vec<Arc<dyn Connection>>,
    outbox: Outbox,
    counters: Arc<Counters>,
    inbox: Arc<(Mutex<Inbox>, Condvar)>,
    ended: Receiver<Result<(), RunError>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// A session with a context, two streams that keep no order with the default one, an event, and a module.
    fn new() -> Self {
        Self::bare().settle(IMAGE)
    }

    fn settle(self, image: &[u8]) -> Self {
        let client = self;
        let retained = client.post(&wire::PrimaryRetain {
            device: 0,
            flags: 0,
            context: CONTEXT,
        });
        assert_eq!(client.status_of(retained), CUDA_SUCCESS);
        client.post(&wire::Act {
            thread: 1,
            context: CONTEXT,
            capture_mode: 0,
        });
        for stream in [A, B] {
            client.post(&wire::StreamCreate {
                phStream: stream,
                Flags: CU_STREAM_NON_BLOCKING,
            });
        }
        client.post(&wire::EventCreate {
            phEvent: EVENT,
            Flags: 0,
        });
        let facts = client.load(image, 0);
        let names: Vec<_> = facts.functions.iter().map(|one| &*one.name).collect();
        assert_eq!(names, [&b"add_one"[..], b"scale", b"spin_until", b"fault"]);
        client
    }

    fn bare() -> Self {
        let null = Arc::new(NullCuda::new(1));
        let mut client = Self::on(Arc::clone(&null) as _);
        client.null = Some(null);
        client
    }

    fn on(api: Arc<dyn CudaApi>) -> Self {
        let address = "memory://cuda".parse().expect("it is well formed");
        Self::over(api, &MemoryTransport::new(), &address)
    }

    fn over(api: Arc<dyn CudaApi>, transport: &dyn Transport, address: &Address) -> Self {
        Self::start(api, transport, address, Arc::default(), Arc::new(NoBroker))
    }

    /// A session whose kernels may take so long.
    fn timed(limit: Duration) -> Self {
        let counters = Counters::default();
        let limit = limit.as_millis() as u64;
        counters.kernel_time_ms.store(limit, Ordering::Relaxed);
        let address = "memory://cuda".parse().expect("it is well formed");
        let null = Arc::new(NullCuda::new(1));
        let (transport, broker) = (MemoryTransport::new(), Arc::new(NoBroker));
        let client = Self::start(null, &transport, &address, counters.into(), broker);
        client.settle(IMAGE)
    }

    fn start(
        api: Arc<dyn CudaApi>,
        transport: &dyn Transport,
        address: &Address,
        counters: Arc<Counters>,
        broker: Arc<dyn Broker>,
    ) -> Self {
        let engine = CudaEngine::open(api, false, &|_, _| true, 0).expect("there is a device");
        Self::serve(engine.with_broker(broker), transport, address, counters)
    }

    fn serve(
        engine: CudaEngine,
        transport: &dyn Transport,
        address: &Address,
        counters: Arc<Counters>,
    ) -> Self {
        let listener = transport.listen(address).expect("the name is free");
        let mut pairs: Vec<_> = (0..3)
            .map(|_| {
                let ours = transport
                    .connect(address, &ConnectOptions::default())
                    .expect("the listener is there");
                (ours, listener.accept().expect("somebody has connected"))
            })
            .collect();
        let (command, lane) = pairs.remove(0);
        let (lanes, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut theirs = theirs.into_iter().map(SideLane::Payload);
        let (sender, ended) = channel();
        let counted = Arc::clone(&counters);
        std::thread::spawn(move || {
            let limits = Limits {
                chunk_bytes: 64 << 10,
            };
            let counters = counted;
            // The test may have given up.
            let _ = sender.send(engine.run(lane, move || theirs.next(), limits, counters));
        });
        let inbox: Arc<(Mutex<Inbox>, Condvar)> = Arc::default();
        let (pushes, pushed) = (Arc::clone(&inbox), Arc::clone(&command));
        std::thread::spawn(move || read(&*pushed, &pushes));
        for lane in &lanes {
            let (inbox, lane) = (Arc::clone(&inbox), Arc::clone(lane));
            std::thread::spawn(move || receive(&*lane, &inbox));
        }
        Self {
            null: None,
            command,
            lanes,
            outbox: Outbox::new(),
            counters,
            inbox,
            ended,
        }
    }

    fn post<'a, R: Request<'a>>(&self, request: &R) -> u64 {
        let number = self.hold(request);
        self.send_held();
        number
    }

    /// Has a request go with the next one that is posted.
    fn hold<'a, R: Request<'a>>(&self, request: &R) -> u64 {
        self.outbox.post(R::ID, |out| request.encode(out)).0
    }

    fn send_held(&self) {
        // A worker that has closed the session does not take it.
        let _ = self
            .outbox
            .flush(|| 0, |bytes| self.command.send(&[IoSlice::new(bytes)]));
    }

    fn wait<T>(&self, what: &str, found: impl Fn(&mut Inbox) -> Option<T>) -> T {
        let mut inbox = lock(&self.inbox.0);
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(&mut inbox) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come");
            inbox = self
                .inbox
                .1
                .wait_timeout(inbox, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn reply_to(&self, number: u64) -> (i32, Vec<u8>) {
        self.wait("an answer", |inbox| inbox.replies.remove(&number))
    }

    fn status_of(&self, number: u64) -> i32 {
        self.reply_to(number).0
    }

    fn closed(&self) -> Option<CloseCode> {
        let code = self.wait("the end", |inbox| inbox.ended.then_some(inbox.closed));
        code.and_then(CloseCode::from_number)
    }

    fn load(&self, image: &[u8], payload: u64) -> ModuleFacts {
        let number = self.start_load(MODULE, image, payload);
        let (status, body) = self.reply_to(number);
        assert_eq!(status, CUDA_SUCCESS);
        let reply = wire::ModuleLoadReply::decode(&body).expect("the reply decodes");
        ModuleFacts::decode(reply.facts.expect("facts were asked for")).expect("facts decode")
    }

    fn start_load(&self, module: wire::ModuleHandle, image: &[u8], payload: u64) -> u64 {
        let number = self.ask_load(module, image, image.len() as u64, payload);
        if payload != 0 {
            self.fill(payload, image);
        }
        number
    }

    /// Asks for an image that is said to have `size` bytes.
    fn ask_load(&self, module: wire::ModuleHandle, image: &[u8], size: u64, payload: u64) -> u64 {
        self.post(&wire::ModuleLoad {
            digest: &[0; 32],
            size,
            payload,
            image_size: if payload == 0 { image.len() as u64 } else { 0 },
            image: (payload == 0).then_some(image),
            num_options: 0,
            options: List::Values(&[]),
            values: List::Values(&[]),
            first: FIRST + 0x100 * (module.0 - MODULE.0),
            room: 1 << 20,
            log_room: 0,
            info_room: 0,
            module,
        })
    }

    fn allocate(&self, size: u64) -> u64 {
        let number = self.post(&wire::MemoryAlloc {
            size,
            managed_flags: 0,
        });
        let (status, body) = self.reply_to(number);
        assert_eq!(status, CUDA_SUCCESS);
        let reply = wire::MemoryAllocReply::decode(&body).expect("the reply decodes");
        reply.address.expect("it was asked for")
    }

    fn launch(&self, function: wire::FunctionHandle, stream: wire::StreamHandle, params: &[u8]) {
        self.post(&launch(function, stream, params));
    }

    fn write(&self, stream: wire::StreamHandle, address: u64, data: &[u8]) {
        self.post(&wire::WriteInline {
            stream,
            address,
            size: data.len() as u64,
            data,
        });
    }

    /// Posts a write whose bytes come later.
    fn write_bulk(&self, stream: wire::StreamHandle, address: u64, size: u64, payload: u64) {
        self.post(&wire::WriteBulk {
            stream,
            address,
            size,
            payload,
        });
    }

    /// Sends a payload's bytes as they are granted.
    fn fill(&self, payload: u64, bytes: &[u8]) {
        let mut left = bytes.len() as u64;
        while left > 0 {
            let (offset, length) = self.wait("a grant", |inbox| {
                let at = inbox.grants.iter().position(|grant| grant.0 == payload)?;
                let (_, offset, length) = inbox.grants.remove(at);
                Some((offset, length))
            });
            let window = &bytes[offset as usize..(offset + length) as usize];
            for (index, part) in window.chunks(64 << 10).enumerate() {
                let header = ChunkHeader {
                    payload,
                    offset: offset + (index * (64 << 10)) as u64,
                    length: part.len() as u32,
                };
                let lane = &self.lanes[index % self.lanes.len()];
                lane.send(&[IoSlice::new(&header.to_bytes()), IoSlice::new(part)])
                    .expect("the worker takes what it granted");
            }
            left -= length;
        }
    }

    fn start_read(&self, stream: wire::StreamHandle, address: u64, size: u64, payload: u64) {
        self.post(&wire::Read {
            stream,
            address,
            size,
            payload,
            urgent: (payload % 2) as u32,
        });
    }

    /// The data of a read, once all of it is there.
    fn data(&self, payload: u64, size: u64) -> Vec<u8> {
        self.wait("data", |inbox| {
            let complete = inbox.landed.get(&payload) == Some(&size);
            let told = size <= 128 << 10 || inbox.sent.contains(&payload);
            (complete && told).then(|| inbox.data.remove(&payload).unwrap_or_default())
        })
    }

    fn read(&self, stream: wire::StreamHandle, address: u64, size: u64, payload: u64) -> Vec<u8> {
        self.start_read(stream, address, size, payload);
        self.data(payload, size)
    }

    fn record(&self, stream: wire::StreamHandle, record: u64) {
        self.post(&wire::EventRecord {
            event: EVENT,
            stream,
            flags: 0,
            record,
        });
    }

    fn event(&self, record: u64) -> i32 {
        self.wait("an event", |inbox| {
            let found = inbox.events.iter().find(|(event, _)| *event == record);
            found.map(|(_, status)| *status)
        })
    }

    fn synchronize(&self, stream: wire::StreamHandle) -> i32 {
        let number = self.post(&wire::SynchronizeStream { stream });
        self.status_of(number)
    }

    fn failures(&self) -> Vec<(u64, i32)> {
        lock(&self.inbox.0).failures.clone()
    }

    /// Closes all connections, and sees that nothing is left.
    fn leave(self) {
        self.command.shutdown();
        for lane in &self.lanes {
            lane.shutdown();
        }
        // How it ended is the test's own matter.
        let _ = self
            .ended
            .recv_timeout(PATIENCE)
            .expect("the worker neither hangs nor panics");
        if let Some(null) = &self.null {
            assert_eq!(null.allocated_bytes(), 0, "memory is left behind");
            assert_eq!(null.live_objects(), 0, "objects are left behind");
            assert_eq!(
                null.stray_queries(),
                0,
                "streams were asked after their end"
            );
        }
    }
}

fn launch<'a>(
    function: wire::FunctionHandle,
    stream: wire::StreamHandle,
    params: &'a [u8],
) -> wire::Launch<'a> {
    wire::Launch {
        function,
        stream,
        grid_x: 1,
        grid_y: 1,
        grid_z: 1,
        block_x: 32,
        block_y: 1,
        block_z: 1,
        shared_bytes: 0,
        attribute_words: 0,
        attributes: List::Values(&[]),
        size: params.len() as u64,
        params,
    }
}

/// Parameters: an address and numbers.
fn params(address: u64, numbers: &[u32]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    address.to_le_bytes().into_iter().chain(numbers).collect()
}

fn read(command: &dyn Connection, inbox: &(Mutex<Inbox>, Condvar)) {
    let mut reader = FrameReader::new();
    while let Ok(count @ 1..) = command.recv(reader.space()) {
        reader.filled(count);
        while let Some(message) = reader.next().expect("the worker frames well") {
            let push = Push::decode(message.id, message.body).expect("the worker encodes well");
            let mut inbox = lock(&inbox.0);
            match push {
                Push::Reply {
                    to, status, body, ..
                } => {
                    inbox.replies.insert(to, (status, body.to_vec()));
                }
                Push::Failed { number, status, .. } => inbox.failures.push((number, status)),
                Push::Grant {
                    payload,
                    offset,
                    length,
                } => inbox.grants.push((payload, offset, length)),
                Push::Data { payload, bytes } => {
                    inbox.data.insert(payload, bytes.to_vec());
                    inbox.landed.insert(payload, bytes.len() as u64);
                }
                Push::NoData { payload, status } => inbox.no_data.push((payload, status)),
                Push::Sent { payload } => inbox.sent.push(payload),
                Push::Event { event, status, .. } => inbox.events.push((event, status)),
                Push::Close { code, .. } => inbox.closed = Some(code),
                _ => {}
            }
        }
        inbox.1.notify_all();
    }
    lock(&inbox.0).ended = true;
    inbox.1.notify_all();
}

/// Takes the data of reads off a payload lane.
fn receive(lane: &dyn Connection, inbox: &(Mutex<Inbox>, Condvar)) {
    loop {
        let mut header = [0; CHUNK_HEADER];
        if recv_exact(lane, &mut header).is_err() {
            return;
        }
        let chunk = ChunkHeader::from_bytes(&header).expect("the worker frames well");
        let mut bytes = vec![0; chunk.length as usize];
        if recv_exact(lane, &mut bytes).is_err() {
            return;
        }
        let changed = &inbox.1;
        let mut inbox = lock(&inbox.0);
        let data = inbox.data.entry(chunk.payload).or_default();
        let end = chunk.offset as usize + bytes.len();
        data.resize(data.len().max(end), 0);
        data[chunk.offset as usize..end].copy_from_slice(&bytes);
        *inbox.landed.entry(chunk.payload).or_default() += bytes.len() as u64;
        changed.notify_all();
    }
}

/// Bytes that no shift of themselves repeats soon.
fn pattern(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[test]
fn a_snapshot_describes_the_devices_and_leaves_no_context() {
    let null = Arc::new(NullCuda::new(3));
    let engine = CudaEngine::open(Arc::clone(&null) as _, false, &|number, _| number != 1, 0)
        .expect("the host-memory device is always there");
    let snapshot = Snapshot::decode(engine.snapshot()).expect("it decodes");
    assert_eq!(snapshot.devices.len(), 2);
    assert!(!snapshot.genuine);
    let warp = snapshot.devices[0].attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    assert_eq!(warp, Some(32));
    assert_ne!(snapshot.devices[0].uuid, snapshot.devices[1].uuid);
    assert_eq!(snapshot.devices[0].priorities, (0, -5));
    assert_eq!(null.live_objects(), 0);
}

#[test]
fn a_launch_computes_with_what_was_written_and_its_result_is_read() {
    let client = Client::new();
    let memory = client.allocate(64);
    client.write(DEFAULT, memory, &params(0, &[5, 7])[..16]);
    client.launch(ADD_ONE, DEFAULT, &params(memory, &[4]));
    client.launch(SCALE, DEFAULT, &params(memory, &[4, 3]));
    let numbers = client.read(DEFAULT, memory, 16, 1);
    let expected: Vec<u8> = [3_u32, 3, 18, 24]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    assert_eq!(numbers, expected);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn data_of_every_size_comes_back_as_it_went() {
    let client = Client::new();
    let sizes = [
        0_u64,
        1,
        4096,
        64 << 10,
        (128 << 10) - 1,
        128 << 10,
        (128 << 10) + 1,
        (4 << 20) - 3,
        4 << 20,
        (4 << 20) + 1,
        (21 << 20) + 5,
    ];
    let memory = client.allocate(22 << 20);
    for (index, size) in sizes.into_iter().enumerate() {
        let bytes = pattern(size as usize, size + 1);
        let payload = 10 + 2 * index as u64;
        if size <= 64 << 10 {
            client.write(A, memory + 64, &bytes);
        } else {
            client.write_bulk(A, memory + 64, size, payload);
            client.fill(payload, &bytes);
        }
        let back = client.read(A, memory + 64, size, payload + 1);
        assert!(back == bytes, "{size} bytes came back otherwise");
    }
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn primary_context_is_made_anew_after_its_end() {
    let client = Client::new();
    let memory = client.allocate(1 << 20);
    // The end waits for the payload.
    client.write_bulk(A, memory, 1 << 20, 50);
    client.post(&wire::PrimaryRelease {
        device: 0,
        context: CONTEXT,
    });
    let retain = wire::PrimaryRetain {
        device: 0,
        flags: 0,
        context: CONTEXT,
    };
    let early = client.post(&retain);
    client.fill(50, &pattern(1 << 20, 3));
    assert_eq!(client.status_of(early), CUDA_ERROR_NOT_READY);
    assert_eq!(client.status_of(client.post(&retain)), CUDA_SUCCESS);
    client.post(&wire::Act {
        thread: 1,
        context: CONTEXT,
        capture_mode: 0,
    });
    let memory = client.allocate(16);
    client.post(&wire::Memset {
        stream: wire::StreamHandle(0),
        address: memory,
        pitch: 0,
        value: 7,
        element_size: 4,
        width: 4,
        height: 1,
    });
    let bytes = client.read(wire::StreamHandle(0), memory, 16, 51);
    assert_eq!(bytes, [7_u32; 4].map(u32::to_le_bytes).concat());
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn an_image_comes_as_payload_too() {
    let client = Client::bare();
    let retained = client.post(&wire::PrimaryRetain {
        device: 0,
        flags: 0,
        context: CONTEXT,
    });
    assert_eq!(client.status_of(retained), CUDA_SUCCESS);
    client.post(&wire::Act {
        thread: 1,
        context: CONTEXT,
        capture_mode: 0,
    });
    let facts = client.load(IMAGE, 77);
    assert_eq!(facts.functions[1].name, b"scale");
    assert_eq!(facts.functions[1].parameter_bytes(), 16);
    client.leave();
}

#[test]
fn a_request_behind_a_write_waits_for_its_payload_and_other_streams_do_not() {
    let client = Client::new();
    let memory = client.allocate(1 << 20);
    let bytes = pattern(1 << 20, 3);
    client.write_bulk(A, memory, 1 << 20, 50);
    client.launch(ADD_ONE, A, &params(memory, &[1]));
    client.record(A, 1);
    client.post(&wire::StreamWaitEvent {
        hStream: B,
        hEvent: EVENT,
        Flags: 0,
    });
    client.start_read(B, memory, 4, 51);
    // Not behind the write, and answered before its payload comes.
    assert_eq!(client.synchronize(DEFAULT), CUDA_SUCCESS);
    client.fill(50, &bytes);
    let first = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    assert_eq!(client.data(51, 4), first.wrapping_add(1).to_le_bytes());
    assert_eq!(client.event(1), CUDA_SUCCESS);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn the_default_stream_keeps_order_with_blocking_streams_that_are_parked() {
    let client = Client::new();
    let blocking = wire::StreamHandle(HANDLE_BASE | 9);
    client.post(&wire::StreamCreate {
        phStream: blocking,
        Flags: 0,
    });
    let memory = client.allocate(256 << 10);
    client.write_bulk(blocking, memory, 256 << 10, 60);
    client.launch(ADD_ONE, DEFAULT, &params(memory, &[1]));
    client.start_read(blocking, memory, 4, 61);
    client.fill(60, &vec![0; 256 << 10]);
    assert_eq!(client.data(61, 4), 1_u32.to_le_bytes());
    client.leave();
}

#[test]
fn launches_behind_a_spinning_kernel_do_not_keep_the_copy_that_ends_it() {
    let client = Client::new();
    let memory = client.allocate(64);
    client.launch(SPIN_UNTIL, A, &params(memory, &[]));
    for _ in 0..2000 {
        client.launch(ADD_ONE, A, &params(memory + 4, &[1]));
    }
    client.record(A, 7);
    client.write(B, memory, &1_u32.to_le_bytes());
    assert_eq!(client.event(7), CUDA_SUCCESS);
    assert_eq!(client.read(A, memory + 4, 4, 71), 2000_u32.to_le_bytes());
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn work_after_a_wait_counts_for_the_next_wait_for_all() {
    let client = Client::new();
    let memory = client.allocate(64);
    let open = |value: u32| {
        client.write(B, memory, &value.to_le_bytes());
        assert_eq!(client.synchronize(B), CUDA_SUCCESS);
    };
    open(1);
    client.launch(SPIN_UNTIL, A, &params(memory, &[]));
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    open(0);
    client.launch(SPIN_UNTIL, A, &params(memory, &[]));
    let number = client.post(&wire::SynchronizeContext { context: CONTEXT });
    std::thread::sleep(Duration::from_millis(200));
    let early = lock(&client.inbox.0).replies.contains_key(&number);
    client.write(B, memory, &1_u32.to_le_bytes());
    assert_eq!(client.status_of(number), CUDA_SUCCESS);
    assert!(!early, "the kernel had not ended");
    client.leave();
}

#[test]
fn stream_that_ends_behind_a_wait_for_all_is_asked_nothing_more() {
    let client = Client::new();
    let memory = client.allocate(64);
    client.write(B, memory, &[0; 4]);
    assert_eq!(client.synchronize(B), CUDA_SUCCESS);
    for (number, stream) in [(0, A), (1, B)] {
        client.launch(ADD_ONE, stream, &params(memory, &[number]));
        // In one frame, as of two threads of the program.
        let waited = client.hold(&wire::SynchronizeContext { context: CONTEXT });
        client.post(&wire::StreamDestroyV2 { hStream: stream });
        assert_eq!(client.status_of(waited), CUDA_SUCCESS);
    }
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn a_stream_stands_still_until_the_applications_function_has_returned() {
    let client = Client::new();
    let memory = client.allocate(64);
    client.post(&wire::HostFunction {
        stream: A,
        function: 900,
        sync_mode: 0,
    });
    client.launch(ADD_ONE, A, &params(memory, &[1]));
    client.record(A, 901);
    assert_eq!(client.event(900), CUDA_SUCCESS);
    // What another stream does meanwhile is seen by the launch behind the function.
    client.write(B, memory, &41_u32.to_le_bytes());
    assert_eq!(client.synchronize(B), CUDA_SUCCESS);
    client.post(&wire::HostDone { function: 900 });
    assert_eq!(client.event(901), CUDA_SUCCESS);
    assert_eq!(client.read(A, memory, 4, 91), 42_u32.to_le_bytes());
    client.leave();
}

#[test]
fn a_fault_is_told_once_and_every_wait_after_it_fails() {
    let client = Client::new();
    client.launch(FAULT, A, &[]);
    assert_eq!(client.synchronize(A), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(client.synchronize(B), CUDA_ERROR_ILLEGAL_ADDRESS);
    let told = client.failures();
    let sticky = told.iter().filter(|(number, _)| *number == 0).count();
    assert_eq!(sticky, 1, "{told:?}");
    client.leave();
}

#[test]
fn a_verdict_is_the_drivers_and_does_not_stick() {
    let client = Client::new();
    let memory = client.allocate(64);
    let good = params(memory, &[1]);
    let first = |block_x| wire::LaunchFirst {
        function: ADD_ONE,
        stream: A,
        grid_x: 1,
        grid_y: 1,
        grid_z: 1,
        block_x,
        block_y: 1,
        block_z: 1,
        shared_bytes: 0,
        attribute_words: 0,
        attributes: List::Values(&[]),
        size: good.len() as u64,
        params: &good,
    };
    let refused = client.post(&first(4096));
    assert_eq!(client.status_of(refused), CUDA_ERROR_INVALID_VALUE);
    let taken = client.post(&first(32));
    assert_eq!(client.status_of(taken), CUDA_SUCCESS);
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn a_read_of_addresses_nobody_has_brings_no_data() {
    let client = Client::new();
    client.start_read(A, 0x10, 4, 95);
    let status = client.wait("no data", |inbox| {
        let mut found = inbox.no_data.iter();
        found
            .find(|(payload, _)| *payload == 95)
            .map(|(_, status)| *status)
    });
    assert_eq!(status, CUDA_ERROR_ILLEGAL_ADDRESS);
    client.leave();
}

#[test]
fn a_handle_of_another_kind_closes_the_session() {
    let client = Client::new();
    client.post(&wire::EventDestroyV2 {
        hEvent: wire::EventHandle(A.0),
    });
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle));
    client.leave();
}

#[test]
fn a_function_that_nobody_pends_closes_the_session() {
    let client = Client::new();
    client.post(&wire::HostDone { function: 12 });
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle));
    client.leave();
}

fn write_box<'a>(place: &'a [u64; 8], size: u64, payload: u64) -> wire::WriteBox<'a> {
    wire::WriteBox {
        stream: A,
        array: wire::ArrayHandle(0),
        address: 0x1000,
        place: List::Values(place),
        payload,
        size,
        data: None,
    }
}

#[test]
fn a_box_of_another_size_than_its_payload_fails_and_its_payload_is_taken_in() {
    let client = Client::new();
    let place = [0, 0, 0, 10, 10, 10, 10, 10];
    let number = client.post(&write_box(&place, 5 << 20, 40));
    client.fill(40, &pattern(5 << 20, 1));
    client.wait("the failure", |inbox| {
        let told = inbox.failures.iter();
        told.clone()
            .any(|told| *told == (number, CUDA_ERROR_INVALID_VALUE))
            .then_some(())
    });
    let number = client.post(&wire::WriteBox {
        data: Some(&[1; 999]),
        ..write_box(&place, 999, 0)
    });
    client.post(&wire::ReadBox {
        stream: A,
        array: wire::ArrayHandle(0),
        address: 0x1000,
        place: List::Values(&[0, 0, 0, 10, 0, 10, 10, 10]),
        size: 0,
        payload: 41,
        urgent: 1,
    });
    client.wait("both refusals", |inbox| {
        let write = inbox.failures.contains(&(number, CUDA_ERROR_INVALID_VALUE));
        let read = inbox.no_data.contains(&(41, CUDA_ERROR_INVALID_VALUE));
        (write && read).then_some(())
    });
    // The session goes on.
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    client.leave();
}

#[test]
fn a_write_without_a_context_takes_its_payload_in_and_fails() {
    let client = Client::bare();
    client.write_bulk(DEFAULT, 0x1000, 300_000, 42);
    client.fill(42, &pattern(300_000, 1));
    client.wait("the failure", |inbox| {
        let told = inbox.failures.iter();
        told.clone()
            .any(|(_, status)| *status == CUDA_ERROR_INVALID_CONTEXT)
            .then_some(())
    });
    client.leave();
}

#[test]
fn a_copy_of_a_box_that_lacks_words_fails() {
    let client = Client::new();
    for place in [&[1_u64; 15][..], &[u64::MAX; 15]] {
        client.post(&wire::CopyBox {
            stream: A,
            destination_array: wire::ArrayHandle(0),
            destination: 0x1000,
            destination_context: wire::ContextHandle(0),
            source_array: wire::ArrayHandle(0),
            source: 0x2000,
            source_context: wire::ContextHandle(0),
            place: List::Values(place),
        });
    }
    client.wait("the failures", |inbox| {
        (inbox.failures.len() == 2).then_some(())
    });
    client.leave();
}

#[test]
fn a_description_of_a_tensor_with_other_words_than_its_kind_has_is_refused() {
    let client = Client::new();
    for (kind, words) in [
        (0, vec![6, 3, 1, 1, 1]),
        (0, vec![6, u64::MAX]),
        (1, vec![6, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (2, vec![]),
        (3, vec![0; 15]),
        (9, vec![6, 1, 1]),
    ] {
        let number = client.post(&wire::TensorMap {
            kind,
            address: 0x1000,
            count: words.len() as u32,
            words: List::Values(&words),
        });
        assert_eq!(client.status_of(number), CUDA_ERROR_INVALID_VALUE, "{kind}");
    }
    client.leave();
}

#[test]
fn the_end_of_a_texture_that_nobody_made_closes_the_session() {
    let client = Client::new();
    client.post(&wire::TexObjectDestroy { texObject: 0x77 });
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle));
    client.leave();
}

#[test]
fn an_array_in_use_by_a_parked_write_ends_behind_it() {
    let client = Client::new();
    let array = wire::ArrayHandle(HANDLE_BASE | 50);
    let number = client.post(&wire::Array3DCreateV2 {
        pHandle: array,
        pAllocateArray: wire::Array3dDescriptor {
            Width: 1 << 10,
            Height: 1 << 10,
            Depth: 0,
            Format: CU_AD_FORMAT_UNSIGNED_INT8,
            NumChannels: 1,
            Flags: 0,
        },
    });
    assert_eq!(client.status_of(number), CUDA_SUCCESS);
    let place = [0, 0, 0, 1 << 10, 1 << 10, 1, 0, 0];
    client.post(&wire::WriteBox {
        array,
        ..write_box(&place, 1 << 20, 43)
    });
    let destroyed = client.post(&wire::ArrayDestroy { hArray: array });
    // The lane goes on meanwhile.
    assert_eq!(client.synchronize(B), CUDA_SUCCESS);
    client.fill(43, &pattern(1 << 20, 1));
    assert_eq!(client.status_of(destroyed), CUDA_SUCCESS);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn no_call_allocates_more_device_memory_than_the_session_may_have() {
    const LIMIT: u64 = 4 << 20;
    let client = Client::new();
    let counters = &client.counters;
    let held = || counters.device_memory_bytes.load(Ordering::Relaxed);
    counters.device_memory_limit.store(LIMIT, Ordering::Relaxed);
    let room = || {
        let (status, body) = client.reply_to(client.post(&wire::MemGetInfoV2 {}));
        assert_eq!(status, CUDA_SUCCESS);
        let reply = wire::MemGetInfoV2Reply::decode(&body).expect("the reply decodes");
        (reply.free, reply.total)
    };
    let first = client.allocate(3 << 20);
    assert_eq!(room(), (Some(1 << 20), Some(LIMIT)));
    let array = |id: u64| wire::Array3DCreateV2 {
        pHandle: wire::ArrayHandle(HANDLE_BASE | id),
        pAllocateArray: wire::Array3dDescriptor {
            Width: 1 << 10,
            Height: 1 << 9,
            Depth: 0,
            Format: CU_AD_FORMAT_FLOAT,
            NumChannels: 1,
            Flags: 0,
        },
    };
    let alloc = |size, managed_flags| {
        client.post(&wire::MemoryAlloc {
            size,
            managed_flags,
        })
    };
    let too_much = [
        alloc((1 << 20) + 1, 0),
        alloc(u64::MAX, 0),
        alloc(2 << 20, CU_MEM_ATTACH_GLOBAL),
        client.post(&wire::PoolAlloc {
            stream: A,
            pool: wire::MemoryPoolHandle(0),
            size: 2 << 20,
        }),
        client.post(&wire::PhysicalCreate {
            device: 0,
            size: 2 << 20,
            flags: 0,
            memory: 1,
        }),
        client.post(&array(50)),
        client.post(&wire::MipmappedArrayCreate {
            pHandle: wire::MipmappedArrayHandle(HANDLE_BASE | 51),
            pMipmappedArrayDesc: array(0).pAllocateArray,
            numMipmapLevels: 2,
        }),
    ];
    let statuses = too_much.map(|number| client.status_of(number));
    assert_eq!(statuses, [CUDA_ERROR_OUT_OF_MEMORY; 7]);
    assert_eq!(held(), 3 << 20, "what was refused costs nothing");
    let number = client.post(&wire::MemoryFree { address: first });
    assert_eq!(client.status_of(number), CUDA_SUCCESS);
    // What a context ends with is credited, too.
    let number = client.post(&array(52));
    assert_eq!(client.status_of(number), CUDA_SUCCESS);
    client.allocate(LIMIT - (2 << 20));
    assert_eq!((held(), room().0), (LIMIT, Some(0)));
    client.post(&wire::PrimaryRelease {
        device: 0,
        context: CONTEXT,
    });
    let end = Instant::now() + PATIENCE;
    while held() > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(held(), 0);
    let peak = &counters.device_memory_peak;
    assert_eq!(peak.load(Ordering::Relaxed), LIMIT);
    client.leave();
}

#[test]
fn links_that_do_not_exist_are_there_twice_or_too_large_end_the_session() {
    let begin = || wire::Link {
        num_options: 0,
        options: wire::List::Values(&[]),
        values: wire::List::Values(&[]),
        info_room: 0,
        log_room: 0,
        link: 5,
    };
    let add = |link, size| wire::LinkAdd {
        link,
        kind: CU_JIT_INPUT_PTX,
        size,
        payload: 9,
        data_size: 0,
        data: None,
        name: b"part",
        num_options: 0,
        options: wire::List::Values(&[]),
        values: wire::List::Values(&[]),
        log_room: 0,
        info_room: 0,
    };
    let twice = Client::new();
    let begun = twice.post(&begin());
    assert_eq!(twice.status_of(begun), CUDA_SUCCESS);
    twice.post(&begin());
    assert_eq!(twice.closed(), Some(CloseCode::DuplicateHandle));
    twice.leave();
    let unknown = Client::new();
    unknown.post(&add(6, 10));
    assert_eq!(unknown.closed(), Some(CloseCode::UnknownHandle));
    unknown.leave();
    let large = Client::new();
    large.post(&begin());
    large.post(&add(5, u64::MAX));
    assert_eq!(large.closed(), Some(CloseCode::LimitExceeded));
    large.leave();
    let ended = Client::new();
    ended.post(&wire::LinkEnd { link: 5 });
    assert_eq!(ended.closed(), Some(CloseCode::UnknownHandle));
    ended.leave();
}

#[test]
fn what_nobody_shares_is_refused_and_numbers_that_are_none_end_the_session() {
    let client = Client::new();
    let memory = client.allocate(64);
    let open = |kind| wire::OpenShared {
        kind,
        token: &[7; 32],
        flags: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS,
        number: HANDLE_BASE | 0x77,
    };
    for kind in 0..4 {
        let opened = client.post(&open(kind));
        assert_eq!(client.status_of(opened), CUDA_ERROR_INVALID_VALUE);
    }
    let share = |number| wire::Share { kind: 0, number };
    let inside = client.post(&share(memory + 4));
    assert_eq!(client.status_of(inside), CUDA_ERROR_INVALID_VALUE);
    // This session has nobody to share with.
    let alone = client.post(&share(memory));
    assert_eq!(client.status_of(alone), CUDA_ERROR_NOT_SUPPORTED);
    client.post(&wire::CloseShared { address: memory });
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle));
    client.leave();
    for kind in [1, 3] {
        let client = Client::new();
        let shared = client.post(&wire::Share { kind, number: 5 });
        assert_eq!(client.status_of(shared), CUDA_ERROR_INVALID_HANDLE);
        client.leave();
    }
    for (kind, code) in [(2, CloseCode::UnknownHandle), (9, CloseCode::Malformed)] {
        let client = Client::new();
        client.post(&wire::Share { kind, number: 5 });
        assert_eq!(client.closed(), Some(code));
        client.leave();
    }
    // An allocation of a pool opens in a pool of the session.
    let client = Client::new();
    let opened = client.post(&open(4));
    assert_eq!(client.status_of(opened), CUDA_ERROR_INVALID_VALUE);
    client.leave();
}

#[test]
fn operations_and_attributes_that_are_none_fail_and_leave_the_session() {
    let client = Client::new();
    let cut = client.post(&wire::StreamOperations {
        stream: A,
        flags: 0,
        words: 5,
        operations: wire::List::Values(&[1; 5]),
    });
    let event = client.post(&wire::StreamAttribute {
        stream: A,
        attribute: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
        value: &[0x41; 64],
    });
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    let refused = [cut, event].map(|number| (number, CUDA_ERROR_INVALID_VALUE));
    assert_eq!(client.failures(), refused);
    client.leave();
}

#[test]
fn a_call_that_no_worker_serves_closes_the_session() {
    let client = Client::new();
    client.outbox.post(0x0fff, |_| {});
    client
        .outbox
        .flush(|| 0, |bytes| client.command.send(&[IoSlice::new(bytes)]))
        .expect("the worker listens");
    assert_eq!(client.closed(), Some(CloseCode::UnknownCall));
    client.leave();
}

#[test]
fn a_session_that_ends_in_the_middle_leaves_nothing() {
    let client = Client::new();
    let memory = client.allocate(8 << 20);
    client.write_bulk(A, memory, 8 << 20, 80);
    for _ in 0..100 {
        client.launch(ADD_ONE, A, &params(memory, &[64]));
    }
    client.start_read(A, memory, 8 << 20, 81);
    client.post(&wire::HostFunction {
        stream: B,
        function: 5,
        sync_mode: 0,
    });
    client.launch(ADD_ONE, B, &params(memory, &[64]));
    assert_eq!(client.event(5), CUDA_SUCCESS);
    client.leave();
}

#[test]
fn objects_end_behind_what_is_parked_and_uses_them() {
    let client = Client::new();
    let memory = client.allocate(1 << 20);
    client.write_bulk(A, memory, 1 << 20, 85);
    client.record(A, 3);
    client.post(&wire::EventDestroyV2 { hEvent: EVENT });
    client.launch(ADD_ONE, A, &params(memory, &[4]));
    client.post(&wire::ModuleUnload { hmod: MODULE });
    client.post(&wire::StreamDestroyV2 { hStream: A });
    let freed = client.post(&wire::MemoryFree { address: memory });
    client.fill(85, &vec![0; 1 << 20]);
    assert_eq!(client.event(3), CUDA_SUCCESS);
    assert_eq!(client.status_of(freed), CUDA_SUCCESS);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn the_last_reference_to_a_context_ends_it() {
    let client = Client::new();
    let memory = client.allocate(64);
    client.write(DEFAULT, memory, &[0; 64]);
    let number = client.post(&wire::SynchronizeContext { context: CONTEXT });
    assert_eq!(client.status_of(number), CUDA_SUCCESS);
    client.post(&wire::PrimaryRelease {
        device: 0,
        context: CONTEXT,
    });
    let ping = client.post(&wire::Ping { token: 1 });
    assert_eq!(client.status_of(ping), CUDA_SUCCESS);
    client.leave();
}

/// A graph of one kernel.
fn one_kernel(node: u64, params: Vec<u8>) -> described::Graph {
    let work = described::Work::Kernel(described::Kernel {
        function: ADD_ONE.0,
        grid: [1; 3],
        block: [32, 1, 1],
        params,
        ..described::Kernel::default()
    });
    described::Graph {
        nodes: vec![described::Node { number: node, work }],
        edges: Vec::new(),
    }
}

impl Client {
    fn make_graph(&self, exec: u64, graph: &described::Graph) -> (i32, wire::GraphMakeReply) {
        let description = graph.encode();
        let number = self.post(&wire::GraphMake {
            graph: wire::GraphHandle(0),
            flags: 0,
            stream: DEFAULT,
            size: description.len() as u64,
            description: &description,
            exec,
        });
        let (status, body) = self.reply_to(number);
        let reply = wire::GraphMakeReply::decode(&body).expect("the body is always there");
        (status, reply)
    }

    fn run_graph(&self, exec: u64, stream: wire::StreamHandle, calls: &[u64]) {
        self.post(&wire::GraphRun {
            exec,
            stream,
            words: calls.len() as u32,
            calls: List::Values(calls),
        });
    }
}

/// The kernels of the host-memory device for a GPU.
const ASSEMBLY: &[u8] = b".version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 at, .param .u32 count)
{
    .reg .u64 %a; .reg .u32 %v, %n, %i; .reg .pred %p;
    ld.param.u64 %a, [at]; ld.param.u32 %n, [count];
    mov.u32 %i, %tid.x; setp.ne.u32 %p, %i, 0; @%p bra END; mov.u32 %i, 0;
LOOP:
    setp.ge.u32 %p, %i, %n; @%p bra END;
    ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v;
    add.u64 %a, %a, 4; add.u32 %i, %i, 1; bra LOOP;
END:
    ret;
}
.visible .entry scale(.param .u64 at, .param .u32 count, .param .u32 factor)
{
    .reg .u64 %a; .reg .u32 %v, %n, %i, %f; .reg .pred %p;
    ld.param.u64 %a, [at]; ld.param.u32 %n, [count]; ld.param.u32 %f, [factor];
    mov.u32 %i, %tid.x; setp.ne.u32 %p, %i, 0; @%p bra END; mov.u32 %i, 0;
LOOP:
    setp.ge.u32 %p, %i, %n; @%p bra END;
    ld.global.u32 %v, [%a]; mul.lo.u32 %v, %v, %f; st.global.u32 [%a], %v;
    add.u64 %a, %a, 4; add.u32 %i, %i, 1; bra LOOP;
END:
    ret;
}
.visible .entry spin_until(.param .u64 at)
{
    .reg .u64 %a; .reg .u32 %v; .reg .pred %p;
    ld.param.u64 %a, [at];
LOOP:
    ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra LOOP;
    ret;
}
.visible .entry fault()
{
    .reg .u64 %a; .reg .u32 %v;
    mov.u64 %a, 16; mov.u32 %v, 1; st.global.u32 [%a], %v;
    ret;
}
";

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_vendors_driver_serves_a_session() {
    let api = NativeCuda::open().expect("there is a driver");
    let client = Client::on(Arc::new(api)).settle(ASSEMBLY);
    let memory = client.allocate(32 << 20);
    client.write(DEFAULT, memory, &params(0, &[5, 7]));
    client.launch(ADD_ONE, DEFAULT, &params(memory, &[4]));
    client.launch(SCALE, DEFAULT, &params(memory, &[4, 3]));
    assert_eq!(client.read(DEFAULT, memory + 8, 4, 1), 18_u32.to_le_bytes());
    for size in [100_u64, 64 << 10, 200 << 10, (21 << 20) + 5] {
        let bytes = pattern(size as usize, size);
        client.write_bulk(A, memory, size, size * 2);
        client.fill(size * 2, &bytes);
        assert!(
            client.read(A, memory, size, size * 2 + 1) == bytes,
            "{size}"
        );
    }
    client.write(A, memory, &[0; 8]);
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    client.launch(SPIN_UNTIL, A, &params(memory, &[]));
    for _ in 0..2000 {
        client.launch(ADD_ONE, A, &params(memory + 4, &[1]));
    }
    client.record(A, 7);
    client.write(B, memory, &1_u32.to_le_bytes());
    assert_eq!(client.event(7), CUDA_SUCCESS);
    assert_eq!(client.read(A, memory + 4, 4, 3), 2000_u32.to_le_bytes());
    assert_eq!(client.failures(), []);
    client.launch(FAULT, A, &[]);
    assert_eq!(client.synchronize(A), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(client.failures(), [(0, CUDA_ERROR_ILLEGAL_ADDRESS)]);
    client.leave();
}

#[test]
fn kernel_over_its_time_ends_its_session() {
    const LIMIT: Duration = Duration::from_millis(100);
    let client = Client::timed(LIMIT);
    let memory = client.allocate(64);
    client.write(A, memory, &[0; 64]);
    client.launch(SPIN_UNTIL, A, &params(memory, &[]));
    let fault = client.wait("the fault", |inbox| inbox.failures.last().copied());
    assert_eq!(fault, (0, CUDA_ERROR_LAUNCH_TIMEOUT));
    assert_eq!(client.closed(), Some(CloseCode::ServerLimit));
    let outcome = client.ended.recv_timeout(PATIENCE);
    let outcome = outcome.expect("the session ends");
    assert!(
        matches!(outcome, Err(RunError::Overrun(LIMIT))),
        "{outcome:?}"
    );
}

#[test]
fn kernel_over_its_time_ends_its_session_however_much_waits() {
    const LIMIT: Duration = Duration::from_millis(200);
    let client = Client::timed(LIMIT);
    let memory = client.allocate(64);
    client.write(A, memory, &[0; 64]);
    client.launch(SPIN_UNTIL, A, &params(memory, &[]));
    // One that the driver refuses is marked, too.
    let arguments = params(memory, &[1]);
    client.post(&wire::Launch {
        block_x: 1 << 20,
        ..launch(ADD_ONE, A, &arguments)
    });
    for _ in 0..2000 {
        client.launch(ADD_ONE, A, &params(memory + 4, &[1]));
    }
    let fault = client.wait("the fault", |inbox| {
        let found = inbox.failures.iter().find(|(number, _)| *number == 0);
        found.copied()
    });
    assert_eq!(fault, (0, CUDA_ERROR_LAUNCH_TIMEOUT));
    assert_eq!(client.closed(), Some(CloseCode::ServerLimit));
}

#[test]
fn kernels_within_their_time_may_take_longer_together() {
    let client = Client::timed(Duration::from_secs(2));
    let memory = client.allocate(64);
    client.write(A, memory, &[0; 64]);
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    for number in 0..6 {
        client.launch(SPIN_UNTIL, A, &params(memory + 4 * number, &[]));
    }
    for number in 0..6 {
        std::thread::sleep(Duration::from_millis(500));
        client.write(B, memory + 4 * number, &1_u32.to_le_bytes());
    }
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn stream_that_waits_is_no_kernel() {
    const LIMIT: Duration = Duration::from_millis(50);
    let client = Client::timed(LIMIT);
    let memory = client.allocate(64);
    client.write(A, memory, &[0; 64]);
    client.launch(ADD_ONE, A, &params(memory + 8, &[1]));
    client.post(&wire::StreamOperations {
        stream: A,
        words: 6,
        operations: List::Values(&[
            u64::from(CU_STREAM_MEM_OP_WAIT_VALUE_32),
            memory,
            1,
            u64::from(CU_STREAM_WAIT_VALUE_GEQ),
            0,
            0,
        ]),
        flags: 0,
    });
    client.launch(ADD_ONE, A, &params(memory + 8, &[1]));
    client.record(A, 7);
    std::thread::sleep(LIMIT * 20);
    client.write(B, memory, &1_u32.to_le_bytes());
    assert_eq!(client.event(7), CUDA_SUCCESS);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn kernels_side_by_side_keep_their_device_busy_once() {
    const TIME: Duration = Duration::from_millis(500);
    const LOOKS: Duration = Duration::from_millis(10);
    let client = Client::new();
    let other = wire::StreamHandle(EVENT.0 + 1);
    client.post(&wire::StreamCreate {
        phStream: other,
        Flags: CU_STREAM_NON_BLOCKING,
    });
    let memory = client.allocate(64);
    client.write(A, memory, &[0; 64]);
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    let busy = || Duration::from_micros(client.counters.device_time_us.load(Ordering::Relaxed));
    std::thread::sleep(3 * LOOKS);
    let before = busy();
    std::thread::sleep(10 * LOOKS);
    assert_eq!(busy(), before, "nothing was at work");
    let started = Instant::now();
    client.launch(SPIN_UNTIL, A, &params(memory, &[]));
    client.launch(SPIN_UNTIL, B, &params(memory, &[]));
    std::thread::sleep(TIME);
    client.write(other, memory, &1_u32.to_le_bytes());
    for stream in [A, B] {
        assert_eq!(client.synchronize(stream), CUDA_SUCCESS);
    }
    let took = started.elapsed();
    std::thread::sleep(3 * LOOKS);
    let counted = busy() - before;
    let tolerance = 2 * LOOKS;
    assert!(
        counted + tolerance >= TIME && counted <= took + tolerance,
        "{counted:?} of {took:?}"
    );
    client.leave();
}

#[test]
fn code_of_a_session_ends_at_its_limit() {
    use Ordering::Relaxed;
    let client = Client::new();
    let memory = client.allocate(4);
    let graph = one_kernel(9, params(memory, &[1]));
    let image = IMAGE.len() as u64;
    let limit = |bytes| client.counters.code_limit.store(bytes, Relaxed);
    let second = wire::ModuleHandle(MODULE.0 + 100);
    limit(image * 3 / 2);
    for payload in [0, 90] {
        // Without a grant nothing is to come.
        let refused = client.ask_load(second, IMAGE, image, payload);
        assert_eq!(client.status_of(refused), CUDA_ERROR_OUT_OF_MEMORY);
    }
    limit(image + graph.encode().len() as u64 * 8);
    assert_eq!(client.make_graph(70, &graph).0, CUDA_SUCCESS);
    assert_eq!(client.make_graph(71, &graph).0, CUDA_ERROR_OUT_OF_MEMORY);
    // An object that ends makes room, and nothing else is harmed.
    client.run_graph(70, A, &[]);
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    client.post(&wire::GraphEnd { exec: 70 });
    client.post(&wire::ModuleUnload { hmod: MODULE });
    let loaded = client.start_load(second, IMAGE, 91);
    assert_eq!(client.status_of(loaded), CUDA_SUCCESS);
    assert_eq!(client.counters.code_bytes.load(Relaxed), image);
    assert_eq!(client.failures(), []);
    client.leave();
}
