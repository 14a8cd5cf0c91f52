//! The table of transports by URL scheme: the built-in ones, and those loaded from shared objects.

use std::path::Path;
use std::sync::{Arc, LazyLock, RwLock};

use crate::memory::MemoryTransport;
use crate::plugin::PluginTransport;
use crate::tcp::TcpTransport;
use crate::{Address, ConnectOptions, Connection, Listener, Transport, TransportError};

/// Finds the transport for a scheme. One per process in production ([`Registry::global`]); tests make their own.
pub struct Registry {
    transports: RwLock<Vec<Arc<dyn Transport>>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// A registry of the built-in transports. A new one is added here.
    pub fn new() -> Self {
        Self {
            transports: RwLock::new(vec![
                Arc::new(TcpTransport::new()),
                Arc::new(MemoryTransport::new()),
            ]),
        }
    }

    /// The registry of this process.
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<Registry> = LazyLock::new(Registry::new);
        &GLOBAL
    }

    /// The transport for `scheme`; the error lists those there are.
    pub fn get(&self, scheme: &str) -> Result<Arc<dyn Transport>, TransportError> {
        self.find(scheme)
            .ok_or_else(|| TransportError::UnknownScheme {
                scheme: scheme.to_owned(),
                known: self.schemes().join(", "),
            })
    }

    /// All schemes, built-in ones first.
    pub fn schemes(&self) -> Vec<&'static str> {
        self.read()
            .iter()
            .map(|transport| transport.scheme())
            .collect()
    }

    /// Adds a transport, for instance a simulated link for a test.
    pub fn register(&self, transport: Arc<dyn Transport>) -> Result<(), TransportError> {
        let mut transports = self
            .transports
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if transports
            .iter()
            .any(|present| present.scheme() == transport.scheme())
        {
            return Err(TransportError::SchemeTaken {
                scheme: transport.scheme().to_owned(),
            });
        }
        transports.push(transport);
        Ok(())
    }

    /// Loads a transport from a shared object and adds it; see [`plugin`](crate::plugin). Code in the object runs
    /// with all rights of this process, so load only what you would link.
    pub fn load(&self, path: &Path) -> Result<Arc<dyn Transport>, TransportError> {
        let transport: Arc<dyn Transport> = Arc::new(PluginTransport::load(path)?);
        self.register(transport.clone())?;
        log::info!(
            "loaded transport `{}` from {}",
            transport.scheme(),
            path.display()
        );
        Ok(transport)
    }

    /// [`Transport::connect`] by the transport that the address names.
    pub fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        self.get(address.scheme())?.connect(address, options)
    }

    /// [`Transport::listen`] by the transport that the address names.
    pub fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        self.get(address.scheme())?.listen(address)
    }

    fn find(&self, scheme: &str) -> Option<Arc<dyn Transport>> {
        self.read()
            .iter()
            .find(|transport| transport.scheme() == scheme)
            .cloned()
    }

    // The list is never left half-changed, so a panic of another thread does not spoil it.
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<dyn Transport>>> {
        self.transports
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_scheme_lists_the_known_ones() {
        let error = Registry::new()
            .get("carrier-pigeon")
            .err()
            .expect("no such transport");
        assert!(
            error.to_string().contains("this program knows tcp, memory"),
            "{error}"
        );
    }

    #[test]
    fn second_transport_of_a_scheme_is_refused() {
        let registry = Registry::new();
        let error = registry
            .register(Arc::new(MemoryTransport::new()))
            .expect_err("memory is there");
        assert!(matches!(error, TransportError::SchemeTaken { scheme } if scheme == "memory"));
    }
}
