//! Whole OpenCL programs in sessions whose messages are changed on their way ([`towline_test::mutated`]). A seed that fails becomes one of
//! [`SEEDS`].
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::mpsc::channel;

use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_client::peer::PeerLane;
use towline_test::guarded::{Guarded, SECRET};
use towline_test::mutated::{Begun, Told, sessions};
use towline_test::pair::Pair;
use towline_test::tamper::{TamperedTransport, Victim};
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Connection, Transport};
use towline_worker::{Counters, Limits, OpenClEngine};

/// Seeds that have found something.
const SEEDS: [u64; 0] = [];
/// A transfer that travels on the command lane.
const SMALL: usize = 100;
/// A transfer that travels on the payload lanes.
const LARGE: usize = 300 << 10;
/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 64 << 10;

/// Handles of a program. Statuses are the server's word, so that none is looked at but where something depends on it.
struct Program<'a> {
    remote: &'a Remote,
    device: cl_device_id,
    context: cl_context,
    queue: cl_command_queue,
    buffer: cl_mem,
}

impl Program<'_> {
    fn transfers(&self) {
        let (remote, queue, buffer) = (self.remote, self.queue, self.buffer);
        for size in [SMALL, LARGE] {
            let (source, target) = (Guarded::filled(&vec![7; size]), Guarded::new(size));
            let later = Guarded::new(size);
            let (from, to, none) = (source.memory(), target.memory(), null_mut());
            // SAFETY: the handles are the session's to judge, and both memories as large as said until the calls are done.
            unsafe {
                remote.clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, from, 0, null(), none);
                remote.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, to, 0, null(), none);
                let mut event = null_mut();
                let place = &raw mut event;
                remote.clEnqueueWriteBuffer(
                    queue,
                    buffer,
                    CL_FALSE,
                    8,
                    size,
                    from,
                    0,
                    null(),
                    none,
                );
                let to = later.memory();
                remote.clEnqueueReadBuffer(queue, buffer, CL_FALSE, 8, size, to, 0, null(), place);
                if !event.is_null() {
                    remote.clWaitForEvents(1, place);
                    let status = Guarded::new(4);
                    let query = CL_EVENT_COMMAND_EXECUTION_STATUS;
                    remote.clGetEventInfo(event, query, 4, status.memory(), null_mut());
                    remote.clReleaseEvent(event);
                }
                remote.clFinish(queue);
            }
        }
        let rows = Guarded::filled(&[9; 16 * 24]);
        let (origin, region) = ([0; 3], [24, 16, 1]);
        // SAFETY: the rows are as many, and the handles the session's to judge.
        unsafe {
            let (at, size) = (origin.as_ptr(), region.as_ptr());
            let (memory, none) = (rows.memory(), null_mut());
            remote.clEnqueueWriteBufferRect(
                queue,
                buffer,
                CL_TRUE,
                at,
                at,
                size,
                64,
                0,
                24,
                0,
                memory,
                0,
                null(),
                none,
            );
            remote.clEnqueueReadBufferRect(
                queue,
                buffer,
                CL_TRUE,
                at,
                at,
                size,
                64,
                0,
                24,
                0,
                memory,
                0,
                null(),
                none,
            );
        }
    }

    fn kernels(&self) {
        let (remote, queue) = (self.remote, self.queue);
        let none = null_mut();
        // SAFETY: lists are as long as said, names are strings, and the handles the session's to judge.
        unsafe {
            let names = c"add_one;scale".as_ptr();
            let device = &raw const self.device;
            let program =
                remote.clCreateProgramWithBuiltInKernels(self.context, 1, device, names, none);
            let kernel = remote.clCreateKernel(program, c"scale".as_ptr(), null_mut());
            let (buffer, factor) = (
                Guarded::filled(&(self.buffer.expose_provenance()).to_ne_bytes()),
                Guarded::filled(&3_u32.to_ne_bytes()),
            );
            remote.clSetKernelArg(kernel, 0, 8, buffer.memory());
            remote.clSetKernelArg(kernel, 1, 4, factor.memory());
            let (global, none) = ([16_usize], null_mut());
            for _ in 0..3 {
                remote.clEnqueueNDRangeKernel(
                    queue,
                    kernel,
                    1,
                    null(),
                    global.as_ptr(),
                    null(),
                    0,
                    null(),
                    none,
                );
            }
            let name = Guarded::new(16);
            let query = CL_KERNEL_FUNCTION_NAME;
            remote.clGetKernelInfo(kernel, query, 16, name.memory(), null_mut());
            let log = Guarded::new(64);
            let query = CL_PROGRAM_BUILD_LOG;
            remote.clGetProgramBuildInfo(program, self.device, query, 64, log.memory(), null_mut());
            let room = Guarded::new(2 * size_of::<cl_image_format>());
            let kind = CL_MEM_OBJECT_IMAGE2D;
            remote.clGetSupportedImageFormats(self.context, 0, kind, 2, room.place(), null_mut());
            remote.clFinish(queue);
            remote.clReleaseKernel(kernel);
            remote.clReleaseProgram(program);
        }
    }

    fn maps(&self) {
        let (remote, queue, buffer) = (self.remote, self.queue, self.buffer);
        // SAFETY: the handles are the session's to judge; what is mapped is as large as said.
        unsafe {
            for flags in [CL_MAP_READ, CL_MAP_WRITE] {
                let mapped = remote.clEnqueueMapBuffer(
                    queue,
                    buffer,
                    CL_TRUE,
                    flags,
                    16,
                    LARGE,
                    0,
                    null(),
                    null_mut(),
                    null_mut(),
                );
                if !mapped.is_null() {
                    mapped.cast::<u8>().write_bytes(5, LARGE);
                    remote.clEnqueueUnmapMemObject(queue, buffer, mapped, 0, null(), null_mut());
                }
            }
            let pattern = Guarded::filled(&[1, 2, 3, 4]);
            remote.clEnqueueFillBuffer(
                queue,
                buffer,
                pattern.memory(),
                4,
                0,
                64,
                0,
                null(),
                null_mut(),
            );
            remote.clEnqueueCopyBuffer(queue, buffer, buffer, 0, 256, 64, 0, null(), null_mut());
            let shared = remote.clSVMAlloc(self.context, CL_MEM_READ_WRITE, 8192, 0);
            if !shared.is_null() {
                shared.cast::<u8>().write_bytes(6, 8192);
                remote.clEnqueueSVMMap(
                    queue,
                    CL_TRUE,
                    CL_MAP_READ,
                    shared,
                    8192,
                    0,
                    null(),
                    null_mut(),
                );
                remote.clEnqueueSVMUnmap(queue, shared, 0, null(), null_mut());
                remote.clFinish(queue);
                remote.clSVMFree(self.context, shared);
            }
            let gate = remote.clCreateUserEvent(self.context, null_mut());
            remote.clEnqueueMarkerWithWaitList(queue, 1, &raw const gate, null_mut());
            remote.clSetUserEventStatus(gate, CL_COMPLETE);
            remote.clFinish(queue);
            remote.clReleaseEvent(gate);
        }
    }
}

