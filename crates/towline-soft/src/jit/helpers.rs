//! What machine code calls: for accesses to memory that are not where the last one was, and for whatever is seldom.
//!
//! None of these may panic: there is nobody who could catch it.

use towline_ptx::ir::Space;
use towline_ptx::ir::op::{Flag, Op, Special};
use towline_ptx::ptx::Type;

use super::emit::Site;
use super::flat::Step;
use super::head::{Head, Slot};
use super::run::Threads;
use super::shapes::QUAD;
use crate::exec::access::{check_aligned, locate, near, number, put_number, refused};
use crate::exec::convert::{convert, convert_pair, truth};
use crate::exec::number::extend;
use crate::exec::{float, integer};
use crate::fault::FaultKind;
use crate::image::SHARED_WINDOW;

/// The helpers by the names that code knows them under.
pub(super) fn table() -> [(&'static str, *const u8); 6] {
    [
        ("access", access as *const u8),
        ("atomic", atomic as *const u8),
        ("evaluate", evaluate as *const u8),
        ("fail", fail as *const u8),
        ("special", special as *const u8),
        ("texture", texture as *const u8),
    ]
}

/// The block that a thread belongs to.
///
/// # Safety
///
/// `head` is what [`super::code::Compiled::run`] was called with, and the call has not come back.
unsafe fn threads<'r>(head: *mut Head) -> &'r mut Threads<'r> {
    let threads = head.cast::<Threads<'r>>();
    // SAFETY: the head is the first field of the block, `run` was given the block's, and machine code holds no reference while it calls.
    unsafe { &mut *threads }
}

/// What an instruction accesses: its space, the bytes of one part, how many there are, and whether it stores.
fn access_of(step: &Step) -> Option<(Space, u64, u64, bool)> {
    match super::emit::op_of(step)? {
        Op::Load { space, ty, .. } => Some((*space, ty.bytes(), 1, false)),
        Op::LoadVector { space, ty, d, .. } => Some((*space, ty.bytes(), d.len() as u64, false)),
        Op::Store { space, ty, .. } => Some((*space, ty.bytes(), 1, true)),
        Op::StoreVector { space, ty, a, .. } => Some((*space, ty.bytes(), a.len() as u64, true)),
        Op::Atomic { space, ty, .. } => Some((*space, ty.bytes(), 1, true)),
        _ => None,
    }
}

extern "C" fn access(head: *mut Head, site: u64, address: u64, lane: u64) -> u64 {
    // SAFETY: machine code passes on what it was called with.
    let threads = unsafe { threads(head) };
    match find(threads, site as usize, address, lane as usize) {
        Ok(host) => host,
        Err((kind, step, lane)) => {
            threads.fail(kind, step, lane);
            0
        }
    }
}

/// The host's address of an access, when it and all that are checked with it have been found: those of other lanes, too.
fn find(
    threads: &mut Threads<'_>,
    number: usize,
    address: u64,
    lane: usize,
) -> Result<u64, (FaultKind, u32, usize)> {
    let code = threads.code;
    let Some(site) = code.outline.sites.get(number).copied() else {
        return Err((FaultKind::Trap, 0, lane));
    };
    let run = code.outline.runs.get(&site.step).filter(|_| site.is_run);
    let alone = [(site.step, 0)];
    let members = run.map_or(&alone[..], |run| &run.members);
    let (stride, lanes) = match site.across {
        Some(stride) => (stride, QUAD),
        None => (0, 1),
    };
    let mut first = None;
    for (step, away) in members {
        let site = Site {
            step: *step,
            ..site
        };
        for part in 0..lanes {
            let address = address.wrapping_add_signed(away + stride * part as i64);
            let found = find_one(threads, number, site, (address, lane + part));
            let host = found.map_err(|(kind, step)| (kind, step, lane + part))?;
            first.get_or_insert(host);
        }
    }
    Ok(first.unwrap_or_default())
}

