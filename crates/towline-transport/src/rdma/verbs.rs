//! libibverbs and librdmacm, loaded when RDMA is first asked for, and the parts of their stable ABI that are used here.
//!
//! A machine without them runs the same program. `layout` in the tests compares each field with the installed headers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use libloading::Library;

pub(super) const PS_TCP: c_int = 0x0106;
/// As many reads under way as the device can.
pub(super) const MOST_READS: u8 = 0xff;
pub(super) const QPT_RC: c_int = 2;
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(super) const ACCESS_REMOTE_READ: c_int = 4;
pub(super) const TRANSPORT_IWARP: c_int = 1;
pub(super) const WR_RDMA_WRITE: c_int = 0;
pub(super) const WR_SEND: c_int = 2;
pub(super) const WR_RDMA_READ: c_int = 4;
pub(super) const SEND_SIGNALED: u32 = 2;
pub(super) const SEND_INLINE: u32 = 8;
pub(super) const WC_SUCCESS: c_int = 0;
pub(super) const WC_WR_FLUSH_ERR: c_int = 5;
pub(super) const WC_RETRY_EXC_ERR: c_int = 12;

/// Kinds of [`CmEvent`].
pub(super) mod event {
    pub(crate) const ADDR_RESOLVED: i32 = 0;
    pub(crate) const ADDR_ERROR: i32 = 1;
    pub(crate) const ROUTE_RESOLVED: i32 = 2;
    pub(crate) const ROUTE_ERROR: i32 = 3;
    pub(crate) const CONNECT_REQUEST: i32 = 4;
    pub(crate) const UNREACHABLE: i32 = 7;
    pub(crate) const REJECTED: i32 = 8;
    pub(crate) const ESTABLISHED: i32 = 9;
    pub(crate) const DISCONNECTED: i32 = 10;
    pub(crate) const DEVICE_REMOVAL: i32 = 11;
}

/// Of `struct ibv_context` the part that every version has: the table of the provider's functions.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    _before_poll: [*mut c_void; 11],
    poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int,
    req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    _between: [*mut c_void; 11],
    _before_post: *mut c_void,
    post_send: unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    post_recv:
        unsafe extern "C" fn(*mut Qp, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
}

/// The start of `struct ibv_device`.
#[repr(C)]
pub(super) struct Device {
    _functions: [*mut c_void; 2],
    _node_type: c_int,
    pub(super) transport_type: c_int,
}

/// The start of `struct ibv_cq`.
#[repr(C)]
pub(super) struct Cq {
    context: *mut Context,
}

/// The start of `struct ibv_qp`.
#[repr(C)]
pub(super) struct Qp {
    context: *mut Context,
}

/// The start of `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct CompletionChannel {
    _context: *mut Context,
    pub(super) fd: c_int,
}

