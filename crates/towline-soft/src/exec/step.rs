//! Instructions that move no lane to another place than the next.

use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};

use towline_ptx::ir::Space;
use towline_ptx::ir::op::{
    Address, Atomic, Compare, Flag, Logic, Op, Order, Pred, Reg, Source, Special,
};
use towline_ptx::ir::texture::{self, INPUT_LIMIT};
use towline_ptx::ptx::Type;

use super::access::{
    Env, check_aligned, load_order, locate, number, put_number, refused, store_order, window,
};
use super::frame::{Frame, LANES, Lanes, lanes_of};
use super::number::extend;
use super::warp::LaneFault;
use super::{Launch, convert, float, integer};
use crate::fault::FaultKind;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// All did the same.
    First,
    Number(usize),
}

/// What an instruction is carried out with.
pub(super) struct Context<'c> {
    pub(super) constants: &'c [Lanes],
    pub(super) warp: u32,
    /// Lanes that carry it out.
    pub(super) mask: u32,
    pub(super) pc: u32,
    /// Set when it looks at memory that others may change.
    pub(super) polled: &'c Cell<bool>,
}

/// Whether an instruction may move lanes, or end them, or make them wait.
pub(super) fn is_control(op: &Op) -> bool {
    matches!(
        op,
        Op::Barrier { .. }
            | Op::BranchIndexed { .. }
            | Op::Call(_)
            | Op::Exit
            | Op::Nanosleep { .. }
            | Op::Return
            | Op::Together { .. }
            | Op::Trap { .. }
    )
}

/// What no decoder lets through.
fn unknown<T>(result: Option<T>) -> Result<T, LaneFault> {
    result.ok_or_else(|| {
        let text = "an operation on a type that it does not have".to_owned();
        (FaultKind::Resources(text), Lane::First)
    })
}

