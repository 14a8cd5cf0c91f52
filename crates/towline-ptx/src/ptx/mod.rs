//! PTX: the text form of CUDA programs.
//!
//! [`Module::parse`] reads a whole module into a tree that borrows from the text: declarations with their types ([`ast`]), and the
//! bodies of functions as statements, where an instruction is an opcode, its modifiers and its operands, whatever they mean. So every
//! instruction set parses, those to come included; to give instructions a meaning is the next layer's work. Everything in the tree
//! prints as PTX again that parses to the same tree, comments and layout apart. [`layout`] says where a kernel's parameters lie. Several
//! modules can share a text: [`modules`] reads them.
//!
//! The grammar is that of NVIDIA's "PTX ISA", versions 6.0 to 9.x: chapters "Syntax", "State Spaces, Types, and Variables",
//! "Instruction Operands", "Abstracting the ABI" and "Directives".

pub mod ast;
pub(crate) mod expression;
pub mod layout;
mod lexer;
mod parser;
mod parts;
mod print;
mod statement;
mod types;

use std::fmt;

pub use ast::Module;
pub use parts::{heads, join, modules, parts};
pub use types::Type;

use crate::Error;

/// A place in a text. Both count from 1; a column is a byte, as PTX is ASCII outside comments and strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Where a text breaks the grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct SyntaxError {
    /// Where.
    pub at: Position,
    /// What was expected there, and what is there.
    pub message: String,
}

/// An image's bytes as text.
pub fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (before, _) = bytes.split_at(error.valid_up_to());
        let lines = before.split(|&byte| byte == b'\n');
        let last = lines.clone().next_back().unwrap_or_default();
        Error::Syntax(SyntaxError {
            at: Position {
                line: u32::try_from(lines.count()).unwrap_or(u32::MAX),
                column: u32::try_from(last.len() + 1).unwrap_or(u32::MAX),
            },
            message: "text that is not UTF-8".into(),
        })
    })
}

impl<'a> Module<'a> {
    /// Reads a module.
    pub fn parse(text: &'a str) -> Result<Self, SyntaxError> {
        Self::parse_from(text, 1)
    }

    /// Reads a module whose first line has this number.
    fn parse_from(text: &'a str, line: u32) -> Result<Self, SyntaxError> {
        parser::Parser::new(text, line)?.module()
    }

    /// As [`Self::parse_from`], with the bodies of functions passed over.
    fn parse_heads(text: &'a str, line: u32) -> Result<Self, SyntaxError> {
        parser::Parser::new(text, line)?.heads_only().module()
    }
}
