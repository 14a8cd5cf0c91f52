//! Printing the tree as PTX.

use std::fmt::{self, Display, Formatter, Write};

use super::ast::{
    Attribute, Directive, Expression, File, Function, FunctionKind, Instruction, Item, Loc, Module,
    Prototype, Statement, Variable,
};

/// Items with commas between.
struct Commas<'t, T>(&'t [T], &'static str);

impl<T: Display> Display for Commas<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(self.1)?;
            }
            item.fmt(f)?;
        }
        Ok(())
    }
}

/// A string in its quotes.
struct Quoted<'t>(&'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

fn quoted<'t>(texts: &[&'t str]) -> Vec<Quoted<'t>> {
    texts.iter().map(|text| Quoted(text)).collect()
}

impl Display for Module<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version;
        writeln!(f, ".version {major}.{minor}")?;
        writeln!(f, ".target {}", Commas(&self.target, ", "))?;
        if let Some(size) = self.address_size {
            writeln!(f, ".address_size {size}")?;
        }
        for item in &self.items {
            write!(f, "\n{item}\n")?;
        }
        Ok(())
    }
}

impl Display for Item<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Item::Alias { name, function } => write!(f, ".alias {name}, {function};"),
            Item::File(File { index, name, stamp }) => {
                write!(f, ".file {index} {}", Quoted(name))?;
                match stamp {
                    Some((time, len)) => write!(f, ", {time}, {len}"),
                    None => Ok(()),
                }
            }
            Item::Function(function) => function.fmt(f),
            Item::Pragma(texts) => write!(f, ".pragma {};", Commas(&quoted(texts), ", ")),
            Item::Section { name, contents } => write!(f, ".section .{name}\n{{\n{contents}\n}}"),
            Item::Variable(variable) => write!(f, "{variable};"),
        }
    }
}

/// Without the semicolon: a parameter has none.
impl Display for Variable<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(linkage) = self.linkage {
            write!(f, "{linkage} ")?;
        }
        write!(f, "{} ", self.space)?;
        if !self.attributes.is_empty() {
            write!(f, ".attribute({}) ", Commas(&self.attributes, ", "))?;
        }
        if let Some(align) = self.align {
            write!(f, ".align {align} ")?;
        }
        if let Some(count) = self.vector {
            write!(f, ".v{count} ")?;
        }
        write!(f, "{} ", self.ty)?;
        if let Some(pointer) = self.pointer {
            f.write_str(".ptr ")?;
            if let Some(space) = pointer.space {
                write!(f, ".{space} ")?;
            }
            if let Some(align) = pointer.align {
                write!(f, ".align {align} ")?;
            }
        }
        f.write_str(self.name)?;
        if let Some(count) = self.count {
            write!(f, "<{count}>")?;
        }
        for length in &self.dimensions {
            match length {
                Some(length) => write!(f, "[{length}]")?,
                None => f.write_str("[]")?,
            }
        }
        match &self.initializer {
            Some(value) => write!(f, " = {value}"),
            None => Ok(()),
        }
    }
}

impl Display for Attribute<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name)?;
        match self.arguments.is_empty() {
            true => Ok(()),
            false => write!(f, "({})", Commas(&self.arguments, ", ")),
        }
    }
}

impl Display for Function<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(linkage) = self.linkage {
            write!(f, "{linkage} ")?;
        }
        f.write_str(match self.kind {
            FunctionKind::Entry => ".entry ",
            FunctionKind::Func => ".func ",
        })?;
        if !self.attributes.is_empty() {
            write!(f, ".attribute({}) ", Commas(&self.attributes, ", "))?;
        }
        if !self.returns.is_empty() {
            write!(f, "({}) ", Commas(&self.returns, ", "))?;
        }
        f.write_str(self.name)?;
        match self.parameters.is_empty() {
            true => f.write_str("()")?,
            false => write!(f, "(\n\t{}\n)", Commas(&self.parameters, ",\n\t"))?,
        }
        for directive in &self.directives {
            write!(f, "\n{directive}")?;
        }
        match &self.body {
            None => f.write_char(';'),
            Some(body) => {
                f.write_char('\n')?;
                block(f, body, 0)
            }
        }
    }
}

