//! Textures, surfaces, texture references, descriptions of tensors.

use std::ffi::c_void;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::cuda::texture_reference as setting;
use towline_wire::error::ProtocolError;

use crate::cuda::residents::{Binding, unbind};
use crate::cuda::session::{Session, unknown};
use crate::link::Raw;

/// Most dimensions of a tensor.
const MAX_RANK: usize = 5;

/// A resource as the request has it: kind, address, format, channels, width, height, pitch, bytes. `None` for a kind that there is not.
fn resource(words: &[u64], array: Raw, mipmap: Raw) -> Option<CUDA_RESOURCE_DESC> {
    let &[kind, address, format, channels, width, height, pitch, bytes] = words else {
        return None;
    };
    let kind = kind as CUresourcetype;
    let (format, channels) = (format as CUarray_format, channels as u32);
    let reserved = CUDA_RESOURCE_DESC_res_reserved { reserved: [0; 32] };
    let mut res = CUDA_RESOURCE_DESC_res { reserved };
    match kind {
        CU_RESOURCE_TYPE_ARRAY => {
            let hArray = array.0.cast();
            res.array = CUDA_RESOURCE_DESC_res_array { hArray };
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            let hMipmappedArray = mipmap.0.cast();
            res.mipmap = CUDA_RESOURCE_DESC_res_mipmap { hMipmappedArray };
        }
        CU_RESOURCE_TYPE_LINEAR => {
            res.linear = CUDA_RESOURCE_DESC_res_linear {
                devPtr: address,
                format,
                numChannels: channels,
                sizeInBytes: bytes as usize,
            };
        }
        CU_RESOURCE_TYPE_PITCH2D => {
            res.pitch2D = CUDA_RESOURCE_DESC_res_pitch2D {
                devPtr: address,
                format,
                numChannels: channels,
                width: width as usize,
                height: height as usize,
                pitchInBytes: pitch as usize,
            };
        }
        _ => return None,
    }
    Some(CUDA_RESOURCE_DESC {
        resType: kind,
        res,
        flags: 0,
    })
}

/// Arguments of a tensor's description, one list after the other.
struct Words<'a>(&'a [u64]);

impl Words<'_> {
    fn take<T>(&mut self, count: usize, convert: impl Fn(u64) -> T) -> Option<Vec<T>> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken.iter().map(|word| convert(*word)).collect())
    }

    fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

