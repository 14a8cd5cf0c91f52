//! What arguments were set to.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use towline_backend::opencl::*;

use crate::arena::{self, Kind};
use crate::info;

/// What an argument was set to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Bytes, or NULL with a size.
    Plain,
    /// NULL: a size of local memory.
    Null,
    /// A memory object, sampler or queue, by the generation of its handle.
    Object(Kind, u32),
    /// A pointer into shared virtual memory.
    Svm,
}

impl Value {
    /// The kind of value, its size and its generation in one word, which is never zero; `None` where the size does not fit.
    #[inline]
    fn tag(self, size: usize) -> Option<u64> {
        let (kind, generation) = match self {
            Self::Plain => (1, 0),
            Self::Null => (2, 0),
            Self::Object(_, generation) => (3, generation),
            Self::Svm => (4, 0),
        };
        let size = u64::try_from(size).ok().filter(|size| *size < 1 << 24)?;
        Some(kind << 56 | size << 32 | u64::from(generation))
    }
}

/// Arguments that [`Recent`] has room for.
const RECENT: usize = 16;

/// What the first arguments were set to last, where it fits a word: that a value is set again is found out without the lock. Only
/// one thread at a time sets arguments of a kernel, as OpenCL has it; those that break the rule lose a value, not more.
#[derive(Default)]
pub(super) struct Recent([(AtomicU64, AtomicU64); RECENT]);

