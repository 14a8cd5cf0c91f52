//! Textures and surfaces.

use towline_backend::cuda::*;

use super::memory::{address, pointer};
use super::register::optional;
use crate::describe::{element, format};
use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, get, put};

/// Read as the element is, not as a number from 0 to 1.
const READ_ELEMENTS: u32 = 0;

/// What version 13 has behind the structures of 12.
const LATER_RESOURCE: usize = 144 - size_of::<cudaResourceDesc>();
const LATER_VIEW: usize = 112 - size_of::<cudaResourceViewDesc>();

/// The driver's description of a resource.
fn resource(desc: &cudaResourceDesc) -> Outcome<CUDA_RESOURCE_DESC> {
    let res = match desc.resType {
        CU_RESOURCE_TYPE_ARRAY => CUDA_RESOURCE_DESC_res {
            array: CUDA_RESOURCE_DESC_res_array {
                // SAFETY: `resType` says that this member is meant; any bits are a handle.
                hArray: unsafe { desc.res.array },
            },
        },
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => CUDA_RESOURCE_DESC_res {
            mipmap: CUDA_RESOURCE_DESC_res_mipmap {
                // SAFETY: as above.
                hMipmappedArray: unsafe { desc.res.mipmap },
            },
        },
        CU_RESOURCE_TYPE_LINEAR => {
            // SAFETY: `resType` says that this member is meant; any bits are numbers.
            let linear = unsafe { desc.res.linear };
            let (format, numChannels) = format(&linear.desc)?;
            CUDA_RESOURCE_DESC_res {
                linear: CUDA_RESOURCE_DESC_res_linear {
                    devPtr: address(linear.devPtr),
                    format,
                    numChannels,
                    sizeInBytes: linear.sizeInBytes,
                },
            }
        }
        CU_RESOURCE_TYPE_PITCH2D => {
            // SAFETY: as above.
            let rows = unsafe { desc.res.pitch2D };
            let (format, numChannels) = format(&rows.desc)?;
            CUDA_RESOURCE_DESC_res {
                pitch2D: CUDA_RESOURCE_DESC_res_pitch2D {
                    devPtr: address(rows.devPtr),
                    format,
                    numChannels,
                    width: rows.width,
                    height: rows.height,
                    pitchInBytes: rows.pitchInBytes,
                },
            }
        }
        _ => return Err(cudaErrorInvalidValue),
    };
    Ok(CUDA_RESOURCE_DESC {
        resType: desc.resType,
        res,
        flags: 0,
    })
}

/// The runtime's description of a resource.
fn resource_back(desc: &CUDA_RESOURCE_DESC) -> Outcome<cudaResourceDesc> {
    let res = match desc.resType {
        CU_RESOURCE_TYPE_ARRAY => cudaResourceDesc_res {
            // SAFETY: the driver says that this member is meant.
            array: unsafe { desc.res.array }.hArray,
        },
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => cudaResourceDesc_res {
            // SAFETY: as above.
            mipmap: unsafe { desc.res.mipmap }.hMipmappedArray,
        },
        CU_RESOURCE_TYPE_LINEAR => {
            // SAFETY: as above.
            let linear = unsafe { desc.res.linear };
            cudaResourceDesc_res {
                linear: cudaResourceDesc_linear {
                    devPtr: pointer(linear.devPtr),
                    desc: element(linear.format, linear.numChannels)?,
                    sizeInBytes: linear.sizeInBytes,
                },
            }
        }
        CU_RESOURCE_TYPE_PITCH2D => {
            // SAFETY: as above.
            let rows = unsafe { desc.res.pitch2D };
            cudaResourceDesc_res {
                pitch2D: cudaResourceDesc_pitch2D {
                    devPtr: pointer(rows.devPtr),
                    desc: element(rows.format, rows.numChannels)?,
                    width: rows.width,
                    height: rows.height,
                    pitchInBytes: rows.pitchInBytes,
                },
            }
        }
        _ => return Err(cudaErrorUnknown),
    };
    Ok(cudaResourceDesc {
        resType: desc.resType,
        res,
    })
}

