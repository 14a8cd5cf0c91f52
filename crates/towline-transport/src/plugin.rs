//! Transports in shared objects, loaded at run time over a C ABI with a version.
//!
//! `include/towline_transport.h` is the normative text of the ABI, for authors in any language; the types here
//! mirror it, and a test holds the two together field by field. An object exports one function,
//! `towline_transport_v1`, that returns a [`TowlineTransportV1`]. [`PluginTransport::load`] checks everything that
//! can be checked before the first call: version, size, scheme, and that each needed function is there. What it
//! cannot check it has to trust: a plugin is part of this process.
//!
//! The version is raised when a structure changes other than by appended fields; the function then gets another
//! name, so one object can serve several versions. Objects are never unloaded: their threads, thread-local
//! variables and `atexit` handlers could outlive any count of connections.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::IoSlice;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use libloading::Library;

use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};

/// `TOWLINE_TRANSPORT_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;

/// `TOWLINE_PASSES_DESCRIPTORS`.
pub const PASSES_DESCRIPTORS: u64 = 1 << 0;
/// `TOWLINE_CROSSES_HOSTS`.
pub const CROSSES_HOSTS: u64 = 1 << 1;

/// What the functions of a plugin return.
pub mod status {
    /// It was done.
    pub const OK: i32 = 0;
    /// It would have to wait.
    pub const WOULD_BLOCK: i32 = 1;
    /// The peer closed the connection, or this end was shut down; of a listener: it was closed.
    pub const CLOSED: i32 = 2;
    /// The link broke.
    pub const LOST: i32 = 3;
    /// Nobody listens at the address.
    pub const REFUSED: i32 = 4;
    /// There was no answer in time.
    pub const TIMED_OUT: i32 = 5;
    /// The network has no way to the address.
    pub const UNREACHABLE: i32 = 6;
    /// Another listener has the address.
    pub const ADDRESS_IN_USE: i32 = 7;
    /// The text is no address of this transport.
    pub const INVALID_ADDRESS: i32 = 8;
    /// The transport has no such operation.
    pub const UNSUPPORTED: i32 = 9;
    /// Anything else.
    pub const FAILED: i32 = 10;
}

const SYMBOL: &str = "towline_transport_v1";

/// Longest address or peer name that a plugin can give.
const TEXT_BYTES: usize = 1024;

/// The text that goes with a failure.
#[repr(C)]
pub struct TowlineErrorV1 {
    /// UTF-8 and a NUL; empty where there is none.
    pub text: [c_char; 256],
}

/// [`ConnectOptions`] across the ABI.
#[repr(C)]
pub struct TowlineConnectOptionsV1 {
    /// Size of this structure, which later versions append to.
    pub struct_size: usize,
    /// Time for the whole attempt.
    pub timeout_ns: u64,
    /// Size of the buffers for sending and for receiving; 0 leaves it to the transport.
    pub buffer_bytes: usize,
    /// Time that sent bytes may stay unacknowledged; 0 is without end.
    pub unacknowledged_timeout_ns: u64,
    /// Not 0: an idle peer that is gone is found out within 30 s.
    pub keepalive: i32,
}

/// The table of functions; the header says what each must do.
///
/// Functions are nullable here because the table comes from foreign code; `load` demands those that are needed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TowlineTransportV1 {
    /// [`ABI_VERSION`].
    pub abi_version: u32,
    /// Size of this structure, which later versions append to.
    pub struct_size: usize,
    /// The scheme of its addresses.
    pub scheme: *const c_char,
    /// [`PASSES_DESCRIPTORS`], [`CROSSES_HOSTS`].
    pub capabilities: u64,
    /// See [`Transport::connect`].
    pub connect: Option<ConnectFn>,
    /// See [`Transport::listen`].
    pub listen: Option<ListenFn>,
    /// See [`Transport::adopt`]; with [`PASSES_DESCRIPTORS`] only.
    pub adopt: Option<AdoptFn>,
    /// See [`Listener::accept`].
    pub listener_accept: Option<AcceptFn>,
    /// See [`Listener::local_address`].
    pub listener_address: Option<TextFn>,
    /// See [`Listener::close`].
    pub listener_close: Option<ObjectFn>,
    /// The last call for a listener.
    pub listener_free: Option<ObjectFn>,
    /// See [`Connection::send`].
    pub send: Option<SendFn>,
    /// See [`Connection::try_send`].
    pub try_send: Option<TrySendFn>,
    /// See [`Connection::recv`].
    pub recv: Option<RecvFn>,
    /// See [`Connection::try_recv`].
    pub try_recv: Option<RecvFn>,
    /// See [`Connection::wait_readable`].
    pub wait_readable: Option<WaitReadableFn>,
    /// See [`Connection::shutdown`].
    pub shutdown: Option<ObjectFn>,
    /// See [`Connection::peer`].
    pub peer: Option<TextFn>,
    /// The descriptor to pass on; with [`PASSES_DESCRIPTORS`] only.
    pub descriptor: Option<DescriptorFn>,
    /// The last call for a connection.
    pub connection_free: Option<ObjectFn>,
}

