//! Textures and surfaces: which can be, and what kernels know of them.

use towline_backend::cuda::arrays::{Array, Arrays};
use towline_backend::cuda::*;

use super::arrays::ArrayMemory;
use super::attributes::{
    LINEAR_ELEMENTS, PITCH_ALIGNMENT, PITCH_BYTES, PITCHED_SIDES, TEXTURE_ALIGNMENT,
};
use super::{SoftCuda, fresh, lock};
use crate::texture::format::{Format, Kind};
use crate::texture::{Edge, Level, Object, Sampler, Shape, Surface, Texture};

/// Flags that a texture may have.
const FLAGS: u32 = CU_TRSF_READ_AS_INTEGER
    | CU_TRSF_NORMALIZED_COORDINATES
    | CU_TRSF_SRGB
    | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION
    | CU_TRSF_SEAMLESS_CUBEMAP;

/// Elements under a texture or surface.
#[derive(Debug, Clone)]
pub(super) struct Elements {
    pub(super) levels: Vec<Level>,
    pub(super) shape: Shape,
    pub(super) format: Format,
}

fn refuse<T>() -> Result<T, CUresult> {
    Err(CUDA_ERROR_INVALID_VALUE)
}

fn edge(mode: CUaddress_mode) -> Result<Edge, CUresult> {
    match mode {
        CU_TR_ADDRESS_MODE_WRAP => Ok(Edge::Wrap),
        CU_TR_ADDRESS_MODE_CLAMP => Ok(Edge::Clamp),
        CU_TR_ADDRESS_MODE_MIRROR => Ok(Edge::Mirror),
        CU_TR_ADDRESS_MODE_BORDER => Ok(Edge::Border),
        _ => refuse(),
    }
}

/// Whether a filter blends.
fn blends(mode: CUfilter_mode) -> Result<bool, CUresult> {
    match mode {
        CU_TR_FILTER_MODE_POINT => Ok(false),
        CU_TR_FILTER_MODE_LINEAR => Ok(true),
        _ => refuse(),
    }
}

fn shape(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Shape {
    let sides = 1 + u8::from(descriptor.Height > 0);
    match descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) {
        0 => Shape::Sides(sides + u8::from(descriptor.Depth > 0)),
        CUDA_ARRAY3D_LAYERED => Shape::Layers(sides),
        _ => Shape::Cube,
    }
}

fn level_of(array: &Array<ArrayMemory>) -> Level {
    let known = &array.descriptor;
    let pitch = array.row_bytes() as u64;
    Level {
        address: array.memory.address,
        sides: [known.Width, known.Height, known.Depth].map(|side| side.max(1) as u32),
        pitch,
        slice: pitch * array.rows() as u64,
    }
}

fn of_array(arrays: &Arrays<ArrayMemory>, array: CUarray) -> Result<Elements, CUresult> {
    let array = arrays.array(array.addr())?;
    let known = &array.descriptor;
    let format = Format::new(known.Format, known.NumChannels);
    Ok(Elements {
        levels: vec![level_of(array)],
        shape: shape(known),
        format: format.ok_or(CUDA_ERROR_INVALID_VALUE)?,
    })
}

fn of_mipmap(arrays: &Arrays<ArrayMemory>, mipmap: CUmipmappedArray) -> Result<Elements, CUresult> {
    let mipmap = arrays.mipmap(mipmap.addr())?;
    let known = &mipmap.descriptor;
    let levels = mipmap.levels.iter();
    let levels: Result<_, _> = levels
        .map(|level| arrays.array(*level).map(level_of))
        .collect();
    let format = Format::new(known.Format, known.NumChannels);
    Ok(Elements {
        levels: levels?,
        shape: shape(known),
        format: format.ok_or(CUDA_ERROR_INVALID_VALUE)?,
    })
}

/// Takes the part of an array that a view shows, as what it shows it.
fn viewed(elements: Elements, view: &CUDA_RESOURCE_VIEW_DESC) -> Result<Elements, CUresult> {
    let mut elements = elements;
    if view.format != CU_RES_VIEW_FORMAT_NONE {
        let format = Format::of_view(view.format).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if format.element() != elements.format.element() {
            return refuse();
        }
        elements.format = format;
    }
    let sides = elements.levels.first().map_or([0; 3], |level| level.sides);
    let first = view.firstMipmapLevel as usize;
    let last = view.lastMipmapLevel as usize;
    let levels = elements.levels.get(first..=last);
    elements.levels = levels.ok_or(CUDA_ERROR_INVALID_VALUE)?.to_vec();
    let told = [view.width, view.height, view.depth];
    let matches = |side: usize| told[side] == 0 || told[side] == sides[side] as usize;
    if !matches(0) || !matches(1) {
        return refuse();
    }
    if matches!(elements.shape, Shape::Layers(_) | Shape::Cube) {
        let (first, last) = (view.firstLayer, view.lastLayer);
        if last < first || last >= sides[2] {
            return refuse();
        }
        let layers = last - first + 1;
        for level in &mut elements.levels {
            level.address += u64::from(first) * level.slice;
            level.sides[2] = layers;
        }
        // Part of a cube are layers.
        if elements.shape == Shape::Cube && !layers.is_multiple_of(6) {
            elements.shape = Shape::Layers(2);
        }
    } else if !matches(2) {
        return refuse();
    }
    Ok(elements)
}