pub(super) fn execute(
    context: Context<'_>,
    frame: &mut Frame,
    locals: &mut [Vec<u8>],
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), LaneFault> {
    let Context {
        constants, mask, ..
    } = context;
    match *op {
        Op::Mov { d, a } => {
            let value = *frame.get(constants, a);
            frame.set(d, mask, &value);
        }
        Op::Binary {
            op,
            ty,
            mode,
            d,
            a,
            b,
        } => {
            let (a, b) = (frame.get(constants, a), frame.get(constants, b));
            let out = match ty.is_float() {
                true => float::binary(op, ty, mode, a, b),
                false => integer::binary(op, ty, mode.saturate, mode.relu, a, b),
            };
            frame.set(d, mask, &unknown(out)?);
        }
        Op::Ternary {
            op,
            ty,
            mode,
            d,
            a,
            b,
            c,
        } => {
            let inputs = [a, b, c].map(|input| frame.get(constants, input));
            let out = match ty.is_float() {
                true => float::ternary(op, ty, mode, inputs),
                false => integer::ternary(op, ty, mode.saturate, inputs),
            };
            frame.set(d, mask, &unknown(out)?);
        }
        Op::Unary { op, ty, mode, d, a } => {
            let a = frame.get(constants, a);
            let out = match ty.is_float() {
                true => float::unary(op, ty, mode, a),
                false => integer::unary(op, ty, a),
            };
            frame.set(d, mask, &unknown(out)?);
        }
        Op::Load {
            space,
            ty,
            order,
            polls,
            d,
            address,
        } => {
            context.polled.set(context.polled.get() | polls);
            load(&context, frame, locals, env, (space, ty, order), d, address)?;
        }
        Op::Store {
            space,
            ty,
            order,
            address,
            a,
        } => store(
            &context,
            frame,
            locals,
            env,
            (space, ty, order),
            address,
            &[a],
        )?,
        Op::SetPredicate {
            compare,
            combine,
            ty,
            flush,
            p,
            q,
            a,
            b,
        } => {
            let (a, b) = (frame.get(constants, a), frame.get(constants, b));
            let holds = compare_lanes(compare, ty, flush, a, b);
            let (with, opposite) = match combine {
                None => (holds, !holds),
                Some((logic, flag)) => {
                    let flag = frame.flag(flag);
                    (apply(logic, holds, flag), apply(logic, !holds, flag))
                }
            };
            set_maybe(frame, p, mask, with);
            set_maybe(frame, q, mask, opposite);
        }
        Op::Select { d, a, b, p } => {
            let flag = frame.flag(p);
            let (a, b) = (frame.get(constants, a), frame.get(constants, b));
            let out = std::array::from_fn(|lane| {
                if flag >> lane & 1 != 0 {
                    a[lane]
                } else {
                    b[lane]
                }
            });
            frame.set(d, mask, &out);
        }
        Op::Convert {
            to,
            from,
            mode,
            d,
            a,
        } => {
            let out = convert::convert(to, from, mode, frame.get(constants, a));
            frame.set(d, mask, &unknown(out)?);
        }
        Op::Special { d, which } => {
            let out = special(which, &context, env);
            frame.set(d, mask, &out);
        }
        Op::LocalAddress { d, offset } => {
            let address = u64::from(frame.local_base) + u64::from(offset);
            frame.set(d, mask, &[address; LANES]);
        }
        Op::Generic {
            to_generic,
            space,
            d,
            a,
        } => {
            let start = window(space);
            let a = frame.get(constants, a);
            let out = a.map(|address| match to_generic {
                true => address.wrapping_add(start),
                false => address.wrapping_sub(start),
            });
            frame.set(d, mask, &out);
        }
        Op::InSpace { space, d, a } => {
            let a = frame.get(constants, a);
            let holds = mask_of(|lane| lies_in(space, a[lane], env.launch));
            frame.set_flag(d, mask, holds);
        }
        Op::PredMov { d, a } => {
            let value = frame.flag(a);
            frame.set_flag(d, mask, value);
        }
        Op::PredLogic { op, d, a, b } => {
            let value = apply(op, frame.flag(a), frame.flag(b));
            frame.set_flag(d, mask, value);
        }
        Op::Nop => {}
        Op::Fence { strong } => fence(match strong {
            true => Ordering::SeqCst,
            false => Ordering::AcqRel,
        }),
        Op::ActiveMask { d } => frame.set(d, mask, &[mask.into(); LANES]),
        Op::Atomic {
            op,
            space,
            ty,
            d,
            address,
            a,
            b,
        } => {
            context.polled.set(context.polled.get() | d.is_some());
            atomic(&context, frame, env, (op, space, ty), d, address, a, b)?;
        }
        ref rest => return seldom(&context, frame, locals, env, rest),
    }
    Ok(())
}

