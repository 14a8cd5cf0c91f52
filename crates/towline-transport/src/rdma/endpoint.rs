//! The objects of one connection: identifier, queue pair, completion queue and registered memory, freed together.
//!
//! Its memory is registered without remote rights: a peer reaches it only by messages, in slots that were posted for them. Rings that a
//! peer is to write or read are registered apart ([`Endpoint::lend`]).

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};

use super::connection::Side;
use super::verbs::{self, Verbs, WorkCompletion};
use crate::pinned;
use crate::shared_memory::SharedMemory;

/// Messages beside data that a side may have under way: credits, the end, and probes.
pub(super) const CONTROL_SLOTS: u32 = 16;
/// Bytes before the payload of a message.
pub(super) const HEADER_BYTES: usize = 16;
/// Reads of a peer's ring that may be under way.
pub(super) const READS: u32 = 8;
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
    domain: Option<Arc<Domain>>,
    channel: *mut verbs::CompletionChannel,
    queue: *mut verbs::Cq,
    pair: *mut verbs::Qp,
    region: *mut verbs::Mr,
    memory: Option<SharedMemory>,
    lkey: u32,
    inline_bytes: usize,
    window: Window,
    /// Bytes behind the slots that reads of a peer's ring go to.
    stage_bytes: usize,
    lent: Mutex<Vec<Lent>>,
    events: Arc<Events>,
}

/// Registrations and queue pairs belong to a domain, and go together only within it.
struct Domain {
    verbs: &'static Verbs,
    raw: NonNull<c_void>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// The domains that connections of this process share, by the device's context.
static SHARED: Mutex<Vec<(usize, Weak<Domain>)>> = Mutex::new(Vec::new());

impl Domain {
    fn new(verbs: &'static Verbs, context: *mut verbs::Context) -> io::Result<Self> {
        // SAFETY: an identifier has its device, whose context the library keeps open.
        let raw = made(unsafe { (verbs.ibv_alloc_pd)(context) })?;
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { verbs, raw })
    }

