//! The objects of one connection: identifier, queue pair, completion queue and registered memory, freed together.
//!
//! Memory is registered without remote rights: a peer reaches it only by messages, in slots that were posted for them.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};

use super::verbs::{self, Verbs, WorkCompletion};
use crate::shared_memory::SharedMemory;

/// Messages beside data that a side may have under way: credits, the end, and probes.
pub(super) const CONTROL_SLOTS: u32 = 8;
/// Bytes before the payload of a message.
pub(super) const HEADER_BYTES: usize = 8;
/// Messages up to this size go with the request itself, if the adapter can.
const INLINE_BYTES: u32 = 256;
/// Apart, so that a control message does not share a cache line with another.
const CONTROL_STRIDE: usize = 64;

/// Messages that a side takes before it has read one, and their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) slots: u32,
    pub(super) slot_bytes: u32,
}

/// A channel on which the connection manager tells of identifiers.
pub(super) struct Events {
    verbs: &'static Verbs,
    channel: NonNull<verbs::EventChannel>,
}

// SAFETY: librdmacm's functions may be called from any thread.
unsafe impl Send for Events {}
// SAFETY: as above; an event that one thread has taken, no other gets.
unsafe impl Sync for Events {}

/// The manager's news of an identifier.
pub(super) struct Event {
    pub(super) id: *mut verbs::CmId,
    pub(super) kind: c_int,
    pub(super) status: c_int,
    /// Data that the peer sent along.
    pub(super) private: Vec<u8>,
}

