//! Where the parameters of an image's kernels lie: what whoever packs the arguments of a launch must know. And which variables are the
//! host's as well.
//!
//! Of a cubin this reads the sections `.nv.info.<kernel>`, of PTX the heads of its functions. Everything else in an image may be broken
//! or unknown.

use std::collections::{HashMap, HashSet};

use crate::ComputeCapability;
use crate::Error;
use crate::bytes::slice;
use crate::cubin::{self, info};
use crate::elf::{self, Elf};
use crate::fatbin::{self, Container, EntryKind, Program};
use crate::image::{self, Kind};
use crate::ptx::{self, layout};

/// A parameter's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Where it starts.
    pub offset: u32,
    /// How long it is.
    pub len: u32,
}

/// The parameters of each kernel, by its name, in order; `None` for a kernel whose parameters cannot be read.
pub type Kernels = HashMap<Vec<u8>, Option<Vec<Place>>>;

/// The kernels of a cubin. Functions that are no kernels may be among them.
pub fn of_cubin(bytes: &[u8]) -> Result<Kernels, Error> {
    let elf = Elf::parse(bytes)?;
    cubin::check_machine(&elf)?;
    let (mut kernels, mut named) = (Kernels::new(), 0_usize);
    for section in elf.sections() {
        let Some(kernel) = elf.name(section).strip_prefix(b".nv.info.") else {
            continue;
        };
        // Names in one table may overlap, and together be far longer than it.
        named = named.saturating_add(kernel.len());
        if named > bytes.len() {
            return Err(Error::TooLong {
                what: "names of kernels",
                len: named as u64,
                limit: bytes.len() as u64,
            });
        }
        let places = elf.contents(section).ok().and_then(places_in);
        kernels.insert(kernel.to_vec(), places);
    }
    Ok(kernels)
}

/// The parameters in a section of attributes.
fn places_in(section: &[u8]) -> Option<Vec<Place>> {
    let mut parameters = Vec::new();
    for attribute in info::attributes(section) {
        if let info::Attribute::Parameter(parameter) = attribute.ok()? {
            parameters.push(parameter);
        }
    }
    parameters.sort_by_key(|parameter| parameter.ordinal);
    let ordinals = parameters
        .iter()
        .map(|parameter| usize::from(parameter.ordinal));
    let complete = ordinals.eq(0..parameters.len());
    let places = parameters.iter().map(|parameter| Place {
        offset: parameter.offset,
        len: parameter.len,
    });
    complete.then(|| places.collect())
}

/// The kernels of PTX, up to its NUL.
pub fn of_text(bytes: &[u8]) -> Result<Kernels, Error> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = ptx::text(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default())?;
    let mut kernels = Kernels::new();
    for module in ptx::heads(text)? {
        let named = module.kernels().map(|kernel| {
            let places = layout::parameters(kernel).and_then(|placements| {
                let placements = placements.iter();
                placements.map(|one| place(one.offset, one.len)).collect()
            });
            (kernel.name.as_bytes().to_vec(), places)
        });
        kernels.extend(named);
    }
    Ok(kernels)
}

fn place(offset: u64, len: u64) -> Option<Place> {
    Some(Place {
        offset: offset.try_into().ok()?,
        len: len.try_into().ok()?,
    })
}

/// An image as a device loads it.
#[derive(Debug, Clone, Copy)]
pub enum Code<'a> {
    /// Machine code.
    Cubin(&'a [u8]),
    /// PTX, up to its NUL.
    Text(&'a [u8]),
}

impl Code<'_> {
    /// Its kernels.
    pub fn kernels(&self) -> Result<Kernels, Error> {
        match self {
            Self::Cubin(bytes) => of_cubin(bytes),
            Self::Text(bytes) => of_text(bytes),
        }
    }

    /// The names of its variables that the host sees as well: `__managed__`.
    pub fn managed(&self) -> Result<HashSet<Vec<u8>>, Error> {
        match self {
            Self::Cubin(bytes) => cubin::managed(&Elf::parse(bytes)?),
            Self::Text(bytes) => managed_of_text(bytes),
        }
    }
}

impl Code<'_> {
    /// The names of all its variables, and whether the first contents of each may have addresses in them, which loading puts there.
    pub fn variables(&self) -> Result<Vec<(Vec<u8>, bool)>, Error> {
        match self {
            Self::Cubin(bytes) => cubin::variables(&Elf::parse(bytes)?),
            Self::Text(bytes) => variables_of_text(bytes),
        }
    }

    /// Whether its kernels allocate from the device's heap.
    pub fn uses_heap(&self) -> Result<bool, Error> {
        const NAME: &[u8] = b"malloc";
        match self {
            Self::Cubin(bytes) => cubin::uses_heap(&Elf::parse(bytes)?),
            Self::Text(bytes) => Ok(bytes.windows(NAME.len()).any(|part| part == NAME)),
        }
    }
}

