//! What encryption costs: streams in the clear, by [`towline_transport::tls`], and by rustls's own streams, in turns over TCP on loopback.
//!
//! `cargo run --release -p towline-transport --example tls` prints JSON. Bulk is GB/s of all streams together, with the processor seconds of
//! both ends per GB; the round trip is that of 64 bytes each way, as a launch and its wait make one.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use towline_transport::tls::{ClientTls, Identity, ServerTls};
use towline_transport::{ConnectOptions, Connection, Registry, recv_exact};

const BULK: usize = 1 << 30;
/// What the payload lanes send at once.
const CHUNK: usize = 1 << 20;
const PINGS: usize = 20_000;
const REPETITIONS: usize = 7;
const STREAMS: [usize; 2] = [1, 4];
const LIMIT: Duration = Duration::from_secs(10);

/// An end of a stream.
type End = Box<dyn Stream>;

trait Stream: Send {
    fn send(&mut self, bytes: &[u8]);
    fn receive(&mut self, bytes: &mut [u8]);
}

struct Ours(Arc<dyn Connection>);

impl Stream for Ours {
    fn send(&mut self, bytes: &[u8]) {
        self.0
            .send(&[IoSlice::new(bytes)])
            .expect("the other end reads");
    }

    fn receive(&mut self, bytes: &mut [u8]) {
        recv_exact(&*self.0, bytes).expect("the other end sends");
    }
}

struct Foreign<S>(S);

impl<S: Read + Write + Send> Stream for Foreign<S> {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the other end reads");
        self.0.flush().expect("the other end reads");
    }

    fn receive(&mut self, bytes: &mut [u8]) {
        self.0.read_exact(bytes).expect("the other end sends");
    }
}

fn ours(encrypted: bool) -> (End, End) {
    let registry = Registry::global();
    let listener = registry
        .listen(&"tcp://127.0.0.1:0".parse().unwrap())
        .unwrap();
    let client = registry
        .connect(&listener.local_address(), &ConnectOptions::default())
        .unwrap();
    let server = listener.accept().unwrap();
    if !encrypted {
        return (Box::new(Ours(client)), Box::new(Ours(server)));
    }
    let identity = Identity::generate().unwrap().0;
    let authority = None;
    let tls = ServerTls {
        identity,
        authority,
    };
    let accepting = thread::spawn(move || tls.accept(server, &[], LIMIT).unwrap());
    let client = ClientTls::default().connect(client, LIMIT).unwrap();
    let server = accepting.join().unwrap();
    (Box::new(Ours(client)), Box::new(Ours(server)))
}

/// As many would write it: streams of rustls, the same cipher first.
fn foreign() -> (End, End) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = rustls::crypto::CryptoProvider {
        cipher_suites: vec![rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..rustls::crypto::ring::default_provider()
    };
    let provider = Arc::new(provider);
    let versions = [&rustls::version::TLS13];
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    accepted.set_nodelay(true).unwrap();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
    let mut client = Foreign(rustls::StreamOwned::new(client, stream));
    let mut server = Foreign(rustls::StreamOwned::new(server, accepted));
    client.0.conn.set_buffer_limit(None);
    server.0.conn.set_buffer_limit(None);
    thread::scope(|scope| {
        scope.spawn(|| server.receive(&mut [0]));
        client.send(&[0]);
    });
    (Box::new(client), Box::new(server))
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// GB/s of so many streams, and processor seconds per GB.
fn bulk(make: fn() -> (End, End), streams: usize) -> (f64, f64) {
    let pairs: Vec<_> = (0..streams).map(|_| make()).collect();
    let (start, cpu) = (Instant::now(), cpu_s());
    thread::scope(|scope| {
        for (mut near, mut far) in pairs {
            let chunks = BULK / CHUNK / streams;
            scope.spawn(move || {
                let bytes = vec![7; CHUNK];
                (0..chunks).for_each(|_| near.send(&bytes));
                // It must not end before all has come.
                near.receive(&mut [0]);
            });
            scope.spawn(move || {
                let mut bytes = vec![0; CHUNK];
                (0..chunks).for_each(|_| far.receive(&mut bytes));
                far.send(&[0]);
            });
        }
    });
    let gigabytes = BULK as f64 * 1e-9;
    (
        gigabytes / start.elapsed().as_secs_f64(),
        (cpu_s() - cpu) / gigabytes,
    )
}

/// Median of a round trip in us.
fn round_trip(make: fn() -> (End, End)) -> f64 {
    let (mut near, mut far) = make();
    let echo = thread::spawn(move || {
        let mut bytes = [0; 64];
        for _ in 0..PINGS {
            far.receive(&mut bytes);
            far.send(&bytes);
        }
    });
    let mut times: Vec<f64> = (0..PINGS)
        .map(|_| {
            let start = Instant::now();
            near.send(&[0; 64]);
            near.receive(&mut [0; 64]);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    echo.join().unwrap();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn summary(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let [least, median, most] = [0, values.len() / 2, values.len() - 1].map(|at| values[at]);
    format!("{{\"median\": {median:.3}, \"least\": {least:.3}, \"most\": {most:.3}}}")
}

fn main() {
    type Kind = (&'static str, fn() -> (End, End));
    let kinds: [Kind; 3] = [
        ("clear", || ours(false)),
        ("towline_tls", || ours(true)),
        ("rustls_streams", foreign),
    ];
    let mut lines = Vec::new();
    for streams in STREAMS {
        let mut figures = [(); 3].map(|()| (Vec::new(), Vec::new()));
        for _ in 0..REPETITIONS {
            for ((_, make), (rates, cpu)) in kinds.iter().zip(&mut figures) {
                let (rate, seconds) = bulk(*make, streams);
                rates.push(rate);
                cpu.push(seconds);
            }
        }
        for ((name, _), (rates, cpu)) in kinds.iter().zip(figures) {
            lines.push(format!(
                "\"bulk_{streams}_{name}_gb_s\": {}",
                summary(rates)
            ));
            lines.push(format!(
                "\"bulk_{streams}_{name}_cpu_s_per_gb\": {}",
                summary(cpu)
            ));
        }
    }
    let mut figures = [(); 3].map(|()| Vec::new());
    for _ in 0..REPETITIONS {
        for ((_, make), times) in kinds.iter().zip(&mut figures) {
            times.push(round_trip(*make));
        }
    }
    for ((name, _), times) in kinds.iter().zip(figures) {
        lines.push(format!("\"round_trip_64_b_{name}_us\": {}", summary(times)));
    }
    println!("{{\n  {}\n}}", lines.join(",\n  "));
}
