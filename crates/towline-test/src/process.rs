//! A session whose worker is a process of its own, as it is behind a server: both have the same addresses only where they agree on them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use towline_backend::opencl::OpenClApi;
use towline_client::opencl::Remote;
use towline_transport::tcp::TcpTransport;
use towline_transport::{Address, ConnectOptions, Connection, Transport};
use towline_worker::{Counters, Limits, OpenClEngine, RunError};

/// Payload lanes of a session.
const PAYLOAD_LANES: usize = 2;
/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 256 << 10;

/// Serves one session, and says on standard output where, and what devices it has: the worker's part.
pub fn serve(api: Arc<dyn OpenClApi>) -> Result<(), RunError> {
    let engine = OpenClEngine::open(api, &|_, _| true).expect("the backend has a device");
    let any: Address = "tcp://127.0.0.1:0".parse().expect("it is well formed");
    let listener = TcpTransport::new().listen(&any).expect("a free port");
    let snapshot: String = engine
        .snapshot()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}\n{snapshot}", listener.local_address()).expect("somebody reads");
    output.flush().expect("somebody reads");
    let lane = listener.accept().expect("the client connects");
    let mut accepted = 0;
    let lanes = move || {
        accepted += 1;
        (accepted <= PAYLOAD_LANES).then(|| listener.accept().expect("the client connects"))
    };
    let limits = Limits {
        chunk_bytes: CHUNK_BYTES,
    };
    engine.run(lane, lanes, limits, Arc::new(Counters::default()))
}

/// A session with a process that calls [`serve`]; it ends with the session.
pub fn session(worker: &mut Command) -> Remote {
    let mut child = worker
        .stdout(Stdio::piped())
        .spawn()
        .expect("the worker is a program");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = output
        .lines()
        .map(|line| line.expect("the worker writes text"));
    std::thread::spawn(move || child.wait());
    let address: Address = lines
        .next()
        .and_then(|line| line.parse().ok())
        .expect("the worker says where it is");
    let digits = lines.next().expect("the worker says what it has");
    let snapshot: Vec<u8> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits"))
        .collect();
    let connect = || {
        TcpTransport::new()
            .connect(&address, &ConnectOptions::default())
            .expect("the worker listens")
    };
    let command = connect();
    let payload: Vec<Arc<dyn Connection>> = (0..PAYLOAD_LANES).map(|_| connect()).collect();
    Remote::over_lanes(
        &address.to_string(),
        command,
        payload,
        &snapshot,
        CHUNK_BYTES,
    )
    .expect("the worker's snapshot decodes")
}
