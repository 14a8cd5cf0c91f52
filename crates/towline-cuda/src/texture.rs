//! Textures, surfaces and texture references.

mod calls;
mod reference;

use std::collections::HashMap;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Driver, read, write};

/// What a texture or a surface is over.
#[derive(Debug, Clone, Copy)]
struct Resource {
    kind: CUresourcetype,
    /// An array's number, or a mipmapped one's.
    array: u64,
    /// Address, format, channels, width, height, pitch, bytes.
    words: [u64; 7],
}

/// How a texture was created.
#[derive(Debug, Clone, Copy)]
struct Texture {
    resource: Resource,
    /// A surface has neither this nor a view.
    texture: Option<CUDA_TEXTURE_DESC>,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

/// Textures and surfaces.
#[derive(Default)]
pub(crate) struct Textures {
    /// By the number of their context, whether it is a surface, and the number that the driver gave each in its context.
    objects: HashMap<(u64, bool, u64), Texture>,
    /// What texture and surface references are bound to, by their number.
    bound: HashMap<u64, reference::Bound>,
}

impl Textures {
    pub(crate) fn drop_context(&mut self, context: u64) {
        self.objects.retain(|(home, ..), _| *home != context);
    }
}

impl Resource {
    fn new(resource: &CUDA_RESOURCE_DESC) -> Result<Self, CUresult> {
        if resource.flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let kind = resource.resType;
        let (mut array, mut words) = (0, [0; 7]);
        match kind {
            CU_RESOURCE_TYPE_ARRAY => {
                // SAFETY: in this and the others the kind says which field it is.
                array = unsafe { resource.res.array }.hArray.addr() as u64;
            }
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                // SAFETY: as above.
                array = unsafe { resource.res.mipmap }.hMipmappedArray.addr() as u64;
            }
            CU_RESOURCE_TYPE_LINEAR => {
                // SAFETY: as above.
                let linear = unsafe { resource.res.linear };
                let (format, channels) = (linear.format.into(), linear.numChannels.into());
                let bytes = linear.sizeInBytes as u64;
                words = [linear.devPtr, format, channels, 0, 0, 0, bytes];
            }
            CU_RESOURCE_TYPE_PITCH2D => {
                // SAFETY: as above.
                let rows = unsafe { resource.res.pitch2D };
                let (format, channels) = (rows.format.into(), rows.numChannels.into());
                let [width, height, pitch] =
                    [rows.width, rows.height, rows.pitchInBytes].map(|side| side as u64);
                words = [rows.devPtr, format, channels, width, height, pitch, 0];
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(Self { kind, array, words })
    }

    fn to_raw(self) -> CUDA_RESOURCE_DESC {
        let reserved = CUDA_RESOURCE_DESC_res_reserved { reserved: [0; 32] };
        let mut res = CUDA_RESOURCE_DESC_res { reserved };
        let [devPtr, format, numChannels, width, height, pitch, bytes] = self.words;
        let (format, numChannels) = (format as CUarray_format, numChannels as u32);
        match self.kind {
            CU_RESOURCE_TYPE_ARRAY => {
                let hArray = wire::ArrayHandle(self.array).to_raw();
                res.array = CUDA_RESOURCE_DESC_res_array { hArray };
            }
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                let hMipmappedArray = wire::MipmappedArrayHandle(self.array).to_raw();
                res.mipmap = CUDA_RESOURCE_DESC_res_mipmap { hMipmappedArray };
            }
            CU_RESOURCE_TYPE_LINEAR => {
                res.linear = CUDA_RESOURCE_DESC_res_linear {
                    devPtr,
                    format,
                    numChannels,
                    sizeInBytes: bytes as usize,
                };
            }
            _ => {
                res.pitch2D = CUDA_RESOURCE_DESC_res_pitch2D {
                    devPtr,
                    format,
                    numChannels,
                    width: width as usize,
                    height: height as usize,
                    pitchInBytes: pitch as usize,
                };
            }
        }
        CUDA_RESOURCE_DESC {
            resType: self.kind,
            res,
            flags: 0,
        }
    }

