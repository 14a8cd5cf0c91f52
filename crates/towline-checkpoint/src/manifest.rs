//! The manifest: all contents of a checkpoint, and the digests of their chunks. It is TOML, as the client's settings are, whose parser is there
//! already: a program loads it with the library.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use toml::Table;

use crate::fields::{Fields, quoted};

/// Bytes of a chunk; the last one of a part may have fewer.
pub const CHUNK_BYTES: usize = 4 << 20;
/// Most bytes of a part: so many are in the memory of whoever writes or reads one.
pub const PART_BYTES: usize = 16 << 20;
/// The format's version.
const VERSION: u64 = 1;
/// Most bytes of a manifest: one of four terabytes of device memory has fewer.
pub(crate) const MANIFEST_BYTES: usize = 256 << 20;

/// SHA-256 of something.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Digest([u8; 32]);

impl Digest {
    /// That of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// One that is known already, by its 32 bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut digest = [0; 32];
        digest.copy_from_slice(bytes);
        Self(digest)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let digit = |at: usize| match *digits.get(at)? {
            digit @ b'0'..=b'9' => Some(digit - b'0'),
            digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = digit(2 * index)? << 4 | digit(2 * index + 1)?;
        }
        (digits.len() == 64).then_some(Self(bytes))
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

/// See the module's text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Manifest {
    /// The program, for people.
    pub program: String,
    /// The server that its session was with, for people.
    pub server: String,
    /// The devices of the session, for people.
    pub devices: Vec<Device>,
    /// Levels of mipmapped arrays that parts name by numbers of their own.
    pub levels: Vec<Level>,
    /// The contents.
    pub parts: Vec<Part>,
}

/// A device that a session had.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub bytes: u64,
}

/// A level of a mipmapped array.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Level {
    /// The context to ask for it in.
    pub context: u64,
    /// The number that parts name it by.
    pub number: u64,
    /// The array that it is a level of.
    pub array: u64,
    /// The level.
    pub level: u32,
}

/// A part of the contents.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part {
    /// The context that it is of.
    pub context: u64,
    /// The place that it belongs to.
    pub place: Place,
    /// Its bytes, at most [`PART_BYTES`].
    pub size: u64,
    /// The digest of each chunk of it; none for one of zeros, which is not kept.
    pub chunks: Vec<Option<Digest>>,
}

impl Part {
    fn write(&self, text: &mut String) {
        let (context, size) = (self.context, self.size);
        let _ = write!(text, "\n[[part]]\ncontext = {context}\nsize = {size}\n");
        let _ = match &self.place {
            Place::Memory { address } => writeln!(text, "address = {address}"),
            Place::Buffer { buffer, offset } => {
                writeln!(text, "buffer = {buffer}\noffset = {offset}")
            }
            Place::Rows {
                array,
                row,
                slice,
                width,
                rows,
            } => writeln!(
                text,
                "array = {array}\nrow = {row}\nslice = {slice}\nwidth = {width}\nrows = {rows}"
            ),
            Place::Variable {
                code,
                of_module,
                name,
                address,
                offset,
                has_addresses,
            } => writeln!(
                text,
                "code = {code}\nof_module = {of_module}\nvariable = {}\naddress = {address}\noffset = {offset}\nhas_addresses = {has_addresses}",
                quoted(name)
            ),
        };
        text.push_str("chunks = [");
        for chunk in &self.chunks {
            let _ = match chunk {
                Some(digest) => write!(text, "\"{digest}\","),
                None => write!(text, "\"\","),
            };
        }
        text.push_str("]\n");
    }

    fn read(mut fields: Fields) -> Option<Self> {
        let place = if let Some(array) = fields.number("array") {
            Place::Rows {
                array,
                row: fields.number("row")?,
                slice: fields.number("slice")?,
                width: fields.number("width")?,
                rows: fields.number("rows")?,
            }
        } else if let Some(buffer) = fields.number("buffer") {
            Place::Buffer {
                buffer,
                offset: fields.number("offset")?,
            }
        } else if let Some(name) = fields.text("variable") {
            Place::Variable {
                code: fields.number("code")?,
                of_module: fields.truth("of_module")?,
                name,
                address: fields.number("address")?,
                offset: fields.number("offset")?,
                has_addresses: fields.truth("has_addresses")?,
            }
        } else {
            Place::Memory {
                address: fields.number("address")?,
            }
        };
        let chunk = |text: String| match text.as_str() {
            "" => Some(None),
            digest => Digest::parse(digest).map(Some),
        };
        let chunks = fields.texts("chunks")?.into_iter().map(chunk);
        let part = Self {
            context: fields.number("context")?,
            place,
            size: fields.number("size")?,
            chunks: chunks.collect::<Option<_>>()?,
        };
        (fields.are_all() && is_sound(&part)).then_some(part)
    }

