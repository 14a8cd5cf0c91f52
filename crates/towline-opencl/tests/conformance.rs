//! The conformance suite over the platform: on a provider of this process, on one treated like a session, and on a session with a
//! process of its own; and on a vendor that computes only inside a call, here and behind a session.

mod support;

use std::process::{Command, ExitCode};
use std::sync::Arc;

use support::{OCLGRIND, POCL, providers};
use towline_opencl::{Platform, Provider};
use towline_test::conformance::Deviation::{self, Differs, Fatal};
use towline_test::conformance::{self, Fixture};
use towline_test::process;

/// What PoCL 3.1 does other than the specification says, and the platform does not answer for it.
const DEVIATIONS: &[(&str, Deviation)] = &[(
    "order::marker_with_a_wait_list_waits_for_it_alone",
    Fatal("PoCL's marker waits for all commands before"),
)];

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

/// This program is a worker if this is set.
const WORKER: &str = "TOWLINE_TEST_WORKER";

/// PoCL behind a session, whose worker is this program once more: addresses of shared virtual memory are free in both or in neither.
fn session() -> Result<Fixture, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let session = Arc::new(process::session(Command::new(this).env(WORKER, "1")));
    let providers = Provider::of_session(&session);
    Ok(over(providers)?.with_deviations(DEVIATIONS))
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

fn main() -> ExitCode {
    if std::env::var_os(WORKER).is_some() {
        let served = process::serve(support::library(POCL).0);
        return ExitCode::from(u8::from(served.is_err()));
    }
    let fixtures = [
        ("local", local()),
        ("session_like", session_like()),
        ("session", session()),
        ("serial", serial()),
        ("serial_session", serial_session()),
    ];
    let trials = fixtures.into_iter();
    conformance::run(
        trials
            .flat_map(|(name, fixture)| conformance::trials(name, fixture))
            .collect(),
    )
}