impl Events {
    pub(super) fn open(verbs: &'static Verbs) -> io::Result<Self> {
        // SAFETY: the function has no precondition.
        let channel = unsafe { (verbs.rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let events = Self { verbs, channel };
        set_nonblocking(events.descriptor())?;
        Ok(events)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value.
        let fd = unsafe { self.channel.as_ref() }.fd;
        // SAFETY: the channel has the descriptor open for as long.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The next event, if there is one.
    pub(super) fn next(&self) -> io::Result<Option<Event>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is alive, and the event is written to a place of ours.
        if unsafe { (self.verbs.rdma_get_cm_event)(self.channel.as_ptr(), &mut event) } != 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            };
        }
        // SAFETY: the function has succeeded, and the event is valid until it is acknowledged.
        let told = unsafe { &*event };
        let (private, len) = (
            told.parameters.private_data,
            told.parameters.private_data_len,
        );
        let carries = [
            verbs::event::CONNECT_REQUEST,
            verbs::event::ESTABLISHED,
            verbs::event::REJECTED,
        ];
        let private = match carries.contains(&told.kind) && !private.is_null() {
            // SAFETY: for these kinds the event has this many bytes there.
            true => unsafe { std::slice::from_raw_parts(private, len.into()) }.to_vec(),
            false => Vec::new(),
        };
        let copy = Event {
            id: told.id,
            kind: told.kind,
            status: told.status,
            private,
        };
        // SAFETY: the event is of that function, and `told` is not used any more.
        unsafe { (self.verbs.rdma_ack_cm_event)(event) };
        Ok(Some(copy))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: identifiers hold their channel, so that none is left.
        unsafe { (self.verbs.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

/// See the module's text. Without [`Self::prepare`] it has an identifier only, as a listener needs.
pub(super) struct Endpoint {
    verbs: &'static Verbs,
    id: NonNull<verbs::CmId>,
    domain: *mut std::ffi::c_void,
    channel: *mut verbs::CompletionChannel,
    queue: *mut verbs::Cq,
    pair: *mut verbs::Qp,
    region: *mut verbs::Mr,
    memory: Option<SharedMemory>,
    lkey: u32,
    inline_bytes: usize,
    window: Window,
    events: Arc<Events>,
}

// SAFETY: verbs may be called from any thread. Which thread has which slot of the memory is the connection's to say.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

impl Endpoint {
    /// Takes an identifier that an event brought.
    pub(super) fn of(verbs: &'static Verbs, id: NonNull<verbs::CmId>, events: Arc<Events>) -> Self {
        Self {
            verbs,
            id,
            domain: ptr::null_mut(),
            channel: ptr::null_mut(),
            queue: ptr::null_mut(),
            pair: ptr::null_mut(),
            region: ptr::null_mut(),
            memory: None,
            lkey: 0,
            inline_bytes: 0,
            window: Window {
                slots: 0,
                slot_bytes: 0,
            },
            events,
        }
    }

    /// Makes an identifier.
    pub(super) fn open(verbs: &'static Verbs) -> io::Result<Self> {
        let events = Arc::new(Events::open(verbs)?);
        let mut id = ptr::null_mut();
        // SAFETY: the channel is alive and held below; the identifier is written to a place of ours.
        done(unsafe {
            (verbs.rdma_create_id)(
                events.channel.as_ptr(),
                &mut id,
                ptr::null_mut(),
                verbs::PS_TCP,
            )
        })?;
        let id = NonNull::new(id).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self::of(verbs, id, events))
    }

    pub(super) fn events(&self) -> &Arc<Events> {
        &self.events
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    pub(super) fn id(&self) -> *mut verbs::CmId {
        self.id.as_ptr()
    }

    /// Makes all that is needed to connect or accept, and posts what receives messages. An address is resolved or was asked for.
    pub(super) fn prepare(&mut self, window: Window) -> io::Result<()> {
        self.window = window;
        // SAFETY: the identifier is alive.
        let context = unsafe { self.id.as_ref() }.verbs;
        // SAFETY: the identifier has its device, whose context the library keeps open.
        self.domain = made(unsafe { (self.verbs.ibv_alloc_pd)(context) })?;
        // SAFETY: as above.
        self.channel = made(unsafe { (self.verbs.ibv_create_comp_channel)(context) })?;
        set_nonblocking(self.completions())?;
        let requests = window.slots + CONTROL_SLOTS;
        let both = c_int::try_from(2 * requests).unwrap_or(c_int::MAX);
        // SAFETY: context and channel are alive.
        self.queue = made(unsafe {
            (self.verbs.ibv_create_cq)(context, both, ptr::null_mut(), self.channel, 0)
        })?;
        self.make_pair(requests)?;
        self.register()?;
        (0..requests).try_for_each(|slot| self.post_receive(slot))
    }

    /// Not every adapter takes data with requests.
    fn make_pair(&mut self, requests: u32) -> io::Result<()> {
        let mut result = Ok(());
        for inline in [INLINE_BYTES, 0] {
            let mut attributes = verbs::QpInit {
                qp_context: ptr::null_mut(),
                send_cq: self.queue,
                recv_cq: self.queue,
                srq: ptr::null_mut(),
                max_send_wr: requests,
                max_recv_wr: requests,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline,
                qp_type: verbs::QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: identifier, domain and queue are alive and of one device; the attributes are read and written within the call.
            result = done(unsafe {
                (self.verbs.rdma_create_qp)(self.id.as_ptr(), self.domain, &mut attributes)
            });
            if result.is_ok() {
                // SAFETY: the identifier is alive.
                self.pair = unsafe { self.id.as_ref() }.qp;
                self.inline_bytes = inline as usize;
                break;
            }
        }
        result
    }

    fn register(&mut self) -> io::Result<()> {
        let slots = (self.window.slots * 2 + CONTROL_SLOTS) as usize;
        let len = slots * self.window.slot_bytes as usize + CONTROL_SLOTS as usize * CONTROL_STRIDE;
        let memory = SharedMemory::allocate("towline-rdma", len)?;
        let start = memory.start().as_ptr().cast();
        // SAFETY: the memory is mapped, and stays so until the region is gone; only local rights are given.
        let region =
            unsafe { (self.verbs.ibv_reg_mr)(self.domain, start, len, verbs::ACCESS_LOCAL_WRITE) };
        self.region = made(region).map_err(|error| explain_limit(len, error))?;
        // SAFETY: the region has just been made.
        self.lkey = unsafe { (*self.region).lkey };
        self.memory = Some(memory);
        Ok(())
    }

    /// Moves the identifier to a channel of its own.
    pub(super) fn take_events(&mut self) -> io::Result<()> {
        let events = Arc::new(Events::open(self.verbs)?);
        // SAFETY: both channels are alive; every event of the identifier has been acknowledged.
        done(unsafe { (self.verbs.rdma_migrate_id)(self.id.as_ptr(), events.channel.as_ptr()) })?;
        self.events = events;
        Ok(())
    }

    /// Readable when a completion has come that was asked for by [`Self::arm`].
    pub(super) fn completions(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value.
        let fd = unsafe { (*self.channel).fd };
        // SAFETY: the channel has the descriptor open for as long.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Asks for one notice of the next completion.
    pub(super) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue lives as long as this value.
        refused(unsafe { verbs::req_notify_cq(self.queue) })
    }

    /// Takes the notices that have come.
    pub(super) fn disarm(&self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive and does not block; the results are written to places of ours.
        while unsafe { (self.verbs.ibv_get_cq_event)(self.channel, &mut queue, &mut context) } == 0
        {
            // SAFETY: the queue is alive, and one notice of it was taken.
            unsafe { (self.verbs.ibv_ack_cq_events)(queue, 1) };
        }
    }

    /// Takes completions that are there.
    pub(super) fn poll<'a>(
        &self,
        places: &'a mut [WorkCompletion],
    ) -> io::Result<&'a [WorkCompletion]> {
        // SAFETY: the queue lives as long as this value.
        let count = unsafe { verbs::poll_cq(self.queue, places) };
        match usize::try_from(count) {
            Ok(count) => Ok(&places[..count]),
            Err(_) => Err(io::Error::other("the completion queue cannot be read")),
        }
    }

    /// Gives a slot to the adapter for the next message.
    pub(super) fn post_receive(&self, slot: u32) -> io::Result<()> {
        let mut piece = verbs::Piece {
            address: self.address(slot as usize * self.window.slot_bytes as usize),
            length: self.window.slot_bytes,
            lkey: self.lkey,
        };
        let mut request = verbs::ReceiveRequest {
            wr_id: work::RECEIVE | u64::from(slot),
            next: ptr::null_mut(),
            pieces: &mut piece,
            piece_count: 1,
        };
        // SAFETY: the slot is within the region, and its bytes were taken: nobody looks at it before its next completion.
        refused(unsafe { verbs::post_recv(self.pair, &mut request) })
    }

    /// Sends `len` bytes that lie at `offset`. Only requests that are to tell have a completion, and those before it have then completed.
    pub(super) fn post_send(
        &self,
        work: u64,
        offset: usize,
        len: usize,
        tells: bool,
    ) -> io::Result<()> {
        let mut piece = verbs::Piece {
            address: self.address(offset),
            length: len as u32,
            lkey: self.lkey,
        };
        let when = |condition, flag| if condition { flag } else { 0 };
        let flags =
            when(len <= self.inline_bytes, verbs::SEND_INLINE) | when(tells, verbs::SEND_SIGNALED);
        self.post(work, verbs::WR_SEND, flags, Some(&mut piece))
    }

    /// Writes nothing to nowhere: the peer's adapter answers, if it is there.
    pub(super) fn post_probe(&self, work: u64) -> io::Result<()> {
        self.post(work, verbs::WR_RDMA_WRITE, verbs::SEND_SIGNALED, None)
    }

    fn post(
        &self,
        work: u64,
        opcode: c_int,
        send_flags: u32,
        piece: Option<&mut verbs::Piece>,
    ) -> io::Result<()> {
        let piece_count = piece.is_some().into();
        let mut request = verbs::SendRequest {
            wr_id: work,
            next: ptr::null_mut(),
            pieces: piece.map_or(ptr::null_mut(), ptr::from_mut),
            piece_count,
            opcode,
            send_flags,
            immediate: 0,
            remote_address: 0,
            remote_key: 0,
            _other_opcodes: [0; 9],
        };
        // SAFETY: the bytes are within the region, and their slot is left alone until the completion.
        refused(unsafe { verbs::post_send(self.pair, &mut request) })
    }

    /// Offset of the bytes that a receive slot holds.
    pub(super) fn receive_at(&self, slot: u32) -> usize {
        slot as usize * self.window.slot_bytes as usize
    }

    /// Offset of a data message to send, by its number.
    pub(super) fn send_at(&self, number: u64) -> usize {
        let slot =
            self.window.slots + CONTROL_SLOTS + (number % u64::from(self.window.slots)) as u32;
        self.receive_at(slot)
    }

    /// Offset of a control message, by its number.
    pub(super) fn control_at(&self, number: u64) -> usize {
        let first = self.receive_at(self.window.slots * 2 + CONTROL_SLOTS);
        first + (number % u64::from(CONTROL_SLOTS)) as usize * CONTROL_STRIDE
    }

    /// Copies bytes into a slot that the caller has.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let place = self.place(offset, bytes.len());
        // SAFETY: the place is within the mapping, and only the caller uses its slot.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Copies bytes out of a slot that the caller has.
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        let place = self.place(offset, bytes.len());
        // SAFETY: as for `write`; the adapter writes to posted slots only.
        unsafe { ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
    }

    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        let memory = self
            .memory
            .as_ref()
            .expect("a prepared endpoint has memory");
        assert!(
            offset + len <= memory.len(),
            "a slot lies within its memory"
        );
        memory.start().as_ptr().wrapping_add(offset)
    }

    fn address(&self, offset: usize) -> u64 {
        self.place(offset, 0).expose_provenance() as u64
    }

    /// Waits for the next event until `left` has passed.
    pub(super) fn wait_event(&self, left: std::time::Duration) -> io::Result<Option<Event>> {
        let left = rustix::event::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut watched = [PollFd::from_borrowed_fd(
            self.events.descriptor(),
            PollFlags::IN,
        )];
        match poll(&mut watched, Some(&left)) {
            Ok(0) => Ok(None),
            Ok(_) | Err(rustix::io::Errno::INTR) => self.events.next(),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tells the peer that this is the end, and flushes what is posted.
    pub(super) fn disconnect(&self) {
        // SAFETY: the identifier is alive. It fails only where the connection is gone.
        unsafe { (self.verbs.rdma_disconnect)(self.id.as_ptr()) };
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.pair.is_null() {
            // SAFETY: the identifier is alive and has a queue pair.
            unsafe { (self.verbs.rdma_destroy_qp)(self.id.as_ptr()) };
        }
        if !self.queue.is_null() {
            // SAFETY: no queue pair is left, and every notice was acknowledged.
            unsafe { (self.verbs.ibv_destroy_cq)(self.queue) };
        }
        if !self.channel.is_null() {
            // SAFETY: no queue is left.
            unsafe { (self.verbs.ibv_destroy_comp_channel)(self.channel) };
        }
        if !self.region.is_null() {
            // SAFETY: no request is left that names it.
            unsafe { (self.verbs.ibv_dereg_mr)(self.region) };
        }
        if !self.domain.is_null() {
            // SAFETY: nothing of the domain is left.
            unsafe { (self.verbs.ibv_dealloc_pd)(self.domain) };
        }
        // SAFETY: every event of it was acknowledged, and its channel is alive.
        unsafe { (self.verbs.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

/// Numbers of work requests: a kind, and its count or slot.
pub(super) mod work {
    pub(crate) const RECEIVE: u64 = 1 << 62;
    pub(crate) const CONTROL: u64 = 1 << 61;
    pub(crate) const NUMBER: u64 = CONTROL - 1;
}

/// The outcome of a function that sets `errno`.
pub(super) fn done(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The outcome of a function that gives the error itself.
fn refused(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno.abs())),
    }
}

fn made<T>(object: *mut T) -> io::Result<*mut T> {
    match object.is_null() {
        true => Err(io::Error::last_os_error()),
        false => Ok(object),
    }
}

fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(
        descriptor.as_fd(),
        flags | OFlags::NONBLOCK,
    )?)
}

/// Registered memory counts as locked.
fn explain_limit(len: usize, error: io::Error) -> io::Error {
    let limit = getrlimit(Resource::Memlock).current;
    match limit {
        Some(limit) => io::Error::new(
            error.kind(),
            format!(
                "{error}: the adapter needs {len} bytes of locked memory, and this process may lock {limit} in all; \
                 raise the limit (`ulimit -l unlimited`, LimitMEMLOCK=infinity for a service)"
            ),
        ),
        None => error,
    }
}
