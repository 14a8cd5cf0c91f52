//! A module on a device: a linked program, its variables in memory, its kernels ready to run.

mod refusal;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use towline_ptx::fatbin::{self, Container, EntryKind};
use towline_ptx::image::{self, Kind};
use towline_ptx::ir::{
    Body, Code, Constant, Function, FunctionId, Instruction, Program, Relocation, Space, Symbol,
    VariableId,
};
use towline_ptx::ptx;
use towline_ptx::{ComputeCapability, Error as ImageError};

use crate::memory::{ALIGNMENT, Arena, Purpose};
use crate::tier::{is_worthwhile, weight};
pub(crate) use refusal::{LoadError, Refusal};
use refusal::{gencode, own_part, own_place, source_of, target_of};

/// Where the shared memory of a block starts for generic addresses. No host has memory there.
pub(crate) const SHARED_WINDOW: u64 = 1 << 50;
/// The same for a thread's local memory.
pub(crate) const LOCAL_WINDOW: u64 = 2 << 50;
/// The same for a kernel's parameters.
pub(crate) const PARAM_WINDOW: u64 = 3 << 50;
/// Where functions are, 16 bytes each.
const FUNCTION_WINDOW: u64 = 4 << 50;
const FUNCTION_BYTES: u64 = 16;

/// Functions that the device has. Everything else that is only declared is missing.
pub(crate) const BUILT_IN: [&str; 4] = ["__assertfail", "free", "malloc", "vprintf"];

/// Functions that the device has as PTX, and their text.
const RUNTIME: [&str; 3] = [
    "cudaCGGetIntrinsicHandle",
    "cudaCGSynchronize",
    "cudaGraphSetConditional",
];
const RUNTIME_TEXT: &str = include_str!("runtime.ptx");

/// A module that is loaded.
pub(crate) struct Image {
    pub(crate) program: Program,
    /// The text it was read from, for messages, and its hash.
    text: String,
    pub(crate) hash: [u8; 32],
    /// Where each variable of global or constant memory lies.
    addresses: Vec<Option<u64>>,
    /// Their part of the arena.
    taken: Vec<(u64, Purpose)>,
    arena: Arc<Arena>,
    kernels: Mutex<HashMap<FunctionId, Result<Arc<Parts>, Refusal>>>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").finish_non_exhaustive()
    }
}

/// The PTX text of an image: itself, or what a container holds for a device of this capability.
pub(crate) fn text_of(bytes: &[u8], device: ComputeCapability) -> Result<String, LoadError> {
    match image::kind(bytes) {
        Some(Kind::Container) => {
            let programs = Container::parse(bytes)?.programs()?;
            let Some(program) = fatbin::choose_text(programs, device) else {
                let programs = Container::parse(bytes)?.programs()?;
                let mut code: Vec<String> = programs
                    .iter()
                    .filter(|program| program.kind == EntryKind::Elf)
                    .map(|program| format!("sm_{}", program.arch))
                    .collect();
                code.dedup();
                let has = match code.is_empty() {
                    true => "no machine code".into(),
                    false => format!("{} code", code.join(", ")),
                };
                return Err(LoadError::NoPtx { has, device });
            };
            let text = program.image()?;
            let end = text.iter().position(|byte| *byte == 0);
            let text = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
            Ok(ptx::text(text)?.to_owned())
        }
        Some(Kind::Elf) => Err(LoadError::MachineCode(device)),
        Some(Kind::Wrapper) => Err(LoadError::Image(ImageError::BadMagic {
            what: "image",
            found: fatbin::WRAPPER_MAGIC,
        })),
        Some(Kind::Ptx) | None => {
            let end = bytes.iter().position(|byte| *byte == 0);
            let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            Ok(ptx::text(text)?.to_owned())
        }
    }
}

