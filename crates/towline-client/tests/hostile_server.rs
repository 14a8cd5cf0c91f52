//! A server that keeps to no rule, against a client that reads and writes: nothing outside the memory that a call named is touched,
//! every call returns, and what it returns is a documented status.
//!
//! The random sessions are the same each time; `TOWLINE_FUZZ_SECONDS` makes them last, `TOWLINE_FUZZ_SEED` makes them others.

use std::ffi::c_void;
use std::io::IoSlice;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_session::{DEVICE_BASE, Outbox};
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Connection, Transport};
use towline_wire::frame::{ChunkHeader, FrameReader};
use towline_wire::push::Push;
use towline_wire::snapshot::{Answers, Device, Snapshot};

/// No call takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);
/// A read whose data comes on the command lane.
const SMALL: usize = 100;
/// A read or write whose data travels on the payload lanes.
const LARGE: usize = 300 << 10;
/// What memory around a read holds, and the memory itself before.
const CANARY: u8 = 0xc5;

/// The server's end of a session.
struct Server {
    command: Arc<dyn Connection>,
    lane: Arc<dyn Connection>,
    outbox: Outbox,
    reader: FrameReader,
}

impl Server {
    /// The next request of a call, others passed over: its number and body. `None` when the client has left.
    fn request(&mut self, call: u16) -> Option<(u64, Vec<u8>)> {
        loop {
            while let Some(message) = self.reader.next().expect("the client frames well") {
                if message.id == call {
                    return Some((message.number, message.body.to_vec()));
                }
            }
            match self.command.recv(self.reader.space()) {
                Ok(count @ 1..) => self.reader.filled(count),
                _ => return None,
            }
        }
    }

    /// The payload number of the next read.
    fn read(&mut self) -> Option<u64> {
        let (_, body) = self.request(<wire::Read<'_> as Request<'_>>::ID)?;
        Some(wire::Read::decode(&body).expect("it encodes well").payload)
    }

    /// The payload number of the next large write.
    fn write(&mut self) -> Option<u64> {
        let (_, body) = self.request(<wire::WriteBulk<'_> as Request<'_>>::ID)?;
        let write = wire::WriteBulk::decode(&body).expect("it encodes well");
        Some(write.payload)
    }

    fn push(&self, push: &Push<'_>) {
        self.outbox.post(push.id(), |out| push.encode(out));
        // A client that has given the session up does not take it.
        let _ = self
            .outbox
            .flush(|| 0, |bytes| self.command.send(&[IoSlice::new(bytes)]));
    }

    fn reply<'a>(&self, to: u64, reply: &impl Message<'a>) {
        let mut body = Vec::new();
        reply.encode(&mut body);
        self.push(&Push::Reply {
            to,
            status: CL_SUCCESS,
            after: wire::List::Values(&[]),
            body: &body,
        });
    }

    fn chunk(&self, payload: u64, offset: u64, bytes: &[u8]) {
        let header = ChunkHeader {
            payload,
            offset,
            length: bytes.len() as u32,
        };
        let _ = self
            .lane
            .send(&[IoSlice::new(&header.to_bytes()), IoSlice::new(bytes)]);
    }

    /// A chunk of which the last bytes never come.
    fn half_a_chunk(&self, payload: u64, length: u32) {
        let header = ChunkHeader {
            payload,
            offset: 0,
            length,
        };
        let _ = self.lane.send(&[IoSlice::new(&header.to_bytes())]);
        let _ = self.lane.send(&[IoSlice::new(&[1; 10])]);
        self.lane.shutdown();
    }

    /// Keeps the session open until the client leaves.
    fn linger(&mut self) {
        while self.request(u16::MAX).is_some() {}
    }
}

/// Memory between two pages that nobody may touch: one byte too far in either direction ends the test.
struct Guarded {
    start: *mut c_void,
    pages: usize,
    size: usize,
}

