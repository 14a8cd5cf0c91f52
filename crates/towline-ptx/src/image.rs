//! What a program gives to `cuModuleLoadData` and its kin: a pointer, and no length.
//!
//! The driver tells the kinds of images apart by how they begin, and finds their ends by their headers, or a NUL. [`extent`] does
//! the same over what the caller has seen so far, and asks for more in steps that never lead past the end of a well-formed image: the
//! caller, who may touch that memory, begins with nothing and shows what [`Extent::Unknown`] asks for.

use crate::Error;
use crate::elf;
use crate::fatbin::{
    CONTAINER_HEADER_BYTES, CONTAINER_LIMIT, CONTAINER_MAGIC, WRAPPER_BYTES, WRAPPER_MAGIC,
    container_len,
};

/// Longest image of machine code: as for containers.
const ELF_LIMIT: u64 = CONTAINER_LIMIT;

/// The kinds of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A fat binary's wrapper, which points to a container.
    Wrapper,
    /// A fat binary's container.
    Container,
    /// Machine code.
    Elf,
    /// PTX text, ended by a NUL.
    Ptx,
}

/// How much is known of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Not enough was seen: show at least this many bytes from the start.
    Unknown(u64),
    /// The image's kind, and how many bytes it has. Text counts up to its NUL, which is left out.
    Known(Kind, u64),
}

/// What kind of image starts with `bytes`; `None` while too few are there to tell. Never wants more than four, and no more once they
/// cannot begin anything but text.
pub fn kind(bytes: &[u8]) -> Option<Kind> {
    let magics = [
        (WRAPPER_MAGIC.to_le_bytes(), Kind::Wrapper),
        (CONTAINER_MAGIC.to_le_bytes(), Kind::Container),
        (elf::MAGIC, Kind::Elf),
    ];
    let (start, _) = bytes.split_at(bytes.len().min(4));
    for (magic, kind) in magics {
        if magic == start {
            return Some(kind);
        }
        if magic.starts_with(start) {
            return None;
        }
    }
    Some(Kind::Ptx)
}

/// Kind and length of the image of which `seen` is the start; more bytes than it has do no harm.
pub fn extent(seen: &[u8]) -> Result<Extent, Error> {
    let more = |wanted: usize| Ok(Extent::Unknown(wanted as u64));
    let Some(kind) = kind(seen) else {
        return more(seen.len() + 1);
    };
    let len = match kind {
        Kind::Wrapper => WRAPPER_BYTES as u64,
        Kind::Container => match seen.first_chunk::<CONTAINER_HEADER_BYTES>() {
            None => return more(CONTAINER_HEADER_BYTES),
            Some(header) => container_len(header)?,
        },
        Kind::Elf => match elf::len(seen) {
            Err(Error::Truncated { at, wanted, .. }) => {
                let wanted = at.saturating_add(wanted);
                return elf_within_limit(wanted).map(Extent::Unknown);
            }
            len => elf_within_limit(len?)?,
        },
        Kind::Ptx => match seen.iter().position(|&byte| byte == 0) {
            None => return more(seen.len() + 1),
            Some(end) => end as u64,
        },
    };
    Ok(Extent::Known(kind, len))
}

fn elf_within_limit(len: u64) -> Result<u64, Error> {
    if len > ELF_LIMIT {
        return Err(Error::TooLong {
            what: "machine code",
            len,
            limit: ELF_LIMIT,
        });
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows exactly what is asked for, as a caller with a pointer must.
    fn measure(image: &[u8]) -> Result<(Kind, u64), Error> {
        let mut seen = 0;
        loop {
            match extent(&image[..seen])? {
                Extent::Known(kind, len) => return Ok((kind, len)),
                Extent::Unknown(wanted) => {
                    assert!(wanted > seen as u64, "asks for what it has seen");
                    seen = usize::try_from(wanted).expect("small");
                }
            }
        }
    }

    #[test]
    fn a_kind_is_told_from_as_few_bytes_as_can_be() {
        assert_eq!(kind(b""), None);
        assert_eq!(kind(b"."), Some(Kind::Ptx));
        assert_eq!(kind(b"\n"), Some(Kind::Ptx));
        assert_eq!(kind(b"\x7fEL"), None);
        assert_eq!(kind(b"\x7fELF"), Some(Kind::Elf));
        assert_eq!(kind(b"P"), None);
        assert_eq!(kind(b"PT"), Some(Kind::Ptx));
        assert_eq!(kind(b"\x50\xed\x55\xba"), Some(Kind::Container));
        assert_eq!(kind(b"\xb1\x43\x62\x46\x01"), Some(Kind::Wrapper));
    }

    #[test]
    fn text_ends_before_its_nul_and_is_not_read_past_it() {
        assert_eq!(measure(b"\0"), Ok((Kind::Ptx, 0)));
        assert_eq!(measure(b"P\0"), Ok((Kind::Ptx, 1)));
        assert_eq!(measure(b".version 9.0\0"), Ok((Kind::Ptx, 12)));
    }

    #[test]
    fn a_container_is_as_long_as_it_says() {
        let mut image = CONTAINER_MAGIC.to_le_bytes().to_vec();
        image.extend([1, 0, 16, 0, 40, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(measure(&image), Ok((Kind::Container, 56)));
        image[12] = 0xff;
        assert!(matches!(measure(&image), Err(Error::TooLong { .. })));
    }

    #[test]
    fn machine_code_without_sections_is_a_header() {
        let mut image = vec![0; elf::HEADER_BYTES];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(measure(&image), Ok((Kind::Elf, 64)));

        // Section headers at the end of the address space.
        image[40..48].fill(0xff);
        image[58] = 64;
        image[60] = 1;
        assert!(matches!(measure(&image), Err(Error::TooLong { .. })));
    }

    #[test]
    fn the_section_header_that_counts_the_others_belongs_to_the_image() {
        let (at, size) = (elf::HEADER_BYTES, 64);
        let mut image = vec![0; at + size];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[40..48].copy_from_slice(&(at as u64).to_le_bytes());
        image[58] = size as u8;
        assert_eq!(measure(&image), Ok((Kind::Elf, (at + size) as u64)));
    }

    #[test]
    fn machine_code_of_32_bits_is_refused() {
        let mut image = vec![0; elf::HEADER_BYTES];
        image[..6].copy_from_slice(b"\x7fELF\x01\x01");
        assert!(matches!(
            measure(&image),
            Err(Error::BadValue {
                what: "ELF class",
                value: 1
            })
        ));
    }
}