fn program(remote: &Remote) {
    let platforms = remote.platforms();
    let devices = platforms.iter().flat_map(|(_, devices)| devices);
    let Some(&device) = devices.into_iter().next() else {
        return;
    };
    // SAFETY: lists are as long as said, and the handles the session's to judge.
    unsafe {
        let name = Guarded::new(24);
        remote.clGetDeviceInfo(device, CL_DEVICE_NAME, 24, name.memory(), null_mut());
        let context =
            remote.clCreateContext(null(), 1, &raw const device, None, null_mut(), null_mut());
        let queue = remote.clCreateCommandQueue(context, device, 0, null_mut());
        let (flags, none) = (CL_MEM_READ_WRITE, null_mut());
        let buffer = remote.clCreateBuffer(context, flags, 2 * LARGE, null_mut(), none);
        let program = Program {
            remote,
            device,
            context,
            queue,
            buffer,
        };
        program.transfers();
        program.kernels();
        program.maps();
        remote.clFinish(queue);
        remote.clReleaseMemObject(buffer);
        remote.clReleaseCommandQueue(queue);
        remote.clReleaseContext(context);
    }
}

fn begin(transport: &Arc<TamperedTransport>, told: Told<'_>) -> Begun {
    let address: Address = "memory://server".parse().expect("it is well formed");
    let listener = transport.listen(&address).expect("the name is free");
    let mut pairs: Vec<_> = (0..3)
        .map(|_| {
            let ours = transport.connect(&address, &ConnectOptions::default());
            let theirs = listener.accept().expect("somebody has connected");
            (ours.expect("the listener is there"), theirs)
        })
        .collect();
    let (command, lane) = pairs.remove(0);
    let (lanes, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let engine =
        OpenClEngine::open(Arc::new(NullOpenCl::new(1)), &|_, _| true).expect("there is a device");
    let snapshot = told(engine.snapshot().to_vec());
    let (sender, worker) = channel();
    std::thread::spawn(move || {
        let limits = Limits {
            chunk_bytes: CHUNK_BYTES,
        };
        let mut theirs = theirs.into_iter();
        let counters = Arc::new(Counters::default());
        // The test may have given up.
        let _ = sender.send(engine.run(lane, move || theirs.next(), limits, counters));
    });
    let program = Box::new(move || {
        let remote = Remote::over_lanes("memory://server", command, lanes, &snapshot, CHUNK_BYTES);
        if let Ok(remote) = remote {
            program(&remote);
            remote.close();
        }
    });
    Begun { program, worker }
}

fn in_process(_: u64) -> Box<dyn Transport> {
    Box::new(MemoryTransport::new())
}

/// A session of two that have a peer lane, and a buffer of which only the beginning is passed on.
struct Peer {
    pair: Pair,
    queue: cl_command_queue,
    buffer: cl_mem,
}

/// The peer lane's number.
const LANE: u64 = 1;

impl Peer {
    fn new(lane: Arc<dyn Connection>) -> Self {
        let pair = Pair::with_peer(Arc::new(NullOpenCl::new(1)), LANE, lane);
        let remote = &pair.remote;
        let device = remote.platforms()[0].1[0];
        // SAFETY: one device, which is the session's.
        let (queue, buffer) = unsafe {
            let devices = &raw const device;
            let context = remote.clCreateContext(null(), 1, devices, None, null_mut(), null_mut());
            let (flags, size) = (CL_MEM_READ_WRITE, 2 * LARGE);
            (
                remote.clCreateCommandQueue(context, device, 0, null_mut()),
                remote.clCreateBuffer(context, flags, size, null_mut(), null_mut()),
            )
        };
        assert_eq!(remote.open_peer(LANE), Ok(()));
        Self {
            pair,
            queue,
            buffer,
        }
    }

    fn write(&self, bytes: &[u8]) {
        let (queue, buffer, from) = (self.queue, self.buffer, bytes.as_ptr().cast());
        let (wait, size, none) = (CL_TRUE, bytes.len(), null_mut());
        let remote = &self.pair.remote;
        // SAFETY: the bytes are there until the call has returned.
        let status = unsafe {
            remote.clEnqueueWriteBuffer(queue, buffer, wait, 0, size, from, 0, null(), none)
        };
        assert_eq!(status, CL_SUCCESS);
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; 2 * LARGE];
        let (queue, buffer, to) = (self.queue, self.buffer, bytes.as_mut_ptr().cast());
        let (wait, size, none) = (CL_TRUE, bytes.len(), null_mut());
        let remote = &self.pair.remote;
        // SAFETY: the bytes are there until the call has returned.
        let status = unsafe {
            remote.clEnqueueReadBuffer(queue, buffer, wait, 0, size, to, 0, null(), none)
        };
        assert_eq!(status, CL_SUCCESS);
        bytes
    }

    /// Waits for a transfer, however it ends, and for the queue behind it, which goes on.
    fn wait(&self, event: cl_event) {
        let remote = &self.pair.remote;
        // SAFETY: the event and the queue are the session's.
        unsafe {
            remote.clWaitForEvents(1, &raw const event);
            remote.clReleaseEvent(event);
            // It tells of the transfer's failure once.
            remote.clFinish(self.queue);
            assert_eq!(remote.clFinish(self.queue), CL_SUCCESS);
        }
    }
}

