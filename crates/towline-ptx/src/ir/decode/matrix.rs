//! Instructions on matrices that a warp holds in registers: `ldmatrix` and its kin, `mma`, `wmma`. Each lane's operands are stored in its
//! scratch, and its results are loaded from there.

use super::{Decoded, Decoder};
use crate::ir::fit::Fit;
use crate::ir::matrix::{BitProduct, Element, Fragment, Matrix, Product, Role, Shape};
use crate::ir::op::{Address, Op, Order, Reg, Rounding, Source, Together};
use crate::ir::{Error, Space};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

/// Registers of an operand: the type that each must suit and how closely, and what stands there.
type Registers<'e, 'a> = ((Type, Fit), &'e [Expression<'a>]);

/// The type that registers of a fragment must suit.
fn register_type(element: Element) -> (Type, Fit) {
    match element {
        Element::F64 => (Type::F64, Fit::Same),
        Element::F32 => (Type::F32, Fit::Same),
        Element::F16 => (Type::F16x2, Fit::Same),
        Element::S32 => (Type::S32, Fit::Same),
        _ => (Type::B32, Fit::Count),
    }
}

/// Whether `mma` has a product of these types in this shape.
fn mma_has(shape: Shape, [d, a, b, c]: [Element; 4]) -> bool {
    use Element::{B1, Bf16, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
    let Shape { m, n, k } = shape;
    let depths = match (a, b, m) {
        (F16, F16, 8) => &[4][..],
        (F16, F16, 16) | (Bf16, Bf16, 16) => &[8, 16],
        (Tf32, Tf32, 16) => &[4, 8],
        (F64, F64, 8) => &[4],
        (F64, F64, 16) => &[4, 8, 16],
        (S8 | U8, S8 | U8, 8) => &[16],
        (S8 | U8, S8 | U8, 16) => &[16, 32],
        (S4 | U4, S4 | U4, 8) => &[32],
        (S4 | U4, S4 | U4, 16) => &[32, 64],
        (B1, B1, 8) => &[128],
        (B1, B1, 16) => &[128, 256],
        _ => &[],
    };
    let sums = match a {
        F16 => matches!((d, c), (F16, F16) | (F32, F32)) || (d, c, m) == (F32, F16, 8),
        Bf16 | Tf32 => (d, c) == (F32, F32),
        F64 => (d, c) == (F64, F64),
        _ => (d, c) == (S32, S32),
    };
    n == 8 && depths.contains(&k) && sums
}

/// Whether `wmma` has factors of this type in this shape.
fn wmma_has(shape: Shape, factor: Element) -> bool {
    let Shape { m, n, k } = shape;
    let is_large = matches!((m, n), (16, 16) | (8, 32) | (32, 8));
    match factor {
        Element::F16 | Element::Bf16 | Element::S8 | Element::U8 => is_large && k == 16,
        Element::Tf32 => (m, n, k) == (16, 16, 8),
        Element::F64 => (m, n, k) == (8, 8, 4),
        Element::S4 | Element::U4 => (m, n, k) == (8, 8, 32),
        Element::B1 => (m, n, k) == (8, 8, 128),
        Element::F32 | Element::S32 => false,
    }
}

/// Whether `wmma` has sums of this type in this shape.
fn wmma_sums(shape: Shape, sum: Element) -> bool {
    let of = |factor| wmma_has(shape, factor);
    match sum {
        Element::F16 => of(Element::F16),
        Element::F32 => of(Element::F16) || of(Element::Tf32),
        Element::S32 => of(Element::S8) || of(Element::S4) || of(Element::B1),
        Element::F64 => of(Element::F64),
        _ => false,
    }
}

impl<'a, 'i> Decoder<'a, 'i, '_, '_> {
    pub(super) fn matrix(&mut self, opcode: &str) -> Decoded {
        if !self.modifiers.flag("sync") {
            return self.refuse(format!("`{opcode}` without `.sync` is not supported"));
        }
        let aligned = self.modifiers.flag("aligned");
        match opcode {
            // The first versions of PTX that had it knew no `.aligned`.
            "wmma" => self.wmma(),
            _ if !aligned => self.refuse(format!("`{opcode}` needs `.aligned`")),
            "ldmatrix" | "stmatrix" => self.tiles(opcode == "ldmatrix"),
            "mma" => self.mma(),
            _ => self.movmatrix(),
        }
    }

    /// So many registers in braces.
    fn listed(
        &self,
        operand: &'i Expression<'a>,
        count: u32,
    ) -> Result<&'i [Expression<'a>], Error> {
        self.parts(operand, count as usize)
    }

    fn fragment(
        &self,
        fragment: &Fragment,
        operand: &'i Expression<'a>,
    ) -> Result<Registers<'i, 'a>, Error> {
        let parts = self.listed(operand, fragment.registers())?;
        Ok((register_type(fragment.element), parts))
    }

    /// An address in 64 bits.
    fn address_source(
        &mut self,
        expression: &Expression<'a>,
        space: Space,
    ) -> Result<Source, Error> {
        let Address { base, offset } = self.builder.address(expression, space)?;
        if offset == 0 {
            return Ok(base);
        }
        let d = self.builder.scratch();
        let b = self.builder.bits(offset.cast_unsigned());
        self.before(Op::Binary {
            op: crate::ir::op::Binary::Add,
            ty: Type::U64,
            mode: crate::ir::op::Mode::default(),
            d,
            a: base,
            b,
        })?;
        Ok(Source::Reg(d))
    }

    /// An operation on matrices: its operands are stored, and its results loaded.
    fn on_matrices(
        &mut self,
        what: Matrix,
        mut brought: Vec<(Type, Source)>,
        operands: &[Registers<'i, 'a>],
        results: Option<Registers<'i, 'a>>,
    ) -> Decoded {
        for ((ty, fit), parts) in operands {
            for part in *parts {
                let source = self.builder.fitting_source(part, *ty, *fit)?;
                brought.push((*ty, source));
            }
        }
        let scratch = self.builder.matrix_scratch();
        let base = self.builder.scratch();
        self.before(Op::LocalAddress {
            d: base,
            offset: scratch,
        })?;
        let at = |offset: u64| Address {
            base: Source::Reg(base),
            offset: offset.cast_signed(),
        };
        let (space, order) = (Space::Local, Order::Weak);
        let types: Vec<_> = brought.iter().map(|(ty, _)| word(*ty)).collect();
        for (offset, ty, pieces) in pieces(&types) {
            let a = brought[pieces].iter().map(|(_, source)| *source);
            self.part(Op::StoreVector {
                space,
                ty,
                order,
                address: at(offset),
                a: a.collect(),
            })?;
        }
        let op = Op::Together {
            mask: self.builder.bits(u32::MAX.into()),
            what: Box::new(Together::Matrix { what, scratch }),
        };
        let Some(((ty, fit), parts)) = results else {
            return Ok(op);
        };
        self.part(op)?;
        let registers: Result<Vec<Reg>, _> = parts
            .iter()
            .map(|part| self.builder.fitting_reg(part, ty, fit))
            .collect();
        let registers = registers?;
        let mut loads: Vec<_> = pieces(&vec![word(ty); registers.len()])
            .into_iter()
            .map(|(offset, ty, pieces)| Op::LoadVector {
                space,
                ty,
                order,
                polls: false,
                d: registers[pieces].iter().map(|d| Some(*d)).collect(),
                address: at(offset),
            })
            .collect();
        let last = loads.pop().expect("results are one register at least");
        loads.into_iter().try_for_each(|load| self.part(load))?;
        Ok(last)
    }

    /// `ldmatrix`, `stmatrix`
    fn tiles(&mut self, loads: bool) -> Decoded {
        let shape = self.modifiers.flag("m8n8");
        let count = self.modifiers.one_of(&[("x1", 1), ("x2", 2), ("x4", 4)]);
        let transposed = self.modifiers.flag("trans");
        // Of a block's own alone.
        let near = self
            .modifiers
            .one_of(&[("shared", ()), ("shared::cta", ())]);
        let space = near.map_or(Space::Generic, |()| Space::Shared);
        let b16 = self.modifiers.flag("b16");
        let (true, Some(count), true) = (shape, count, b16) else {
            return self.refuse("only `.m8n8` of `.b16` in shared memory is supported");
        };
        let [first, second] = self.operands()?;
        let (address, registers) = if loads {
            (second, first)
        } else {
            (first, second)
        };
        let registers = (
            (Type::B32, Fit::Same),
            self.listed(registers, count.into())?,
        );
        let address = (Type::B64, self.address_source(address, space)?);
        match loads {
            true => {
                let what = Matrix::LoadTiles {
                    count,
                    transposed,
                    space,
                };
                self.on_matrices(what, vec![address], &[], Some(registers))
            }
            false => {
                let what = Matrix::StoreTiles {
                    count,
                    transposed,
                    space,
                };
                self.on_matrices(what, vec![address], &[registers], None)
            }
        }
    }

    fn movmatrix(&mut self) -> Decoded {
        let known = ["m8n8", "trans", "b16"].map(|name| self.modifiers.flag(name));
        if known != [true; 3] {
            return self.refuse("only `movmatrix.sync.aligned.m8n8.trans.b16` is supported");
        }
        let [d, a] = self.operands()?;
        let [d, a] = [d, a].map(|one| ((Type::B32, Fit::Same), std::slice::from_ref(one)));
        self.on_matrices(Matrix::Transpose, Vec::new(), &[a], Some(d))
    }

    fn shape(&mut self) -> Result<Shape, Error> {
        match self.modifiers.found(Shape::from_name) {
            Some(shape) => Ok(shape),
            None => self.refuse("the shape of the matrices is missing"),
        }
    }

    /// `.row` or `.col`: true for rows in one piece.
    fn layout(&mut self) -> Result<bool, Error> {
        match self.modifiers.one_of(&[("row", true), ("col", false)]) {
            Some(by_rows) => Ok(by_rows),
            None => self.refuse("`.row` or `.col` is missing"),
        }
    }

    fn element(&mut self) -> Result<Element, Error> {
        match self.modifiers.found(Element::from_name) {
            Some(element) => Ok(element),
            None => self.refuse("a matrix has no type, or one that is not supported"),
        }
    }

    /// The product of two bits.
    fn bit_product(&mut self) -> Option<BitProduct> {
        let product = self
            .modifiers
            .one_of(&[("and", BitProduct::And), ("xor", BitProduct::Xor)])?;
        self.modifiers.flag("popc").then_some(product)
    }

    fn product(&mut self, product: Product) -> Decoded {
        let [d, a, b, c] = self.operands()?;
        let d = self.fragment(&product.d, d)?;
        let sources = [
            self.fragment(&product.a, a)?,
            self.fragment(&product.b, b)?,
            self.fragment(&product.c, c)?,
        ];
        self.on_matrices(Matrix::Multiply(product), Vec::new(), &sources, Some(d))
    }

    fn mma(&mut self) -> Decoded {
        for other in ["sp", "sp::ordered_metadata", "block_scale"] {
            if self.modifiers.flag(other) {
                return self.refuse(format!("`mma.{other}` is not supported"));
            }
        }
        let shape = self.shape()?;
        let rows = [self.layout()?, self.layout()?];
        let saturate = self.modifiers.flag("satfinite");
        let bits = self.bit_product();
        let types = [
            self.element()?,
            self.element()?,
            self.element()?,
            self.element()?,
        ];
        let [d, a, b, c] = types;
        let quads = (a == Element::F16 && shape.m == 8).then_some(rows);
        let is_integer = d == Element::S32;
        if !mma_has(shape, types)
            || (a == Element::B1) != bits.is_some()
            || saturate && (!is_integer || bits.is_some())
            || quads.is_none() && rows != [true, false]
        {
            return self.refuse("there is no `mma` of this shape and these types");
        }
        let fragment = |role, element, rows: Option<bool>| Fragment {
            role,
            shape,
            element,
            quads: rows,
            wmma: false,
        };
        self.product(Product {
            a: fragment(Role::A, a, quads.map(|[a, _]| a)),
            b: fragment(Role::B, b, quads.map(|[_, b]| b)),
            c: fragment(Role::C, c, quads.map(|_| true)),
            d: fragment(Role::C, d, quads.map(|_| true)),
            saturate,
            rounding: Rounding::Nearest,
            bits: bits.unwrap_or(BitProduct::And),
        })
    }

    fn wmma(&mut self) -> Decoded {
        match self
            .modifiers
            .one_of(&[("load", 0), ("mma", 1), ("store", 2)])
        {
            Some(0) => self.wmma_access(true),
            Some(1) => self.wmma_mma(),
            Some(_) => self.wmma_access(false),
            None => self.refuse("`wmma` needs `.load`, `.mma` or `.store`"),
        }
    }

    /// `wmma.load`, `wmma.store`
    fn wmma_access(&mut self, loads: bool) -> Decoded {
        let roles = [("a", Role::A), ("b", Role::B), ("c", Role::C)];
        let role = match loads {
            true => self.modifiers.one_of(&roles),
            false => self.modifiers.flag("d").then_some(Role::C),
        };
        let Some(role) = role else {
            return self.refuse("the matrix of a `wmma` is missing");
        };
        let by_rows = self.layout()?;
        let shape = self.shape()?;
        let space = self.modifiers.space();
        let element = self.element()?;
        let known = match role {
            Role::A | Role::B => wmma_has(shape, element),
            Role::C => wmma_sums(shape, element),
        };
        // Parts of bytes lie as they are multiplied.
        let fits = match role {
            _ if element.bits() >= 8 => true,
            Role::A => by_rows,
            _ => !by_rows,
        };
        if !known || !fits || !matches!(space, Space::Shared | Space::Global | Space::Generic) {
            return self.refuse("there is no `wmma` matrix of this shape, type and layout");
        }
        let fragment = Fragment {
            role,
            shape,
            element,
            quads: None,
            wmma: true,
        };
        let (registers, address, stride) = match (loads, self.operands) {
            (true, [registers, address, stride @ ..])
            | (false, [address, registers, stride @ ..]) => (registers, address, stride),
            _ => return self.refuse("`wmma` needs registers and an address"),
        };
        let registers = self.fragment(&fragment, registers)?;
        let address = (Type::B64, self.address_source(address, space)?);
        let (rows, columns) = fragment.extent();
        let stride = match stride {
            [] => self
                .builder
                .bits(if by_rows { columns } else { rows }.into()),
            [stride] => self.builder.count(stride)?,
            _ => return self.refuse("`wmma` has other operands"),
        };
        let brought = vec![address, (Type::B64, stride)];
        match loads {
            true => {
                let what = Matrix::Load {
                    fragment,
                    by_rows,
                    space,
                };
                self.on_matrices(what, brought, &[], Some(registers))
            }
            false => {
                let what = Matrix::Store {
                    fragment,
                    by_rows,
                    space,
                };
                self.on_matrices(what, brought, &[registers], None)
            }
        }
    }

    fn wmma_mma(&mut self) -> Decoded {
        let bits = self.bit_product();
        let rows = [self.layout()?, self.layout()?];
        let shape = self.shape()?;
        let rounding = self.modifiers.one_of(&[
            ("rn", Rounding::Nearest),
            ("rz", Rounding::Zero),
            ("rm", Rounding::Down),
            ("rp", Rounding::Up),
        ]);
        let saturate = self.modifiers.flag("satfinite");
        let (d, second) = (self.element()?, self.element()?);
        // For half precision, only the types of sums are named.
        let (a, b, c) = match self.modifiers.found(Element::from_name) {
            None => (Element::F16, Element::F16, second),
            Some(b) => (second, b, self.element()?),
        };
        let sums = match a {
            Element::F16 => [c, d]
                .iter()
                .all(|sum| matches!(sum, Element::F16 | Element::F32)),
            Element::Bf16 | Element::Tf32 => [c, d] == [Element::F32; 2],
            Element::F64 => [c, d] == [Element::F64; 2],
            _ => [c, d] == [Element::S32; 2],
        };
        let is_integer = d == Element::S32;
        if !wmma_has(shape, a)
            || a != b
            || !sums
            || (a == Element::B1) != bits.is_some()
            || saturate && (!is_integer || bits.is_some())
            || (a != Element::F64) && rounding.is_some()
            || a.bits() < 8 && rows != [true, false]
        {
            return self.refuse("there is no `wmma.mma` of this shape and these types");
        }
        let fragment = |role, element| Fragment {
            role,
            shape,
            element,
            quads: None,
            wmma: true,
        };
        self.product(Product {
            a: fragment(Role::A, a),
            b: fragment(Role::B, b),
            c: fragment(Role::C, c),
            d: fragment(Role::C, d),
            saturate,
            rounding: rounding.unwrap_or_default(),
            bits: bits.unwrap_or(BitProduct::And),
        })
    }
}

/// The type that a register is stored as.
fn word(ty: Type) -> Type {
    match ty.bits() {
        64 => Type::B64,
        _ => Type::B32,
    }
}

/// Values that lie one behind the other, in as few accesses as may be: where each begins, of which type, and which values.
fn pieces(types: &[Type]) -> Vec<(u64, Type, std::ops::Range<usize>)> {
    let (mut pieces, mut offset, mut next) = (Vec::new(), 0, 0);
    while let Some(ty) = types.get(next).copied() {
        let fits = |count: &usize| {
            let bytes = ty.bytes() * *count as u64;
            let alike = types.get(next..next + count);
            bytes <= 16
                && offset % bytes == 0
                && alike.is_some_and(|all| all.iter().all(|one| *one == ty))
        };
        let count = [4, 2, 1].into_iter().find(fits).unwrap_or(1);
        pieces.push((offset, ty, next..next + count));
        offset += ty.bytes() * count as u64;
        next += count;
    }
    pieces
}
