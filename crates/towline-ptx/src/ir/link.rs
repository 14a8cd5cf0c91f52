//! Modules put together: which definition each name means, what variables hold.

use std::collections::HashMap;

use super::eval::{Value, evaluate};
use super::function;
use super::op::{Argument, Callee, Op};
use super::{
    Body, Error, Function, FunctionId, Limits, Parameter, ParameterPlace, Program, Relocation,
    Space, Symbol, Variable, VariableId,
};
use crate::ptx::ast::{self, Expression, FunctionKind, Item, Linkage, StateSpace};
use crate::ptx::{Module, Position, Type, layout};

/// Most bytes of a variable: more than any device has.
const VARIABLE_LIMIT: u64 = 1 << 40;
/// Largest alignment of a variable.
const ALIGNMENT_LIMIT: u64 = 1 << 16;
/// Most bytes that initializers may reach in all: a short text can put one value far into a large array.
const CONTENTS_LIMIT: u64 = 1 << 28;

/// The program so far, and what each module's names mean.
pub(super) struct Linker<'a> {
    pub(super) program: Program,
    /// Names that all modules see.
    shared: HashMap<&'a str, Symbol>,
    /// Names of one module.
    own: Vec<HashMap<&'a str, Symbol>>,
    /// Definitions that others may replace: weak and common ones.
    replaceable: HashMap<Symbol, Linkage>,
    /// Bytes that initializers may still reach.
    room: u64,
}

fn refuse<T>(at: Position, message: impl Into<String>) -> Result<T, Error> {
    Err(Error {
        at,
        message: message.into(),
    })
}

impl Program {
    /// Puts modules together.
    ///
    /// ```
    /// use towline_ptx::{ir::Program, ptx::Module};
    ///
    /// let module = Module::parse(".version 8.0 .target sm_75 .visible .entry nothing() { ret; }")?;
    /// let program = Program::link(&[module])?;
    /// assert!(program.kernel("nothing").is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn link(modules: &[Module<'_>]) -> Result<Self, Error> {
        let mut linker = Linker {
            program: Program::default(),
            shared: HashMap::new(),
            own: vec![HashMap::new(); modules.len()],
            replaceable: HashMap::new(),
            room: CONTENTS_LIMIT,
        };
        // Definitions wait until all names are known.
        let mut variables = Vec::new();
        let mut functions = Vec::new();
        for (module, tree) in modules.iter().enumerate() {
            for item in &tree.items {
                match item {
                    Item::Variable(declared) => {
                        if let Some(number) = linker.variable(module, declared)? {
                            variables.push((module, number, declared));
                        }
                    }
                    Item::Function(declared) => {
                        if let Some(number) = linker.function(module, declared)? {
                            functions.push((module, number, declared));
                        }
                    }
                    _ => {}
                }
            }
            for item in &tree.items {
                if let Item::Alias { name, function } = item {
                    let Some(symbol) = linker.find(module, function) else {
                        let at = Position { line: 1, column: 1 };
                        return refuse(at, format!("`.alias` of `{function}`, which is nowhere"));
                    };
                    linker.alias(module, name, symbol);
                }
            }
        }
        for (module, number, declared) in variables {
            let (bytes, relocations) = linker.contents(module, declared)?;
            let variable = &mut linker.program.variables[number];
            variable.bytes = bytes;
            variable.relocations = relocations;
        }
        for (module, number, declared) in functions {
            function::build(&mut linker, module, number, declared);
        }
        linker.program.check_calls();
        Ok(linker.program)
    }

    /// Refuses functions that call others with arguments that those do not take: what they take is known once all are built.
    fn check_calls(&mut self) {
        let wrong: Vec<_> = (0..)
            .zip(&self.functions)
            .filter_map(|(number, function)| Some((number, self.wrong_call(function)?)))
            .collect();
        for (number, error) in wrong {
            let number: usize = number;
            self.functions[number].body = Body::Refused(error);
        }
    }

    fn wrong_call(&self, function: &Function) -> Option<Error> {
        let Body::Code(code) = &function.body else {
            return None;
        };
        code.instructions.iter().find_map(|instruction| {
            let Op::Call(call) = &instruction.op else {
                return None;
            };
            let Callee::Function(id) = call.callee else {
                return None;
            };
            let callee = self.function(id)?;
            // What a refused function returns is not known.
            let returns =
                matches!(callee.body, Body::Refused(_)) || fit(&call.returns, &callee.returns);
            let message = match fit(&call.arguments, &callee.parameters) && returns {
                _ if callee.entry => format!("`{}` is a kernel, which nothing calls", callee.name),
                true => return None,
                false => format!("`{}` is called with what it does not take", callee.name),
            };
            let at = instruction.at;
            Some(Error { at, message })
        })
    }
}

