//! Types of PTX.

use std::fmt;

macro_rules! types {
    ($($variant:ident $name:literal $bytes:literal,)*) => {
        /// A fundamental or opaque type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Type {
            $(#[doc = concat!("`.", $name, "`.")] $variant,)*
        }

        impl Type {
            /// The type of this name, written without its dot.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Type::$variant),)*
                    _ => None,
                }
            }

            /// Its name, without a dot.
            pub fn name(self) -> &'static str {
                match self {
                    $(Type::$variant => $name,)*
                }
            }

            /// Bytes of a value in memory. A predicate has no place there, and counts as none.
            pub fn bytes(self) -> u64 {
                match self {
                    $(Type::$variant => $bytes,)*
                }
            }
        }
    };
}

types! {
    Pred "pred" 0,
    B8 "b8" 1,
    B16 "b16" 2,
    B32 "b32" 4,
    B64 "b64" 8,
    B128 "b128" 16,
    U8 "u8" 1,
    U16 "u16" 2,
    U32 "u32" 4,
    U64 "u64" 8,
    S8 "s8" 1,
    S16 "s16" 2,
    S32 "s32" 4,
    S64 "s64" 8,
    F16 "f16" 2,
    F16x2 "f16x2" 4,
    Bf16 "bf16" 2,
    Bf16x2 "bf16x2" 4,
    E4m3x2 "e4m3x2" 2,
    E5m2x2 "e5m2x2" 2,
    Tf32 "tf32" 4,
    F32 "f32" 4,
    F32x2 "f32x2" 8,
    F64 "f64" 8,
    U16x2 "u16x2" 4,
    S16x2 "s16x2" 4,
    // Handles: the driver fills in 64 bits.
    TexRef "texref" 8,
    SamplerRef "samplerref" 8,
    SurfRef "surfref" 8,
}

impl Type {
    /// Bits of a value in a register; a predicate has one.
    pub fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            other => other.bytes() as u32 * 8,
        }
    }

    /// A signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// A floating-point number, or a pair of them.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Type::F16
                | Type::F16x2
                | Type::Bf16
                | Type::Bf16x2
                | Type::E4m3x2
                | Type::E5m2x2
                | Type::Tf32
                | Type::F32
                | Type::F32x2
                | Type::F64
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name())
    }
}