/// Instructions that are seldom enough to be apart.
fn seldom(
    context: &Context<'_>,
    frame: &mut Frame,
    locals: &mut [Vec<u8>],
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), LaneFault> {
    let (constants, mask) = (context.constants, context.mask);
    match op {
        Op::BitInsert { ty, d, a, b, c, e } => {
            let [a, b, c, e] = [a, b, c, e].map(|input| frame.get(constants, *input));
            let bits = ty.bits();
            let out = std::array::from_fn(|lane| {
                let (start, len) = (c[lane] as u32, e[lane] as u32);
                extend(integer::insert(a[lane], b[lane], start, len, bits), *ty)
            });
            frame.set(*d, mask, &out);
        }
        Op::Carry {
            op,
            ty,
            reads,
            writes,
            carry,
            d,
            a,
            b,
            c,
        } => {
            let before = if *reads {
                frame.flag(Flag::Pred(*carry))
            } else {
                0
            };
            let [a, b] = [a, b].map(|input| frame.get(constants, *input));
            let zero = [0; LANES];
            let c = c.map_or(&zero, |c| frame.get(constants, c));
            let mut after = 0;
            let out = std::array::from_fn(|lane| {
                let inputs = [a[lane], b[lane], c[lane]];
                let (value, carry) = integer::carried(*op, *ty, inputs, before >> lane & 1 != 0);
                after |= u32::from(carry) << lane;
                value
            });
            frame.set(*d, mask, &out);
            if *writes {
                frame.set_flag(*carry, mask, after);
            }
        }
        Op::Classify { class, ty, d, a } => {
            let a = frame.get(constants, *a);
            let holds = mask_of(|lane| float::is_class(*class, *ty, a[lane]));
            frame.set_flag(*d, mask, holds);
        }
        Op::ConvertPair {
            to,
            from,
            mode,
            d,
            a,
            b,
        } => {
            let (a, b) = (frame.get(constants, *a), frame.get(constants, *b));
            let out = unknown(convert::convert_pair(*to, *from, *mode, a, b))?;
            frame.set(*d, mask, &out);
        }
        Op::LoadVector {
            space,
            ty,
            order,
            polls,
            d,
            address,
        } => {
            context.polled.set(context.polled.get() | polls);
            load_vector(
                context,
                frame,
                locals,
                env,
                (*space, *ty, *order),
                d,
                *address,
            )?;
        }
        Op::StoreVector {
            space,
            ty,
            order,
            address,
            a,
        } => store(
            context,
            frame,
            locals,
            env,
            (*space, *ty, *order),
            *address,
            a,
        )?,
        Op::Pack { bits, d, parts } => {
            let mut out = [0; LANES];
            for (index, part) in parts.iter().enumerate() {
                let part = frame.get(constants, *part);
                let ones = (1_u64 << bits) - 1;
                for (place, value) in out.iter_mut().zip(part) {
                    *place |= (value & ones) << (usize::from(*bits) * index);
                }
            }
            frame.set(*d, mask, &out);
        }
        Op::Unpack { bits, d, a } => {
            let a = *frame.get(constants, *a);
            let ones = (1_u64 << bits) - 1;
            for (index, d) in d.iter().enumerate() {
                if let Some(d) = d {
                    let out = a.map(|value| value >> (usize::from(*bits) * index) & ones);
                    frame.set(*d, mask, &out);
                }
            }
        }
        Op::SelectSign {
            c_float,
            flush,
            d,
            a,
            b,
            c,
        } => {
            let [a, b, c] = [a, b, c].map(|input| frame.get(constants, *input));
            let out = std::array::from_fn(|lane| {
                let first = match c_float {
                    // Subnormal numbers count as zero when flushed, and so choose the first.
                    true => {
                        let value = float::value(Type::F32, c[lane], *flush).unwrap_or(0.0);
                        value >= 0.0
                    }
                    false => c[lane] as i32 >= 0,
                };
                if first { a[lane] } else { b[lane] }
            });
            frame.set(*d, mask, &out);
        }
        Op::Set {
            compare,
            combine,
            to,
            ty,
            flush,
            d,
            a,
            b,
        } => {
            let (a, b) = (frame.get(constants, *a), frame.get(constants, *b));
            let holds = compare_lanes(*compare, *ty, *flush, a, b);
            let holds = match combine {
                None => holds,
                Some((logic, flag)) => apply(*logic, holds, frame.flag(*flag)),
            };
            let out = std::array::from_fn(|lane| convert::truth(*to, holds >> lane & 1 != 0));
            frame.set(*d, mask, &out);
        }
        Op::Texture(access) => use_texture(context, frame, env, access)?,
        _ => return unknown(None),
    }
    Ok(())
}

fn use_texture(
    context: &Context<'_>,
    frame: &mut Frame,
    env: &mut Env<'_>,
    access: &texture::Access,
) -> Result<(), LaneFault> {
    let constants = context.constants;
    let mut all = [[0; LANES]; 4];
    for lane in lanes_of(context.mask) {
        let of_lane = |source: Source| frame.get(constants, source)[lane];
        let (handle, sampler) = (of_lane(access.handle), access.sampler.map(of_lane));
        let mut inputs = [0; INPUT_LIMIT];
        for (place, source) in inputs.iter_mut().zip(&access.inputs) {
            *place = of_lane(*source);
        }
        let given = inputs.get(..access.inputs.len()).unwrap_or_default();
        let parts = env.unit.access(access, handle, sampler, given);
        let parts = parts.map_err(|fault| (fault, Lane::Number(lane)))?;
        for (out, part) in all.iter_mut().zip(parts) {
            out[lane] = part;
        }
    }
    for (d, values) in access.d.iter().zip(&all) {
        if let Some(d) = d {
            frame.set(*d, context.mask, values);
        }
    }
    set_maybe(frame, access.p, context.mask, u32::MAX);
    Ok(())
}