type EntryFn = unsafe extern "C" fn() -> *const TowlineTransportV1;
/// Connects to an address without its scheme.
pub type ConnectFn = unsafe extern "C" fn(
    address: *const c_char,
    options: *const TowlineConnectOptionsV1,
    connection: *mut *mut c_void,
    error: *mut TowlineErrorV1,
) -> i32;
/// Listens on an address without its scheme.
pub type ListenFn = unsafe extern "C" fn(
    address: *const c_char,
    listener: *mut *mut c_void,
    error: *mut TowlineErrorV1,
) -> i32;
/// Takes over the descriptor of a connection.
pub type AdoptFn = unsafe extern "C" fn(
    descriptor: i32,
    connection: *mut *mut c_void,
    error: *mut TowlineErrorV1,
) -> i32;
/// Waits for a connection.
pub type AcceptFn = unsafe extern "C" fn(
    listener: *mut c_void,
    connection: *mut *mut c_void,
    error: *mut TowlineErrorV1,
) -> i32;
/// Writes a text of an object, with a NUL, into `size` bytes.
pub type TextFn = unsafe extern "C" fn(
    object: *mut c_void,
    text: *mut c_char,
    size: usize,
    error: *mut TowlineErrorV1,
) -> i32;
/// Does something to an object that cannot fail.
pub type ObjectFn = unsafe extern "C" fn(object: *mut c_void);
/// Sends all bytes. `parts` points to `struct iovec`, whose layout [`IoSlice`] has.
pub type SendFn = unsafe extern "C" fn(
    connection: *mut c_void,
    parts: *const IoSlice<'_>,
    count: usize,
    error: *mut TowlineErrorV1,
) -> i32;
/// Sends as many bytes as fit.
pub type TrySendFn = unsafe extern "C" fn(
    connection: *mut c_void,
    bytes: *const u8,
    len: usize,
    sent: *mut usize,
    error: *mut TowlineErrorV1,
) -> i32;
/// Receives at least one byte; none at the end.
pub type RecvFn = unsafe extern "C" fn(
    connection: *mut c_void,
    buffer: *mut u8,
    len: usize,
    received: *mut usize,
    error: *mut TowlineErrorV1,
) -> i32;
/// Waits for bytes, at most so long; a negative time is without end.
pub type WaitReadableFn = unsafe extern "C" fn(
    connection: *mut c_void,
    timeout_ns: i64,
    readable: *mut i32,
    error: *mut TowlineErrorV1,
) -> i32;
/// Gives the descriptor of a connection.
pub type DescriptorFn = unsafe extern "C" fn(connection: *mut c_void) -> i32;

impl TowlineErrorV1 {
    fn new() -> Self {
        Self { text: [0; 256] }
    }

    /// The text, or `otherwise` where the plugin left none. Reads no further than the array, NUL or not.
    fn text_or(&self, otherwise: &str) -> String {
        match text_of(&self.text) {
            text if text.is_empty() => otherwise.to_owned(),
            text => text,
        }
    }
}

fn text_of(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| *c as u8)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A transport that lives in a shared object.
pub struct PluginTransport {
    plugin: Arc<Plugin>,
}

struct Plugin {
    path: PathBuf,
    scheme: &'static str,
    capabilities: Capabilities,
    functions: Functions,
}

