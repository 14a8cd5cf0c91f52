//! Texture and surface references of devices that keep them by themselves: deprecated, and state of a module.
//!
//! A device says which there are ([`ReferenceDevice`]); [`reference_calls!`](crate::reference_calls) has the methods of the contract.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};

use super::*;

/// Alignment of memory as kernels read it. The call answers the offset behind that, for kernels to add.
pub const ALIGNMENT: u64 = 512;

/// The object or memory that a reference is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Bound {
    /// Nothing.
    #[default]
    Nothing,
    /// An array, by its handle, and the flags of the call.
    Array(usize, u32),
    /// A mipmapped array.
    Mipmap(usize, u32),
    /// So many bytes at an address.
    Memory(CUdeviceptr, usize),
    /// A rectangle at an address, and the bytes from row to row.
    Rows(CUdeviceptr, CUDA_ARRAY_DESCRIPTOR, usize),
}

/// A reference: what it is bound to, and how it reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reference {
    /// The context that it ends with.
    pub context: usize,
    /// The object or memory that it is bound to.
    pub bound: Bound,
    /// Format of elements, and how many channels they have.
    pub format: (CUarray_format, i32),
    /// By side.
    pub address_modes: [CUaddress_mode; 3],
    /// Within a level, and between levels.
    pub filter_modes: [CUfilter_mode; 2],
    /// Added to levels.
    pub bias: f32,
    /// The least and the greatest level.
    pub levels: [f32; 2],
    /// Most anisotropy.
    pub anisotropy: u32,
    /// The colour beyond borders.
    pub border: [f32; 4],
    /// `CU_TRSF_...`
    pub flags: u32,
}

/// A device that keeps texture references.
pub trait ReferenceDevice {
    /// References by handle.
    fn references<T>(&self, go: impl FnOnce(&mut HashMap<usize, Reference>) -> T) -> T;

    /// The context that calls act in.
    fn reference_context(&self) -> Result<usize, CUresult>;

    /// A handle that nothing has had.
    fn fresh_reference(&self) -> usize;

    /// The handle of a module's texture or surface reference of this name.
    fn named_reference(&self, module: CUmodule, name: &CStr) -> Result<usize, CUresult>;

    /// Whether a reference may be bound so.
    fn check_bound(&self, bound: &Bound) -> Result<(), CUresult>;

    /// A reference has changed: kernels that are launched from now on read as it says.
    fn has_changed(&self, handle: usize, reference: &Reference);
}

/// Functions behind [`reference_calls!`](crate::reference_calls).
pub mod calls {
    use super::*;

    fn put<T>(place: *mut T, value: T) {
        if !place.is_null() {
            // SAFETY: the contract of every call here: places for answers are writable.
            unsafe { place.write(value) };
        }
    }

    /// Answers with a value at a place.
    pub fn tell<T>(place: *mut T, told: Result<T, CUresult>) -> CUresult {
        let answered = told.map(|value| put(place, value));
        answered.err().unwrap_or(CUDA_SUCCESS)
    }

    /// Gives a handle out.
    pub fn hand_out<T>(place: *mut *mut T, found: Result<usize, CUresult>) -> CUresult {
        tell(place, found.map(std::ptr::without_provenance_mut))
    }

    /// # Safety
    ///
    /// `name` is NULL, or ends with a NUL.
    pub unsafe fn named<D: ReferenceDevice, T>(
        device: &D,
        place: *mut *mut T,
        module: CUmodule,
        name: *const c_char,
    ) -> CUresult {
        if name.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        let name = unsafe { CStr::from_ptr(name) };
        hand_out(place, device.named_reference(module, name))
    }

    /// Changes a reference.
    pub fn set<D: ReferenceDevice, T>(
        device: &D,
        reference: *mut T,
        change: impl FnOnce(&mut Reference),
    ) -> CUresult {
        let handle = reference.addr();
        let changed = device.references(|all| {
            let reference = all.get_mut(&handle)?;
            change(reference);
            Some(*reference)
        });
        match changed {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(reference) => {
                device.has_changed(handle, &reference);
                CUDA_SUCCESS
            }
        }
    }