fn set_maybe(frame: &mut Frame, d: Option<Pred>, mask: u32, value: u32) {
    if let Some(d) = d {
        frame.set_flag(d, mask, value);
    }
}

fn apply(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

/// The lanes for which a question is answered with yes.
#[inline(always)]
fn mask_of(holds: impl Fn(usize) -> bool) -> u32 {
    (0..LANES).fold(0, |mask, lane| mask | u32::from(holds(lane)) << lane)
}

fn compare_lanes(compare: Compare, ty: Type, flush: bool, a: &Lanes, b: &Lanes) -> u32 {
    if ty.is_float() {
        return mask_of(|lane| {
            let value = |bits| float::value(ty, bits, flush).unwrap_or(f64::NAN);
            float::compare(compare, value(a[lane]), value(b[lane]))
        });
    }
    macro_rules! ordered {
        ($word:ty) => {
            match compare {
                Compare::Eq | Compare::Equ => mask_of(|lane| a[lane] as $word == b[lane] as $word),
                Compare::Ne | Compare::Neu => mask_of(|lane| a[lane] as $word != b[lane] as $word),
                Compare::Lt | Compare::Ltu => mask_of(|lane| (a[lane] as $word) < b[lane] as $word),
                Compare::Le | Compare::Leu => mask_of(|lane| a[lane] as $word <= b[lane] as $word),
                Compare::Gt | Compare::Gtu => mask_of(|lane| a[lane] as $word > b[lane] as $word),
                Compare::Ge | Compare::Geu => mask_of(|lane| a[lane] as $word >= b[lane] as $word),
                Compare::Num => u32::MAX,
                Compare::Nan => 0,
            }
        };
    }
    match ty {
        Type::S16 => ordered!(i16),
        Type::S32 => ordered!(i32),
        Type::S64 => ordered!(i64),
        ty => match ty.bits() {
            8 => ordered!(u8),
            16 => ordered!(u16),
            32 => ordered!(u32),
            _ => ordered!(u64),
        },
    }
}

/// Whether a comparison holds for one thread.
pub(crate) fn compare_one(compare: Compare, ty: Type, flush: bool, a: u64, b: u64) -> bool {
    compare_lanes(compare, ty, flush, &[a; LANES], &[b; LANES]) & 1 != 0
}

/// Whether a generic address is one of a space.
pub(crate) fn lies_in(space: Space, address: u64, launch: &Launch) -> bool {
    let (found, _) = locate(Space::Generic, address);
    // Constant memory lies among global memory here.
    let is_constant = || launch.kernel.image.is_constant(address);
    match space {
        Space::Const => found == Space::Global && is_constant(),
        Space::Global => {
            found == Space::Global && launch.arena.find(address).is_some() && !is_constant()
        }
        space => found == space,
    }
}

fn special(which: Special, context: &Context<'_>, env: &Env<'_>) -> Lanes {
    let launch = env.launch;
    let first = context.warp * 32;
    let lanes = |f: &dyn Fn(u32) -> u32| std::array::from_fn(|lane| f(lane as u32).into());
    let time = || launch.started.elapsed().as_nanos() as u64;
    let global_time = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    };
    let same = |value: u64| [value; LANES];
    let axis =
        |all: [u32; 3], which: u8| u64::from(all.get(usize::from(which)).copied().unwrap_or(0));
    match which {
        Special::Tid(which) => {
            let [x, y, _] = launch.block;
            lanes(&|lane| {
                let thread = first + lane;
                match which {
                    0 => thread % x,
                    1 => thread / x % y,
                    _ => thread / x / y,
                }
            })
        }
        Special::Ntid(which) => same(axis(launch.block, which)),
        Special::Ctaid(which) => same(axis(env.block, which)),
        Special::Nctaid(which) => same(axis(launch.grid, which)),
        Special::LaneId => lanes(&|lane| lane),
        Special::WarpId => same(context.warp.into()),
        Special::WarpSize => same(32),
        Special::Nwarpid => same(launch.threads_per_block().div_ceil(32).into()),
        Special::One => same(1),
        Special::SmId | Special::Zero => same(0),
        Special::Nsmid => same(launch.host_threads as u64),
        Special::GridId => same(launch.number),
        Special::LaneMaskEq => lanes(&|lane| 1 << lane),
        Special::LaneMaskLt => lanes(&|lane| (1 << lane) - 1),
        Special::LaneMaskLe => lanes(&|lane| u32::MAX >> (31 - lane)),
        Special::LaneMaskGt => lanes(&|lane| !(u32::MAX >> (31 - lane))),
        Special::LaneMaskGe => lanes(&|lane| u32::MAX << lane),
        Special::Clock => same(time() & 0xffff_ffff),
        Special::ClockHi => same(time() >> 32),
        Special::Clock64 => same(time()),
        Special::GlobalTimer => same(global_time()),
        Special::GlobalTimerLo => same(global_time() & 0xffff_ffff),
        Special::GlobalTimerHi => same(global_time() >> 32),
        Special::DynamicSharedBytes => same(launch.dynamic_bytes.into()),
        Special::TotalSharedBytes => same(launch.shared_bytes.into()),
        // Where cooperative kernels find what they count their blocks in.
        Special::Envreg(1) => same(launch.workspace >> 32),
        Special::Envreg(2) => same(launch.workspace & 0xffff_ffff),
        Special::Envreg(_) => same(0),
    }
}

