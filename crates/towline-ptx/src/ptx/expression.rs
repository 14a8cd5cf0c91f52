//! Operands and constant expressions: one grammar, as an operand may be any constant expression.

use super::SyntaxError;
use super::ast::Expression;
use super::lexer::Token;
use super::parser::Parser;
use super::types::Type;

/// Binary operators, the weakest first; those of one line bind alike, to the left.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'a> Parser<'a> {
    /// An operand or a constant expression.
    pub(super) fn expression(&mut self) -> Result<Expression<'a>, SyntaxError> {
        self.nested(|parser| {
            let condition = parser.binary(0)?;
            if !parser.take("?")? {
                return Ok(condition);
            }
            let yes = parser.expression()?;
            parser.expect(":")?;
            let no = parser.expression()?;
            Ok(Expression::Conditional(Box::new([condition, yes, no])))
        })
    }

    /// Expressions with commas between, up to `end`, which is taken; none is fine.
    pub(super) fn expressions(
        &mut self,
        end: &'static str,
    ) -> Result<Vec<Expression<'a>>, SyntaxError> {
        let mut list = Vec::new();
        if self.take(end)? {
            return Ok(list);
        }
        loop {
            list.push(self.expression()?);
            if self.take(end)? {
                return Ok(list);
            }
            self.expect(",")?;
        }
    }

    /// Operators of at least this level, by precedence climbing.
    fn binary(&mut self, weakest: usize) -> Result<Expression<'a>, SyntaxError> {
        let mut left = self.unary()?;
        let mut chain = 0;
        while let Some((level, operator)) = self.operator().filter(|(level, _)| *level >= weakest) {
            chain += 1;
            self.check_chain(chain)?;
            self.advance()?;
            let right = self.binary(level + 1)?;
            left = Expression::Binary {
                operator,
                sides: Box::new([left, right]),
            };
        }
        Ok(left)
    }

    /// The binary operator that comes next, and its level.
    fn operator(&self) -> Option<(usize, &'static str)> {
        let Token::Mark(mark) = *self.peek() else {
            return None;
        };
        let level = LEVELS.iter().position(|level| level.contains(&mark))?;
        Some((level, mark))
    }

    fn unary(&mut self) -> Result<Expression<'a>, SyntaxError> {
        for operator in ["-", "+", "!", "~"] {
            if self.take(operator)? {
                let operand = self.nested(Self::unary)?;
                return Ok(Expression::Unary {
                    operator,
                    operand: Box::new(operand),
                });
            }
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<Expression<'a>, SyntaxError> {
        let mut expression = match *self.peek() {
            Token::Word(name) => {
                self.advance()?;
                let component = match *self.peek() {
                    Token::Dot(component) => Some(component),
                    _ => None,
                };
                if component.is_some() {
                    self.advance()?;
                }
                Expression::Name { name, component }
            }
            Token::Number(number) => {
                self.advance()?;
                Expression::Number(number)
            }
            Token::Text(text) => {
                self.advance()?;
                return Ok(Expression::Text(text));
            }
            Token::Mark("{") => {
                self.advance()?;
                return Ok(Expression::Vector(self.expressions("}")?));
            }
            Token::Mark("[") => {
                self.advance()?;
                return Ok(Expression::Address(self.expressions("]")?));
            }
            Token::Mark("(") => {
                self.advance()?;
                return self.parenthesis();
            }
            _ => return self.unexpected("an operand"),
        };
        let mut chain = 0;
        while self.take("(")? {
            chain += 1;
            self.check_chain(chain)?;
            expression = Expression::Apply {
                function: Box::new(expression),
                arguments: self.expressions(")")?,
            };
        }
        Ok(expression)
    }

    fn parenthesis(&mut self) -> Result<Expression<'a>, SyntaxError> {
        let Token::Dot(name) = *self.peek() else {
            return Ok(Expression::List(self.expressions(")")?));
        };
        let Some(ty) = Type::from_name(name) else {
            return self.unexpected("a type");
        };
        self.advance()?;
        self.expect(")")?;
        let operand = Box::new(self.nested(Self::unary)?);
        Ok(Expression::Cast { ty, operand })
    }
}

/// The value of a number without operators.
pub(super) fn integer(expression: &Expression<'_>) -> Option<u64> {
    match expression {
        Expression::Number(number) => parse_integer(number),
        _ => None,
    }
}

/// The value of an integer literal: hexadecimal, octal, binary or decimal, with or without `U`.
pub(crate) fn parse_integer(number: &str) -> Option<u64> {
    let number = number.strip_suffix(['u', 'U']).unwrap_or(number);
    let (digits, radix) = match number.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&number[2..], 16),
        [b'0', b'b' | b'B', ..] => (&number[2..], 2),
        [b'0', _, ..] => (&number[1..], 8),
        _ => (number, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        let mut parser = Parser::new(text, 1).expect("tokens");
        let expression = parser.expression().expect("an expression");
        assert_eq!(*parser.peek(), Token::End);
        expression.to_string()
    }

    #[test]
    fn operators_bind_as_in_c() {
        let mut parser = Parser::new("1 + 2 * 3 << 4", 1).expect("tokens");
        let Ok(Expression::Binary { operator, sides }) = parser.expression() else {
            panic!("not binary");
        };
        assert_eq!(operator, "<<");
        let Expression::Binary { operator, .. } = &sides[0] else {
            panic!("not binary");
        };
        assert_eq!(*operator, "+");
    }

    #[test]
    fn every_form_prints_as_it_was() {
        for text in [
            "%r1",
            "%tid.x",
            "-4",
            "!%p1",
            "%p1 | %p2",
            "[%rd1 + -8]",
            "[tex, {%f1, %f2}]",
            "{%r1, {%r2, _}}",
            "(param0, param1)",
            "()",
            "generic(name) + 4",
            "0xff00(name)",
            "(.s64) -1",
            "a ? b : c ? d : e",
            "(1 + 2) * 3",
            "\"text \\\" more\"",
            "1 - 2 - 3",
        ] {
            assert_eq!(printed(text), text);
        }
    }

    #[test]
    fn integers_have_four_bases() {
        assert_eq!(parse_integer("0x1fU"), Some(31));
        assert_eq!(parse_integer("017"), Some(15));
        assert_eq!(parse_integer("0b101"), Some(5));
        assert_eq!(parse_integer("42"), Some(42));
        assert_eq!(parse_integer("0"), Some(0));
        assert_eq!(parse_integer("0U"), Some(0));
        assert_eq!(parse_integer("08"), None);
        assert_eq!(parse_integer("1.5"), None);
    }

    #[test]
    fn depth_is_bounded_in_every_direction() {
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{", "}"),
            ("-", ""),
            ("1+", ""),
            ("f(", ")"),
            ("1?", ":1"),
        ] {
            let text = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            let refused = Parser::new(&text, 1).expect("tokens").expression();
            let error = refused.expect_err("nested too deep");
            assert!(error.message.contains("nested"), "{}", error.message);
        }
        let text = format!("f{}", "()".repeat(100_000));
        assert!(Parser::new(&text, 1).expect("tokens").expression().is_err());
    }
}
