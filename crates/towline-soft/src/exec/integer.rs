//! Integer arithmetic and logic, for `N` lanes at once: all of a warp, or one.

use towline_ptx::ir::op::{
    Atomic, Binary, Carried, Permute, Ternary, Unary, Video, VideoInput, VideoOp, VideoThen,
};
use towline_ptx::ptx::Type;

use super::mbarrier;
use super::number::Word;

#[inline(always)]
pub(super) fn map1<A: Word, D: Word, const N: usize>(a: &[u64; N], f: impl Fn(A) -> D) -> [u64; N] {
    std::array::from_fn(|lane| f(A::take(a[lane])).put())
}

#[inline(always)]
pub(super) fn map2<A: Word, B: Word, D: Word, const N: usize>(
    a: &[u64; N],
    b: &[u64; N],
    f: impl Fn(A, B) -> D,
) -> [u64; N] {
    let mut out = [0; N];
    for lane in 0..N {
        out[lane] = f(A::take(a[lane]), B::take(b[lane])).put();
    }
    out
}

#[inline(always)]
pub(super) fn map3<A: Word, B: Word, C: Word, D: Word, const N: usize>(
    a: &[u64; N],
    b: &[u64; N],
    c: &[u64; N],
    f: impl Fn(A, B, C) -> D,
) -> [u64; N] {
    let mut out = [0; N];
    for lane in 0..N {
        out[lane] = f(A::take(a[lane]), B::take(b[lane]), C::take(c[lane])).put();
    }
    out
}

