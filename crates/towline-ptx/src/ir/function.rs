//! Bodies of functions: names resolved, statements in a row.

use std::collections::HashMap;
use std::sync::Arc;

use super::decode;
use super::eval::{Value, evaluate};
use super::fit::{Fit, fits};
use super::link::{self, Linker};
use super::matrix::SCRATCH_BYTES;
use super::op::{Address, Argument, Flag, Instruction, Op, Pred, Reg, Source, Special};
use super::scope::{Scopes, Slot, plain_name};
use super::{
    Body, Code, Constant, Error, Function, FunctionId, Limits, Parameter, ParameterPlace, Space,
    Symbol,
};
use crate::ptx::ast::{self, Expression, FunctionKind, StateSpace, Statement};
use crate::ptx::{Position, Type, layout};

/// Most instructions of a function. The largest that compilers write have a tenth of it.
const CODE_LIMIT: usize = 1 << 22;
/// Most registers of a function that are used.
const REGISTER_LIMIT: u32 = 1 << 18;
/// Most bytes of local memory, and of parameter space, of a function.
const FRAME_LIMIT: u64 = 1 << 24;

/// A function on its way from statements to instructions.
pub(super) struct Builder<'a, 'l> {
    linker: &'l mut Linker<'a>,
    module: usize,
    name: &'a str,
    pub(super) entry: bool,
    pub(super) scopes: Scopes<'a>,
    pub(super) code: Code,
    constants: HashMap<Constant, u32>,
    /// Lists of branch targets that were named, by their numbers.
    tables: HashMap<u32, Arc<[u32]>>,
    /// Where the next variable of parameter space goes, and the furthest that one went.
    parameter_bytes: u64,
    frame_bytes: u64,
    local_bytes: u64,
    /// Offset in local memory of the scratch of operations on matrices, if there are any.
    matrix_scratch: Option<u32>,
    /// The carry that instructions with `.cc` leave.
    carry: Option<Pred>,
    /// The instruction at hand,
    pub(super) at: Position,
    /// whether it may read special registers,
    pub(super) reads_special: bool,
    /// and whether names of variables stand for their addresses.
    pub(super) reads_addresses: bool,
}

fn limits(declared: &ast::Function<'_>) -> Limits {
    let has = |name: &str| declared.directives.iter().any(|one| one.name == name);
    Limits {
        most_threads: declared.extent("maxntid"),
        exact_threads: declared.extent("reqntid"),
        clusters: has("reqnctapercluster") && declared.extent("reqnctapercluster") != Some([1; 3]),
    }
}

/// Lays out parameters in parameter space behind `end`.
fn place(list: &[ast::Variable<'_>], end: &mut u64, at: Position) -> Result<Vec<Parameter>, Error> {
    list.iter()
        .map(|declared| {
            let refuse = || Error {
                at,
                message: format!("`{}` has no length", declared.name),
            };
            let len = layout::len(declared).ok_or_else(refuse)?;
            let align = layout::align(declared);
            let offset = end.checked_next_multiple_of(align).ok_or_else(refuse)?;
            let new_end = offset.checked_add(len).filter(|end| *end <= FRAME_LIMIT);
            *end = new_end.ok_or_else(refuse)?;
            Ok(Parameter {
                len: len as u32,
                align: align as u32,
                place: ParameterPlace::Memory(offset as u32),
            })
        })
        .collect()
}

/// What a declaration without a body says of a function.
pub(super) fn declare(function: &mut Function, declared: &ast::Function<'_>) -> Result<(), Error> {
    let mut end = 0;
    function.parameters = place(&declared.parameters, &mut end, declared.at.0)?;
    function.returns = place(&declared.returns, &mut end, declared.at.0)?;
    function.parameter_bytes = end as u32;
    function.frame_bytes = end as u32;
    function.limits = limits(declared);
    Ok(())
}

/// Gives a function its body, or the reason why it cannot have one.
pub(super) fn build<'a>(
    linker: &mut Linker<'a>,
    module: usize,
    number: usize,
    declared: &ast::Function<'a>,
) {
    let mut builder = Builder {
        linker,
        module,
        name: declared.name,
        entry: declared.kind == FunctionKind::Entry,
        scopes: Scopes::default(),
        code: Code::default(),
        constants: HashMap::new(),
        tables: HashMap::new(),
        parameter_bytes: 0,
        frame_bytes: 0,
        local_bytes: 0,
        matrix_scratch: None,
        carry: None,
        at: declared.at.0,
        reads_special: false,
        reads_addresses: false,
    };
    let built = builder.function(declared);
    let (parameter_bytes, frame_bytes) = (builder.parameter_bytes, builder.frame_bytes);
    let code = builder.code;
    let function = &mut linker.program.functions[number];
    function.limits = limits(declared);
    function.parameter_bytes = parameter_bytes as u32;
    function.frame_bytes = frame_bytes as u32;
    match built {
        Ok((parameters, returns)) => {
            function.parameters = parameters;
            function.returns = returns;
            function.body = Body::Code(code);
        }
        Err(error) => {
            // Its parameters are known to the host all the same.
            let mut end = 0;
            function.parameters =
                place(&declared.parameters, &mut end, declared.at.0).unwrap_or_default();
            function.body = Body::Refused(error);
        }
    }
}

