//! What a worker does with a session: decodes requests in order, turns client-minted numbers into native objects, calls the backend,
//! and pushes replies, completions and data.
//!
//! The lane thread never waits for a device: whatever may wait is started here and finished by a completion, on a
//! waiter thread or on the vendor's own. The crate knows neither sockets nor processes; `towline-server` starts it in a jailed
//! process, tests run it in their own.
//!
//! Each API has a folder. The files beside them serve all and know none.

#![warn(missing_docs)]

mod bonds;
mod code;
mod cuda;
mod decode;
mod device_time;
mod lane;
mod link;
mod memory_budget;
mod nvml;
mod opencl;
mod payload;
mod print;
mod swap;
mod turns;
mod waiters;
mod watchdog;

pub use bonds::{BOND_BYTES, Bond, Bonds, Fellows};
pub use cuda::{
    Broker, CudaEngine, CudaOpenError, DIGEST_BYTES, ImageDigest, Images, NoBroker, OFFER_BYTES,
    Offer, Offers, OpenLibrary, TOKEN_BYTES, Taken, Token, sealed_image,
};
pub use lane::{Limits, RunError, SideLane};
pub use link::Counters;
pub use memory_budget::{GRANULE, MemoryBudget, Reserved};
pub use nvml::{NvmlMonitor, NvmlOpenError};
pub use opencl::{OpenClEngine, OpenClOpenError};
pub use swap::{Swap, SwapRequest, Swapper};
pub use turns::{Scheduler, Turn, Turns};

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Whether a word is of an API, or of a module for one.
    fn names_an_api(word: &str) -> bool {
        let lower = word.to_lowercase();
        let humps = |prefix: &&str| {
            let rest = word.strip_prefix(*prefix).unwrap_or_default();
            rest.starts_with(|first: char| first.is_ascii_uppercase())
        };
        ["opencl", "cuda", "nvml"]
            .iter()
            .any(|api| lower.contains(api))
            || ["cl_", "CL_", "CU"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
            || ["cl", "Cl", "cu"].iter().any(humps)
    }

    #[test]
    fn files_for_every_api_name_none() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let names: Vec<_> = std::fs::read_dir(folder)
            .expect("the sources are there")
            .map(|entry| entry.expect("it can be read").path())
            .filter(|path| path.is_file() && !path.ends_with("lib.rs"))
            .flat_map(|path| {
                let text = std::fs::read_to_string(&path).expect("it is text");
                let words = text.split(|part: char| !part.is_alphanumeric() && part != '_');
                let named = words.filter(|word| names_an_api(word)).map(str::to_owned);
                named.map(|word| (path.clone(), word)).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(names, []);
    }

    #[test]
    fn words_of_apis_are_told_from_others() {
        let named = [
            "cl_event",
            "CL_COMPLETE",
            "clFlush",
            "OpenClApi",
            "ClEvent",
            "CUstream",
            "cuda",
        ];
        assert!(named.into_iter().all(names_an_api));
        let others = ["client", "CloseCode", "CLIENTS", "current", "cluster"];
        assert!(!others.into_iter().any(names_an_api));
    }
}