impl SoftCuda {
    /// Memory as elements in a row.
    pub(super) fn linear(
        &self,
        address: CUdeviceptr,
        (format, channels): (CUarray_format, u32),
        bytes: usize,
    ) -> Result<Elements, CUresult> {
        let format = Format::new(format, channels).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let count = bytes as u64 / format.element();
        if !address.is_multiple_of(TEXTURE_ALIGNMENT) || !(1..=LINEAR_ELEMENTS).contains(&count) {
            return refuse();
        }
        self.check_range(address, bytes as u64)?;
        let level = Level {
            address,
            sides: [count as u32, 1, 1],
            pitch: 0,
            slice: 0,
        };
        Ok(Elements {
            levels: vec![level],
            shape: Shape::Memory,
            format,
        })
    }

    /// Memory as rows of elements.
    pub(super) fn pitched(
        &self,
        address: CUdeviceptr,
        (format, channels): (CUarray_format, u32),
        sides: [usize; 2],
        pitch: usize,
    ) -> Result<Elements, CUresult> {
        let format = Format::new(format, channels).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let ([width, height], pitch) = (sides.map(|side| side as u64), pitch as u64);
        let aligned =
            address.is_multiple_of(TEXTURE_ALIGNMENT) && pitch.is_multiple_of(PITCH_ALIGNMENT);
        let within =
            (1..=PITCHED_SIDES[0]).contains(&width) && (1..=PITCHED_SIDES[1]).contains(&height);
        if !aligned || !within || pitch > PITCH_BYTES || pitch < width * format.element() {
            return refuse();
        }
        self.check_range(address, pitch * (height - 1) + width * format.element())?;
        let level = Level {
            address,
            sides: [width as u32, height as u32, 1],
            pitch,
            slice: 0,
        };
        Ok(Elements {
            levels: vec![level],
            shape: Shape::Sides(2),
            format,
        })
    }

    pub(super) fn of_array(&self, array: CUarray) -> Result<Elements, CUresult> {
        of_array(&lock(&self.arrays), array)
    }

    pub(super) fn of_mipmap(&self, mipmap: CUmipmappedArray) -> Result<Elements, CUresult> {
        of_mipmap(&lock(&self.arrays), mipmap)
    }

    fn elements(&self, resource: &Resource) -> Result<Elements, CUresult> {
        match *resource {
            Resource::Array(array) => self.of_array(array),
            Resource::Mipmap(mipmap) => self.of_mipmap(mipmap),
            Resource::Linear(memory) => self.linear(
                memory.devPtr,
                (memory.format, memory.numChannels),
                memory.sizeInBytes,
            ),
            Resource::Rows(rows) => self.pitched(
                rows.devPtr,
                (rows.format, rows.numChannels),
                [rows.width, rows.height],
                rows.pitchInBytes,
            ),
        }
    }

    pub(super) fn create_texture(
        &self,
        resource: &Resource,
        texture: &CUDA_TEXTURE_DESC,
        view: Option<&CUDA_RESOURCE_VIEW_DESC>,
    ) -> Result<u64, CUresult> {
        let context = self.context()?;
        let elements = self.elements(resource)?;
        let elements = match view {
            None => elements,
            Some(view) if matches!(resource, Resource::Array(_) | Resource::Mipmap(_)) => {
                viewed(elements, view)?
            }
            Some(_) => return refuse(),
        };
        let texture = texture_of(elements, texture)?;
        let handle = fresh() as u64;
        self.bindings.insert(handle, Object::Texture(texture));
        self.lock().bound.insert(handle, (context.handle, false));
        Ok(handle)
    }

    pub(super) fn create_surface(&self, resource: &Resource) -> Result<u64, CUresult> {
        let context = self.context()?;
        let Resource::Array(array) = resource else {
            return refuse();
        };
        let surface = self.surface_of(*array)?;
        let handle = fresh() as u64;
        self.bindings.insert(handle, Object::Surface(surface));
        self.lock().bound.insert(handle, (context.handle, true));
        Ok(handle)
    }

