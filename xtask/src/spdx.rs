//! Licence expressions: the part of SPDX 2.3 annex D that crates use.
//!
//! ```text
//! any    = all ("OR" all)*
//! all    = one ("AND" one)*
//! one    = "(" any ")" | licence ["WITH" exception]
//! ```
//!
//! `A/B`, which crates.io once accepted for `A OR B`, is read as that.

use std::fmt;

use anyhow::{Result, bail, ensure};

/// A parsed licence expression.
#[derive(Debug, PartialEq)]
pub(crate) enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    /// One licence as it stands in the allow-list: `MIT`, `Apache-2.0 WITH LLVM-exception`.
    Licence(String),
}

impl Expression {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let tokens = tokenize(text);
        let mut parser = Parser {
            tokens: &tokens,
            depth_left: MAX_DEPTH,
        };
        let expression = parser.any()?;
        ensure!(
            parser.tokens.is_empty(),
            "unexpected `{}` in licence expression `{text}`",
            parser.tokens[0]
        );
        Ok(expression)
    }

    /// Whether one may choose among the offered licences so that all that remain are allowed.
    pub(crate) fn holds(&self, is_allowed: &impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(is_allowed)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(is_allowed)),
            Self::Licence(name) => is_allowed(name),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, operator) = match self {
            Self::All(parts) => (parts, " AND "),
            Self::Any(parts) => (parts, " OR "),
            Self::Licence(name) => return f.write_str(name),
        };
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                f.write_str(operator)?;
            }
            match part {
                Self::Licence(name) => f.write_str(name)?,
                nested => write!(f, "({nested})")?,
            }
        }
        Ok(())
    }
}

/// Deep enough for any real expression, shallow enough for any stack.
const MAX_DEPTH: usize = 32;

struct Parser<'a> {
    tokens: &'a [&'a str],
    depth_left: usize,
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Result<Expression> {
        let first = self.all()?;
        let mut parts = vec![first];
        while self.take("OR") || self.take("/") {
            parts.push(self.all()?);
        }
        Ok(joined(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression> {
        let first = self.one()?;
        let mut parts = vec![first];
        while self.take("AND") {
            parts.push(self.one()?);
        }
        Ok(joined(parts, Expression::All))
    }

    fn one(&mut self) -> Result<Expression> {
        if self.take("(") {
            ensure!(self.depth_left > 0, "licence expression nests too deeply");
            self.depth_left -= 1;
            let inner = self.any()?;
            ensure!(
                self.take(")"),
                "licence expression lacks a closing parenthesis"
            );
            self.depth_left += 1;
            return Ok(inner);
        }
        let name = self.name()?;
        if self.take("WITH") {
            let exception = self.name()?;
            return Ok(Expression::Licence(format!("{name} WITH {exception}")));
        }
        Ok(Expression::Licence(name.to_owned()))
    }

    fn name(&mut self) -> Result<&'a str> {
        match self.tokens.split_first() {
            Some((name, rest)) if !matches!(*name, "(" | ")" | "/" | "AND" | "OR" | "WITH") => {
                self.tokens = rest;
                Ok(name)
            }
            Some((other, _)) => bail!("expected the name of a licence, found `{other}`"),
            None => bail!("licence expression ends early"),
        }
    }

    fn take(&mut self, token: &str) -> bool {
        match self.tokens.split_first() {
            Some((first, rest)) if *first == token => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }
}

fn joined(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        join(parts)
    }
}

fn tokenize(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        while let Some(at) = rest.find(['(', ')', '/']) {
            let (before, from) = rest.split_at(at);
            let (symbol, after) = from.split_at(1);
            tokens.extend((!before.is_empty()).then_some(before));
            tokens.push(symbol);
            rest = after;
        }
        tokens.extend((!rest.is_empty()).then_some(rest));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, allowed: &[&str]) -> bool {
        Expression::parse(text)
            .unwrap()
            .holds(&|name| allowed.contains(&name))
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(holds("GPL-3.0-only OR MIT", &["MIT"]));
        assert!(!holds("GPL-3.0-only OR LGPL-3.0-only", &["MIT"]));
    }

    #[test]
    fn every_part_of_a_conjunction_must_be_allowed() {
        assert!(holds("MIT AND Zlib", &["MIT", "Zlib"]));
        assert!(!holds("MIT AND GPL-3.0-only", &["MIT"]));
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert!(holds("GPL-3.0-only AND Zlib OR MIT", &["MIT"]));
        assert!(holds("MIT OR GPL-3.0-only AND Zlib", &["MIT"]));
        assert!(!holds("GPL-3.0-only AND (Zlib OR MIT)", &["MIT", "Zlib"]));
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        assert!(holds(
            "Apache-2.0 WITH LLVM-exception",
            &["Apache-2.0 WITH LLVM-exception"]
        ));
        assert!(!holds("Apache-2.0 WITH LLVM-exception", &["Apache-2.0"]));
        assert!(!holds(
            "GPL-2.0-only WITH Classpath-exception-2.0",
            &["GPL-2.0-only"]
        ));
    }

    #[test]
    fn slash_is_the_old_spelling_of_or() {
        assert!(holds("GPL-3.0/MIT", &["MIT"]));
        assert_eq!(
            Expression::parse("MIT / Apache-2.0").unwrap(),
            Expression::parse("MIT OR Apache-2.0").unwrap()
        );
    }

    #[test]
    fn display_restores_the_grouping() {
        let text = "(MIT OR Apache-2.0) AND Unicode-3.0";
        assert_eq!(Expression::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for text in [
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT Zlib",
            "AND MIT",
            "MIT WITH",
            "MIT WITH (x)",
        ] {
            assert!(Expression::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_stack_overflow() {
        let text = format!("{}MIT{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(Expression::parse(&text).is_err());
    }
}
