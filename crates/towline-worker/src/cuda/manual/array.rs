//! Arrays and mipmapped arrays, their parts, and the paths between devices.

use std::ffi::c_void;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_session::Entry;
use towline_wire::error::ProtocolError;

use crate::cuda::residents;
use crate::cuda::session::{Session, failure};
use crate::decode::broken;
use crate::link::Raw;

/// A description of nothing, for the driver to fill.
const NO_REQUIREMENTS: CUDA_ARRAY_MEMORY_REQUIREMENTS = CUDA_ARRAY_MEMORY_REQUIREMENTS {
    size: 0,
    alignment: 0,
    reserved: [0; 4],
};

/// Bytes of a row, and rows, that drivers lay arrays out in multiples of (seen with driver 580 on an H200).
const LAID_OUT: [u64; 2] = [64, 8];

/// Bytes of an array as it is laid out, over its levels; those of sparse ones, which hold none before some are mapped, too. Formats that
/// pack several channels in fewer bytes count as if they did not.
fn bytes_of(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    let channel = match descriptor.Format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        _ => 4,
    };
    let element = u64::from(descriptor.NumChannels.max(1)).saturating_mul(channel);
    let sides = [descriptor.Width, descriptor.Height, descriptor.Depth];
    let level = |level: u32| {
        let shrunk = sides.map(|side| (side as u64).checked_shr(level).unwrap_or(0).max(1));
        let [width, height, depth] = shrunk;
        let laid_out = |length: u64, unit: u64| length.checked_next_multiple_of(unit);
        let [row, rows] = LAID_OUT;
        let row = laid_out(element.saturating_mul(width), row).unwrap_or(u64::MAX);
        let rows = laid_out(height, rows).unwrap_or(u64::MAX);
        row.saturating_mul(rows).saturating_mul(depth)
    };
    // More levels than the widest side has bits repeat the last, and the driver makes none of them.
    (0..levels.clamp(1, 64)).fold(0, |sum: u64, at| sum.saturating_add(level(at)))
}

impl Session {
    /// Ends an array with its parts, once nothing that was parked before can use it. Like the driver's, the call may wait for the device.
    fn end_resident(&mut self, number: u64, id: u64, tag: u8) -> Result<(), ProtocolError> {
        let resident = self.residents.objects.get(&id).copied();
        if resident.is_some_and(|resident| resident.whole.is_some()) {
            // Levels and planes are their array's.
            self.shared.answer(number, CUDA_ERROR_INVALID_HANDLE, &[]);
            return Ok(());
        }
        let raw = match self.table.remove(id, tag).map_err(broken)? {
            Entry::Failed(status) => {
                self.shared.answer(number, status, &[]);
                return Ok(());
            }
            Entry::Live(raw) => raw,
        };
        self.residents.objects.remove(&id);
        let table = &mut self.table;
        self.residents.objects.retain(|part, resident| {
            let stays = resident.whole != Some(id);
            if !stays {
                // It is there, since it is in this list.
                let _ = table.remove(*part, resident.tag);
            }
            stays
        });
        let charged = resident.map_or(0, |resident| resident.charged);
        let context = resident.and_then(|resident| self.contexts.get(&resident.context).cloned());
        // Then it has ended with its context.
        let ended = context.is_none();
        let places = self.shared.streams.all(None);
        self.wait(move |shared| {
            shared.streams.wait(&places);
            let status = match context.map(|context| context.enter(&*shared.api)) {
                Some(CUDA_SUCCESS) => residents::release(&*shared.api, tag, raw),
                Some(status) => status,
                None => CUDA_ERROR_INVALID_CONTEXT,
            };
            if status == CUDA_SUCCESS || ended {
                shared.counters.credit(charged);
            }
            shared.answer(number, status, &[]);
        });
        Ok(())
    }

    /// Enters a level or a plane, which ends with its array.
    fn part(
        &mut self,
        id: u64,
        native: CUarray,
        status: CUresult,
        whole: u64,
    ) -> Result<(), ProtocolError> {
        let entry = if status == CUDA_SUCCESS && !native.is_null() {
            Entry::Live(Raw(native.cast()))
        } else {
            Entry::Failed(failure(status))
        };
        let tag = wire::ArrayHandle::TAG;
        self.table.insert(id, tag, entry).map_err(broken)?;
        self.settle_in(id, tag, Some(whole));
        Ok(())
    }

    /// Enters an array that the session was charged for, or credits it where there is none.
    fn charged_array(
        &mut self,
        id: u64,
        tag: u8,
        native: *mut c_void,
        status: CUresult,
        charged: u64,
    ) -> Result<(), ProtocolError> {
        self.born(id, tag, native, status)?;
        if let Some(resident) = self.residents.objects.get_mut(&id) {
            resident.charged = charged;
        }
        Ok(())
    }