/// The host's address of an access, checked as the interpreter does it, in its order.
fn find_one(
    threads: &mut Threads<'_>,
    number: usize,
    site: Site,
    (address, lane): (u64, usize),
) -> Result<u64, (FaultKind, u32)> {
    let code = threads.code;
    let Some(step) = code.flat.steps.get(site.step as usize) else {
        return Err((FaultKind::Trap, site.step));
    };
    let Some((named, width, parts, stores)) = access_of(step) else {
        return Err((FaultKind::Trap, site.step));
    };
    let told = |kind| (kind, site.step);
    let (space, at) = locate(named, address);
    let whole = u64::from(site.bytes);
    let is_atomic = matches!(super::emit::op_of(step), Some(Op::Atomic { .. }));
    if parts > 1 || stores && !is_atomic {
        check_aligned(at, whole).map_err(told)?;
    }
    if matches!(space, Space::Global | Space::Const) {
        for part in 0..parts {
            threads
                .global(number, at.wrapping_add(part * width), width, stores)
                .map_err(told)?;
        }
        check_aligned(at, width).map_err(told)?;
        threads.remember(number, whole, site.extent);
        return Ok(at);
    }
    check_aligned(at, width).map_err(told)?;
    let mut host = 0;
    for part in (0..parts).rev() {
        let at = at.wrapping_add(part * width);
        let found = threads.part(step, lane, (space, at), width, stores);
        host = found.map_err(told)?;
    }
    if space == Space::Shared && named == Space::Generic {
        let count = threads.shared_len() / whole.max(1);
        let base = SHARED_WINDOW;
        let shift = host.wrapping_sub(at).wrapping_sub(base);
        threads.set_slot(number, Slot { base, count, shift });
    }
    Ok(host)
}

extern "C" fn atomic(head: *mut Head, site: u64, address: u64, lane: u64, a: u64, b: u64) -> u64 {
    // SAFETY: machine code passes on what it was called with.
    let threads = unsafe { threads(head) };
    match update(threads, site as usize, address, a, b) {
        Ok(old) => {
            threads.head.answer = old;
            1
        }
        Err((kind, step)) => {
            threads.fail(kind, step, lane as usize);
            0
        }
    }
}

fn update(
    threads: &mut Threads<'_>,
    number_of_site: usize,
    address: u64,
    a: u64,
    b: u64,
) -> Result<u64, (FaultKind, u32)> {
    let code = threads.code;
    let Some(site) = code.outline.sites.get(number_of_site).copied() else {
        return Err((FaultKind::Trap, 0));
    };
    let told = |kind| (kind, site.step);
    let step = code.flat.steps.get(site.step as usize);
    let Some(&Op::Atomic { op, space, ty, .. }) = step.and_then(super::emit::op_of) else {
        return Err(told(FaultKind::Trap));
    };
    let width = ty.bytes();
    let (space, at) = locate(space, address);
    let change = |old: u64| {
        let new = match ty.is_float() {
            true => float::atomic(op, ty, space == Space::Global, old, a),
            false => integer::atomic(op, ty, old, a, b),
        };
        new.unwrap_or(old)
    };
    match space {
        Space::Global => {
            let span = threads
                .global(number_of_site, at, width, true)
                .map_err(told)?;
            let old = span.update(at, width, change);
            old.map_err(|why| told(refused(why, at, width, true)))
        }
        Space::Shared => {
            check_aligned(at, width).map_err(told)?;
            let bytes = threads.shared_part(at, width).ok_or_else(|| {
                told(FaultKind::Address {
                    space,
                    address: at,
                    bytes: width,
                    write: true,
                    near: String::new(),
                })
            })?;
            let old = number(bytes);
            put_number(bytes, change(old));
            Ok(old)
        }
        space => Err(told(FaultKind::Address {
            space,
            address: at,
            bytes: width,
            write: true,
            near: ", where atomic operations do not work".into(),
        })),
    }
}

extern "C" fn fail(head: *mut Head, step: u64, lane: u64) {
    // SAFETY: machine code passes on what it was called with.
    let threads = unsafe { threads(head) };
    let code = threads.code;
    let op = code
        .flat
        .steps
        .get(step as usize)
        .and_then(super::emit::op_of);
    let kind = match op {
        Some(Op::Trap { breakpoint: true }) => FaultKind::Breakpoint,
        Some(Op::BranchIndexed { .. }) => FaultKind::Callee(threads.head.answer),
        _ => FaultKind::Trap,
    };
    threads.fail(kind, step as u32, lane as usize);
}

extern "C" fn texture(head: *mut Head, step: u64, lane: u64) -> u64 {
    // SAFETY: machine code passes on what it was called with.
    let threads = unsafe { threads(head) };
    let code = threads.code;
    let op = code
        .flat
        .steps
        .get(step as usize)
        .and_then(super::emit::op_of);
    let Some(Op::Texture(access)) = op else {
        return 0;
    };
    let words = threads.head.exchange;
    let first = 1 + usize::from(access.sampler.is_some());
    let sampler = access.sampler.map(|_| words[1]);
    let inputs = words.get(first..first + access.inputs.len());
    let found = threads
        .unit
        .access(access, words[0], sampler, inputs.unwrap_or_default());
    match found {
        Ok(parts) => {
            threads.head.exchange[..parts.len()].copy_from_slice(&parts);
            1
        }
        Err(kind) => {
            threads.fail(kind, step as u32, lane as usize);
            0
        }
    }
}