type Access = (Space, Type, Order);

fn load(
    context: &Context<'_>,
    frame: &mut Frame,
    locals: &[Vec<u8>],
    env: &mut Env<'_>,
    (space, ty, order): Access,
    d: Reg,
    address: Address,
) -> Result<(), LaneFault> {
    let width = ty.bytes();
    let mut out = [0; LANES];
    // Parameters are the same for all threads of a kernel.
    if let (Space::Param, Source::Constant(_), None) = (space, address.base, frame.parent) {
        let base = frame.get(context.constants, address.base)[0];
        let at = base.wrapping_add(address.offset as u64);
        let end = at.saturating_add(width);
        if end <= env.launch.parameters.len() as u64 {
            let bytes = env.part(frame, &[], 0, (space, at), width);
            let value = number(bytes.map_err(|fault| (fault, Lane::First))?);
            frame.set(d, context.mask, &[extend(value, ty); LANES]);
            return Ok(());
        }
    }
    let base = frame.get(context.constants, address.base);
    for lane in lanes_of(context.mask) {
        let at = base[lane].wrapping_add(address.offset as u64);
        let value = load_one(context, frame, locals, env, lane, (space, at), width, order);
        out[lane] = extend(value.map_err(|fault| (fault, Lane::Number(lane)))?, ty);
    }
    frame.set(d, context.mask, &out);
    Ok(())
}

#[inline(always)]
#[allow(
    clippy::too_many_arguments,
    reason = "one lane's access, inlined into the loop over lanes"
)]
fn load_one(
    context: &Context<'_>,
    frame: &Frame,
    locals: &[Vec<u8>],
    env: &mut Env<'_>,
    lane: usize,
    (space, address): (Space, u64),
    width: u64,
    order: Order,
) -> Result<u64, FaultKind> {
    let (space, address) = locate(space, address);
    if matches!(space, Space::Global | Space::Const) {
        let span = env.span(context.pc, address, width, false)?;
        let value = span.load(address, width, load_order(order));
        return value.map_err(|why| refused(why, address, width, false));
    }
    check_aligned(address, width)?;
    let local = locals.get(lane).map_or(&[][..], Vec::as_slice);
    let bytes = env.part(frame, local, lane, (space, address), width)?;
    Ok(number(bytes))
}

