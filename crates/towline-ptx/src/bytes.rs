//! Little-endian fields at any place of a slice, without a panic wherever that is.

use crate::Error;

/// `len` bytes at `at`.
pub(crate) fn slice<'a>(
    bytes: &'a [u8],
    at: u64,
    len: u64,
    what: &'static str,
) -> Result<&'a [u8], Error> {
    let range = usize::try_from(at).ok().zip(usize::try_from(len).ok());
    range
        .and_then(|(at, len)| bytes.get(at..at.checked_add(len)?))
        .ok_or(Error::Truncated {
            what,
            at,
            wanted: len,
            len: bytes.len() as u64,
        })
}

fn array<const N: usize>(bytes: &[u8], at: usize, what: &'static str) -> Result<[u8; N], Error> {
    let field = slice(bytes, at as u64, N as u64, what)?;
    Ok(field.try_into().expect("the slice has that length"))
}

pub(crate) fn u8_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u8, Error> {
    Ok(u8::from_le_bytes(array(bytes, at, what)?))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u16, Error> {
    Ok(u16::from_le_bytes(array(bytes, at, what)?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u32, Error> {
    Ok(u32::from_le_bytes(array(bytes, at, what)?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u64, Error> {
    Ok(u64::from_le_bytes(array(bytes, at, what)?))
}
