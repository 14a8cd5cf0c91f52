//! A network whose connections outlive their links: each that breaks gets another link, which is sound.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use towline_transport::memory::MemoryTransport;
use towline_transport::resume::Resumable;
use towline_transport::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};

/// See the module's text. Connections are accepted in the order in which they were made.
#[derive(Clone)]
pub struct Healing {
    network: MemoryTransport,
    pairs: Arc<Mutex<Vec<Arc<Pair>>>>,
}

/// Both ends of a connection.
#[derive(Default)]
struct Pair {
    ends: Mutex<[Option<Weak<Resumable>>; 2]>,
    /// Held while it gets another link.
    healing: Mutex<()>,
}

impl Healing {
    /// A network whose first links are those of `network`.
    pub fn over(network: MemoryTransport) -> Self {
        Self {
            network,
            pairs: Arc::default(),
        }
    }

    /// An end of the first connection that has no such end yet.
    fn end(&self, end: usize, link: Arc<dyn Connection>) -> Arc<dyn Connection> {
        let mut pairs = lock(&self.pairs);
        let lacks = |pair: &&Arc<Pair>| lock(&pair.ends)[end].is_none();
        let pair = match pairs.iter().find(lacks) {
            Some(pair) => Arc::clone(pair),
            None => {
                pairs.push(Arc::default());
                Arc::clone(&pairs[pairs.len() - 1])
            }
        };
        drop(pairs);
        let broken = Arc::clone(&pair);
        let connection = Resumable::new(link, move |_, _| {
            let pair = Arc::clone(&broken);
            std::thread::spawn(move || pair.heal());
        });
        lock(&pair.ends)[end] = Some(Arc::downgrade(&connection));
        connection
    }
}

impl Pair {
    /// Gives both ends another link, until neither lacks it or one is over.
    fn heal(&self) {
        let _one = lock(&self.healing);
        while let [Some(client), Some(server)] = lock(&self.ends).clone() {
            let ends = [client.upgrade(), server.upgrade()];
            let over = |end: &Option<Arc<Resumable>>| end.as_ref().is_none_or(|end| end.is_over());
            if ends.iter().any(over) {
                // As a supervisor would say.
                let left = ends.iter().flatten();
                return left.for_each(|end| end.fail("the other end is over".into()));
            }
            let ends = ends.iter().flatten();
            if !ends.clone().any(|end| end.is_cut()) {
                return;
            }
            let network = MemoryTransport::new();
            let address: Address = "memory://again".parse().expect("it is well formed");
            let listener = network.listen(&address).expect("the network is new");
            let link = network.connect(&address, &ConnectOptions::default());
            let links = [
                link.expect("it listens"),
                listener.accept().expect("it is connected"),
            ];
            std::thread::scope(|scope| {
                for (end, link) in ends.zip(links) {
                    // It may end meanwhile.
                    scope.spawn(move || end.reattach(link).is_ok());
                }
            });
        }
    }
}

impl Transport for Healing {
    fn scheme(&self) -> &'static str {
        self.network.scheme()
    }

    fn capabilities(&self) -> Capabilities {
        self.network.capabilities()
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        Ok(self.end(0, self.network.connect(address, options)?))
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        Ok(Box::new(HealingListener {
            network: self.clone(),
            listener: self.network.listen(address)?,
        }))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        self.network.adopt(descriptor)
    }
}

struct HealingListener {
    network: Healing,
    listener: Box<dyn Listener>,
}

impl Listener for HealingListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        Ok(self.network.end(1, self.listener.accept()?))
    }

    fn local_address(&self) -> Address {
        self.listener.local_address()
    }

    fn close(&self) {
        self.listener.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
