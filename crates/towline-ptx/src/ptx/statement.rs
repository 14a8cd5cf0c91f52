//! Reading bodies: blocks, labels, instructions.

use super::SyntaxError;
use super::ast::{Expression, Guard, Instruction, Loc, Place, StateSpace, Statement};
use super::lexer::Token;
use super::parser::Parser;

impl<'a> Parser<'a> {
    /// Statements up to the closing brace, which is taken.
    pub(super) fn block(&mut self) -> Result<Vec<Statement<'a>>, SyntaxError> {
        self.nested(|parser| {
            let mut statements = Vec::new();
            while !parser.take("}")? {
                parser.statement(&mut statements)?;
            }
            Ok(statements)
        })
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), SyntaxError> {
        let statement = match *self.peek() {
            Token::Mark("{") => {
                self.advance()?;
                Statement::Block(self.block()?)
            }
            // An empty statement.
            Token::Mark(";") => return self.advance(),
            Token::Mark("@") => {
                self.advance()?;
                let guard = Guard {
                    negated: self.take("!")?,
                    predicate: self.word()?,
                };
                let at = self.place();
                let opcode = self.word()?;
                self.instruction(at, Some(guard), opcode)?
            }
            Token::Word(word) => {
                let at = self.place();
                self.advance()?;
                match self.take(":")? {
                    true => Statement::Label(word),
                    false => self.instruction(at, None, word)?,
                }
            }
            Token::Dot(name) => match StateSpace::from_name(name) {
                Some(space) => {
                    self.advance()?;
                    let variables = self.declaration(None, space)?;
                    let boxed = |variable| Statement::Variable(Box::new(variable));
                    statements.extend(variables.into_iter().map(boxed));
                    return Ok(());
                }
                None => self.directive(name)?,
            },
            _ => return self.unexpected("a statement"),
        };
        statements.push(statement);
        Ok(())
    }

    fn instruction(
        &mut self,
        at: Place,
        guard: Option<Guard<'a>>,
        opcode: &'a str,
    ) -> Result<Statement<'a>, SyntaxError> {
        let mut modifiers = Vec::new();
        while let Token::Dot(modifier) = *self.peek() {
            modifiers.push(modifier);
            self.advance()?;
        }
        let operands = match self.peek() {
            Token::Mark(";") => Vec::new(),
            // What cannot start an operand is reported as the end that was expected.
            Token::End | Token::Mark("}") => return self.unexpected("`;`"),
            _ => self.list(Self::expression)?,
        };
        self.expect(";")?;
        Ok(Statement::Instruction(Box::new(Instruction {
            at,
            guard,
            opcode,
            modifiers,
            operands,
        })))
    }

    fn directive(&mut self, name: &'a str) -> Result<Statement<'a>, SyntaxError> {
        match name {
            "branchtargets" | "calltargets" => {
                self.advance()?;
                let names = self.list(Self::word)?;
                self.expect(";")?;
                Ok(Statement::Targets {
                    directive: name,
                    names,
                })
            }
            "callprototype" => {
                self.advance()?;
                Ok(Statement::Prototype(Box::new(self.prototype()?)))
            }
            "loc" => {
                self.advance()?;
                Ok(Statement::Loc(Box::new(self.loc()?)))
            }
            "pragma" => Ok(Statement::Pragma(self.pragma()?)),
            _ => self.unexpected("a statement"),
        }
    }

    /// What is behind `.loc`, which no semicolon ends.
    fn loc(&mut self) -> Result<Loc<'a>, SyntaxError> {
        let mut loc = Loc {
            place: self.triple()?,
            function: None,
            inlined_at: None,
        };
        while self.take(",")? {
            match self.word()? {
                "function_name" => loc.function = Some(self.label()?),
                "inlined_at" => loc.inlined_at = Some(self.triple()?),
                _ => return self.unexpected("the rest of an attribute of `.loc`"),
            }
        }
        self.take(";")?;
        Ok(loc)
    }

    /// A label, and how far behind it. The directive that may come next is no component of it.
    fn label(&mut self) -> Result<Expression<'a>, SyntaxError> {
        let label = Expression::Name {
            name: self.word()?,
            component: None,
        };
        if !self.take("+")? {
            return Ok(label);
        }
        let offset = Expression::Number(self.number()?);
        Ok(Expression::Binary {
            operator: "+",
            sides: Box::new([label, offset]),
        })
    }

    fn triple(&mut self) -> Result<[&'a str; 3], SyntaxError> {
        Ok([self.number()?, self.number()?, self.number()?])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Module;

    /// The statements of a body, printed.
    fn statements(body: &str) -> Vec<String> {
        let text = format!(".version 8.0 .target sm_90 .func f() {{ {body} }}");
        let module = Module::parse(&text).expect("a module");
        let function = module.functions().next().expect("one");
        let body = function.body.as_ref().expect("a body");
        body.iter().map(|statement| statement.to_string()).collect()
    }

    #[test]
    fn instructions_print_as_they_were() {
        for text in [
            "ret;",
            "@!%p1 bra.uni $L__BB0_2;",
            "ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1 + 16];",
            "st.param.b64 [param0 + 0], %rd1;",
            "call.uni (retval0), vprintf, (param0, param1);",
            "call (%r1), %rd2, (%r3), prototype_0;",
            "setp.lt.and.s32 %p1 | %p2, %r1, -1, !%p3;",
            "mov.u32 %r1, %tid.x;",
            "mov.f32 %f1, 0f3F800000;",
            "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [tex, {%f5, %f6}];",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1, %r2}, {%r3}, {%f1, %f2};",
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
            "vadd.s32.u32.s32.sat %r1, %r2.b0, %r3.h1;",
            "atom.global.add.u32 _, [%rd1], 1;",
        ] {
            assert_eq!(statements(text), [text]);
        }
    }

    #[test]
    fn a_location_ends_without_a_semicolon() {
        let body = ".loc 1 5 3\n add.s32 %r1, %r2, 1;\n\
                    .loc 1 6 3, function_name $L__info_string0 + 4, inlined_at 1 12 3\n ret;";
        assert_eq!(
            statements(body),
            [
                ".loc 1 5 3",
                "add.s32 %r1, %r2, 1;",
                ".loc 1 6 3, function_name $L__info_string0 + 4, inlined_at 1 12 3",
                "ret;",
            ]
        );
    }

    #[test]
    fn a_declaration_behind_a_location_is_no_part_of_it() {
        for location in [
            ".loc 1 5 3, function_name $L__info",
            ".loc 1 5 3, function_name $L__info + 4",
        ] {
            for end in ["", ";"] {
                let body = format!("{location}{end}\n.reg .b32 x;");
                assert_eq!(statements(&body), [location, ".reg .b32 x;"]);
            }
        }
    }

    #[test]
    fn blocks_labels_and_tables_are_statements() {
        let body = ".reg .b32 %r<3>, x; top: { .local .align 8 .b8 depot[16]; ;; ret; }\n\
                    table: .branchtargets top, top;\n\
                    proto: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 4 .b8 _[8]) .noreturn;\n\
                    .pragma \"nounroll\";";
        assert_eq!(
            statements(body),
            [
                ".reg .b32 %r<3>;",
                ".reg .b32 x;",
                "top:",
                "{\n\t.local .align 8 .b8 depot[16];\n\tret;\n}",
                "table:",
                ".branchtargets top, top;",
                "proto:",
                ".callprototype (.param .b32 _) _(.param .b64 _, .param .align 4 .b8 _[8]) .noreturn;",
                ".pragma \"nounroll\";",
            ]
        );
    }
}