impl Recent {
    /// A value's bytes as a word; `None` where they are more.
    #[inline]
    fn word(bytes: &[u8]) -> Option<u64> {
        match bytes.len() {
            8 => bytes.try_into().ok().map(u64::from_ne_bytes),
            4 => bytes
                .try_into()
                .ok()
                .map(|word| u32::from_ne_bytes(word).into()),
            len if len < 8 => Some(
                bytes
                    .iter()
                    .fold(0, |word, byte| word << 8 | u64::from(*byte)),
            ),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn has(&self, index: usize, value: Value, size: usize, bytes: &[u8]) -> bool {
        let Some((tag, word)) = self.0.get(index) else {
            return false;
        };
        value.tag(size) == Some(tag.load(Ordering::Relaxed))
            && Self::word(bytes) == Some(word.load(Ordering::Relaxed))
    }

    /// Whether there is room for this value.
    pub(super) fn holds(index: usize, value: Value, size: usize, bytes: &[u8]) -> bool {
        index < RECENT && value.tag(size).is_some() && Self::word(bytes).is_some()
    }

    /// Whether the argument has another value of the same kind and size.
    #[inline]
    pub(super) fn has_like(&self, index: usize, value: Value, size: usize) -> bool {
        let slot = self.0.get(index);
        slot.is_some_and(|(tag, _)| value.tag(size) == Some(tag.load(Ordering::Relaxed)))
    }

    #[inline]
    pub(super) fn note(&self, index: usize, value: Value, size: usize, bytes: &[u8]) {
        let Some((tag, word)) = self.0.get(index) else {
            return;
        };
        match (value.tag(size), Self::word(bytes)) {
            (Some(now), Some(bits)) => {
                word.store(bits, Ordering::Relaxed);
                tag.store(now, Ordering::Relaxed);
            }
            _ => tag.store(0, Ordering::Relaxed),
        }
    }
}

/// One argument.
#[derive(Clone)]
pub(super) struct Arg {
    pub(super) value: Value,
    pub(super) size: usize,
    pub(super) bytes: SmallVec<[u8; 16]>,
    /// Counts its changes.
    pub(super) version: u32,
}

#[derive(Default, Clone)]
pub(super) struct Args {
    pub(super) list: Vec<Option<Arg>>,
    /// The versions that each part's kernel has got.
    pub(super) given: Vec<Vec<u32>>,
}

impl Args {
    pub(super) fn is_set_to(&self, index: usize, value: Value, size: usize, bytes: &[u8]) -> bool {
        matches!(self.list.get(index), Some(Some(arg))
            if arg.value == value && arg.size == size && arg.bytes.as_slice() == bytes)
    }

    pub(super) fn note(&mut self, index: usize, value: Value, size: usize, bytes: &[u8]) -> u32 {
        if self.list.len() <= index {
            self.list.resize(index + 1, None);
        }
        let slot = &mut self.list[index];
        let version = slot.as_ref().map_or(1, |arg| arg.version.wrapping_add(1));
        match slot {
            Some(arg) => {
                arg.value = value;
                arg.size = size;
                arg.bytes.clear();
                arg.bytes.extend_from_slice(bytes);
                arg.version = version;
            }
            None => {
                *slot = Some(Arg {
                    value,
                    size,
                    bytes: SmallVec::from_slice(bytes),
                    version,
                });
            }
        }
        version
    }

    pub(super) fn expect_alive(&self) -> Result<(), cl_int> {
        for arg in self.list.iter().flatten() {
            if let Value::Object(_, generation) = arg.value
                && arena::live_at(address(&arg.bytes)).map(|(_, now)| now) != Some(generation)
            {
                return Err(CL_INVALID_KERNEL_ARGS);
            }
        }
        Ok(())
    }

    /// Notes which version a part's kernel has got.
    pub(super) fn given(&mut self, part: usize, index: usize, version: u32) {
        if let Some(versions) = self.given.get_mut(part) {
            if versions.len() <= index {
                versions.resize(index + 1, 0);
            }
            versions[index] = version;
        }
    }
}

/// The address that eight bytes hold.
pub(super) fn address(bytes: &[u8]) -> usize {
    info::size(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_set_again_is_known_by_kind_size_generation_and_bytes() {
        let recent = Recent::default();
        let object = |generation| Value::Object(Kind::Mem, generation);
        assert!(!recent.has(0, Value::Null, 0, &[]));
        recent.note(0, Value::Plain, 4, &[1, 2, 3, 4]);
        recent.note(1, object(7), 8, &[1; 8]);
        recent.note(2, Value::Null, 64, &[]);
        recent.note(3, Value::Plain, 3, &[1, 2, 3]);
        assert!(recent.has(0, Value::Plain, 4, &[1, 2, 3, 4]));
        assert!(!recent.has(0, Value::Plain, 4, &[1, 2, 3, 5]));
        assert!(!recent.has(1, Value::Plain, 4, &[1, 2, 3, 4]));
        assert!(recent.has(1, object(7), 8, &[1; 8]));
        assert!(!recent.has(1, object(8), 8, &[1; 8]));
        assert!(!recent.has(1, Value::Plain, 8, &[1; 8]));
        assert!(!recent.has(1, Value::Svm, 8, &[1; 8]));
        assert!(recent.has(2, Value::Null, 64, &[]));
        assert!(!recent.has(2, Value::Null, 128, &[]));
        assert!(recent.has(3, Value::Plain, 3, &[1, 2, 3]));
        assert!(!recent.has(3, Value::Plain, 3, &[3, 2, 1]));
        assert!(recent.has_like(3, Value::Plain, 3) && !recent.has_like(3, Value::Plain, 4));
    }

    #[test]
    fn what_has_no_room_is_not_known_nor_is_what_it_took_the_place_of() {
        let recent = Recent::default();
        recent.note(0, Value::Plain, 4, &[1; 4]);
        for (size, bytes) in [(12, &[1_u8; 12][..]), (1 << 24, &[])] {
            assert!(!Recent::holds(0, Value::Plain, size, bytes));
            recent.note(0, Value::Plain, size, bytes);
            assert!(!recent.has(0, Value::Plain, size, bytes));
            assert!(!recent.has(0, Value::Plain, 4, &[1; 4]));
        }
        assert!(!Recent::holds(RECENT, Value::Plain, 4, &[1; 4]));
        recent.note(RECENT, Value::Plain, 4, &[1; 4]);
        assert!(!recent.has(RECENT, Value::Plain, 4, &[1; 4]));
    }
}