impl Display for Directive<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name)?;
        if !self.arguments.is_empty() {
            write!(f, " {}", Commas(&self.arguments, ", "))?;
        }
        match self.name {
            "pragma" => f.write_char(';'),
            _ => Ok(()),
        }
    }
}

fn indent(f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
    (0..depth).try_for_each(|_| f.write_char('\t'))
}

fn block(f: &mut Formatter<'_>, statements: &[Statement<'_>], depth: usize) -> fmt::Result {
    f.write_str("{\n")?;
    for statement in statements {
        match statement {
            Statement::Label(_) => indent(f, depth)?,
            _ => indent(f, depth + 1)?,
        }
        print(f, statement, depth + 1)?;
        f.write_char('\n')?;
    }
    indent(f, depth)?;
    f.write_char('}')
}

fn print(f: &mut Formatter<'_>, statement: &Statement<'_>, depth: usize) -> fmt::Result {
    match statement {
        Statement::Block(statements) => block(f, statements, depth),
        Statement::Instruction(instruction) => instruction.fmt(f),
        Statement::Label(name) => write!(f, "{name}:"),
        Statement::Loc(loc) => loc.fmt(f),
        Statement::Pragma(texts) => write!(f, ".pragma {};", Commas(&quoted(texts), ", ")),
        Statement::Prototype(prototype) => prototype.fmt(f),
        Statement::Targets { directive, names } => {
            write!(f, ".{directive} {};", Commas(names, ", "))
        }
        Statement::Variable(variable) => write!(f, "{variable};"),
    }
}

impl Display for Statement<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        print(f, self, 0)
    }
}

impl Display for Loc<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".loc {}", Commas(&self.place, " "))?;
        if let Some(function) = &self.function {
            write!(f, ", function_name {function}")?;
        }
        match &self.inlined_at {
            Some(place) => write!(f, ", inlined_at {}", Commas(place, " ")),
            None => Ok(()),
        }
    }
}

impl Display for Prototype<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(".callprototype ")?;
        if !self.returns.is_empty() {
            write!(f, "({}) ", Commas(&self.returns, ", "))?;
        }
        write!(f, "{}({})", self.name, Commas(&self.parameters, ", "))?;
        for directive in &self.directives {
            write!(f, " {directive}")?;
        }
        f.write_char(';')
    }
}

impl Display for Instruction<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(guard) = self.guard {
            let not = if guard.negated { "!" } else { "" };
            write!(f, "@{not}{} ", guard.predicate)?;
        }
        f.write_str(self.opcode)?;
        for modifier in &self.modifiers {
            write!(f, ".{modifier}")?;
        }
        if !self.operands.is_empty() {
            write!(f, " {}", Commas(&self.operands, ", "))?;
        }
        f.write_char(';')
    }
}

impl Display for Expression<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Address(inner) => write!(f, "[{}]", Commas(inner, ", ")),
            Expression::Apply {
                function,
                arguments,
            } => write!(f, "{function}({})", Commas(arguments, ", ")),
            Expression::Binary { operator, sides } => {
                write!(f, "{} {operator} {}", sides[0], sides[1])
            }
            Expression::Cast { ty, operand } => write!(f, "({ty}) {operand}"),
            Expression::Conditional(parts) => {
                write!(f, "{} ? {} : {}", parts[0], parts[1], parts[2])
            }
            Expression::List(inner) => write!(f, "({})", Commas(inner, ", ")),
            Expression::Name { name, component } => match component {
                Some(component) => write!(f, "{name}.{component}"),
                None => f.write_str(name),
            },
            Expression::Number(number) => f.write_str(number),
            Expression::Text(text) => Quoted(text).fmt(f),
            Expression::Unary { operator, operand } => write!(f, "{operator}{operand}"),
            Expression::Vector(inner) => write!(f, "{{{}}}", Commas(inner, ", ")),
        }
    }
}
