//! Constant expressions.

use super::Symbol;
use crate::ptx::Type;
use crate::ptx::ast::Expression;
use crate::ptx::expression::parse_integer;

/// The value of a constant expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// 64 bits, and whether they are to be taken without a sign.
    Int(u64, bool),
    /// A number as written in decimal, or `0d`.
    Double(f64),
    /// The bits of `0f`.
    Single(u32),
    /// An address, and what is added.
    Address {
        symbol: Symbol,
        addend: i64,
        generic: bool,
        /// The byte that is meant of it, as a shift in bits; all when there is none.
        byte: Option<u8>,
    },
}

impl Value {
    /// The bits of the value in a type; `None` for an address, and where a number of another kind must stand. Those of floating point go into
    /// untyped operands of their own width only, and none into operands of 16 bits.
    pub(super) fn bits(self, ty: Type) -> Option<u64> {
        Some(match (self, ty) {
            (Value::Int(..), Type::U16x2 | Type::S16x2) => return None,
            (Value::Int(..), ty) if ty.is_float() => return None,
            (Value::Int(value, _), _) => value,
            (Value::Single(bits), Type::F64) => f64::from(f32::from_bits(bits)).to_bits(),
            (Value::Single(bits), Type::F32 | Type::B32) => bits.into(),
            (Value::Double(value), Type::F32) => (value as f32).to_bits().into(),
            (Value::Double(value), Type::F64 | Type::B64) => value.to_bits(),
            (Value::Single(_) | Value::Double(_) | Value::Address { .. }, _) => return None,
        })
    }

    fn int(self) -> Result<(u64, bool), String> {
        match self {
            Value::Int(value, unsigned) => Ok((value, unsigned)),
            _ => Err("an integer must stand here".into()),
        }
    }
}

/// A number's value.
fn number(text: &str) -> Result<Value, String> {
    let bad = || format!("`{text}` is no number");
    if let Some(digits) = text
        .strip_prefix("0f")
        .or_else(|| text.strip_prefix("0F"))
        .filter(|digits| digits.len() == 8)
    {
        let bits = u32::from_str_radix(digits, 16).map_err(|_| bad())?;
        return Ok(Value::Single(bits));
    }
    if let Some(digits) = text
        .strip_prefix("0d")
        .or_else(|| text.strip_prefix("0D"))
        .filter(|digits| digits.len() == 16)
    {
        let bits = u64::from_str_radix(digits, 16).map_err(|_| bad())?;
        return Ok(Value::Double(f64::from_bits(bits)));
    }
    if let Some(value) = parse_integer(text) {
        let unsigned = text.ends_with(['u', 'U']) || value > i64::MAX as u64;
        return Ok(Value::Int(value, unsigned));
    }
    text.parse().map(Value::Double).map_err(|_| bad())
}

/// Evaluates a constant expression; `symbol` says what a name means.
pub(super) fn evaluate<'a>(
    expression: &Expression<'a>,
    symbol: &mut dyn FnMut(&'a str) -> Option<Symbol>,
) -> Result<Value, String> {
    match expression {
        Expression::Number(text) => number(text),
        Expression::Name {
            name: "WARP_SZ",
            component: None,
        } => Ok(Value::Int(32, false)),
        Expression::Name {
            name,
            component: None,
        } => match symbol(name) {
            Some(symbol) => Ok(Value::Address {
                symbol,
                addend: 0,
                generic: false,
                byte: None,
            }),
            None => Err(format!("there is no `{name}`")),
        },
        Expression::Apply {
            function,
            arguments,
        } => apply(function, arguments, symbol),
        Expression::Binary { operator, sides } => {
            let [left, right] = &**sides;
            binary(operator, evaluate(left, symbol)?, evaluate(right, symbol)?)
        }
        Expression::Cast { ty, operand } => {
            let (value, _) = evaluate(operand, symbol)?.int()?;
            match ty {
                Type::U64 => Ok(Value::Int(value, true)),
                Type::S64 => Ok(Value::Int(value, false)),
                _ => Err(format!("a constant cannot be cast to {ty}")),
            }
        }
        Expression::Conditional(parts) => {
            let [condition, yes, no] = &**parts;
            let (condition, _) = evaluate(condition, symbol)?.int()?;
            evaluate(if condition != 0 { yes } else { no }, symbol)
        }
        Expression::List(list) => match list.as_slice() {
            [one] => evaluate(one, symbol),
            _ => Err("a constant must stand here".into()),
        },
        Expression::Unary { operator, operand } => unary(operator, evaluate(operand, symbol)?),
        _ => Err("a constant must stand here".into()),
    }
}

