//! The conformance suite over every built-in transport, and over memory with an imperfect link.

use std::io::IoSlice;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use towline_transport::conformance::{self, Fixture};
use towline_transport::memory::{Link, MemoryTransport};
use towline_transport::resume::Resumable;
use towline_transport::tls::{ClientTls, Identity, ServerTls};
use towline_transport::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Registry, Transport,
    TransportError, pinned, recv_exact,
};

/// Environment variable with the address of an RDMA device of this host that reaches itself.
const RDMA_HOST: &str = "TOWLINE_TEST_RDMA";

/// A new transport fails here until it has its line.
#[test]
fn every_registry_entry_upholds_every_rule() {
    let registry = Registry::new();
    for scheme in registry.schemes() {
        let transport = registry.get(scheme).unwrap();
        conformance::check(&match scheme {
            "memory" => Fixture::new(transport, |number| format!("memory://conformance-{number}")),
            // Needs a device: see below.
            "rdma" => continue,
            "shm" => shm(transport),
            "tcp" => Fixture::new(transport, |_| "tcp://127.0.0.1:0".into()),
            "virtio-serial" => {
                let folder = tempfile::tempdir().expect("a folder");
                Fixture::new(transport, move |number| {
                    format!("virtio-serial:{}/{number}", folder.path().display())
                })
            }
            "vsock" if !reaches_itself(&*transport) => {
                eprintln!(
                    "SKIPPED: vsock: this kernel has no loopback for it (modprobe vsock_loopback); tests/node has"
                );
                continue;
            }
            "vsock" => Fixture::new(transport, |_| "vsock:local:0".into()),
            other => panic!("say how to listen with `{other}`"),
        });
    }
}

/// Sockets in a folder that goes when the test ends.
fn shm(transport: Arc<dyn Transport>) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    Fixture::new(transport, move |number| {
        format!("shm://{}/{number}.sock", folder.path().display())
    })
}

#[cfg(target_os = "linux")]
#[test]
fn shm_without_memory_upholds_every_rule() {
    let fixture = shm(Registry::new().get("shm").unwrap());
    conformance::check(&fixture.with_options(ConnectOptions::control()));
}

/// Listeners on the RDMA device that the environment names.
fn rdma(wrap: impl FnOnce(Arc<dyn Transport>) -> Arc<dyn Transport>) -> Option<Fixture> {
    let Ok(host) = std::env::var(RDMA_HOST) else {
        eprintln!("SKIPPED: {RDMA_HOST} names no address of an RDMA device; tests/node has");
        return None;
    };
    let transport = wrap(Registry::new().get("rdma").unwrap());
    Some(Fixture::new(transport, move |_| format!("rdma://{host}:0")))
}

#[test]
fn rdma_upholds_every_rule() {
    rdma(|transport| transport)
        .iter()
        .for_each(conformance::check);
}

#[test]
fn tls_over_rdma_upholds_every_rule() {
    rdma(|transport| Arc::new(TlsTransport(transport)))
        .iter()
        .for_each(conformance::check);
}

#[test]
fn handed_over_rdma_upholds_every_rule() {
    rdma(|transport| Arc::new(HandingOverTransport(transport)))
        .iter()
        .for_each(conformance::check);
}

#[test]
fn pinned_memory_travels_over_rdma_by_itself() {
    let Some(fixture) = rdma(|transport| Arc::new(HandingOverTransport(transport))) else {
        return;
    };
    for round in 0..3usize {
        let (client, server) = fixture.pair();
        let bytes: Vec<u8> = (0..(5 << 20) + round * 20_011)
            .map(|at| (at * 7 + at / 251 + round) as u8)
            .collect();
        let mut back = vec![0; bytes.len()];
        let len = bytes.len() + 4;
        for memory in [&bytes, &back] {
            pinned::declare(memory.as_ptr().addr(), memory.len());
        }
        thread::scope(|scope| {
            let server = &server;
            scope.spawn(|| {
                client
                    .send(&[IoSlice::new(b"head"), IoSlice::new(&bytes)])
                    .unwrap()
            });
            scope.spawn(move || {
                let mut piece = vec![0; 300_000];
                let mut left = len;
                while left > 0 {
                    let received = server.recv(&mut piece).unwrap();
                    server.send(&[IoSlice::new(&piece[..received])]).unwrap();
                    left -= received;
                }
            });
            let mut head = [0; 4];
            recv_exact(&*client, &mut head).unwrap();
            assert_eq!(&head, b"head");
            recv_exact(&*client, &mut back).unwrap();
        });
        assert!(back == bytes, "round {round}");
        for memory in [&bytes, &back] {
            pinned::withdraw(memory.as_ptr().addr());
        }
    }
}

#[test]
fn handed_over_tcp_upholds_every_rule() {
    let tcp = Registry::new().get("tcp").unwrap();
    conformance::check(&Fixture::new(Arc::new(HandingOverTransport(tcp)), |_| {
        "tcp://127.0.0.1:0".into()
    }));
}

#[cfg(target_os = "linux")]
#[test]
fn handed_over_shm_upholds_every_rule() {
    let transport = Registry::new().get("shm").unwrap();
    conformance::check(&shm(Arc::new(HandingOverTransport(transport))));
}

fn reaches_itself(transport: &dyn Transport) -> bool {
    let connected = transport
        .listen(&"vsock:local:0".parse().expect("an address"))
        .and_then(|listener| {
            transport.connect(&listener.local_address(), &ConnectOptions::default())
        });
    connected.is_ok()
}

#[test]
fn tcp_over_ipv6_upholds_every_rule() {
    let tcp = Registry::new().get("tcp").unwrap();
    conformance::check(&Fixture::new(tcp, |_| "tcp://[::1]:0".into()));
}

