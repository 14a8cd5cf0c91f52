//! What this session shares with others of the server, and what it has of theirs.
//!
//! The driver's own handles never leave the server: clients see tokens, which the broker gives out.

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_session::Entry;
use towline_wire::error::{CloseCode, ProtocolError};

use crate::cuda::beacon::{Beacon, Claim, Latest};
use crate::cuda::broker::{Lease, Offer, TOKEN_BYTES, Taken, Token};
use crate::cuda::session::{Session, failure, unknown};
use crate::cuda::shared::{Held, Shared, lock};
use crate::cuda::streams::{Places, Target};
use crate::link::{Charge, Raw};

/// Kinds of what is shared.
const MEMORY: u32 = 0;
const EVENT: u32 = 1;
const PHYSICAL: u32 = 2;
const POOL: u32 = 3;
const POINTER: u32 = 4;

/// What is offered, by kind and number, and what was opened.
#[derive(Default)]
pub(crate) struct Sharing {
    offered: HashMap<(u32, u64), Token>,
    /// Memory of other sessions: its address, its context, and what is charged for it.
    opened: Vec<(u64, Home, Charge)>,
}

/// The context in which memory was opened.
type Home = Arc<crate::cuda::context::Context>;

/// Another session's physical memory, as it is here: the client's number, the driver's handle, its bytes, and what is charged for it.
pub(crate) type Imported = (u64, CUmemGenericAllocationHandle, u64, Charge);

/// Whether what is offered as `kind` is the page of an event.
pub(crate) fn is_event(kind: u8) -> bool {
    u32::from(kind) == EVENT
}

fn check(status: CUresult) -> Result<(), CUresult> {
    match status {
        CUDA_SUCCESS => Ok(()),
        status => Err(status),
    }
}

/// Two numbers behind the driver's handle: bytes, and the driver's number of the device.
fn described(handle: &[u8], bytes: u64, device: CUdevice) -> Vec<u8> {
    let mut all = bytes.to_le_bytes().to_vec();
    all.extend(device.to_le_bytes());
    all.extend_from_slice(handle);
    all
}

fn read_described(all: &[u8]) -> Option<(&[u8], u64, CUdevice)> {
    let (bytes, rest) = all.split_first_chunk()?;
    let (device, handle) = rest.split_first_chunk()?;
    Some((
        handle,
        u64::from_le_bytes(*bytes),
        i32::from_le_bytes(*device),
    ))
}

impl Shared {
    /// What is offered no more: it is about to end.
    pub(crate) fn withdraw(&self, kind: u32, number: u64) {
        let token = lock(&self.sharing).offered.remove(&(kind, number));
        if let Some(token) = token {
            self.broker.withdraw(token);
        }
    }

    /// Memory that goes out of use is offered no more.
    pub(crate) fn withdraw_memory(&self, address: u64) {
        self.withdraw(MEMORY, address);
        self.withdraw(POINTER, address);
    }

    /// So does a pool.
    pub(crate) fn withdraw_pool(&self, pool: u64) {
        self.withdraw(POOL, pool);
    }

    /// So does an event.
    pub(crate) fn withdraw_event(&self, event: u64) {
        self.withdraw(EVENT, event);
    }

    /// And physical memory, where nothing can be mapped from it any more.
    pub(crate) fn withdraw_physical(&self, memory: u64) {
        self.withdraw(PHYSICAL, memory);
    }

    /// Gives memory of other sessions back, at the session's end.
    pub(crate) fn release_opened(&self) {
        let opened = std::mem::take(&mut lock(&self.sharing).opened);
        for (address, home, _charge) in opened {
            if home.enter(&*self.api) == CUDA_SUCCESS {
                // SAFETY: the session has opened it, and nothing uses it any more.
                unsafe { self.api.cuIpcCloseMemHandle(address) };
            }
        }
    }