/// Whether what a call passes is as much as there is to take, and of that length where that can be told.
fn fit(arguments: &[Argument], parameters: &[Parameter]) -> bool {
    let mut pairs = arguments.iter().zip(parameters);
    let same_len = |(argument, parameter): (&Argument, &Parameter)| match argument {
        Argument::Memory { len, .. } => *len == parameter.len,
        // An array is no register's value.
        Argument::Value(..) => {
            let in_memory = matches!(parameter.place, ParameterPlace::Memory(_));
            !in_memory || matches!(parameter.len, 1 | 2 | 4 | 8 | 16)
        }
        Argument::Flag(_) => true,
    };
    arguments.len() == parameters.len() && pairs.all(same_len)
}

impl<'a> Linker<'a> {
    /// What a name means in a module.
    pub(super) fn find(&self, module: usize, name: &str) -> Option<Symbol> {
        let own = self.own.get(module).and_then(|names| names.get(name));
        own.or_else(|| self.shared.get(name)).copied()
    }

    /// Enters a variable; gives its number when this is its definition.
    fn variable(
        &mut self,
        module: usize,
        declared: &ast::Variable<'a>,
    ) -> Result<Option<usize>, Error> {
        let at = declared.at.0;
        let name = declared.name;
        let public = declared.linkage.is_some();
        let entered = match public {
            true => self.shared.get(name).copied(),
            false => self.own[module].get(name).copied(),
        };
        let variable = variable(declared, name.to_owned())?;
        match entered {
            None => {
                let id = self.add(variable);
                let symbol = Symbol::Variable(id);
                let names = match public {
                    true => &mut self.shared,
                    false => &mut self.own[module],
                };
                names.insert(name, symbol);
                self.define(symbol, declared.linkage);
                Ok(Some(id.0 as usize))
            }
            Some(Symbol::Function(_)) => refuse(at, format!("`{name}` is a function already")),
            Some(symbol @ Symbol::Variable(id)) => {
                let known = &mut self.program.variables[id.0 as usize];
                let before = self.replaceable.get(&symbol);
                let replaces = match (before, declared.linkage) {
                    (_, Some(Linkage::Extern)) => false,
                    _ if known.external => true,
                    (Some(Linkage::Common), Some(Linkage::Common)) => variable.len > known.len,
                    (_, Some(Linkage::Weak | Linkage::Common)) => false,
                    (Some(_), _) => true,
                    (None, _) => return refuse(at, format!("`{name}` is defined twice")),
                };
                if !replaces {
                    return Ok(None);
                }
                *known = variable;
                self.define(symbol, declared.linkage);
                Ok(Some(id.0 as usize))
            }
        }
    }

    /// Notes whether another definition may replace this one.
    fn define(&mut self, symbol: Symbol, linkage: Option<Linkage>) {
        match linkage {
            Some(linkage @ (Linkage::Weak | Linkage::Common)) => {
                self.replaceable.insert(symbol, linkage)
            }
            _ => self.replaceable.remove(&symbol),
        };
    }

    /// Enters another name of a function, for all modules unless it is this one's own or has a body already.
    fn alias(&mut self, module: usize, name: &'a str, symbol: Symbol) {
        if self.own[module].insert(name, symbol).is_some() {
            return;
        }
        let shared = self.shared.entry(name).or_insert(symbol);
        if let Symbol::Function(id) = *shared
            && let Some(known) = self.program.function(id)
            && matches!(known.body, Body::Declared)
        {
            *shared = symbol;
        }
    }