    /// The array of the kind that the resource says, of this session.
    fn check(&self, driver: &Driver, session: u8) -> Result<(u64, u64), CUresult> {
        let arrays = read(&driver.arrays);
        let (found, numbers) = match self.kind {
            CU_RESOURCE_TYPE_ARRAY => (arrays.plain(self.array)?, (self.array, 0)),
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => (arrays.mipmap(self.array)?, (0, self.array)),
            _ => return Ok((0, 0)),
        };
        match driver.context(found.context)?.session == session {
            true => Ok(numbers),
            false => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    }
}

impl Driver {
    fn create_texture(
        &self,
        resource: &CUDA_RESOURCE_DESC,
        texture: CUDA_TEXTURE_DESC,
        view: Option<CUDA_RESOURCE_VIEW_DESC>,
    ) -> Result<CUtexObject, CUresult> {
        let acting = self.session_for(0)?;
        let resource = Resource::new(resource)?;
        let (array, mipmap) = resource.check(self, acting.context.session)?;
        let [address, format, channels, width, height, pitch, bytes] = resource.words;
        let kind = u64::from(resource.kind);
        let words = [kind, address, format, channels, width, height, pitch, bytes];
        let request = wire::TextureCreate {
            array: wire::ArrayHandle(array),
            mipmap: wire::MipmappedArrayHandle(mipmap),
            resource: wire::List::Values(&words),
            texture: texture.into(),
            view: view.map(Into::into),
        };
        let body = acting.call_for("cuTexObjectCreate", &request)?;
        let reply = wire::TextureCreateReply::decode(&body).map_err(|_| acting.malformed())?;
        let object = reply.object.ok_or(CUDA_ERROR_UNKNOWN)?;
        let made = Texture {
            resource,
            texture: Some(texture),
            view,
        };
        let key = (acting.context.number, false, object);
        write(&self.textures).objects.insert(key, made);
        Ok(object)
    }

    fn create_surface(&self, resource: &CUDA_RESOURCE_DESC) -> Result<CUsurfObject, CUresult> {
        let acting = self.session_for(0)?;
        let resource = Resource::new(resource)?;
        if resource.kind != CU_RESOURCE_TYPE_ARRAY {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (array, _) = resource.check(self, acting.context.session)?;
        let request = wire::SurfaceCreate {
            array: wire::ArrayHandle(array),
        };
        let body = acting.call_for("cuSurfObjectCreate", &request)?;
        let reply = wire::SurfaceCreateReply::decode(&body).map_err(|_| acting.malformed())?;
        let object = reply.object.ok_or(CUDA_ERROR_UNKNOWN)?;
        let made = Texture {
            resource,
            texture: None,
            view: None,
        };
        let key = (acting.context.number, true, object);
        write(&self.textures).objects.insert(key, made);
        Ok(object)
    }

    /// A texture of the current context, or a surface.
    fn texture(&self, object: u64, surface: bool) -> Result<Texture, CUresult> {
        let key = (self.current()?.number, surface, object);
        let found = read(&self.textures).objects.get(&key).copied();
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn destroy_texture(&self, object: u64, surface: bool) -> Result<(), CUresult> {
        let acting = self.session_for(0)?;
        let key = (acting.context.number, surface, object);
        // Destroying none is no mistake (seen with driver 580.159).
        if write(&self.textures).objects.remove(&key).is_none() {
            return Ok(());
        }
        match surface {
            true => acting.post(&wire::SurfObjectDestroy { surfObject: object }),
            false => acting.post(&wire::TexObjectDestroy { texObject: object }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_told_as_it_was_given() {
        let pitch2D = CUDA_RESOURCE_DESC_res_pitch2D {
            devPtr: 0x7000,
            format: CU_AD_FORMAT_HALF,
            numChannels: 2,
            width: 30,
            height: 20,
            pitchInBytes: 512,
        };
        let given = CUDA_RESOURCE_DESC {
            resType: CU_RESOURCE_TYPE_PITCH2D,
            res: CUDA_RESOURCE_DESC_res { pitch2D },
            flags: 0,
        };
        let told = Resource::new(&given).expect("it is a resource").to_raw();
        assert_eq!(told.resType, CU_RESOURCE_TYPE_PITCH2D);
        // SAFETY: the kind says that this is it.
        assert_eq!(unsafe { told.res.pitch2D }, pitch2D);
        let unknown = CUDA_RESOURCE_DESC {
            resType: 9,
            ..given
        };
        assert_eq!(
            Resource::new(&unknown).map(|_| ()),
            Err(CUDA_ERROR_INVALID_VALUE)
        );
        let flagged = CUDA_RESOURCE_DESC { flags: 1, ..given };
        assert_eq!(
            Resource::new(&flagged).map(|_| ()),
            Err(CUDA_ERROR_INVALID_VALUE)
        );
    }
}