impl Guarded {
    fn new(size: usize) -> Self {
        let page = rustix::param::page_size();
        let pages = size.div_ceil(page) + 2;
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping takes nobody's place.
        let start = unsafe { mmap_anonymous(null_mut(), pages * page, all, MapFlags::PRIVATE) };
        let start = start.expect("memory for a test");
        let this = Self { start, pages, size };
        let last = start.wrapping_byte_add((pages - 1) * page);
        for guard in [start, last] {
            // SAFETY: the page belongs to the mapping that was just made.
            let protected = unsafe { mprotect(guard, page, MprotectFlags::empty()) };
            protected.expect("pages can be protected");
        }
        // SAFETY: the middle of the mapping is ours and writable.
        unsafe {
            this.middle()
                .cast::<u8>()
                .write_bytes(CANARY, (pages - 2) * page)
        };
        this
    }

    fn middle(&self) -> *mut c_void {
        self.start.wrapping_byte_add(rustix::param::page_size())
    }

    /// The memory, which ends where the guard begins.
    fn memory(&self) -> *mut c_void {
        let room = (self.pages - 2) * rustix::param::page_size();
        self.middle().wrapping_byte_add(room - self.size)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is ours, and no session uses it any more.
        unsafe { std::slice::from_raw_parts(self.memory().cast(), self.size) }
    }

    /// Whether the bytes before the memory are as they were.
    fn is_whole(&self) -> bool {
        let before = self.memory().addr() - self.middle().addr();
        // SAFETY: these bytes are ours and in no session's reach.
        let bytes = unsafe { std::slice::from_raw_parts(self.middle().cast::<u8>(), before) };
        bytes.iter().all(|byte| *byte == CANARY)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let length = self.pages * rustix::param::page_size();
        // SAFETY: the mapping is ours and nobody uses it any more.
        let _ = unsafe { munmap(self.start, length) };
    }
}

/// A client in a session with a queue and a buffer.
struct Client {
    remote: Remote,
    queue: cl_command_queue,
    buffer: cl_mem,
}

impl Client {
    fn read(&self, target: &Guarded) -> cl_int {
        // SAFETY: the handles are live, the target is writable for its size and the call waits.
        unsafe {
            self.remote.clEnqueueReadBuffer(
                self.queue,
                self.buffer,
                CL_TRUE,
                0,
                target.size,
                target.memory(),
                0,
                null(),
                null_mut(),
            )
        }
    }

    fn write(&self, source: &Guarded) -> cl_int {
        // SAFETY: the handles are live, the source is readable for its size and the call waits.
        unsafe {
            self.remote.clEnqueueWriteBuffer(
                self.queue,
                self.buffer,
                CL_TRUE,
                0,
                source.size,
                source.memory(),
                0,
                null(),
                null_mut(),
            )
        }
    }
}

fn snapshot() -> Vec<u8> {
    let device = Device {
        handle: DEVICE_BASE | 1,
        platform: 0,
        answers: Answers::default(),
    };
    Snapshot {
        platforms: vec![Answers::default()],
        devices: vec![device],
    }
    .encode()
}

/// Runs a client against a server, each on a thread of its own, and gives what the client found.
fn session<T: Send + 'static>(
    serve: impl FnOnce(&mut Server) + Send + 'static,
    act: impl FnOnce(&Client) -> T + Send + 'static,
) -> T {
    let transport = MemoryTransport::new();
    let address: Address = "memory://server".parse().expect("it is well formed");
    let listener = transport
        .listen(&address)
        .expect("the name is free on a network of our own");
    let connect = || {
        let ours = transport
            .connect(&address, &ConnectOptions::default())
            .expect("the listener is there");
        (ours, listener.accept().expect("somebody has connected"))
    };
    let ((command, their_command), (lane, their_lane)) = (connect(), connect());
    let mut server = Server {
        command: their_command,
        lane: their_lane,
        outbox: Outbox::new(),
        reader: FrameReader::new(),
    };
    let serving = std::thread::spawn(move || {
        serve(&mut server);
        server.command.shutdown();
        server.lane.shutdown();
    });
    let (sender, result) = channel();
    std::thread::spawn(move || {
        let remote = Remote::over_lanes(
            "memory://server",
            command,
            vec![lane],
            &snapshot(),
            64 << 10,
        )
        .expect("the snapshot decodes");
        let device = wire::DeviceHandle(DEVICE_BASE | 1).to_raw();
        // SAFETY: the device is the snapshot's.
        let context = unsafe {
            remote.clCreateContext(null(), 1, &raw const device, None, null_mut(), null_mut())
        };
        // SAFETY: the context was just created.
        let queue = unsafe { remote.clCreateCommandQueue(context, device, 0, null_mut()) };
        // SAFETY: as above.
        let buffer = unsafe {
            remote.clCreateBuffer(context, CL_MEM_READ_WRITE, LARGE, null_mut(), null_mut())
        };
        let client = Client {
            remote,
            queue,
            buffer,
        };
        let found = act(&client);
        drop(client);
        // The test may have given up.
        let _ = sender.send(found);
    });
    let found = result.recv_timeout(PATIENCE);
    let found = found.expect("the client neither hangs nor panics");
    serving.join().expect("the server does not panic");
    found
}

