//! The suite over Oclgrind behind the adapter for serial vendors: an asynchronous device out of a synchronous one.

use towline_backend::opencl::{NativeOpenCl, SerialOpenCl};
use towline_test::conformance::Deviation::{self, Differs, Fatal};
use towline_test::conformance::Fixture;

/// Where Debian has it.
const LIBRARY: &str = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";

/// Commands reach the vendor when the call that enqueued them is over.
const LATE: &str = "its verdict on a command is the status of the event";

/// What Oclgrind 21.10 does other than the specification says.
const DEVIATIONS: &[(&str, Deviation)] = &[
    (
        "buffer::buffer_larger_than_the_device_allows_is_invalid_buffer_size",
        Differs("it takes any size"),
    ),
    (
        "buffer::buffer_with_contradicting_access_flags_is_invalid_value",
        Differs("it does not look at the flags"),
    ),
    (
        "buffer::host_read_only_buffer_refuses_writes",
        Differs("it does not look at the flags"),
    ),
    (
        "buffer::part_of_no_bytes_is_invalid_buffer_size",
        Differs("it answers CL_INVALID_VALUE"),
    ),
    (
        "buffer::part_that_widens_access_is_invalid_value",
        Differs("it does not look at the flags"),
    ),
    (
        "buffer::part_with_misaligned_offset_is_refused",
        Differs("it takes any offset"),
    ),
    (
        "context::context_unknown_property_is_invalid_property",
        Differs("it does not look at the properties"),
    ),
    (
        "context::context_with_a_foreign_platform_is_invalid_platform",
        Differs("it does not look at the platform"),
    ),
    (
        "context::queue_properties_list_unknown_name_is_invalid_value",
        Differs("it has no such call"),
    ),
    (
        "context::queue_unknown_property_bits_are_invalid_value",
        Differs("it does not look at the properties"),
    ),
    (
        "device::device_list_without_destination_is_invalid_value",
        Differs("it answers CL_SUCCESS"),
    ),
    (
        "device::device_type_zero_is_invalid_device_type",
        Differs("it answers that there is no such device"),
    ),
    (
        "image::copy_of_different_formats_is_image_format_mismatch",
        Differs(LATE),
    ),
    (
        "image::image_answers_its_shape",
        Differs("it says zero for the pitches"),
    ),
    (
        "image::image_info_of_a_buffer_is_invalid_mem_object",
        Differs("it answers as if it were an image"),
    ),
    (
        "image::image_larger_than_the_device_allows_is_invalid_image_size",
        Differs("it takes any size"),
    ),
    (
        "image::image_of_an_unknown_format_is_refused",
        Differs("it answers CL_INVALID_VALUE"),
    ),
    (
        "image::image_without_height_is_refused",
        Differs("it answers CL_INVALID_BUFFER_SIZE"),
    ),
    ("image::read_past_the_end_is_invalid_value", Differs(LATE)),
    (
        "kernel::bytes_for_a_value_argument_are_needed",
        Fatal("it reads through the NULL pointer"),
    ),
    (
        "kernel::kernel_of_an_unbuilt_program_is_invalid_program_executable",
        Differs("it answers CL_INVALID_KERNEL_NAME"),
    ),
    (
        "kernel::local_argument_of_no_bytes_is_invalid_arg_size",
        Differs("it takes no bytes"),
    ),
    (
        "kernel::local_argument_with_a_value_is_invalid_arg_value",
        Differs("it does not look at the value"),
    ),
    (
        "kernel::work_group_info_null_device_is_the_only_one",
        Differs("it answers CL_INVALID_DEVICE"),
    ),
    (
        "launch::group_larger_than_the_device_allows_is_invalid_work_group_size",
        Differs(LATE),
    ),
    (
        "launch::group_that_does_not_divide_the_range_is_refused_or_runs_the_rest",
        Differs(LATE),
    ),
    (
        "program::build_with_unknown_options_is_invalid_build_options",
        Differs("it answers CL_BUILD_PROGRAM_FAILURE"),
    ),
    (
        "program::failed_compile_is_compile_program_failure",
        Differs("it answers CL_BUILD_PROGRAM_FAILURE"),
    ),
    (
        "program::failed_link_is_link_program_failure",
        Fatal("it ends the process"),
    ),
    (
        "transfer::copy_between_overlapping_parts_is_mem_copy_overlap",
        Differs(LATE),
    ),
    (
        "transfer::copy_that_overlaps_is_mem_copy_overlap",
        Differs(LATE),
    ),
    (
        "transfer::fill_range_that_the_pattern_does_not_divide_is_invalid_value",
        Differs(LATE),
    ),
    (
        "transfer::rect_copy_that_overlaps_is_mem_copy_overlap",
        Differs(LATE),
    ),
    ("transfer::rect_of_no_bytes_is_invalid_value", Differs(LATE)),
    (
        "transfer::rect_pitch_below_the_row_is_invalid_value",
        Differs(LATE),
    ),
    (
        "transfer::slice_pitch_no_multiple_of_the_row_is_invalid_value",
        Differs(LATE),
    ),
];

fn fixture() -> Result<Fixture, String> {
    let native = NativeOpenCl::from_libraries(&[LIBRARY.into()])
        .map_err(|error| format!("{error}; on Debian, install oclgrind"))?;
    Ok(Fixture::first(SerialOpenCl::where_needed(native))?.with_deviations(DEVIATIONS))
}

towline_test::suite! { "native" => fixture() }
