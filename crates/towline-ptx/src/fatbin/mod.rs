//! Fat binaries: one program for several devices.
//!
//! What a program hands to the driver is a **wrapper**, 24 bytes with a pointer to a **container**; the container is a header and a
//! run of **entries**, each machine code (a cubin) or PTX for one architecture, often compressed. Following the pointer is for the
//! caller, who may touch that memory; see [`crate::image`] for how much of it to take.
//!
//! An entry holds one **program**, or, since CUDA 13, several that are compressed as one. [`choose`] says which program a device
//! uses, [`Entry::alone`] makes a container of just its entry, compressed as it was, for a driver that shall see nothing else.
//!
//! There is no specification. The wrapper is declared in the toolkit's `fatbinary_section.h`; the rest was found by many, among
//! them the projects `cuda-fatbin-decompression` (RWTH Aachen), `jiegec/fatbinary` and gpuocelot, and agrees with what nvcc 13
//! writes. All fields are little-endian:
//!
//! ```text
//! wrapper    0 u32 466243b1   4 u32 version   8 u64 container   16 u64 file name, or (version 2) containers of linked objects
//! container  0 u32 ba55ed50   4 u16 version   6 u16 length of this header   8 u64 length of the entries
//! entry      0 u16 kind       2 u16 version   4 u32 length of this header   8 u64 length of the payload, padding included
//!            16 u32 compressed length   24 u16 minor, u16 major version of PTX or of the ELF format   28 u32 architecture
//!            20 u32 offset of options   32 u32 offset, 36 u32 length of a name   40 u64 flags   56 u64 length before compression
//! options    0 u32 offset, 4 u32 length of compiler options or attributes, all offsets from the start of the entry
//! several    kind 100, whose header goes on: 64 u32 number of programs   68 u32 length of the header from 64 on   72 headers: as an
//!            entry's, but 4 u32 offset in the decompressed payload   8 u64 length there
//! ```
//!
//! Observed on an H200 with driver 580 (CUDA 13.0): containers may lie at any address. Of chained ones only the first is looked at.
//! `cuLibraryLoadData` takes wrappers, `cuModuleLoadData` and `cuModuleLoadFatBinary` refuse them as invalid images. Entries with
//! several programs (written by nvcc 13.5 with `--concat`) are not known to that driver yet.

mod compress;
mod select;

use crate::Error;
use crate::arch::{Arch, Variant};
use crate::bytes::{slice, u16_at, u32_at, u64_at};

pub use compress::{Codec, RAW_LIMIT, WINDOW_LIMIT};
pub use select::{choose, choose_text, select, select_for};

/// First word of a wrapper.
pub const WRAPPER_MAGIC: u32 = 0x466243b1;
/// Bytes of a wrapper.
pub const WRAPPER_BYTES: usize = 24;
/// First word of a container.
pub const CONTAINER_MAGIC: u32 = 0xba55ed50;
/// Bytes of a container that say how long it is.
pub const CONTAINER_HEADER_BYTES: usize = 16;
/// Longest container. The largest that vendors' libraries hold are below a tenth of it.
pub const CONTAINER_LIMIT: u64 = 4 << 30;

/// The part of an entry's header that every version has.
const ENTRY_HEADER_BYTES: u32 = 64;
/// Longest header of an entry. Those that are known have up to 120 bytes, and names behind that.
const ENTRY_HEADER_LIMIT: u32 = 64 << 10;

/// Most programs of an entry: one for every architecture that there is, many times over.
const PROGRAM_LIMIT: u32 = 4096;

const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
const FLAG_SPECIFIC: u64 = 0x10_0000;
const FLAG_FAMILY: u64 = 0x20_0000;

/// What the driver is given a pointer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrapper {
    /// What the last word means.
    pub version: WrapperVersion,
    /// Address of the container.
    pub container: u64,
    /// Version 1: address of a file name, or 0. Version 2: address of addresses of containers, ended by a 0.
    pub extra: u64,
}

