//! The table of handles, against a plain map.

use std::collections::HashMap;

use towline_session::{Entry, Table, TableError};

use crate::Seed;

/// Whatever a client does with numbers, the table gives what was put under number and kind, once. Input: triples of operation, number
/// and kind.
pub fn target(bytes: &[u8]) {
    let mut table = Table::default();
    let mut model: HashMap<u64, (u8, usize)> = HashMap::new();
    for (index, step) in bytes.as_chunks::<3>().0.iter().enumerate() {
        let (id, tag) = (u64::from(step[1] % 16), step[2] % 4);
        let known = model
            .get(&id)
            .filter(|(kind, _)| *kind == tag)
            .map(|(_, value)| Entry::Live(*value))
            .ok_or(TableError::Unknown(id));
        match step[0] % 4 {
            0 if id == 0 || model.contains_key(&id) => {
                assert_eq!(table.insert(id, tag, Entry::Live(index)), Err(TableError::Taken(id)));
            }
            0 => {
                assert_eq!(table.insert(id, tag, Entry::Live(index)), Ok(()));
                model.insert(id, (tag, index));
            }
            1 => assert_eq!(table.entry(id, tag), known),
            2 => {
                assert_eq!(table.remove(id, tag), known);
                if known.is_ok() {
                    model.remove(&id);
                }
            }
            _ => {
                let count = model.values().filter(|(kind, _)| *kind == tag).count();
                assert_eq!(table.drain(tag).len(), count);
                model.retain(|_, (kind, _)| *kind != tag);
            }
        }
        assert_eq!(table.len(), model.len());
    }
}

/// A life of a few handles.
pub fn seeds() -> Vec<Seed> {
    vec![Seed::new(
        "life",
        [
            0, 1, 0, 0, 2, 1, 0, 1, 2, 1, 1, 0, 1, 1, 1, 2, 2, 1, 2, 2, 1, 3, 0, 0, 0, 0, 0,
        ],
    )]
}