/// Describes a tensor; `None` when the words are not what the kind has.
fn encode(
    api: &dyn CudaApi,
    kind: u32,
    address: CUdeviceptr,
    words: &[u64],
    map: &mut CUtensorMap,
) -> Option<CUresult> {
    let global: *mut c_void = std::ptr::without_provenance_mut(address as usize);
    if kind == 3 {
        map.opaque = words.try_into().ok()?;
        // SAFETY: `map` is read and written.
        return Some(unsafe { api.cuTensorMapReplaceAddress(map, global) });
    }
    let mut words = Words(words);
    let (data_type, rank) = (words.next()? as CUtensorMapDataType, words.next()?);
    let rank = usize::try_from(rank).ok()?;
    let least = if kind == 0 { 1 } else { 3 };
    if !(least..=MAX_RANK).contains(&rank) {
        return Some(CUDA_ERROR_INVALID_VALUE);
    }
    let narrow = |word: u64| word as u32;
    let signed = |word: u64| word as i32;
    let dims = words.take(rank, |word| word)?;
    let strides = words.take(rank - 1, |word| word)?;
    let count = rank as u32;
    let (dims, strides) = (dims.as_slice(), strides.as_slice());
    let status = match kind {
        0 => {
            let area = words.take(rank, narrow)?;
            let steps = words.take(rank, narrow)?;
            let &[interleave, swizzle, promotion, fill] = words.0 else {
                return None;
            };
            // SAFETY: each list has as many elements as the rank asks for; `map` is written.
            unsafe {
                api.cuTensorMapEncodeTiled(
                    map,
                    data_type,
                    count,
                    global,
                    dims.as_ptr(),
                    strides.as_ptr(),
                    area.as_ptr(),
                    steps.as_ptr(),
                    narrow(interleave),
                    narrow(swizzle),
                    narrow(promotion),
                    narrow(fill),
                )
            }
        }
        1 => {
            let lower = words.take(rank - 2, signed)?;
            let upper = words.take(rank - 2, signed)?;
            let (channels, pixels) = (words.next()?, words.next()?);
            let steps = words.take(rank, narrow)?;
            let &[interleave, swizzle, promotion, fill] = words.0 else {
                return None;
            };
            // SAFETY: as above.
            unsafe {
                api.cuTensorMapEncodeIm2col(
                    map,
                    data_type,
                    count,
                    global,
                    dims.as_ptr(),
                    strides.as_ptr(),
                    lower.as_ptr(),
                    upper.as_ptr(),
                    narrow(channels),
                    narrow(pixels),
                    steps.as_ptr(),
                    narrow(interleave),
                    narrow(swizzle),
                    narrow(promotion),
                    narrow(fill),
                )
            }
        }
        2 => {
            let (lower, upper) = (words.next()?, words.next()?);
            let (channels, pixels) = (words.next()?, words.next()?);
            let steps = words.take(rank, narrow)?;
            let &[interleave, mode, swizzle, promotion, fill] = words.0 else {
                return None;
            };
            // SAFETY: as above.
            unsafe {
                api.cuTensorMapEncodeIm2colWide(
                    map,
                    data_type,
                    count,
                    global,
                    dims.as_ptr(),
                    strides.as_ptr(),
                    signed(lower),
                    signed(upper),
                    narrow(channels),
                    narrow(pixels),
                    steps.as_ptr(),
                    narrow(interleave),
                    narrow(mode),
                    narrow(swizzle),
                    narrow(promotion),
                    narrow(fill),
                )
            }
        }
        _ => return None,
    };
    Some(status)
}

/// Applies a setting of a texture reference; the answer is the offset of memory that it is bound to.
fn apply(
    api: &dyn CudaApi,
    reference: CUtexref,
    which: u32,
    (array, mipmap): (Raw, Raw),
    words: [u64; 6],
) -> (CUresult, usize) {
    let mut offset = 0;
    let float = |word: u64| f32::from_bits(word as u32);
    let [first, second, third, fourth, fifth, sixth] = words;
    let rectangle = CUDA_ARRAY_DESCRIPTOR {
        Width: first as usize,
        Height: second as usize,
        Format: third as CUarray_format,
        NumChannels: fourth as u32,
    };
    let rectangle = &raw const rectangle;
    let mut color = [float(first), float(second), float(third), float(fourth)];
    let color = color.as_mut_ptr();
    let number = first as u32;
    let status = match which {
        // SAFETY: in this and the others the reference and what it is bound to are live; the driver judges the rest.
        setting::ARRAY => unsafe { api.cuTexRefSetArray(reference, array.0.cast(), number) },
        // SAFETY: as above.
        setting::MIPMAP => unsafe {
            api.cuTexRefSetMipmappedArray(reference, mipmap.0.cast(), number)
        },
        // SAFETY: as above.
        setting::ADDRESS => unsafe {
            api.cuTexRefSetAddress_v2(&raw mut offset, reference, first, second as usize)
        },
        // SAFETY: as above.
        setting::ADDRESS_2D => unsafe {
            api.cuTexRefSetAddress2D_v3(reference, rectangle, fifth, sixth as usize)
        },
        // SAFETY: as above.
        setting::ADDRESS_2D_UNALIGNED => unsafe {
            api.cuTexRefSetAddress2D_v2(reference, rectangle, fifth, sixth as usize)
        },
        // SAFETY: as above.
        setting::FORMAT => unsafe { api.cuTexRefSetFormat(reference, number, second as i32) },
        // SAFETY: as above.
        setting::ADDRESS_MODE => unsafe {
            api.cuTexRefSetAddressMode(reference, first as i32, second as u32)
        },
        // SAFETY: as above.
        setting::FILTER_MODE => unsafe { api.cuTexRefSetFilterMode(reference, number) },
        // SAFETY: as above.
        setting::MIPMAP_FILTER_MODE => unsafe {
            api.cuTexRefSetMipmapFilterMode(reference, number)
        },
        // SAFETY: as above.
        setting::MIPMAP_LEVEL_BIAS => unsafe {
            api.cuTexRefSetMipmapLevelBias(reference, float(first))
        },
        // SAFETY: as above.
        setting::MIPMAP_LEVEL_CLAMP => unsafe {
            api.cuTexRefSetMipmapLevelClamp(reference, float(first), float(second))
        },
        // SAFETY: as above.
        setting::MAX_ANISOTROPY => unsafe { api.cuTexRefSetMaxAnisotropy(reference, number) },
        // SAFETY: as above; four components.
        setting::BORDER_COLOR => unsafe { api.cuTexRefSetBorderColor(reference, color) },
        // SAFETY: as above.
        setting::FLAGS => unsafe { api.cuTexRefSetFlags(reference, number) },
        _ => CUDA_ERROR_INVALID_VALUE,
    };
    (status, offset)
}