    pub(super) fn add(&mut self, variable: Variable) -> VariableId {
        self.program.variables.push(variable);
        VariableId(self.program.variables.len() as u32 - 1)
    }

    /// Enters a function; gives its number when this is its definition.
    fn function(
        &mut self,
        module: usize,
        declared: &ast::Function<'a>,
    ) -> Result<Option<usize>, Error> {
        let at = declared.at.0;
        let name = declared.name;
        let public = declared.linkage.is_some() || declared.kind == FunctionKind::Entry;
        let entered = match public {
            true => self.shared.get(name).copied(),
            false => self.own[module].get(name).copied(),
        };
        let id = match entered {
            Some(Symbol::Variable(_)) => {
                return refuse(at, format!("`{name}` is a variable already"));
            }
            Some(Symbol::Function(id)) => id,
            None => {
                let id = FunctionId(self.program.functions.len() as u32);
                self.program.functions.push(Function {
                    name: name.to_owned(),
                    entry: declared.kind == FunctionKind::Entry,
                    visible: public,
                    at,
                    parameters: Vec::new(),
                    returns: Vec::new(),
                    parameter_bytes: 0,
                    frame_bytes: 0,
                    limits: Limits::default(),
                    body: Body::Declared,
                });
                let names = match public {
                    true => &mut self.shared,
                    false => &mut self.own[module],
                };
                names.insert(name, Symbol::Function(id));
                id
            }
        };
        let known = &mut self.program.functions[id.0 as usize];
        if declared.body.is_none() {
            if known.parameters.is_empty() && matches!(known.body, Body::Declared) {
                function::declare(known, declared)?;
            }
            return Ok(None);
        }
        let symbol = Symbol::Function(id);
        if !matches!(known.body, Body::Declared) {
            match declared.linkage {
                Some(Linkage::Weak) => return Ok(None),
                _ if self.replaceable.contains_key(&symbol) => {}
                _ => return refuse(at, format!("`{name}` is defined twice")),
            }
        }
        known.at = at;
        known.entry = declared.kind == FunctionKind::Entry;
        // Holds the place until all names are known.
        known.body = Body::Refused(Error {
            at,
            message: format!("`{name}` has no code"),
        });
        self.define(symbol, declared.linkage);
        Ok(Some(id.0 as usize))
    }

    /// What a variable holds at first.
    pub(super) fn contents(
        &mut self,
        module: usize,
        declared: &ast::Variable<'a>,
    ) -> Result<(Vec<u8>, Vec<Relocation>), Error> {
        let mut contents = Contents {
            linker: self,
            module,
            ty: declared.ty,
            at: declared.at.0,
            limit: layout::len(declared).unwrap_or(u64::MAX).min(self.room),
            bytes: Vec::new(),
            relocations: Vec::new(),
        };
        let initializer = declared.initializer.as_ref();
        if let Some(initializer) = initializer.filter(|_| !is_object(declared)) {
            let mut shape: Vec<u64> = declared
                .dimensions
                .iter()
                .map(|dimension| dimension.unwrap_or(u64::MAX))
                .collect();
            shape.extend(declared.vector.map(u64::from));
            contents.fill(initializer, 0, &shape)?;
        }
        let (bytes, relocations) = (contents.bytes, contents.relocations);
        self.room -= bytes.len() as u64;
        Ok((bytes, relocations))
    }
}