/// The format of what a texture reads, where that is not in an array.
fn read_as_elements(resource: &CUDA_RESOURCE_DESC, desc: &cudaTextureDesc) -> bool {
    let format = match resource.resType {
        // SAFETY: the type says that this member is meant.
        CU_RESOURCE_TYPE_LINEAR => unsafe { resource.res.linear }.format,
        // SAFETY: as above.
        CU_RESOURCE_TYPE_PITCH2D => unsafe { resource.res.pitch2D }.format,
        _ => return desc.readMode == READ_ELEMENTS,
    };
    // What has a fraction is read as it is whatever the flag says.
    let has_fraction = matches!(format, CU_AD_FORMAT_HALF | CU_AD_FORMAT_FLOAT);
    desc.readMode == READ_ELEMENTS && !has_fraction
}

/// The driver's description of how a texture reads.
fn texture(resource: &CUDA_RESOURCE_DESC, desc: &cudaTextureDesc) -> CUDA_TEXTURE_DESC {
    let flags = [
        (read_as_elements(resource, desc), CU_TRSF_READ_AS_INTEGER),
        (desc.normalizedCoords != 0, CU_TRSF_NORMALIZED_COORDINATES),
        (desc.sRGB != 0, CU_TRSF_SRGB),
        (
            desc.disableTrilinearOptimization != 0,
            CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION,
        ),
        (desc.seamlessCubemap != 0, CU_TRSF_SEAMLESS_CUBEMAP),
    ];
    let flags = flags.iter().filter(|(set, _)| *set);
    CUDA_TEXTURE_DESC {
        addressMode: desc.addressMode,
        filterMode: desc.filterMode,
        flags: flags.fold(0, |flags, (_, flag)| flags | flag),
        maxAnisotropy: desc.maxAnisotropy,
        mipmapFilterMode: desc.mipmapFilterMode,
        mipmapLevelBias: desc.mipmapLevelBias,
        minMipmapLevelClamp: desc.minMipmapLevelClamp,
        maxMipmapLevelClamp: desc.maxMipmapLevelClamp,
        borderColor: desc.borderColor,
        reserved: [0; 12],
    }
}

fn texture_back(desc: &CUDA_TEXTURE_DESC) -> cudaTextureDesc {
    let has = |flag| desc.flags & flag != 0;
    cudaTextureDesc {
        addressMode: desc.addressMode,
        filterMode: desc.filterMode,
        readMode: u32::from(!has(CU_TRSF_READ_AS_INTEGER)),
        sRGB: has(CU_TRSF_SRGB).into(),
        borderColor: desc.borderColor,
        normalizedCoords: has(CU_TRSF_NORMALIZED_COORDINATES).into(),
        maxAnisotropy: desc.maxAnisotropy,
        mipmapFilterMode: desc.mipmapFilterMode,
        mipmapLevelBias: desc.mipmapLevelBias,
        minMipmapLevelClamp: desc.minMipmapLevelClamp,
        maxMipmapLevelClamp: desc.maxMipmapLevelClamp,
        disableTrilinearOptimization: has(CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION).into(),
        seamlessCubemap: has(CU_TRSF_SEAMLESS_CUBEMAP).into(),
    }
}

/// Room for what the driver tells.
fn empty() -> CUDA_RESOURCE_DESC {
    CUDA_RESOURCE_DESC {
        resType: 0,
        res: CUDA_RESOURCE_DESC_res {
            reserved: CUDA_RESOURCE_DESC_res_reserved { reserved: [0; 32] },
        },
        flags: 0,
    }
}