impl Image {
    /// Loads PTX on a device that has room for everything.
    pub(crate) fn load(text: String, arena: &Arc<Arena>, device: u32) -> Result<Self, LoadError> {
        Self::load_within(text, (arena, device), u64::MAX)
    }

    /// Loads PTX whose variables take so many bytes at most.
    pub(crate) fn load_within(
        text: String,
        (arena, device): (&Arc<Arena>, u32),
        room: u64,
    ) -> Result<Self, LoadError> {
        let text = with_runtime(text)?;
        let program = program_of(&text).map_err(|error| error.at_home(&text))?;
        let mut image = Self {
            addresses: vec![None; program.variables.len()],
            taken: Vec::new(),
            program,
            text: String::new(),
            hash: Sha256::digest(&text).into(),
            arena: Arc::clone(arena),
            kernels: Mutex::default(),
        };
        let placed = image.program.variables.iter();
        let placed = placed.filter(|variable| variable.space != Space::Shared);
        let bytes = placed.fold(0, |sum: u64, variable| sum.saturating_add(variable.len));
        if bytes > room {
            return Err(LoadError::NoMemory(bytes));
        }
        image.place(device)?;
        image.initialize();
        image.text = text;
        Ok(image)
    }

    /// Gives each variable its memory; managed ones lie side by side.
    fn place(&mut self, device: u32) -> Result<(), LoadError> {
        let variables = &self.program.variables;
        let mut managed = 0_u64;
        let offsets: Vec<u64> = variables
            .iter()
            .map(|variable| {
                let offset = managed.next_multiple_of(variable.align.max(1));
                managed = match variable.managed {
                    true => offset.saturating_add(variable.len),
                    false => managed,
                };
                offset
            })
            .collect();
        let mut take = |len: u64, align: u64, purpose| -> Result<u64, LoadError> {
            let with_gap = len.saturating_add(align.saturating_sub(ALIGNMENT));
            let found = self.arena.allocate(with_gap, device, purpose);
            let found = found.ok_or(LoadError::NoMemory(len))?;
            self.taken.push((found, purpose));
            Ok(found.next_multiple_of(align.max(1)))
        };
        let of_managed = variables.iter().filter(|variable| variable.managed);
        let shared = match managed {
            0 => 0,
            len => {
                let align = of_managed.map(|variable| variable.align).max();
                take(len, align.unwrap_or(1), Purpose::Managed)?
            }
        };
        let places = variables.iter().zip(offsets).zip(&mut self.addresses);
        for ((variable, offset), address) in places {
            *address = match variable.space {
                Space::Shared => None,
                _ if variable.managed => Some(shared + offset),
                _ => Some(take(variable.len, variable.align, Purpose::Image)?),
            };
        }
        Ok(())
    }

    /// Writes what variables hold at first.
    fn initialize(&self) {
        for (variable, address) in self.program.variables.iter().zip(&self.addresses) {
            let Some(address) = *address else {
                continue;
            };
            let mut bytes = variable.bytes.clone();
            for relocation in &variable.relocations {
                self.relocate(&mut bytes, relocation);
            }
            if let Some(span) = self.arena.span(address) {
                // Memory that was used before is not zero.
                let zeros = variable.len.saturating_sub(bytes.len() as u64);
                span.write(address, &bytes);
                fill_zero(&span, address + bytes.len() as u64, zeros);
            }
        }
    }

    fn relocate(&self, bytes: &mut [u8], relocation: &Relocation) {
        // Shared memory has no address before a launch, so nothing can hold one.
        let address = self.address(relocation.symbol, None).unwrap_or(0);
        let address = address.wrapping_add(relocation.addend as u64) >> relocation.shift;
        let places = bytes.iter_mut().skip(relocation.offset as usize);
        for (place, byte) in places
            .take(relocation.len.into())
            .zip(address.to_le_bytes())
        {
            *place = byte;
        }
    }