impl<'a> Builder<'a, '_> {
    pub(super) fn refuse<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error {
            at: self.at,
            message: message.into(),
        })
    }

    fn function(
        &mut self,
        declared: &ast::Function<'a>,
    ) -> Result<(Vec<Parameter>, Vec<Parameter>), Error> {
        let body = declared.body.as_deref().unwrap_or_default();
        self.scopes.open(&[]);
        let parameters = self.formal(&declared.parameters)?;
        // A kernel's parameter block is what the host packs: nothing else is in it.
        let returns = self.formal(&declared.returns)?;
        self.block(body)?;
        self.emit(None, Op::Return)?;
        self.scopes.close();
        self.resolve_labels()?;
        self.code.registers = self.scopes.registers.len() as u32;
        self.code.predicates = self.scopes.predicates;
        self.code.local_bytes = self.local_bytes as u32;
        self.code.calls.sort_unstable();
        self.code.calls.dedup();
        self.code.variables.sort_unstable();
        self.code.variables.dedup();
        Ok((parameters, returns))
    }

    /// Parameters or results, each with its name.
    fn formal(&mut self, list: &[ast::Variable<'a>]) -> Result<Vec<Parameter>, Error> {
        let mut placed = Vec::new();
        for declared in list {
            let slot = match declared.space {
                StateSpace::Reg => {
                    let slot = self.scopes.fresh(declared.ty);
                    let place = match slot {
                        Slot::Pred(pred) => ParameterPlace::Predicate(pred),
                        Slot::Reg(reg) => ParameterPlace::Register(reg),
                        _ => return self.refuse("a parameter must be a register"),
                    };
                    placed.push(Parameter {
                        len: declared.ty.bytes() as u32,
                        align: 1,
                        place,
                    });
                    slot
                }
                _ => {
                    let at = self.at;
                    let mut end = self.parameter_bytes;
                    let mut one = place(std::slice::from_ref(declared), &mut end, at)?;
                    self.parameter_bytes = end;
                    self.frame_bytes = self.frame_bytes.max(end);
                    let Some(parameter) = one.pop() else {
                        continue;
                    };
                    placed.push(parameter);
                    let ParameterPlace::Memory(offset) = parameter.place else {
                        continue;
                    };
                    Slot::Parameter {
                        offset,
                        len: parameter.len,
                    }
                }
            };
            self.scopes.insert(declared.name, slot);
        }
        Ok(placed)
    }

    fn block(&mut self, statements: &[Statement<'a>]) -> Result<(), Error> {
        self.scopes.open(statements);
        // Variables of parameter space inside braces end with them, and others take their place.
        let outer = self.parameter_bytes;
        for statement in statements {
            match statement {
                Statement::Block(inner) => self.block(inner)?,
                Statement::Instruction(instruction) => {
                    self.at = instruction.at.0;
                    decode::instruction(self, instruction)?;
                }
                Statement::Label(name) => {
                    if let Some(Slot::Label(label)) = self.scopes.find(name) {
                        self.scopes.labels[label as usize] =
                            Some(self.code.instructions.len() as u32);
                    }
                }
                Statement::Variable(variable) => {
                    self.at = variable.at.0;
                    self.local_variable(variable)?;
                }
                Statement::Loc(_)
                | Statement::Pragma(_)
                | Statement::Prototype(_)
                | Statement::Targets { .. } => {}
            }
        }
        self.parameter_bytes = outer;
        self.scopes.close();
        Ok(())
    }

    fn local_variable(&mut self, declared: &ast::Variable<'a>) -> Result<(), Error> {
        match declared.space {
            StateSpace::Reg if declared.vector.is_some() => {
                self.refuse("vector registers are not supported")
            }
            _ if !self.scopes.is_new(declared.name) => {
                self.refuse(format!("`{}` is declared twice", declared.name))
            }
            StateSpace::Reg => {
                self.scopes.declare(declared);
                Ok(())
            }
            StateSpace::Param => {
                self.formal(std::slice::from_ref(declared))?;
                Ok(())
            }
            StateSpace::Local => {
                let len = layout::len(declared);
                let offset = self
                    .local_bytes
                    .checked_next_multiple_of(layout::align(declared));
                let (Some(offset), Some(len)) = (offset, len) else {
                    return self.refuse("a local variable without a length");
                };
                let end = offset.saturating_add(len);
                if end > FRAME_LIMIT {
                    return self.refuse(format!(
                        "{end} bytes of local memory are over the limit of {FRAME_LIMIT}"
                    ));
                }
                self.local_bytes = end;
                self.scopes
                    .insert(declared.name, Slot::Local(offset as u32));
                Ok(())
            }
            _ => {
                let name = format!("{}::{}", self.name, declared.name);
                let mut variable = link::variable(declared, name)?;
                if declared.initializer.is_some() {
                    let (bytes, relocations) = self.linker.contents(self.module, declared)?;
                    variable.bytes = bytes;
                    variable.relocations = relocations;
                }
                let id = self.linker.add(variable);
                self.scopes.insert(declared.name, Slot::Variable(id));
                Ok(())
            }
        }
    }

    pub(super) fn emit(&mut self, guard: Option<Flag>, op: Op) -> Result<(), Error> {
        if self.code.instructions.len() >= CODE_LIMIT {
            return self.refuse(format!("more than {CODE_LIMIT} instructions"));
        }
        let registers = self.scopes.registers.len() as u32;
        if registers.max(self.scopes.predicates) > REGISTER_LIMIT {
            return self.refuse(format!("more than {REGISTER_LIMIT} registers"));
        }
        self.code.instructions.push(Instruction {
            guard,
            op,
            at: self.at,
        });
        Ok(())
    }

    /// Numbers of labels become places in the code.
    fn resolve_labels(&mut self) -> Result<(), Error> {
        let labels = std::mem::take(&mut self.scopes.labels);
        let place = |label: &u32| labels.get(*label as usize).copied().flatten();
        // Instructions that name one list share it, before and after.
        let resolved: HashMap<_, Option<Arc<[u32]>>> = self
            .tables
            .values()
            .map(|table| (Arc::as_ptr(table), table.iter().map(place).collect()))
            .collect();
        for instruction in &mut self.code.instructions {
            let known = match &mut instruction.op {
                Op::Branch { target } => place(target).map(|place| *target = place),
                Op::BranchIndexed { targets, .. } => {
                    let table = resolved.get(&Arc::as_ptr(targets)).cloned().flatten();
                    table.map(|table| *targets = table)
                }
                _ => Some(()),
            };
            if known.is_none() {
                return Err(Error {
                    at: instruction.at,
                    message: "a branch to a label that is nowhere".into(),
                });
            }
        }
        Ok(())
    }

    /// A label that no name stands for.
    pub(super) fn fresh_label(&mut self) -> u32 {
        self.scopes.labels.push(None);
        self.scopes.labels.len() as u32 - 1
    }

    /// Has a label stand for what follows.
    pub(super) fn place_label(&mut self, label: u32) {
        let next = self.code.instructions.len() as u32;
        self.scopes.labels[label as usize] = Some(next);
    }

    /// The number of a label.
    pub(super) fn label(&mut self, expression: &Expression<'a>) -> Result<u32, Error> {
        let name = plain_name(expression);
        match name.and_then(|name| self.scopes.find(name)) {
            Some(Slot::Label(label)) => Ok(label),
            _ => self.refuse(format!("there is no label `{expression}`")),
        }
    }

    /// The numbers of the labels of a table.
    pub(super) fn table(&mut self, expression: &Expression<'a>) -> Result<Arc<[u32]>, Error> {
        let name = plain_name(expression);
        let Some(Slot::Table(table)) = name.and_then(|name| self.scopes.find(name)) else {
            return self.refuse(format!("there is no list of targets `{expression}`"));
        };
        if let Some(known) = self.tables.get(&table) {
            return Ok(Arc::clone(known));
        }
        let names = std::mem::take(&mut self.scopes.tables[table as usize]);
        let labels: Result<Arc<[u32]>, _> = names
            .iter()
            .map(|name| match self.scopes.find(name) {
                Some(Slot::Label(label)) => Ok(label),
                _ => self.refuse(format!("there is no label `{name}`")),
            })
            .collect();
        let labels = labels?;
        self.tables.insert(table, Arc::clone(&labels));
        Ok(labels)
    }

    /// What a name in a constant means.
    fn symbol(&mut self, name: &'a str) -> Option<Symbol> {
        match self.scopes.find(name) {
            Some(Slot::Variable(id)) => Some(Symbol::Variable(id)),
            Some(_) => None,
            None => self.linker.find(self.module, name),
        }
    }

    pub(super) fn function_of(&mut self, name: &'a str) -> Option<FunctionId> {
        match self.symbol(name) {
            Some(Symbol::Function(id)) => Some(id),
            _ => None,
        }
    }

    pub(super) fn evaluate(&mut self, expression: &Expression<'a>) -> Result<Value, Error> {
        let at = self.at;
        let value = evaluate(expression, &mut |name| self.symbol(name));
        value.map_err(|message| Error { at, message })
    }

    pub(super) fn constant(&mut self, constant: Constant) -> Source {
        let next = self.code.constants.len() as u32;
        let index = *self.constants.entry(constant).or_insert(next);
        if index == next {
            self.code.constants.push(constant);
            if let Constant::Address {
                symbol: Symbol::Variable(id),
                ..
            } = constant
            {
                self.code.variables.push(id);
            }
        }
        Source::Constant(index)
    }

    pub(super) fn bits(&mut self, bits: u64) -> Source {
        self.constant(Constant::Bits(bits))
    }

    /// The number that a source is, if it is one.
    pub(super) fn known(&self, source: Source) -> Option<u64> {
        let Source::Constant(index) = source else {
            return None;
        };
        match self.code.constants.get(index as usize) {
            Some(Constant::Bits(bits)) => Some(*bits),
            _ => None,
        }
    }

    /// A register that no name stands for.
    pub(super) fn scratch(&mut self) -> Reg {
        self.scopes.register(Type::B64)
    }

    /// A predicate that no name stands for.
    pub(super) fn scratch_flag(&mut self) -> Pred {
        self.scopes.predicate()
    }

    /// The scratch of operations on matrices: one for all of the function, as none outlives its instruction.
    pub(super) fn matrix_scratch(&mut self) -> u32 {
        let next = self.local_bytes.next_multiple_of(16);
        *self.matrix_scratch.get_or_insert_with(|| {
            self.local_bytes = next + u64::from(SCRATCH_BYTES);
            next as u32
        })
    }

    /// The carry that `.cc` leaves.
    pub(super) fn carry(&mut self) -> Pred {
        match self.carry {
            Some(carry) => carry,
            None => {
                let carry = self.scopes.predicate();
                self.carry = Some(carry);
                carry
            }
        }
    }

    /// A register to write to, for a value of this type.
    pub(super) fn reg(&mut self, expression: &Expression<'a>, ty: Type) -> Result<Reg, Error> {
        self.fitting_reg(expression, ty, Fit::Same)
    }

    /// The same, where the register must fit less closely.
    pub(super) fn fitting_reg(
        &mut self,
        expression: &Expression<'a>,
        ty: Type,
        fit: Fit,
    ) -> Result<Reg, Error> {
        let name = plain_name(expression);
        match name.and_then(|name| self.scopes.find(name)) {
            Some(Slot::Reg(reg)) => {
                self.check_fit(expression, reg, ty, fit)?;
                Ok(reg)
            }
            _ => self.refuse(format!("`{expression}` is no register")),
        }
    }

    fn check_fit(
        &self,
        expression: &Expression<'a>,
        reg: Reg,
        ty: Type,
        fit: Fit,
    ) -> Result<(), Error> {
        let declared = self.scopes.registers[reg.0 as usize];
        match fits(declared, ty, fit) {
            true => Ok(()),
            false => self.refuse(format!(
                "`{expression}` is a register of type {declared}, where one for {ty} must stand"
            )),
        }
    }

    /// Whether this names a register.
    pub(super) fn is_register(&mut self, expression: &Expression<'a>) -> bool {
        let slot = plain_name(expression).and_then(|name| self.scopes.find(name));
        matches!(slot, Some(Slot::Reg(_)))
    }

    /// Whether this names a predicate.
    pub(super) fn is_predicate(&mut self, expression: &Expression<'a>) -> bool {
        let slot = plain_name(expression).and_then(|name| self.scopes.find(name));
        matches!(slot, Some(Slot::Pred(_)))
    }

    /// A register to write to, or `_`.
    pub(super) fn maybe_reg(
        &mut self,
        expression: &Expression<'a>,
        ty: Type,
        fit: Fit,
    ) -> Result<Option<Reg>, Error> {
        match plain_name(expression) {
            Some("_") => Ok(None),
            _ => self.fitting_reg(expression, ty, fit).map(Some),
        }
    }

    /// A predicate to write to.
    pub(super) fn pred(&mut self, expression: &Expression<'a>) -> Result<Pred, Error> {
        let name = plain_name(expression);
        match name.and_then(|name| self.scopes.find(name)) {
            Some(Slot::Pred(pred)) => Ok(pred),
            _ => self.refuse(format!("`{expression}` is no predicate")),
        }
    }

    /// A predicate to write to, or `_`.
    pub(super) fn maybe_pred(
        &mut self,
        expression: &Expression<'a>,
    ) -> Result<Option<Pred>, Error> {
        match plain_name(expression) {
            Some("_") => Ok(None),
            _ => self.pred(expression).map(Some),
        }
    }

    /// `d|p`: two destinations, or one.
    pub(super) fn pair<'e>(
        &self,
        expression: &'e Expression<'a>,
    ) -> (&'e Expression<'a>, Option<&'e Expression<'a>>) {
        match expression {
            Expression::Binary {
                operator: "|",
                sides,
            } => (&sides[0], Some(&sides[1])),
            other => (other, None),
        }
    }

    /// A truth value to read: a predicate, its opposite, or a constant.
    pub(super) fn flag(&mut self, expression: &Expression<'a>) -> Result<Flag, Error> {
        match expression {
            Expression::Unary {
                operator: "!",
                operand,
            } => Ok(match self.flag(operand)? {
                Flag::Known(truth) => Flag::Known(!truth),
                Flag::Pred(pred) => Flag::Not(pred),
                Flag::Not(pred) => Flag::Pred(pred),
            }),
            Expression::Name { .. } => self.pred(expression).map(Flag::Pred),
            _ => match self.evaluate(expression)? {
                Value::Int(value, _) => Ok(Flag::Known(value != 0)),
                _ => self.refuse(format!("`{expression}` is no predicate")),
            },
        }
    }

    /// A value of this type to read.
    pub(super) fn source(
        &mut self,
        expression: &Expression<'a>,
        ty: Type,
    ) -> Result<Source, Error> {
        self.fitting_source(expression, ty, Fit::Same)
    }

    /// An integer of 32 bits to read: a count, a position, a mask.
    pub(super) fn count(&mut self, expression: &Expression<'a>) -> Result<Source, Error> {
        self.fitting_source(expression, Type::U32, Fit::Count)
    }

    /// The same, with numbers up to 255 only.
    pub(super) fn small_count(&mut self, expression: &Expression<'a>) -> Result<Source, Error> {
        let source = self.count(expression)?;
        match self.known(source) {
            Some(256..) => self.refuse(format!("`{expression}` is above 255")),
            _ => Ok(source),
        }
    }

    /// The same, where a register must fit less closely.
    pub(super) fn fitting_source(
        &mut self,
        expression: &Expression<'a>,
        ty: Type,
        fit: Fit,
    ) -> Result<Source, Error> {
        if let Expression::Name { name, component } = expression {
            if let Some(which) = special(name, *component) {
                if !self.reads_special {
                    return self.refuse(format!("`{expression}` is read by `mov` and `cvt` alone"));
                }
                if !which.fits(ty, fit == Fit::Wide) {
                    return self.refuse(format!("`{expression}` has not the bits of {ty}"));
                }
                return self.special(which);
            }
            if component.is_none() {
                match self.scopes.find(name) {
                    Some(Slot::Reg(reg)) => {
                        self.check_fit(expression, reg, ty, fit)?;
                        return Ok(Source::Reg(reg));
                    }
                    Some(Slot::Parameter { .. } | Slot::Local(_))
                        if !self.reads_addresses && fit != Fit::Base =>
                    {
                        let message = format!("`{expression}` is an address: `mov` has to get it");
                        return self.refuse(message);
                    }
                    Some(Slot::Parameter { offset, .. }) => return Ok(self.bits(offset.into())),
                    Some(Slot::Local(offset)) => return self.local_address(offset),
                    Some(Slot::Variable(_)) | None => {}
                    Some(_) => return self.refuse(format!("`{expression}` is no value")),
                }
            } else {
                return self.refuse(format!("`{expression}` is not known"));
            }
        }
        match self.evaluate(expression)? {
            Value::Address { .. } if !self.reads_addresses && fit != Fit::Base => {
                self.refuse(format!("`{expression}` is an address: `mov` has to get it"))
            }
            Value::Address {
                symbol,
                addend,
                generic,
                byte: None,
            } => Ok(self.constant(Constant::Address {
                symbol,
                addend,
                generic,
            })),
            value => match value.bits(ty) {
                Some(bits) => Ok(self.bits(bits)),
                None => self.refuse(format!("`{expression}` is no value of type {ty}")),
            },
        }
    }

    fn special(&mut self, which: Special) -> Result<Source, Error> {
        let d = self.scopes.register(Type::B64);
        self.emit(None, Op::Special { d, which })?;
        Ok(Source::Reg(d))
    }

    fn local_address(&mut self, offset: u32) -> Result<Source, Error> {
        let d = self.scopes.register(Type::B64);
        self.emit(None, Op::LocalAddress { d, offset })?;
        Ok(Source::Reg(d))
    }

    /// `[base + offset]`
    pub(super) fn address(
        &mut self,
        expression: &Expression<'a>,
        space: Space,
    ) -> Result<Address, Error> {
        let inner = match expression {
            Expression::Address(list) => match list.as_slice() {
                [one] => one,
                _ => return self.refuse("an address has one part"),
            },
            _ => return self.refuse(format!("`{expression}` is no address")),
        };
        if let Expression::Binary { operator, sides } = inner {
            let [base, offset] = &**sides;
            let sign = match *operator {
                "+" => 1,
                "-" => -1,
                _ => return self.refuse(format!("`{expression}` is no address")),
            };
            let offset = match self.evaluate(offset)? {
                Value::Int(value, _) => (value as i64).wrapping_mul(sign),
                _ => return self.refuse(format!("`{expression}` is no address")),
            };
            let base = self.base(base, space)?;
            return Ok(Address { base, offset });
        }
        let base = self.base(inner, space)?;
        Ok(Address { base, offset: 0 })
    }

    fn base(&mut self, expression: &Expression<'a>, space: Space) -> Result<Source, Error> {
        if let Some(own) = self.space_of(expression)
            && space != Space::Generic
            && space != own
        {
            return self.refuse(format!(
                "`{expression}` lies in {own} memory, not in {space}"
            ));
        }
        let source = self.fitting_source(expression, Type::U64, Fit::Base)?;
        // A name in a generic access stands for its generic address.
        if let (Source::Constant(index), Space::Generic) = (source, space)
            && let Some(&Constant::Address { symbol, addend, .. }) =
                self.code.constants.get(index as usize)
        {
            return Ok(self.constant(Constant::Address {
                symbol,
                addend,
                generic: true,
            }));
        }
        Ok(source)
    }

    /// The state space of what an address names.
    pub(super) fn space_of(&mut self, expression: &Expression<'a>) -> Option<Space> {
        let name = plain_name(expression)?;
        let symbol = match self.scopes.find(name) {
            Some(Slot::Local(_)) => return Some(Space::Local),
            Some(Slot::Parameter { .. }) => return Some(Space::Param),
            Some(Slot::Variable(id)) => Symbol::Variable(id),
            Some(_) => return None,
            None => self.linker.find(self.module, name)?,
        };
        match symbol {
            Symbol::Variable(id) => Some(self.linker.program.variable(id)?.space),
            Symbol::Function(_) => None,
        }
    }

    /// An argument or result of a call.
    pub(super) fn argument(&mut self, expression: &Expression<'a>) -> Result<Argument, Error> {
        if let Some(name) = plain_name(expression) {
            match self.scopes.find(name) {
                Some(Slot::Parameter { offset, len }) => {
                    return Ok(Argument::Memory { offset, len });
                }
                Some(Slot::Pred(pred)) => return Ok(Argument::Flag(Flag::Pred(pred))),
                _ => {}
            }
        }
        let value = self.fitting_source(expression, Type::B64, Fit::Any)?;
        Ok(Argument::Value(value, 8))
    }
}