/// Integers of one width and signedness.
pub(super) trait Integer: Word + Ord {
    type Wide: Word;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn add_saturating(self, other: Self) -> Self;
    fn sub_saturating(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    fn mul_wide(self, other: Self) -> Self::Wide;
    fn wide_add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn distance(self, other: Self) -> Self;
    fn shift_right(self, by: u32) -> Self;
}

macro_rules! integers {
    ($($int:ident $unsigned:ident $wide:ident $double:ident;)*) => {
        $(impl Integer for $int {
            type Wide = $wide;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn add_saturating(self, other: Self) -> Self {
                self.saturating_add(other)
            }
            #[inline(always)]
            fn sub_saturating(self, other: Self) -> Self {
                self.saturating_sub(other)
            }
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                (self as $double * other as $double >> $int::BITS) as $int
            }
            #[inline(always)]
            fn mul_wide(self, other: Self) -> $wide {
                (self as $wide).wrapping_mul(other as $wide)
            }
            #[inline(always)]
            fn wide_add(a: $wide, b: $wide) -> $wide {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                // As GPUs do it: all ones.
                if other == 0 { $unsigned::MAX as $int } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { $unsigned::MAX as $int } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn distance(self, other: Self) -> Self {
                self.abs_diff(other) as $int
            }
            #[inline(always)]
            fn shift_right(self, by: u32) -> Self {
                match by < $int::BITS {
                    true => self >> by,
                    // What is left is the sign, or nothing.
                    false => self >> ($int::BITS - 1) >> 1_u32.min($int::BITS - 1),
                }
            }
        })*
    };
}

integers! {
    i16 u16 i32 i32;
    u16 u16 u32 u32;
    i32 u32 i64 i64;
    u32 u32 u64 u64;
    i64 u64 i64 i128;
    u64 u64 u64 u128;
}

/// Evaluates an expression with a name standing for the integer type of a PTX type.
macro_rules! by_type {
    ($ty:expr, $name:ident => $body:expr) => {
        by_type!(@ $ty, $name, $body,
            U16 B16 u16, S16 S16 i16, U32 B32 u32, S32 S32 i32, U64 B64 u64, S64 S64 i64)
    };
    (@ $ty:expr, $name:ident, $body:expr, $($first:ident $second:ident $int:ident),*) => {
        match $ty {
            $(#[allow(unreachable_patterns, reason = "signed types have one name")]
            Type::$first | Type::$second => {
                type $name = $int;
                $body
            })*
            _ => None,
        }
    };
}

fn binary_of<T: Integer, const N: usize>(
    op: Binary,
    saturate: bool,
    a: &[u64; N],
    b: &[u64; N],
) -> Option<[u64; N]> {
    Some(match op {
        Binary::Add if saturate => map2(a, b, T::add_saturating),
        Binary::Add => map2(a, b, T::add),
        Binary::Sub if saturate => map2(a, b, T::sub_saturating),
        Binary::Sub => map2(a, b, T::sub),
        Binary::Mul => map2(a, b, T::mul),
        Binary::MulHi => map2(a, b, T::mul_high),
        Binary::MulWide => map2(a, b, T::mul_wide),
        Binary::Div => map2(a, b, T::div),
        Binary::Rem => map2(a, b, T::rem),
        Binary::Max => map2(a, b, |a: T, b: T| a.max(b)),
        Binary::Min => map2(a, b, |a: T, b: T| a.min(b)),
        Binary::Shr => map2(a, b, |a: T, b: u32| a.shift_right(b)),
        _ => return None,
    })
}

/// An operation with two inputs.
pub(crate) fn binary<const N: usize>(
    op: Binary,
    ty: Type,
    saturate: bool,
    relu: bool,
    a: &[u64; N],
    b: &[u64; N],
) -> Option<[u64; N]> {
    let bits = ty.bits();
    Some(match op {
        Binary::And => map2(a, b, |a: u64, b: u64| a & b),
        Binary::Or => map2(a, b, |a: u64, b: u64| a | b),
        Binary::Xor => map2(a, b, |a: u64, b: u64| a ^ b),
        Binary::Shl => match bits {
            16 => map2(a, b, |a: u16, b: u32| a.checked_shl(b).unwrap_or(0)),
            32 => map2(a, b, |a: u32, b: u32| a.checked_shl(b).unwrap_or(0)),
            _ => map2(a, b, |a: u64, b: u32| a.checked_shl(b).unwrap_or(0)),
        },
        Binary::Mul24Lo if ty.is_signed() => map2(a, b, |a: i32, b: i32| product24(a, b) as i32),
        Binary::Mul24Lo => map2(a, b, |a: u32, b: u32| product24_unsigned(a, b) as u32),
        Binary::Mul24Hi if ty.is_signed() => {
            map2(a, b, |a: i32, b: i32| (product24(a, b) >> 16) as i32)
        }
        Binary::Mul24Hi => map2(a, b, |a: u32, b: u32| {
            (product24_unsigned(a, b) >> 16) as u32
        }),
        Binary::BmskClamp => map2(a, b, |a: u32, b: u32| mask_bits(a, b.min(32))),
        Binary::BmskWrap => map2(a, b, |a: u32, b: u32| mask_bits(a & 31, b & 31)),
        Binary::SzextClamp if ty.is_signed() => {
            map2(a, b, |a: u32, b: u32| sign_extend(a, b.min(32)))
        }
        Binary::SzextClamp => map2(a, b, |a: u32, b: u32| a & mask_bits(0, b.min(32))),
        Binary::SzextWrap if ty.is_signed() => map2(a, b, |a: u32, b: u32| sign_extend(a, b & 31)),
        Binary::SzextWrap => map2(a, b, |a: u32, b: u32| a & mask_bits(0, b & 31)),
        _ if matches!(ty, Type::U16x2 | Type::S16x2) => pairs(op, ty, saturate, relu, a, b)?,
        _ => {
            let out = by_type!(ty, T => binary_of::<T, N>(op, saturate, a, b))?;
            match relu {
                true => map1(&out, |value: i32| value.max(0)),
                false => out,
            }
        }
    })
}

/// The same on both halves of 32 bits.
fn pairs<const N: usize>(
    op: Binary,
    ty: Type,
    saturate: bool,
    relu: bool,
    a: &[u64; N],
    b: &[u64; N],
) -> Option<[u64; N]> {
    let half = if ty == Type::S16x2 {
        Type::S16
    } else {
        Type::U16
    };
    let upper = |from: &[u64; N]| -> [u64; N] { map1(from, |value: u32| value >> 16) };
    let mut low = by_type!(half, T => binary_of::<T, N>(op, saturate, a, b))?;
    let mut high = by_type!(half, T => binary_of::<T, N>(op, saturate, &upper(a), &upper(b)))?;
    if relu {
        low = map1(&low, |value: i16| value.max(0));
        high = map1(&high, |value: i16| value.max(0));
    }
    Some(map2(&low, &high, |low: u16, high: u16| {
        u32::from(high) << 16 | u32::from(low)
    }))
}

fn product24(a: i32, b: i32) -> i64 {
    i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8)
}

