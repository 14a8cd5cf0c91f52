//! Accesses to memory, one lane at a time.

use std::sync::atomic::Ordering;

use towline_ptx::ir::Space;
use towline_ptx::ir::op::Order;

use super::Launch;
use super::frame::Frame;
use crate::fault::{FaultKind, NOWHERE};
use crate::image::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::memory::{Allocation, Refused, Span};
use crate::texture::Unit;

/// Spans that are remembered; a power of two.
const REMEMBERED: usize = 8;
/// Bytes of a window.
const WINDOW: u64 = 1 << 50;

/// What a block's threads share.
pub(super) struct Env<'a> {
    pub(super) launch: &'a Launch,
    pub(super) block: [u32; 3],
    pub(super) shared: Vec<u8>,
    pub(super) unit: Unit<'a>,
    /// By place in the code: where the last access from there went.
    spans: [Option<Span<'a>>; REMEMBERED],
    changes: u64,
    /// Instructions of threads that were carried out.
    pub(super) executed: u64,
    /// A thread has looked at what others may change, since that was last asked.
    pub(super) polled: bool,
}

/// The space that a generic address lies in, and its address there: for the kernel's parameters, whatever function has it, the generic one.
pub(crate) fn locate(space: Space, address: u64) -> (Space, u64) {
    match space {
        Space::Generic => {}
        // These are small, and 32 bits of a register may be all that was computed.
        Space::Local | Space::Param | Space::Shared => return (space, address & 0xffff_ffff),
        Space::Const | Space::Global => return (space, address),
    }
    match address & !(WINDOW - 1) {
        SHARED_WINDOW => (Space::Shared, address - SHARED_WINDOW),
        LOCAL_WINDOW => (Space::Local, address - LOCAL_WINDOW),
        PARAM_WINDOW => (Space::Param, address),
        _ => (Space::Global, address),
    }
}

/// Where a space's generic addresses start.
pub(super) fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        _ => 0,
    }
}

pub(super) fn load_order(order: Order) -> Ordering {
    match order {
        Order::Acquire | Order::AcquireRelease => Ordering::Acquire,
        _ => Ordering::Relaxed,
    }
}

pub(super) fn store_order(order: Order) -> Ordering {
    match order {
        Order::Release | Order::AcquireRelease => Ordering::Release,
        _ => Ordering::Relaxed,
    }
}

impl<'a> Env<'a> {
    pub(super) fn new(launch: &'a Launch, block: [u32; 3]) -> Self {
        Self {
            launch,
            block,
            shared: vec![0; launch.shared_bytes as usize],
            unit: Unit::new(&launch.arena, &launch.textures),
            spans: [None; REMEMBERED],
            changes: launch.arena.changes(),
            executed: 0,
            polled: false,
        }
    }

    /// Forgets spans when allocations have come or gone.
    pub(super) fn look_again(&mut self) {
        let changes = self.launch.arena.changes();
        if changes != self.changes {
            self.changes = changes;
            self.spans = [None; REMEMBERED];
            self.unit.look_again();
        }
    }

    /// The span of an access to global memory from a place in the code.
    #[inline(always)]
    pub(super) fn span(
        &mut self,
        pc: u32,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<Span<'a>, FaultKind> {
        let slot = pc as usize % REMEMBERED;
        match self.spans[slot] {
            Some(span) if span.holds(address, bytes) => Ok(span),
            _ => self.find_span(slot, address, bytes, write),
        }
    }

    #[cold]
    fn find_span(
        &mut self,
        slot: usize,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<Span<'a>, FaultKind> {
        let arena = &*self.launch.arena;
        match arena.range(address, bytes) {
            Some(span) => {
                self.spans[slot] = Some(span);
                Ok(span)
            }
            None => Err(FaultKind::Address {
                space: Space::Global,
                address,
                bytes,
                write,
                near: near(arena.neighbours(address), address),
            }),
        }
    }