/// The functions of a table that passed the checks.
struct Functions {
    connect: ConnectFn,
    listen: ListenFn,
    descriptors: Option<(AdoptFn, DescriptorFn)>,
    listener_accept: AcceptFn,
    listener_address: TextFn,
    listener_close: ObjectFn,
    listener_free: ObjectFn,
    send: SendFn,
    try_send: TrySendFn,
    recv: RecvFn,
    try_recv: RecvFn,
    wait_readable: WaitReadableFn,
    shutdown: ObjectFn,
    peer: TextFn,
    connection_free: ObjectFn,
}

impl PluginTransport {
    /// Loads the shared object at `path` and checks that it is a transport of this ABI version.
    ///
    /// Runs the object's initialisers, and trusts its functions to do what the header says.
    pub fn load(path: &Path) -> Result<Self, TransportError> {
        let refuse = |reason: String| TransportError::Plugin {
            path: path.to_owned(),
            reason,
        };
        // A name without a slash would be searched for in the system's library folders.
        let file = path
            .canonicalize()
            .map_err(|error| refuse(format!("cannot be opened: {error}")))?;
        // SAFETY: the initialisers of the object run now. That they are sound is for whoever configured this path
        // to know; `Registry::load` tells them so.
        let library = unsafe { Library::new(&file) };
        // Kept for ever, see the module's text; everything below may thus point into it for ever.
        let library = ManuallyDrop::new(
            library.map_err(|error| refuse(format!("cannot be loaded: {error}")))?,
        );
        // SAFETY: by the ABI, an object that exports this name exports it as this function.
        let entry = unsafe { library.get::<EntryFn>(SYMBOL) };
        let entry = entry.map_err(|_| {
            refuse(format!(
                "exports no `{SYMBOL}`: it is no Towline transport, or one for another ABI version"
            ))
        })?;
        // SAFETY: the function has no precondition.
        let table = unsafe { entry() };
        let table = read_table(path, table)?;
        let scheme = read_scheme(path, table.scheme)?;
        let functions = Functions::complete(path, &table)?;
        let capabilities = Capabilities {
            passes_descriptors: functions.descriptors.is_some(),
            crosses_hosts: table.capabilities & CROSSES_HOSTS != 0,
            over_network: table.capabilities & CROSSES_HOSTS != 0,
        };
        Ok(Self {
            plugin: Arc::new(Plugin {
                path: path.to_owned(),
                scheme,
                capabilities,
                functions,
            }),
        })
    }
}

/// Copies the table after checking that this program knows its shape.
fn read_table(
    path: &Path,
    table: *const TowlineTransportV1,
) -> Result<TowlineTransportV1, TransportError> {
    let refuse = |reason: String| TransportError::Plugin {
        path: path.to_owned(),
        reason,
    };
    if table.is_null() || !table.is_aligned() {
        return Err(refuse(format!("`{SYMBOL}` returned no table")));
    }
    // SAFETY: not null and aligned, checked; by the ABI it points to a table of some version, and all of them start
    // with this field.
    let found = unsafe { (*table).abi_version };
    if found != ABI_VERSION {
        return Err(TransportError::AbiMismatch {
            path: path.to_owned(),
            found,
            expected: ABI_VERSION,
        });
    }
    // SAFETY: as above; version 1 has this field.
    let size = unsafe { (*table).struct_size };
    let needed = size_of::<TowlineTransportV1>();
    if size < needed {
        return Err(refuse(format!(
            "its table has {size} bytes where version {ABI_VERSION} has {needed}: \
             set struct_size to sizeof(TowlineTransportV1) and rebuild it"
        )));
    }
    // SAFETY: the table says that it has at least this many bytes.
    Ok(unsafe { ptr::read(table) })
}

fn read_scheme(path: &Path, scheme: *const c_char) -> Result<&'static str, TransportError> {
    let refuse = |reason: String| TransportError::Plugin {
        path: path.to_owned(),
        reason,
    };
    if scheme.is_null() {
        return Err(refuse("its table names no scheme".into()));
    }
    // SAFETY: not null, checked; by the ABI a string with a NUL, constant for ever, and the object stays loaded.
    let scheme: &'static CStr = unsafe { CStr::from_ptr(scheme) };
    let valid = |text: &&str| {
        text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c))
    };
    scheme.to_str().ok().filter(valid).ok_or_else(|| {
        refuse(format!(
            "its scheme is {scheme:?}: a scheme has lower-case letters, digits, `+`, `-` and `.`"
        ))
    })
}

