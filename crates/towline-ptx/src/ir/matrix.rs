//! Operations of tensor cores: on matrices that a warp holds in registers, each lane a part.
//!
//! An instruction on matrices leaves each lane's operands in a piece of its local memory, its *scratch*; [`Together::Matrix`] works there for all
//! lanes at once, and its results are loaded into registers. Operands lie in the order of the instruction's own, without gaps; results lie
//! at the start. Registers of 32 bits take 4 bytes there, those of 64 bits and addresses 8.
//!
//! [`Together::Matrix`]: super::op::Together::Matrix

use super::Space;

/// Bytes of scratch of a lane: the operands of the largest instruction.
pub const SCRATCH_BYTES: u32 = 128;

/// The type of a matrix's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the types")]
pub enum Element {
    B1,
    Bf16,
    F16,
    F32,
    F64,
    S32,
    S4,
    S8,
    /// A number of 32 bits of which the upper 19 count.
    Tf32,
    U4,
    U8,
}

impl Element {
    /// The element of this name, written without its dot.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "b1" => Element::B1,
            "bf16" => Element::Bf16,
            "f16" => Element::F16,
            "f32" => Element::F32,
            "f64" => Element::F64,
            "s32" => Element::S32,
            "s4" => Element::S4,
            "s8" => Element::S8,
            "tf32" => Element::Tf32,
            "u4" => Element::U4,
            "u8" => Element::U8,
            _ => return None,
        })
    }

    /// Bits of an element.
    pub fn bits(self) -> u32 {
        match self {
            Element::B1 => 1,
            Element::S4 | Element::U4 => 4,
            Element::S8 | Element::U8 => 8,
            Element::Bf16 | Element::F16 => 16,
            Element::F32 | Element::S32 | Element::Tf32 => 32,
            Element::F64 => 64,
        }
    }

    /// Bits of the registers that hold it.
    pub fn register_bits(self) -> u32 {
        self.bits().max(32)
    }

    /// Elements of a register.
    pub fn per_register(self) -> u32 {
        self.register_bits() / self.bits()
    }
}

/// Which matrix of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The first factor: `m` rows of `k`.
    A,
    /// The second factor: `k` rows of `n`.
    B,
    /// The summand, or the result: `m` rows of `n`.
    C,
}

/// Extents of a product: `m`, `n` and `k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the letters that the ISA uses")]
pub struct Shape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
}

impl Shape {
    /// `m16n8k8`
    pub fn from_name(name: &str) -> Option<Self> {
        let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some(Self {
            m: m.parse().ok()?,
            n: n.parse().ok()?,
            k: k.parse().ok()?,
        })
    }
}

/// A matrix that a warp holds in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Which one.
    pub role: Role,
    /// Of which product.
    pub shape: Shape,
    /// The type of its elements.
    pub element: Element,
    /// Of `mma.m8n8k4` on half precision: four products at once, each of eight lanes. True if a lane holds rows.
    pub quads: Option<bool>,
    /// `wmma` holds factors of half precision in twice as many registers as they need, or more.
    pub wmma: bool,
}

impl Fragment {
    /// Its rows and columns.
    pub fn extent(&self) -> (u32, u32) {
        let Shape { m, n, k } = self.shape;
        match self.role {
            Role::A => (m, k),
            Role::B => (k, n),
            Role::C => (m, n),
        }
    }

    /// Registers in which a lane has a part that no other has.
    pub fn own_registers(&self) -> u32 {
        let (rows, columns) = self.extent();
        let lanes = if self.quads.is_some() { 8 } else { 32 };
        rows * columns / lanes / self.element.per_register()
    }

    /// Registers of a lane.
    pub fn registers(&self) -> u32 {
        match self.role {
            Role::A | Role::B if self.wmma && self.element == Element::F16 => 8,
            _ => self.own_registers(),
        }
    }

    /// Bytes of scratch that these take.
    pub fn bytes(&self) -> u32 {
        self.registers() * self.element.register_bits() / 8
    }

    /// Row and column of an element: of those in a lane's own registers, by number. PTX ISA, "Matrix Fragments for mma"; layouts that it leaves
    /// open (`wmma`) are the same here, with rows and columns beyond those in registers behind.
    pub fn place(&self, lane: u32, number: u32) -> (u32, u32) {
        let (group, within) = (lane / 4, lane % 4);
        if let Some(rows) = self.quads {
            let high = if lane < 16 { 0 } else { 4 };
            return match (self.role, rows) {
                (Role::A, true) => (within + high, number),
                (Role::A, false) => (number + high, within),
                (Role::B, true) => (within, number + high),
                (Role::B, false) => (number, within + high),
                (Role::C, _) if self.element == Element::F16 => (within + high, number),
                (Role::C, _) => (
                    (lane & 1) + (number & 2) + high,
                    (number & 4) + (lane & 2) + (number & 1),
                ),
            };
        }
        let Shape { m, k, .. } = self.shape;
        let each = match self.role {
            // Two results lie side by side, whatever registers they are in.
            Role::C => 2,
            _ => self.element.per_register(),
        };
        let (part, inner) = (number / each, number % each);
        let along = within * each + inner;
        match self.role {
            Role::A => {
                let blocks = m / 8;
                (
                    group + 8 * (part % blocks),
                    along + part / blocks * 4 * each,
                )
            }
            Role::B => {
                let blocks = k / (4 * each);
                (
                    along + part % blocks * 4 * each,
                    group + 8 * (part / blocks),
                )
            }
            Role::C => {
                let blocks = m / 8;
                (group + 8 * (part % blocks), along + part / blocks * 8)
            }
        }
    }
}