/// Asks for a setting of a texture reference.
fn ask(
    api: &dyn CudaApi,
    reference: CUtexref,
    which: u32,
    index: i32,
    words: &mut [u64; 4],
) -> CUresult {
    let (mut address, mut number, mut signed) = (0_u64, 0_u32, 0_i32);
    let mut floats = [0.0_f32; 4];
    let [low, high, ..] = &mut floats;
    let status = match which {
        // SAFETY: in this and the others the reference is live, and the places are writable.
        setting::ADDRESS => unsafe { api.cuTexRefGetAddress_v2(&raw mut address, reference) },
        // SAFETY: as above.
        setting::FORMAT => unsafe {
            api.cuTexRefGetFormat(&raw mut number, &raw mut signed, reference)
        },
        // SAFETY: as above.
        setting::ADDRESS_MODE => unsafe {
            api.cuTexRefGetAddressMode(&raw mut number, reference, index)
        },
        // SAFETY: as above.
        setting::FILTER_MODE => unsafe { api.cuTexRefGetFilterMode(&raw mut number, reference) },
        // SAFETY: as above.
        setting::MIPMAP_FILTER_MODE => unsafe {
            api.cuTexRefGetMipmapFilterMode(&raw mut number, reference)
        },
        // SAFETY: as above.
        setting::MIPMAP_LEVEL_BIAS => unsafe { api.cuTexRefGetMipmapLevelBias(low, reference) },
        // SAFETY: as above.
        setting::MIPMAP_LEVEL_CLAMP => unsafe {
            api.cuTexRefGetMipmapLevelClamp(low, high, reference)
        },
        // SAFETY: as above.
        setting::MAX_ANISOTROPY => unsafe {
            api.cuTexRefGetMaxAnisotropy(&raw mut signed, reference)
        },
        // SAFETY: as above; room for four components.
        setting::BORDER_COLOR => unsafe {
            api.cuTexRefGetBorderColor(floats.as_mut_ptr(), reference)
        },
        // SAFETY: as above.
        setting::FLAGS => unsafe { api.cuTexRefGetFlags(&raw mut number, reference) },
        _ => CUDA_ERROR_INVALID_VALUE,
    };
    *words = match which {
        setting::ADDRESS => [address, 0, 0, 0],
        setting::FORMAT => [number.into(), signed as u64, 0, 0],
        setting::MAX_ANISOTROPY => [signed as u64, 0, 0, 0],
        setting::MIPMAP_LEVEL_BIAS | setting::MIPMAP_LEVEL_CLAMP | setting::BORDER_COLOR => {
            floats.map(|value| value.to_bits().into())
        }
        _ => [number.into(), 0, 0, 0],
    };
    status
}

impl Session {
    /// Enters a texture or a surface that the driver made in the context that messages act in.
    fn bound(&mut self, object: u64, binding: Binding, status: CUresult) {
        if let (CUDA_SUCCESS, Some(context)) = (status, &self.acting) {
            let key = (context.id, binding, object);
            self.residents.bindings.insert(key);
        }
    }