    pub(crate) fn cuArray3DCreate_v2(
        &mut self,
        number: u64,
        request: wire::Array3DCreateV2,
    ) -> Result<(), ProtocolError> {
        let mut native: CUarray = std::ptr::null_mut();
        let descriptor = request.pAllocateArray.to_raw();
        let charged = bytes_of(&descriptor, 1);
        let place = &raw mut native;
        let status = self.shared.within_limit(charged, || {
            // SAFETY: one place for the array; the description is a local.
            unsafe { self.api.cuArray3DCreate_v2(place, &raw const descriptor) }
        });
        let (id, tag) = (request.pHandle.0, wire::ArrayHandle::TAG);
        self.charged_array(id, tag, native.cast(), status, charged)?;
        self.reply(number, status, &wire::Array3DCreateV2Reply {});
        Ok(())
    }

    pub(crate) fn cuMipmappedArrayCreate(
        &mut self,
        number: u64,
        request: wire::MipmappedArrayCreate,
    ) -> Result<(), ProtocolError> {
        let mut native: CUmipmappedArray = std::ptr::null_mut();
        let descriptor = request.pMipmappedArrayDesc.to_raw();
        let levels = request.numMipmapLevels;
        let charged = bytes_of(&descriptor, levels);
        let place = &raw mut native;
        let status = self.shared.within_limit(charged, || {
            // SAFETY: one place for the array; the description is a local.
            unsafe {
                self.api
                    .cuMipmappedArrayCreate(place, &raw const descriptor, levels)
            }
        });
        let (id, tag) = (request.pHandle.0, wire::MipmappedArrayHandle::TAG);
        self.charged_array(id, tag, native.cast(), status, charged)?;
        self.reply(number, status, &wire::MipmappedArrayCreateReply {});
        Ok(())
    }

    pub(crate) fn cuArrayDestroy(
        &mut self,
        number: u64,
        request: wire::ArrayDestroy,
    ) -> Result<(), ProtocolError> {
        self.end_resident(number, request.hArray.0, wire::ArrayHandle::TAG)
    }

    pub(crate) fn cuMipmappedArrayDestroy(
        &mut self,
        number: u64,
        request: wire::MipmappedArrayDestroy,
    ) -> Result<(), ProtocolError> {
        let id = request.hMipmappedArray.0;
        self.end_resident(number, id, wire::MipmappedArrayHandle::TAG)
    }

    pub(crate) fn cuTexRefDestroy(
        &mut self,
        number: u64,
        request: wire::TexRefDestroy,
    ) -> Result<(), ProtocolError> {
        let id = request.hTexRef.0;
        if !self.residents.objects.contains_key(&id) {
            // A module's ends with the module.
            self.shared.answer(number, CUDA_ERROR_INVALID_HANDLE, &[]);
            return Ok(());
        }
        self.end_resident(number, id, wire::TexrefHandle::TAG)
    }

    pub(crate) fn cuArrayGetPlane(
        &mut self,
        number: u64,
        request: wire::ArrayGetPlane,
    ) -> Result<(), ProtocolError> {
        let mut native: CUarray = std::ptr::null_mut();
        let (whole, plane) = (request.hArray.0, request.planeIdx);
        let status = match self.native(whole, wire::ArrayHandle::TAG)? {
            Err(status) => status,
            // SAFETY: the array is live; one place for the plane.
            Ok(array) => unsafe {
                self.api
                    .cuArrayGetPlane(&raw mut native, array.cast(), plane)
            },
        };
        self.part(request.pPlaneArray.0, native, status, whole)?;
        self.reply(number, status, &wire::ArrayGetPlaneReply {});
        Ok(())
    }

