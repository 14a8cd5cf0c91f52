//! Machine code for one architecture: an ELF file, and what it says of its kernels and variables.
//!
//! The format is NVIDIA's own. What is used here is public in LLVM (`llvm/BinaryFormat/ELF.h`: machine, flags), in what
//! `cuobjdump -elf` and `readelf` print, and in CuAssembler's and GVirtuS's tables of attributes; checked against nvcc 13's output
//! for compute capabilities 7.5 to 12.0.
//!
//! Code of a kernel `k` is in section `.text.k`, its attributes in `.nv.info.k` ([`info`]) and, by symbol number, in `.nv.info`; its
//! parameters lie in constant bank 0 (`.nv.constant0.k`), its static shared memory is as long as `.nv.shared.k`.

pub mod info;

use std::collections::{HashMap, HashSet};

use self::info::{Attribute, Parameter};
use crate::Error;
use crate::arch::{Arch, Variant};
use crate::elf::{Elf, Section, Symbol};

/// `EM_CUDA`.
const MACHINE: u16 = 190;
/// From this ELF ABI version on the architecture has moved in the flags.
const ABI_VERSION_2: u8 = 8;
/// `STT_OBJECT`, `STT_FUNC`.
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;
/// Bits of a symbol's `st_other`, as `cuobjdump -elf` names them.
const OTHER_MANAGED: u8 = 0x4;
const OTHER_ENTRY: u8 = 0x10;
/// What code for 9.0 and later sets aside for the system at the start of shared memory, and counts in `.nv.shared.<kernel>`.
const RESERVED_SHARED_BYTES: u64 = 1024;

/// What a cubin says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin<'a> {
    /// What it is for. Flags of newer files do not tell [`Variant::Specific`] from [`Variant::Portable`]; `.nv.compat` does.
    pub arch: Arch,
    /// Its kernels, in the order of the symbol table.
    pub kernels: Vec<Kernel<'a>>,
    /// Its variables that outlive a kernel, in the order of the symbol table.
    pub variables: Vec<Variable<'a>>,
}

/// A kernel. `None` and empty stand for what the file does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel<'a> {
    /// Name as the driver knows it (mangled).
    pub name: &'a [u8],
    /// Its parameters, by ordinal.
    pub parameters: Vec<Parameter>,
    /// Bytes of all parameters.
    pub parameter_bytes: Option<u32>,
    /// Where they start in constant bank 0.
    pub parameters_at: Option<u32>,
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block.
    pub shared_bytes: u64,
    /// Local memory of a thread, in the kernel itself.
    pub frame_bytes: Option<u32>,
    /// Stack that the kernel and all that it calls need; `None` also where recursion makes that unknown.
    pub stack_bytes: Option<u32>,
    /// Bytes of code.
    pub code_bytes: u64,
    /// Barriers in use.
    pub barriers: Option<u32>,
    /// Most registers of a thread that the compiler was told.
    pub register_limit: Option<u32>,
    /// Largest block (`.maxntid`).
    pub max_threads: Option<[u32; 3]>,
    /// The only block (`.reqntid`).
    pub required_threads: Option<[u32; 3]>,
    /// Blocks of a cluster that the kernel was compiled for.
    pub cluster: Option<[u32; 3]>,
}

/// Where a variable lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Global memory: `__device__`.
    Global,
    /// Constant memory: `__constant__`.
    Constant,
    /// Global memory that the host sees as well: `__managed__`.
    Managed,
}

/// A variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable<'a> {
    /// Name as the driver knows it.
    pub name: &'a [u8],
    /// Where it lies.
    pub space: Space,
    /// How long it is.
    pub len: u64,
}

impl<'a> Cubin<'a> {
    /// Reads a cubin.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let elf = Elf::parse(bytes)?;
        check_machine(&elf)?;
        let sections: HashMap<&[u8], &Section> = elf
            .sections()
            .iter()
            .map(|section| (elf.name(section), section))
            .collect();
        let symbols = elf.symbols()?;
        let arch = arch(&elf, &sections)?;
        let mut kernels = Vec::new();
        let mut by_symbol = HashMap::new();
        for (number, symbol) in symbols.iter().enumerate() {
            if symbol.kind == FUNCTION
                && symbol.other & OTHER_ENTRY != 0
                && symbol.section.is_some()
            {
                by_symbol.insert(number as u32, kernels.len());
                kernels.push(kernel(&elf, &sections, symbol, arch)?);
            }
        }
        if let Some(section) = sections.get(b".nv.info".as_slice()) {
            for attribute in info::attributes(elf.contents(section)?) {
                let Some((symbol, fact)) = attribute?.of_symbol() else {
                    continue;
                };
                let kernel = by_symbol
                    .get(&symbol)
                    .and_then(|&index| kernels.get_mut(index));
                if let Some(kernel) = kernel {
                    kernel.note(fact);
                }
            }
        }
        let variables = symbols.iter().filter_map(|symbol| variable(&elf, symbol));
        Ok(Self {
            arch,
            kernels,
            variables: variables.collect(),
        })
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &[u8]) -> Option<&Kernel<'a>> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The variable of this name.
    pub fn variable(&self, name: &[u8]) -> Option<&Variable<'a>> {
        self.variables.iter().find(|variable| variable.name == name)
    }
}

/// Refuses files for other machines.
pub(crate) fn check_machine(elf: &Elf<'_>) -> Result<(), Error> {
    match elf.header.machine {
        MACHINE => Ok(()),
        other => Err(Error::BadValue {
            what: "ELF machine",
            value: other.into(),
        }),
    }
}