extern "C" fn special(head: *mut Head, step: u64) -> u64 {
    // SAFETY: machine code passes on what it was called with.
    let threads = unsafe { threads(head) };
    let code = threads.code;
    let op = code
        .flat
        .steps
        .get(step as usize)
        .and_then(super::emit::op_of);
    match op {
        Some(Op::Special { which, .. }) => clock(*which, threads.launch.started),
        _ => 0,
    }
}

fn clock(which: Special, started: std::time::Instant) -> u64 {
    let time = || started.elapsed().as_nanos() as u64;
    let global = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    };
    match which {
        Special::Clock => time() & 0xffff_ffff,
        Special::ClockHi => time() >> 32,
        Special::Clock64 => time(),
        Special::GlobalTimer => global(),
        Special::GlobalTimerLo => global() & 0xffff_ffff,
        _ => global() >> 32,
    }
}

#[allow(clippy::too_many_arguments, reason = "called by machine code")]
extern "C" fn evaluate(
    head: *mut Head,
    step: u64,
    a: u64,
    b: u64,
    c: u64,
    e: u64,
    flag: u64,
) -> u64 {
    // SAFETY: machine code passes on what it was called with.
    let threads = unsafe { threads(head) };
    let code = threads.code;
    let op = code
        .flat
        .steps
        .get(step as usize)
        .and_then(super::emit::op_of);
    let lies_in = |space, address| crate::exec::lies_in(space, address, threads.launch);
    let (value, holds) = op
        .and_then(|op| carry_out(op, [a, b, c, e], flag != 0, lies_in))
        .unwrap_or_default();
    threads.head.answer = holds.into();
    value
}

/// Carries out an operation for one thread: what the interpreter does for a warp.
fn carry_out(
    op: &Op,
    [a, b, c, e]: [u64; 4],
    flag: bool,
    lies_in: impl Fn(Space, u64) -> bool,
) -> Option<(u64, bool)> {
    let one = |out: Option<[u64; 1]>| out.map(|[value]| (value, false));
    let with = |combine: &Option<(towline_ptx::ir::op::Logic, Flag)>, holds: bool| match combine {
        None => holds,
        Some((towline_ptx::ir::op::Logic::And, _)) => holds & flag,
        Some((towline_ptx::ir::op::Logic::Or, _)) => holds | flag,
        Some((towline_ptx::ir::op::Logic::Xor, _)) => holds ^ flag,
    };
    match *op {
        Op::Binary { op, ty, mode, .. } => one(match ty.is_float() {
            true => float::binary(op, ty, mode, &[a], &[b]),
            false => integer::binary(op, ty, mode.saturate, mode.relu, &[a], &[b]),
        }),
        Op::Ternary { op, ty, mode, .. } => one(match ty.is_float() {
            true => float::ternary(op, ty, mode, [&[a], &[b], &[c]]),
            false => integer::ternary(op, ty, mode.saturate, [&[a], &[b], &[c]]),
        }),
        Op::Unary { op, ty, mode, .. } => one(match ty.is_float() {
            true => float::unary(op, ty, mode, &[a]),
            false => integer::unary(op, ty, &[a]),
        }),
        Op::Convert { to, from, mode, .. } => one(convert(to, from, mode, &[a])),
        Op::ConvertPair { to, from, mode, .. } => one(convert_pair(to, from, mode, &[a], &[b])),
        Op::BitInsert { ty, .. } => {
            let value = integer::insert(a, b, c as u32, e as u32, ty.bits());
            Some((extend(value, ty), false))
        }
        Op::Carry { op, ty, .. } => Some(integer::carried(op, ty, [a, b, c], flag)),
        Op::Classify { class, ty, .. } => Some((0, float::is_class(class, ty, a))),
        Op::InSpace { space, .. } => Some((0, lies_in(space, a))),
        Op::SelectSign { c_float, flush, .. } => {
            let first = match c_float {
                true => float::value(Type::F32, c, flush)? >= 0.0,
                false => c as i32 >= 0,
            };
            Some((if first { a } else { b }, false))
        }
        Op::SetPredicate {
            compare, ty, flush, ..
        } => Some((0, crate::exec::compare_one(compare, ty, flush, a, b))),
        Op::Set {
            compare,
            ref combine,
            to,
            ty,
            flush,
            ..
        } => {
            let holds = crate::exec::compare_one(compare, ty, flush, a, b);
            Some((truth(to, with(combine, holds)), false))
        }
        _ => None,
    }
}

/// Makes a fault of an address that nothing lies at.
pub(super) fn nowhere(threads: &Threads<'_>, address: u64, bytes: u64, write: bool) -> FaultKind {
    FaultKind::Address {
        space: Space::Global,
        address,
        bytes,
        write,
        near: near(threads.launch.arena.neighbours(address), address),
    }
}