impl Functions {
    fn complete(path: &Path, table: &TowlineTransportV1) -> Result<Self, TransportError> {
        fn needed<F>(path: &Path, name: &str, function: Option<F>) -> Result<F, TransportError> {
            function.ok_or_else(|| TransportError::Plugin {
                path: path.to_owned(),
                reason: format!("its table has no function `{name}`"),
            })
        }
        let descriptors = if table.capabilities & PASSES_DESCRIPTORS == 0 {
            None
        } else {
            Some((
                needed(path, "adopt", table.adopt)?,
                needed(path, "descriptor", table.descriptor)?,
            ))
        };
        Ok(Self {
            connect: needed(path, "connect", table.connect)?,
            listen: needed(path, "listen", table.listen)?,
            descriptors,
            listener_accept: needed(path, "listener_accept", table.listener_accept)?,
            listener_address: needed(path, "listener_address", table.listener_address)?,
            listener_close: needed(path, "listener_close", table.listener_close)?,
            listener_free: needed(path, "listener_free", table.listener_free)?,
            send: needed(path, "send", table.send)?,
            try_send: needed(path, "try_send", table.try_send)?,
            recv: needed(path, "recv", table.recv)?,
            try_recv: needed(path, "try_recv", table.try_recv)?,
            wait_readable: needed(path, "wait_readable", table.wait_readable)?,
            shutdown: needed(path, "shutdown", table.shutdown)?,
            peer: needed(path, "peer", table.peer)?,
            connection_free: needed(path, "connection_free", table.connection_free)?,
        })
    }
}

impl Plugin {
    fn broken(&self, reason: String) -> TransportError {
        TransportError::Plugin {
            path: self.path.clone(),
            reason,
        }
    }

    /// The part of `address` that the plugin reads.
    fn own_part(&self, address: &Address) -> Result<CString, TransportError> {
        let invalid = |advice: String| TransportError::InvalidAddress {
            text: address.to_string(),
            advice,
        };
        if address.scheme() != self.scheme {
            return Err(invalid(format!(
                "this transport takes {}://...",
                self.scheme
            )));
        }
        CString::new(address.rest()).map_err(|_| invalid("remove the NUL character".into()))
    }

    /// The error for a failed connect, listen or accept at `address`.
    fn failed_at(
        &self,
        address: &Address,
        timeout: Duration,
        code: i32,
        error: &TowlineErrorV1,
    ) -> TransportError {
        let text = || error.text_or("the plugin gives no reason");
        match code {
            status::REFUSED => TransportError::ConnectionRefused {
                address: address.to_string(),
            },
            status::TIMED_OUT => TransportError::TimedOut {
                address: address.to_string(),
                timeout,
            },
            status::UNREACHABLE => TransportError::Unreachable {
                address: address.to_string(),
                source: std::io::Error::other(text()),
            },
            status::ADDRESS_IN_USE => TransportError::AddressInUse {
                address: address.to_string(),
            },
            status::INVALID_ADDRESS => TransportError::InvalidAddress {
                text: address.to_string(),
                advice: text(),
            },
            status::UNSUPPORTED => TransportError::Unsupported {
                scheme: self.scheme.to_owned(),
                operation: "do that",
            },
            _ => self.broken(format!("{address}: {}", text())),
        }
    }

    fn connection(
        self: &Arc<Self>,
        object: *mut c_void,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let object = Object::new(self, object, self.functions.connection_free)?;
        let peer = object.text(self.functions.peer, "peer")?;
        let descriptor = self.functions.descriptors.and_then(|(_, descriptor)| {
            // SAFETY: the connection is alive, and the function is called this once.
            let descriptor = unsafe { descriptor(object.raw()) };
            (descriptor >= 0).then_some(descriptor)
        });
        Ok(Arc::new(PluginConnection {
            object,
            peer,
            descriptor,
        }))
    }
}

