//! The conformance suite over the platform: on a provider of this process, on one treated like a session, and on a session; and
//! on a vendor that computes only inside a call, here and behind a session.

mod support;

use std::sync::Arc;

use support::{OCLGRIND, POCL, providers};
use towline_opencl::{Platform, Provider};
use towline_test::conformance::Deviation::{self, Differs, Fatal};
use towline_test::conformance::Fixture;

/// What PoCL 3.1 does other than the specification says, and the platform does not answer for it.
const DEVIATIONS: &[(&str, Deviation)] = &[(
    "order::marker_with_a_wait_list_waits_for_it_alone",
    Fatal("PoCL's marker waits for all commands before"),
)];

/// Client and worker share one process here, so that the client cannot hold shared virtual memory at the worker's addresses.
const IN_ONE_PROCESS: &str = "client and worker are one process, and its addresses are taken";

/// What differs behind a session whose worker is in this process.
const SESSION_DEVIATIONS: &[(&str, Deviation)] = &[
    (
        "order::marker_with_a_wait_list_waits_for_it_alone",
        Fatal("PoCL's marker waits for all commands before"),
    ),
    (
        "svm::kernel_follows_pointers_between_allocations",
        Differs(IN_ONE_PROCESS),
    ),
    (
        "svm::kernel_writes_are_seen_through_a_map",
        Differs(IN_ONE_PROCESS),
    ),
    ("svm::memcpy_and_fill_move_bytes", Differs(IN_ONE_PROCESS)),
    (
        "svm::mapped_writes_are_seen_by_a_kernel",
        Differs(IN_ONE_PROCESS),
    ),
    ("svm::memory_is_aligned_as_asked", Differs(IN_ONE_PROCESS)),
    ("svm::null_copy_is_invalid_value", Differs(IN_ONE_PROCESS)),
];

/// What Oclgrind 21.10 does other than the specification says, and the platform does not answer for it.
const SERIAL_DEVIATIONS: &[(&str, Deviation)] = &[
    (
        "kernel::bytes_for_a_value_argument_are_needed",
        Fatal("it reads through the NULL pointer"),
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
];

/// The same behind a session, which looks at more arguments itself.
const SERIAL_SESSION_DEVIATIONS: &[(&str, Deviation)] = &[
    (
        "kernel::bytes_for_a_value_argument_are_needed",
        Fatal("it reads through the NULL pointer"),
    ),
    (
        "kernel::local_argument_of_no_bytes_is_invalid_arg_size",
        Differs("it takes no bytes"),
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
];

fn over(providers: Vec<Provider>) -> Result<Fixture, String> {
    Fixture::first(Arc::new(Platform::with_providers(providers)))
}

/// PoCL in this process.
fn local() -> Result<Fixture, String> {
    Ok(over(providers(&[POCL], true))?.with_deviations(DEVIATIONS))
}

/// PoCL in this process, with nothing asked of it that a session lacks.
fn session_like() -> Result<Fixture, String> {
    Ok(over(providers(&[POCL], false))?.with_deviations(DEVIATIONS))
}

/// PoCL behind a session.
fn session() -> Result<Fixture, String> {
    let providers = Provider::of_session(&support::session());
    Ok(over(providers)?.with_deviations(SESSION_DEVIATIONS))
}

/// Oclgrind in this process: a device that computes only inside a call, behind the adapter for such.
fn serial() -> Result<Fixture, String> {
    Ok(over(providers(&[OCLGRIND], true))?.with_deviations(SERIAL_DEVIATIONS))
}

/// Oclgrind behind a session.
fn serial_session() -> Result<Fixture, String> {
    let providers = Provider::of_session(&support::session_on(OCLGRIND));
    Ok(over(providers)?.with_deviations(SERIAL_SESSION_DEVIATIONS))
}

towline_test::suite! {
    "local" => local(),
    "session_like" => session_like(),
    "session" => session(),
    "serial" => serial(),
    "serial_session" => serial_session(),
}