    /// Memory that was opened in a context that ends.
    pub(crate) fn release_opened_in(&self, context: u64) {
        let mut sharing = lock(&self.sharing);
        let api = &self.api;
        sharing.opened.retain(|(address, home, _)| {
            if home.id != context {
                return true;
            }
            if home.enter(&**api) == CUDA_SUCCESS {
                // SAFETY: as above.
                unsafe { api.cuIpcCloseMemHandle(*address) };
            }
            false
        });
    }

    /// The token of something; made when it is first asked for.
    fn token(
        &self,
        kind: u32,
        number: u64,
        export: impl FnOnce(&dyn CudaApi) -> Result<(Vec<u8>, Option<OwnedFd>), CUresult>,
    ) -> Result<Token, CUresult> {
        if let Some(token) = lock(&self.sharing).offered.get(&(kind, number)) {
            return Ok(*token);
        }
        let (bytes, descriptor) = export(&*self.api)?;
        let offer = Offer {
            kind: kind as u8,
            bytes,
            descriptor,
        };
        let token = match self.broker.shares() {
            true => self.broker.offer(offer).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?,
            false => return Err(CUDA_ERROR_NOT_SUPPORTED),
        };
        lock(&self.sharing).offered.insert((kind, number), token);
        Ok(token)
    }

    fn open_memory(
        &self,
        home: Home,
        handle: &[u8],
        bytes: u64,
        flags: u32,
    ) -> Result<u64, CUresult> {
        // The driver may keep it for this session when its owner has freed it.
        let charge = self.charged(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut native = CUipcMemHandle { reserved: [0; 64] };
        for (to, from) in native.reserved.iter_mut().zip(handle) {
            *to = *from as _;
        }
        let mut address: CUdeviceptr = 0;
        // SAFETY: one place for the address; the handle is the driver's own, from another process.
        check(unsafe {
            self.api
                .cuIpcOpenMemHandle_v2(&raw mut address, native, flags)
        })?;
        let opened = (address, home, charge);
        lock(&self.sharing).opened.push(opened);
        Ok(address)
    }

    /// An event of ours beside the page that the others record in.
    fn open_event(
        &self,
        home: &Home,
        number: u64,
        page: OwnedFd,
        lease: Lease,
    ) -> Result<(), CUresult> {
        let beacon = Beacon::open(page, lease, home)?;
        beacon.register(&*self.api)?;
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: one place for the event.
        let status = unsafe {
            self.api
                .cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING)
        };
        self.beacons.insert(number, Arc::new(beacon));
        if status != CUDA_SUCCESS || event.is_null() {
            self.release_beacon(number);
            return Err(failure(status));
        }
        self.arrive(
            number,
            wire::EventHandle::TAG,
            Entry::Live(Raw(event.cast())),
        );
        Ok(())
    }

