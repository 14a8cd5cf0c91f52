//! Accesses that are checked together: loads from around one register, in a row of steps of which each is carried out if the first is,
//! and perhaps a store behind them.
//!
//! The first of them has a comparison for all. Where that does not hold, all are looked at one by one, before the first of them loads; so
//! of two accesses of a row that both are faults, another may be told than the interpreter tells. Between them is nothing that others see.

use std::collections::HashMap;

use towline_ptx::ir::Space;
use towline_ptx::ir::op::{Op, Order, Source};

use super::emit::op_of;
use super::flat::{Action, Flat, Step};
use super::operands::{Operand, operands};

/// Most bytes between the first and the last of a row.
const REACH: i64 = 4096;

/// Accesses that are checked together, of one size.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Their steps, and how far they are from the first, in order.
    pub(crate) members: Vec<(u32, i64)>,
    /// How far the lowest is from the first: 0 or less.
    pub(crate) lowest: i64,
    /// Bytes from the lowest to the end of the highest.
    pub(crate) extent: u64,
}

/// What a step loads or stores, if it does no more than that.
struct Access {
    stores: bool,
    space: Space,
    base: Source,
    offset: i64,
    bytes: u64,
}

fn access_of(step: &Step) -> Option<Access> {
    let (stores, space, ty, parts, address) = match op_of(step)? {
        Op::Load {
            space,
            ty,
            order: Order::Weak,
            polls: false,
            address,
            ..
        } => (false, space, ty, 1, address),
        Op::LoadVector {
            space,
            ty,
            order: Order::Weak,
            polls: false,
            address,
            d,
        } => (false, space, ty, d.len() as u64, address),
        Op::Store {
            space,
            ty,
            order: Order::Weak,
            address,
            ..
        } => (true, space, ty, 1, address),
        Op::StoreVector {
            space,
            ty,
            order: Order::Weak,
            address,
            a,
        } => (true, space, ty, a.len() as u64, address),
        _ => return None,
    };
    let is_found = matches!(space, Space::Global | Space::Local | Space::Shared);
    (is_found && step.guard.is_none()).then(|| Access {
        stores,
        space: *space,
        base: address.base,
        offset: address.offset,
        bytes: (ty.bytes() * parts).next_power_of_two(),
    })
}

/// Whether something is seen outside of the thread, or the thread may not come to what follows.
fn ends(step: &Step) -> bool {
    let Action::Op(op) = &step.action else {
        return true;
    };
    match op {
        Op::Load { order, polls, .. } | Op::LoadVector { order, polls, .. } => {
            *polls || *order != Order::Weak
        }
        Op::Atomic { .. }
        | Op::Barrier { .. }
        | Op::Branch { .. }
        | Op::BranchIndexed { .. }
        | Op::Call(_)
        | Op::Exit
        | Op::Fence { .. }
        | Op::Nanosleep { .. }
        | Op::Return
        | Op::Store { .. }
        | Op::StoreVector { .. }
        | Op::Texture(_)
        | Op::Together { .. }
        | Op::Trap { .. } => true,
        _ => false,
    }
}

/// Finds rows, by their first steps.
pub(super) fn runs(flat: &mut Flat, leaders: &[u32]) -> HashMap<u32, Run> {
    let mut found: HashMap<u32, Run> = HashMap::new();
    // By where they load from and how much: the first step and its offset.
    let mut open: Vec<(Access, u32)> = Vec::new();
    for (at, step) in (0..).zip(&mut flat.steps) {
        if leaders.binary_search(&at).is_ok() {
            open.clear();
        }
        if let Some(access) = access_of(step) {
            let same = open.iter().find(|(first, _)| {
                let away = access.offset.wrapping_sub(first.offset);
                (first.space, first.base, first.bytes) == (access.space, access.base, access.bytes)
                    && away.abs() < REACH
                    && away % access.bytes as i64 == 0
            });
            match same {
                None if access.stores => {}
                None => open.push((access, at)),
                Some((first, start)) => {
                    let away = access.offset.wrapping_sub(first.offset);
                    let run = found.entry(*start).or_insert_with(|| Run {
                        members: vec![(*start, 0)],
                        lowest: 0,
                        extent: access.bytes,
                    });
                    let end = run.lowest + run.extent as i64;
                    let end = end.max(away + access.bytes as i64);
                    run.lowest = run.lowest.min(away);
                    run.extent = (end - run.lowest) as u64;
                    run.members.push((at, away));
                }
            }
        }
        if ends(step) {
            open.clear();
        }
        if let Action::Op(op) = &mut step.action {
            operands(op, &mut |operand| {
                if let Operand::Writes(reg, _) = operand {
                    open.retain(|(first, _)| first.base != Source::Reg(*reg));
                }
            });
        }
    }
    found
}