/// `generic(name)`, or `0xff00(name)`: a byte of an address.
fn apply<'a>(
    function: &Expression<'a>,
    arguments: &[Expression<'a>],
    symbol: &mut dyn FnMut(&'a str) -> Option<Symbol>,
) -> Result<Value, String> {
    let [argument] = arguments else {
        return Err("one name must stand in parentheses".into());
    };
    let value = evaluate(argument, symbol)?;
    let Value::Address {
        symbol,
        addend,
        generic,
        ..
    } = value
    else {
        return Err("only names have addresses".into());
    };
    match function {
        Expression::Name {
            name: "generic", ..
        } => Ok(Value::Address {
            symbol,
            addend,
            generic: true,
            byte: None,
        }),
        Expression::Number(mask) => {
            let mask = parse_integer(mask).unwrap_or(0);
            let shift = mask.trailing_zeros();
            if mask == 0 || !shift.is_multiple_of(8) || mask >> shift != 0xff {
                return Err("the mask of an address must be one byte".into());
            }
            Ok(Value::Address {
                symbol,
                addend,
                generic,
                byte: Some(shift as u8),
            })
        }
        _ => Err("an address has no such function".into()),
    }
}

fn unary(operator: &str, value: Value) -> Result<Value, String> {
    Ok(match (operator, value) {
        ("-", Value::Double(value)) => Value::Double(-value),
        ("-" | "+", Value::Single(_)) => {
            return Err("a number in hexadecimal has its sign among its digits".into());
        }
        ("+", value) => value,
        (operator, value) => {
            let (value, unsigned) = value.int()?;
            match operator {
                "-" => Value::Int(value.wrapping_neg(), unsigned),
                "!" => Value::Int((value == 0).into(), false),
                "~" => Value::Int(!value, unsigned),
                _ => return Err(format!("`{operator}` cannot stand in a constant")),
            }
        }
    })
}

fn binary(operator: &str, left: Value, right: Value) -> Result<Value, String> {
    if let (
        Value::Address {
            symbol,
            addend,
            generic,
            byte,
        },
        Value::Int(more, _),
    ) = (left, right)
    {
        let more = match operator {
            "+" => more as i64,
            "-" => (more as i64).wrapping_neg(),
            _ => return Err(format!("`{operator}` cannot be applied to an address")),
        };
        return Ok(Value::Address {
            symbol,
            addend: addend.wrapping_add(more),
            generic,
            byte,
        });
    }
    if let (Value::Double(a), Value::Double(b)) = (left, right) {
        return Ok(Value::Double(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => return Err(format!("`{operator}` cannot stand between such numbers")),
        }));
    }
    let (a, a_unsigned) = left.int()?;
    let (b, b_unsigned) = right.int()?;
    let unsigned = a_unsigned || b_unsigned;
    let (sa, sb) = (a as i64, b as i64);
    let truth = |truth: bool| Value::Int(truth.into(), false);
    let number = |value: u64| Value::Int(value, unsigned);
    let by_zero = || String::from("a division by zero");
    Ok(match operator {
        "+" => number(a.wrapping_add(b)),
        "-" => number(a.wrapping_sub(b)),
        "*" => number(a.wrapping_mul(b)),
        "/" if unsigned => number(a.checked_div(b).ok_or_else(by_zero)?),
        "/" if b == 0 => return Err(by_zero()),
        "/" => number(sa.wrapping_div(sb) as u64),
        "%" if unsigned => number(a.checked_rem(b).ok_or_else(by_zero)?),
        "%" if b == 0 => return Err(by_zero()),
        "%" => number(sa.wrapping_rem(sb) as u64),
        "&" => number(a & b),
        "|" => number(a | b),
        "^" => number(a ^ b),
        "<<" => Value::Int(a.checked_shl(b as u32).unwrap_or(0), a_unsigned),
        ">>" if a_unsigned => Value::Int(a.checked_shr(b as u32).unwrap_or(0), true),
        ">>" => Value::Int((sa >> b.min(63)) as u64, false),
        "&&" => truth(a != 0 && b != 0),
        "||" => truth(a != 0 || b != 0),
        "==" => truth(a == b),
        "!=" => truth(a != b),
        "<" => truth(if unsigned { a < b } else { sa < sb }),
        "<=" => truth(if unsigned { a <= b } else { sa <= sb }),
        ">" => truth(if unsigned { a > b } else { sa > sb }),
        ">=" => truth(if unsigned { a >= b } else { sa >= sb }),
        _ => return Err(format!("`{operator}` cannot stand in a constant")),
    })
}