    /// Whether all of it is zeros.
    pub fn is_zero(&self) -> bool {
        self.chunks.iter().all(Option::is_none)
    }

    /// Bytes of each chunk.
    pub(crate) fn chunk_sizes(&self) -> impl Iterator<Item = (Option<Digest>, usize)> {
        let size = self.size as usize;
        let starts = (0..size).step_by(CHUNK_BYTES);
        let sizes = starts.map(move |start| CHUNK_BYTES.min(size - start));
        self.chunks.iter().copied().zip(sizes)
    }
}

/// The place of a part of the contents.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// Device memory.
    Memory {
        /// Its first byte.
        address: u64,
    },
    /// A buffer of OpenCL.
    Buffer {
        /// The buffer.
        buffer: u64,
        /// The first byte of this part in it.
        offset: u64,
    },
    /// Rows of a slice of an array or image.
    Rows {
        /// The array, or a level, or the image.
        array: u64,
        /// The first row.
        row: u64,
        /// The slice.
        slice: u64,
        /// Bytes of a row.
        width: u64,
        /// Number of rows.
        rows: u64,
    },
    /// A variable of device code.
    Variable {
        /// The module or library.
        code: u64,
        /// It is a module.
        of_module: bool,
        /// The variable.
        name: String,
        /// Its address when it was written.
        address: u64,
        /// The first byte of this part in it.
        offset: u64,
        /// Its first contents have addresses in them.
        has_addresses: bool,
    },
}

impl Manifest {
    /// One without contents.
    pub fn new(program: String, server: String, devices: Vec<Device>) -> Self {
        Self {
            program,
            server,
            devices,
            ..Self::default()
        }
    }

    /// The text of its file.
    pub(crate) fn encode(&self) -> String {
        let (program, server) = (quoted(&self.program), quoted(&self.server));
        let mut text = format!("version = {VERSION}\nprogram = {program}\nserver = {server}\n");
        for Device { name, bytes } in &self.devices {
            let name = quoted(name);
            let _ = write!(text, "\n[[device]]\nname = {name}\nbytes = {bytes}\n");
        }
        for level in &self.levels {
            let Level {
                context,
                number,
                array,
                level,
            } = level;
            let _ = write!(
                text,
                "\n[[level]]\ncontext = {context}\nnumber = {number}\narray = {array}\nlevel = {level}\n"
            );
        }
        for part in &self.parts {
            part.write(&mut text);
        }
        text
    }

    /// Parses its file; in the error, the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the manifest is no text".to_owned())?;
        let table: Table = text
            .parse()
            .map_err(|error| format!("the manifest is none: {error}"))?;
        let mut fields = Fields::new(table);
        let version = fields.number("version");
        // Of another one nothing else is known.
        if let Some(version) = version.filter(|version| *version != VERSION) {
            return Err(format!(
                "the manifest has version {version}, and this release of towline knows {VERSION}"
            ));
        }
        version
            .and_then(|_| Self::read(fields))
            .ok_or_else(|| "the manifest cannot be true".to_owned())
    }

    fn read(mut fields: Fields) -> Option<Self> {
        let devices = fields.tables("device")?.into_iter().map(|mut fields| {
            let device = Device {
                name: fields.text("name")?,
                bytes: fields.number("bytes")?,
            };
            fields.are_all().then_some(device)
        });
        let devices = devices.collect::<Option<_>>()?;
        let levels = fields.tables("level")?.into_iter().map(|mut fields| {
            let level = Level {
                context: fields.number("context")?,
                number: fields.number("number")?,
                array: fields.number("array")?,
                level: fields.number("level")?.try_into().ok()?,
            };
            fields.are_all().then_some(level)
        });
        let levels = levels.collect::<Option<_>>()?;
        let parts = fields.tables("part")?.into_iter().map(Part::read);
        let manifest = Self {
            devices,
            levels,
            parts: parts.collect::<Option<_>>()?,
            program: fields.text("program")?,
            server: fields.text("server")?,
        };
        fields.are_all().then_some(manifest)
    }

    /// All chunks that are kept, with the bytes of each.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (Digest, usize)> {
        let chunks = self.parts.iter().flat_map(Part::chunk_sizes);
        chunks.filter_map(|(digest, size)| Some((digest?, size)))
    }
}