    pub(crate) fn cuMipmappedArrayGetLevel(
        &mut self,
        number: u64,
        request: wire::MipmappedArrayGetLevel,
    ) -> Result<(), ProtocolError> {
        let call = <wire::MipmappedArrayGetLevel as Request<'_>>::ID;
        let mut native: CUarray = std::ptr::null_mut();
        let (whole, level) = (request.hMipmappedArray.0, request.level);
        let status = match self.native(whole, wire::MipmappedArrayHandle::TAG)? {
            Err(status) => status,
            // SAFETY: the array is live; one place for the level.
            Ok(array) => unsafe {
                self.api
                    .cuMipmappedArrayGetLevel(&raw mut native, array.cast(), level)
            },
        };
        self.part(request.pLevelArray.0, native, status, whole)?;
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn cuArrayGetMemoryRequirements(
        &mut self,
        number: u64,
        request: wire::ArrayGetMemoryRequirements,
    ) -> Result<(), ProtocolError> {
        let mut told = NO_REQUIREMENTS;
        let array = self.native(request.array.0, wire::ArrayHandle::TAG)?;
        let status = match (array, self.device(request.device)) {
            (Err(status), _) | (_, Err(status)) => status,
            // SAFETY: the array is live; one place for the answer.
            (Ok(array), Ok(device)) => unsafe {
                self.api
                    .cuArrayGetMemoryRequirements(&raw mut told, array.cast(), device)
            },
        };
        let reply = wire::ArrayGetMemoryRequirementsReply {
            memoryRequirements: Some(told.into()),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn cuMipmappedArrayGetMemoryRequirements(
        &mut self,
        number: u64,
        request: wire::MipmappedArrayGetMemoryRequirements,
    ) -> Result<(), ProtocolError> {
        let mut told = NO_REQUIREMENTS;
        let mipmap = self.native(request.mipmap.0, wire::MipmappedArrayHandle::TAG)?;
        let status = match (mipmap, self.device(request.device)) {
            (Err(status), _) | (_, Err(status)) => status,
            // SAFETY: the array is live; one place for the answer.
            (Ok(mipmap), Ok(device)) => unsafe {
                self.api
                    .cuMipmappedArrayGetMemoryRequirements(&raw mut told, mipmap.cast(), device)
            },
        };
        let reply = wire::MipmappedArrayGetMemoryRequirementsReply {
            memoryRequirements: Some(told.into()),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn DevicePath(
        &mut self,
        number: u64,
        request: wire::DevicePath,
    ) -> Result<(), ProtocolError> {
        let mut values = [-1_i32; 6];
        let status = match (self.device(request.device), self.device(request.peer)) {
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(device), Ok(peer)) => self.path(&mut values, device, peer),
        };
        let reply = wire::DevicePathReply {
            values: Some(List::Values(&values)),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    fn path(&self, values: &mut [i32; 6], device: CUdevice, peer: CUdevice) -> CUresult {
        let [reachable, attributes @ ..] = values;
        // SAFETY: one place for the answer.
        let status = unsafe {
            self.api
                .cuDeviceCanAccessPeer(std::ptr::from_mut(reachable), device, peer)
        };
        for (attribute, place) in (1..).zip(attributes) {
            let mut value = 0;
            // SAFETY: one place for the answer.
            let told = unsafe {
                self.api
                    .cuDeviceGetP2PAttribute(&raw mut value, attribute, device, peer)
            };
            if told == CUDA_SUCCESS {
                *place = value;
            }
        }
        status
    }

    pub(crate) fn cuCtxDisablePeerAccess(
        &mut self,
        number: u64,
        request: wire::CtxDisablePeerAccess,
    ) -> Result<(), ProtocolError> {
        let peer = self.native(request.peerContext.0, wire::ContextHandle::TAG)?;
        let context = self.acting.clone();
        let places = self.shared.streams.all(None);
        let peer = peer.map(Raw);
        self.wait(move |shared| {
            // What was launched before may still reach over.
            shared.streams.wait(&places);
            let entered = context.map(|context| context.enter(&*shared.api));
            let status = match (entered, peer) {
                // SAFETY: the context is live.
                (Some(CUDA_SUCCESS), Ok(peer)) => unsafe {
                    shared.api.cuCtxDisablePeerAccess(peer.0.cast())
                },
                (Some(CUDA_SUCCESS), Err(status)) | (Some(status), _) => status,
                (None, _) => CUDA_ERROR_INVALID_CONTEXT,
            };
            shared.answer(number, status, &[]);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_count_as_drivers_lay_them_out() {
        let bytes = |width, height, levels| {
            let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
                Width: width,
                Height: height,
                Depth: 0,
                Format: CU_AD_FORMAT_UNSIGNED_INT8,
                NumChannels: 1,
                Flags: 0,
            };
            bytes_of(&descriptor, levels)
        };
        assert_eq!(bytes(1, 0, 1), 512);
        assert_eq!(bytes(65_536, 0, 1), 524_288);
        assert_eq!(bytes(1, 32_768, 1), 2 << 20);
        assert_eq!(bytes(100, 32_768, 1), 4 << 20);
        assert_eq!(bytes(128, 16, 2), 128 * 16 + 64 * 8);
        assert_eq!(bytes(usize::MAX, usize::MAX, 1), u64::MAX);
    }
}