type Sections<'s> = HashMap<&'s [u8], &'s Section>;

fn arch(elf: &Elf<'_>, sections: &Sections<'_>) -> Result<Arch, Error> {
    let flags = elf.header.flags;
    // LLVM: EF_CUDA_SM and EF_CUDA_ACCELERATORS_V1, EF_CUDA_SM_MASK and EF_CUDA_ACCELERATORS.
    let (number, mut specific) = if elf.header.abi_version < ABI_VERSION_2 {
        (flags & 0xff, flags & 0x800 != 0)
    } else {
        (flags >> 8 & 0xff, flags & 0x8 != 0)
    };
    if let Some(section) = sections.get(b".nv.compat".as_slice()) {
        specific |= info::is_accelerator_target(elf.contents(section)?);
    }
    Ok(Arch {
        number,
        variant: if specific {
            Variant::Specific
        } else {
            Variant::Portable
        },
    })
}

fn kernel<'a>(
    elf: &Elf<'a>,
    sections: &Sections<'_>,
    symbol: &Symbol<'a>,
    arch: Arch,
) -> Result<Kernel<'a>, Error> {
    let of = |prefix: &str| {
        let name = [prefix.as_bytes(), symbol.name].concat();
        sections.get(name.as_slice()).copied()
    };
    let mut kernel = Kernel {
        name: symbol.name,
        code_bytes: symbol.len,
        shared_bytes: of(".nv.shared.").map_or(0, |section| own_shared(section.len, arch)),
        ..Kernel::default()
    };
    if let Some(section) = of(".nv.info.") {
        for attribute in info::attributes(elf.contents(section)?) {
            kernel.note(attribute?);
        }
    }
    kernel.parameters.sort_by_key(|parameter| parameter.ordinal);
    for (ordinal, parameter) in kernel.parameters.iter().enumerate() {
        if usize::from(parameter.ordinal) != ordinal {
            return Err(Error::BadValue {
                what: "ordinal of a parameter",
                value: parameter.ordinal.into(),
            });
        }
    }
    Ok(kernel)
}

/// Shared memory without what is set aside for the system.
fn own_shared(len: u64, arch: Arch) -> u64 {
    let own = len.checked_sub(RESERVED_SHARED_BYTES);
    own.filter(|_| arch.number >= 90).unwrap_or(len)
}

impl Kernel<'_> {
    fn note(&mut self, attribute: Attribute<'_>) {
        match attribute {
            Attribute::Parameter(parameter) => self.parameters.push(parameter),
            Attribute::ParameterBytes(bytes) => self.parameter_bytes = Some(bytes),
            Attribute::ParametersAt(at) => self.parameters_at = Some(at),
            Attribute::Registers(count) => self.registers = Some(count),
            Attribute::FrameBytes(bytes) => self.frame_bytes = Some(bytes),
            Attribute::StackBytes(bytes) => self.stack_bytes = bytes,
            Attribute::Barriers(count) => self.barriers = Some(count),
            Attribute::RegisterLimit(count) => self.register_limit = Some(count),
            Attribute::MaxThreads(threads) => self.max_threads = Some(threads),
            Attribute::RequiredThreads(threads) => self.required_threads = Some(threads),
            Attribute::Cluster(blocks) => self.cluster = Some(blocks),
            _ => {}
        }
    }
}

/// The names of the variables that the host sees as well.
pub(crate) fn managed(elf: &Elf<'_>) -> Result<HashSet<Vec<u8>>, Error> {
    let symbols = elf.symbols()?;
    let variables = symbols.iter().filter_map(|symbol| variable(elf, symbol));
    let managed = variables.filter(|variable| variable.space == Space::Managed);
    Ok(managed.map(|variable| variable.name.to_vec()).collect())
}

/// The names of all variables, and whether the first contents of those around each have addresses in them, which loading puts there.
pub(crate) fn variables(elf: &Elf<'_>) -> Result<Vec<(Vec<u8>, bool)>, Error> {
    let is_relocated = |space: Space| {
        let of: &[u8] = match space {
            Space::Constant => b".nv.constant3",
            Space::Global | Space::Managed => b".nv.global.init",
        };
        let mut sections = elf.sections().iter();
        sections.any(|section| {
            let name = elf.name(section);
            let name = name.strip_prefix(b".rela").or(name.strip_prefix(b".rel"));
            name == Some(of)
        })
    };
    let symbols = elf.symbols()?;
    let variables = symbols.iter().filter_map(|symbol| variable(elf, symbol));
    Ok(variables
        .map(|variable| (variable.name.to_vec(), is_relocated(variable.space)))
        .collect())
}

/// Whether kernels allocate from the device's heap.
pub(crate) fn uses_heap(elf: &Elf<'_>) -> Result<bool, Error> {
    let mut symbols = elf.symbols()?.into_iter();
    Ok(symbols.any(|symbol| symbol.name == b"malloc"))
}

fn variable<'a>(elf: &Elf<'a>, symbol: &Symbol<'a>) -> Option<Variable<'a>> {
    if symbol.kind != OBJECT || symbol.name.is_empty() {
        return None;
    }
    let section = elf.sections().get(symbol.section? as usize)?;
    let space = match elf.name(section) {
        b".nv.global" | b".nv.global.init" if symbol.other & OTHER_MANAGED != 0 => Space::Managed,
        b".nv.global" | b".nv.global.init" => Space::Global,
        b".nv.constant3" => Space::Constant,
        _ => return None,
    };
    Some(Variable {
        name: symbol.name,
        space,
        len: symbol.len,
    })
}
