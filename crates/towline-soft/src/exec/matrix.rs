//! Operations on matrices that a warp holds in registers. In both tiers lanes store their operands in their local memory; once
//! all have come, the operation is carried out here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use towline_ptx::ir::Space;
use towline_ptx::ir::matrix::{Fragment, Matrix, Product, Role, SCRATCH_BYTES};

use super::access::{check_aligned, locate, near, number, outside, put_number, refused, slice_mut};
use super::frame::{LANES, lanes_of};
use super::tensor;
use crate::fault::FaultKind;
use crate::memory::{Arena, Span};

/// A lane's operands, and then its results.
pub(crate) type Scratch = [u8; SCRATCH_BYTES as usize];

/// The memory that an operation works on.
pub(crate) trait Memory {
    /// A lane's scratch; `None` of lanes that the block has not.
    fn scratch(&mut self, lane: usize) -> Option<&mut Scratch>;
    fn shared(&mut self) -> &mut [u8];
    fn arena(&self) -> &Arena;
}

/// The same, in which lanes that have not come have nothing.
struct Present<'m, M> {
    lanes: u32,
    memory: &'m mut M,
}

impl<M: Memory> Memory for Present<'_, M> {
    fn scratch(&mut self, lane: usize) -> Option<&mut Scratch> {
        let is_there = self.lanes >> lane & 1 != 0;
        is_there.then(|| self.memory.scratch(lane)).flatten()
    }

    fn shared(&mut self) -> &mut [u8] {
        self.memory.shared()
    }

    fn arena(&self) -> &Arena {
        self.memory.arena()
    }
}

/// A fault, and the lane that it is of.
type Failed = (FaultKind, usize);

/// Carries out an operation for the lanes that are there.
pub(crate) fn carry_out(
    what: &Matrix,
    present: u32,
    memory: &mut impl Memory,
) -> Result<(), Failed> {
    let memory = &mut Present {
        lanes: present,
        memory,
    };
    match *what {
        Matrix::Load {
            fragment,
            by_rows,
            space,
        } => lanes_of(present).try_for_each(|lane| {
            let moved = move_fragment(&fragment, by_rows, space, lane, memory, false);
            moved.map_err(|fault| (fault, lane))
        }),
        Matrix::Store {
            fragment,
            by_rows,
            space,
        } => lanes_of(present).try_for_each(|lane| {
            let moved = move_fragment(&fragment, by_rows, space, lane, memory, true);
            moved.map_err(|fault| (fault, lane))
        }),
        Matrix::LoadTiles {
            count,
            transposed,
            space,
        } => load_tiles(count.into(), transposed, space, memory),
        Matrix::StoreTiles {
            count,
            transposed,
            space,
        } => store_tiles(count.into(), transposed, space, memory),
        Matrix::Multiply(product) => {
            multiply(&product, memory);
            Ok(())
        }
        Matrix::Transpose => {
            let mut tile = [[0; 8]; 8];
            each_pair(|lane, row, column| {
                let pair = memory
                    .scratch(lane)
                    .map_or([0; 2], |bytes| pair_at(bytes, 0));
                tile[row][column] = pair[0];
                tile[row][column + 1] = pair[1];
            });
            each_pair(|lane, row, column| {
                if let Some(bytes) = memory.scratch(lane) {
                    put_pair(bytes, 0, [tile[column][row], tile[column + 1][row]]);
                }
            });
            Ok(())
        }
    }
}

/// The lanes, and where in a matrix of 8 by 8 the two elements of each lie side by side.
fn each_pair(mut visit: impl FnMut(usize, usize, usize)) {
    (0..LANES).for_each(|lane| visit(lane, lane / 4, lane % 4 * 2));
}

fn pair_at(bytes: &Scratch, at: usize) -> [u16; 2] {
    let word = number(&bytes[at..at + 4]);
    [word as u16, (word >> 16) as u16]
}

fn put_pair(bytes: &mut Scratch, at: usize, [low, high]: [u16; 2]) {
    put_number(
        &mut bytes[at..at + 4],
        u64::from(low) | u64::from(high) << 16,
    );
}

/// The place in shared memory of the row whose address a lane holds.
fn row_at(lane: usize, space: Space, memory: &mut impl Memory, write: bool) -> Result<u64, Failed> {
    let address = memory.scratch(lane).map_or(0, |bytes| number(&bytes[..8]));
    let (found, at) = locate(space, address);
    if found != Space::Shared {
        return Err((outside(found, at, 16, write), lane));
    }
    check_aligned(at, 16).map_err(|fault| (fault, lane))?;
    Ok(at)
}