/// Version of a wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrapperVersion {
    /// One container.
    Single,
    /// A container of linked code, and the containers of the objects that it was linked from: when no linked code fits the device,
    /// the driver links the PTX of those.
    Linked,
}

impl Wrapper {
    /// Reads a wrapper.
    pub fn decode(bytes: &[u8; WRAPPER_BYTES]) -> Result<Self, Error> {
        let magic = u32_at(bytes, 0, "wrapper")?;
        if magic != WRAPPER_MAGIC {
            return Err(Error::BadMagic {
                what: "wrapper",
                found: magic,
            });
        }
        let version = match u32_at(bytes, 4, "wrapper")? {
            1 => WrapperVersion::Single,
            2 => WrapperVersion::Linked,
            other => {
                return Err(Error::BadValue {
                    what: "version of a wrapper",
                    value: other.into(),
                });
            }
        };
        Ok(Self {
            version,
            container: u64_at(bytes, 8, "wrapper")?,
            extra: u64_at(bytes, 16, "wrapper")?,
        })
    }
}

/// Bytes of the container that starts with `header`, the header included.
pub fn container_len(header: &[u8; CONTAINER_HEADER_BYTES]) -> Result<u64, Error> {
    let magic = u32_at(header, 0, "container")?;
    if magic != CONTAINER_MAGIC {
        return Err(Error::BadMagic {
            what: "container",
            found: magic,
        });
    }
    let header_len = u16_at(header, 6, "container")?;
    if usize::from(header_len) < CONTAINER_HEADER_BYTES {
        return Err(Error::BadValue {
            what: "header length of a container",
            value: header_len.into(),
        });
    }
    let entries_len = u64_at(header, 8, "container")?;
    match entries_len.checked_add(header_len.into()) {
        Some(len) if len <= CONTAINER_LIMIT => Ok(len),
        _ => Err(Error::TooLong {
            what: "container",
            len: entries_len,
            limit: CONTAINER_LIMIT,
        }),
    }
}

/// A header and a run of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container<'a> {
    bytes: &'a [u8],
    header_len: u16,
}

impl<'a> Container<'a> {
    /// The container that `bytes` start with.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let header = slice(bytes, 0, CONTAINER_HEADER_BYTES as u64, "container")?;
        let header = header.try_into().expect("the slice has that length");
        let len = container_len(header)?;
        Ok(Self {
            bytes: slice(bytes, 0, len, "container")?,
            header_len: u16_at(header, 6, "container")?,
        })
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The programs of all its entries.
    pub fn programs(&self) -> Result<Vec<Program<'a>>, Error> {
        let mut programs = Vec::new();
        for entry in self.entries() {
            programs.append(&mut entry?.programs()?);
        }
        Ok(programs)
    }

    /// Its entries. Ends after the first that is broken.
    pub fn entries(&self) -> Entries<'a> {
        Entries {
            bytes: self.bytes,
            at: u64::from(self.header_len),
        }
    }
}

/// Containers that follow each other without a gap, as in the section `.nv_fatbin` of a linked program. Ends after the first that is
/// broken.
///
/// Only for bytes whose end is known: behind the one that a wrapper points to lies whatever the linker put there.
pub fn containers(bytes: &[u8]) -> impl Iterator<Item = Result<Container<'_>, Error>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = Container::parse(rest);
        rest = match &next {
            Ok(container) => &rest[container.bytes.len()..],
            Err(_) => &[],
        };
        Some(next)
    })
}

/// The entries of a container.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.bytes.len() as u64;
        if self.at >= end {
            return None;
        }
        let entry = Entry::parse(self.bytes, self.at);
        self.at = match &entry {
            Ok(entry) => self.at + entry.bytes.len() as u64,
            Err(_) => end,
        };
        Some(entry)
    }
}

/// What an entry or a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// PTX text.
    Ptx,
    /// Machine code: a cubin.
    Elf,
    /// Several programs, compressed as one.
    Several,
    /// Something else (intermediate code for the linker, for example), by its number.
    Other(u16),
}

impl EntryKind {
    fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Ptx,
            2 => Self::Elf,
            0x100 => Self::Several,
            other => Self::Other(other),
        }
    }
}