/// A variable as it is declared, without its contents.
pub(super) fn variable(declared: &ast::Variable<'_>, name: String) -> Result<Variable, Error> {
    let at = declared.at.0;
    let space = match declared.space {
        StateSpace::Const => Space::Const,
        StateSpace::Global => Space::Global,
        StateSpace::Shared => Space::Shared,
        // A texture of old.
        StateSpace::Tex => Space::Global,
        other => return refuse(at, format!("`{other}` cannot stand outside of a function")),
    };
    let len = match (layout::len(declared), &declared.initializer) {
        (Some(len), _) => len,
        (None, Some(Expression::Vector(values))) => declared.ty.bytes() * values.len() as u64,
        (None, _) => 0,
    };
    if layout::align(declared) > ALIGNMENT_LIMIT {
        return refuse(
            at,
            format!("`{name}` is aligned to more than {ALIGNMENT_LIMIT}"),
        );
    }
    if len > VARIABLE_LIMIT {
        return refuse(
            at,
            format!("`{name}` has {len} bytes, more than any device"),
        );
    }
    Ok(Variable {
        name,
        space,
        len,
        align: layout::align(declared),
        visible: declared.linkage.is_some(),
        external: declared.linkage == Some(Linkage::Extern),
        object: match declared.space {
            StateSpace::Tex => Some(Type::TexRef),
            _ => is_object(declared).then_some(declared.ty),
        },
        settings: settings(declared),
        managed: declared.is_managed(),
        bytes: Vec::new(),
        relocations: Vec::new(),
    })
}

/// Whether a variable stands for a texture, sampler or surface.
fn is_object(declared: &ast::Variable<'_>) -> bool {
    matches!(declared.ty, Type::TexRef | Type::SamplerRef | Type::SurfRef)
}

/// The first contents of such a variable.
fn settings(declared: &ast::Variable<'_>) -> Vec<(String, String)> {
    let Some(Expression::Vector(settings)) = &declared.initializer else {
        return Vec::new();
    };
    let pairs = settings.iter().filter_map(|setting| match setting {
        Expression::Binary {
            operator: "=",
            sides,
        } => Some((sides[0].to_string(), sides[1].to_string())),
        _ => None,
    });
    pairs.collect()
}

/// An initializer on its way into bytes.
struct Contents<'a, 'l> {
    linker: &'l Linker<'a>,
    module: usize,
    ty: Type,
    at: Position,
    limit: u64,
    bytes: Vec<u8>,
    relocations: Vec<Relocation>,
}

impl<'a> Contents<'a, '_> {
    fn fill(&mut self, value: &Expression<'a>, offset: u64, shape: &[u64]) -> Result<(), Error> {
        let element = self.ty.bytes();
        if let Expression::Vector(values) = value {
            let inner: &[u64] = shape.split_first().map_or(&[], |(_, inner)| inner);
            let step = inner
                .iter()
                .try_fold(element, |product, length| product.checked_mul(*length));
            let flat = shape.len() > 1 && !matches!(values.first(), Some(Expression::Vector(_)));
            for (index, value) in values.iter().enumerate() {
                let step = if flat { Some(element) } else { step };
                let at = step
                    .and_then(|step| step.checked_mul(index as u64))
                    .and_then(|distance| distance.checked_add(offset));
                match at {
                    Some(at) => self.fill(value, at, if flat { &[] } else { inner })?,
                    None => return refuse(self.at, "an initializer is too long"),
                }
            }
            return Ok(());
        }
        let end = offset.saturating_add(element);
        if end > self.limit {
            return refuse(self.at, "an initializer is longer than its variable");
        }
        let (linker, module) = (self.linker, self.module);
        let found = evaluate(value, &mut |name| linker.find(module, name));
        let value = found.or_else(|message| refuse(self.at, message))?;
        if self.bytes.len() < end as usize {
            self.bytes.resize(end as usize, 0);
        }
        if let Value::Address {
            symbol,
            addend,
            generic,
            byte,
        } = value
        {
            let len = if byte.is_some() { 1 } else { element as u8 };
            self.relocations.push(Relocation {
                offset,
                len,
                shift: byte.unwrap_or(0),
                symbol,
                addend,
                generic,
            });
            return Ok(());
        }
        let Some(bits) = value.bits(self.ty) else {
            return refuse(
                self.at,
                "an integer cannot initialize a floating-point number",
            );
        };
        let bytes = bits.to_le_bytes();
        let places = self.bytes.iter_mut().skip(offset as usize);
        for (place, byte) in places.take(element as usize).zip(bytes) {
            *place = byte;
        }
        Ok(())
    }
}
