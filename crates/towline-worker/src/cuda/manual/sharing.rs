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

use crate::broker::{Offer, TOKEN_BYTES, Token};
use crate::cuda::session::{Session, failure, unknown};
use crate::cuda::shared::{Shared, lock};
use crate::cuda::streams::Places;
use crate::link::Raw;

/// Kinds of what is shared.
const MEMORY: u32 = 0;
const EVENT: u32 = 1;
const PHYSICAL: u32 = 2;

/// What is offered, by kind and number, and what was opened.
#[derive(Default)]
pub(crate) struct Sharing {
    offered: HashMap<(u32, u64), Token>,
    /// Memory of other sessions, by address.
    opened: HashMap<u64, Home>,
}

/// The context in which memory was opened.
type Home = Arc<crate::cuda::context::Context>;

/// What another session's physical memory is here: the client's number, the driver's handle, its bytes.
pub(crate) type Imported = (u64, CUmemGenericAllocationHandle, u64);

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
        for (address, home) in opened {
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
        sharing.opened.retain(|address, home| {
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
        let token = self.broker.offer(offer).ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        lock(&self.sharing).offered.insert((kind, number), token);
        Ok(token)
    }

    fn open_memory(&self, home: Home, handle: &[u8], flags: u32) -> Result<u64, CUresult> {
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
        lock(&self.sharing).opened.insert(address, home);
        Ok(address)
    }

    fn open_event(&self, number: u64, handle: &[u8]) -> Result<(), CUresult> {
        let mut native = CUipcEventHandle { reserved: [0; 64] };
        for (to, from) in native.reserved.iter_mut().zip(handle) {
            *to = *from as _;
        }
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: one place for the event; the handle is the driver's own, from another process.
        let status = unsafe { self.api.cuIpcOpenEventHandle(&raw mut event, native) };
        if status != CUDA_SUCCESS || event.is_null() {
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
        let mut memory: CUmemGenericAllocationHandle = 0;
        let file = std::ptr::without_provenance_mut::<c_void>(descriptor.as_raw_fd() as usize);
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: one place for the memory; the descriptor is open, and the driver does not close it.
        check(unsafe {
            self.api
                .cuMemImportFromShareableHandle(&raw mut memory, file, kind)
        })?;
        lock(&self.imported).push((number, memory, bytes));
        Ok(())
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
            MEMORY => {
                let bytes = lock(&self.shared.memory).get(&id).copied();
                bytes
                    .map(|bytes| (bytes, 0, None))
                    .ok_or(CUDA_ERROR_INVALID_VALUE)
            }
            EVENT => {
                let event = self.native(id, wire::EventHandle::TAG)?;
                event.map(|event| (0, 0, Some(Raw(event))))
            }
            PHYSICAL => {
                let (memory, bytes) = self
                    .virtual_memory
                    .physical(id)
                    .ok_or_else(|| unknown("memory", id))?;
                Ok((bytes, memory, None))
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
            let token = entered.and(source).and_then(|(bytes, memory, event)| {
                shared.token(kind, id, |api| {
                    export(api, kind, id, memory, event, bytes, device)
                })
            });
            let status = token.err().unwrap_or(CUDA_SUCCESS);
            let token = token.map_or([0; TOKEN_BYTES], |token| token.0);
            let reply = wire::ShareReply {
                token: Some(&token),
            };
            shared.reply(number, status, &reply);
        });
        Ok(())
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
                let offer = shared.broker.take(token);
                let offer = offer.filter(|offer| u32::from(offer.kind) == kind);
                let offer = offer.ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let (handle, bytes, device) =
                    read_described(&offer.bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let known = devices.iter().find(|(native, _)| *native == device);
                let device = known.map_or(-1, |(_, ours)| *ours);
                match (kind, &offer.descriptor) {
                    (MEMORY, _) => {
                        let address = shared.open_memory(context, handle, flags)?;
                        Ok((address, bytes, device))
                    }
                    (EVENT, _) => shared.open_event(id, handle).map(|()| (0, 0, device)),
                    (PHYSICAL, Some(descriptor)) => {
                        shared.open_physical(id, bytes, descriptor)?;
                        Ok((0, bytes, device))
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
        let home = lock(&self.shared.sharing).opened.remove(&address);
        let home = home.ok_or_else(|| unknown("memory of another session at", address))?;
        let places: Places = self.shared.streams.all(None);
        self.wait(move |shared| {
            shared.streams.wait(&places);
            let status = match home.enter(&*shared.api) {
                // SAFETY: the session has opened it, and what is parked has run.
                CUDA_SUCCESS => unsafe { shared.api.cuIpcCloseMemHandle(address) },
                status => status,
            };
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
        let status = match event {
            Err(status) => status,
            Ok(_) if parked => CUDA_ERROR_NOT_READY,
            // SAFETY: the event is live.
            Ok(event) => unsafe { self.api.cuEventQuery(event.cast()) },
        };
        self.reply(number, status, &wire::EventStateReply {});
        Ok(())
    }

    /// Takes in physical memory that other threads have opened.
    pub(crate) fn take_imported(&mut self) -> Result<(), ProtocolError> {
        for (number, memory, bytes) in std::mem::take(&mut *lock(&self.shared.imported)) {
            self.virtual_memory.import(number, memory, bytes);
        }
        Ok(())
    }
}

/// What the driver gives another process.
fn export(
    api: &dyn CudaApi,
    kind: u32,
    id: u64,
    memory: CUmemGenericAllocationHandle,
    event: Option<Raw>,
    bytes: u64,
    device: CUdevice,
) -> Result<(Vec<u8>, Option<OwnedFd>), CUresult> {
    match (kind, event) {
        (EVENT, Some(event)) => {
            let mut handle = CUipcEventHandle { reserved: [0; 64] };
            // SAFETY: the event is live; one place for the handle.
            check(unsafe { api.cuIpcGetEventHandle(&raw mut handle, event.0.cast()) })?;
            let handle = handle.reserved.map(|byte| byte as u8);
            Ok((described(&handle, 0, device), None))
        }
        (PHYSICAL, _) => {
            let mut file: RawFd = -1;
            let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            let place = (&raw mut file).cast();
            // SAFETY: the memory is the session's; one place for the descriptor.
            check(unsafe { api.cuMemExportToShareableHandle(place, memory, kind, 0) })?;
            if file < 0 {
                return Err(CUDA_ERROR_UNKNOWN);
            }
            // SAFETY: the driver has opened it for us.
            let file = unsafe { OwnedFd::from_raw_fd(file) };
            Ok((described(&[], bytes, device), Some(file)))
        }
        _ => {
            let mut handle = CUipcMemHandle { reserved: [0; 64] };
            // SAFETY: the driver judges the address; one place for the handle.
            check(unsafe { api.cuIpcGetMemHandle(&raw mut handle, id) })?;
            let handle = handle.reserved.map(|byte| byte as u8);
            Ok((described(&handle, bytes, device), None))
        }
    }
}