fn product24_unsigned(a: u32, b: u32) -> u64 {
    u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)
}

/// `width` ones from bit `start` on.
fn mask_bits(start: u32, width: u32) -> u32 {
    let ones = ((1_u64 << width) - 1) as u32;
    ones.checked_shl(start).unwrap_or(0)
}

fn sign_extend(value: u32, width: u32) -> u32 {
    match width {
        0 => 0,
        width => ((value << (32 - width)) as i32 >> (32 - width)) as u32,
    }
}

fn signed_magnitude<T: Integer, const N: usize>(op: Unary, a: &[u64; N]) -> Option<[u64; N]> {
    let zero = T::take(0);
    Some(match op {
        Unary::Abs => map1(a, |a: T| if a < zero { zero.sub(a) } else { a }),
        Unary::Neg => map1(a, |a: T| zero.sub(a)),
        _ => return None,
    })
}

/// An operation with one input.
pub(crate) fn unary<const N: usize>(op: Unary, ty: Type, a: &[u64; N]) -> Option<[u64; N]> {
    let wide = ty.bits() == 64;
    Some(match op {
        Unary::Abs | Unary::Neg => by_type!(ty, T => signed_magnitude::<T, N>(op, a))?,
        Unary::Not => map1(a, |a: u64| !a),
        Unary::Cnot => match ty.bits() {
            16 => map1(a, |a: u16| u16::from(a == 0)),
            32 => map1(a, |a: u32| u32::from(a == 0)),
            _ => map1(a, |a: u64| u64::from(a == 0)),
        },
        Unary::Popc if wide => map1(a, |a: u64| a.count_ones()),
        Unary::Popc => map1(a, |a: u32| a.count_ones()),
        Unary::Clz if wide => map1(a, |a: u64| a.leading_zeros()),
        Unary::Clz => map1(a, |a: u32| a.leading_zeros()),
        Unary::Brev if wide => map1(a, |a: u64| a.reverse_bits()),
        Unary::Brev => map1(a, |a: u32| a.reverse_bits()),
        Unary::Bfind | Unary::BfindShift => {
            let bits = ty.bits();
            let shift = op == Unary::BfindShift;
            map1(a, |a: u64| {
                let a = match (ty.is_signed(), wide) {
                    (true, true) if (a as i64) < 0 => !a,
                    (true, false) if (a as i32) < 0 => u64::from(!(a as u32)),
                    (_, true) => a,
                    (_, false) => u64::from(a as u32),
                };
                match a {
                    0 => u32::MAX,
                    a if shift => bits - 1 - a.ilog2(),
                    a => a.ilog2(),
                }
            })
        }
        _ => return None,
    })
}

fn ternary_of<T: Integer, const N: usize>(
    op: Ternary,
    saturate: bool,
    [a, b, c]: [&[u64; N]; 3],
) -> Option<[u64; N]> {
    Some(match op {
        Ternary::Mad => map3(a, b, c, |a: T, b: T, c: T| a.mul(b).add(c)),
        Ternary::MadHi if saturate => {
            map3(a, b, c, |a: T, b: T, c: T| a.mul_high(b).add_saturating(c))
        }
        Ternary::MadHi => map3(a, b, c, |a: T, b: T, c: T| a.mul_high(b).add(c)),
        Ternary::MadWide => map3(a, b, c, |a: T, b: T, c: T::Wide| {
            T::wide_add(a.mul_wide(b), c)
        }),
        Ternary::Sad => map3(a, b, c, |a: T, b: T, c: T| c.add(a.distance(b))),
        _ => return None,
    })
}

