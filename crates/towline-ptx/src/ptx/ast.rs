//! The tree that a module is read into. Names and numbers borrow from its text, as written.

use std::fmt;

use super::Position;
use super::types::Type;

/// Where a part of the tree stands in the text it was read from. It says nothing of what the part means: any two are equal.
#[derive(Debug, Clone, Copy)]
pub struct Place(pub Position);

impl PartialEq for Place {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Place {}

/// A module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module<'a> {
    /// `.version`: major, minor.
    pub version: (u32, u32),
    /// `.target`: the architecture and what else it names.
    pub target: Vec<&'a str>,
    /// `.address_size`, where it is given.
    pub address_size: Option<u32>,
    /// What it declares, in order.
    pub items: Vec<Item<'a>>,
}

impl<'a> Module<'a> {
    /// Its functions, kernels among them.
    pub fn functions(&self) -> impl Iterator<Item = &Function<'a>> {
        self.items.iter().filter_map(|item| match item {
            Item::Function(function) => Some(function),
            _ => None,
        })
    }

    /// Its kernels, those without a body left out.
    pub fn kernels(&self) -> impl Iterator<Item = &Function<'a>> {
        self.functions()
            .filter(|function| function.kind == FunctionKind::Entry && function.body.is_some())
    }

    /// Its variables.
    pub fn variables(&self) -> impl Iterator<Item = &Variable<'a>> {
        self.items.iter().filter_map(|item| match item {
            Item::Variable(variable) => Some(variable),
            _ => None,
        })
    }
}