fn load_vector(
    context: &Context<'_>,
    frame: &mut Frame,
    locals: &[Vec<u8>],
    env: &mut Env<'_>,
    (space, ty, order): Access,
    d: &[Option<Reg>],
    address: Address,
) -> Result<(), LaneFault> {
    let width = ty.bytes();
    let base = *frame.get(context.constants, address.base);
    let whole = (width * d.len() as u64).next_power_of_two();
    let mut all = [[0; LANES]; 8];
    for lane in lanes_of(context.mask) {
        let at = base[lane].wrapping_add(address.offset as u64);
        let mut read = || -> Result<(), FaultKind> {
            check_aligned(at, whole)?;
            for (index, out) in all.iter_mut().take(d.len()).enumerate() {
                let at = at.wrapping_add(width * index as u64);
                let value = load_one(context, frame, locals, env, lane, (space, at), width, order)?;
                out[lane] = extend(value, ty);
            }
            Ok(())
        };
        read().map_err(|fault| (fault, Lane::Number(lane)))?;
    }
    for (d, values) in d.iter().zip(&all) {
        if let Some(d) = d {
            frame.set(*d, context.mask, values);
        }
    }
    Ok(())
}

fn store(
    context: &Context<'_>,
    frame: &mut Frame,
    locals: &mut [Vec<u8>],
    env: &mut Env<'_>,
    (space, ty, order): Access,
    address: Address,
    sources: &[Source],
) -> Result<(), LaneFault> {
    let width = ty.bytes();
    let base = *frame.get(context.constants, address.base);
    let whole = (width * sources.len() as u64).next_power_of_two();
    for lane in lanes_of(context.mask) {
        let at = base[lane].wrapping_add(address.offset as u64);
        let mut write = || -> Result<(), FaultKind> {
            let (space, at) = locate(space, at);
            check_aligned(at, whole)?;
            for (index, source) in sources.iter().enumerate() {
                let value = frame.get(context.constants, *source)[lane];
                let at = at.wrapping_add(width * index as u64);
                if matches!(space, Space::Global | Space::Const) {
                    let span = env.span(context.pc, at, width, true)?;
                    let stored = span.store(at, width, value, store_order(order));
                    stored.map_err(|why| refused(why, at, width, true))?;
                    continue;
                }
                let local = locals.get_mut(lane).map_or(&mut [][..], Vec::as_mut_slice);
                let bytes = env.part_mut(frame, local, lane, (space, at), width)?;
                put_number(bytes, value);
            }
            Ok(())
        };
        write().map_err(|fault| (fault, Lane::Number(lane)))?;
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
fn atomic(
    context: &Context<'_>,
    frame: &mut Frame,
    env: &mut Env<'_>,
    (op, space, ty): (Atomic, Space, Type),
    d: Option<Reg>,
    address: Address,
    a: Source,
    b: Option<Source>,
) -> Result<(), LaneFault> {
    let width = ty.bytes();
    let base = *frame.get(context.constants, address.base);
    let a = *frame.get(context.constants, a);
    let b = b.map_or([0; LANES], |b| *frame.get(context.constants, b));
    let new = |is_global: bool, old: u64, lane: usize| match ty.is_float() {
        true => float::atomic(op, ty, is_global, old, a[lane]),
        false => integer::atomic(op, ty, old, a[lane], b[lane]),
    };
    unknown(new(true, 0, 0))?;
    let mut out = [0; LANES];
    for lane in lanes_of(context.mask) {
        let at = base[lane].wrapping_add(address.offset as u64);
        let mut update = || -> Result<u64, FaultKind> {
            let (space, at) = locate(space, at);
            let change = |old| new(space == Space::Global, old, lane).unwrap_or(old);
            match space {
                Space::Global => {
                    let span = env.span(context.pc, at, width, true)?;
                    let old = span.update(at, width, change);
                    old.map_err(|why| refused(why, at, width, true))
                }
                Space::Shared => {
                    check_aligned(at, width)?;
                    // Only this thread of the host runs the block.
                    let bytes = env.part_mut(frame, &mut [], lane, (space, at), width)?;
                    let old = number(bytes);
                    put_number(bytes, change(old));
                    Ok(old)
                }
                space => Err(FaultKind::Address {
                    space,
                    address: at,
                    bytes: width,
                    write: true,
                    near: ", where atomic operations do not work".into(),
                }),
            }
        };
        out[lane] = update().map_err(|fault| (fault, Lane::Number(lane)))?;
    }
    if let Some(d) = d {
        frame.set(d, context.mask, &out);
    }
    Ok(())
}
