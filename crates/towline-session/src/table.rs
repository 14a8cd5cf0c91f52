//! The server's table of handles: numbers that the client chose, native objects behind them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What stands behind a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<T> {
    /// A native object.
    Live(T),
    /// Its creation failed with this status; whatever uses it fails too.
    Failed(i32),
}

/// A use of the table that no honest client makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// More handles than a session may hold.
    #[error("more than {LIMIT} handles are alive")]
    Full,
    /// The number is in use.
    #[error("handle {0:#x} exists already")]
    Taken(u64),
    /// There is no such handle, or it is of another kind.
    #[error("there is no handle {0:#x} of this kind")]
    Unknown(u64),
}

/// Most handles of a session: bounds what a client can make the worker keep.
const LIMIT: usize = 4 << 20;

/// Values by a number that a client chose: found in fewer instructions than with the standard hasher.
pub type Numbers<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// Values by where a native object lies, found as quickly.
pub type Addresses<T> = HashMap<usize, T, BuildHasherDefault<NumberHasher>>;

/// Handles by number and kind.
///
/// ```
/// use towline_session::{Entry, Table, TableError};
///
/// let (buffer, queue) = (1, 2);
/// let mut table = Table::default();
/// table.insert(7, buffer, Entry::Live("a native buffer"))?;
/// assert_eq!(table.entry(7, buffer)?, Entry::Live("a native buffer"));
/// assert_eq!(table.entry(7, queue), Err(TableError::Unknown(7)));
/// assert_eq!(table.insert(7, queue, Entry::Failed(-5)), Err(TableError::Taken(7)));
/// # Ok::<(), TableError>(())
/// ```
#[derive(Debug)]
pub struct Table<T> {
    entries: Numbers<(u8, Entry<T>)>,
    changes: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
            changes: 0,
        }
    }
}

impl<T: Copy> Table<T> {
    /// Adds a handle of kind `tag`.
    pub fn insert(&mut self, id: u64, tag: u8, entry: Entry<T>) -> Result<(), TableError> {
        if self.entries.len() >= LIMIT {
            return Err(TableError::Full);
        }
        if id == 0 || self.entries.contains_key(&id) {
            return Err(TableError::Taken(id));
        }
        self.entries.insert(id, (tag, entry));
        self.changes += 1;
        Ok(())
    }

    /// The handle `id`, which must be of kind `tag`.
    #[inline]
    pub fn entry(&self, id: u64, tag: u8) -> Result<Entry<T>, TableError> {
        match self.entries.get(&id) {
            Some((kind, entry)) if *kind == tag => Ok(*entry),
            _ => Err(TableError::Unknown(id)),
        }
    }

    /// Takes the handle out.
    pub fn remove(&mut self, id: u64, tag: u8) -> Result<Entry<T>, TableError> {
        let entry = self.entry(id, tag)?;
        self.entries.remove(&id);
        self.changes += 1;
        Ok(entry)
    }

    /// All handles of one kind, taken out.
    pub fn drain(&mut self, tag: u8) -> Vec<Entry<T>> {
        let ids: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, (kind, _))| *kind == tag)
            .map(|(id, _)| *id)
            .collect();
        self.changes += 1;
        ids.iter()
            .filter_map(|id| self.entries.remove(id))
            .map(|(_, entry)| entry)
            .collect()
    }

    /// Counts insertions and removals: what was found is the same as long as this is.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Handles alive.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Numbers count up, so a multiplication spreads them; a client that crafts collisions slows only its own worker.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.write_u64(address as u64);
    }

    fn write_u64(&mut self, number: u64) {
        // Golden-ratio multiplier (Knuth, TAOCP vol. 3, 6.4).
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_right(20);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_found_by_number_and_kind_only() {
        let mut table = Table::default();
        assert_eq!(table.insert(7, 5, Entry::Live(42_usize)), Ok(()));
        assert_eq!(table.entry(7, 5), Ok(Entry::Live(42)));
        assert_eq!(table.entry(7, 6), Err(TableError::Unknown(7)));
        assert_eq!(
            table.insert(7, 6, Entry::Failed(-4)),
            Err(TableError::Taken(7))
        );
        assert_eq!(
            table.insert(0, 6, Entry::Failed(-4)),
            Err(TableError::Taken(0))
        );
        assert_eq!(table.remove(7, 5), Ok(Entry::Live(42)));
        assert_eq!(table.remove(7, 5), Err(TableError::Unknown(7)));
    }

    #[test]
    fn what_comes_and_goes_is_a_change() {
        let mut table = Table::default();
        let mut changed = {
            let mut seen = table.changes();
            move |table: &Table<usize>| std::mem::replace(&mut seen, table.changes()) != seen
        };
        assert_eq!(table.insert(7, 5, Entry::Live(42)), Ok(()));
        assert!(changed(&table));
        assert!(table.insert(7, 5, Entry::Live(43)).is_err());
        assert!(table.entry(7, 5).is_ok());
        assert!(!changed(&table));
        assert!(table.remove(7, 5).is_ok());
        assert!(changed(&table));
        table.drain(5);
        assert!(changed(&table));
    }

    #[test]
    fn draining_takes_one_kind() {
        let mut table = Table::default();
        for id in 1..10 {
            table
                .insert(id, (id % 2) as u8, Entry::Live(id))
                .expect("the numbers are new");
        }
        assert_eq!(table.drain(1).len(), 5);
        assert_eq!(table.len(), 4);
    }
}
