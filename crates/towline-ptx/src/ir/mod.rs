//! What PTX means: typed operations on numbered registers, labels and names resolved, several modules linked.
//!
//! [`Program::link`] takes modules that were read with [`crate::ptx::Module::parse`]. A function that uses something unknown here is
//! no error of the program: its body is [`Body::Refused`] and says where and what, so that one such kernel does not keep a module's others
//! from running. What is wrong with a program as a whole (two definitions of a name, an initializer that is no constant) is an [`Error`].
//!
//! The instructions keep PTX's own model: a register holds 64 bits of which an operation uses as many as its type has, predicates are
//! counted apart, and control flow is by index into the code. See [`op`] for the operations, [`Function`] for what surrounds them.

mod decode;
mod eval;
mod fit;
mod function;
mod link;
pub mod matrix;
mod modifiers;
pub mod op;
mod scope;
pub mod texture;

use std::fmt;

pub use op::{Instruction, Op};

use crate::ptx::{Position, Type};

/// Where a program says something that it cannot, and what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct Error {
    /// Where.
    pub at: Position,
    /// What.
    pub message: String,
}

/// A linked program.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Variables of the state spaces global, const and shared; those inside functions, too.
    pub variables: Vec<Variable>,
    /// Functions, kernels among them.
    pub functions: Vec<Function>,
}

impl Program {
    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<FunctionId> {
        let found = self
            .functions
            .iter()
            .position(|function| function.entry && function.name == name)?;
        Some(FunctionId(found as u32))
    }

    /// A function by its number.
    pub fn function(&self, id: FunctionId) -> Option<&Function> {
        self.functions.get(id.0 as usize)
    }

    /// A variable by its number.
    pub fn variable(&self, id: VariableId) -> Option<&Variable> {
        self.variables.get(id.0 as usize)
    }
}

/// Number of a function in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// Number of a variable in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariableId(pub u32);

/// What has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A function.
    Function(FunctionId),
    /// A variable.
    Variable(VariableId),
}

/// A variable of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Name. Variables inside functions have their function's in front.
    pub name: String,
    /// Where it lies: global, const or shared.
    pub space: Space,
    /// Bytes; 0 for an array without a length, which in shared memory is what the launch adds.
    pub len: u64,
    /// Alignment, a power of two.
    pub align: u64,
    /// Whether other modules and the host see it.
    pub visible: bool,
    /// Defined elsewhere, or for shared memory, by the launch.
    pub external: bool,
    /// It stands for a texture, a sampler or a surface: its type says for which.
    pub object: Option<Type>,
    /// First properties of such an object: their names and values, as written.
    pub settings: Vec<(String, String)>,
    /// The host sees its contents at the same address.
    pub managed: bool,
    /// What it holds at first, cut where only zeros follow.
    pub bytes: Vec<u8>,
    /// Addresses to be written into that.
    pub relocations: Vec<Relocation>,
}

/// An address in a variable's initial contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Where.
    pub offset: u64,
    /// Bytes to write.
    pub len: u8,
    /// How far right the address is shifted first: one byte of it may be asked for.
    pub shift: u8,
    /// Whose address.
    pub symbol: Symbol,
    /// What is added.
    pub addend: i64,
    /// The generic address, not the one in its own space.
    pub generic: bool,
}

/// State spaces that instructions name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Constant memory.
    Const,
    /// Any: what an address lies in tells.
    Generic,
    /// Global memory.
    Global,
    /// A thread's own memory.
    Local,
    /// Parameters: of the kernel, or of the function and its calls.
    Param,
    /// A block's own memory.
    Shared,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Const => "const",
            Space::Generic => "generic",
            Space::Global => "global",
            Space::Local => "local",
            Space::Param => "param",
            Space::Shared => "shared",
        })
    }
}

/// A function: a kernel or what kernels call.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name.
    pub name: String,
    /// A kernel.
    pub entry: bool,
    /// Other modules see it.
    pub visible: bool,
    /// Where it stands.
    pub at: Position,
    /// What it takes.
    pub parameters: Vec<Parameter>,
    /// What it returns.
    pub returns: Vec<Parameter>,
    /// Bytes of parameter space that its parameters and results take: a kernel's parameter block.
    pub parameter_bytes: u32,
    /// The same with the parameters and results of the calls in it.
    pub frame_bytes: u32,
    /// What directives say of a kernel.
    pub limits: Limits,
    /// What it does.
    pub body: Body,
}

/// A parameter or a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes.
    pub len: u32,
    /// Alignment.
    pub align: u32,
    /// Where it is found.
    pub place: ParameterPlace,
}

/// Where a parameter is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterPlace {
    /// In parameter space, at this offset.
    Memory(u32),
    /// In a register.
    Register(op::Reg),
    /// In a predicate.
    Predicate(op::Pred),
}

/// What directives say of a kernel; `None` where none does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// `.maxntid`
    pub most_threads: Option<[u32; 3]>,
    /// `.reqntid`
    pub exact_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`: it needs clusters of more than one block.
    pub clusters: bool,
}

/// What a function does.
#[derive(Debug, Clone)]
pub enum Body {
    /// Declared only: the device has it, or nobody.
    Declared,
    /// Known.
    Code(Code),
    /// It uses something that is unknown here.
    Refused(Error),
}

/// A body.
#[derive(Debug, Clone, Default)]
pub struct Code {
    /// Instructions. Control never runs off their end.
    pub instructions: Vec<Instruction>,
    /// Constants that instructions name.
    pub constants: Vec<Constant>,
    /// Registers.
    pub registers: u32,
    /// Predicates.
    pub predicates: u32,
    /// Bytes of local memory.
    pub local_bytes: u32,
    /// Functions called by name.
    pub calls: Vec<FunctionId>,
    /// It calls what an address points to.
    pub calls_indirectly: bool,
    /// Variables whose addresses it uses.
    pub variables: Vec<VariableId>,
}

/// A constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Constant {
    /// A number's bits.
    Bits(u64),
    /// An address.
    Address {
        /// Of what.
        symbol: Symbol,
        /// What is added.
        addend: i64,
        /// The generic address, not the one in its own space.
        generic: bool,
    },
}

#[cfg(test)]
mod tests;