/// What a module declares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item<'a> {
    /// `.alias name, function;`
    Alias {
        /// The new name.
        name: &'a str,
        /// What it stands for.
        function: &'a str,
    },
    /// `.file`: for debuggers.
    File(File<'a>),
    /// `.entry` or `.func`.
    Function(Function<'a>),
    /// `.pragma`
    Pragma(Vec<&'a str>),
    /// `.section`: for debuggers. What is between its braces, as written.
    Section {
        /// Name, without its dot.
        name: &'a str,
        /// Contents.
        contents: &'a str,
    },
    /// A variable.
    Variable(Variable<'a>),
}

/// `.file index "name" , timestamp, size`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File<'a> {
    /// What `.loc` calls it.
    pub index: &'a str,
    /// Name.
    pub name: &'a str,
    /// When it was changed, and its length.
    pub stamp: Option<(&'a str, &'a str)>,
}

/// Who sees a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// `.common`
    Common,
    /// `.extern`
    Extern,
    /// `.visible`
    Visible,
    /// `.weak`
    Weak,
}

/// Where a variable lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateSpace {
    /// `.const`
    Const,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.reg`
    Reg,
    /// `.shared`
    Shared,
    /// `.sreg`
    Sreg,
    /// `.tex`
    Tex,
}

macro_rules! words {
    ($type:ident: $($variant:ident $name:literal,)*) => {
        impl $type {
            /// What this word, written without its dot, means.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some($type::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($type::$variant => concat!(".", $name),)*
                })
            }
        }
    };
}

words! { Linkage: Common "common", Extern "extern", Visible "visible", Weak "weak", }
words! {
    StateSpace: Const "const", Global "global", Local "local", Param "param", Reg "reg",
    Shared "shared", Sreg "sreg", Tex "tex",
}

/// A variable, register or parameter, or a run of registers with a number each (`%r<10>`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable<'a> {
    /// Where its name, or else its state space, stands.
    pub at: Place,
    /// Who sees it; `None` for this module alone.
    pub linkage: Option<Linkage>,
    /// Where it lies.
    pub space: StateSpace,
    /// `.attribute(...)`
    pub attributes: Vec<Attribute<'a>>,
    /// `.align`, where it is given.
    pub align: Option<u64>,
    /// Elements of a vector: `.v2`, `.v4`, `.v8`.
    pub vector: Option<u8>,
    /// Type of an element.
    pub ty: Type,
    /// `.ptr`: what a parameter points to.
    pub pointer: Option<Pointer<'a>>,
    /// Name.
    pub name: &'a str,
    /// `<count>`
    pub count: Option<u64>,
    /// `[length]`, as often as it is given; without a length for what the linker or the initializer decides.
    pub dimensions: Vec<Option<u64>>,
    /// `= value`
    pub initializer: Option<Expression<'a>>,
}

impl Variable<'_> {
    /// `.attribute(.managed)`: memory that the host sees as well.
    pub fn is_managed(&self) -> bool {
        self.attributes.iter().any(|one| one.name == "managed")
    }
}

/// One of `.attribute(.managed, .unified(1, 2))`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Name, without its dot.
    pub name: &'a str,
    /// Numbers in parentheses.
    pub arguments: Vec<&'a str>,
}

/// What `.ptr` says of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer<'a> {
    /// State space, without its dot.
    pub space: Option<&'a str>,
    /// `.align`
    pub align: Option<u64>,
}

/// Who calls a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// The host: a kernel.
    Entry,
    /// The device.
    Func,
}

/// A function: declared, or defined if it has a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function<'a> {
    /// Where its name stands.
    pub at: Place,
    /// Who sees it; `None` for this module alone.
    pub linkage: Option<Linkage>,
    /// Who calls it.
    pub kind: FunctionKind,
    /// `.attribute(...)`
    pub attributes: Vec<Attribute<'a>>,
    /// What it returns.
    pub returns: Vec<Variable<'a>>,
    /// Name.
    pub name: &'a str,
    /// What it takes.
    pub parameters: Vec<Variable<'a>>,
    /// `.maxntid`, `.noreturn` and the like.
    pub directives: Vec<Directive<'a>>,
    /// What it does.
    pub body: Option<Vec<Statement<'a>>>,
}

impl Function<'_> {
    /// The sizes of a block, a cluster and the like that a directive gives (`maxntid`, `reqntid`, `reqnctapercluster`): those that
    /// are left out are 1.
    pub fn extent(&self, directive: &str) -> Option<[u32; 3]> {
        let found = self.directives.iter().find(|one| one.name == directive)?;
        let mut extent = [1; 3];
        for (place, argument) in extent.iter_mut().zip(&found.arguments) {
            *place = super::expression::integer(argument)?.try_into().ok()?;
        }
        Some(extent)
    }
}

/// A directive and what is behind it, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive<'a> {
    /// Name, without its dot.
    pub name: &'a str,
    /// Numbers and strings.
    pub arguments: Vec<Expression<'a>>,
}

/// What a body is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Statement<'a> {
    /// Statements in braces, with variables of their own.
    Block(Vec<Statement<'a>>),
    /// An instruction.
    Instruction(Box<Instruction<'a>>),
    /// A label, of an instruction or of what follows it.
    Label(&'a str),
    /// `.loc`: for debuggers.
    Loc(Box<Loc<'a>>),
    /// `.pragma`
    Pragma(Vec<&'a str>),
    /// `.callprototype`, for the label in front of it.
    Prototype(Box<Prototype<'a>>),
    /// `.branchtargets` or `.calltargets`, for the label in front of it.
    Targets {
        /// Name of the directive, without its dot.
        directive: &'a str,
        /// Where it may go.
        names: Vec<&'a str>,
    },
    /// A variable.
    Variable(Box<Variable<'a>>),
}

/// `.loc file line column, function_name label + offset, inlined_at file line column`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loc<'a> {
    /// File, line, column.
    pub place: [&'a str; 3],
    /// Where the name of the inlined function is found.
    pub function: Option<Expression<'a>>,
    /// Where it was inlined: file, line, column.
    pub inlined_at: Option<[&'a str; 3]>,
}

/// The functions that an indirect call may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype<'a> {
    /// What they return.
    pub returns: Vec<Variable<'a>>,
    /// The name in the place of theirs, by custom `_`.
    pub name: &'a str,
    /// What they take.
    pub parameters: Vec<Variable<'a>>,
    /// `.noreturn` and the like.
    pub directives: Vec<Directive<'a>>,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// Where its opcode stands.
    pub at: Place,
    /// `@p` or `@!p`.
    pub guard: Option<Guard<'a>>,
    /// What it does: `ld`.
    pub opcode: &'a str,
    /// How, without dots: `global`, `v4`, `f32`.
    pub modifiers: Vec<&'a str>,
    /// On what.
    pub operands: Vec<Expression<'a>>,
}

/// The predicate that an instruction depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard<'a> {
    /// Whether it is done when the predicate does not hold.
    pub negated: bool,
    /// The predicate.
    pub predicate: &'a str,
}

/// An operand or a constant.
///
/// Parentheses are kept ([`Expression::List`] of one), and printing adds none: a tree that is built by hand needs its own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expression<'a> {
    /// `[a, b]`: memory.
    Address(Vec<Expression<'a>>),
    /// `a(b)`: `generic(x)`, `0xff00(x)`.
    Apply {
        /// What stands in front.
        function: Box<Expression<'a>>,
        /// What is in parentheses.
        arguments: Vec<Expression<'a>>,
    },
    /// `a + b`; `p|q` is a pair of destinations.
    Binary {
        /// The operator as written.
        operator: &'static str,
        /// Both sides.
        sides: Box<[Expression<'a>; 2]>,
    },
    /// `(.s64) a`
    Cast {
        /// Type.
        ty: Type,
        /// Of what.
        operand: Box<Expression<'a>>,
    },
    /// `a ? b : c`
    Conditional(Box<[Expression<'a>; 3]>),
    /// `(a, b)`: arguments of a call, or a parenthesis.
    List(Vec<Expression<'a>>),
    /// A register, variable, label, function.
    Name {
        /// Name.
        name: &'a str,
        /// `.x`: one of its elements, without the dot.
        component: Option<&'a str>,
    },
    /// A number as written.
    Number(&'a str),
    /// A string, escapes as written.
    Text(&'a str),
    /// `-a`
    Unary {
        /// The operator as written.
        operator: &'static str,
        /// Of what.
        operand: Box<Expression<'a>>,
    },
    /// `{a, b}`
    Vector(Vec<Expression<'a>>),
}

impl Expression<'_> {
    /// Whether it names something, of which an address comes.
    pub fn has_names(&self) -> bool {
        match self {
            Self::Name { .. } => true,
            Self::Number(_) | Self::Text(_) => false,
            Self::Address(parts) | Self::List(parts) | Self::Vector(parts) => {
                parts.iter().any(Self::has_names)
            }
            // Before the parenthesis stands no name of an object: `generic(x)`, `0xff(x)`.
            Self::Apply { arguments, .. } => arguments.iter().any(Self::has_names),
            Self::Binary { sides, .. } => sides.iter().any(Self::has_names),
            Self::Cast { operand, .. } | Self::Unary { operand, .. } => operand.has_names(),
            Self::Conditional(parts) => parts.iter().any(Self::has_names),
        }
    }
}