    /// Part of a space that is not global memory.
    pub(super) fn part<'s>(
        &'s self,
        frame: &'s Frame,
        local: &'s [u8],
        lane: usize,
        (space, address): (Space, u64),
        bytes: u64,
    ) -> Result<&'s [u8], FaultKind> {
        let found = match space {
            Space::Shared => slice(&self.shared, address, bytes),
            Space::Local => slice(local, address, bytes),
            Space::Param => {
                let own = address.checked_sub(PARAM_WINDOW);
                let is_kernel = own.is_some() || frame.parent.is_none();
                match slice(&self.launch.parameters, own.unwrap_or(address), bytes) {
                    Some(found) if is_kernel => Some(found),
                    _ => frame.parameter(lane, address, bytes),
                }
            }
            _ => None,
        };
        found.ok_or_else(|| outside(space, address, bytes, false))
    }

    /// The same, to be written.
    pub(super) fn part_mut<'s>(
        &'s mut self,
        frame: &'s mut Frame,
        local: &'s mut [u8],
        lane: usize,
        (space, address): (Space, u64),
        bytes: u64,
    ) -> Result<&'s mut [u8], FaultKind> {
        let found = match space {
            Space::Shared => slice_mut(&mut self.shared, address, bytes),
            Space::Local => slice_mut(local, address, bytes),
            Space::Param => frame.parameter_mut(lane, address, bytes),
            _ => None,
        };
        found.ok_or_else(|| outside(space, address, bytes, true))
    }
}

/// Refuses what is not aligned.
#[inline(always)]
pub(crate) fn check_aligned(address: u64, bytes: u64) -> Result<(), FaultKind> {
    match address & (bytes - 1) {
        0 => Ok(()),
        _ => Err(FaultKind::Misaligned { address, bytes }),
    }
}

pub(crate) fn refused(refused: Refused, address: u64, bytes: u64, write: bool) -> FaultKind {
    match refused {
        Refused::Misaligned => FaultKind::Misaligned { address, bytes },
        Refused::Outside => outside(Space::Global, address, bytes, write),
    }
}

pub(crate) fn outside(space: Space, address: u64, bytes: u64, write: bool) -> FaultKind {
    FaultKind::Address {
        space,
        address,
        bytes,
        write,
        near: String::new(),
    }
}

/// What lies around an address, for messages.
pub(crate) fn near(
    (below, above): (Option<Allocation>, Option<Allocation>),
    address: u64,
) -> String {
    match (below, above) {
        (Some(one), _) if address - one.base < one.len => format!(
            ", which begins {} bytes before the end of the allocation of {} bytes at {:#x}",
            one.base + one.len - address,
            one.len,
            one.base
        ),
        (Some(one), _) if address - one.base == one.len => format!(
            ", right behind the allocation of {} bytes at {:#x}",
            one.len, one.base
        ),
        (Some(one), _) if address - one.base <= 2 * one.len => format!(
            ", {} bytes past the end of the allocation of {} bytes at {:#x}",
            address - one.base - one.len,
            one.len,
            one.base
        ),
        (_, Some(one)) if one.base - address <= 1 << 20 => format!(
            ", {} bytes before the allocation of {} bytes at {:#x}",
            one.base - address,
            one.len,
            one.base
        ),
        _ => format!(", {NOWHERE}"),
    }
}

fn slice(bytes: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    let end = start.checked_add(len)?;
    bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

pub(crate) fn slice_mut(bytes: &mut [u8], start: u64, len: u64) -> Option<&mut [u8]> {
    let end = start.checked_add(len)?;
    bytes.get_mut(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// The number in up to 8 bytes.
#[inline(always)]
pub(crate) fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        _ => {
            let mut word = [0; 8];
            for (place, byte) in word.iter_mut().zip(bytes) {
                *place = *byte;
            }
            u64::from_le_bytes(word)
        }
    }
}

/// Writes a number into up to 8 bytes.
#[inline(always)]
pub(crate) fn put_number(to: &mut [u8], value: u64) {
    let len = to.len().min(8);
    to[..len].copy_from_slice(&value.to_le_bytes()[..len]);
}