    fn open_physical(&self, number: u64, bytes: u64, descriptor: &OwnedFd) -> Result<(), CUresult> {
        // As for other memory.
        let charge = self.charged(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut memory: CUmemGenericAllocationHandle = 0;
        let file = std::ptr::without_provenance_mut::<c_void>(descriptor.as_raw_fd() as usize);
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: one place for the memory; the descriptor is open, and the driver does not close it.
        check(unsafe {
            self.api
                .cuMemImportFromShareableHandle(&raw mut memory, file, kind)
        })?;
        self.arrive_imported((number, memory, bytes, charge));
        Ok(())
    }

    fn open_pool(&self, number: u64, descriptor: &OwnedFd) -> Result<(), CUresult> {
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        let file = std::ptr::without_provenance_mut::<c_void>(descriptor.as_raw_fd() as usize);
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: one place for the pool; the descriptor is open, and the driver does not close it.
        check(unsafe {
            self.api
                .cuMemPoolImportFromShareableHandle(&raw mut pool, file, kind, 0)
        })?;
        if pool.is_null() {
            return Err(failure(CUDA_SUCCESS));
        }
        let tag = wire::MemoryPoolHandle::TAG;
        self.arrive(number, tag, Entry::Live(Raw(pool.cast())));
        Ok(())
    }

    fn open_pointer(&self, pool: Raw, handle: &[u8], bytes: u64) -> Result<u64, CUresult> {
        let mut native = CUmemPoolPtrExportData { reserved: [0; 64] };
        for (to, from) in native.reserved.iter_mut().zip(handle) {
            *to = *from;
        }
        let mut address: CUdeviceptr = 0;
        let place = &raw mut address;
        check(self.within_limit(bytes, || {
            let native = &raw mut native;
            // SAFETY: one place for the address; the pool is live, and what describes the memory is the driver's own.
            unsafe {
                self.api
                    .cuMemPoolImportPointer(place, pool.0.cast(), native)
            }
        }))?;
        let held = Held {
            bytes,
            charged: bytes,
            context: 0,
        };
        self.memory_came(address, held);
        Ok(address)
    }
}

/// What is to be offered.
#[derive(Clone, Copy)]
enum Source {
    /// The allocation at an address, so many bytes.
    Memory(u64, u64),
    Physical(CUmemGenericAllocationHandle, u64),
    Pool(Raw),
    /// The same, of a pool.
    Pointer(u64, u64),
}

/// What was recorded of an event before it was shared.
struct Earlier {
    claim: Claim,
    /// Where the recording is parked.
    places: Places,
    event: Raw,
    context: Home,
    /// A stream of ours that stands behind the recording.
    stream: Option<Target>,
}

impl Earlier {
    /// A stream that stands behind the event as it was recorded last.
    fn behind(&self, api: &dyn CudaApi) -> Result<Target, CUresult> {
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: one place for the stream.
        check(unsafe { api.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) })?;
        // SAFETY: both are live.
        let status = unsafe { api.cuStreamWaitEvent(stream, self.event.0.cast(), 0) };
        if status != CUDA_SUCCESS {
            // SAFETY: the stream was made just now.
            unsafe { api.cuStreamDestroy_v2(stream) };
            return Err(status);
        }
        Ok(Target {
            key: u64::MAX,
            id: 0,
            native: Raw(stream.cast()),
            context: Arc::clone(&self.context),
            depth: Arc::default(),
            blocking: false,
        })
    }

    /// Has the device tell in the event's page when the recording has passed.
    fn tell(mut self, shared: &Arc<Shared>) {
        if !self.places.is_empty() {
            // The one who shares need not wait for that.
            shared.start(|shared| {
                shared.streams.wait(&self.places);
                self.places.clear();
                if self.context.enter(&*shared.api) == CUDA_SUCCESS {
                    self.stream = self.behind(&*shared.api).ok();
                    self.tell(shared);
                }
            });
            return;
        }
        let Some(target) = self.stream else {
            return;
        };
        let status = self.claim.tell(shared, &target);
        if status != CUDA_SUCCESS {
            log::debug!("the recording of an event that is shared now cannot be told of: {status}");
        }
        // SAFETY: the stream is ours. What was enqueued is carried out nevertheless.
        unsafe { shared.api.cuStreamDestroy_v2(target.stream()) };
    }
}

impl Shared {
    fn reply_token(&self, number: u64, token: Result<Token, CUresult>) {
        let status = token.err().unwrap_or(CUDA_SUCCESS);
        let token = token.map_or([0; TOKEN_BYTES], |token| token.0);
        let reply = wire::ShareReply {
            token: Some(&token),
        };
        self.reply(number, status, &reply);
    }
}

/// What an offer becomes here: address, bytes, the client's number of the device.
type Opened = (u64, u64, i32);

impl Session {
    /// The client's number of a device that the driver numbers so.
    fn client_device(&self, device: CUdevice) -> i32 {
        let found = self.devices.iter().position(|known| *known == device);
        found.map_or(-1, |index| index as i32)
    }

