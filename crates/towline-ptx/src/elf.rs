//! As much of ELF64 as machine code of GPUs needs: headers, sections, symbols, and how long a file in memory is.
//!
//! System V ABI, "Object Files". Little-endian only: all GPUs and all hosts that drive them are.

use crate::Error;
use crate::bytes::{slice, u8_at, u16_at, u32_at, u64_at};

pub(crate) const MAGIC: [u8; 4] = *b"\x7fELF";
/// Bytes of the file header.
pub(crate) const HEADER_BYTES: usize = 64;
const SECTION_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SYMBOL_BYTES: usize = 24;

/// Longest name, so that tables of names without ends cost no more than their length. Mangled names of templates go to tens of
/// thousands.
const NAME_LIMIT: usize = 128 << 10;

const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_SYMTAB_SHNDX: u32 = 18;
/// Section numbers from here on are no sections, except this one: "see the table of large numbers".
const SHN_LORESERVE: u16 = 0xff00;
const SHN_XINDEX: u16 = 0xffff;
const PN_XNUM: u16 = 0xffff;

/// The file header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) abi_version: u8,
    pub(crate) machine: u16,
    pub(crate) flags: u32,
    segments_at: u64,
    segments: u16,
    sections_at: u64,
    sections: u16,
    names: u16,
}

impl Header {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let bytes = slice(bytes, 0, HEADER_BYTES as u64, "ELF header")?;
        let what = "ELF header";
        if !bytes.starts_with(&MAGIC) {
            return Err(Error::BadMagic {
                what,
                found: u32_at(bytes, 0, what)?,
            });
        }
        let expect = |what, value: u64, wanted: u64| match value == wanted {
            true => Ok(()),
            false => Err(Error::BadValue { what, value }),
        };
        expect("ELF class", u8_at(bytes, 4, what)?.into(), 2)?;
        expect("ELF byte order", u8_at(bytes, 5, what)?.into(), 1)?;
        let segments = u16_at(bytes, 56, what)?;
        if segments != 0 {
            let size = u16_at(bytes, 54, what)?;
            expect("ELF segment header size", size.into(), SEGMENT_BYTES)?;
        }
        let sections_at = u64_at(bytes, 40, what)?;
        if sections_at != 0 {
            let size = u16_at(bytes, 58, what)?;
            expect("ELF section header size", size.into(), SECTION_BYTES)?;
        }
        Ok(Self {
            abi_version: u8_at(bytes, 8, what)?,
            machine: u16_at(bytes, 18, what)?,
            flags: u32_at(bytes, 48, what)?,
            segments_at: u64_at(bytes, 32, what)?,
            segments,
            sections_at,
            sections: u16_at(bytes, 60, what)?,
            names: u16_at(bytes, 62, what)?,
        })
    }
}

/// A section header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    name_at: u32,
    kind: u32,
    pub(crate) info: u32,
    link: u32,
    at: u64,
    pub(crate) len: u64,
}

impl Section {
    fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let what = "ELF section header";
        Ok(Self {
            name_at: u32_at(bytes, 0, what)?,
            kind: u32_at(bytes, 4, what)?,
            at: u64_at(bytes, 24, what)?,
            len: u64_at(bytes, 32, what)?,
            link: u32_at(bytes, 40, what)?,
            info: u32_at(bytes, 44, what)?,
        })
    }

    /// Where its contents end in the file; sections without contents end nowhere.
    fn end(&self) -> u64 {
        match self.kind {
            0 | SHT_NOBITS => 0,
            _ => self.at.saturating_add(self.len),
        }
    }
}

/// A symbol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: u8,
    pub(crate) other: u8,
    /// Number of the section that defines it.
    pub(crate) section: Option<u32>,
    pub(crate) len: u64,
}

/// An ELF file.
#[derive(Debug)]
pub(crate) struct Elf<'a> {
    pub(crate) header: Header,
    bytes: &'a [u8],
    sections: Vec<Section>,
    names: Option<Section>,
}