/// A header and a payload: one program, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it holds.
    pub kind: EntryKind,
    /// How the payload is compressed.
    pub codec: Option<Codec>,
    compressed_len: u32,
    raw_len: u64,
    header_len: u32,
    bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    fn parse(container: &'a [u8], at: u64) -> Result<Self, Error> {
        let header = slice(container, at, ENTRY_HEADER_BYTES.into(), "entry")?;
        let header_len = u32_at(header, 4, "entry")?;
        if !(ENTRY_HEADER_BYTES..=ENTRY_HEADER_LIMIT).contains(&header_len) {
            return Err(Error::BadValue {
                what: "header length of an entry",
                value: header_len.into(),
            });
        }
        let payload_len = u64_at(header, 8, "entry")?;
        let len = payload_len
            .checked_add(header_len.into())
            .ok_or(Error::TooLong {
                what: "entry",
                len: payload_len,
                limit: CONTAINER_LIMIT,
            })?;
        let flags = u64_at(header, 40, "entry")?;
        let codec = match (flags & FLAG_LZ4 != 0, flags & FLAG_ZSTD != 0) {
            (false, false) => None,
            (true, false) => Some(Codec::Lz4),
            (false, true) => Some(Codec::Zstd),
            (true, true) => {
                return Err(Error::BadValue {
                    what: "compression of an entry",
                    value: flags,
                });
            }
        };
        Ok(Self {
            kind: EntryKind::from_number(u16_at(header, 0, "entry")?),
            codec,
            compressed_len: u32_at(header, 16, "entry")?,
            raw_len: u64_at(header, 56, "entry")?,
            header_len,
            bytes: slice(container, at, len, "entry")?,
        })
    }

    /// Header and payload as they lie in the container.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn header(&self) -> &'a [u8] {
        let (header, _) = self.bytes.split_at(self.header_len as usize);
        header
    }

    /// The payload as it is stored, with padding at its end.
    pub fn payload(&self) -> &'a [u8] {
        let (_, payload) = self.bytes.split_at(self.header_len as usize);
        payload
    }

    /// The payload, decompressed; what was not compressed may have padding at its end.
    pub fn decompressed(&self) -> Result<Vec<u8>, Error> {
        let payload = self.payload();
        match self.codec {
            None => Ok(payload.to_vec()),
            Some(codec) => {
                let len = self.compressed_len.into();
                compress::decompress(codec, slice(payload, 0, len, "payload")?, self.raw_len)
            }
        }
    }

    /// The programs that it holds.
    pub fn programs(&self) -> Result<Vec<Program<'a>>, Error> {
        let header = self.header();
        if self.kind != EntryKind::Several {
            return Ok(vec![Program::parse(*self, header, None)?]);
        }
        let what = "header of several programs";
        let count = u32_at(header, 64, what)?;
        if count > PROGRAM_LIMIT {
            return Err(Error::TooLong {
                what: "list of programs",
                len: count.into(),
                limit: PROGRAM_LIMIT.into(),
            });
        }
        let table = slice(header, 64, u32_at(header, 68, what)?.into(), what)?;
        let mut rest = table.get(8..).unwrap_or_default();
        let mut programs = Vec::new();
        for _ in 0..count {
            let len = program_header_len(rest)?;
            let header = slice(rest, 0, len, what)?;
            let place = (u32_at(header, 4, what)?.into(), u64_at(header, 8, what)?);
            programs.push(Program::parse(*self, header, Some(place))?);
            (_, rest) = rest.split_at(header.len());
        }
        Ok(programs)
    }

    /// The header of a container in which this is the only entry: followed by [`Entry::bytes`] it is that container.
    pub fn header_alone(&self) -> [u8; CONTAINER_HEADER_BYTES] {
        header_of(self.bytes.len())
    }

    /// A container in which this is the only entry, compressed as it is.
    pub fn alone(&self) -> Vec<u8> {
        [&self.header_alone(), self.bytes].concat()
    }
}