    fn shared(verbs: &'static Verbs, context: *mut verbs::Context) -> io::Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(_, domain)| domain.strong_count() > 0);
        let known = shared.iter().find(|(known, _)| *known == context.addr());
        if let Some(domain) = known.and_then(|(_, domain)| domain.upgrade()) {
            return Ok(domain);
        }
        let domain = Arc::new(Self::new(verbs, context)?);
        shared.push((context.addr(), Arc::downgrade(&domain)));
        Ok(domain)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: nothing of the domain is left.
        unsafe { (self.verbs.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Memory of the program that is registered for local use.
pub(super) struct Registered {
    verbs: &'static Verbs,
    domain: Arc<Domain>,
    /// `None` where it was not to be, or the adapter did not take it.
    region: Option<NonNull<verbs::Mr>>,
    len: usize,
    /// Of this process, and not of a child that has a copy of it.
    process: u32,
}

/// Bytes of such memory. The connections' own has to fit into the limit too.
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    fn new(verbs: &'static Verbs, domain: Arc<Domain>, start: usize, len: usize) -> Self {
        let address = ptr::with_exposed_provenance_mut(start);
        let mut registered = Self {
            verbs,
            domain,
            region: None,
            len,
            process: std::process::id(),
        };
        let limit = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
        let total = REGISTERED.load(Ordering::Relaxed).saturating_add(len);
        if total as u64 > limit / 2 || !(copies_on_fork() || is_of_pages(start, len)) {
            log::debug!(
                "pinned memory at {start:#x} is copied: locked memory is limited to {limit}"
            );
            return registered;
        }
        // SAFETY: the program has pinned the range, so that its pages stay until it is withdrawn; only local rights are given.
        let region = unsafe {
            (verbs.ibv_reg_mr)(
                registered.domain.raw.as_ptr(),
                address,
                len,
                verbs::ACCESS_LOCAL_WRITE,
            )
        };
        if region.is_null() {
            let error = explain_limit(len, io::Error::last_os_error());
            log::debug!("pinned memory at {start:#x} is copied: {error}");
        }
        registered.region = NonNull::new(region);
        if registered.region.is_some() {
            REGISTERED.fetch_add(len, Ordering::Relaxed);
        }
        registered
    }

    /// Bytes of it.
    pub(super) fn piece(&self, bytes: *const u8, len: usize) -> verbs::Piece {
        verbs::Piece {
            address: bytes.expose_provenance() as u64,
            length: len as u32,
            // SAFETY: the region lives as long as this value.
            lkey: self
                .region
                .map_or(0, |region| unsafe { region.as_ref() }.lkey),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(region) = self.region
            && self.process == std::process::id()
        {
            REGISTERED.fetch_sub(self.len, Ordering::Relaxed);
            // SAFETY: whoever posts a request that names it holds this value until the request is done.
            unsafe { (self.verbs.ibv_dereg_mr)(region.as_ptr()) };
        }
    }
}

/// Whether this kernel gives a child copies of registered pages (Linux 5.12). Older ones give it none of these pages, nor what else is there.
fn copies_on_fork() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 12)
}

fn is_of_pages(start: usize, len: usize) -> bool {
    let page = rustix::param::page_size();
    start.is_multiple_of(page) && len.is_multiple_of(page)
}

/// Memory that the peer has rights to.
struct Lent {
    region: *mut verbs::Mr,
    _memory: Arc<SharedMemory>,
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
            domain: None,
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
            stage_bytes: 0,
            lent: Mutex::default(),
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

    /// Whether reads of a peer's memory need no rights to memory of this side. An address is resolved or was asked for.
    pub(super) fn reads_safely(&self) -> bool {
        // SAFETY: the identifier is alive.
        let context = unsafe { self.id.as_ref() }.verbs;
        // SAFETY: it has its device, whose context the library keeps open.
        let device = unsafe { (*context).device };
        // SAFETY: a context has its device for as long as it is open.
        unsafe { (*device).transport_type != verbs::TRANSPORT_IWARP }
    }

    /// Makes all that is needed to connect or accept, and posts what receives messages. An address is resolved or was asked for.
    pub(super) fn prepare(
        &mut self,
        window: Window,
        side: Side,
        stage_bytes: usize,
    ) -> io::Result<()> {
        self.window = window;
        self.stage_bytes = stage_bytes;
        // SAFETY: the identifier is alive.
        let context = unsafe { self.id.as_ref() }.verbs;
        // The connecting side gives no rights, so that all its connections can be in one domain, and memory is registered once.
        self.domain = Some(match side {
            Side::Accepting { .. } => Arc::new(Domain::new(self.verbs, context)?),
            Side::Connecting => Domain::shared(self.verbs, context)?,
        });
        // SAFETY: as above.
        self.channel = made(unsafe { (self.verbs.ibv_create_comp_channel)(context) })?;
        set_nonblocking(self.completions())?;
        let requests = window.slots + CONTROL_SLOTS;
        let both = c_int::try_from(2 * requests + READS).unwrap_or(c_int::MAX);
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
                max_send_wr: requests + READS,
                max_recv_wr: requests,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline,
                qp_type: verbs::QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: identifier, domain and queue are alive and of one device; the attributes are read and written within the call.
            result = done(unsafe {
                (self.verbs.rdma_create_qp)(self.id.as_ptr(), self.raw_domain(), &mut attributes)
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

    fn raw_domain(&self) -> *mut c_void {
        let domain = self.domain.as_ref();
        domain.map_or(ptr::null_mut(), |domain| domain.raw.as_ptr())
    }

    /// The registration of memory that stays ([`pinned`]), made when it is first asked for; `None` where these bytes are no such
    /// memory, or the adapter takes no more.
    pub(super) fn registered(&self, bytes: *const u8, len: usize) -> Option<Arc<Registered>> {
        let domain = self.domain.as_ref()?;
        let range = pinned::find(bytes.addr(), len)?;
        let registered = range.made(
            |made: &Registered| Arc::ptr_eq(&made.domain, domain),
            |start, len| Registered::new(self.verbs, Arc::clone(domain), start, len),
        );
        registered.region.is_some().then_some(registered)
    }

    fn register(&mut self) -> io::Result<()> {
        let slots = (self.window.slots * 2 + CONTROL_SLOTS) as usize;
        let slots_len = slots * self.window.slot_bytes as usize;
        let len = slots_len + CONTROL_SLOTS as usize * CONTROL_STRIDE + self.stage_bytes;
        let memory = SharedMemory::allocate("towline-rdma", len)?;
        let start = memory.start().as_ptr().cast();
        // SAFETY: the memory is mapped, and stays so until the region is gone; only local rights are given.
        let region = unsafe {
            (self.verbs.ibv_reg_mr)(self.raw_domain(), start, len, verbs::ACCESS_LOCAL_WRITE)
        };
        self.region = made(region).map_err(|error| explain_limit(len, error))?;
        // SAFETY: the region has just been made.
        self.lkey = unsafe { (*self.region).lkey };
        self.memory = Some(memory);
        Ok(())
    }

    /// Registers part of `memory` with rights for the peer, for as long as this value lives, and gives the key.
    pub(super) fn lend(
        &self,
        memory: Arc<SharedMemory>,
        bytes: NonNull<[u8]>,
        access: c_int,
    ) -> io::Result<u32> {
        // SAFETY: the bytes are of the memory, which is kept mapped until the region is gone. What a peer writes there is read as the
        // bytes of a ring, which take any value at any time.
        let region = unsafe {
            (self.verbs.ibv_reg_mr)(
                self.raw_domain(),
                bytes.as_ptr().cast(),
                bytes.len(),
                access,
            )
        };
        let region = made(region).map_err(|error| explain_limit(bytes.len(), error))?;
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.push(Lent {
            region,
            _memory: memory,
        });
        // SAFETY: the region has just been made.
        Ok(unsafe { (*region).rkey })
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
        let bytes = self.own(offset, len);
        self.post(work, verbs::WR_SEND, tells, Some(bytes), (0, 0))
    }

    /// Writes bytes to an address of the peer, by its key. As for [`Self::post_send`].
    pub(super) fn post_write(
        &self,
        work: u64,
        bytes: verbs::Piece,
        tells: bool,
        to: (u64, u32),
    ) -> io::Result<()> {
        self.post(work, verbs::WR_RDMA_WRITE, tells, Some(bytes), to)
    }

    /// Reads what lies at an address of the peer, by its key.
    pub(super) fn post_read(
        &self,
        work: u64,
        into: verbs::Piece,
        from: (u64, u32),
    ) -> io::Result<()> {
        self.post(work, verbs::WR_RDMA_READ, true, Some(into), from)
    }

    /// Writes nothing to nowhere: the peer's adapter answers, if it is there.
    pub(super) fn post_probe(&self, work: u64) -> io::Result<()> {
        self.post(work, verbs::WR_RDMA_WRITE, true, None, (0, 0))
    }

    fn post(
        &self,
        work: u64,
        opcode: c_int,
        tells: bool,
        mut piece: Option<verbs::Piece>,
        (remote_address, remote_key): (u64, u32),
    ) -> io::Result<()> {
        let when = |condition, flag| if condition { flag } else { 0 };
        let len = piece.as_ref().map_or(0, |piece| piece.length as usize);
        let takes_along = opcode != verbs::WR_RDMA_READ && (1..=self.inline_bytes).contains(&len);
        let mut request = verbs::SendRequest {
            wr_id: work,
            next: ptr::null_mut(),
            piece_count: piece.is_some().into(),
            pieces: piece.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            opcode,
            send_flags: when(takes_along, verbs::SEND_INLINE) | when(tells, verbs::SEND_SIGNALED),
            immediate: 0,
            remote_address,
            remote_key,
            _other_opcodes: [0; 9],
        };
        // SAFETY: the bytes are within a region, and are left alone until the completion.
        refused(unsafe { verbs::post_send(self.pair, &mut request) })
    }

    /// Bytes of this connection's own memory.
    pub(super) fn own(&self, offset: usize, len: usize) -> verbs::Piece {
        verbs::Piece {
            address: self.place(offset, len).expose_provenance() as u64,
            length: len as u32,
            lkey: self.lkey,
        }
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

    /// Offset of the stage, and its size.
    pub(super) fn stage(&self) -> (usize, usize) {
        let control_len = CONTROL_SLOTS as usize * CONTROL_STRIDE;
        (self.control_at(0) + control_len, self.stage_bytes)
    }

    /// Has bytes written into a slot that the caller has.
    pub(super) fn fill(&self, offset: usize, len: usize, write: impl FnOnce(&mut [u8])) {
        // SAFETY: the place is within the mapping, all of which is initialised, and only the caller uses its slot.
        write(unsafe { std::slice::from_raw_parts_mut(self.place(offset, len), len) });
    }

    /// Has the bytes of a slot read that the caller has.
    pub(super) fn look<T>(&self, offset: usize, len: usize, read: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: as for `fill`; the adapter writes to posted slots only.
        read(unsafe { std::slice::from_raw_parts(self.place(offset, len), len) })
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
        let lent = self.lent.get_mut().unwrap_or_else(PoisonError::into_inner);
        for lent in lent.drain(..) {
            // SAFETY: without a queue pair no peer reaches it; its memory is unmapped afterwards.
            unsafe { (self.verbs.ibv_dereg_mr)(lent.region) };
        }
        if !self.region.is_null() {
            // SAFETY: no request is left that names it.
            unsafe { (self.verbs.ibv_dereg_mr)(self.region) };
        }
        // Behind what was made of it, and before the identifier, whose device it is of.
        self.domain = None;
        // SAFETY: every event of it was acknowledged, and its channel is alive.
        unsafe { (self.verbs.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

/// Numbers of work requests: a kind, and its count or slot.
pub(super) mod work {
    pub(crate) const RECEIVE: u64 = 1 << 62;
    pub(crate) const CONTROL: u64 = 1 << 61;
    pub(crate) const READ: u64 = 1 << 60;
    pub(crate) const NUMBER: u64 = READ - 1;
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