    pub(crate) fn Share(&mut self, number: u64, request: wire::Share) -> Result<(), ProtocolError> {
        let id = request.number;
        let context = self.acting.clone();
        let device = context.as_ref().map_or(-1, |context| context.device);
        let source = match request.kind {
            kind @ (MEMORY | POINTER) => {
                let bytes = lock(&self.shared.memory).get(&id).map(|held| held.bytes);
                let bytes = bytes.ok_or(CUDA_ERROR_INVALID_VALUE);
                match kind {
                    MEMORY => bytes.map(|bytes| Source::Memory(id, bytes)),
                    _ => bytes.map(|bytes| Source::Pointer(id, bytes)),
                }
            }
            POOL => {
                let pool = self.native(id, wire::MemoryPoolHandle::TAG)?;
                let pool = pool.map(Raw);
                pool.and_then(|pool| match pool.0.is_null() {
                    true => Err(CUDA_ERROR_INVALID_VALUE),
                    false => Ok(Source::Pool(pool)),
                })
            }
            EVENT => {
                let event = self.native(id, wire::EventHandle::TAG)?;
                return self.share_event(number, id, event.map(Raw));
            }
            PHYSICAL => {
                let (memory, bytes) = self
                    .virtual_memory
                    .physical(id)
                    .ok_or_else(|| unknown("memory", id))?;
                Ok(Source::Physical(memory, bytes))
            }
            other => {
                let detail = format!("nothing of kind {other} is shared");
                return Err(ProtocolError::new(CloseCode::Malformed, detail));
            }
        };
        let kind = request.kind;
        self.wait(move |shared| {
            let entered = match context {
                Some(context) => check(context.enter(&*shared.api)),
                None => Ok(()),
            };
            let token = entered
                .and(source)
                .and_then(|source| shared.token(kind, id, |api| export(api, source, device)));
            shared.reply_token(number, token);
        });
        Ok(())
    }

    /// Offers an event. From here on it is a page that others map too; what was recorded before is told in it as well.
    fn share_event(
        &mut self,
        number: u64,
        id: u64,
        event: Result<Raw, CUresult>,
    ) -> Result<(), ProtocolError> {
        let context = self.acting.clone().ok_or(CUDA_ERROR_INVALID_CONTEXT);
        let (event, context) = match (event, context) {
            (Ok(event), Ok(context)) => (event, context),
            (Err(status), _) | (_, Err(status)) => {
                self.shared.reply_token(number, Err(status));
                return Ok(());
            }
        };
        let device = context.device;
        let (beacon, earlier) = match self.shared.beacons.of(id) {
            Some(beacon) => (beacon, None),
            None => match Beacon::create(&context).map(Arc::new) {
                Err(status) => {
                    self.shared.reply_token(number, Err(status));
                    return Ok(());
                }
                Ok(beacon) => match self.earlier(&beacon, id, event, &context) {
                    Err(status) => {
                        self.shared.reply_token(number, Err(status));
                        return Ok(());
                    }
                    Ok(earlier) => {
                        self.shared.beacons.insert(id, Arc::clone(&beacon));
                        (beacon, Some(earlier))
                    }
                },
            },
        };
        self.wait(move |shared| {
            let entered = check(context.enter(&*shared.api));
            let registered = match earlier {
                // Another request is making it.
                None => beacon.address().map(drop),
                Some(earlier) => {
                    let entered = entered.inspect_err(|status| beacon.give_up(*status));
                    let registered = entered.and_then(|()| beacon.register(&*shared.api));
                    match registered {
                        Ok(()) => {
                            earlier.into_iter().for_each(|one| one.tell(shared));
                        }
                        Err(_) => shared.beacons.forget(id),
                    }
                    registered
                }
            };
            let token = registered.and_then(|()| {
                shared.token(EVENT, id, |_| {
                    let page = beacon.file().ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
                    Ok((described(&[], 0, device), Some(page)))
                })
            });
            shared.reply_token(number, token);
        });
        Ok(())
    }

