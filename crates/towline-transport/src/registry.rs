//! The table of transports by URL scheme: the built-in ones, and those loaded from shared objects.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, RwLock};

use rustix::fd::OwnedFd;

use crate::memory::MemoryTransport;
use crate::secret::is_trusted;
use crate::tcp::TcpTransport;
use crate::{Address, ConnectOptions, Connection, Listener, Listening, Transport, TransportError};

/// Environment variable with the shared objects that [`Registry::global`] loads, separated by colons.
pub const PLUGINS_VARIABLE: &str = "TOWLINE_TRANSPORTS";

/// Schemes of transports that other systems do not have.
const ONLY_ON_LINUX: &[&str] = &["shm", "rdma", "vsock", "virtio-serial"];

/// Finds the transport for a scheme. One per process in production ([`Registry::global`]); tests make their own.
pub struct Registry {
    transports: RwLock<Vec<Arc<dyn Transport>>>,
    /// Why configured plugins are absent, for whoever then misses their scheme.
    absent: Vec<String>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// A registry of the built-in transports. A new one is added here.
    pub fn new() -> Self {
        let built_in: Vec<Arc<dyn Transport>> = vec![
            Arc::new(TcpTransport::new()),
            #[cfg(target_os = "linux")]
            Arc::new(crate::shm::ShmTransport::new()),
            Arc::new(MemoryTransport::new()),
            #[cfg(target_os = "linux")]
            Arc::new(crate::rdma::RdmaTransport::new()),
            #[cfg(target_os = "linux")]
            Arc::new(crate::vsock::VsockTransport::new()),
            #[cfg(target_os = "linux")]
            Arc::new(crate::virtio_serial::VirtioSerialTransport::new()),
        ];
        Self {
            transports: RwLock::new(built_in),
            absent: Vec::new(),
        }
    }

    /// The registry of this process: the built-in transports, and those of the shared objects named by
    /// `TOWLINE_TRANSPORTS`. A process that is to be jailed must call it before.
    ///
    /// A program that runs with more rights than its user (set-user-id) ignores the variable, which would let the
    /// user run code with those rights.
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<Registry> = LazyLock::new(|| {
            let plugins = std::env::var_os(PLUGINS_VARIABLE)
                .filter(|_| is_trusted())
                .unwrap_or_default();
            Registry::with_plugins(std::env::split_paths(&plugins))
        });
        &GLOBAL
    }

    fn with_plugins(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut registry = Self::new();
        for path in paths.filter(|path| !path.as_os_str().is_empty()) {
            // Not fatal here: most programs need none of them. Who asks for the scheme is told.
            if let Err(error) = registry.load(&path) {
                log::warn!("{error}");
                registry.absent.push(error.to_string());
            }
        }
        registry
    }

    /// The transport for `scheme`; the error lists those there are.
    pub fn get(&self, scheme: &str) -> Result<Arc<dyn Transport>, TransportError> {
        self.find(scheme)
            .ok_or_else(|| TransportError::UnknownScheme {
                scheme: scheme.to_owned(),
                known: self.schemes().join(", "),
                advice: match &self.absent[..] {
                    _ if ONLY_ON_LINUX.contains(&scheme) => {
                        "that one needs Linux; reach the server by tcp://HOST:PORT".into()
                    }
                    [] => format!("others are shared objects that {PLUGINS_VARIABLE} names"),
                    absent => format!("not loaded: {}", absent.join("; ")),
                },
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
        let transport = open_plugin(path)?;
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

    /// A socket that listens already, by the transport that it belongs to.
    pub fn listen_on(&self, mut socket: OwnedFd) -> Result<Box<dyn Listener>, TransportError> {
        for transport in self.read().iter() {
            match transport.listen_on(socket)? {
                Listening::Here(listener) => return Ok(listener),
                Listening::NotOurs(back) => socket = back,
            }
        }
        Err(TransportError::InvalidAddress {
            text: "a socket from systemd".into(),
            advice: "list TCP ports and paths in the socket unit's ListenStream=".into(),
        })
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

#[cfg(unix)]
fn open_plugin(path: &Path) -> Result<Arc<dyn Transport>, TransportError> {
    Ok(Arc::new(crate::plugin::PluginTransport::load(path)?))
}

#[cfg(not(unix))]
fn open_plugin(path: &Path) -> Result<Arc<dyn Transport>, TransportError> {
    Err(TransportError::Plugin {
        path: path.to_owned(),
        reason: "this system has no plugins".into(),
    })
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
            error.to_string().contains(&format!(
                "this program knows {}; others are shared objects that TOWLINE_TRANSPORTS names",
                Registry::new().schemes().join(", ")
            )),
            "{error}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn plugin_that_did_not_load_is_told_to_who_asks_for_its_scheme() {
        let registry =
            Registry::with_plugins(["", "/no/such/plugin.so"].map(PathBuf::from).into_iter());
        assert_eq!(registry.schemes(), Registry::new().schemes());
        let error = registry
            .get("pigeon")
            .err()
            .expect("no such transport")
            .to_string();
        assert!(
            error.contains("not loaded: transport plugin /no/such/plugin.so: cannot be opened"),
            "{error}"
        );
    }

    #[cfg(not(target_os = "linux"))]
    #[test]
    fn transport_of_linux_is_refused_with_advice() {
        let error = Registry::new().get("shm").err().expect("no such transport");
        assert!(error.to_string().contains("tcp://HOST:PORT"), "{error}");
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