/// Passes the beginning of a buffer from each of two sessions to the other, whatever comes of it: what lies behind it stays as it was, and
/// both sessions go on.
fn pass_on(peers: &[Peer; 2]) {
    let lane = PeerLane::new(LANE);
    let secret: Vec<u8> = SECRET.iter().copied().cycle().take(LARGE).collect();
    for (round, size) in [SMALL, LARGE, LARGE, SMALL, LARGE].into_iter().enumerate() {
        for (from, to) in [(&peers[0], &peers[1]), (&peers[1], &peers[0])] {
            let before = [vec![round as u8; size], secret.clone()].concat();
            from.write(&before);
            to.write(&[vec![0xff; size], secret.clone()].concat());
            let payload = lane.payload();
            let (sender, receiver) = (&from.pair.remote, &to.pair.remote);
            let received = receiver.receive_from_peer(&lane, payload, to.queue, to.buffer, size);
            let sent = sender.send_to_peer(&lane, payload, from.queue, from.buffer, size);
            from.wait(sent.expect("the session goes on"));
            to.wait(received.expect("the session goes on"));
            assert_eq!(from.read()[..before.len()], before);
            assert_eq!(to.read()[size..before.len()], secret);
        }
    }
}

fn begin_peers(transport: &Arc<TamperedTransport>, _: Told<'_>) -> Begun {
    let address: Address = "memory://peers".parse().expect("it is well formed");
    let listener = transport.listen(&address).expect("the name is free");
    let one = transport.connect(&address, &ConnectOptions::default());
    let other = listener.accept().expect("somebody has connected");
    let lanes = [one.expect("the listener is there"), other];
    let (sender, worker) = channel();
    let program = Box::new(move || {
        let peers = lanes.map(Peer::new);
        pass_on(&peers);
        let ended = peers.map(|peer| peer.pair.finish());
        // The test may have given up.
        let _ = sender.send(ended.into_iter().collect());
    });
    Begun { program, worker }
}

#[test]
fn mutated_servers_neither_crash_nor_read_nor_hang_a_program() {
    sessions(Victim::Client, &SEEDS, in_process, begin);
}

#[test]
fn mutated_clients_neither_crash_nor_hang_a_worker() {
    sessions(Victim::Server, &SEEDS, in_process, begin);
}

#[test]
fn mutated_peer_lanes_neither_leak_nor_hang_two_sessions() {
    sessions(Victim::Peers, &SEEDS, in_process, begin_peers);
}