impl Runtime {
    pub unsafe fn cudaCreateTextureObject(
        &self,
        pTexObject: *mut cudaTextureObject_t,
        pResDesc: *const cudaResourceDesc,
        pTexDesc: *const cudaTextureDesc,
        pResViewDesc: *const cudaResourceViewDesc,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let resource = resource(&get!(pResDesc))?;
            let texture = texture(&resource, &get!(pTexDesc));
            let view = optional(pResViewDesc)?.map(|view| CUDA_RESOURCE_VIEW_DESC {
                format: view.format,
                width: view.width,
                height: view.height,
                depth: view.depth,
                firstMipmapLevel: view.firstMipmapLevel,
                lastMipmapLevel: view.lastMipmapLevel,
                firstLayer: view.firstLayer,
                lastLayer: view.lastLayer,
                reserved: [0; 16],
            });
            call!(driver.cuTexObjectCreate(
                pTexObject,
                &raw const resource,
                &raw const texture,
                view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)
            ));
            Ok(())
        })
    }

    pub unsafe fn cudaCreateSurfaceObject(
        &self,
        pSurfObject: *mut cudaSurfaceObject_t,
        pResDesc: *const cudaResourceDesc,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let resource = resource(&get!(pResDesc))?;
            call!(driver.cuSurfObjectCreate(pSurfObject, &raw const resource));
            Ok(())
        })
    }

    fn tell_resource(&self, target: *mut cudaResourceDesc, found: &CUDA_RESOURCE_DESC) -> Outcome {
        put!(target, resource_back(found)?);
        if self.major() >= 13 {
            let later = target.wrapping_add(1).cast::<[u8; LATER_RESOURCE]>();
            put!(later, [0; LATER_RESOURCE]);
        }
        Ok(())
    }

    pub unsafe fn cudaGetTextureObjectResourceDesc(
        &self,
        pResDesc: *mut cudaResourceDesc,
        texObject: cudaTextureObject_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut found = empty();
            call!(driver.cuTexObjectGetResourceDesc(&raw mut found, texObject));
            self.tell_resource(pResDesc, &found)
        })
    }

    pub unsafe fn cudaGetSurfaceObjectResourceDesc(
        &self,
        pResDesc: *mut cudaResourceDesc,
        surfObject: cudaSurfaceObject_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut found = empty();
            call!(driver.cuSurfObjectGetResourceDesc(&raw mut found, surfObject));
            self.tell_resource(pResDesc, &found)
        })
    }

    pub unsafe fn cudaGetTextureObjectTextureDesc(
        &self,
        pTexDesc: *mut cudaTextureDesc,
        texObject: cudaTextureObject_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut found = CUDA_TEXTURE_DESC {
                addressMode: [0; 3],
                filterMode: 0,
                flags: 0,
                maxAnisotropy: 0,
                mipmapFilterMode: 0,
                mipmapLevelBias: 0.0,
                minMipmapLevelClamp: 0.0,
                maxMipmapLevelClamp: 0.0,
                borderColor: [0.0; 4],
                reserved: [0; 12],
            };
            call!(driver.cuTexObjectGetTextureDesc(&raw mut found, texObject));
            put!(pTexDesc, texture_back(&found));
            Ok(())
        })
    }

    pub unsafe fn cudaGetTextureObjectResourceViewDesc(
        &self,
        pResViewDesc: *mut cudaResourceViewDesc,
        texObject: cudaTextureObject_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut found = CUDA_RESOURCE_VIEW_DESC {
                format: 0,
                width: 0,
                height: 0,
                depth: 0,
                firstMipmapLevel: 0,
                lastMipmapLevel: 0,
                firstLayer: 0,
                lastLayer: 0,
                reserved: [0; 16],
            };
            call!(driver.cuTexObjectGetResourceViewDesc(&raw mut found, texObject));
            put!(
                pResViewDesc,
                cudaResourceViewDesc {
                    format: found.format,
                    width: found.width,
                    height: found.height,
                    depth: found.depth,
                    firstMipmapLevel: found.firstMipmapLevel,
                    lastMipmapLevel: found.lastMipmapLevel,
                    firstLayer: found.firstLayer,
                    lastLayer: found.lastLayer,
                }
            );
            if self.major() >= 13 {
                let later = pResViewDesc.wrapping_add(1).cast::<[u8; LATER_VIEW]>();
                put!(later, [0; LATER_VIEW]);
            }
            Ok(())
        })
    }
}