/// An operation with three inputs.
pub(crate) fn ternary<const N: usize>(
    op: Ternary,
    ty: Type,
    saturate: bool,
    inputs: [&[u64; N]; 3],
) -> Option<[u64; N]> {
    let [a, b, c] = inputs;
    Some(match op {
        Ternary::Mad24Lo => {
            let product = binary(Binary::Mul24Lo, ty, false, false, a, b)?;
            map2(&product, c, u32::wrapping_add)
        }
        Ternary::Mad24Hi => {
            let product = binary(Binary::Mul24Hi, ty, false, false, a, b)?;
            match saturate {
                true => map2(&product, c, i32::saturating_add),
                false => map2(&product, c, u32::wrapping_add),
            }
        }
        Ternary::Bfe if ty.bits() == 64 => map3(a, b, c, |a: u64, b: u32, c: u32| {
            extract(a, 64, b, c, ty.is_signed())
        }),
        Ternary::Bfe => map3(a, b, c, |a: u32, b: u32, c: u32| {
            extract(a.into(), 32, b, c, ty.is_signed()) as u32
        }),
        Ternary::Lop3(table) => map3(a, b, c, |a: u32, b: u32, c: u32| lop3(table, a, b, c)),
        Ternary::ShfLeft { wrap } => map3(a, b, c, |low: u32, high: u32, by: u32| {
            let by = if wrap { by & 31 } else { by.min(32) };
            ((u64::from(high) << 32 | u64::from(low)) << by >> 32) as u32
        }),
        Ternary::ShfRight { wrap } => map3(a, b, c, |low: u32, high: u32, by: u32| {
            let by = if wrap { by & 31 } else { by.min(32) };
            ((u64::from(high) << 32 | u64::from(low)) >> by) as u32
        }),
        Ternary::Prmt(mode) => map3(a, b, c, |a: u32, b: u32, c: u32| permute(mode, a, b, c)),
        Ternary::FindNthSet => map3(a, b, c, find_nth_set),
        Ternary::Dp4a { signed } => map3(a, b, c, |a: u32, b: u32, c: u32| {
            let products =
                (0..4).map(|index| part(a, index, 8, signed[0]) * part(b, index, 8, signed[1]));
            c.wrapping_add(products.sum::<i32>() as u32)
        }),
        Ternary::Dp2a { high, signed } => map3(a, b, c, |a: u32, b: u32, c: u32| {
            let first = if high { 2 } else { 0 };
            let products = (0..2).map(|index| {
                part(a, index, 16, signed[0]).wrapping_mul(part(b, first + index, 8, signed[1]))
            });
            products.fold(c, |sum, product| sum.wrapping_add(product as u32))
        }),
        Ternary::Video(of) => map3(a, b, c, |a: u32, b: u32, c: u32| video(of, a, b, c)),
        op => by_type!(ty, T => ternary_of::<T, N>(op, saturate, inputs))?,
    })
}

/// `vadd` and the like.
fn video(of: Video, a: u32, b: u32, c: u32) -> u32 {
    // Of one result each operand has its parts; of several those of `b` are numbered behind those of `a`.
    let words = match of.results {
        1 => [u64::from(a), u64::from(b)],
        _ => [u64::from(b) << 32 | u64::from(a); 2],
    };
    let input = |place: u8, word: u64, input: VideoInput| {
        let part = u32::from(input.parts) >> (4 * place) & 15;
        let value = word >> (part * u32::from(input.bits)) & ((1 << input.bits) - 1);
        match input.signed {
            true => i64::from(sign_extend(value as u32, input.bits.into()) as i32),
            false => value as i64,
        }
    };
    let bits = match of.then {
        VideoThen::Merge { bits, .. } => bits,
        _ => 32 / of.results,
    };
    let one = |place: u8| {
        let [a, b] = [0, 1].map(|which| input(place, words[which], of.inputs[which]));
        let value = match of.op {
            VideoOp::AbsDiff => (a - b).abs(),
            VideoOp::Add => a + b,
            // Halves are rounded away from zero.
            VideoOp::Avrg => (a + b + i64::from(a + b >= 0)) >> 1,
            VideoOp::Max => a.max(b),
            VideoOp::Min => a.min(b),
            VideoOp::Sub => a - b,
        };
        match (of.saturate, of.signed) {
            (false, _) => value,
            (true, true) => value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            // As an H200 does it: of a whole word without a sign only the lower end is held.
            (true, false) if bits == 32 => value.max(0),
            (true, false) => value.clamp(0, (1 << bits) - 1),
        }
    };
    let signed = |word: u32| match of.signed {
        true => i64::from(word as i32),
        false => i64::from(word),
    };
    // What has more bits than a word has lost them before it meets `c`.
    let whole = || signed(one(0) as u32);
    match of.then {
        VideoThen::Merge { bits: 32, .. } => one(0) as u32,
        VideoThen::Merge { bits, mask } => {
            let ones = (1_u32 << bits) - 1;
            let placed = |word: u32, place: u8| {
                let value = if of.results == 1 { one(0) } else { one(place) };
                let by = u32::from(place) * u32::from(bits);
                word & !(ones << by) | (value as u32 & ones) << by
            };
            let places = (0..32 / bits).filter(|place| mask >> place & 1 != 0);
            places.fold(c, placed)
        }
        VideoThen::Add { mask } => (0..of.results)
            .filter(|place| mask >> place & 1 != 0)
            .fold(c, |sum, place| sum.wrapping_add(one(place) as u32)),
        VideoThen::Min => whole().min(signed(c)) as u32,
        VideoThen::Max => whole().max(signed(c)) as u32,
    }
}

