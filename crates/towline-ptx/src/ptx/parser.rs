//! Reading modules: what stands outside of bodies.

use super::ast::{
    Attribute, Directive, Expression, File, Function, FunctionKind, Item, Linkage, Module, Place,
    Pointer, Prototype, StateSpace, Variable,
};
use super::expression::parse_integer;
use super::lexer::{Lexer, Token};
use super::types::Type;
use super::{Position, SyntaxError};

/// Deepest nesting of blocks, parentheses and the like: what keeps a hostile text from using up the stack. Compilers go to three.
const DEPTH_LIMIT: usize = 64;
/// Most operators in a row, for the same reason: the tree is as deep as such a chain is long.
const CHAIN_LIMIT: usize = 32;

/// A text, and how far it is read.
#[derive(Debug)]
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    at: Position,
    /// Where the token starts and ends, in bytes.
    span: (usize, usize),
    depth: usize,
    /// Bodies of functions are passed over.
    heads_only: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, line: u32) -> Result<Self, SyntaxError> {
        let mut lexer = Lexer::new(text, line);
        let (token, at, span) = lexer.next()?;
        Ok(Self {
            lexer,
            token,
            at,
            span,
            depth: 0,
            heads_only: false,
        })
    }

    /// Passes over the bodies of functions, which are then empty.
    pub(super) fn heads_only(self) -> Self {
        Self {
            heads_only: true,
            ..self
        }
    }

    /// The next token.
    pub(super) fn peek(&self) -> &Token<'a> {
        &self.token
    }

    /// Where the next token stands.
    pub(super) fn place(&self) -> Place {
        Place(self.at)
    }

    /// Goes past the next token.
    pub(super) fn advance(&mut self) -> Result<(), SyntaxError> {
        (self.token, self.at, self.span) = self.lexer.next()?;
        Ok(())
    }

    /// Goes past this mark, if it is next.
    pub(super) fn take(&mut self, mark: &str) -> Result<bool, SyntaxError> {
        let found = matches!(self.token, Token::Mark(next) if next == mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Goes past this mark.
    pub(super) fn expect(&mut self, mark: &str) -> Result<(), SyntaxError> {
        match self.take(mark)? {
            true => Ok(()),
            false => self.unexpected(&format!("`{mark}`")),
        }
    }

    /// Goes past a directive, if it is next.
    pub(super) fn take_directive(&mut self, name: &str) -> Result<bool, SyntaxError> {
        let found = self.token == Token::Dot(name);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Says what was expected in the place of the next token.
    pub(super) fn unexpected<T>(&self, expected: &str) -> Result<T, SyntaxError> {
        self.refuse(format!(
            "expected {expected}, found {}",
            self.token.describe()
        ))
    }

    fn refuse<T>(&self, message: String) -> Result<T, SyntaxError> {
        Err(SyntaxError {
            at: self.at,
            message,
        })
    }

    /// Reads something that may hold itself.
    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= DEPTH_LIMIT {
            return self.refuse(format!("nested deeper than {DEPTH_LIMIT}"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Refuses a chain of operators that is too long.
    pub(super) fn check_chain(&self, length: usize) -> Result<(), SyntaxError> {
        match length <= CHAIN_LIMIT {
            true => Ok(()),
            false => self.refuse(format!("operators nested deeper than {CHAIN_LIMIT}")),
        }
    }

    pub(super) fn word(&mut self) -> Result<&'a str, SyntaxError> {
        match self.token {
            Token::Word(word) => {
                self.advance()?;
                Ok(word)
            }
            _ => self.unexpected("a name"),
        }
    }

    pub(super) fn number(&mut self) -> Result<&'a str, SyntaxError> {
        match self.token {
            Token::Number(number) => {
                self.advance()?;
                Ok(number)
            }
            _ => self.unexpected("a number"),
        }
    }

    fn integer(&mut self) -> Result<u64, SyntaxError> {
        let value = match self.token {
            Token::Number(number) => parse_integer(number),
            _ => None,
        };
        match value {
            Some(value) => {
                self.advance()?;
                Ok(value)
            }
            None => self.unexpected("an integer"),
        }
    }

    fn string(&mut self) -> Result<&'a str, SyntaxError> {
        match self.token {
            Token::Text(text) => {
                self.advance()?;
                Ok(text)
            }
            _ => self.unexpected("a string"),
        }
    }

    /// One or more, with commas between.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        let mut list = vec![read(self)?];
        while self.take(",")? {
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// A whole module.
    pub(super) fn module(mut self) -> Result<Module<'a>, SyntaxError> {
        if !self.take_directive("version")? {
            return self.unexpected("`.version`");
        }
        let version = self.version()?;
        if !self.take_directive("target")? {
            return self.unexpected("`.target`");
        }
        let mut module = Module {
            version,
            target: self.list(Self::word)?,
            address_size: None,
            items: Vec::new(),
        };
        if self.take_directive("address_size")? {
            module.address_size = match self.integer()?.try_into() {
                Ok(size) => Some(size),
                Err(_) => return self.refuse("an address size that no machine has".into()),
            };
        }
        while self.token != Token::End {
            self.item(&mut module.items)?;
        }
        Ok(module)
    }

    fn version(&mut self) -> Result<(u32, u32), SyntaxError> {
        let parts = match self.token {
            Token::Number(number) => number.split_once('.'),
            _ => None,
        };
        let parse = |(major, minor): (&str, &str)| Some((major.parse().ok()?, minor.parse().ok()?));
        match parts.and_then(parse) {
            Some(version) => {
                self.advance()?;
                Ok(version)
            }
            None => self.unexpected("a version"),
        }
    }

    fn item(&mut self, items: &mut Vec<Item<'a>>) -> Result<(), SyntaxError> {
        let linkage = self.linkage()?;
        let Token::Dot(name) = self.token else {
            return self.unexpected("a directive");
        };
        if let Some(space) = StateSpace::from_name(name) {
            self.advance()?;
            let variables = self.declaration(linkage, space)?;
            items.extend(variables.into_iter().map(Item::Variable));
            return Ok(());
        }
        let item = match name {
            "entry" => {
                self.advance()?;
                Item::Function(self.function(linkage, FunctionKind::Entry)?)
            }
            "func" => {
                self.advance()?;
                Item::Function(self.function(linkage, FunctionKind::Func)?)
            }
            _ if linkage.is_some() => return self.unexpected("a variable or function"),
            "alias" => {
                self.advance()?;
                let name = self.word()?;
                self.expect(",")?;
                let function = self.word()?;
                self.expect(";")?;
                Item::Alias { name, function }
            }
            "file" => {
                self.advance()?;
                Item::File(self.file()?)
            }
            "pragma" => Item::Pragma(self.pragma()?),
            "section" => {
                self.advance()?;
                self.section()?
            }
            _ => return self.unexpected("a directive of a module"),
        };
        items.push(item);
        Ok(())
    }

    fn linkage(&mut self) -> Result<Option<Linkage>, SyntaxError> {
        let Token::Dot(name) = self.token else {
            return Ok(None);
        };
        let linkage = Linkage::from_name(name);
        if linkage.is_some() {
            self.advance()?;
        }
        Ok(linkage)
    }

    fn file(&mut self) -> Result<File<'a>, SyntaxError> {
        let mut file = File {
            index: self.number()?,
            name: self.string()?,
            stamp: None,
        };
        if self.take(",")? {
            let time = self.number()?;
            self.expect(",")?;
            file.stamp = Some((time, self.number()?));
        }
        Ok(file)
    }

    /// `.pragma "one", "two";`
    pub(super) fn pragma(&mut self) -> Result<Vec<&'a str>, SyntaxError> {
        self.advance()?;
        let texts = self.list(Self::string)?;
        self.expect(";")?;
        Ok(texts)
    }

    fn section(&mut self) -> Result<Item<'a>, SyntaxError> {
        let name = match self.token {
            Token::Dot(name) => name,
            _ => return self.unexpected("a section's name"),
        };
        self.advance()?;
        let (_, start) = self.span;
        self.expect("{")?;
        let end = self.skip_block()?;
        let contents = self.lexer.between(start, end).trim();
        Ok(Item::Section { name, contents })
    }

    /// Goes past the closing brace of a block whose opening one was taken, and says where it stands.
    fn skip_block(&mut self) -> Result<usize, SyntaxError> {
        let mut open = 1_usize;
        loop {
            match self.token {
                Token::Mark("{") => open += 1,
                Token::Mark("}") => open -= 1,
                Token::End => return self.unexpected("`}`"),
                _ => {}
            }
            let (end, _) = self.span;
            self.advance()?;
            if open == 0 {
                return Ok(end);
            }
        }
    }

    /// What is behind the state space, up to and with the semicolon: one type, one or more names.
    pub(super) fn declaration(
        &mut self,
        linkage: Option<Linkage>,
        space: StateSpace,
    ) -> Result<Vec<Variable<'a>>, SyntaxError> {
        let common = self.variable_head(linkage, space)?;
        let variables = self.list(|parser| {
            let mut variable = parser.variable_name(common.clone())?;
            if parser.take("=")? {
                variable.initializer = Some(match common.ty {
                    Type::TexRef | Type::SamplerRef | Type::SurfRef => parser.settings()?,
                    _ => parser.expression()?,
                });
            }
            Ok(variable)
        })?;
        self.expect(";")?;
        Ok(variables)
    }

    /// `{addr_mode_0 = wrap, filter_mode = linear}`: what a texture, sampler or surface begins with.
    fn settings(&mut self) -> Result<Expression<'a>, SyntaxError> {
        self.expect("{")?;
        let settings = self.list(|parser| {
            let name = Expression::Name {
                name: parser.word()?,
                component: None,
            };
            parser.expect("=")?;
            Ok(Expression::Binary {
                operator: "=",
                sides: Box::new([name, parser.expression()?]),
            })
        })?;
        self.expect("}")?;
        Ok(Expression::Vector(settings))
    }

    /// Type and attributes of a variable without its name.
    fn variable_head(
        &mut self,
        linkage: Option<Linkage>,
        space: StateSpace,
    ) -> Result<Variable<'a>, SyntaxError> {
        let mut variable = Variable {
            at: self.place(),
            linkage,
            space,
            attributes: Vec::new(),
            align: None,
            vector: None,
            ty: Type::Pred,
            pointer: None,
            name: "",
            count: None,
            dimensions: Vec::new(),
            initializer: None,
        };
        let mut ty = None;
        while let Token::Dot(name) = self.token {
            match name {
                "align" => {
                    self.advance()?;
                    variable.align = Some(self.align()?);
                    continue;
                }
                "attribute" => {
                    self.advance()?;
                    variable.attributes = self.attributes()?;
                    continue;
                }
                "v2" => variable.vector = Some(2),
                "v4" => variable.vector = Some(4),
                "v8" => variable.vector = Some(8),
                "ptr" => {
                    self.advance()?;
                    variable.pointer = Some(self.pointer()?);
                    continue;
                }
                _ => match Type::from_name(name) {
                    Some(found) if ty.is_none() => ty = Some(found),
                    _ => return self.unexpected("a type"),
                },
            }
            self.advance()?;
        }
        match ty {
            Some(ty) => Ok(Variable { ty, ..variable }),
            None => self.unexpected("a type"),
        }
    }

    fn align(&mut self) -> Result<u64, SyntaxError> {
        match self.token {
            Token::Number(number)
                if parse_integer(number).is_some_and(|align| align.is_power_of_two()) =>
            {
                self.integer()
            }
            _ => self.unexpected("a power of two"),
        }
    }

    fn pointer(&mut self) -> Result<Pointer<'a>, SyntaxError> {
        let mut pointer = Pointer {
            space: None,
            align: None,
        };
        if let Token::Dot(space) = self.token
            && StateSpace::from_name(space).is_some()
        {
            pointer.space = Some(space);
            self.advance()?;
        }
        if self.take_directive("align")? {
            pointer.align = Some(self.align()?);
        }
        Ok(pointer)
    }

    /// Name, count and dimensions.
    fn variable_name(&mut self, head: Variable<'a>) -> Result<Variable<'a>, SyntaxError> {
        let mut variable = Variable {
            at: self.place(),
            name: self.word()?,
            ..head
        };
        if self.take("<")? {
            variable.count = Some(self.integer()?);
            self.expect(">")?;
        }
        while self.take("[")? {
            let length = match self.token {
                Token::Mark("]") => None,
                _ => Some(self.integer()?),
            };
            self.expect("]")?;
            variable.dimensions.push(length);
        }
        Ok(variable)
    }

    fn attributes(&mut self) -> Result<Vec<Attribute<'a>>, SyntaxError> {
        self.expect("(")?;
        let attributes = self.list(|parser| {
            let Token::Dot(name) = parser.token else {
                return parser.unexpected("an attribute");
            };
            parser.advance()?;
            let mut arguments = Vec::new();
            if parser.take("(")? {
                arguments = parser.list(Self::number)?;
                parser.expect(")")?;
            }
            Ok(Attribute { name, arguments })
        })?;
        self.expect(")")?;
        Ok(attributes)
    }

    /// Parameters in parentheses, where there are some.
    fn parameters(&mut self) -> Result<Vec<Variable<'a>>, SyntaxError> {
        if !self.take("(")? || self.take(")")? {
            return Ok(Vec::new());
        }
        let parameters = self.list(|parser| {
            let space = match parser.token {
                Token::Dot(name) => StateSpace::from_name(name),
                _ => None,
            };
            let Some(space) = space else {
                return parser.unexpected("a parameter");
            };
            parser.advance()?;
            let head = parser.variable_head(None, space)?;
            parser.variable_name(head)
        })?;
        self.expect(")")?;
        Ok(parameters)
    }

    fn function(
        &mut self,
        linkage: Option<Linkage>,
        kind: FunctionKind,
    ) -> Result<Function<'a>, SyntaxError> {
        let mut attributes = Vec::new();
        if self.take_directive("attribute")? {
            attributes = self.attributes()?;
        }
        let mut directives = self.directives()?;
        let mut function = Function {
            linkage,
            kind,
            attributes,
            returns: self.parameters()?,
            at: self.place(),
            name: self.word()?,
            parameters: self.parameters()?,
            directives: Vec::new(),
            body: None,
        };
        directives.append(&mut self.directives()?);
        function.directives = directives;
        if !self.take(";")? {
            self.expect("{")?;
            function.body = Some(match self.heads_only {
                true => {
                    self.skip_block()?;
                    Vec::new()
                }
                false => self.block()?,
            });
        }
        Ok(function)
    }

    /// `.callprototype`, up to and with the semicolon.
    pub(super) fn prototype(&mut self) -> Result<Prototype<'a>, SyntaxError> {
        let prototype = Prototype {
            returns: self.parameters()?,
            name: self.word()?,
            parameters: self.parameters()?,
            directives: self.directives()?,
        };
        self.expect(";")?;
        Ok(prototype)
    }

    /// What is between a function's parameters and its body.
    fn directives(&mut self) -> Result<Vec<Directive<'a>>, SyntaxError> {
        let mut directives = Vec::new();
        while let Token::Dot(name) = self.token {
            self.advance()?;
            let mut arguments = Vec::new();
            while matches!(self.token, Token::Number(_) | Token::Text(_)) {
                arguments.push(self.expression()?);
                if !self.take(",")? {
                    break;
                }
            }
            if name == "pragma" {
                self.expect(";")?;
            }
            directives.push(Directive { name, arguments });
        }
        Ok(directives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = ".version 7.8\n.target sm_90a, debug\n.address_size 64\n";

    fn items(text: &str) -> Vec<String> {
        let text = format!("{HEAD}{text}");
        let module = Module::parse(&text).expect("a module");
        module.items.iter().map(|item| item.to_string()).collect()
    }

    fn refused(text: &str) -> String {
        let text = format!("{HEAD}{text}");
        Module::parse(&text).expect_err("no module").to_string()
    }

    #[test]
    fn a_module_says_what_it_is_for() {
        let module = Module::parse(HEAD).expect("a module");
        assert_eq!(module.version, (7, 8));
        assert_eq!(module.target, ["sm_90a", "debug"]);
        assert_eq!(module.address_size, Some(64));
        let bare = Module::parse(".version 6.0 .target sm_70").expect("a module");
        assert_eq!(bare.address_size, None);
    }

    #[test]
    fn variables_have_every_form() {
        let text = ".visible .global .align 4 .u32 counter = 7;\n\
                    .global .attribute(.managed, .unified(1, 2)) .u64 shared_with_host;\n\
                    .const .align 4 .b8 name[2][3] = {{1, 2, 3}, {4}};\n\
                    .extern .shared .align 16 .b8 more[];\n\
                    .global .v4 .f32 a, b[2];\n\
                    .global .u64 pointers[2] = {generic(counter) + 4, 0xff(counter)};\n\
                    .global .texref tex;\n\
                    .global .samplerref how = {addr_mode_0 = wrap, filter_mode = linear};";
        assert_eq!(
            items(text),
            [
                ".visible .global .align 4 .u32 counter = 7;",
                ".global .attribute(.managed, .unified(1, 2)) .u64 shared_with_host;",
                ".const .align 4 .b8 name[2][3] = {{1, 2, 3}, {4}};",
                ".extern .shared .align 16 .b8 more[];",
                ".global .v4 .f32 a;",
                ".global .v4 .f32 b[2];",
                ".global .u64 pointers[2] = {generic(counter) + 4, 0xff(counter)};",
                ".global .texref tex;",
                ".global .samplerref how = {addr_mode_0 = wrap, filter_mode = linear};",
            ]
        );
    }

    #[test]
    fn functions_have_every_form() {
        let text = ".visible .entry k(.param .u64 .ptr .global .align 16 x, .param .align 8 .b8 s[24])\n\
                    .maxntid 128, 1\n.minnctapersm 4\n.pragma \"nounroll\";\n{ ret; }\n\
                    .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n\
                    .func .noreturn stop;\n\
                    .weak .func (.reg .b32 r) f (.reg .b32 a) { }\n\
                    .entry bare { }";
        assert_eq!(
            items(text),
            [
                ".visible .entry k(\n\t.param .u64 .ptr .global .align 16 x,\n\t.param .align 8 .b8 s[24]\n)\n\
                 .maxntid 128, 1\n.minnctapersm 4\n.pragma \"nounroll\";\n{\n\tret;\n}",
                ".extern .func (.param .b32 r) vprintf(\n\t.param .b64 a,\n\t.param .b64 b\n);",
                ".func stop()\n.noreturn;",
                ".weak .func (.reg .b32 r) f(\n\t.reg .b32 a\n)\n{\n}",
                ".entry bare()\n{\n}",
            ]
        );
    }

    #[test]
    fn what_debuggers_need_is_kept() {
        let text = ".file 1 \"a \\\" b.cu\", 3, 4\n.section .debug_str { \n.b8 1, 2 // }\n L: .b8 0 }\n.alias f, g;\n.pragma \"x\", \"y\";";
        assert_eq!(
            items(text),
            [
                ".file 1 \"a \\\" b.cu\", 3, 4",
                ".section .debug_str\n{\n.b8 1, 2 // }\n L: .b8 0\n}",
                ".alias f, g;",
                ".pragma \"x\", \"y\";",
            ]
        );
    }

    #[test]
    fn errors_say_where_and_what() {
        assert_eq!(
            Module::parse("\n .target sm_80")
                .expect_err("no module")
                .to_string(),
            "line 2, column 2: expected `.version`, found `.target`"
        );
        assert_eq!(
            refused("ret;"),
            "line 4, column 1: expected a directive, found `ret`"
        );
        assert_eq!(
            refused(".global .align 3 .b8 x;"),
            "line 4, column 16: expected a power of two, found `3`"
        );
        assert_eq!(
            refused(".visible .entry k(.param .v4 x) { }"),
            "line 4, column 30: expected a type, found `x`"
        );
        assert_eq!(
            refused(".entry k() { ret"),
            "line 4, column 17: expected `;`, found the end of the text"
        );
    }

    #[test]
    fn the_extent_of_a_block_defaults_to_one() {
        let text = format!("{HEAD}.entry k .maxntid 32 .reqntid 8, 4, 2 {{ }}");
        let module = Module::parse(&text).expect("a module");
        let kernel = module.kernels().next().expect("one");
        assert_eq!(kernel.extent("maxntid"), Some([32, 1, 1]));
        assert_eq!(kernel.extent("reqntid"), Some([8, 4, 2]));
        assert_eq!(kernel.extent("maxnreg"), None);
    }
}