/// Whether a part's sizes agree with each other.
fn is_sound(part: &Part) -> bool {
    let fits = match &part.place {
        Place::Memory { address } => address.checked_add(part.size).is_some(),
        Place::Rows { width, rows, .. } => width.checked_mul(*rows) == Some(part.size),
        Place::Buffer { offset, .. } | Place::Variable { offset, .. } => {
            offset.checked_add(part.size).is_some()
        }
    };
    let chunks = part.size.div_ceil(CHUNK_BYTES as u64);
    fits && part.size <= PART_BYTES as u64 && part.chunks.len() as u64 == chunks
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn manifest() -> Manifest {
        let mut manifest = Manifest::new(
            "train".into(),
            "tcp://gpu1:7140".into(),
            vec![Device {
                name: "H100 \"SXM\"".into(),
                bytes: 80 << 30,
            }],
        );
        manifest.levels.push(Level {
            context: 1,
            number: 9,
            array: 8,
            level: 2,
        });
        let digest = Some(Digest::of(b"contents"));
        let places = [
            Place::Memory {
                address: 0x7f00_0000,
            },
            Place::Buffer {
                buffer: 7,
                offset: 1 << 24,
            },
            Place::Rows {
                array: 9,
                row: 0,
                slice: 3,
                width: 64,
                rows: 1 << 17,
            },
            Place::Variable {
                code: 5,
                of_module: true,
                name: "rounds".into(),
                address: 0x1000,
                offset: 0,
                has_addresses: false,
            },
        ];
        let parts = places.map(|place| Part {
            context: u64::MAX >> 1,
            place,
            size: 2 * CHUNK_BYTES as u64,
            chunks: vec![digest, None],
        });
        manifest.parts.extend(parts);
        manifest
    }

    #[test]
    fn manifest_comes_back() {
        let encoded = manifest().encode();
        assert_eq!(Manifest::decode(encoded.as_bytes()), Ok(manifest()));
    }

    #[test]
    fn other_versions_are_refused_by_number() {
        let refused = Manifest::decode(b"version = 2\npages = []").unwrap_err();
        assert!(refused.contains("version 2"), "{refused}");
    }

    #[test]
    fn sizes_that_disagree_are_refused() {
        let changed = |change: &dyn Fn(&mut Part)| {
            let mut manifest = manifest();
            manifest.parts.iter_mut().for_each(change);
            Manifest::decode(manifest.encode().as_bytes())
        };
        assert!(changed(&|_| {}).is_ok());
        assert!(changed(&|part| part.size = 1).is_err());
        assert!(changed(&|part| part.size = u64::MAX).is_err());
        assert!(changed(&|part| part.chunks.clear()).is_err());
        assert!(changed(&|part| part.place = Place::Memory { address: u64::MAX }).is_err());
    }

    #[test]
    fn unknown_and_missing_fields_are_refused() {
        let text = manifest().encode();
        for (from, to) in [
            ("program =", "colour = 1\nprogram ="),
            ("row = 0\n", ""),
            ("level = 2", "level = -2"),
            ("of_module = true", "of_module = 1"),
            ("version = 1\n", ""),
        ] {
            let changed = text.replacen(from, to, 1);
            assert!(
                changed != text && Manifest::decode(changed.as_bytes()).is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn digests_are_64_hexadecimal_digits() {
        let digest = Digest::of(b"");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        for text in ["", "00", &"g".repeat(64), &"0".repeat(66), &"é".repeat(32)] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn changed_manifests_are_refused_or_sound(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
        ) {
            let mut bytes = manifest().encode().into_bytes();
            for (at, with) in changes {
                let at = at.index(bytes.len());
                bytes[at] = with;
            }
            if is_cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(decoded) = Manifest::decode(&bytes) {
                let parts = decoded.parts.iter();
                prop_assert!(parts.clone().all(|part| part.size <= PART_BYTES as u64));
                for (_, size) in parts.flat_map(Part::chunk_sizes) {
                    prop_assert!((1..=CHUNK_BYTES).contains(&size));
                }
            }
        }

        #[test]
        fn garbage_is_no_manifest(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Manifest::decode(&bytes).is_err());
        }
    }
}