/// A blocking read of `size` bytes against a server that does `answer` about it: the status, and the memory afterwards.
fn read(size: usize, answer: impl FnOnce(&mut Server, u64) + Send + 'static) -> (cl_int, Vec<u8>) {
    session(
        move |server| {
            if let Some(payload) = server.read() {
                answer(server, payload);
            }
        },
        move |client| {
            let target = Guarded::new(size);
            let status = client.read(&target);
            assert!(target.is_whole(), "memory beside the read was written");
            (status, target.bytes().to_vec())
        },
    )
}

#[test]
fn an_honest_read_brings_its_data() {
    let (status, bytes) = read(SMALL, |server, payload| {
        let bytes = &[7; SMALL];
        server.push(&Push::Data { payload, bytes });
        server.linger();
    });
    assert_eq!((status, bytes), (CL_SUCCESS, vec![7; SMALL]));
    let (status, bytes) = read(LARGE, |server, payload| {
        server.chunk(payload, 100_000, &[8; LARGE - 100_000]);
        server.chunk(payload, 0, &[8; 100_000]);
        server.push(&Push::Sent { payload });
        server.linger();
    });
    assert_eq!((status, bytes), (CL_SUCCESS, vec![8; LARGE]));
}

#[test]
fn data_longer_than_the_read_ends_the_session() {
    let (status, bytes) = read(SMALL, |server, payload| {
        let bytes = &[7; SMALL + 1];
        server.push(&Push::Data { payload, bytes });
        server.linger();
    });
    assert_eq!(
        (status, bytes),
        (CL_DEVICE_NOT_AVAILABLE, vec![CANARY; SMALL])
    );
}

#[test]
fn a_chunk_outside_the_read_ends_the_session() {
    let outside = [
        (LARGE as u64 - 1, 2),
        (LARGE as u64, 1),
        (u64::MAX, 2),
        (1 << 63, 10),
        (0, LARGE + 1),
    ];
    for (offset, length) in outside {
        let (status, bytes) = read(LARGE, move |server, payload| {
            server.chunk(payload, offset, &vec![7; length]);
            server.linger();
        });
        assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
        assert!(bytes.iter().all(|byte| *byte == CANARY));
    }
}

#[test]
fn data_that_nobody_asked_for_ends_the_session_or_is_dropped() {
    let (status, _) = read(LARGE, |server, payload| {
        server.chunk(payload + 1, 0, &[7; 10]);
        server.linger();
    });
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
    let (status, bytes) = read(SMALL, |server, payload| {
        let bytes = &[7; SMALL];
        server.push(&Push::Data {
            payload: payload + 1,
            bytes: &[9; 1000],
        });
        server.push(&Push::Data { payload, bytes });
        server.linger();
    });
    assert_eq!((status, bytes), (CL_SUCCESS, vec![7; SMALL]));
}

