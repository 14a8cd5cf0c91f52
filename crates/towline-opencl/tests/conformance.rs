//! The conformance suite over the platform: on a provider of this process, on one treated like a session, and on a session.

mod support;

use std::sync::{Arc, OnceLock};

use support::{POCL, providers};
use towline_backend::opencl::*;
use towline_opencl::{Platform, Provider};
use towline_test::conformance::Fixture;
use towline_test::pair::Pair;

/// PoCL in this process.
fn local() -> Result<Fixture, String> {
    Fixture::first(Arc::new(Platform::with_providers(providers(&[POCL], true))))
}

/// PoCL in this process, with nothing asked of it that a session lacks.
fn session_like() -> Result<Fixture, String> {
    Fixture::first(Arc::new(Platform::with_providers(providers(
        &[POCL],
        false,
    ))))
}

/// PoCL behind a session.
fn session() -> Result<Fixture, String> {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    let native = NativeOpenCl::from_libraries(&[POCL.into()]).map_err(|error| error.to_string())?;
    let pair = PAIR.get_or_init(|| Pair::new(Arc::new(native)));
    let providers = Provider::of_session(&pair.remote);
    Fixture::first(Arc::new(Platform::with_providers(providers)))
}

towline_test::suite! {
    "local" => local(),
    "session_like" => session_like(),
    "session" => session(),
}
