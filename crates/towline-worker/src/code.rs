//! The code of a session, by its size as it came: modules, libraries, links, programs, and the descriptions of executable graphs.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::link::{Charge, Counters, Link, add_within};

/// Bytes charged for each byte of a graph's description: drivers keep nodes in more room than that.
pub(crate) const GRAPH_FACTOR: u64 = 8;

/// Something that is charged, by the client's number: each kind has numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Coded {
    /// An object of the session's table, of this kind.
    Object(u8, u64),
    Link(u64),
    Graph(u64),
}

impl From<u64> for Coded {
    /// A program, of an API that has nothing else.
    fn from(program: u64) -> Self {
        Self::Object(0, program)
    }
}

/// Charged code.
#[derive(Default)]
pub(crate) struct Code(Mutex<HashMap<Coded, Item>>);

struct Item {
    charge: CodeCharge,
    /// The context that it ends with; 0 for none.
    context: u64,
}

/// Code that a session is charged for as long as this lives.
pub(crate) struct CodeCharge {
    counters: Arc<Counters>,
    bytes: u64,
    /// Memory of the device that it takes.
    memory: Option<Charge>,
}

impl Drop for CodeCharge {
    fn drop(&mut self) {
        self.counters.code_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

impl Link {
    /// Charges code that is about to be loaded under a number, beside what is charged there; whether the session may have it.
    pub(crate) fn charge_code(&self, key: impl Into<Coded>, context: u64, bytes: u64) -> bool {
        let limit = match self.counters.code_limit.load(Relaxed) {
            0 => u64::MAX,
            limit => limit,
        };
        if add_within(&self.counters.code_bytes, bytes, limit).is_none() {
            return false;
        }
        let mut code = self.coded();
        let item = code.entry(key.into()).or_insert_with(|| Item {
            charge: CodeCharge {
                counters: Arc::clone(&self.counters),
                bytes: 0,
                memory: None,
            },
            context,
        });
        item.charge.bytes += bytes;
        true
    }

    /// Charges memory of the device for as long as code has a number; whether the session may have it.
    pub(crate) fn charge_memory_of_code(&self, key: Coded, bytes: u64) -> bool {
        let charge = Charge::new(&self.counters, bytes);
        let is_charged = charge.is_some();
        if let Some(item) = self.coded().get_mut(&key) {
            item.charge.memory = charge;
        }
        is_charged
    }

    /// Whether a number is in use.
    pub(crate) fn has_code(&self, key: Coded) -> bool {
        self.coded().contains_key(&key)
    }

    /// The charge of a number, which is free from now on.
    pub(crate) fn take_code(&self, key: Coded) -> Option<CodeCharge> {
        Some(self.coded().remove(&key)?.charge)
    }

    /// The code of a number is no more.
    pub(crate) fn credit_code(&self, key: impl Into<Coded>) {
        drop(self.take_code(key.into()));
    }

    /// A context has ended, and code with it.
    pub(crate) fn credit_code_of(&self, context: u64) {
        self.coded().retain(|_, item| item.context != context);
    }

    fn coded(&self) -> MutexGuard<'_, HashMap<Coded, Item>> {
        self.code.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
