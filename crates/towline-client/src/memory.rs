//! The application's side of a transfer: host memory, packed or with pitches.

/// A box of host memory: `slices` of `rows` of `row` bytes. Packed payload is cut over it in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostBox {
    start: usize,
    row: usize,
    rows: usize,
    slices: usize,
    row_pitch: usize,
    slice_pitch: usize,
}

impl HostBox {
    /// `size` bytes in a row.
    pub(crate) fn linear(start: *const u8, size: usize) -> Self {
        Self {
            start: start.expose_provenance(),
            row: size,
            rows: 1,
            slices: 1,
            row_pitch: size,
            slice_pitch: size,
        }
    }

    /// A box with pitches; one without gaps becomes linear.
    pub(crate) fn pitched(
        start: *const u8,
        row: usize,
        rows: usize,
        slices: usize,
        row_pitch: usize,
        slice_pitch: usize,
    ) -> Self {
        if (row_pitch == row || rows == 1) && (slice_pitch == row * rows || slices == 1) {
            return Self::linear(start, row * rows * slices);
        }
        Self {
            start: start.expose_provenance(),
            row,
            rows,
            slices,
            row_pitch,
            slice_pitch,
        }
    }

    /// The addresses between its first byte and its last.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let last =
            (self.slices.max(1) - 1) * self.slice_pitch + (self.rows.max(1) - 1) * self.row_pitch;
        self.start..self.start + last + self.row
    }

    /// Bytes of the packed payload.
    pub(crate) fn size(&self) -> usize {
        self.row * self.rows * self.slices
    }

    /// Whether the payload lies in one piece.
    pub(crate) fn is_linear(&self) -> bool {
        self.rows == 1 && self.slices == 1
    }

    /// Pieces of memory that hold payload bytes `offset..offset + length`: address and length each. A range outside gives none.
    pub(crate) fn pieces(
        &self,
        offset: usize,
        length: usize,
    ) -> impl Iterator<Item = (*mut u8, usize)> + use<> {
        let this = *self;
        let end = offset.saturating_add(length).min(this.size());
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (line, within) = (at / this.row, at % this.row);
            let (slice, row) = (line / this.rows, line % this.rows);
            let piece = (this.row - within).min(end - at);
            let address = this.start + slice * this.slice_pitch + row * this.row_pitch + within;
            at += piece;
            Some((std::ptr::with_exposed_provenance_mut(address), piece))
        })
    }

    /// Copies payload from `offset` on into the box; what would lie outside is left.
    ///
    /// # Safety
    /// The box's memory is writable and used by nobody else.
    pub(crate) unsafe fn scatter(&self, offset: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for (address, length) in self.pieces(offset, bytes.len()) {
            let (piece, tail) = rest.split_at(length.min(rest.len()));
            // SAFETY: the caller's contract; the piece lies inside the box.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), address, piece.len()) };
            rest = tail;
        }
    }

    /// Copies payload `offset..offset + length` out of the box.
    ///
    /// # Safety
    /// The box's memory is readable.
    pub(crate) unsafe fn gather(&self, offset: usize, length: usize, out: &mut Vec<u8>) {
        for (address, length) in self.pieces(offset, length) {
            // SAFETY: the caller's contract; the piece lies inside the box.
            out.extend_from_slice(unsafe { std::slice::from_raw_parts(address, length) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_gathered_and_scattered_row_by_row() {
        let mut memory: Vec<u8> = (0..64).collect();
        let area = HostBox::pitched(memory.as_ptr(), 3, 2, 2, 8, 32);
        let mut packed = Vec::new();
        // SAFETY: the box lies inside `memory`.
        unsafe { area.gather(0, area.size(), &mut packed) };
        assert_eq!(packed, [0, 1, 2, 8, 9, 10, 32, 33, 34, 40, 41, 42]);
        let area = HostBox::pitched(memory.as_mut_ptr(), 3, 2, 2, 8, 32);
        // SAFETY: as above, and nothing else uses `memory` meanwhile.
        unsafe { area.scatter(2, &[200, 201, 202]) };
        assert_eq!(
            (memory[2], memory[8], memory[9], memory[3]),
            (200, 201, 202, 3)
        );
    }

    #[test]
    fn what_lies_outside_the_box_is_never_touched() {
        let mut memory = [0_u8; 8];
        let area = HostBox::linear(memory.as_mut_ptr(), 4);
        // SAFETY: the box lies inside `memory`.
        unsafe { area.scatter(2, &[1, 2, 3, 4, 5, 6]) };
        assert_eq!(memory, [0, 0, 1, 2, 0, 0, 0, 0]);
        assert_eq!(area.pieces(usize::MAX, 5).count(), 0);
    }

    #[test]
    fn a_box_without_gaps_is_linear() {
        let area = HostBox::pitched(std::ptr::null(), 4, 3, 2, 4, 12);
        assert!(area.is_linear() && area.size() == 24);
    }
}
