//! Which declared type of a register suits an operand: PTX ISA, "Operand Type Checking" and "Operand Size Exceeding Instruction-Type
//! Size". ptxas knows a little more than that text, and is followed where the two differ.

use crate::ptx::Type;

/// How closely a register must suit an operand's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Of any type: calls check for themselves.
    Any,
    /// A number that is added to: any integer.
    Base,
    /// An integer of as many bits, and no pair.
    Count,
    /// As many bits, of the same kind or of none.
    Same,
    /// At least as many bits: what loads, stores and conversions allow.
    Wide,
    /// The same for an element of a vector.
    WideElement,
}

/// Kinds of numbers that exclude each other; untyped bits go with all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bits,
    Float,
    Integer,
}

fn kind(ty: Type) -> Kind {
    match ty {
        Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128 => Kind::Bits,
        Type::F16 | Type::F32 | Type::F64 => Kind::Float,
        // ptxas counts pairs among the integers.
        _ => Kind::Integer,
    }
}

/// Whether a register of type `declared` may stand where an operand of type `ty` must.
pub(super) fn fits(declared: Type, ty: Type, fit: Fit) -> bool {
    let (own, wanted) = (kind(declared), kind(ty));
    // Of these only `.f16` and `.f16x2` have registers of their own; the others go into untyped ones.
    match ty {
        _ if fit == Fit::Any => return true,
        Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => return declared == Type::B16,
        Type::Bf16x2 | Type::Tf32 => return declared == Type::B32,
        Type::F16x2 | Type::S16x2 | Type::U16x2 => {
            return matches!(declared, Type::B32 | Type::F16x2);
        }
        _ => {}
    }
    match fit {
        Fit::Any => true,
        Fit::Base => own != Kind::Float && !matches!(declared, Type::B128 | Type::F16x2),
        Fit::Count => declared.bits() == ty.bits() && own != Kind::Float && declared != Type::F16x2,
        Fit::Same => {
            let alike = own == wanted || own == Kind::Bits || wanted == Kind::Bits;
            declared.bits() == ty.bits() && alike
        }
        Fit::Wide | Fit::WideElement => match wanted {
            Kind::Bits => declared.bits() >= ty.bits(),
            Kind::Integer => declared.bits() >= ty.bits() && own != Kind::Float,
            Kind::Float => {
                let bits = own == Kind::Bits && declared.bits() >= ty.bits();
                let element = fit == Fit::WideElement && declared.bits() == ty.bits();
                bits || declared == ty || element
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_suit_operands_as_ptxas_has_it() {
        for (declared, ty, fit, expected) in [
            (Type::B32, Type::F32, Fit::Same, true),
            (Type::U32, Type::S32, Fit::Same, true),
            (Type::U32, Type::F32, Fit::Same, false),
            (Type::F32, Type::B32, Fit::Same, true),
            (Type::B64, Type::U32, Fit::Same, false),
            (Type::B16, Type::Bf16, Fit::Same, true),
            (Type::U16, Type::Bf16, Fit::Same, false),
            (Type::S64, Type::U8, Fit::Wide, true),
            (Type::U8, Type::U16, Fit::Wide, false),
            (Type::F64, Type::B32, Fit::Wide, true),
            (Type::F64, Type::U32, Fit::Wide, false),
            (Type::B64, Type::F32, Fit::Wide, true),
            (Type::F64, Type::F32, Fit::Wide, false),
            (Type::U32, Type::F32, Fit::Wide, false),
            (Type::U32, Type::F32, Fit::WideElement, true),
            (Type::B32, Type::U32, Fit::Count, true),
            (Type::F16x2, Type::U32, Fit::Count, false),
            (Type::F16x2, Type::U32, Fit::Same, true),
            (Type::U16, Type::U64, Fit::Base, true),
            (Type::F32, Type::U64, Fit::Base, false),
        ] {
            let fitting = fits(declared, ty, fit);
            assert_eq!(fitting, expected, "{declared} for {ty}, {fit:?}");
        }
    }
}