/// The product of two bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum BitProduct {
    And,
    Xor,
}

/// A product of matrices, and the sum with another. Operands: `a`, `b`, `c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the operands in the PTX ISA")]
pub struct Product {
    pub a: Fragment,
    pub b: Fragment,
    pub c: Fragment,
    pub d: Fragment,
    /// Results are held to their type's range.
    pub saturate: bool,
    /// Rounding of results of 64 bits.
    pub rounding: super::op::Rounding,
    /// For matrices of bits.
    pub bits: BitProduct,
}

/// An operation of a warp on matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// `wmma.load`. Operands: an address and a distance between rows, or columns, in elements.
    Load {
        /// The matrix.
        fragment: Fragment,
        /// Rows lie in one piece, not columns.
        by_rows: bool,
        /// Its state space.
        space: Space,
    },
    /// `ldmatrix`. Operand: the address of a row, of those lanes that have one.
    LoadTiles {
        /// Matrices: 1, 2 or 4.
        count: u8,
        /// Rows become columns.
        transposed: bool,
        /// Their state space.
        space: Space,
    },
    /// `mma`, `wmma.mma`
    Multiply(Product),
    /// `wmma.store`. Operands: those of a load, and registers.
    Store {
        /// The matrix.
        fragment: Fragment,
        /// Rows lie in one piece, not columns.
        by_rows: bool,
        /// Its state space.
        space: Space,
    },
    /// `stmatrix`. Operands: that of a load, and registers.
    StoreTiles {
        /// Matrices: 1, 2 or 4.
        count: u8,
        /// Columns become rows.
        transposed: bool,
        /// Their state space.
        space: Space,
    },
    /// `movmatrix`. Operand: a register.
    Transpose,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(role: Role, shape: &str, element: Element) -> Fragment {
        Fragment {
            role,
            shape: Shape::from_name(shape).expect("a shape"),
            element,
            quads: None,
            wmma: false,
        }
    }

    #[test]
    fn places_are_those_of_the_isa() {
        // PTX ISA, figures of "Matrix Fragments for mma": lane 9 is the second of group 2.
        for (role, shape, element, number, expected) in [
            (Role::A, "m16n8k16", Element::F16, 0, (2, 2)),
            (Role::A, "m16n8k16", Element::F16, 3, (10, 3)),
            (Role::A, "m16n8k16", Element::F16, 5, (2, 11)),
            (Role::B, "m16n8k16", Element::F16, 3, (11, 2)),
            (Role::C, "m16n8k16", Element::F32, 3, (10, 3)),
            (Role::A, "m16n8k8", Element::Tf32, 2, (2, 5)),
            (Role::B, "m16n8k8", Element::Tf32, 1, (5, 2)),
            (Role::A, "m16n8k32", Element::S8, 9, (2, 21)),
            (Role::B, "m16n8k32", Element::S8, 6, (22, 2)),
            (Role::A, "m8n8k16", Element::U8, 3, (2, 7)),
            (Role::C, "m8n8k16", Element::S32, 1, (2, 3)),
            (Role::A, "m16n8k64", Element::S4, 17, (2, 41)),
            (Role::A, "m16n8k256", Element::B1, 65, (2, 161)),
            (Role::A, "m16n8k16", Element::F64, 5, (10, 9)),
            (Role::B, "m16n8k16", Element::F64, 3, (13, 2)),
            (Role::A, "m8n8k4", Element::F64, 0, (2, 1)),
        ] {
            let place = fragment(role, shape, element).place(9, number);
            assert_eq!(place, expected, "{role:?} {shape} {element:?} {number}");
        }
    }

    #[test]
    fn quads_have_places_of_their_own() {
        let of = |role, element, rows| Fragment {
            quads: Some(rows),
            ..fragment(role, "m8n8k4", element)
        };
        assert_eq!(of(Role::A, Element::F16, true).place(18, 3), (6, 3));
        assert_eq!(of(Role::A, Element::F16, false).place(18, 3), (7, 2));
        assert_eq!(of(Role::B, Element::F16, true).place(18, 3), (2, 7));
        assert_eq!(of(Role::B, Element::F16, false).place(18, 3), (3, 6));
        assert_eq!(of(Role::C, Element::F16, true).place(18, 5), (6, 5));
        assert_eq!(of(Role::C, Element::F32, true).place(18, 6), (6, 6));
    }

    #[test]
    fn every_element_has_one_lane() {
        for (shape, factor, sum) in [
            ("m16n8k16", Element::F16, Element::F16),
            ("m16n8k4", Element::Tf32, Element::F32),
            ("m16n8k16", Element::F64, Element::F64),
            ("m32n8k16", Element::U8, Element::S32),
            ("m8n32k16", Element::Bf16, Element::F32),
            ("m16n16k16", Element::F16, Element::F32),
            ("m8n8k128", Element::B1, Element::S32),
            ("m16n8k64", Element::U4, Element::S32),
        ] {
            for (role, element) in [(Role::A, factor), (Role::B, factor), (Role::C, sum)] {
                let one = fragment(role, shape, element);
                let elements = one.own_registers() * element.per_register();
                let mut all: Vec<_> = (0..32)
                    .flat_map(|lane| (0..elements).map(move |number| one.place(lane, number)))
                    .collect();
                all.sort_unstable();
                let (rows, columns) = one.extent();
                let expected =
                    (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
                assert!(all.into_iter().eq(expected), "{role:?} {shape} {element:?}");
            }
        }
    }
}
