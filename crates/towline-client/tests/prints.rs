//! Text that kernels printed, over a link that fails wherever the server sends something: every text comes whole, once and in order, and a read
//! that succeeds has brought what was printed before it.
//!
//! One test alone, since it takes the place of standard output.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

use std::io::IoSlice;
use std::ptr::{null, null_mut};
use std::time::Duration;

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_session::{DEVICE_BASE, Outbox};
use towline_transport::memory::{End, Fault, FaultKind, Link, MemoryTransport, Time};
use towline_transport::{Address, ConnectOptions, Connection, Transport};
use towline_wire::frame::FrameReader;
use towline_wire::push::Push;
use towline_wire::snapshot::{Answers, Device, Snapshot};

/// Bytes of what is printed before each read.
const TEXTS: [usize; 5] = [1, 3000, 0, 70_000, 200];
const READ: usize = 100;

fn text(run: usize, read: usize) -> String {
    format!("{run} {read}\n{}\n", "x".repeat(TEXTS[read]))
}

/// Answers reads, each behind a text, until the client leaves.
fn serve(command: &dyn Connection, run: usize) {
    let (outbox, mut reader, mut reads) = (Outbox::new(), FrameReader::new(), 0);
    let push = |push: &Push<'_>| {
        outbox.post(push.id(), |out| push.encode(out));
        // A link that was cut takes nothing.
        let _ = outbox.flush(|| 0, |bytes| command.send(&[IoSlice::new(bytes)]));
    };
    while let Ok(count @ 1..) = command.recv(reader.space()) {
        reader.filled(count);
        while let Some(message) = reader.next().expect("the client frames well") {
            if message.id == <wire::Read<'_> as Request<'_>>::ID {
                let read = wire::Read::decode(message.body).expect("it encodes well");
                let (payload, bytes) = (read.payload, &[7; READ]);
                push(&Push::Text {
                    bytes: text(run, reads).as_bytes(),
                });
                push(&Push::Data { payload, bytes });
                reads += 1;
            }
        }
    }
    command.shutdown();
}

/// Reads one after the other over a link with these faults: how many succeeded, and the network.
fn run(number: usize, faults: &[Fault]) -> (usize, MemoryTransport) {
    let network = MemoryTransport::simulated(Link::default(), Time::Real);
    let address: Address = "memory://server".parse().expect("it is well formed");
    let listener = network.listen(&address).expect("the name is free");
    let command = network.connect(&address, &ConnectOptions::default());
    let theirs = listener.accept().expect("somebody has connected");
    let lane = network.connect(&address, &ConnectOptions::default());
    network.arm(faults);
    let serving = std::thread::spawn(move || serve(&*theirs, number));
    let device = Device {
        handle: DEVICE_BASE | 1,
        platform: 0,
        answers: Answers::default(),
    };
    let snapshot = Snapshot {
        platforms: vec![Answers::default()],
        devices: vec![device],
    };
    let lanes = vec![lane.expect("it listens")];
    let command = command.expect("it listens");
    let remote = Remote::over_lanes(
        "memory://server",
        command,
        lanes,
        &snapshot.encode(),
        64 << 10,
    );
    let remote = remote.expect("the snapshot decodes");
    let resuming = network.clone();
    let stalls = faults.iter().any(|fault| fault.kind == FaultKind::Stall);
    let resumes = std::thread::spawn(move || {
        if stalls && resuming.wait_struck(Duration::from_secs(1)) {
            std::thread::sleep(Duration::from_millis(2));
            resuming
                .monitors()
                .iter()
                .for_each(|monitor| monitor.resume());
        }
    });
    let device = wire::DeviceHandle(DEVICE_BASE | 1).to_raw();
    let mut succeeded = 0;
    // SAFETY: the handles are the session's to judge, and the target is as large as said until the call returns.
    unsafe {
        let none = null_mut();
        let context = remote.clCreateContext(null(), 1, &raw const device, None, none, null_mut());
        let queue = remote.clCreateCommandQueue(context, device, 0, null_mut());
        let (flags, none) = (CL_MEM_READ_WRITE, null_mut());
        let buffer = remote.clCreateBuffer(context, flags, READ, null_mut(), none);
        for _ in TEXTS {
            let mut target = [0_u8; READ];
            let (to, none) = (target.as_mut_ptr().cast(), null_mut());
            let status =
                remote.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, READ, to, 0, null(), none);
            succeeded += usize::from(status == CL_SUCCESS);
            assert!(status != CL_SUCCESS || target == [7; READ]);
        }
    }
    drop(remote);
    serving.join().expect("the server does not panic");
    resumes.join().expect("nothing panics");
    (succeeded, network)
}

#[test]
fn printed_text_over_a_link_that_fails_is_whole_and_in_order() {
    let saved = rustix::io::dup(rustix::stdio::stdout()).expect("there is one");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    rustix::stdio::dup2_stdout(file.as_file()).expect("both are open");
    let (sound, network) = run(0, &[]);
    let monitors = network.monitors();
    let sends = monitors[0].sends(End::Server);
    let offsets = sends
        .iter()
        .flat_map(|sent| [sent.start, sent.start + 1, sent.start.midpoint(sent.end)]);
    let kinds = [
        FaultKind::Cut,
        FaultKind::Reset,
        FaultKind::HalfClose,
        FaultKind::Stall,
    ];
    let faults = offsets.flat_map(|at_bytes| {
        kinds.map(|kind| Fault {
            connection: 0,
            sender: End::Server,
            at_bytes,
            kind,
            to_all: false,
        })
    });
    let mut succeeded = vec![sound];
    for (fault, number) in faults.zip(1..) {
        succeeded.push(run(number, &[fault]).0);
    }
    rustix::stdio::dup2_stdout(&saved).expect("both are open");
    let found = std::fs::read_to_string(file.path()).expect("only text was printed");
    let mut rest = &found[..];
    let mut printed = vec![0; succeeded.len()];
    while let Some((head, _)) = rest.split_once('\n') {
        let (number, read) = head.split_once(' ').expect("a text begins");
        let (number, read): (usize, usize) = (number.parse().unwrap(), read.parse().unwrap());
        assert_eq!(printed[number], read, "run {number}");
        printed[number] += 1;
        let behind = rest.strip_prefix(&text(number, read));
        rest = behind.unwrap_or_else(|| panic!("run {number}: text {read} is not whole"));
    }
    assert_eq!(rest, "");
    assert_eq!((sound, printed[0]), (TEXTS.len(), TEXTS.len()));
    assert!(succeeded.len() > 40, "the server sent too little");
    assert!(
        succeeded.iter().any(|reads| *reads < TEXTS.len()),
        "no fault struck"
    );
    for (number, reads) in succeeded.iter().enumerate() {
        assert!(printed[number] >= *reads, "run {number}: a text is missing");
    }
}