fn variables_of_text(bytes: &[u8]) -> Result<Vec<(Vec<u8>, bool)>, Error> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = ptx::text(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default())?;
    let modules = ptx::heads(text)?;
    let variables = modules.iter().flat_map(|module| module.variables());
    Ok(variables
        .map(|variable| {
            let first = variable.initializer.as_ref();
            let has_addresses = first.is_some_and(ptx::ast::Expression::has_names);
            (variable.name.as_bytes().to_vec(), has_addresses)
        })
        .collect())
}

fn managed_of_text(bytes: &[u8]) -> Result<HashSet<Vec<u8>>, Error> {
    const MARK: &[u8] = b".managed";
    // Most have none.
    if !bytes.windows(MARK.len()).any(|part| part == MARK) {
        return Ok(HashSet::new());
    }
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = ptx::text(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default())?;
    let modules = ptx::heads(text)?;
    let variables = modules.iter().flat_map(|module| module.variables());
    let managed = variables.filter(|variable| variable.is_managed());
    Ok(managed
        .map(|variable| variable.name.as_bytes().to_vec())
        .collect())
}

/// The kernels of a program of a container; `None` for one that is neither machine code nor PTX.
pub fn of_program(program: &Program<'_>) -> Result<Option<Kernels>, Error> {
    read_program(program, |code| code.kernels())
}