/// The header of a container whose entries are so long.
fn header_of(len: usize) -> [u8; CONTAINER_HEADER_BYTES] {
    let mut header = [0; CONTAINER_HEADER_BYTES];
    header[..4].copy_from_slice(&CONTAINER_MAGIC.to_le_bytes());
    header[4..6].copy_from_slice(&1_u16.to_le_bytes());
    header[6..8].copy_from_slice(&(CONTAINER_HEADER_BYTES as u16).to_le_bytes());
    header[8..].copy_from_slice(&(len as u64).to_le_bytes());
    header
}

/// How long the header is that starts with `bytes`, in a list of programs: it ends behind its name and its options, each of which is
/// followed by a NUL, at the next multiple of 8.
fn program_header_len(bytes: &[u8]) -> Result<u64, Error> {
    let what = "header of a program";
    let end = |at: u32, len: u32| match (at, len) {
        (0, 0) => 0,
        (at, len) => u64::from(at) + u64::from(len) + 1,
    };
    let name = end(u32_at(bytes, 32, what)?, u32_at(bytes, 36, what)?);
    let options = match u32_at(bytes, 20, what)? {
        0 => 0,
        at => {
            let field = slice(bytes, at.into(), 8, what)?;
            end(u32_at(field, 0, what)?, u32_at(field, 4, what)?)
        }
    };
    let len = u64::from(ENTRY_HEADER_BYTES).max(name).max(options);
    Ok(len.next_multiple_of(8))
}

/// A program for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    /// What it is.
    pub kind: EntryKind,
    /// What it is for.
    pub arch: Arch,
    /// Version of PTX or of the ELF format: major, minor.
    pub version: (u16, u16),
    /// All flags, also those without a meaning here.
    pub flags: u64,
    /// The entry that holds it.
    pub entry: Entry<'a>,
    /// Where it lies in the decompressed payload, if there are others.
    place: Option<(u64, u64)>,
}

impl<'a> Program<'a> {
    fn parse(entry: Entry<'a>, header: &[u8], place: Option<(u64, u64)>) -> Result<Self, Error> {
        let what = "header of a program";
        let flags = u64_at(header, 40, what)?;
        Ok(Self {
            kind: EntryKind::from_number(u16_at(header, 0, what)?),
            arch: Arch {
                number: u32_at(header, 28, what)?,
                variant: if flags & FLAG_SPECIFIC != 0 {
                    Variant::Specific
                } else if flags & FLAG_FAMILY != 0 {
                    Variant::Family
                } else {
                    Variant::Portable
                },
            },
            version: (u16_at(header, 26, what)?, u16_at(header, 24, what)?),
            flags,
            entry,
            place,
        })
    }