/// A part of a packed vector.
fn part(word: u32, index: u32, bits: u32, signed: bool) -> i32 {
    let value = word >> (index * bits) & ((1 << bits) - 1);
    match signed {
        true => sign_extend(value, bits) as i32,
        false => value as i32,
    }
}

/// Where a bit field starts, and how long it is: eight bits of each count, but on words of 64 all of them do.
fn field(start: u32, len: u32, bits: u32) -> (u32, u32) {
    match bits {
        64 => (start, len),
        _ => (start & 0xff, len & 0xff),
    }
}

/// `bfe`: `len` bits from `start` on.
fn extract(value: u64, bits: u32, start: u32, len: u32, signed: bool) -> u64 {
    let (start, len) = field(start, len, bits);
    let sign_at = start.saturating_add(len).saturating_sub(1).min(bits - 1);
    let sign = signed && len > 0 && value >> sign_at & 1 != 0;
    let kept = value.checked_shr(start).unwrap_or(0);
    let available = bits.saturating_sub(start).min(len);
    let ones = |count: u32| {
        if count >= 64 {
            u64::MAX
        } else {
            (1 << count) - 1
        }
    };
    let kept = kept & ones(available);
    if sign { kept | !ones(available) } else { kept }
}

/// `bfi`: the lowest `len` bits of `a` in place of those of `b` from `start` on.
pub(crate) fn insert(a: u64, b: u64, start: u32, len: u32, bits: u32) -> u64 {
    let (start, len) = field(start, len, bits);
    if start >= bits {
        return b;
    }
    let len = len.min(bits - start);
    let ones = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    b & !(ones << start) | (a & ones) << start
}

fn lop3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..8)
        .filter(|entry| table >> entry & 1 != 0)
        .fold(0, |out, entry| {
            let a = if entry & 4 != 0 { a } else { !a };
            let b = if entry & 2 != 0 { b } else { !b };
            let c = if entry & 1 != 0 { c } else { !c };
            out | a & b & c
        })
}