    /// The surface that an array is.
    pub(super) fn surface_of(&self, array: CUarray) -> Result<Surface, CUresult> {
        let arrays = lock(&self.arrays);
        let flags = arrays.array(array.addr())?.descriptor.Flags;
        let elements = of_array(&arrays, array)?;
        match (elements.levels.first(), flags & CUDA_ARRAY3D_SURFACE_LDST) {
            (Some(level), CUDA_ARRAY3D_SURFACE_LDST) => Ok(Surface {
                level: *level,
                shape: elements.shape,
                format: elements.format,
            }),
            _ => refuse(),
        }
    }

    /// Ends a texture or a surface. Kernels that were launched before go on with it.
    pub(super) fn destroy_object(&self, handle: u64, surface: bool) -> Result<(), CUresult> {
        self.context()?;
        let mut state = self.lock();
        match state.bound.get(&handle) {
            Some((_, known)) if *known == surface => {
                state.bound.remove(&handle);
                self.bindings.remove(handle);
                Ok(())
            }
            _ => refuse(),
        }
    }
}

/// The resource that a texture or surface is asked for.
pub(super) enum Resource {
    Array(CUarray),
    Mipmap(CUmipmappedArray),
    Linear(CUDA_RESOURCE_DESC_res_linear),
    Rows(CUDA_RESOURCE_DESC_res_pitch2D),
}

/// A texture of elements that is read as a description says.
pub(super) fn texture_of(
    elements: Elements,
    told: &CUDA_TEXTURE_DESC,
) -> Result<Texture, CUresult> {
    let has = |flag: u32| told.flags & flag != 0;
    if told.flags & !FLAGS != 0 || told.maxAnisotropy > 16 {
        return refuse();
    }
    let [x, y, z] = told.addressMode;
    let sampler = Sampler {
        edges: [edge(x)?, edge(y)?, edge(z)?],
        linear: blends(told.filterMode)?,
        blends: blends(told.mipmapFilterMode)?,
        normalized: has(CU_TRSF_NORMALIZED_COORDINATES),
        seamless: has(CU_TRSF_SEAMLESS_CUBEMAP),
        anisotropy: told.maxAnisotropy.max(1),
        bias: told.mipmapLevelBias,
        levels: [told.minMipmapLevelClamp, told.maxMipmapLevelClamp],
        border: told.borderColor,
    };
    let as_integers = has(CU_TRSF_READ_AS_INTEGER);
    let format = elements.format;
    let gives_integers = !format.has_fractions() && (as_integers || format.bytes == 4);
    // Filters are for numbers with fractions. In memory without rows there are none.
    if sampler.linear && gives_integers && elements.shape != Shape::Memory {
        return refuse();
    }
    let has_colours =
        format.bytes == 1 && matches!(format.kind, Kind::Unsigned | Kind::UnsignedFraction);
    if has(CU_TRSF_SRGB) && (!has_colours || gives_integers) {
        return refuse();
    }
    Ok(Texture {
        levels: elements.levels,
        shape: elements.shape,
        format,
        as_integers,
        srgb: has(CU_TRSF_SRGB),
        sampler,
    })
}

/// The methods of the contract: an `impl` cannot be in two files.
macro_rules! texture_calls {
    () => {
        unsafe fn cuTexObjectCreate(
            &self,
            object: *mut CUtexObject,
            resource: *const CUDA_RESOURCE_DESC,
            texture: *const CUDA_TEXTURE_DESC,
            view: *const CUDA_RESOURCE_VIEW_DESC,
        ) -> CUresult {
            // SAFETY: the contract of the call, for this and the others.
            let resource = unsafe { resource.as_ref() };
            // SAFETY: as above.
            let texture = unsafe { texture.as_ref() };
            // SAFETY: as above.
            let view = unsafe { view.as_ref() };
            let (Some(resource), Some(texture)) = (resource, texture) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            let resource = resource_of(resource);
            let made = resource.and_then(|resource| self.create_texture(&resource, texture, view));
            answer(object, made)
        }
        unsafe fn cuTexObjectDestroy(&self, object: CUtexObject) -> CUresult {
            status(self.destroy_object(object, false))
        }
        unsafe fn cuSurfObjectCreate(
            &self,
            object: *mut CUsurfObject,
            resource: *const CUDA_RESOURCE_DESC,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let Some(resource) = (unsafe { resource.as_ref() }) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            let resource = resource_of(resource);
            answer(
                object,
                resource.and_then(|resource| self.create_surface(&resource)),
            )
        }
        unsafe fn cuSurfObjectDestroy(&self, object: CUsurfObject) -> CUresult {
            status(self.destroy_object(object, true))
        }
    };
}
pub(super) use texture_calls;