    /// The address of a symbol: of a variable in shared memory as the kernel lays it out.
    fn address(&self, symbol: Symbol, shared: Option<&HashMap<VariableId, u32>>) -> Option<u64> {
        match symbol {
            Symbol::Function(FunctionId(number)) => {
                Some(FUNCTION_WINDOW + u64::from(number) * FUNCTION_BYTES)
            }
            Symbol::Variable(id) => match self.addresses.get(id.0 as usize)? {
                Some(address) => Some(*address),
                None => shared?.get(&id).map(|offset| u64::from(*offset)),
            },
        }
    }

    /// The function at an address.
    pub(crate) fn function_at(&self, address: u64) -> Option<FunctionId> {
        let offset = address.checked_sub(FUNCTION_WINDOW)?;
        let number = offset / FUNCTION_BYTES;
        let known = offset % FUNCTION_BYTES == 0 && number < self.program.functions.len() as u64;
        known.then_some(FunctionId(number as u32))
    }

    /// Where a variable lies that the host may see, and how long it is.
    pub(crate) fn global(&self, name: &str) -> Option<(u64, u64)> {
        let mut named = self.program.variables.iter().zip(&self.addresses);
        let (variable, address) =
            named.find(|(variable, address)| variable.name == name && address.is_some())?;
        Some(((*address)?, variable.len))
    }

    /// Whether an address is one of constant memory.
    pub(crate) fn is_constant(&self, address: u64) -> bool {
        let mut all = self.program.variables.iter().zip(&self.addresses);
        all.any(|(variable, start)| {
            let inside = |start: &u64| address.wrapping_sub(*start) < variable.len.max(1);
            variable.space == Space::Const && start.as_ref().is_some_and(inside)
        })
    }

    /// Where a variable lies that stands for a texture, surface or sampler, and for which of these.
    pub(crate) fn object(&self, name: &str) -> Option<(u64, ptx::Type)> {
        let mut named = self.program.variables.iter().zip(&self.addresses);
        let (variable, address) = named.find(|(variable, _)| variable.name == name)?;
        Some(((*address)?, variable.object?))
    }

    /// Where all of those lie.
    pub(crate) fn objects(&self) -> Vec<u64> {
        let all = self.program.variables.iter().zip(&self.addresses);
        let objects = all.filter(|(variable, _)| variable.object.is_some());
        objects.filter_map(|(_, address)| *address).collect()
    }

    /// Samplers, which are as their variables say: where these lie, and what they say.
    pub(crate) fn samplers(&self) -> impl Iterator<Item = (u64, &[(String, String)])> {
        let all = self.program.variables.iter().zip(&self.addresses);
        all.filter(|(variable, _)| variable.object == Some(ptx::Type::SamplerRef))
            .filter_map(|(variable, address)| Some(((*address)?, &variable.settings[..])))
    }

    /// A place of the text in its own module.
    pub(crate) fn own_place(&self, at: ptx::Position) -> ptx::Position {
        own_place(&self.text, at)
    }

    /// File and line that the compiler made this place from, where it says so.
    pub(crate) fn source(&self, at: ptx::Position) -> Option<String> {
        let (part, at) = own_part(&self.text, at);
        source_of(part, at.line)
    }

    /// Why kernels cannot run here; an error if none can.
    pub(crate) fn refusals(&self, device: ComputeCapability) -> Result<Vec<Refusal>, LoadError> {
        let functions = &self.program.functions;
        let may_refuse =
            |one: &Function| one.limits.clusters || matches!(one.body, Body::Refused(_));
        if !functions.iter().any(may_refuse) {
            return Ok(Vec::new());
        }
        let kernels = (0..)
            .map(FunctionId)
            .zip(functions)
            .filter(|(_, one)| one.entry);
        let kernels: Vec<FunctionId> = kernels.map(|(id, _)| id).collect();
        let refusals: Vec<Refusal> = kernels
            .iter()
            .filter_map(|id| self.reach(*id).err())
            .collect();
        match kernels.first() {
            Some(first) if kernels.len() == refusals.len() => Err(LoadError::Kernels {
                remedy: self.remedy(*first, device),
                refusals,
            }),
            _ => Ok(refusals),
        }
    }