    pub(crate) fn TextureCreate(
        &mut self,
        number: u64,
        request: wire::TextureCreate<'_>,
    ) -> Result<(), ProtocolError> {
        let array = self.optional(request.array.0, wire::ArrayHandle::TAG)?;
        let mipmap = self.optional(request.mipmap.0, wire::MipmappedArrayHandle::TAG)?;
        let words: Vec<u64> = request.resource.iter().collect();
        let texture = request.texture.to_raw();
        let view = request.view.map(|view| view.to_raw());
        let mut object = 0;
        let status = match (array, mipmap) {
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(array), Ok(mipmap)) => match resource(&words, array, mipmap) {
                None => CUDA_ERROR_INVALID_VALUE,
                // SAFETY: the descriptions are whole, and what they name is live; one place for the object.
                Some(resource) => unsafe {
                    self.api.cuTexObjectCreate(
                        &raw mut object,
                        &raw const resource,
                        &raw const texture,
                        view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                    )
                },
            },
        };
        self.bound(object, Binding::Texture, status);
        let reply = wire::TextureCreateReply {
            object: Some(object),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn SurfaceCreate(
        &mut self,
        number: u64,
        request: wire::SurfaceCreate,
    ) -> Result<(), ProtocolError> {
        let none = Raw(std::ptr::null_mut());
        let words = [u64::from(CU_RESOURCE_TYPE_ARRAY), 0, 0, 0, 0, 0, 0, 0];
        let mut object = 0;
        let status = match self.native(request.array.0, wire::ArrayHandle::TAG)? {
            Err(status) => status,
            Ok(array) => match resource(&words, Raw(array), none) {
                None => CUDA_ERROR_INVALID_VALUE,
                // SAFETY: the array is live; one place for the object.
                Some(resource) => unsafe {
                    self.api
                        .cuSurfObjectCreate(&raw mut object, &raw const resource)
                },
            },
        };
        self.bound(object, Binding::Surface, status);
        let reply = wire::SurfaceCreateReply {
            object: Some(object),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    /// Ends a texture or a surface of the context that messages act in, once what is parked now has run: it may use the object.
    fn unbind_later(
        &mut self,
        number: u64,
        call: u16,
        object: u64,
        binding: Binding,
    ) -> Result<(), ProtocolError> {
        let context = self.acting.clone();
        let home = context.as_ref().map_or(0, |context| context.id);
        if !self.residents.bindings.remove(&(home, binding, object)) {
            return Err(unknown("texture or surface", object));
        }
        let places = self.shared.streams.all(None);
        if places.is_empty() {
            let status = unbind(&*self.api, binding, object);
            self.settle(number, call, status);
            return Ok(());
        }
        self.shared.start(move |shared| {
            shared.streams.wait(&places);
            let status = match context.map(|context| context.enter(&*shared.api)) {
                Some(CUDA_SUCCESS) => unbind(&*shared.api, binding, object),
                // It ended with its context.
                _ => CUDA_SUCCESS,
            };
            shared.settle(number, call, 0, status);
            shared.flush();
        });
        Ok(())
    }

    pub(crate) fn cuTexObjectDestroy(
        &mut self,
        number: u64,
        request: wire::TexObjectDestroy,
    ) -> Result<(), ProtocolError> {
        let call = <wire::TexObjectDestroy as Request<'_>>::ID;
        self.unbind_later(number, call, request.texObject, Binding::Texture)
    }

    pub(crate) fn cuSurfObjectDestroy(
        &mut self,
        number: u64,
        request: wire::SurfObjectDestroy,
    ) -> Result<(), ProtocolError> {
        let call = <wire::SurfObjectDestroy as Request<'_>>::ID;
        self.unbind_later(number, call, request.surfObject, Binding::Surface)
    }

    pub(crate) fn TensorMap(
        &mut self,
        number: u64,
        request: wire::TensorMap<'_>,
    ) -> Result<(), ProtocolError> {
        let words: Vec<u64> = request.words.iter().collect();
        let mut map = CUtensorMap { opaque: [0; 16] };
        let status = encode(&*self.api, request.kind, request.address, &words, &mut map)
            .unwrap_or(CUDA_ERROR_INVALID_VALUE);
        let bytes: Vec<u8> = map
            .opaque
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let reply = wire::TensorMapReply { map: Some(&bytes) };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn cuTexRefCreate(
        &mut self,
        number: u64,
        request: wire::TexRefCreate,
    ) -> Result<(), ProtocolError> {
        let mut native: CUtexref = std::ptr::null_mut();
        // SAFETY: one place for the reference.
        let status = unsafe { self.api.cuTexRefCreate(&raw mut native) };
        let (id, tag) = (request.pTexRef.0, wire::TexrefHandle::TAG);
        self.born(id, tag, native.cast(), status)?;
        if status == CUDA_SUCCESS {
            self.settle_in(id, tag, None);
        }
        self.reply(number, status, &wire::TexRefCreateReply {});
        Ok(())
    }

    pub(crate) fn TextureReferenceSet(
        &mut self,
        number: u64,
        request: wire::TextureReferenceSet<'_>,
    ) -> Result<(), ProtocolError> {
        let reference = self.native(request.reference.0, wire::TexrefHandle::TAG)?;
        let array = self.optional(request.array.0, wire::ArrayHandle::TAG)?;
        let mipmap = self.optional(request.mipmap.0, wire::MipmappedArrayHandle::TAG)?;
        let ready = reference.and_then(|reference| Ok((Raw(reference), (array?, mipmap?))));
        let mut words = [0; 6];
        for (place, word) in words.iter_mut().zip(request.words.iter()) {
            *place = word;
        }
        let which = request.setting;
        let context = self.acting.clone();
        let places = self.shared.streams.all(None);
        self.wait(move |shared| {
            // What was launched before reads as the reference said then.
            shared.streams.wait(&places);
            let entered = context.map(|context| context.enter(&*shared.api));
            let (status, offset) = match (entered, ready) {
                (Some(CUDA_SUCCESS), Ok((reference, arrays))) => {
                    apply(&*shared.api, reference.0.cast(), which, arrays, words)
                }
                (Some(CUDA_SUCCESS), Err(status)) | (Some(status), _) => (status, 0),
                (None, _) => (CUDA_ERROR_INVALID_CONTEXT, 0),
            };
            let reply = wire::TextureReferenceSetReply {
                offset: Some(offset as u64),
            };
            shared.reply(number, status, &reply);
        });
        Ok(())
    }

    pub(crate) fn TextureReferenceGet(
        &mut self,
        number: u64,
        request: wire::TextureReferenceGet,
    ) -> Result<(), ProtocolError> {
        let mut words = [0; 4];
        let status = match self.native(request.reference.0, wire::TexrefHandle::TAG)? {
            Err(status) => status,
            Ok(reference) => ask(
                &*self.api,
                reference.cast(),
                request.setting,
                request.index,
                &mut words,
            ),
        };
        let reply = wire::TextureReferenceGetReply {
            words: Some(List::Values(&words)),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn cuSurfRefSetArray(
        &mut self,
        number: u64,
        request: wire::SurfRefSetArray,
    ) -> Result<(), ProtocolError> {
        let reference = self.native(request.hSurfRef.0, wire::SurfrefHandle::TAG)?;
        let array = self.native(request.hArray.0, wire::ArrayHandle::TAG)?;
        let ready = reference.and_then(|reference| Ok((Raw(reference), Raw(array?))));
        let flags = request.Flags;
        let context = self.acting.clone();
        let places = self.shared.streams.all(None);
        self.wait(move |shared| {
            shared.streams.wait(&places);
            let entered = context.map(|context| context.enter(&*shared.api));
            let status = match (entered, ready) {
                // SAFETY: both are live.
                (Some(CUDA_SUCCESS), Ok((reference, array))) => unsafe {
                    shared
                        .api
                        .cuSurfRefSetArray(reference.0.cast(), array.0.cast(), flags)
                },
                (Some(CUDA_SUCCESS), Err(status)) | (Some(status), _) => status,
                (None, _) => CUDA_ERROR_INVALID_CONTEXT,
            };
            shared.answer(number, status, &[]);
        });
        Ok(())
    }
}