impl Special {
    /// Whether it can be read as this type: those of 64 bits, those of 32, of which some go into 16. What converts takes parts.
    fn fits(self, ty: Type, converts: bool) -> bool {
        let bits = match self {
            Special::Clock64 | Special::GlobalTimer => &[64][..],
            Special::GridId => &[16, 32, 64],
            Special::Tid(_) | Special::Ntid(_) | Special::Ctaid(_) | Special::Nctaid(_) => {
                &[16, 32]
            }
            Special::Zero => &[16, 32],
            _ => &[32],
        };
        let part = converts && bits.last().is_some_and(|most| ty.bits() <= *most);
        !ty.is_float() && (part || bits.contains(&ty.bits()))
    }
}

/// The special register of this name.
fn special(name: &str, component: Option<&str>) -> Option<Special> {
    let name = name.strip_prefix('%')?;
    let index = match component {
        None => None,
        Some("x") => Some(0),
        Some("y") => Some(1),
        Some("z") => Some(2),
        Some("w") => Some(3),
        Some(_) => return None,
    };
    Some(match (name, index) {
        ("tid", Some(3)) | ("ctaid", Some(3)) => Special::Zero,
        ("tid", Some(index)) => Special::Tid(index),
        ("ntid", Some(index @ 0..3)) => Special::Ntid(index),
        ("ctaid", Some(index)) => Special::Ctaid(index),
        ("nctaid", Some(index @ 0..3)) => Special::Nctaid(index),
        ("laneid", None) => Special::LaneId,
        ("warpid", None) => Special::WarpId,
        ("nwarpid", None) => Special::Nwarpid,
        ("smid", None) => Special::SmId,
        ("nsmid", None) => Special::Nsmid,
        ("gridid", None) => Special::GridId,
        ("lanemask_eq", None) => Special::LaneMaskEq,
        ("lanemask_le", None) => Special::LaneMaskLe,
        ("lanemask_lt", None) => Special::LaneMaskLt,
        ("lanemask_ge", None) => Special::LaneMaskGe,
        ("lanemask_gt", None) => Special::LaneMaskGt,
        ("clock", None) => Special::Clock,
        ("clock_hi", None) => Special::ClockHi,
        ("clock64", None) => Special::Clock64,
        ("globaltimer", None) => Special::GlobalTimer,
        ("globaltimer_lo", None) => Special::GlobalTimerLo,
        ("globaltimer_hi", None) => Special::GlobalTimerHi,
        ("dynamic_smem_size", None) => Special::DynamicSharedBytes,
        ("total_smem_size", None) | ("aggr_smem_size", None) => Special::TotalSharedBytes,
        // Clusters have one block.
        ("clusterid", Some(3)) => Special::Zero,
        ("clusterid", Some(index)) => Special::Ctaid(index),
        ("nclusterid", Some(index @ 0..3)) => Special::Nctaid(index),
        ("cluster_ctaid", Some(_)) | ("cluster_ctarank", None) => Special::Zero,
        ("cluster_nctaid", Some(0..3)) | ("cluster_nctarank", None) => Special::One,
        // Nothing is reserved.
        (name, None) if name.starts_with("reserved_smem_offset_") => Special::Zero,
        (name, None) => {
            let number = name.strip_prefix("envreg")?.parse().ok()?;
            match number {
                0..32 => Special::Envreg(number),
                _ => return None,
            }
        }
        _ => return None,
    })
}