fn permute(mode: Permute, a: u32, b: u32, c: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let at = c & 3;
    let index = |place: u32| -> u32 {
        match mode {
            Permute::Index => c >> (4 * place) & 7,
            Permute::F4e => at + place,
            Permute::B4e => at.wrapping_sub(place) & 7,
            Permute::Rc8 => at,
            Permute::Ecl => at.max(place),
            Permute::Ecr => at.min(place),
            Permute::Rc16 => (at & 1) * 2 + (place & 1),
        }
    };
    let byte = |place: u32| {
        let byte = bytes[(index(place) & 7) as usize];
        let sign = mode == Permute::Index && c >> (4 * place + 3) & 1 != 0;
        if sign {
            ((byte as i8) >> 7) as u8
        } else {
            byte
        }
    };
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// `fns`: where the nth set bit from `base` on is.
fn find_nth_set(mask: u32, base: u32, offset: u32) -> u32 {
    let offset = offset as i32;
    if base > 31 {
        return u32::MAX;
    }
    let set = |bit: &u32| mask >> bit & 1 != 0;
    let found = match offset {
        0 => Some(base).filter(set),
        1.. => (base..32).filter(set).nth(offset as usize - 1),
        _ => (0..=base)
            .rev()
            .filter(set)
            .nth(offset.unsigned_abs() as usize - 1),
    };
    found.unwrap_or(u32::MAX)
}

/// Sum or difference and its carry, for 32 or 64 bits.
pub(crate) fn carried(op: Carried, ty: Type, [a, b, c]: [u64; 3], carry: bool) -> (u64, bool) {
    let wide = ty.bits() == 64;
    let mask = if wide { u64::MAX } else { u32::MAX.into() };
    let (a, b, c) = (a & mask, b & mask, c & mask);
    let (left, right) = match op {
        Carried::Add => (a, b),
        Carried::Sub => {
            // A borrow is kept as a carry that is set.
            let exact = i128::from(a) - i128::from(b) - i128::from(carry);
            return (exact as u64 & mask, exact < 0);
        }
        Carried::MadLo => (a.wrapping_mul(b) & mask, c),
        Carried::MadHi => {
            let high = match (ty, wide) {
                (Type::S64, _) => (a as i64).mul_high(b as i64) as u64,
                (_, true) => a.mul_high(b),
                (Type::S32, _) => u64::from((a as i32).mul_high(b as i32) as u32),
                _ => (a as u32).mul_high(b as u32).into(),
            };
            (high, c)
        }
    };
    let exact = u128::from(left) + u128::from(right) + u128::from(carry);
    (exact as u64 & mask, exact > u128::from(mask))
}

fn combine<T: Integer>(op: Atomic, old: u64, a: u64) -> Option<u64> {
    let (x, y) = (T::take(old), T::take(a));
    Some(match op {
        Atomic::Add => x.add(y).put(),
        Atomic::Max => x.max(y).put(),
        Atomic::Min => x.min(y).put(),
        _ => return None,
    })
}

/// What an atomic operation on integers leaves.
pub(crate) fn atomic(op: Atomic, ty: Type, old: u64, a: u64, b: u64) -> Option<u64> {
    Some(match op {
        Atomic::And => old & a,
        Atomic::Or => old | a,
        Atomic::Xor => old ^ a,
        Atomic::Exch => a,
        Atomic::Cas => {
            let mask = match ty.bits() {
                64 => u64::MAX,
                bits => (1 << bits) - 1,
            };
            if old & mask == a & mask { b } else { old }
        }
        Atomic::Inc => {
            let (old, limit) = (old as u32, a as u32);
            u64::from(if old >= limit { 0 } else { old + 1 })
        }
        Atomic::Dec => {
            let (old, limit) = (old as u32, a as u32);
            u64::from(if old == 0 || old > limit {
                limit
            } else {
                old - 1
            })
        }
        Atomic::Mbarrier(change) => mbarrier::changed(change, old, a),
        op => by_type!(ty, T => combine::<T>(op, old, a))?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::frame::LANES;
    use super::*;

    fn two(op: Binary, ty: Type, a: u64, b: u64) -> u64 {
        binary(op, ty, false, false, &[a; LANES], &[b; LANES]).expect("an operation")[31]
    }

    fn three(op: Ternary, ty: Type, a: u64, b: u64, c: u64) -> u64 {
        ternary(op, ty, false, [&[a; LANES], &[b; LANES], &[c; LANES]]).expect("an operation")[0]
    }

    fn one(op: Unary, ty: Type, a: u64) -> u64 {
        unary(op, ty, &[a; LANES]).expect("an operation")[7]
    }

    #[test]
    fn integers_wrap_and_saturate() {
        let max = i32::MAX as u64;
        assert_eq!(two(Binary::Add, Type::S32, max, 1), 0x8000_0000);
        let (a, b) = ([max; LANES], [1; LANES]);
        let kept = binary(Binary::Add, Type::S32, true, false, &a, &b).expect("an operation");
        assert_eq!(kept[0], max);
        assert_eq!(two(Binary::Add, Type::U16, 0xffff, 2), 1);
        assert_eq!(
            two(Binary::Add, Type::U16x2, 0x0001_ffff, 0x0001_0002),
            0x0002_0001
        );
        assert_eq!(
            two(Binary::Max, Type::S16x2, 0xffff_0001, 0x0000_8000),
            0x0000_0001
        );
    }

    #[test]
    fn products_have_halves_and_wholes() {
        let minus_one = 0xffff_ffff;
        assert_eq!(
            two(Binary::MulHi, Type::U32, minus_one, minus_one),
            0xffff_fffe
        );
        assert_eq!(two(Binary::MulHi, Type::S32, minus_one, minus_one), 0);
        assert_eq!(two(Binary::MulWide, Type::S32, minus_one, 2), -2_i64 as u64);
        assert_eq!(two(Binary::MulWide, Type::U32, minus_one, 2), 0x1_ffff_fffe);
        assert_eq!(
            two(Binary::MulHi, Type::U64, u64::MAX, u64::MAX),
            u64::MAX - 1
        );
        assert_eq!(three(Ternary::MadWide, Type::S32, minus_one, 3, 5), 2);
        assert_eq!(two(Binary::Mul24Lo, Type::S32, 0xff_ffff, 2), 0xffff_fffe);
        assert_eq!(
            two(Binary::Mul24Hi, Type::U32, 0xff_ffff, 0x100_0000 - 1),
            0xffff_fe00
        );
    }

    #[test]
    fn division_never_traps() {
        assert_eq!(
            two(Binary::Div, Type::S32, i32::MIN as u32 as u64, 0xffff_ffff),
            0x8000_0000
        );
        assert_eq!(two(Binary::Div, Type::U32, 5, 0), 0xffff_ffff);
        // As an H200 does it.
        assert_eq!(two(Binary::Rem, Type::U64, 5, 0), u64::MAX);
        assert_eq!(two(Binary::Rem, Type::S16, 5, 0), 0xffff);
        assert_eq!(
            two(Binary::Rem, Type::S32, -7_i32 as u32 as u64, 3),
            -1_i32 as u32 as u64
        );
    }

    #[test]
    fn shifts_by_too_much_leave_zero_or_the_sign() {
        assert_eq!(two(Binary::Shl, Type::B32, 1, 32), 0);
        assert_eq!(two(Binary::Shr, Type::U32, 0x8000_0000, 32), 0);
        assert_eq!(two(Binary::Shr, Type::S32, 0x8000_0000, 99), 0xffff_ffff);
        assert_eq!(two(Binary::Shr, Type::S32, 0x8000_0000, 4), 0xf800_0000);
        assert_eq!(two(Binary::Shr, Type::U64, 1 << 63, 64), 0);
        assert_eq!(
            three(
                Ternary::ShfLeft { wrap: true },
                Type::B32,
                0x8000_0000,
                1,
                33
            ),
            3
        );
        assert_eq!(
            three(Ternary::ShfRight { wrap: false }, Type::B32, 1, 7, 40),
            7
        );
    }

    #[test]
    fn bit_fields_are_cut_and_set() {
        assert_eq!(three(Ternary::Bfe, Type::U32, 0xabcd_1234, 8, 8), 0x12);
        assert_eq!(
            three(Ternary::Bfe, Type::S32, 0x0000_f000, 12, 4),
            0xffff_ffff
        );
        assert_eq!(
            three(Ternary::Bfe, Type::S32, 0x8000_0000, 28, 8),
            0xffff_fff8
        );
        assert_eq!(three(Ternary::Bfe, Type::U64, u64::MAX, 60, 255), 0xf);
        assert_eq!(insert(0xff, 0, 8, 4, 32), 0xf00);
        assert_eq!(
            insert(0x1234_5678, 0x9abc, 32, 32, 64),
            0x1234_5678_0000_9abc
        );
        assert_eq!(insert(1, 7, 40, 4, 32), 7);
        // Of words of 64 bits, numbers above 255 are not cut.
        assert_eq!(
            three(Ternary::Bfe, Type::U64, u64::MAX, 4, 0x100),
            u64::MAX >> 4
        );
        assert_eq!(three(Ternary::Bfe, Type::U32, 0xffff_ffff, 4, 0x100), 0);
        assert_eq!(insert(1, 7, 0x100, 4, 64), 7);
        assert_eq!(two(Binary::BmskClamp, Type::B32, 4, 8), 0xff0);
        assert_eq!(two(Binary::SzextClamp, Type::S32, 0x80, 8), 0xffff_ff80);
    }

    #[test]
    fn bits_are_counted_and_found() {
        assert_eq!(one(Unary::Popc, Type::B64, u64::MAX), 64);
        assert_eq!(one(Unary::Clz, Type::B32, 1), 31);
        assert_eq!(one(Unary::Brev, Type::B32, 1), 0x8000_0000);
        assert_eq!(one(Unary::Bfind, Type::U32, 0x100), 8);
        assert_eq!(one(Unary::Bfind, Type::S32, 0xffff_fffe), 0);
        assert_eq!(one(Unary::BfindShift, Type::U32, 1), 31);
        assert_eq!(one(Unary::Bfind, Type::U64, 0), u32::MAX.into());
        assert_eq!(find_nth_set(0b1010_1100, 0, 2), 3);
        assert_eq!(find_nth_set(0b1010_1100, 5, -2_i32 as u32), 3);
        assert_eq!(find_nth_set(0b1010_1100, 4, 0), u32::MAX);
        assert_eq!(find_nth_set(u32::MAX, 32, 1), u32::MAX);
        assert_eq!(one(Unary::Neg, Type::S64, 5), -5_i64 as u64);
        assert_eq!(one(Unary::Abs, Type::S32, 0x8000_0000), 0x8000_0000);
    }

    #[test]
    fn logic_and_permutations_follow_their_tables() {
        assert_eq!(lop3(0x80, 0b1100, 0b1010, 0b1111), 0b1000);
        assert_eq!(lop3(0x96, 0b1100, 0b1010, 0b1111), 0b1001);
        let (a, b) = (0x3322_1100, 0x7766_5544);
        assert_eq!(permute(Permute::Index, a, b, 0x7531), 0x7755_3311);
        assert_eq!(permute(Permute::Index, 0x80, 0, 0x0008), 0x8080_80ff);
        assert_eq!(permute(Permute::F4e, a, b, 1), 0x4433_2211);
        assert_eq!(permute(Permute::B4e, a, b, 1), 0x6677_0011);
        assert_eq!(permute(Permute::Rc16, a, b, 1), 0x3322_3322);
    }

    #[test]
    fn dot_products_take_signs_apart() {
        let signed = [true, false];
        assert_eq!(
            three(
                Ternary::Dp4a { signed },
                Type::S32,
                0xff01_ff01,
                0x0102_0304,
                10
            ),
            10 + 4 - 3 + 2 - 1
        );
        let dp2a = Ternary::Dp2a { high: true, signed };
        assert_eq!(three(dp2a, Type::S32, 0xffff_0002, 0x0304_0000, 0), 8 - 3);
    }

    #[test]
    fn carries_travel() {
        let add = |a, b, carry| carried(Carried::Add, Type::U32, [a, b, 0], carry);
        assert_eq!(add(0xffff_ffff, 0, true), (0, true));
        assert_eq!(add(1, 2, true), (4, false));
        assert_eq!(
            carried(Carried::Sub, Type::U32, [1, 2, 0], false),
            (0xffff_ffff, true)
        );
        assert_eq!(
            carried(Carried::Sub, Type::U64, [5, 2, 0], true),
            (2, false)
        );
        let mad = carried(
            Carried::MadHi,
            Type::U32,
            [0x8000_0000, 4, 0xffff_ffff],
            false,
        );
        assert_eq!(mad, (1, true));
    }

    #[test]
    fn atomic_counters_wrap_at_their_limit() {
        let apply = |op, old, a| atomic(op, Type::U32, old, a, 0).expect("an operation");
        assert_eq!(apply(Atomic::Inc, 3, 3), 0);
        assert_eq!(apply(Atomic::Inc, 2, 3), 3);
        assert_eq!(apply(Atomic::Dec, 0, 3), 3);
        assert_eq!(apply(Atomic::Dec, 9, 3), 3);
        assert_eq!(
            atomic(Atomic::Min, Type::S32, 0xffff_ffff, 1, 0),
            Some(0xffff_ffff)
        );
        assert_eq!(atomic(Atomic::Cas, Type::B32, 5, 5, 9), Some(9));
        assert_eq!(atomic(Atomic::Cas, Type::B32, 4, 5, 9), Some(4));
    }
}
