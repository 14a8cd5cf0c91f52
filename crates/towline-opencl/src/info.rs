//! What info queries share: versions, names with versions, the extensions that are let through.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use towline_backend::opencl::*;

/// A version as OpenCL 3.0 packs it.
pub(crate) fn version(major: u32, minor: u32, patch: u32) -> cl_version {
    (major << (CL_VERSION_MINOR_BITS + CL_VERSION_PATCH_BITS))
        | (minor << CL_VERSION_PATCH_BITS)
        | patch
}

/// A name with its version, as OpenCL 3.0 lists them.
pub(crate) fn name_version(name: &str, major: u32, minor: u32, patch: u32) -> cl_name_version {
    let mut bytes = [0; 64];
    for (to, from) in bytes.iter_mut().zip(name.bytes().take(63)) {
        *to = from as _;
    }
    cl_name_version {
        version: version(major, minor, patch),
        name: bytes,
    }
}

/// Extensions of devices that are let through by name: those that live in kernels, in info queries, or in functions that this
/// library has. What shares memory with other APIs of the device's host, or adds functions that we lack, is not among them.
const EXTENSIONS: &[&str] = &[
    "cl_amd_device_attribute_query",
    "cl_amd_fp64",
    "cl_amd_media_ops",
    "cl_amd_media_ops2",
    "cl_amd_printf",
    "cl_ext_cxx_for_opencl",
    "cl_ext_float_atomics",
    "cl_ext_image_raw10_raw12",
    "cl_khr_3d_image_writes",
    "cl_khr_async_work_group_copy_fence",
    "cl_khr_byte_addressable_store",
    "cl_khr_create_command_queue",
    "cl_khr_depth_images",
    "cl_khr_device_uuid",
    "cl_khr_expect_assume",
    "cl_khr_extended_async_copies",
    "cl_khr_extended_bit_ops",
    "cl_khr_extended_versioning",
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_il_program",
    "cl_khr_image2d_from_buffer",
    "cl_khr_integer_dot_product",
    "cl_khr_kernel_clock",
    "cl_khr_pci_bus_info",
    "cl_khr_priority_hints",
    "cl_khr_select_fprounding_mode",
    "cl_khr_spir",
    "cl_khr_srgb_image_writes",
    "cl_khr_suggested_local_work_size",
    "cl_khr_throttle_hints",
    "cl_khr_work_group_uniform_arithmetic",
    "cl_nv_compiler_options",
    "cl_nv_device_attribute_query",
    "cl_nv_pragma_unroll",
];

/// Families of extensions that live in kernels only.
const EXTENSION_FAMILIES: &[&str] = &[
    "cl_arm_integer_dot_product",
    "cl_intel_bfloat16",
    "cl_intel_split_work_group",
    "cl_intel_spirv",
    "cl_intel_subgroup",
    "cl_khr_global_int32_",
    "cl_khr_int64_",
    "cl_khr_local_int32_",
    "cl_khr_spirv_",
    "cl_khr_subgroup",
];

/// Whether an extension of a device is advertised.
pub(crate) fn lets_through(extension: &str) -> bool {
    EXTENSIONS.binary_search(&extension).is_ok()
        || EXTENSION_FAMILIES
            .iter()
            .any(|family| extension.starts_with(family))
}

/// Reads plain values out of the bytes of an answer.
pub(crate) fn values<const WIDTH: usize, T: 'static>(
    bytes: &[u8],
    read: fn([u8; WIDTH]) -> T,
) -> impl Iterator<Item = T> + '_ {
    bytes
        .as_chunks::<WIDTH>()
        .0
        .iter()
        .map(move |chunk| read(*chunk))
}

/// The first `usize` of an answer.
pub(crate) fn size(bytes: &[u8]) -> usize {
    values(bytes, usize::from_ne_bytes).next().unwrap_or(0)
}

/// The first 32-bit value of an answer.
pub(crate) fn uint(bytes: &[u8]) -> u32 {
    values(bytes, u32::from_ne_bytes).next().unwrap_or(0)
}

/// The first 64-bit value of an answer.
pub(crate) fn ulong(bytes: &[u8]) -> u64 {
    values(bytes, u64::from_ne_bytes).next().unwrap_or(0)
}

/// What a remembered answer is to: kind of query, its name, and what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u8, pub(crate) cl_uint, pub(crate) usize);

/// Answers of a provider that do not change: asked for once, since asking may cost a round trip.
#[derive(Default)]
pub(crate) struct Cache {
    answers: Mutex<HashMap<Key, Result<Vec<u8>, cl_int>>>,
}

/// Room for the first question, so that most answers need no second one.
const FIRST_ROOM: usize = 4096;

/// Most room for an answer: the size is a server's word, and no answer that a server can send is larger.
const MOST_ROOM: usize = 64 << 20;

impl Cache {
    /// The answer to `key`, which `ask` gets from the provider: room, place, and place for the true size.
    pub(crate) fn get(
        &self,
        key: Key,
        ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
    ) -> Result<Vec<u8>, cl_int> {
        let known = self
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        if let Some(known) = known {
            return known;
        }
        let mut bytes = vec![0; FIRST_ROOM];
        let mut size = 0;
        let mut status = ask(bytes.len(), bytes.as_mut_ptr().cast(), &raw mut size);
        if status == CL_INVALID_VALUE {
            // Too little room, or a query that the provider does not know.
            status = ask(0, std::ptr::null_mut(), &raw mut size);
            if status == CL_SUCCESS && size > MOST_ROOM {
                status = CL_OUT_OF_RESOURCES;
            }
            if status == CL_SUCCESS {
                bytes.resize(size, 0);
                status = ask(bytes.len(), bytes.as_mut_ptr().cast(), std::ptr::null_mut());
            }
        }
        bytes.truncate(size);
        let answer = if status == CL_SUCCESS {
            Ok(bytes)
        } else {
            Err(status)
        };
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, answer.clone());
        answer
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_listed_in_order_so_that_they_are_found() {
        assert!(EXTENSIONS.is_sorted());
    }

    #[test]
    fn sharing_with_other_apis_is_masked() {
        assert!(!lets_through("cl_khr_gl_sharing"));
        assert!(!lets_through("cl_khr_external_memory_dma_buf"));
        assert!(!lets_through("cl_khr_command_buffer"));
        assert!(lets_through("cl_khr_fp64"));
        assert!(lets_through("cl_khr_subgroup_ballot"));
    }

    #[test]
    fn answer_larger_than_any_message_is_not_made_room_for() {
        let most_room = std::cell::Cell::new(0);
        let ask = |room: usize, place: *mut c_void, size: *mut usize| {
            most_room.set(most_room.get().max(room));
            match (place.is_null(), room > FIRST_ROOM) {
                (true, _) => {
                    // SAFETY: a question without room is about the size.
                    unsafe { size.write(MOST_ROOM + 1) };
                    CL_SUCCESS
                }
                (_, true) => CL_SUCCESS,
                _ => CL_INVALID_VALUE,
            }
        };
        let answer = Cache::default().get(Key(0, 0, 0), ask);
        assert_eq!(answer, Err(CL_OUT_OF_RESOURCES));
        assert_eq!(most_room.get(), FIRST_ROOM);
    }

    #[test]
    fn versions_are_packed_as_opencl_3_does() {
        assert_eq!(version(3, 0, 0), 0x00C0_0000);
    }
}