    /// The program itself, decompressed: a cubin, which may be followed by padding, or PTX, up to its NUL.
    pub fn image(&self) -> Result<Vec<u8>, Error> {
        let mut image = self.entry.decompressed()?;
        if let Some((at, len)) = self.place {
            image = slice(&image, at, len, "program")?.to_vec();
        }
        if self.kind == EntryKind::Ptx {
            let end = image.iter().position(|&byte| byte == 0);
            image.truncate(end.unwrap_or(image.len()));
        }
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry as compilers write it.
    pub(super) fn entry(kind: u16, number: u32, flags: u64, payload: &[u8], raw: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let padded = payload.len().next_multiple_of(8);
        out.extend(kind.to_le_bytes());
        out.extend(0x101_u16.to_le_bytes());
        out.extend(64_u32.to_le_bytes());
        out.extend((padded as u64).to_le_bytes());
        let compressed = if flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
            0
        } else {
            payload.len()
        };
        out.extend((compressed as u64).to_le_bytes());
        out.extend([5, 0, 9, 0]);
        out.extend(number.to_le_bytes());
        out.extend(0_u64.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(0_u64.to_le_bytes());
        out.extend(raw.to_le_bytes());
        out.extend(payload);
        out.resize(64 + padded, 0);
        out
    }

    pub(super) fn container(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut out = CONTAINER_MAGIC.to_le_bytes().to_vec();
        out.extend([1, 0, 16, 0]);
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn a_wrapper_has_two_versions() {
        let mut bytes = [0; WRAPPER_BYTES];
        bytes[..4].copy_from_slice(&WRAPPER_MAGIC.to_le_bytes());
        bytes[4] = 1;
        bytes[8] = 0x40;
        let wrapper = Wrapper::decode(&bytes).expect("a wrapper");
        assert_eq!(wrapper.version, WrapperVersion::Single);
        assert_eq!((wrapper.container, wrapper.extra), (0x40, 0));

        bytes[4] = 2;
        bytes[16] = 0x80;
        let wrapper = Wrapper::decode(&bytes).expect("a wrapper");
        assert_eq!(wrapper.version, WrapperVersion::Linked);
        assert_eq!(wrapper.extra, 0x80);

        bytes[4] = 3;
        assert!(matches!(
            Wrapper::decode(&bytes),
            Err(Error::BadValue { value: 3, .. })
        ));
    }

    #[test]
    fn entries_say_what_they_are() {
        let bytes = container(&[
            entry(2, 80, 0x11, b"machine code", 0),
            entry(1, 90, 0x11 | FLAG_SPECIFIC, b"text\0", 0),
            entry(2, 100, 0x11 | FLAG_FAMILY, b"", 0),
            entry(8, 75, 0, b"other", 0),
        ]);
        let container = Container::parse(&bytes).expect("a container");
        let programs = container.programs().expect("four programs");
        let seen: Vec<_> = programs
            .iter()
            .map(|program| (program.kind, program.arch.to_string()))
            .collect();
        assert_eq!(
            seen,
            [
                (EntryKind::Elf, "80".into()),
                (EntryKind::Ptx, "90a".into()),
                (EntryKind::Elf, "100f".into()),
                (EntryKind::Other(8), "75".into()),
            ]
        );
        assert_eq!(programs[0].image().expect("raw"), b"machine code\0\0\0\0");
        assert_eq!(programs[1].image().expect("raw"), b"text");
        assert_eq!(programs[1].version, (9, 5));
    }

    #[test]
    fn an_entry_alone_is_a_container() {
        let bytes = container(&[entry(2, 80, 0, b"one", 0), entry(2, 90, 0, b"two", 0)]);
        let parsed = Container::parse(&bytes).expect("a container");
        let last = parsed.entries().nth(1).expect("two").expect("whole");
        let alone = last.alone();
        assert_eq!(alone, container(&[entry(2, 90, 0, b"two", 0)]));
    }

    #[test]
    fn chained_containers_are_all_found() {
        let first = container(&[entry(2, 80, 0, b"one", 0)]);
        let second = container(&[]);
        let bytes = [first.as_slice(), &second, &first].concat();
        let found: Result<Vec<_>, _> = containers(&bytes).collect();
        let lengths: Vec<_> = found
            .expect("three")
            .iter()
            .map(|container| container.bytes().len())
            .collect();
        assert_eq!(lengths, [first.len(), second.len(), first.len()]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let whole = container(&[entry(2, 80, 0, b"one", 0)]);
        for len in 0..whole.len() {
            assert!(Container::parse(&whole[..len]).is_err());
        }

        let mut wild = whole.clone();
        wild[8..16].fill(0xff);
        let refused = Container::parse(&wild);
        assert!(matches!(refused, Err(Error::TooLong { .. })), "{refused:?}");

        // An entry longer than its container.
        let mut wild = whole.clone();
        wild[16 + 8] = 0xff;
        let mut entries = Container::parse(&wild).expect("a container").entries();
        assert!(matches!(entries.next(), Some(Err(Error::Truncated { .. }))));
        assert_eq!(entries.next(), None);

        // A header that ends inside itself.
        let mut wild = whole;
        wild[16 + 4] = 63;
        let mut entries = Container::parse(&wild).expect("a container").entries();
        assert!(matches!(
            entries.next(),
            Some(Err(Error::BadValue { value: 63, .. }))
        ));
    }
}