/// The start of `struct ibv_mr`.
#[repr(C)]
pub(super) struct Mr {
    _context: *mut Context,
    _pd: *mut c_void,
    _address: *mut c_void,
    _length: usize,
    _handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendRequest,
    pub(super) pieces: *mut Piece,
    pub(super) piece_count: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: u32,
    pub(super) immediate: u32,
    pub(super) remote_address: u64,
    pub(super) remote_key: u32,
    pub(super) _other_opcodes: [u64; 9],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(super) struct ReceiveRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut ReceiveRequest,
    pub(super) pieces: *mut Piece,
    pub(super) piece_count: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct WorkCompletion {
    pub(super) wr_id: u64,
    pub(super) status: c_int,
    _opcode: c_int,
    _vendor_error: u32,
    pub(super) byte_len: u32,
    _rest: [u32; 6],
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInit {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

/// The start of `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// The start of `struct rdma_cm_id`.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    _channel: *mut EventChannel,
    _context: *mut c_void,
    pub(super) qp: *mut Qp,
    pub(super) source: SocketAddress,
    pub(super) destination: SocketAddress,
}

/// A union of socket addresses as large as `struct sockaddr_storage`.
pub(super) type SocketAddress = libc::sockaddr_storage;

/// `struct rdma_cm_event`, of whose union connections need one part.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) kind: c_int,
    pub(super) status: c_int,
    pub(super) parameters: ConnectionParameters,
}

/// `struct rdma_conn_param`.
#[repr(C)]
pub(super) struct ConnectionParameters {
    pub(super) private_data: *const u8,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

macro_rules! functions {
    ($($library:ident { $($name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions, by their C names.
        pub(super) struct Verbs {
            $($(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Verbs {
            fn of($($library: &Library),*) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($($name: {
                        // SAFETY: both libraries keep these functions and their signatures under the sonames that are loaded.
                        *unsafe { $library.get(stringify!($name)) }?
                    },)*)*
                })
            }
        }
    };
}

functions! {
    ibverbs {
        ibv_fork_init() -> c_int;
        ibv_get_device_list(*mut c_int) -> *mut *mut c_void;
        ibv_free_device_list(*mut *mut c_void);
        ibv_alloc_pd(*mut Context) -> *mut c_void;
        ibv_dealloc_pd(*mut c_void) -> c_int;
        ibv_reg_mr(*mut c_void, *mut c_void, usize, c_int) -> *mut Mr;
        ibv_dereg_mr(*mut Mr) -> c_int;
        ibv_create_comp_channel(*mut Context) -> *mut CompletionChannel;
        ibv_destroy_comp_channel(*mut CompletionChannel) -> c_int;
        ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
        ibv_destroy_cq(*mut Cq) -> c_int;
        ibv_get_cq_event(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events(*mut Cq, u32);
        ibv_wc_status_str(c_int) -> *const c_char;
    }
    rdmacm {
        rdma_create_event_channel() -> *mut EventChannel;
        rdma_destroy_event_channel(*mut EventChannel);
        rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id(*mut CmId) -> c_int;
        rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
        rdma_bind_addr(*mut CmId, *mut libc::sockaddr) -> c_int;
        rdma_listen(*mut CmId, c_int) -> c_int;
        rdma_resolve_addr(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route(*mut CmId, c_int) -> c_int;
        rdma_create_qp(*mut CmId, *mut c_void, *mut QpInit) -> c_int;
        rdma_destroy_qp(*mut CmId);
        rdma_connect(*mut CmId, *mut ConnectionParameters) -> c_int;
        rdma_accept(*mut CmId, *mut ConnectionParameters) -> c_int;
        rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
        rdma_disconnect(*mut CmId) -> c_int;
        rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        rdma_ack_cm_event(*mut CmEvent) -> c_int;
    }
}

impl Verbs {
    /// The libraries, once a device is there; in the error, what is missing and what to do.
    pub(super) fn get() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Verbs, String>> = OnceLock::new();
        let verbs = LOADED
            .get_or_init(Self::load)
            .as_ref()
            .map_err(String::clone)?;
        match verbs.has_device() {
            true => Ok(verbs),
            false => Err(
                "this host has no RDMA device, or this process may not open it: `rdma link` lists devices, and containers need /dev/infiniband"
                    .into(),
            ),
        }
    }

    fn load() -> Result<Self, String> {
        let open = |name| {
            // SAFETY: the initialisers of the system's own libraries run.
            unsafe { Library::new(name) }
                // Their threads and handlers outlive any count of connections.
                .map(ManuallyDrop::new)
                .map_err(|error| {
                    format!("{error}: install rdma-core's libraries (Debian: libibverbs1, librdmacm1, ibverbs-providers)")
                })
        };
        let (ibverbs, rdmacm) = (open("libibverbs.so.1")?, open("librdmacm.so.1")?);
        let verbs = Self::of(&ibverbs, &rdmacm).map_err(|error| error.to_string())?;
        // A program may fork: a copy of registered pages must not take them from the adapter.
        // SAFETY: no other function of the library has been called.
        if unsafe { (verbs.ibv_fork_init)() } != 0 {
            log::debug!(
                "this kernel does not keep registered memory from children that the program forks"
            );
        }
        Ok(verbs)
    }

    fn has_device(&self) -> bool {
        let mut count = 0;
        // SAFETY: the count is written to a place of ours.
        let list = unsafe { (self.ibv_get_device_list)(&mut count) };
        if !list.is_null() {
            // SAFETY: the list is one of that function, and nothing of it is kept.
            unsafe { (self.ibv_free_device_list)(list) };
        }
        count > 0
    }

    /// The name of a completion's status.
    pub(super) fn status(&self, status: c_int) -> String {
        // SAFETY: the function takes any number.
        let text = unsafe { (self.ibv_wc_status_str)(status) };
        // SAFETY: the library's texts end with NUL and are constant.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

/// `ibv_poll_cq`, which is inline in C.
///
/// # Safety
///
/// The queue is alive.
pub(super) unsafe fn poll_cq(cq: *mut Cq, completions: &mut [WorkCompletion]) -> c_int {
    // SAFETY: the caller's contract.
    let context = unsafe { (*cq).context };
    // SAFETY: a queue points to its context as long as it lives.
    let poll = unsafe { (*context).poll_cq };
    // SAFETY: the array has as many places as is said; a completion is of numbers only.
    unsafe { poll(cq, completions.len() as c_int, completions.as_mut_ptr()) }
}

/// `ibv_req_notify_cq`.
///
/// # Safety
///
/// The queue is alive.
pub(super) unsafe fn req_notify_cq(cq: *mut Cq) -> c_int {
    // SAFETY: the caller's contract.
    let context = unsafe { (*cq).context };
    // SAFETY: a queue points to its context as long as it lives.
    let notify = unsafe { (*context).req_notify_cq };
    // SAFETY: the caller's contract.
    unsafe { notify(cq, 0) }
}

/// `ibv_post_send`.
///
/// # Safety
///
/// The queue pair is alive; memory that the request names stays registered and unchanged until its completion.
pub(super) unsafe fn post_send(qp: *mut Qp, request: &mut SendRequest) -> c_int {
    // SAFETY: the caller's contract.
    let context = unsafe { (*qp).context };
    // SAFETY: a queue pair points to its context as long as it lives.
    let post = unsafe { (*context).post_send };
    let mut refused = std::ptr::null_mut();
    // SAFETY: the caller's contract; the request is read within the call.
    unsafe { post(qp, request, &mut refused) }
}

/// `ibv_post_recv`.
///
/// # Safety
///
/// The queue pair is alive; nothing else uses memory that the request names until its completion.
pub(super) unsafe fn post_recv(qp: *mut Qp, request: &mut ReceiveRequest) -> c_int {
    // SAFETY: the caller's contract.
    let context = unsafe { (*qp).context };
    // SAFETY: a queue pair points to its context as long as it lives.
    let post = unsafe { (*context).post_recv };
    let mut refused = std::ptr::null_mut();
    // SAFETY: the caller's contract; the request is read within the call.
    unsafe { post(qp, request, &mut refused) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::mem::offset_of;
    use std::process::{Command, Stdio};

    use super::*;

    /// A C program that prints offsets and values, and what they are here.
    fn layout() -> Vec<(&'static str, usize)> {
        macro_rules! offset {
            ($c:literal, $type:ty, $field:ident) => {
                (
                    concat!("offsetof(struct ", $c, ")"),
                    offset_of!($type, $field),
                )
            };
        }
        vec![
            offset!("ibv_context, ops.poll_cq", Context, poll_cq),
            offset!("ibv_context, ops.req_notify_cq", Context, req_notify_cq),
            offset!("ibv_context, ops.post_send", Context, post_send),
            offset!("ibv_context, ops.post_recv", Context, post_recv),
            offset!("ibv_cq, context", Cq, context),
            offset!("ibv_qp, context", Qp, context),
            offset!("ibv_comp_channel, fd", CompletionChannel, fd),
            offset!("ibv_context, device", Context, device),
            offset!("ibv_device, transport_type", Device, transport_type),
            offset!("ibv_mr, lkey", Mr, lkey),
            offset!("ibv_mr, rkey", Mr, rkey),
            offset!("ibv_sge, lkey", Piece, lkey),
            ("sizeof(struct ibv_sge)", size_of::<Piece>()),
            offset!("ibv_send_wr, sg_list", SendRequest, pieces),
            offset!("ibv_send_wr, num_sge", SendRequest, piece_count),
            offset!("ibv_send_wr, opcode", SendRequest, opcode),
            offset!("ibv_send_wr, send_flags", SendRequest, send_flags),
            offset!(
                "ibv_send_wr, wr.rdma.remote_addr",
                SendRequest,
                remote_address
            ),
            offset!("ibv_send_wr, wr.rdma.rkey", SendRequest, remote_key),
            ("sizeof(struct ibv_send_wr)", size_of::<SendRequest>()),
            offset!("ibv_recv_wr, sg_list", ReceiveRequest, pieces),
            ("sizeof(struct ibv_recv_wr)", size_of::<ReceiveRequest>()),
            offset!("ibv_wc, status", WorkCompletion, status),
            offset!("ibv_wc, byte_len", WorkCompletion, byte_len),
            ("sizeof(struct ibv_wc)", size_of::<WorkCompletion>()),
            offset!("ibv_qp_init_attr, send_cq", QpInit, send_cq),
            offset!("ibv_qp_init_attr, cap", QpInit, max_send_wr),
            offset!(
                "ibv_qp_init_attr, cap.max_inline_data",
                QpInit,
                max_inline_data
            ),
            offset!("ibv_qp_init_attr, qp_type", QpInit, qp_type),
            offset!("ibv_qp_init_attr, sq_sig_all", QpInit, sq_sig_all),
            ("sizeof(struct ibv_qp_init_attr)", size_of::<QpInit>()),
            offset!("rdma_event_channel, fd", EventChannel, fd),
            offset!("rdma_cm_id, verbs", CmId, verbs),
            offset!("rdma_cm_id, qp", CmId, qp),
            offset!("rdma_cm_id, route.addr.src_addr", CmId, source),
            offset!("rdma_cm_id, route.addr.dst_addr", CmId, destination),
            offset!("rdma_cm_event, listen_id", CmEvent, listen_id),
            offset!("rdma_cm_event, event", CmEvent, kind),
            offset!("rdma_cm_event, status", CmEvent, status),
            offset!("rdma_cm_event, param.conn", CmEvent, parameters),
            offset!(
                "rdma_conn_param, private_data_len",
                ConnectionParameters,
                private_data_len
            ),
            offset!(
                "rdma_conn_param, responder_resources",
                ConnectionParameters,
                responder_resources
            ),
            offset!(
                "rdma_conn_param, retry_count",
                ConnectionParameters,
                retry_count
            ),
            (
                "sizeof(struct rdma_conn_param)",
                size_of::<ConnectionParameters>(),
            ),
            ("RDMA_PS_TCP", PS_TCP as usize),
            ("RDMA_MAX_RESP_RES", MOST_READS.into()),
            ("RDMA_MAX_INIT_DEPTH", MOST_READS.into()),
            ("IBV_QPT_RC", QPT_RC as usize),
            ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE as usize),
            ("IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE as usize),
            ("IBV_ACCESS_REMOTE_READ", ACCESS_REMOTE_READ as usize),
            ("IBV_TRANSPORT_IWARP", TRANSPORT_IWARP as usize),
            ("IBV_WR_RDMA_WRITE", WR_RDMA_WRITE as usize),
            ("IBV_WR_SEND", WR_SEND as usize),
            ("IBV_WR_RDMA_READ", WR_RDMA_READ as usize),
            ("IBV_SEND_SIGNALED", SEND_SIGNALED as usize),
            ("IBV_SEND_INLINE", SEND_INLINE as usize),
            ("IBV_WC_SUCCESS", WC_SUCCESS as usize),
            ("IBV_WC_WR_FLUSH_ERR", WC_WR_FLUSH_ERR as usize),
            ("IBV_WC_RETRY_EXC_ERR", WC_RETRY_EXC_ERR as usize),
            ("RDMA_CM_EVENT_ADDR_RESOLVED", event::ADDR_RESOLVED as usize),
            ("RDMA_CM_EVENT_ADDR_ERROR", event::ADDR_ERROR as usize),
            (
                "RDMA_CM_EVENT_ROUTE_RESOLVED",
                event::ROUTE_RESOLVED as usize,
            ),
            ("RDMA_CM_EVENT_ROUTE_ERROR", event::ROUTE_ERROR as usize),
            (
                "RDMA_CM_EVENT_CONNECT_REQUEST",
                event::CONNECT_REQUEST as usize,
            ),
            ("RDMA_CM_EVENT_UNREACHABLE", event::UNREACHABLE as usize),
            ("RDMA_CM_EVENT_REJECTED", event::REJECTED as usize),
            ("RDMA_CM_EVENT_ESTABLISHED", event::ESTABLISHED as usize),
            ("RDMA_CM_EVENT_DISCONNECTED", event::DISCONNECTED as usize),
            (
                "RDMA_CM_EVENT_DEVICE_REMOVAL",
                event::DEVICE_REMOVAL as usize,
            ),
        ]
    }

    #[test]
    fn layout_matches_installed_headers() {
        if !std::path::Path::new("/usr/include/rdma/rdma_cma.h").exists() {
            eprintln!("SKIPPED: no headers of librdmacm (scripts/setup test installs them)");
            return;
        }
        let mut source = String::from("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n");
        for (expression, ours) in layout() {
            source += &format!(
                "_Static_assert({expression} == {ours}, \"{expression} is not {ours}\");\n"
            );
        }
        let mut compiler = Command::new("cc")
            .args(["-fsyntax-only", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        compiler
            .stdin
            .take()
            .unwrap()
            .write_all(source.as_bytes())
            .unwrap();
        assert!(compiler.wait().unwrap().success());
    }
}