    /// The code that a kernel may come to, if all of it can run.
    fn reach(&self, kernel: FunctionId) -> Result<Vec<FunctionId>, Refusal> {
        let refuse = |why: Why| {
            let name = |id| self.program.function(id).map(|one| one.name.clone());
            Refusal {
                kernel: name(kernel).unwrap_or_default(),
                function: name(why.function).filter(|_| why.function != kernel),
                at: why.at.map(|at| self.own_place(at)),
                what: why.what,
            }
        };
        let clusters = |one: &Function| one.limits.clusters;
        if self.program.function(kernel).is_some_and(clusters) {
            return Err(refuse(Why {
                function: kernel,
                at: None,
                what: "clusters of several blocks are not supported".into(),
            }));
        }
        reach(&self.program, kernel).map_err(refuse)
    }

    /// The remedy where a kernel cannot run: code for an earlier architecture, if it is for a later one than this device's.
    pub(crate) fn remedy(&self, kernel: FunctionId, device: ComputeCapability) -> String {
        let at = self.program.function(kernel).map(|one| one.at);
        let part = at.map_or(self.text.as_str(), |at| own_part(&self.text, at).0);
        match target_of(part) {
            Some(target) if target > device.major * 10 + device.minor => format!(
                "it is compiled for sm_{target}, and this device has compute capability {device}: build with {}, whose code may do \
                 without, or use a server with a GPU",
                gencode(device)
            ),
            _ => "use a server with a GPU: no option of the compiler helps, since it is compiled for no later device than this".into(),
        }
    }

    /// The line of the text that a position is in.
    pub(crate) fn line(&self, at: ptx::Position) -> &str {
        let line = self.text.lines().nth(at.line.saturating_sub(1) as usize);
        line.unwrap_or_default().trim()
    }

    /// A kernel, made ready at its first use; or why it cannot run here.
    pub(crate) fn kernel(self: &Arc<Self>, id: FunctionId) -> Result<Kernel, Refusal> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = kernels
            .entry(id)
            .or_insert_with(|| Parts::new(self, id).map(Arc::new));
        Ok(Kernel {
            image: Arc::clone(self),
            parts: Arc::clone(parts.as_ref().map_err(Refusal::clone)?),
        })
    }

    /// Shared memory of a kernel that its variables take.
    pub(crate) fn shared_bytes(&self, id: FunctionId) -> u32 {
        let reach = self.reach(id).unwrap_or_default();
        let (_, end, _) = lay_out_shared(&self.program, &reach);
        end
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for (start, purpose) in &self.taken {
            self.arena.free(*start, *purpose);
        }
    }
}

fn fill_zero(span: &crate::memory::Span<'_>, mut address: u64, mut len: u64) {
    let zeros = [0; 4096];
    while len > 0 {
        let part = len.min(zeros.len() as u64);
        span.write(address, &zeros[..part as usize]);
        address += part;
        len -= part;
    }
}

/// The program of a text, which may hold several modules.
fn program_of(text: &str) -> Result<Program, LoadError> {
    let modules = ptx::modules(text).map_err(ImageError::from)?;
    let program = Program::link(&modules)?;
    check_calls(&program)?;
    Ok(program)
}

/// A text, and behind it what the device has as PTX, where the text names some of that.
fn with_runtime(text: String) -> Result<String, LoadError> {
    if !RUNTIME.iter().any(|name| text.contains(name)) {
        return Ok(text);
    }
    let parts = ptx::parts(&text).map_err(ImageError::from)?;
    let parts = parts.iter().map(|(part, _)| *part);
    let parts: Vec<&str> = parts.chain([RUNTIME_TEXT]).collect();
    Ok(ptx::join(&parts))
}