impl<'a> Elf<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let header = Header::parse(bytes)?;
        let table = section_table(&header, bytes)?;
        let sections: Result<Vec<_>, _> = table
            .as_chunks::<{ SECTION_BYTES as usize }>()
            .0
            .iter()
            .map(|section| Section::parse(section))
            .collect();
        let sections = sections?;
        let names = match header.names {
            SHN_XINDEX => sections.first().map_or(0, |first| first.link as usize),
            index => index.into(),
        };
        let names = sections.get(names).filter(|_| names != 0).copied();
        Ok(Self {
            header,
            bytes,
            sections,
            names,
        })
    }

    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(crate) fn name(&self, section: &Section) -> &'a [u8] {
        self.names
            .map_or(&[], |names| self.string(&names, section.name_at))
    }

    /// What a section holds in the file: nothing if it is one that memory is only set aside for.
    pub(crate) fn contents(&self, section: &Section) -> Result<&'a [u8], Error> {
        match section.kind {
            0 | SHT_NOBITS => Ok(&[]),
            _ => slice(self.bytes, section.at, section.len, "ELF section"),
        }
    }

    /// Every symbol, in the order of the table, so that their numbers are their places.
    pub(crate) fn symbols(&self) -> Result<Vec<Symbol<'a>>, Error> {
        let by_kind = |kind| move |section: &&Section| section.kind == kind;
        let Some(table) = self.sections.iter().find(by_kind(SHT_SYMTAB)) else {
            return Ok(Vec::new());
        };
        let large = self.sections.iter().find(by_kind(SHT_SYMTAB_SHNDX));
        let large = large.map_or(Ok(&[][..]), |large| self.contents(large))?;
        let names = self.sections.get(table.link as usize).copied();
        let what = "ELF symbol";
        let rows = self
            .contents(table)?
            .as_chunks::<SYMBOL_BYTES>()
            .0
            .iter()
            .enumerate();
        rows.map(|(index, row)| {
            let name_at = u32_at(row, 0, what)?;
            let section = match u16_at(row, 6, what)? {
                0 => None,
                SHN_XINDEX => u32_at(large, index * 4, what).ok(),
                reserved if reserved >= SHN_LORESERVE => None,
                index => Some(index.into()),
            };
            Ok(Symbol {
                name: names.map_or(&[], |names| self.string(&names, name_at)),
                kind: u8_at(row, 4, what)? & 0xf,
                other: u8_at(row, 5, what)?,
                section,
                len: u64_at(row, 16, what)?,
            })
        })
        .collect()
    }

    /// A name without its NUL; what is out of the table or does not end has none.
    fn string(&self, table: &Section, at: u32) -> &'a [u8] {
        let strings = self.contents(table).unwrap_or_default();
        let tail = strings.get(at as usize..).unwrap_or_default();
        let (tail, _) = tail.split_at(tail.len().min(NAME_LIMIT));
        let end = tail.iter().position(|&byte| byte == 0);
        tail.get(..end.unwrap_or(0)).unwrap_or_default()
    }
}

/// Where the section headers lie: place and length. Needs what it says it needs, which is never past the first section header.
fn section_span(header: &Header, bytes: &[u8]) -> Result<(u64, u64), Error> {
    if header.sections_at == 0 {
        return Ok((0, 0));
    }
    let count = match header.sections {
        // More than the field holds: the length of section 0 says how many.
        0 => {
            let first = slice(
                bytes,
                header.sections_at,
                SECTION_BYTES,
                "ELF section header",
            )?;
            Section::parse(first)?.len
        }
        count => count.into(),
    };
    match count.checked_mul(SECTION_BYTES) {
        Some(len) => Ok((header.sections_at, len)),
        None => Err(Error::BadValue {
            what: "number of ELF sections",
            value: count,
        }),
    }
}

fn section_table<'a>(header: &Header, bytes: &'a [u8]) -> Result<&'a [u8], Error> {
    let (at, len) = section_span(header, bytes)?;
    slice(bytes, at, len, "ELF section headers")
}

/// How long the file is that starts with `bytes`. [`Error::Truncated`] says how far one must see to know.
pub(crate) fn len(bytes: &[u8]) -> Result<u64, Error> {
    let header = Header::parse(bytes)?;
    let (at, table_len) = section_span(&header, bytes)?;
    let table = slice(bytes, at, table_len, "ELF section headers")?;
    let segments = match header.segments {
        PN_XNUM => table
            .get(..SECTION_BYTES as usize)
            .map(Section::parse)
            .transpose()?
            .map_or(0, |first| first.info.into()),
        count => u64::from(count),
    };
    // Where there are headers, the first is there even if it counts none.
    let headers_len = match at {
        0 => 0,
        _ => table_len.max(SECTION_BYTES),
    };
    let mut end = (HEADER_BYTES as u64).max(at.saturating_add(headers_len));
    if segments != 0 {
        let segments_len = segments.saturating_mul(SEGMENT_BYTES);
        end = end.max(header.segments_at.saturating_add(segments_len));
    }
    for section in table.as_chunks::<{ SECTION_BYTES as usize }>().0 {
        end = end.max(Section::parse(section)?.end());
    }
    Ok(end)
}