#[test]
fn data_that_comes_after_the_read_does_not_reach_its_memory() {
    let bytes = session(
        |server| {
            let payload = server.read().expect("the client reads");
            let bytes = &[7; SMALL];
            server.push(&Push::Data { payload, bytes });
            let second = server.read().expect("the client reads again");
            server.push(&Push::Data {
                payload,
                bytes: &[9; SMALL],
            });
            server.chunk(payload, 0, &[9; SMALL]);
            server.push(&Push::Data {
                payload: second,
                bytes,
            });
            server.linger();
        },
        |client| {
            let (first, second) = (Guarded::new(SMALL), Guarded::new(SMALL));
            assert_eq!(client.read(&first), CL_SUCCESS);
            // The stray chunk may end the session first.
            let status = client.read(&second);
            assert!([CL_SUCCESS, CL_DEVICE_NOT_AVAILABLE].contains(&status));
            first.bytes().to_vec()
        },
    );
    assert_eq!(bytes, [7; SMALL]);
}

#[test]
fn a_read_that_failed_answers_with_its_status() {
    let (status, bytes) = read(LARGE, |server, payload| {
        let status = CL_OUT_OF_RESOURCES;
        server.push(&Push::NoData { payload, status });
        server.linger();
    });
    assert_eq!((status, bytes), (CL_OUT_OF_RESOURCES, vec![CANARY; LARGE]));
}

#[test]
fn a_server_that_leaves_in_the_middle_ends_the_read() {
    let (status, _) = read(LARGE, |_, _| {});
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
    let (status, _) = read(LARGE, |server, payload| {
        server.half_a_chunk(payload, 1000);
        server.linger();
    });
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
    let (status, _) = read(SMALL, |server, _| {
        server.push(&Push::Close {
            code: 8,
            text: b"enough",
        });
        server.linger();
    });
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
}

#[test]
fn bytes_that_are_no_frames_end_the_session() {
    let (status, _) = read(SMALL, |server, _| {
        let _ = server.command.send(&[IoSlice::new(&[0xee; 4096])]);
        server.linger();
    });
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
}

#[test]
fn text_longer_than_the_limit_ends_the_session() {
    let (status, _) = read(SMALL, |server, payload| {
        let bytes = &vec![b'x'; towline_wire::push::TEXT_LIMIT + 1];
        server.push(&Push::Text { bytes });
        let bytes = &[7; SMALL];
        server.push(&Push::Data { payload, bytes });
        server.linger();
    });
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
}

#[test]
fn pushes_about_nothing_are_dropped() {
    let (status, bytes) = read(SMALL, |server, payload| {
        for number in 0..1000 {
            server.push(&Push::Reply {
                to: 1_000_000 + number,
                status: 0,
                after: List::Values(&[payload]),
                body: &[1; 100],
            });
            server.push(&Push::Event {
                event: number,
                status: 0,
                after: List::Values(&[payload]),
                times: None,
            });
            server.push(&Push::Sent { payload: number });
        }
        let bytes = &[7; SMALL];
        server.push(&Push::Data { payload, bytes });
        server.linger();
    });
    assert_eq!((status, bytes), (CL_SUCCESS, vec![7; SMALL]));
}

#[test]
fn a_grant_outside_the_write_ends_the_session() {
    let large = LARGE as u64;
    for (offset, length) in [
        (0, large + 1),
        (large, 1),
        (u64::MAX, 2),
        (1, large),
        (0, 0),
    ] {
        let status = session(
            move |server| {
                if let Some(payload) = server.write() {
                    server.push(&Push::Grant {
                        payload,
                        offset,
                        length,
                    });
                    server.linger();
                }
            },
            |client| client.write(&Guarded::new(LARGE)),
        );
        assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
    }
}

#[test]
fn a_write_whose_server_leaves_gives_its_memory_back_untouched() {
    let status = session(
        |server| {
            if let Some(payload) = server.write() {
                server.push(&Push::Grant {
                    payload,
                    offset: 0,
                    length: LARGE as u64,
                });
            }
        },
        // The memory is unmapped as soon as the call returns: whoever still read it would crash.
        |client| client.write(&Guarded::new(LARGE)),
    );
    assert!([CL_SUCCESS, CL_DEVICE_NOT_AVAILABLE].contains(&status));
}

