//! A client and a worker in one process, over a simulated link.

use std::sync::Arc;
use std::thread::JoinHandle;

use towline_backend::opencl::OpenClApi;
use towline_client::opencl::Remote;
use towline_transport::memory::{Link, LinkMonitor, MemoryTransport};
use towline_transport::{Address, ConnectOptions, Connection, Transport};
use towline_worker::{Counters, Limits, OpenClEngine, RunError, SideLane};

/// Payload lanes of a pair.
const PAYLOAD_LANES: usize = 2;
/// Bytes of a chunk: small, so that tests of a megabyte see many.
const CHUNK_BYTES: u64 = 256 << 10;

/// A session and the worker behind it.
pub struct Pair {
    /// The client's end.
    pub remote: Arc<Remote>,
    network: MemoryTransport,
    worker: Option<JoinHandle<Result<(), RunError>>>,
}

impl Pair {
    /// Joins a client to a worker on `api` by a link without delay.
    pub fn new(api: Arc<dyn OpenClApi>) -> Self {
        Self::over(api, Link::default())
    }

    /// Joins a client to a worker on `api` by `link`.
    pub fn over(api: Arc<dyn OpenClApi>, link: Link) -> Self {
        Self::on(api, MemoryTransport::with_link(link))
    }

    /// Joins a client to a worker on `api` that has a peer lane by this number.
    pub fn with_peer(api: Arc<dyn OpenClApi>, number: u64, lane: Arc<dyn Connection>) -> Self {
        Self::joined(api, MemoryTransport::new(), Some((number, lane)))
    }

    /// Joins a client to a worker on `api` by the first connections of a network.
    pub fn on(api: Arc<dyn OpenClApi>, transport: MemoryTransport) -> Self {
        Self::joined(api, transport, None)
    }

    /// As [`Self::on`], by connections that `transport` makes on the network.
    pub fn through(
        api: Arc<dyn OpenClApi>,
        network: MemoryTransport,
        transport: &dyn Transport,
    ) -> Self {
        Self::made(api, network, transport, None)
    }

    fn joined(
        api: Arc<dyn OpenClApi>,
        network: MemoryTransport,
        peer: Option<(u64, Arc<dyn Connection>)>,
    ) -> Self {
        let transport = network.clone();
        Self::made(api, network, &transport, peer)
    }

    fn made(
        api: Arc<dyn OpenClApi>,
        network: MemoryTransport,
        transport: &dyn Transport,
        mut peer: Option<(u64, Arc<dyn Connection>)>,
    ) -> Self {
        let engine = OpenClEngine::open(api, &|_, _| true).expect("the backend has a device");
        let snapshot = engine.snapshot().to_vec();
        let address: Address = "memory://pair".parse().expect("the address is well formed");
        let listener = transport
            .listen(&address)
            .expect("the name is free on a network of our own");
        let connect = || {
            transport
                .connect(&address, &ConnectOptions::default())
                .expect("the listener is there")
        };
        let command = connect();
        let payload: Vec<Arc<dyn Connection>> = (0..PAYLOAD_LANES).map(|_| connect()).collect();
        let lane = listener.accept().expect("the client has connected");
        let mut accepted = 0;
        let lanes = move || {
            accepted += 1;
            if accepted <= PAYLOAD_LANES {
                let lane = listener.accept().expect("the client has connected");
                return Some(SideLane::Payload(lane));
            }
            peer.take()
                .map(|(number, lane)| SideLane::Peer(number, lane))
        };
        let limits = Limits {
            chunk_bytes: CHUNK_BYTES,
        };
        let worker = std::thread::spawn(move || {
            engine.run(lane, lanes, limits, Arc::new(Counters::default()))
        });
        let remote = Remote::over_lanes("memory://pair", command, payload, &snapshot, CHUNK_BYTES)
            .expect("the worker's snapshot decodes");
        Self {
            remote: Arc::new(remote),
            network,
            worker: Some(worker),
        }
    }

    /// The link's connections, the command lane first.
    pub fn monitors(&self) -> Vec<LinkMonitor> {
        self.network.monitors()
    }

    /// Waits for the end of the worker and gives how it saw the session end; for a session that was ended, or that moved.
    pub fn join(mut self) -> Result<(), RunError> {
        let worker = self.worker.take().expect("a pair finishes once");
        worker.join().expect("the worker does not panic")
    }

    /// Ends the session and gives how the worker saw it end.
    pub fn finish(self) -> Result<(), RunError> {
        self.remote.close();
        self.join()
    }

    /// The session alone, for one that takes it over; the worker is left to end with it.
    pub fn into_session(self) -> Remote {
        let session = Arc::try_unwrap(self.remote);
        session.unwrap_or_else(|_| panic!("nobody else uses the session of a new pair"))
    }
}
