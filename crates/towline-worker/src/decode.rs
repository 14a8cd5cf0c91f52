//! Requests as calls take them: bytes at places that vendors may read, and the end of a session whose client uses a wrong handle.

use towline_session::TableError;
use towline_wire::error::{CloseCode, ProtocolError};

/// A use of the table that no honest client makes ends the session.
pub(crate) fn broken(error: TableError) -> ProtocolError {
    let code = match error {
        TableError::Full => CloseCode::LimitExceeded,
        TableError::Taken(_) => CloseCode::DuplicateHandle,
        _ => CloseCode::UnknownHandle,
    };
    ProtocolError::new(code, error.to_string())
}

/// Bytes copied to where a vendor may read any type from: in a frame they lie as they come.
pub(crate) fn aligned(bytes: &[u8]) -> smallvec::SmallVec<[u128; 8]> {
    const WORD: usize = size_of::<u128>();
    let (whole, rest) = bytes.as_chunks::<WORD>();
    let mut words: smallvec::SmallVec<[u128; 8]> = smallvec::SmallVec::new();
    words.extend(whole.iter().map(|word| u128::from_ne_bytes(*word)));
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        words.push(u128::from_ne_bytes(last));
    }
    words
}

/// A C string of the bytes up to the first NUL.
pub(crate) fn c_string(bytes: &[u8]) -> std::ffi::CString {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    std::ffi::CString::new(bytes.get(..end).unwrap_or_default()).unwrap_or_default()
}
