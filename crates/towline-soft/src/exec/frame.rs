//! Registers and parameters of a call, for the lanes of a warp.

use towline_ptx::ir::op::{Flag, Pred, Reg, Source};
use towline_ptx::ir::{Code, FunctionId};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// A value for each lane.
pub(crate) type Lanes = [u64; LANES];

/// One call of a function by some lanes of a warp.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) function: FunctionId,
    registers: Vec<Lanes>,
    predicates: Vec<u32>,
    /// Parameter space, lane by lane.
    parameters: Vec<u8>,
    parameter_bytes: usize,
    /// Where its local memory starts, and where that of its callees does.
    pub(crate) local_base: u32,
    pub(crate) local_end: u32,
    /// Who called it, and where in that code.
    pub(crate) parent: Option<usize>,
    pub(crate) call_at: u32,
    pub(crate) depth: u32,
    /// Lanes that have not come back.
    pub(crate) lanes: u32,
}

impl Frame {
    pub(crate) fn new(function: FunctionId, code: &Code, parameter_bytes: u32) -> Self {
        Self {
            function,
            registers: vec![[0; LANES]; code.registers as usize],
            predicates: vec![0; code.predicates as usize],
            parameters: vec![0; parameter_bytes as usize * LANES],
            parameter_bytes: parameter_bytes as usize,
            local_base: 0,
            local_end: code.local_bytes,
            parent: None,
            call_at: 0,
            depth: 0,
            lanes: 0,
        }
    }

    /// Bytes that a frame of this code takes.
    pub(crate) fn bytes(code: &Code, parameter_bytes: u32) -> usize {
        code.registers as usize * size_of::<Lanes>()
            + code.predicates as usize * 4
            + parameter_bytes as usize * LANES
    }

    /// Bytes that this one takes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.registers.len() * size_of::<Lanes>()
            + self.predicates.len() * 4
            + self.parameters.len()
    }

    #[inline(always)]
    pub(crate) fn get<'a>(&'a self, constants: &'a [Lanes], source: Source) -> &'a Lanes {
        match source {
            Source::Reg(Reg(number)) => &self.registers[number as usize],
            Source::Constant(number) => &constants[number as usize],
        }
    }

    /// Writes the lanes of a mask.
    #[inline(always)]
    pub(crate) fn set(&mut self, d: Reg, mask: u32, values: &Lanes) {
        let register = &mut self.registers[d.0 as usize];
        if mask == u32::MAX {
            *register = *values;
            return;
        }
        for (lane, (place, value)) in register.iter_mut().zip(values).enumerate() {
            if mask >> lane & 1 != 0 {
                *place = *value;
            }
        }
    }

    /// Lanes for which a flag holds.
    #[inline(always)]
    pub(crate) fn flag(&self, flag: Flag) -> u32 {
        match flag {
            Flag::Known(true) => u32::MAX,
            Flag::Known(false) => 0,
            Flag::Pred(Pred(number)) => self.predicates[number as usize],
            Flag::Not(Pred(number)) => !self.predicates[number as usize],
        }
    }

    #[inline(always)]
    pub(crate) fn set_flag(&mut self, d: Pred, mask: u32, value: u32) {
        let predicate = &mut self.predicates[d.0 as usize];
        *predicate = *predicate & !mask | value & mask;
    }

    /// A part of a lane's parameter space.
    pub(crate) fn parameter(&self, lane: usize, offset: u64, len: u64) -> Option<&[u8]> {
        let range = self.parameter_range(lane, offset, len)?;
        self.parameters.get(range)
    }

    pub(crate) fn parameter_mut(
        &mut self,
        lane: usize,
        offset: u64,
        len: u64,
    ) -> Option<&mut [u8]> {
        let range = self.parameter_range(lane, offset, len)?;
        self.parameters.get_mut(range)
    }

    fn parameter_range(
        &self,
        lane: usize,
        offset: u64,
        len: u64,
    ) -> Option<std::ops::Range<usize>> {
        let end = offset.checked_add(len)?;
        if end > self.parameter_bytes as u64 {
            return None;
        }
        let start = lane * self.parameter_bytes;
        Some(start + offset as usize..start + end as usize)
    }
}

/// The lanes of a mask, lowest first.
#[inline(always)]
pub(crate) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}
