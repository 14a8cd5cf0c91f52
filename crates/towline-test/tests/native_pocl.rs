//! The suite over a vendor's own library: what is right.

use std::sync::Arc;

use towline_backend::opencl::NativeOpenCl;
use towline_test::conformance::Deviation::{Differs, Fatal};
use towline_test::conformance::{Deviation, Fixture};

/// What PoCL 3.1 does other than the specification says.
const DEVIATIONS: &[(&str, Deviation)] = &[
    (
        "device::device_type_zero_is_invalid_device_type",
        Differs("it answers that there is no such device"),
    ),
    (
        "event::callback_of_a_failed_event_gets_the_error",
        Differs("a failed user event calls nobody"),
    ),
    (
        "image::image_info_of_a_buffer_is_invalid_mem_object",
        Differs("it answers as if it were an image"),
    ),
    (
        "image::image_larger_than_the_device_allows_is_invalid_image_size",
        Differs("it answers CL_INVALID_OPERATION"),
    ),
    (
        "image::image_of_an_unknown_format_is_refused",
        Differs("it answers CL_INVALID_OPERATION"),
    ),
    (
        "image::image_without_height_is_refused",
        Differs("it answers CL_INVALID_BUFFER_SIZE"),
    ),
    (
        "launch::group_of_no_items_is_invalid_work_group_size",
        Differs("it takes zero for a size of its choice"),
    ),
    (
        "launch::launch_of_a_null_kernel_is_invalid_kernel",
        Fatal("it reads through the NULL kernel"),
    ),
    (
        "map::map_with_unknown_flags_is_invalid_value",
        Differs("it does not look at the flags"),
    ),
    (
        "map::write_invalidate_with_read_is_invalid_value",
        Differs("it does not look at the flags"),
    ),
    (
        "order::marker_with_a_wait_list_waits_for_it_alone",
        Fatal("its marker waits for all commands before"),
    ),
    (
        "program::unbuilt_program_has_an_empty_log",
        Differs("it answers CL_INVALID_PROGRAM"),
    ),
    (
        "sampler::sampler_with_an_unknown_addressing_mode_is_invalid_value",
        Differs("it does not look at the mode"),
    ),
];

/// The library under test: `TOWLINE_TEST_ICD`, or PoCL.
fn fixture() -> Result<Fixture, String> {
    let library = std::env::var("TOWLINE_TEST_ICD").unwrap_or_else(|_| "libpocl.so.2".into());
    let native = NativeOpenCl::from_libraries(std::slice::from_ref(&library))
        .map_err(|error| format!("{error}; on Debian, install pocl-opencl-icd"))?;
    Ok(Fixture::first(Arc::new(native))?.with_deviations(DEVIATIONS))
}

towline_test::suite! { "native" => fixture() }
