//! Texture and surface references: variables of modules, by whose addresses kernels know what they are bound to.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;

use towline_backend::cuda::references::{ALIGNMENT, Bound, Reference, ReferenceDevice};
use towline_backend::cuda::*;
use towline_ptx::ptx::Type;

use super::modules::Module;
use super::textures::texture_of;
use super::{SoftCuda, fresh, lock};
use crate::image::Image;
use crate::texture::{Edge, Object, Sampler};

/// References by handle, which for a module's is the variable's address.
#[derive(Debug, Default)]
pub(super) struct References {
    all: HashMap<usize, Reference>,
    /// Those that are surfaces.
    surfaces: HashSet<usize>,
}

impl References {
    /// Takes those that a context had.
    pub(super) fn end_context(&mut self, context: usize) -> Vec<usize> {
        let ended = self
            .all
            .extract_if(|_, reference| reference.context == context);
        ended.map(|(handle, _)| handle).collect()
    }
}

impl SoftCuda {
    /// A module is unloaded, and its variables with it.
    pub(super) fn forget_references(&self, module: &Module) {
        let mut references = lock(&self.references);
        for address in module.objects() {
            references.all.remove(&(address as usize));
            references.surfaces.remove(&(address as usize));
            self.bindings.remove(address);
        }
    }

    /// A module is loaded: its samplers are as they are declared.
    pub(super) fn enter_samplers(&self, image: &Image) {
        for (address, settings) in image.samplers() {
            self.bindings
                .insert(address, Object::Sampler(sampler_of(settings)));
        }
    }

    /// The object of a reference; an error while its settings do not go together.
    fn object_of(&self, is_surface: bool, reference: &Reference) -> Result<Object, CUresult> {
        let array = |handle| std::ptr::without_provenance_mut(handle);
        if let (true, Bound::Array(handle, _)) = (is_surface, reference.bound) {
            return self.surface_of(array(handle)).map(Object::Surface);
        }
        let (format, channels) = reference.format;
        let format = (format, channels as u32);
        let elements = match reference.bound {
            Bound::Nothing => return Err(CUDA_ERROR_INVALID_VALUE),
            Bound::Array(handle, _) => self.of_array(array(handle)),
            Bound::Mipmap(handle, _) => self.of_mipmap(std::ptr::without_provenance_mut(handle)),
            Bound::Memory(address, bytes) => {
                let behind = address % ALIGNMENT;
                let bytes = bytes.saturating_add(behind as usize);
                self.linear(address - behind, format, bytes)
            }
            Bound::Rows(address, rectangle, pitch) => {
                let sides = [rectangle.Width, rectangle.Height];
                self.pitched(address, format, sides, pitch)
            }
        };
        let told = CUDA_TEXTURE_DESC {
            addressMode: reference.address_modes,
            filterMode: reference.filter_modes[0],
            flags: reference.flags,
            maxAnisotropy: reference.anisotropy,
            mipmapFilterMode: reference.filter_modes[1],
            mipmapLevelBias: reference.bias,
            minMipmapLevelClamp: reference.levels[0],
            maxMipmapLevelClamp: reference.levels[1],
            borderColor: reference.border,
            reserved: [0; 12],
        };
        texture_of(elements?, &told).map(Object::Texture)
    }
}

/// A sampler as PTX declares it.
fn sampler_of(settings: &[(String, String)]) -> Sampler {
    let edge = |value: &str| match value {
        "wrap" => Edge::Wrap,
        "mirror" => Edge::Mirror,
        "clamp_to_border" => Edge::Border,
        _ => Edge::Clamp,
    };
    let mut sampler = Sampler {
        // Coordinates count parts of the texture unless they are forced not to.
        normalized: true,
        levels: [0.0, f32::MAX],
        ..Sampler::default()
    };
    for (name, value) in settings {
        match name.as_str() {
            "addr_mode_0" => sampler.edges[0] = edge(value),
            "addr_mode_1" => sampler.edges[1] = edge(value),
            "addr_mode_2" => sampler.edges[2] = edge(value),
            "filter_mode" => sampler.linear = value == "linear",
            "force_unnormalized_coords" => sampler.normalized = value != "true" && value != "1",
            _ => {}
        }
    }
    sampler
}

impl ReferenceDevice for SoftCuda {
    fn references<T>(&self, go: impl FnOnce(&mut HashMap<usize, Reference>) -> T) -> T {
        go(&mut lock(&self.references).all)
    }

    fn reference_context(&self) -> Result<usize, CUresult> {
        self.context().map(|context| context.handle)
    }

    fn fresh_reference(&self) -> usize {
        fresh()
    }

    fn named_reference(&self, module: CUmodule, name: &CStr) -> Result<usize, CUresult> {
        let context = self.reference_context()?;
        let name = name.to_str().map_err(|_| CUDA_ERROR_NOT_FOUND)?;
        let module = self.module(module.addr())?;
        let image = self.image(&module)?;
        let found = image.object(name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let (address, ty) = found;
        let handle = address as usize;
        let mut references = lock(&self.references);
        references.all.entry(handle).or_insert_with(|| Reference {
            context,
            // Levels are not bounded before somebody says so.
            levels: [0.0, f32::MAX],
            ..Reference::default()
        });
        if ty == Type::SurfRef {
            references.surfaces.insert(handle);
        }
        Ok(handle)
    }

    fn check_bound(&self, bound: &Bound) -> Result<(), CUresult> {
        self.context()?;
        let arrays = lock(&self.arrays);
        match *bound {
            Bound::Nothing => Ok(()),
            Bound::Array(array, _) => arrays.array(array).map(drop),
            Bound::Mipmap(mipmap, _) => arrays.mipmap(mipmap).map(drop),
            Bound::Memory(address, bytes) => self.check_range(address, bytes as u64),
            Bound::Rows(address, rectangle, pitch) => {
                let format = (rectangle.Format, rectangle.NumChannels);
                let sides = [rectangle.Width, rectangle.Height];
                self.pitched(address, format, sides, pitch).map(drop)
            }
        }
    }

    fn has_changed(&self, handle: usize, reference: &Reference) {
        let is_surface = lock(&self.references).surfaces.contains(&handle);
        match self.object_of(is_surface, reference) {
            Ok(object) => self.bindings.insert(handle as u64, object),
            Err(_) => self.bindings.remove(handle as u64),
        }
    }
}
