//! The code of a session, by its size as it came: modules, libraries, links, programs, and the descriptions of executable graphs.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::link::Link;

/// Bytes charged for each byte of a graph's description: drivers keep nodes in more room than that.
pub(crate) const GRAPH_FACTOR: u64 = 8;

/// Charged bytes, by the client's numbers.
#[derive(Default)]
pub(crate) struct Code(Mutex<HashMap<u64, Item>>);

struct Item {
    bytes: u64,
    /// The context that it ends with; 0 for none.
    context: u64,
}

impl Link {
    /// Charges code that is about to be loaded under a number, beside what is charged there; whether the session may have it.
    pub(crate) fn charge_code(&self, id: u64, context: u64, bytes: u64) -> bool {
        let limit = match self.counters.code_limit.load(Ordering::Relaxed) {
            0 => u64::MAX,
            limit => limit,
        };
        let mut code = self.code.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.counters.code_bytes.load(Ordering::Relaxed);
        let Some(sum) = held.checked_add(bytes).filter(|sum| *sum <= limit) else {
            return false;
        };
        self.counters.code_bytes.store(sum, Ordering::Relaxed);
        let item = code.entry(id).or_insert(Item { bytes: 0, context });
        item.bytes += bytes;
        true
    }

    /// The code of a number is no more.
    pub(crate) fn credit_code(&self, id: u64) {
        let mut code = self.code.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Item { bytes, .. }) = code.remove(&id) {
            self.counters.code_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// A context has ended, and code with it.
    pub(crate) fn credit_code_of(&self, context: u64) {
        let mut code = self.code.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        code.retain(|_, item| {
            let ends = item.context == context;
            bytes += if ends { item.bytes } else { 0 };
            !ends
        });
        self.counters.code_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