/// Whether a text can be loaded, variables' memory apart.
pub(crate) fn check_text(text: String) -> Result<(), LoadError> {
    let text = with_runtime(text)?;
    program_of(&text)
        .map(drop)
        .map_err(|error| error.at_home(&text))
}

/// Whatever is called by name must be there.
fn check_calls(program: &Program) -> Result<(), LoadError> {
    for function in &program.functions {
        let Body::Code(code) = &function.body else {
            continue;
        };
        for callee in &code.calls {
            let Some(callee) = program.function(*callee) else {
                continue;
            };
            let missing = matches!(callee.body, Body::Declared);
            if missing && !BUILT_IN.contains(&callee.name.as_str()) {
                return Err(LoadError::Missing {
                    line: callee.at,
                    name: callee.name.clone(),
                    by: function.name.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Why a function cannot run here.
struct Why {
    function: FunctionId,
    at: Option<ptx::Position>,
    what: String,
}

/// The functions that a kernel may come to; or the reason why one of them cannot run here.
fn reach(program: &Program, kernel: FunctionId) -> Result<Vec<FunctionId>, Why> {
    let mut found = vec![kernel];
    let mut known = HashSet::from([kernel]);
    let mut next = 0;
    let mut indirect = false;
    while let Some(&id) = found.get(next) {
        next += 1;
        let Some(function) = program.function(id) else {
            continue;
        };
        let code = match &function.body {
            Body::Code(code) => code,
            Body::Declared => continue,
            Body::Refused(error) => {
                return Err(Why {
                    function: id,
                    at: Some(error.at),
                    what: error.message.clone(),
                });
            }
        };
        found.extend(code.calls.iter().filter(|callee| known.insert(**callee)));
        if code.calls_indirectly && !indirect {
            indirect = true;
            // Any function whose address may have been taken. One that cannot run is a fault when it is called.
            let runs = |id: &FunctionId| {
                let body = program.function(*id).map(|one| &one.body);
                matches!(body, Some(Body::Code(_)))
            };
            let all = (0..program.functions.len() as u32).map(FunctionId);
            found.extend(all.filter(runs).filter(|id| known.insert(*id)));
        }
    }
    Ok(found)
}

/// Offsets of variables in shared memory, where the static ones end, and the alignment that what the launch adds needs.
fn lay_out_shared(
    program: &Program,
    functions: &[FunctionId],
) -> (HashMap<VariableId, u32>, u32, u32) {
    let mut used: Vec<VariableId> = functions
        .iter()
        .filter_map(|id| match &program.function(*id)?.body {
            Body::Code(code) => Some(&code.variables),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    used.sort_unstable();
    used.dedup();
    let mut offsets = HashMap::new();
    let (mut end, mut align) = (0_u64, 1);
    let shared = used.iter().filter_map(|id| {
        let variable = program.variable(*id)?;
        (variable.space == Space::Shared).then_some((*id, variable))
    });
    let (dynamic, fixed): (Vec<_>, Vec<_>) =
        shared.partition(|(_, variable)| variable.external || variable.len == 0);
    for (id, variable) in fixed {
        let offset = end.next_multiple_of(variable.align);
        offsets.insert(id, u32::try_from(offset).unwrap_or(u32::MAX));
        end = offset.saturating_add(variable.len).min(u32::MAX.into());
    }
    for (_, variable) in &dynamic {
        align = align.max(variable.align);
    }
    let start = end.next_multiple_of(align);
    for (id, _) in dynamic {
        offsets.insert(id, u32::try_from(start).unwrap_or(u32::MAX));
    }
    let align = u32::try_from(align).unwrap_or(1);
    (offsets, u32::try_from(end).unwrap_or(u32::MAX), align)
}

/// What a kernel needs to run, apart from its module.
#[derive(Debug)]
pub(crate) struct Parts {
    entry: FunctionId,
    /// Constants of each function that it may come to, by the function's number.
    constants: HashMap<FunctionId, Vec<[u64; 32]>>,
    /// Bytes of shared memory that its variables take, and where those start that the launch adds.
    shared_bytes: u32,
    dynamic_start: u32,
    /// Instructions of all that it may come to, and those that a thread may carry out.
    instructions: u64,
    weight: u64,
    /// Instructions of threads that the interpreter has carried out.
    done: AtomicU64,
}

/// A function's code, its instructions, and its constants for all lanes.
type Running<'k> = (&'k Code, &'k [Instruction], &'k [[u64; 32]]);

/// A kernel that can be launched. It keeps its module.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(crate) image: Arc<Image>,
    parts: Arc<Parts>,
}

impl Parts {
    fn new(image: &Image, entry: FunctionId) -> Result<Self, Refusal> {
        let program = &image.program;
        let functions = image.reach(entry)?;
        let (shared, shared_bytes, align) = lay_out_shared(program, &functions);
        let mut constants = HashMap::new();
        let (mut instructions, mut thread_weight) = (0, 0_u64);
        for id in functions {
            let Some(Body::Code(code)) = program.function(id).map(|one| &one.body) else {
                continue;
            };
            let values = code.constants.iter().map(|constant| match *constant {
                Constant::Bits(bits) => [bits; 32],
                Constant::Address {
                    symbol,
                    addend,
                    generic,
                } => {
                    let shift = match symbol {
                        Symbol::Variable(id) if generic => {
                            let space = program.variable(id).map(|variable| variable.space);
                            u64::from(space == Some(Space::Shared)) * SHARED_WINDOW
                        }
                        _ => 0,
                    };
                    let address = image.address(symbol, Some(&shared)).unwrap_or(0);
                    [address.wrapping_add(addend as u64).wrapping_add(shift); 32]
                }
            });
            constants.insert(id, values.collect());
            instructions += code.instructions.len() as u64;
            thread_weight = thread_weight.saturating_add(weight(code));
        }
        Ok(Self {
            entry,
            constants,
            shared_bytes,
            dynamic_start: shared_bytes
                .checked_next_multiple_of(align)
                .unwrap_or(u32::MAX),
            instructions,
            weight: thread_weight,
            done: AtomicU64::new(0),
        })
    }
}

impl Kernel {
    /// Whether what the interpreter has carried out of it makes up for compiling it, a launch that is to come counted by what it may be.
    pub(crate) fn is_busy(&self, blocks: u64, threads: u32) -> bool {
        let parts = &*self.parts;
        let work = blocks
            .saturating_mul(threads.into())
            .saturating_mul(parts.weight);
        let done = parts.done.load(Ordering::Relaxed);
        is_worthwhile(done.saturating_add(work), parts.instructions)
    }

    /// The interpreter has carried out so many instructions of threads.
    pub(crate) fn has_done(&self, executed: u64) {
        self.parts.done.fetch_add(executed, Ordering::Relaxed);
    }

    /// Bytes of its parameters.
    pub(crate) fn parameter_bytes(&self) -> usize {
        let function = self.image.program.function(self.parts.entry);
        function.map_or(0, |function| function.parameter_bytes as usize)
    }

    pub(crate) fn entry(&self) -> FunctionId {
        self.parts.entry
    }

    /// Bytes of shared memory that its variables take.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.parts.shared_bytes
    }

    /// Where the shared memory starts that the launch adds.
    pub(crate) fn dynamic_start(&self) -> u32 {
        self.parts.dynamic_start
    }

    /// The code of a function, and its constants; `None` for what the kernel cannot come to.
    pub(crate) fn code(&self, id: FunctionId) -> Option<Running<'_>> {
        let constants = self.parts.constants.get(&id)?;
        match &self.image.program.function(id)?.body {
            Body::Code(code) => Some((code, &code.instructions, constants)),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        let function = self.image.program.function(self.parts.entry);
        function.map_or("", |function| &function.name)
    }
}