fn read_program<R>(
    program: &Program<'_>,
    read: impl FnOnce(Code<'_>) -> Result<R, Error>,
) -> Result<Option<R>, Error> {
    match program.kind {
        EntryKind::Elf => read(Code::Cubin(&program.image()?)).map(Some),
        EntryKind::Ptx => read(Code::Text(&program.image()?)).map(Some),
        _ => Ok(None),
    }
}

/// The kernels of an image as `device` loads it: of the program that it uses, or, where it has no machine code, of the PTX that it uses.
/// `None` where the image holds neither for the device.
pub fn of_image(
    bytes: &[u8],
    device: ComputeCapability,
    machine_code: bool,
) -> Result<Option<Kernels>, Error> {
    read_image(bytes, device, machine_code, |code| code.kernels())
}

/// Reads what `device` loads of an image; `None` where it holds neither machine code nor PTX for the device.
pub fn read_image<R>(
    bytes: &[u8],
    device: ComputeCapability,
    machine_code: bool,
    read: impl FnOnce(Code<'_>) -> Result<R, Error>,
) -> Result<Option<R>, Error> {
    match image::kind(bytes) {
        Some(Kind::Container) => {
            let programs = Container::parse(bytes)?.programs()?;
            let chosen = match machine_code {
                true => fatbin::choose(programs, device),
                false => fatbin::choose_text(programs, device),
            };
            chosen.map_or(Ok(None), |program| read_program(&program, read))
        }
        Some(Kind::Elf) => read(Code::Cubin(bytes)).map(Some),
        Some(Kind::Ptx) => read(Code::Text(bytes)).map(Some),
        Some(Kind::Wrapper) | None => Ok(None),
    }
}

/// The kernels of what goes into a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inputs {
    kernels: HashMap<Vec<u8>, Vec<Option<Vec<Place>>>>,
    /// There was something that is neither machine code nor PTX: intermediate code, for example.
    opaque: bool,
}

/// Longest header of an archive's member, and what archives begin with.
const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
const MEMBER_HEADER: u64 = 60;

impl Inputs {
    /// Adds device code, a container of it, an object file or an archive of such.
    pub fn add(&mut self, bytes: &[u8]) {
        let read = match bytes.strip_prefix(ARCHIVE_MAGIC) {
            Some(members) => self.add_archive(members),
            None => self.add_file(bytes),
        };
        self.opaque |= read.is_err();
    }

    fn add_file(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match image::kind(bytes) {
            Some(Kind::Container) => self.add_container(&Container::parse(bytes)?),
            Some(Kind::Elf) => self.add_elf(bytes),
            _ => {
                self.note(of_text(bytes)?);
                Ok(())
            }
        }
    }

    fn add_container(&mut self, container: &Container<'_>) -> Result<(), Error> {
        for program in container.programs()? {
            match of_program(&program)? {
                Some(kernels) => self.note(kernels),
                None => self.opaque = true,
            }
        }
        Ok(())
    }

    /// Machine code, or an object file of the host with device code in it.
    fn add_elf(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let elf = Elf::parse(bytes)?;
        if cubin::check_machine(&elf).is_ok() {
            self.note(of_cubin(bytes)?);
            return Ok(());
        }
        for section in elf.sections() {
            if matches!(elf.name(section), b".nv_fatbin" | b"__nv_relfatbin") {
                for container in fatbin::containers(elf.contents(section)?) {
                    self.add_container(&container?)?;
                }
            }
        }
        Ok(())
    }

    /// Members of the common archive format: a header of text, then the file, at even places.
    fn add_archive(&mut self, members: &[u8]) -> Result<(), Error> {
        let what = "member of an archive";
        let mut rest = members;
        while !rest.is_empty() {
            let header = slice(rest, 0, MEMBER_HEADER, what)?;
            let size = header.get(48..58).unwrap_or_default().trim_ascii();
            let size = std::str::from_utf8(size)
                .ok()
                .and_then(|size| size.parse::<u32>().ok());
            let size = size.ok_or(Error::BadValue {
                what: "size of a member of an archive",
                value: members.len().saturating_sub(rest.len()) as u64,
            })?;
            let file = slice(rest, MEMBER_HEADER, size.into(), what)?;
            // Tables of symbols and of long names are no files.
            if file.starts_with(&elf::MAGIC) {
                self.add_file(file)?;
            }
            let next = MEMBER_HEADER as usize + file.len().next_multiple_of(2);
            rest = rest.get(next..).unwrap_or_default();
        }
        Ok(())
    }

    fn note(&mut self, kernels: Kernels) {
        for (name, places) in kernels {
            let known = self.kernels.entry(name).or_default();
            if !known.contains(&places) {
                known.push(places);
            }
        }
    }

    /// The name of a kernel in `linked` whose parameters lie elsewhere than in any input that has the kernel. A kernel that no input has
    /// is the linker's.
    pub fn contradicted<'k>(&self, linked: &'k Kernels) -> Option<&'k [u8]> {
        let contradicted = linked.iter().find(|(name, places)| {
            let known = self.kernels.get(*name);
            known.is_some_and(|known| !known.contains(&None) && !known.contains(places))
        });
        contradicted.map(|(name, _)| name.as_slice())
    }

    /// Whether all that was added could be read.
    pub fn is_readable(&self) -> bool {
        !self.opaque
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(list: &[(u32, u32)]) -> Option<Vec<Place>> {
        let places = list.iter().map(|&(offset, len)| Place { offset, len });
        Some(places.collect())
    }

    const TEXT: &[u8] = b".version 8.0 .target sm_75 .entry k(.param .u8 a, .param .u64 b) { .reg .b32 %r; { ret; } } \
        .entry none() { ret; }\0 anything";

    fn archive(files: &[&[u8]]) -> Vec<u8> {
        let mut out = ARCHIVE_MAGIC.to_vec();
        for file in files {
            out.extend(format!("{:48}{:<10}`\n", "name/", file.len()).bytes());
            out.extend(*file);
            out.resize(out.len().next_multiple_of(2), b'\n');
        }
        out
    }

    #[test]
    fn text_tells_places_up_to_its_nul_and_bodies_are_passed_over() {
        let kernels = of_text(TEXT).expect("PTX");
        let expected = [("k", places(&[(0, 1), (8, 8)])), ("none", places(&[]))];
        let expected = expected.map(|(name, places)| (name.as_bytes().to_vec(), places));
        assert_eq!(kernels, Kernels::from(expected));
        let managed = Code::Text(b".version 8.0\n.target sm_75\n.address_size 64\n.global .attribute(.managed) .align 4 .u32 both = 10;\n\
            .global .u32 own;\n.entry k() { ret; }\n\0")
        .managed();
        assert_eq!(managed.expect("PTX"), HashSet::from([b"both".to_vec()]));
    }

    #[test]
    fn a_missing_ordinal_leaves_a_kernel_unread() {
        let parameter = |ordinal, offset| {
            [
                4, 0x45, 12, 0, 0, 0, 0, 0, ordinal, 0, offset, 0, 8, 0, 0, 0,
            ]
        };
        let both = [parameter(1, 8), parameter(0, 0)].concat();
        assert_eq!(places_in(&both), places(&[(0, 8), (8, 8)]));
        assert_eq!(places_in(&parameter(1, 8)), None);
        assert_eq!(places_in(&both[..20]), None);
    }

    #[test]
    fn linked_kernels_are_held_against_every_input() {
        let mut inputs = Inputs::default();
        inputs.add(TEXT);
        assert!(inputs.is_readable());
        let linked = |list: &[(u32, u32)]| {
            Kernels::from([
                (b"k".to_vec(), places(list)),
                (b"own".to_vec(), places(&[(0, 4)])),
            ])
        };
        assert_eq!(inputs.contradicted(&linked(&[(0, 1), (8, 8)])), None);
        let larger = linked(&[(0, 1), (8, 4100)]);
        assert_eq!(inputs.contradicted(&larger), Some(b"k".as_slice()));
    }

    #[test]
    fn intermediate_code_and_broken_archives_are_opaque() {
        for input in [b"BC\xc0\xde".to_vec(), archive(&[])[..4].to_vec(), {
            let mut cut = archive(&[b"\x7fELF"]);
            cut.truncate(40);
            cut
        }] {
            let mut inputs = Inputs::default();
            inputs.add(&input);
            assert!(!inputs.is_readable(), "{input:?}");
        }
        let mut inputs = Inputs::default();
        inputs.add(&archive(&[b"table of symbols"]));
        assert!(inputs.is_readable());
    }
}
