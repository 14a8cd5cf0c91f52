//! Boxes of bytes in buffers and in host memory.

use towline_backend::opencl::{CL_INVALID_VALUE, cl_int};

/// A box in a buffer or in host memory: where it begins and how far it reaches, checked for overflow.
pub(crate) struct BoxAt {
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

impl BoxAt {
    /// Checks pitches against the region, as `clEnqueueReadBufferRect` has it; a pitch of zero means no gaps.
    pub(crate) fn new(
        origin: &[usize],
        region: &[usize],
        row_pitch: usize,
        slice_pitch: usize,
    ) -> Result<Self, cl_int> {
        if region.contains(&0) {
            return Err(CL_INVALID_VALUE);
        }
        let row = if row_pitch == 0 { region[0] } else { row_pitch };
        let rows = region[1].checked_mul(row).ok_or(CL_INVALID_VALUE)?;
        let slice = if slice_pitch == 0 { rows } else { slice_pitch };
        if row < region[0] || slice < rows || !slice.is_multiple_of(row) {
            return Err(CL_INVALID_VALUE);
        }
        let place = |x: usize, y: usize, z: usize| {
            z.checked_mul(slice)?
                .checked_add(y.checked_mul(row)?)?
                .checked_add(x)
        };
        let first = place(origin[0], origin[1], origin[2]).ok_or(CL_INVALID_VALUE)?;
        let last = place(region[0], region[1] - 1, region[2] - 1).ok_or(CL_INVALID_VALUE)?;
        Ok(Self {
            first,
            end: first.checked_add(last).ok_or(CL_INVALID_VALUE)?,
            row_pitch: row,
            slice_pitch: slice,
        })
    }
}

/// Whether two boxes of one buffer with equal pitches overlap: `CL_MEM_COPY_OVERLAP` as OpenCL's appendix has it. A box's `base` is where
/// its sub-buffer begins.
pub(crate) fn boxes_overlap(
    (from, from_base): (&BoxAt, usize),
    (to, to_base): (&BoxAt, usize),
    region: &[usize],
) -> bool {
    let (here, there) = (from_base + from.first, to_base + to.first);
    if to_base + to.end <= here || from_base + from.end <= there {
        return false;
    }
    // Lines of one fit between those of the other, or slices do.
    let between = |len: usize, pitch: usize| {
        let (a, b) = (here % pitch, there % pitch);
        let fits = |a: usize, b: usize| b >= a + len && b + len <= a + pitch;
        fits(a, b) || fits(b, a)
    };
    let slice = (region[1] - 1) * from.row_pitch + region[0];
    !between(region[0], from.row_pitch) && !between(slice, from.slice_pitch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_without_pitches_has_no_gaps() {
        let at = BoxAt::new(&[1, 2, 3], &[4, 5, 6], 0, 0).expect("valid");
        assert_eq!((at.row_pitch, at.slice_pitch), (4, 20));
        assert_eq!(at.first, 3 * 20 + 2 * 4 + 1);
        assert_eq!(at.end, at.first + 5 * 20 + 4 * 4 + 4);
    }

    #[test]
    fn pitches_smaller_than_the_region_are_invalid() {
        assert!(BoxAt::new(&[0; 3], &[8, 1, 1], 4, 0).is_err());
        assert!(BoxAt::new(&[0; 3], &[8, 4, 1], 8, 16).is_err());
        assert!(BoxAt::new(&[0; 3], &[8, 1, 1], 8, 12).is_err());
        assert!(BoxAt::new(&[0; 3], &[0, 1, 1], 0, 0).is_err());
        assert!(BoxAt::new(&[usize::MAX; 3], &[8, 1, 1], 0, 0).is_err());
    }

    #[test]
    fn boxes_side_by_side_do_not_overlap() {
        let region = [4, 4, 1];
        let at = |x| BoxAt::new(&[x, 0, 0], &region, 16, 0).expect("valid");
        assert!(!boxes_overlap((&at(0), 0), (&at(4), 0), &region));
        assert!(boxes_overlap((&at(0), 0), (&at(3), 0), &region));
        assert!(!boxes_overlap((&at(0), 4), (&at(0), 0), &region));
        assert!(boxes_overlap((&at(0), 3), (&at(0), 0), &region));
    }

    #[test]
    fn row_beyond_its_pitch_overlaps_the_next() {
        let region = [4, 1, 1];
        let at = |x, y| BoxAt::new(&[x, y, 0], &region, 16, 0).expect("valid");
        assert!(boxes_overlap((&at(14, 0), 0), (&at(0, 1), 0), &region));
        assert!(!boxes_overlap((&at(12, 0), 0), (&at(0, 1), 0), &region));
    }
}