impl Transport for PluginTransport {
    fn scheme(&self) -> &'static str {
        self.plugin.scheme
    }

    fn capabilities(&self) -> Capabilities {
        self.plugin.capabilities
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let text = self.plugin.own_part(address)?;
        let options_v1 = TowlineConnectOptionsV1 {
            struct_size: size_of::<TowlineConnectOptionsV1>(),
            timeout_ns: nanoseconds(options.timeout),
            buffer_bytes: options.buffer_bytes.unwrap_or(0),
            unacknowledged_timeout_ns: options.unacknowledged_timeout.map_or(0, nanoseconds),
            keepalive: options.keepalive.into(),
        };
        let mut object = ptr::null_mut();
        let mut error = TowlineErrorV1::new();
        let connect = self.plugin.functions.connect;
        // SAFETY: the text has a NUL, and all four live through the call.
        let code = unsafe { connect(text.as_ptr(), &options_v1, &mut object, &mut error) };
        match code {
            status::OK => self.plugin.connection(object),
            code => Err(self
                .plugin
                .failed_at(address, options.timeout, code, &error)),
        }
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        let text = self.plugin.own_part(address)?;
        let mut object = ptr::null_mut();
        let mut error = TowlineErrorV1::new();
        let listen = self.plugin.functions.listen;
        // SAFETY: the text has a NUL, and all three live through the call.
        let code = unsafe { listen(text.as_ptr(), &mut object, &mut error) };
        if code != status::OK {
            return Err(self.plugin.failed_at(address, Duration::ZERO, code, &error));
        }
        let object = Object::new(&self.plugin, object, self.plugin.functions.listener_free)?;
        let local = object.text(self.plugin.functions.listener_address, "listener_address")?;
        let local = Address::parse(&format!("{}://{local}", self.plugin.scheme))?;
        Ok(Box::new(PluginListener { object, local }))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        let Some((adopt, _)) = self.plugin.functions.descriptors else {
            return Err(TransportError::Unsupported {
                scheme: self.plugin.scheme.to_owned(),
                operation: "adopt a descriptor",
            });
        };
        let mut object = ptr::null_mut();
        let mut error = TowlineErrorV1::new();
        // SAFETY: the descriptor is open and ours to give away, which by the ABI also a failed call has taken; the
        // others live through the call.
        let code = unsafe { adopt(descriptor.into_raw_fd(), &mut object, &mut error) };
        match code {
            status::OK => self.plugin.connection(object),
            _ => Err(self
                .plugin
                .broken(error.text_or("cannot adopt the descriptor"))),
        }
    }
}

/// A connection or listener of a plugin: alive until dropped.
struct Object {
    plugin: Arc<Plugin>,
    raw: NonNull<c_void>,
    free: ObjectFn,
}

// SAFETY: by the ABI every function may be called from any thread.
unsafe impl Send for Object {}
// SAFETY: by the ABI the functions may run at the same time, apart from `free`, which `drop` calls when no other
// reference is left.
unsafe impl Sync for Object {}

impl Object {
    fn new(plugin: &Arc<Plugin>, raw: *mut c_void, free: ObjectFn) -> Result<Self, TransportError> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| plugin.broken("reported success without an object".into()))?;
        Ok(Self {
            plugin: plugin.clone(),
            raw,
            free,
        })
    }

    fn raw(&self) -> *mut c_void {
        self.raw.as_ptr()
    }

    fn text(&self, function: TextFn, name: &str) -> Result<String, TransportError> {
        let mut text = [0; TEXT_BYTES];
        let mut error = TowlineErrorV1::new();
        // SAFETY: the object is alive, and `text` has as many bytes as is said; the last stays NUL.
        let code = unsafe { function(self.raw(), text.as_mut_ptr(), TEXT_BYTES - 1, &mut error) };
        match code {
            status::OK => Ok(text_of(&text)),
            _ => Err(self.plugin.broken(format!(
                "{name} failed: {}",
                error.text_or("it gives no reason")
            ))),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is alive, this is the last call for it, and no other is in progress, since each borrows
        // `self`.
        unsafe { (self.free)(self.raw()) }
    }
}

struct PluginListener {
    object: Object,
    local: Address,
}

