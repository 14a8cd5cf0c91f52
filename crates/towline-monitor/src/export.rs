//! The C ABI: one function per symbol of the library.
//!
//! Nothing unwinds into the application. A child after fork has connections of its own ([`crate::library::forked`]): programs ask NVML
//! before they fork because it leaves CUDA alone.

use std::ffi::{CString, c_char};
use std::panic::AssertUnwindSafe;
use std::sync::{Once, OnceLock};

use towline_backend::nvml::*;

use crate::library::{self, Library};

/// Runs a call on the process's library: panics end in the call's own failure.
fn guard(name: &'static str, call: impl FnOnce(&'static Library) -> nvmlReturn_t) -> nvmlReturn_t {
    prepare();
    match std::panic::catch_unwind(AssertUnwindSafe(|| call(library::process()))) {
        Ok(status) => {
            log::trace!("{name}: {}", status_name(status).unwrap_or("?"));
            status
        }
        Err(_) => {
            log::error!("{name} failed inside Towline; please report it");
            NVML_ERROR_UNKNOWN
        }
    }
}

fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        let filter = env_logger::Env::new().filter_or("TOWLINE_LOG", "warn");
        // The library has a logger of its own, unless the driver's functions made it first: the application's is another copy of `log`.
        let _ = env_logger::Builder::from_env(filter)
            .format_target(false)
            .try_init();
        watch_fork();
    });
}

#[cfg(unix)]
fn watch_fork() {
    extern "C" fn child() {
        library::forked();
    }
    // SAFETY: the handler only swaps atomics, which is sound in a child after fork.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Windows has no fork.
#[cfg(not(unix))]
fn watch_fork() {}

/// Texts of errors, made once: mostly the constant's name in words, else as programs know it.
fn texts() -> &'static [(nvmlReturn_t, CString)] {
    static TEXTS: OnceLock<Vec<(nvmlReturn_t, CString)>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        (NVML_SUCCESS..=NVML_ERROR_UNKNOWN)
            .filter_map(|status| {
                let name = status_name(status)?.strip_prefix("NVML_")?;
                let words = name.strip_prefix("ERROR_").unwrap_or(name).split('_');
                let words = words.map(|word| match word {
                    "GPU" | "VGPU" | "ECC" | "IRQ" | "RM" => word.to_owned(),
                    word => {
                        let (first, rest) = word.split_at(word.len().min(1));
                        first.to_owned() + &rest.to_lowercase()
                    }
                });
                let text = match status {
                    NVML_ERROR_NO_PERMISSION => "Insufficient Permissions".to_owned(),
                    NVML_ERROR_INSUFFICIENT_POWER => "Insufficient External Power".to_owned(),
                    NVML_ERROR_IRQ_ISSUE => "Interrupt Request Issue".to_owned(),
                    NVML_ERROR_GPU_IS_LOST => "GPU is lost".to_owned(),
                    NVML_ERROR_UNKNOWN => "Unknown Error".to_owned(),
                    _ => words.collect::<Vec<_>>().join(" "),
                };
                Some((status, CString::new(text).ok()?))
            })
            .collect()
    })
}

/// What a status means.
#[cfg_attr(target_os = "linux", unsafe(export_name = "towline_nvmlErrorString"))]
#[cfg_attr(not(target_os = "linux"), unsafe(no_mangle))]
#[allow(unreachable_pub, reason = "programs reach it by its symbol")]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let texts = texts();
    let known = texts.iter().find(|(status, _)| *status == result);
    let found = known.or(texts.last());
    found.map_or(c"".as_ptr(), |(_, text)| text.as_ptr())
}

mod symbols {
    #![allow(
        unreachable_pub,
        reason = "programs reach these functions by their symbols"
    )]

    use super::*;

    include!(concat!(env!("OUT_DIR"), "/nvml_export.rs"));
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn text(status: nvmlReturn_t) -> &'static str {
        // SAFETY: the library's own text, which ends with a NUL and stays.
        let text = unsafe { CStr::from_ptr(nvmlErrorString(status)) };
        text.to_str().unwrap()
    }

    #[test]
    fn errors_have_their_words() {
        assert_eq!(text(NVML_SUCCESS), "Success");
        assert_eq!(text(NVML_ERROR_NOT_SUPPORTED), "Not Supported");
        assert_eq!(text(NVML_ERROR_GPU_IS_LOST), "GPU is lost");
        assert_eq!(text(NVML_ERROR_NO_PERMISSION), "Insufficient Permissions");
        assert_eq!(text(4711), text(NVML_ERROR_UNKNOWN));
    }

    #[test]
    fn a_panic_becomes_the_failure_of_the_call() {
        let status = guard("test", |_| std::panic::resume_unwind(Box::new("inside")));
        assert_eq!(status, NVML_ERROR_UNKNOWN);
    }
}