#[test]
fn memory_over_a_slow_link_upholds_every_rule() {
    let link = Link {
        latency: Duration::from_micros(100),
        bandwidth_bytes_per_s: Some(200_000_000),
        buffer_bytes: 64 << 10,
        cut_after_bytes: None,
    };
    let transport = Arc::new(MemoryTransport::with_link(link));
    conformance::check(&Fixture::new(transport, |number| {
        format!("memory://slow-{number}")
    }));
}

#[test]
#[should_panic(expected = "large_transfer_arrives_whole failed")]
fn suite_names_the_rule_that_a_transport_breaks() {
    let breaks_soon = Link {
        cut_after_bytes: Some(1 << 20),
        ..Link::default()
    };
    let transport = Arc::new(MemoryTransport::with_link(breaks_soon));
    conformance::check(&Fixture::new(transport, |number| {
        format!("memory://breaks-{number}")
    }));
}

#[test]
fn tls_over_memory_upholds_every_rule() {
    let memory = Arc::new(MemoryTransport::new());
    conformance::check(&Fixture::new(Arc::new(TlsTransport(memory)), |number| {
        format!("memory://tls-{number}")
    }));
}

#[test]
fn tls_over_tcp_upholds_every_rule() {
    let tcp = Registry::new().get("tcp").unwrap();
    conformance::check(&Fixture::new(Arc::new(TlsTransport(tcp)), |_| {
        "tcp://127.0.0.1:0".into()
    }));
}

#[test]
fn resumable_over_memory_upholds_every_rule() {
    let memory = Arc::new(MemoryTransport::new());
    conformance::check(&Fixture::new(
        Arc::new(ResumableTransport(memory)),
        |number| format!("memory://resumable-{number}"),
    ));
}

#[test]
fn resumable_over_tcp_upholds_every_rule() {
    let tcp = Registry::new().get("tcp").unwrap();
    conformance::check(&Fixture::new(Arc::new(ResumableTransport(tcp)), |_| {
        "tcp://127.0.0.1:0".into()
    }));
}

/// A transport whose connections could outlive their links, and end with the first.
struct ResumableTransport(Arc<dyn Transport>);

fn resumable(link: Arc<dyn Connection>) -> Arc<dyn Connection> {
    Resumable::new(link, |connection, reason| {
        connection.fail(reason.to_owned())
    })
}

impl Transport for ResumableTransport {
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            passes_descriptors: false,
            ..self.0.capabilities()
        }
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        self.0.connect(address, options).map(resumable)
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        Ok(Box::new(ResumableListener(self.0.listen(address)?)))
    }

    fn adopt(&self, _descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        Err(TransportError::Unsupported {
            scheme: self.scheme().into(),
            operation: "adopt a descriptor",
        })
    }
}

struct ResumableListener(Box<dyn Listener>);

impl Listener for ResumableListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        self.0.accept().map(resumable)
    }

    fn local_address(&self) -> Address {
        self.0.local_address()
    }

    fn close(&self) {
        self.0.close();
    }
}

/// A transport whose accepted connections are used as by another process, which they were handed to.
struct HandingOverTransport(Arc<dyn Transport>);

impl Transport for HandingOverTransport {
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        self.0.connect(address, options)
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        Ok(Box::new(HandingOverListener {
            transport: Arc::clone(&self.0),
            inner: self.0.listen(address)?,
        }))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        self.0.adopt(descriptor)
    }
}

struct HandingOverListener {
    transport: Arc<dyn Transport>,
    inner: Box<dyn Listener>,
}

impl Listener for HandingOverListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let connection = self.inner.accept()?;
        let descriptor = connection.descriptor().expect("it passes descriptors");
        let descriptor = descriptor.try_clone_to_owned().expect("dup");
        drop(connection);
        self.transport.adopt(descriptor)
    }

    fn local_address(&self) -> Address {
        self.inner.local_address()
    }

    fn close(&self) {
        self.inner.close();
    }
}

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(60);

/// A transport whose connections are encrypted. Handshakes of a listener go on while nobody accepts.
struct TlsTransport(Arc<dyn Transport>);

impl Transport for TlsTransport {
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            passes_descriptors: false,
            ..self.0.capabilities()
        }
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let stream = self.0.connect(address, options)?;
        Ok(ClientTls::default().connect(stream, HANDSHAKE_LIMIT)?)
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        let inner: Arc<dyn Listener> = Arc::from(self.0.listen(address)?);
        let (accepted, connections) = channel();
        let (identity, _) = Identity::generate()?;
        let tls = ServerTls {
            identity,
            authority: None,
        };
        let listener = Arc::clone(&inner);
        thread::spawn(move || {
            while let Ok(stream) = listener.accept() {
                let (tls, accepted) = (tls.clone(), accepted.clone());
                thread::spawn(move || {
                    if let Ok(connection) = tls.accept(stream, &[], HANDSHAKE_LIMIT) {
                        // Nobody may want it any more.
                        let _ = accepted.send(connection as Arc<dyn Connection>);
                    }
                });
            }
        });
        Ok(Box::new(TlsListener {
            inner,
            connections: Mutex::new(connections),
        }))
    }

    fn adopt(&self, _descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        Err(TransportError::Unsupported {
            scheme: self.scheme().into(),
            operation: "adopt a descriptor",
        })
    }
}

struct TlsListener {
    inner: Arc<dyn Listener>,
    connections: Mutex<Receiver<Arc<dyn Connection>>>,
}

impl Listener for TlsListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let closed = |_| TransportError::ListenerClosed {
            address: self.local_address().to_string(),
        };
        self.connections.lock().unwrap().recv().map_err(closed)
    }

    fn local_address(&self) -> Address {
        self.inner.local_address()
    }

    fn close(&self) {
        self.inner.close();
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.inner.close();
    }
}