#[test]
fn an_answer_longer_than_its_room_stays_inside_it() {
    let value = session(
        |server| {
            let (to, _) = server
                .request(<wire::GetSupportedImageFormats as Request<'_>>::ID)
                .expect("the client asks");
            let format = wire::ImageFormat::from(cl_image_format {
                image_channel_order: 1,
                image_channel_data_type: 2,
            });
            let mut body = Vec::new();
            wire::GetSupportedImageFormatsReply {
                image_formats: Some(List::Values(&[format; 1000])),
                num_image_formats: u64::MAX,
            }
            .encode(&mut body);
            server.push(&Push::Reply {
                to,
                status: 0,
                after: List::Values(&[]),
                body: &body,
            });
            server.linger();
        },
        |client| {
            let room = 2;
            let target = Guarded::new(room * size_of::<cl_image_format>());
            let context = wire::ContextHandle(1).to_raw();
            // SAFETY: the target has room for two formats.
            let status = unsafe {
                client.remote.clGetSupportedImageFormats(
                    context,
                    0,
                    CL_MEM_OBJECT_IMAGE2D,
                    room as cl_uint,
                    target.memory().cast(),
                    null_mut(),
                )
            };
            assert!(target.is_whole());
            status
        },
    );
    assert_eq!(value, CL_SUCCESS);
}

#[test]
fn a_reply_that_does_not_decode_ends_the_session() {
    let status = session(
        |server| {
            let (to, _) = server
                .request(<wire::GetSupportedImageFormats as Request<'_>>::ID)
                .expect("the client asks");
            server.push(&Push::Reply {
                to,
                status: 0,
                after: List::Values(&[]),
                body: &[9; 3],
            });
            server.linger();
        },
        |client| {
            let mut count = 0;
            let context = wire::ContextHandle(1).to_raw();
            // SAFETY: no room is given; the count is a local.
            unsafe {
                client.remote.clGetSupportedImageFormats(
                    context,
                    0,
                    CL_MEM_OBJECT_IMAGE2D,
                    0,
                    null_mut(),
                    &raw mut count,
                )
            }
        },
    );
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
}

#[test]
fn shared_virtual_memory_is_mapped_only_where_nothing_is() {
    for address in [0, 4096, u64::MAX, u64::MAX - 4095, 1 << 63] {
        let found = session(
            move |server| {
                while let Some((to, _)) = server.request(<wire::SvmAlloc as Request<'_>>::ID) {
                    let mut body = Vec::new();
                    wire::SvmAllocReply {
                        address: Some(address),
                    }
                    .encode(&mut body);
                    server.push(&Push::Reply {
                        to,
                        status: 0,
                        after: List::Values(&[]),
                        body: &body,
                    });
                }
            },
            |client| {
                let context = wire::ContextHandle(1).to_raw();
                // SAFETY: the context is the server's to judge.
                let memory = unsafe { client.remote.clSVMAlloc(context, 0, 8192, 0) };
                memory.addr()
            },
        );
        assert_eq!(found, 0, "memory at {address:#x}");
    }
}

#[test]
fn random_servers_never_write_outside_a_read() {
    let number = |variable: &str| -> Option<u64> {
        let value = std::env::var(variable).ok()?;
        Some(value.parse().expect("it must be a number"))
    };
    let first = number("TOWLINE_FUZZ_SEED").unwrap_or(1);
    let end =
        number("TOWLINE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut whole, mut lost) = (0, 0);
    for seed in first.. {
        let over = match end {
            Some(end) => Instant::now() >= end,
            None => seed - first >= 200,
        };
        if over {
            break;
        }
        let size = if seed % 2 == 0 { SMALL } else { LARGE };
        // What is random is seldom right, and now and then never.
        let honest = seed % 16 == 0;
        let (status, _) = read(size, move |server, payload| match honest {
            true => {
                server.push(&Push::Data {
                    payload,
                    bytes: &vec![3; size],
                });
                // Stays until the client has gone.
                let _ = server.read();
            }
            false => random_answer(server, payload, size as u64, seed),
        });
        assert!(!honest || status == CL_SUCCESS, "seed {seed}");
        match status {
            CL_SUCCESS => whole += 1,
            CL_DEVICE_NOT_AVAILABLE => lost += 1,
            status => assert_eq!(status, CL_OUT_OF_RESOURCES, "seed {seed}"),
        }
    }
    println!("{whole} reads came whole, {lost} sessions were lost");
    assert!(whole > 0 && lost > 0, "the mix tests nothing");
}

fn random_answer(server: &mut Server, payload: u64, size: u64, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % bound.max(1)
    };
    for _ in 0..random(12) {
        let target = payload + u64::from(random(12) == 0);
        let offset = match random(8) {
            0 => u64::MAX - random(size),
            1 => size - random(2),
            _ => random(size),
        };
        let length = match random(8) {
            0 => 1 + random(2 * size),
            _ => 1 + random(size.saturating_sub(offset)),
        };
        match random(8) {
            0..=2 => server.chunk(target, offset, &vec![1; length as usize]),
            3 => server.push(&Push::Data {
                payload: target,
                bytes: &vec![2; (size + random(2)) as usize],
            }),
            4 => server.push(&Push::Sent { payload: target }),
            5 => server.push(&Push::Failed {
                number: random(10),
                call: random(0x1000) as u16,
                queue: random(4),
                status: CL_OUT_OF_RESOURCES,
            }),
            6 => server.push(&Push::Grant {
                payload: target,
                offset,
                length,
            }),
            _ => server.push(&Push::Retired { bytes: offset }),
        }
    }
    match random(4) {
        0 => server.push(&Push::NoData {
            payload,
            status: CL_OUT_OF_RESOURCES,
        }),
        1 => server.half_a_chunk(payload, random(size) as u32),
        2 => {}
        _ => server.push(&Push::Data {
            payload,
            bytes: &vec![3; size as usize],
        }),
    }
}

/// Asks for the sizes of a program's binaries, of which the server has said `said`, and has it send one of `sent` bytes: what came of it, and
/// whether memory of the first size is the only one that was written.
fn binaries(said: u64, sent: usize) -> (cl_int, bool) {
    session(
        move |server| {
            let asked = <wire::GetProgramInfo as Request<'_>>::ID;
            let (to, _) = server.request(asked).expect("the client asks for sizes");
            let sizes = wire::GetProgramInfoReply {
                param_value: Some(&said.to_ne_bytes()),
                param_value_size_ret: 8,
            };
            server.reply(to, &sizes);
            let asked = <wire::ProgramBinaries as Request<'_>>::ID;
            let (to, _) = server.request(asked).expect("the client asks for binaries");
            let binaries = wire::ProgramBinariesReply {
                sizes: Some(wire::List::Values(&[sent as u64])),
                binaries: Some(&vec![7; sent]),
            };
            server.reply(to, &binaries);
            server.linger();
        },
        |client| {
            let (text, mut size) = (c"kernel void k() {}".as_ptr(), 0_usize);
            let remote = &client.remote;
            let strings = (&raw const text).cast_mut().cast();
            // SAFETY: one string, with a NUL.
            let program = unsafe {
                remote.clCreateProgramWithSource(null_mut(), 1, strings, null(), null_mut())
            };
            let info = |name, place| {
                // SAFETY: eight bytes, for a size or with a pointer to as many as were told.
                unsafe { remote.clGetProgramInfo(program, name, 8, place, null_mut()) }
            };
            let told = info(CL_PROGRAM_BINARY_SIZES, (&raw mut size).cast());
            assert_eq!(told, CL_SUCCESS);
            let memory = Guarded::new(size);
            let place = memory.memory();
            let status = info(CL_PROGRAM_BINARIES, (&raw const place).cast_mut().cast());
            (status, memory.is_whole())
        },
    )
}

#[test]
fn binaries_larger_than_their_size_was_said_are_not_written() {
    assert_eq!(binaries(100, 100), (CL_SUCCESS, true));
    assert_eq!(binaries(100, 99), (CL_SUCCESS, true));
    assert_eq!(binaries(100, 101), (CL_INVALID_VALUE, true));
    assert_eq!(binaries(100, 1 << 20), (CL_INVALID_VALUE, true));
}