impl Listener for PluginListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let plugin = &self.object.plugin;
        let mut connection = ptr::null_mut();
        let mut error = TowlineErrorV1::new();
        let accept = plugin.functions.listener_accept;
        // SAFETY: the listener is alive; the others live through the call.
        let code = unsafe { accept(self.object.raw(), &mut connection, &mut error) };
        match code {
            status::OK => plugin.connection(connection),
            status::CLOSED => Err(TransportError::ListenerClosed {
                address: self.local.to_string(),
            }),
            code => Err(plugin.failed_at(&self.local, Duration::ZERO, code, &error)),
        }
    }

    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        let close = self.object.plugin.functions.listener_close;
        // SAFETY: the listener is alive.
        unsafe { close(self.object.raw()) }
    }
}

struct PluginConnection {
    object: Object,
    peer: String,
    descriptor: Option<RawFd>,
}

impl PluginConnection {
    fn functions(&self) -> &Functions {
        &self.object.plugin.functions
    }

    #[cold]
    fn failed(&self, code: i32, error: &TowlineErrorV1) -> TransportError {
        match code {
            status::CLOSED => TransportError::Closed {
                peer: self.peer.clone(),
            },
            status::LOST | status::TIMED_OUT => TransportError::Lost {
                peer: self.peer.clone(),
                reason: error.text_or("the link broke"),
            },
            code => {
                let reason = format!(
                    "{}: {}",
                    self.peer,
                    error.text_or(&format!("failed with status {code}"))
                );
                self.object.plugin.broken(reason)
            }
        }
    }

    /// A count from the plugin, refused where it cannot be true: callers index by it.
    fn checked(&self, function: &str, count: usize, len: usize) -> Result<usize, TransportError> {
        if count > len {
            return Err(self
                .object
                .plugin
                .broken(format!("{function} counted {count} bytes of {len}")));
        }
        Ok(count)
    }

    fn recv_by(
        &self,
        function: RecvFn,
        name: &str,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, TransportError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        let mut received = 0;
        let mut error = TowlineErrorV1::new();
        // SAFETY: the connection is alive, and the buffer is writable for its length.
        let code = unsafe {
            function(
                self.object.raw(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &mut received,
                &mut error,
            )
        };
        match code {
            status::OK => self.checked(name, received, buffer.len()).map(Some),
            status::WOULD_BLOCK => Ok(None),
            code => Err(self.failed(code, &error)),
        }
    }
}

impl Connection for PluginConnection {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        let mut error = TowlineErrorV1::new();
        let send = self.functions().send;
        // SAFETY: the connection is alive, and the parts are readable; `IoSlice` has the layout of `iovec` on Unix.
        let code = unsafe { send(self.object.raw(), parts.as_ptr(), parts.len(), &mut error) };
        match code {
            status::OK => Ok(()),
            code => Err(self.failed(code, &error)),
        }
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut sent = 0;
        let mut error = TowlineErrorV1::new();
        let try_send = self.functions().try_send;
        // SAFETY: the connection is alive, and the bytes are readable.
        let code = unsafe {
            try_send(
                self.object.raw(),
                bytes.as_ptr(),
                bytes.len(),
                &mut sent,
                &mut error,
            )
        };
        match code {
            status::OK => self.checked("try_send", sent, bytes.len()),
            status::WOULD_BLOCK => Ok(0),
            code => Err(self.failed(code, &error)),
        }
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        self.recv_by(self.functions().recv, "recv", buffer)?
            .ok_or_else(|| {
                self.object
                    .plugin
                    .broken("recv would block, which it must not say".into())
            })
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        self.recv_by(self.functions().try_recv, "try_recv", buffer)
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        let timeout_ns = timeout.map_or(-1, |timeout| {
            i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX)
        });
        let mut readable = 0;
        let mut error = TowlineErrorV1::new();
        let wait_readable = self.functions().wait_readable;
        // SAFETY: the connection is alive; the others live through the call.
        let code =
            unsafe { wait_readable(self.object.raw(), timeout_ns, &mut readable, &mut error) };
        match code {
            status::OK => Ok(readable != 0),
            code => Err(self.failed(code, &error)),
        }
    }

    fn shutdown(&self) {
        let shutdown = self.functions().shutdown;
        // SAFETY: the connection is alive.
        unsafe { shutdown(self.object.raw()) }
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: by the ABI it stays open until the connection is freed, which the borrow of `self` outlasts not.
        self.descriptor
            .map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