fn load_tiles(
    count: usize,
    transposed: bool,
    space: Space,
    memory: &mut impl Memory,
) -> Result<(), Failed> {
    let mut tiles = [[[0_u16; 8]; 8]; 4];
    for (tile, rows) in tiles.iter_mut().take(count).enumerate() {
        for (row, elements) in rows.iter_mut().enumerate() {
            let lane = tile * 8 + row;
            let at = row_at(lane, space, memory, false)?;
            let bytes = slice_mut(memory.shared(), at, 16)
                .ok_or_else(|| (outside(Space::Shared, at, 16, false), lane))?;
            for (element, bytes) in elements.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *element = u16::from_le_bytes(*bytes);
            }
        }
    }
    each_pair(|lane, row, column| {
        let Some(bytes) = memory.scratch(lane) else {
            return;
        };
        for (number, tile) in tiles.iter().take(count).enumerate() {
            let pair = match transposed {
                true => [tile[column][row], tile[column + 1][row]],
                false => [tile[row][column], tile[row][column + 1]],
            };
            put_pair(bytes, number * 4, pair);
        }
    });
    Ok(())
}

fn store_tiles(
    count: usize,
    transposed: bool,
    space: Space,
    memory: &mut impl Memory,
) -> Result<(), Failed> {
    let mut tiles = [[[0_u16; 8]; 8]; 4];
    each_pair(|lane, row, column| {
        let Some(bytes) = memory.scratch(lane) else {
            return;
        };
        for (number, tile) in tiles.iter_mut().take(count).enumerate() {
            let [first, second] = pair_at(bytes, 8 + number * 4);
            match transposed {
                true => (tile[column][row], tile[column + 1][row]) = (first, second),
                false => (tile[row][column], tile[row][column + 1]) = (first, second),
            }
        }
    });
    for (tile, rows) in tiles.iter().take(count).enumerate() {
        for (row, elements) in rows.iter().enumerate() {
            let lane = tile * 8 + row;
            let at = row_at(lane, space, memory, true)?;
            let bytes = slice_mut(memory.shared(), at, 16)
                .ok_or_else(|| (outside(Space::Shared, at, 16, true), lane))?;
            for (element, bytes) in elements.iter().zip(bytes.as_chunks_mut::<2>().0) {
                *bytes = element.to_le_bytes();
            }
        }
    }
    Ok(())
}

/// Reads or writes a number of up to 8 bytes.
fn access(
    memory: &mut impl Memory,
    space: Space,
    address: u64,
    width: u64,
    value: Option<u64>,
) -> Result<u64, FaultKind> {
    let (space, at) = locate(space, address);
    let write = value.is_some();
    if space == Space::Global {
        let arena = memory.arena();
        let span: Option<Span<'_>> = arena.range(at, width);
        let span = span.ok_or_else(|| FaultKind::Address {
            space,
            address: at,
            bytes: width,
            write,
            near: near(arena.neighbours(at), at),
        })?;
        let done = match value {
            None => span.load(at, width, Ordering::Relaxed),
            Some(value) => span.store(at, width, value, Ordering::Relaxed).map(|()| 0),
        };
        return done.map_err(|why| refused(why, at, width, write));
    }
    check_aligned(at, width)?;
    let bytes = match space {
        Space::Shared => slice_mut(memory.shared(), at, width),
        _ => None,
    };
    let bytes = bytes.ok_or_else(|| outside(space, at, width, write))?;
    match value {
        None => Ok(number(bytes)),
        Some(value) => {
            put_number(bytes, value);
            Ok(0)
        }
    }
}

/// Loads or stores a lane's part of a matrix.
fn move_fragment(
    fragment: &Fragment,
    by_rows: bool,
    space: Space,
    lane: usize,
    memory: &mut impl Memory,
    stores: bool,
) -> Result<(), FaultKind> {
    let Some(mut bytes) = memory.scratch(lane).copied() else {
        return Ok(());
    };
    let (address, stride) = (number(&bytes[..8]), number(&bytes[8..12]));
    let element = fragment.element;
    let (bits, each) = (u64::from(element.bits()), element.per_register());
    let width = (element.register_bits() / 8) as usize;
    // A register's elements lie along a row of `a`, a column of `b`, and a row of a sum.
    let in_a_piece = by_rows != (fragment.role == Role::B);
    let (own, all) = (fragment.own_registers(), fragment.registers());
    let place = |number: u32| {
        let (row, column) = fragment.place(lane as u32, number);
        let (line, along) = if by_rows {
            (row, column)
        } else {
            (column, row)
        };
        let elements = u64::from(line) * stride + u64::from(along);
        address.wrapping_add(elements * bits / 8)
    };
    let mut registers = [0_u64; 16];
    for (register, value) in (0..own).zip(&mut registers) {
        let at = 16 + register as usize * width;
        if stores {
            *value = number(&bytes[at..at + width]);
        }
        if in_a_piece {
            let stored = stores.then_some(*value);
            let found = access(memory, space, place(register * each), width as u64, stored)?;
            *value |= found;
            continue;
        }
        for inner in 0..each {
            let shift = u64::from(inner) * bits;
            let stored = stores.then_some(*value >> shift);
            let at = place(register * each + inner);
            *value |= access(memory, space, at, bits / 8, stored)? << shift;
        }
    }
    if stores {
        return Ok(());
    }
    for register in 0..all {
        let at = register as usize * width;
        let value = registers[(register % own) as usize];
        put_number(&mut bytes[at..at + width], value);
    }
    if let Some(place) = memory.scratch(lane) {
        *place = bytes;
    }
    Ok(())
}

