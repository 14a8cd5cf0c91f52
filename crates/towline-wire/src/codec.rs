//! The byte codec under every message: little-endian, fixed width, no padding, no alignment.
//!
//! Encoding appends to a `Vec<u8>` that the caller reuses; decoding borrows from the received bytes, so a launch costs no
//! allocation on either side. Decoders are total: any input gives a value or a [`DecodeError`], never a panic, and nothing is
//! allocated by a length that has not been checked against the bytes that are really there.

use crate::error::DecodeError;

/// A value with a fixed-width little-endian form.
pub trait Scalar: Copy {
    /// Bytes it takes on the wire.
    const WIDTH: usize;
    /// Appends it to `out`.
    fn put(self, out: &mut Vec<u8>);
    /// Reads it from exactly [`Self::WIDTH`] bytes.
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! scalar {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            const WIDTH: usize = size_of::<$t>();
            #[inline]
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn take(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                <$t>::from_le_bytes(raw)
            }
        }
    )*};
}
scalar!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// An array inside a structure: its elements end to end.
impl<T: Scalar, const N: usize> Scalar for [T; N] {
    const WIDTH: usize = N * T::WIDTH;
    #[inline]
    fn put(self, out: &mut Vec<u8>) {
        self.into_iter().for_each(|item| item.put(out));
    }
    #[inline]
    fn take(bytes: &[u8]) -> Self {
        std::array::from_fn(|at| T::take(&bytes[at * T::WIDTH..(at + 1) * T::WIDTH]))
    }
}

/// Reads fields from the front of a message body.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// The next `len` bytes, borrowed.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            return Err(DecodeError::Truncated {
                wanted: len,
                left: self.rest.len(),
            });
        };
        self.rest = rest;
        Ok(head)
    }

    /// The next scalar.
    #[inline]
    pub fn scalar<T: Scalar>(&mut self) -> Result<T, DecodeError> {
        self.bytes(T::WIDTH).map(T::take)
    }

    /// A byte that must be 0 or 1.
    #[inline]
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.scalar::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::BadFlag(other)),
        }
    }

    /// A length-prefixed run of bytes.
    #[inline]
    pub fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.scalar::<u64>()?;
        let len = usize::try_from(len).map_err(|_| DecodeError::Truncated {
            wanted: usize::MAX,
            left: self.rest.len(),
        })?;
        self.bytes(len)
    }

    /// A length-prefixed run of UTF-8.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.blob()?).map_err(|_| DecodeError::BadText)
    }

    /// How many of `what` follow; a number over `limit` is refused.
    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let count = self.scalar::<u32>()? as usize;
        if count > limit {
            return Err(DecodeError::TooLong {
                what,
                len: count as u64,
                limit: limit as u64,
            });
        }
        Ok(count)
    }

    /// A counted list of scalars.
    #[inline]
    pub fn list<T: Scalar>(&mut self) -> Result<List<'a, T>, DecodeError> {
        let count = self.scalar::<u32>()? as usize;
        let len = count.checked_mul(T::WIDTH).ok_or(DecodeError::Truncated {
            wanted: usize::MAX,
            left: self.rest.len(),
        })?;
        self.bytes(len).map(List::Encoded)
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Fails when bytes are left over: a message is exactly its fields.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing(self.rest.len()))
        }
    }
}

/// Appends a length-prefixed run of bytes.
#[inline]
pub fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    (bytes.len() as u64).put(out);
    out.extend_from_slice(bytes);
}

/// Appends a flag byte.
#[inline]
pub fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

/// A list of scalars: the sender's own slice, or the bytes as they were received.
#[derive(Debug, Clone, Copy)]
pub enum List<'a, T> {
    /// Values in memory, on their way out.
    Values(&'a [T]),
    /// Values as received: unaligned little-endian.
    Encoded(&'a [u8]),
}

impl<'a, T: Scalar> List<'a, T> {
    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Values(values) => values.len(),
            Self::Encoded(bytes) => bytes.len() / T::WIDTH,
        }
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = T> + 'a {
        let (values, bytes): (&'a [T], &'a [u8]) = match *self {
            Self::Values(values) => (values, &[]),
            Self::Encoded(bytes) => (&[], bytes),
        };
        values
            .iter()
            .copied()
            .chain(bytes.chunks_exact(T::WIDTH).map(T::take))
    }

    /// The elements in a vector.
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }

    /// Appends count and elements.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        match self {
            Self::Values(values) => values.iter().for_each(|value| value.put(out)),
            Self::Encoded(bytes) => out.extend_from_slice(bytes),
        }
    }
}

impl<T: Scalar + PartialEq> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// A request or reply that the generator made.
pub trait Message<'a>: Sized {
    /// Appends the body.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a body; the whole of it.
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError>;
}

/// A request: a message with a call id, and the shape of its answer.
pub trait Request<'a>: Message<'a> {
    /// Wire id, unique within the API.
    const ID: u16;
    /// Name of the call, as in the C API.
    const NAME: &'static str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_little_endian_and_unaligned() {
        let mut out = vec![0xff];
        0x0102_0304_u32.put(&mut out);
        (-2_i64).put(&mut out);
        let mut decoder = Decoder::new(&out[1..]);
        assert_eq!(out[1..5], [4, 3, 2, 1]);
        assert_eq!(decoder.scalar::<u32>(), Ok(0x0102_0304));
        assert_eq!(decoder.scalar::<i64>(), Ok(-2));
        assert_eq!(decoder.finish(), Ok(()));
    }

    #[test]
    fn a_length_beyond_the_message_is_refused_before_allocation() {
        let mut out = Vec::new();
        u64::MAX.put(&mut out);
        assert!(matches!(
            Decoder::new(&out).blob(),
            Err(DecodeError::Truncated { .. })
        ));
        let mut out = Vec::new();
        u32::MAX.put(&mut out);
        assert!(matches!(
            Decoder::new(&out).list::<u64>(),
            Err(DecodeError::Truncated { .. })
        ));
    }

    #[test]
    fn a_list_reads_back_what_was_put() {
        let mut out = Vec::new();
        List::Values(&[1_u64, 2, u64::MAX]).put(&mut out);
        let mut decoder = Decoder::new(&out);
        let list = decoder.list::<u64>().expect("it was just written");
        assert_eq!(list.to_vec(), [1, 2, u64::MAX]);
        assert_eq!(list, List::Values(&[1, 2, u64::MAX]));
    }

    #[test]
    fn flags_and_trailing_bytes_are_checked() {
        assert_eq!(Decoder::new(&[2]).flag(), Err(DecodeError::BadFlag(2)));
        assert_eq!(
            Decoder::new(&[0, 0]).finish(),
            Err(DecodeError::Trailing(2))
        );
    }
}