    /// The recording of an event before it was shared, where it has not passed.
    fn earlier(
        &self,
        beacon: &Arc<Beacon>,
        id: u64,
        event: Raw,
        context: &Home,
    ) -> Result<Option<Earlier>, CUresult> {
        let place = self.recorded.get(&id).copied();
        let parked = place.is_some_and(|(stream, _)| {
            let places = self.shared.streams.place(stream);
            places.iter().any(|(key, _)| *key == stream)
        });
        // SAFETY: the event is live.
        let state = unsafe { self.api.cuEventQuery(event.0.cast()) };
        if !parked && state != CUDA_ERROR_NOT_READY {
            return Ok(None);
        }
        let claim = Claim::on(Arc::clone(beacon), u64::MAX)?;
        let mut earlier = Earlier {
            claim,
            places: place.filter(|_| parked).into_iter().collect(),
            event,
            context: Arc::clone(context),
            stream: None,
        };
        if !parked {
            // Now: the event may be recorded again while the page is registered.
            earlier.stream = Some(earlier.behind(&*self.api)?);
        }
        Ok(Some(earlier))
    }

    pub(crate) fn OpenShared(
        &mut self,
        number: u64,
        request: wire::OpenShared<'_>,
    ) -> Result<(), ProtocolError> {
        let Ok(token) = request.token.try_into().map(Token) else {
            let detail = format!("a token has {} bytes", request.token.len());
            return Err(ProtocolError::new(CloseCode::Malformed, detail));
        };
        let wire::OpenShared {
            kind,
            flags,
            number: id,
            ..
        } = request;
        if kind == PHYSICAL && self.virtual_memory.physical(id).is_some() {
            return Err(unknown("free number of memory", id));
        }
        // The pool that an allocation is opened in.
        let pool = match kind {
            POINTER => {
                let pool = self.native(id, wire::MemoryPoolHandle::TAG)?;
                pool.map(Raw).map(Some)
            }
            _ => Ok(None),
        };
        let context = self.acting.clone();
        let devices: Vec<(CUdevice, i32)> = self
            .devices
            .iter()
            .map(|device| (*device, self.client_device(*device)))
            .collect();
        self.wait(move |shared| {
            let open = || -> Result<Opened, CUresult> {
                let context = context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
                check(context.enter(&*shared.api))?;
                let taken = shared.broker.take(token).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let Taken { offer, number } = taken;
                let lease = Lease::new(&shared.broker, token, number);
                if u32::from(offer.kind) != kind {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let (handle, bytes, device) =
                    read_described(&offer.bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let known = devices.iter().find(|(native, _)| *native == device);
                let device = known.map_or(-1, |(_, ours)| *ours);
                match (kind, &offer.descriptor) {
                    (MEMORY, _) => {
                        let address = shared.open_memory(context, handle, bytes, flags)?;
                        Ok((address, bytes, device))
                    }
                    (EVENT, _) => {
                        let page = offer.descriptor.ok_or(CUDA_ERROR_INVALID_VALUE)?;
                        shared.open_event(&context, id, page, lease)?;
                        Ok((0, 0, device))
                    }
                    (PHYSICAL, Some(descriptor)) => {
                        shared.open_physical(id, bytes, descriptor)?;
                        Ok((0, bytes, device))
                    }
                    (POOL, Some(descriptor)) => {
                        shared.open_pool(id, descriptor)?;
                        Ok((0, 0, device))
                    }
                    (POINTER, _) => {
                        let pool = pool?.ok_or(CUDA_ERROR_INVALID_VALUE)?;
                        let address = shared.open_pointer(pool, handle, bytes)?;
                        Ok((address, bytes, device))
                    }
                    _ => Err(CUDA_ERROR_INVALID_VALUE),
                }
            };
            let opened = open();
            let status = opened.err().unwrap_or(CUDA_SUCCESS);
            let (address, bytes, device) = opened.unwrap_or_default();
            let reply = wire::OpenSharedReply {
                address: Some(address),
                size: Some(bytes),
                device: Some(device),
            };
            shared.reply(number, status, &reply);
        });
        Ok(())
    }

    pub(crate) fn CloseShared(
        &mut self,
        number: u64,
        request: wire::CloseShared,
    ) -> Result<(), ProtocolError> {
        let address = request.address;
        let mut sharing = lock(&self.shared.sharing);
        let mut opened = sharing.opened.iter();
        let found = opened.position(|(known, ..)| *known == address);
        let found = found.ok_or_else(|| unknown("memory of another session at", address))?;
        // The driver counts how often it was opened.
        let (_, home, charge) = sharing.opened.swap_remove(found);
        drop(sharing);
        let places: Places = self.shared.streams.all(None);
        self.wait(move |shared| {
            shared.streams.wait(&places);
            let status = match home.enter(&*shared.api) {
                // SAFETY: the session has opened it, and what is parked has run.
                CUDA_SUCCESS => unsafe { shared.api.cuIpcCloseMemHandle(address) },
                status => status,
            };
            drop(charge);
            shared.reply(number, status, &wire::CloseSharedReply {});
        });
        Ok(())
    }

    pub(crate) fn EventState(
        &mut self,
        number: u64,
        request: wire::EventState,
    ) -> Result<(), ProtocolError> {
        let id = request.event.0;
        let event = self.native(id, wire::EventHandle::TAG)?;
        let parked = self.recorded.get(&id).is_some_and(|(stream, _)| {
            let places = self.shared.streams.place(*stream);
            places.iter().any(|(key, _)| key == stream)
        });
        let beacon = self.shared.beacons.of(id);
        let state = beacon.map_or(Latest::Ours, |beacon| beacon.state());
        let status = match event {
            Err(status) => status,
            Ok(_) if state == Latest::Passed => CUDA_SUCCESS,
            Ok(_) if state != Latest::Ours || parked => CUDA_ERROR_NOT_READY,
            // SAFETY: the event is live.
            Ok(event) => unsafe { self.api.cuEventQuery(event.cast()) },
        };
        self.reply(number, status, &wire::EventStateReply {});
        Ok(())
    }
}

/// What the driver gives another process.
fn export(
    api: &dyn CudaApi,
    source: Source,
    device: CUdevice,
) -> Result<(Vec<u8>, Option<OwnedFd>), CUresult> {
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    match source {
        Source::Physical(memory, bytes) => {
            let mut file: RawFd = -1;
            let place = (&raw mut file).cast();
            // SAFETY: the memory is the session's; one place for the descriptor.
            check(unsafe { api.cuMemExportToShareableHandle(place, memory, kind, 0) })?;
            Ok((described(&[], bytes, device), Some(given(file)?)))
        }
        Source::Pool(pool) => {
            let mut file: RawFd = -1;
            let place = (&raw mut file).cast();
            // SAFETY: the pool is live; one place for the descriptor.
            check(unsafe { api.cuMemPoolExportToShareableHandle(place, pool.0.cast(), kind, 0) })?;
            Ok((described(&[], 0, device), Some(given(file)?)))
        }
        Source::Pointer(address, bytes) => {
            let mut handle = CUmemPoolPtrExportData { reserved: [0; 64] };
            // SAFETY: the driver judges the address; one place for what describes it.
            check(unsafe { api.cuMemPoolExportPointer(&raw mut handle, address) })?;
            Ok((described(&handle.reserved, bytes, device), None))
        }
        Source::Memory(address, bytes) => {
            let mut handle = CUipcMemHandle { reserved: [0; 64] };
            // SAFETY: the driver judges the address; one place for the handle.
            check(unsafe { api.cuIpcGetMemHandle(&raw mut handle, address) })?;
            let handle = handle.reserved.map(|byte| byte as u8);
            Ok((described(&handle, bytes, device), None))
        }
    }
}

/// A descriptor that the driver has opened for us.
fn given(file: RawFd) -> Result<OwnedFd, CUresult> {
    match file {
        // SAFETY: it is open, and nobody else has it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(CUDA_ERROR_UNKNOWN),
    }
}