    /// Asks a reference.
    pub fn ask<D: ReferenceDevice, T>(
        device: &D,
        reference: CUtexref,
        tell: impl FnOnce(&Reference) -> T,
    ) -> Result<T, CUresult> {
        device.references(|all| {
            let reference = all.get(&reference.addr());
            reference.map(tell).ok_or(CUDA_ERROR_INVALID_HANDLE)
        })
    }

    /// Binds a reference.
    pub fn bind<D: ReferenceDevice, T>(device: &D, reference: *mut T, bound: Bound) -> CUresult {
        match device.check_bound(&bound) {
            Err(status) => status,
            Ok(()) => set(device, reference, |reference| reference.bound = bound),
        }
    }

    /// The contract of `cuTexRefSetAddress`.
    pub fn bind_memory<D: ReferenceDevice>(
        device: &D,
        offset: *mut usize,
        reference: CUtexref,
        address: CUdeviceptr,
        bytes: usize,
    ) -> CUresult {
        let behind = address % ALIGNMENT;
        if behind != 0 && offset.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        match bind(device, reference, Bound::Memory(address, bytes)) {
            CUDA_SUCCESS => tell(offset, Ok(behind as usize)),
            status => status,
        }
    }

    /// # Safety
    ///
    /// The contract of `cuTexRefSetAddress2D`.
    pub unsafe fn bind_rows<D: ReferenceDevice>(
        device: &D,
        reference: CUtexref,
        rectangle: *const CUDA_ARRAY_DESCRIPTOR,
        address: CUdeviceptr,
        pitch: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract: a description.
        let Some(rectangle) = (unsafe { rectangle.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if pitch < rectangle.Width {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let bound = Bound::Rows(address, *rectangle, pitch);
        match device.check_bound(&bound) {
            Err(status) => status,
            Ok(()) => set(device, reference, |reference| {
                reference.bound = bound;
                reference.format = (rectangle.Format, rectangle.NumChannels as i32);
            }),
        }
    }

    /// The contract of `cuTexRefCreate`.
    pub fn create<D: ReferenceDevice>(device: &D, place: *mut CUtexref) -> CUresult {
        let made = device.reference_context().map(|context| {
            let handle = device.fresh_reference();
            let reference = Reference {
                context,
                ..Reference::default()
            };
            device.references(|all| all.insert(handle, reference));
            handle
        });
        hand_out(place, made)
    }

    /// The contract of `cuTexRefDestroy`.
    pub fn destroy<D: ReferenceDevice>(device: &D, reference: CUtexref) -> CUresult {
        match device.references(|all| all.remove(&reference.addr())) {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_INVALID_HANDLE,
        }
    }

    /// The contract of `cuTexRefGetAddressMode`.
    pub fn address_mode<D: ReferenceDevice>(
        device: &D,
        place: *mut CUaddress_mode,
        reference: CUtexref,
        side: i32,
    ) -> CUresult {
        let told = ask(device, reference, |known| {
            let mode = known.address_modes.get(usize::try_from(side).ok()?);
            mode.copied()
        });
        let told = told.and_then(|mode| mode.ok_or(CUDA_ERROR_INVALID_VALUE));
        tell(place, told)
    }

    /// The contract of `cuTexRefSetAddressMode`.
    pub fn set_address_mode<D: ReferenceDevice>(
        device: &D,
        reference: CUtexref,
        side: i32,
        mode: CUaddress_mode,
    ) -> CUresult {
        match usize::try_from(side) {
            Ok(side @ 0..3) => set(device, reference, |known| known.address_modes[side] = mode),
            _ => CUDA_ERROR_INVALID_VALUE,
        }
    }

    /// The contract of `cuTexRefGetAddress`.
    pub fn address<D: ReferenceDevice>(
        device: &D,
        place: *mut CUdeviceptr,
        reference: CUtexref,
    ) -> CUresult {
        let told = ask(device, reference, |known| match known.bound {
            Bound::Memory(address, _) | Bound::Rows(address, ..) => address,
            _ => 0,
        });
        tell(place, told)
    }

    /// # Safety
    ///
    /// `color` has four components.
    pub unsafe fn set_border<D: ReferenceDevice>(
        device: &D,
        reference: CUtexref,
        color: *const f32,
    ) -> CUresult {
        if color.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        let color = unsafe { color.cast::<[f32; 4]>().read() };
        set(device, reference, |known| known.border = color)
    }
}

/// The methods of the contract for texture and surface references, for a [`ReferenceDevice`]: an `impl` cannot lie in several files.
#[macro_export]
macro_rules! reference_calls {
    () => {
        unsafe fn cuModuleGetTexRef(
            &self,
            reference: *mut $crate::cuda::CUtexref,
            module: $crate::cuda::CUmodule,
            name: *const std::ffi::c_char,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::references::calls::named(self, reference, module, name) }
        }
        unsafe fn cuModuleGetSurfRef(
            &self,
            reference: *mut $crate::cuda::CUsurfref,
            module: $crate::cuda::CUmodule,
            name: *const std::ffi::c_char,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::references::calls::named(self, reference, module, name) }
        }
        unsafe fn cuTexRefCreate(
            &self,
            reference: *mut $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::create(self, reference)
        }
        unsafe fn cuTexRefDestroy(
            &self,
            reference: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::destroy(self, reference)
        }
        unsafe fn cuTexRefSetArray(
            &self,
            to: $crate::cuda::CUtexref,
            array: $crate::cuda::CUarray,
            flags: u32,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::{Bound, calls};
            calls::bind(self, to, Bound::Array(array.addr(), flags))
        }
        unsafe fn cuTexRefSetMipmappedArray(
            &self,
            to: $crate::cuda::CUtexref,
            mipmap: $crate::cuda::CUmipmappedArray,
            flags: u32,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::{Bound, calls};
            calls::bind(self, to, Bound::Mipmap(mipmap.addr(), flags))
        }
        unsafe fn cuSurfRefSetArray(
            &self,
            to: $crate::cuda::CUsurfref,
            array: $crate::cuda::CUarray,
            flags: u32,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::{Bound, calls};
            calls::bind(self, to, Bound::Array(array.addr(), flags))
        }
        unsafe fn cuTexRefSetAddress_v2(
            &self,
            offset: *mut usize,
            to: $crate::cuda::CUtexref,
            address: $crate::cuda::CUdeviceptr,
            bytes: usize,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::bind_memory(self, offset, to, address, bytes)
        }
        unsafe fn cuTexRefSetAddress2D_v3(
            &self,
            to: $crate::cuda::CUtexref,
            rectangle: *const $crate::cuda::CUDA_ARRAY_DESCRIPTOR,
            address: $crate::cuda::CUdeviceptr,
            pitch: usize,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe {
                $crate::cuda::references::calls::bind_rows(self, to, rectangle, address, pitch)
            }
        }
        unsafe fn cuTexRefSetAddress2D_v2(
            &self,
            to: $crate::cuda::CUtexref,
            rectangle: *const $crate::cuda::CUDA_ARRAY_DESCRIPTOR,
            address: $crate::cuda::CUdeviceptr,
            pitch: usize,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe {
                $crate::cuda::references::calls::bind_rows(self, to, rectangle, address, pitch)
            }
        }
        unsafe fn cuTexRefSetFormat(
            &self,
            to: $crate::cuda::CUtexref,
            format: $crate::cuda::CUarray_format,
            channels: i32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set(self, to, |known| {
                known.format = (format, channels);
            })
        }
        unsafe fn cuTexRefSetAddressMode(
            &self,
            to: $crate::cuda::CUtexref,
            side: i32,
            mode: $crate::cuda::CUaddress_mode,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set_address_mode(self, to, side, mode)
        }
        unsafe fn cuTexRefSetFilterMode(
            &self,
            to: $crate::cuda::CUtexref,
            mode: $crate::cuda::CUfilter_mode,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set(self, to, |known| known.filter_modes[0] = mode)
        }
        unsafe fn cuTexRefSetMipmapFilterMode(
            &self,
            to: $crate::cuda::CUtexref,
            mode: $crate::cuda::CUfilter_mode,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set(self, to, |known| known.filter_modes[1] = mode)
        }
        unsafe fn cuTexRefSetMipmapLevelBias(
            &self,
            to: $crate::cuda::CUtexref,
            bias: f32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set(self, to, |known| known.bias = bias)
        }
        unsafe fn cuTexRefSetMipmapLevelClamp(
            &self,
            to: $crate::cuda::CUtexref,
            least: f32,
            most: f32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set(self, to, |known| known.levels = [least, most])
        }
        unsafe fn cuTexRefSetMaxAnisotropy(
            &self,
            to: $crate::cuda::CUtexref,
            most: u32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set(self, to, |known| known.anisotropy = most)
        }
        unsafe fn cuTexRefSetBorderColor(
            &self,
            to: $crate::cuda::CUtexref,
            color: *mut f32,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::references::calls::set_border(self, to, color) }
        }
        unsafe fn cuTexRefSetFlags(
            &self,
            to: $crate::cuda::CUtexref,
            flags: u32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::set(self, to, |known| known.flags = flags)
        }
        unsafe fn cuTexRefGetAddress_v2(
            &self,
            address: *mut $crate::cuda::CUdeviceptr,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::address(self, address, of)
        }
        unsafe fn cuTexRefGetFormat(
            &self,
            format: *mut $crate::cuda::CUarray_format,
            channels: *mut i32,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            calls::tell(channels, calls::ask(self, of, |known| known.format.1));
            calls::tell(format, calls::ask(self, of, |known| known.format.0))
        }
        unsafe fn cuTexRefGetAddressMode(
            &self,
            mode: *mut $crate::cuda::CUaddress_mode,
            of: $crate::cuda::CUtexref,
            side: i32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::references::calls::address_mode(self, mode, of, side)
        }
        unsafe fn cuTexRefGetFilterMode(
            &self,
            mode: *mut $crate::cuda::CUfilter_mode,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            calls::tell(mode, calls::ask(self, of, |known| known.filter_modes[0]))
        }
        unsafe fn cuTexRefGetMipmapFilterMode(
            &self,
            mode: *mut $crate::cuda::CUfilter_mode,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            calls::tell(mode, calls::ask(self, of, |known| known.filter_modes[1]))
        }
        unsafe fn cuTexRefGetMipmapLevelBias(
            &self,
            bias: *mut f32,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            calls::tell(bias, calls::ask(self, of, |known| known.bias))
        }
        unsafe fn cuTexRefGetMipmapLevelClamp(
            &self,
            least: *mut f32,
            most: *mut f32,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            calls::tell(least, calls::ask(self, of, |known| known.levels[0]));
            calls::tell(most, calls::ask(self, of, |known| known.levels[1]))
        }
        unsafe fn cuTexRefGetMaxAnisotropy(
            &self,
            most: *mut i32,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            calls::tell(most, calls::ask(self, of, |known| known.anisotropy as i32))
        }
        unsafe fn cuTexRefGetBorderColor(
            &self,
            color: *mut f32,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            let color = color.cast::<[f32; 4]>();
            calls::tell(color, calls::ask(self, of, |known| known.border))
        }
        unsafe fn cuTexRefGetFlags(
            &self,
            flags: *mut u32,
            of: $crate::cuda::CUtexref,
        ) -> $crate::cuda::CUresult {
            use $crate::cuda::references::calls;
            calls::tell(flags, calls::ask(self, of, |known| known.flags))
        }
    };
}
