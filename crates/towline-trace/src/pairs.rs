//! Messages and bytes by pair of ranks.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// What one rank sent to one other. Written as `[from, to, messages, bytes]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pair {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// How many.
    pub messages: u64,
    /// How much.
    pub bytes: u64,
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.from, self.to, self.messages, self.bytes).serialize(serializer)
    }
}

/// Sums by pair.
#[derive(Debug, Default)]
pub(crate) struct Pairs(BTreeMap<(u32, u32), (u64, u64)>);

impl Pairs {
    /// Nothing is added where nothing was sent.
    pub(crate) fn add(&mut self, from: u32, to: u32, (messages, bytes): (u64, u64)) {
        if messages == 0 {
            return;
        }
        let sum = self.0.entry((from, to)).or_default();
        sum.0 = sum.0.saturating_add(messages);
        sum.1 = sum.1.saturating_add(bytes);
    }

    /// Sorted by sender, then by receiver.
    pub(crate) fn into_list(self) -> Vec<Pair> {
        self.0
            .into_iter()
            .map(|((from, to), (messages, bytes))| Pair {
                from,
                to,
                messages,
                bytes,
            })
            .collect()
    }
}
