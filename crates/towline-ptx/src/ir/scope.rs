//! Names inside a function: registers, variables and labels, in nested braces.

use std::collections::{HashMap, HashSet};

use super::VariableId;
use super::op::{Pred, Reg};
use crate::ptx::Type;
use crate::ptx::ast::{Expression, Statement, Variable};

/// Most digits of a register's number in its run.
const NUMBER_DIGITS: usize = 20;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// A place in the code, by its number.
    Label(u32),
    /// Local memory of the frame: offset.
    Local(u32),
    /// Parameter space: offset and bytes.
    Parameter { offset: u32, len: u32 },
    /// A predicate.
    Pred(Pred),
    /// A register.
    Reg(Reg),
    /// A list of branch targets, by its number.
    Table(u32),
    /// A variable of the program.
    Variable(VariableId),
}

/// The names of one pair of braces.
#[derive(Debug, Default)]
struct Scope<'a> {
    /// What was declared here.
    declared: HashSet<&'a str>,
    names: HashMap<&'a str, Slot>,
    /// `%r<10>`: how many there are, and their type.
    runs: HashMap<&'a str, (u64, Type)>,
}

impl Scope<'_> {
    /// The type of a register that a run declares. The run's own name may end in digits, too: `%r1<4>` has `%r10`.
    fn in_run(&self, name: &str) -> Option<Type> {
        if self.runs.is_empty() {
            return None;
        }
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let splits = name.len() - digits.min(NUMBER_DIGITS)..name.len();
        splits.into_iter().find_map(|at| {
            let (prefix, digits) = name.split_at_checked(at)?;
            let &(count, ty) = self.runs.get(prefix)?;
            let number = digits.parse::<u64>().ok()?;
            let is_plain = digits == "0" || !digits.starts_with('0');
            (is_plain && number < count).then_some(ty)
        })
    }
}

/// All names that can be seen, the innermost last.
#[derive(Debug, Default)]
pub(super) struct Scopes<'a> {
    scopes: Vec<Scope<'a>>,
    /// The type that each register was declared with.
    pub(super) registers: Vec<Type>,
    pub(super) predicates: u32,
    /// Where each label stands, once that is known.
    pub(super) labels: Vec<Option<u32>>,
    pub(super) tables: Vec<Vec<&'a str>>,
}

impl<'a> Scopes<'a> {
    /// Opens braces: labels can be seen before they are reached.
    pub(super) fn open(&mut self, statements: &[Statement<'a>]) {
        let mut scope = Scope::default();
        for (index, statement) in statements.iter().enumerate() {
            let Statement::Label(name) = statement else {
                continue;
            };
            let slot = match statements.get(index + 1) {
                Some(Statement::Targets { names, .. }) => {
                    self.tables.push(names.clone());
                    Slot::Table(self.tables.len() as u32 - 1)
                }
                _ => {
                    self.labels.push(None);
                    Slot::Label(self.labels.len() as u32 - 1)
                }
            };
            scope.names.insert(name, slot);
        }
        self.scopes.push(scope);
    }

    /// Notes a declaration in the innermost braces. `false` where there is one of this name already.
    pub(super) fn is_new(&mut self, name: &'a str) -> bool {
        let scope = self.scopes.last_mut();
        scope.is_none_or(|scope| scope.declared.insert(name))
    }

    pub(super) fn close(&mut self) {
        self.scopes.pop();
    }

    pub(super) fn insert(&mut self, name: &'a str, slot: Slot) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name, slot);
        }
    }

    /// Declares registers. Each gets its number when it is first used.
    pub(super) fn declare(&mut self, variable: &Variable<'a>) {
        if let Some(count) = variable.count {
            if let Some(scope) = self.scopes.last_mut() {
                scope.runs.insert(variable.name, (count, variable.ty));
            }
            return;
        }
        let slot = self.fresh(variable.ty);
        self.insert(variable.name, slot);
    }

    pub(super) fn fresh(&mut self, ty: Type) -> Slot {
        match ty {
            Type::Pred => Slot::Pred(self.predicate()),
            ty => Slot::Reg(self.register(ty)),
        }
    }

    pub(super) fn register(&mut self, ty: Type) -> Reg {
        self.registers.push(ty);
        Reg(self.registers.len() as u32 - 1)
    }

    pub(super) fn predicate(&mut self) -> Pred {
        self.predicates += 1;
        Pred(self.predicates - 1)
    }

    /// What a name means here.
    pub(super) fn find(&mut self, name: &'a str) -> Option<Slot> {
        for index in (0..self.scopes.len()).rev() {
            let scope = &self.scopes[index];
            if let Some(slot) = scope.names.get(name) {
                return Some(*slot);
            }
            if let Some(ty) = scope.in_run(name) {
                let slot = self.fresh(ty);
                self.scopes[index].names.insert(name, slot);
                return Some(slot);
            }
        }
        None
    }
}

/// The name that an expression is, where it is just that.
pub(super) fn plain_name<'a>(expression: &Expression<'a>) -> Option<&'a str> {
    match expression {
        Expression::Name {
            name,
            component: None,
        } => Some(name),
        _ => None,
    }
}