/// Indices of lanes' elements in a matrix that lies in one piece: for each lane, by number. Factors lie along `k`. Of several
/// matrices side by side, each goes behind the one before.
fn indices(fragment: &Fragment) -> Rc<[u16]> {
    thread_local! {
        static KNOWN: RefCell<HashMap<Fragment, Rc<[u16]>>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        let found = known.entry(*fragment).or_insert_with(|| {
            let (rows, columns) = fragment.extent();
            let elements = fragment.own_registers() * fragment.element.per_register();
            let all = (0..LANES as u32).flat_map(|lane| {
                (0..elements).map(move |number| {
                    let (row, column) = fragment.place(lane, number);
                    let index = match fragment.role {
                        Role::B => column * rows + row,
                        Role::A | Role::C => row * columns + column,
                    };
                    let matrix = if fragment.quads.is_some() {
                        lane / 4 % 4
                    } else {
                        0
                    };
                    (matrix * rows * columns + index) as u16
                })
            });
            all.collect()
        });
        Rc::clone(found)
    })
}

/// Gathers a matrix from a place of lanes' scratch.
fn gather(fragment: &Fragment, at: usize, matrices: usize, memory: &mut impl Memory) -> Vec<u64> {
    let (rows, columns) = fragment.extent();
    let mut all = vec![0; (rows * columns) as usize * matrices];
    let indices = indices(fragment);
    let element = fragment.element;
    let (each, bits) = (element.per_register() as usize, element.bits());
    let width = element.register_bits() as usize / 8;
    let ones = u64::MAX >> (64 - bits);
    let lanes = indices.chunks_exact(indices.len() / LANES);
    for (lane, indices) in lanes.enumerate() {
        let Some(bytes) = memory.scratch(lane) else {
            continue;
        };
        let registers = bytes[at..].chunks_exact(width);
        for (register, indices) in registers.zip(indices.chunks_exact(each)) {
            let mut value = number(register);
            for index in indices {
                all[usize::from(*index)] = value & ones;
                value = value.checked_shr(bits).unwrap_or(0);
            }
        }
    }
    all
}

/// Scatters a matrix to the start of lanes' scratch.
fn scatter(fragment: &Fragment, all: &[u64], memory: &mut impl Memory) {
    let indices = indices(fragment);
    let element = fragment.element;
    let (each, bits) = (element.per_register() as usize, element.bits());
    let width = element.register_bits() as usize / 8;
    let lanes = indices.chunks_exact(indices.len() / LANES);
    for (lane, indices) in lanes.enumerate() {
        let Some(bytes) = memory.scratch(lane) else {
            continue;
        };
        let registers = bytes.chunks_exact_mut(width);
        for (register, indices) in registers.zip(indices.chunks_exact(each)) {
            let parts = indices.iter().zip((0..).step_by(bits as usize));
            let value = parts.fold(0, |value, (index, shift)| {
                value | all[usize::from(*index)] << shift
            });
            put_number(register, value);
        }
    }
}

fn multiply(product: &Product, memory: &mut impl Memory) {
    let matrices = if product.a.quads.is_some() { 4 } else { 1 };
    let b_at = product.a.bytes() as usize;
    let c_at = b_at + product.b.bytes() as usize;
    let a = gather(&product.a, 0, matrices, memory);
    let b = gather(&product.b, b_at, matrices, memory);
    let mut c = gather(&product.c, c_at, matrices, memory);
    let parts = a
        .chunks_exact(a.len() / matrices)
        .zip(b.chunks_exact(b.len() / matrices));
    let len = c.len() / matrices;
    for ((a, b), c) in parts.zip(c.chunks_exact_mut(len)) {
        tensor::multiply(product, a, b, c);
    }
    scatter(&product.d, &c, memory);
}
