//! Places on a device that bytes are read from or written to, how they are cut, and the vendor's call for each kind.

use towline_backend::opencl::*;
use towline_wire::error::{CloseCode, ProtocolError};

use super::transfer::Transfer;

/// What `place` describes; the numbers are the protocol's.
pub(super) mod shape {
    /// `size` bytes from an offset of a buffer.
    pub(crate) const LINEAR: u32 = 0;
    /// A box of a buffer.
    pub(crate) const RECT: u32 = 1;
    /// A box of an image.
    pub(crate) const IMAGE: u32 = 2;
    /// `size` bytes from an address in shared virtual memory.
    pub(crate) const SVM: u32 = 3;
}

/// A place on the device, as the request has it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) shape: u32,
    pub(super) origin: [usize; 3],
    pub(super) region: [usize; 3],
    pub(super) row_pitch: usize,
    pub(super) slice_pitch: usize,
    pub(super) size: usize,
}

impl Place {
    pub(super) fn new(shape: u32, place: List<'_, u64>, size: u64) -> Result<Self, ProtocolError> {
        let malformed = || {
            ProtocolError::new(
                CloseCode::Malformed,
                format!("a place of shape {shape} does not fit its size"),
            )
        };
        let mut words = [0; 8];
        for (word, value) in words.iter_mut().zip(place.iter()) {
            *word = usize::try_from(value).map_err(|_| malformed())?;
        }
        let [x, y, z, width, height, depth, row_pitch, slice_pitch] = words;
        let size = usize::try_from(size).map_err(|_| malformed())?;
        let place = Self {
            shape,
            origin: [x, y, z],
            region: [width, height, depth],
            row_pitch,
            slice_pitch,
            size,
        };
        let fits = match shape {
            shape::LINEAR | shape::SVM => width == size && x.checked_add(size).is_some(),
            shape::RECT => {
                width
                    .checked_mul(height)
                    .and_then(|area| area.checked_mul(depth))
                    == Some(size)
            }
            // The element size is compared once the image is known.
            shape::IMAGE => {
                let elements = width
                    .checked_mul(height)
                    .and_then(|area| area.checked_mul(depth));
                elements.is_some_and(|elements| {
                    elements > 0 && size % elements == 0 && size / elements <= 16
                })
            }
            _ => false,
        };
        if fits && size > 0 {
            Ok(place)
        } else {
            Err(malformed())
        }
    }

    /// Bytes of a buffer.
    pub(super) fn linear(offset: u64, size: u64) -> Result<Self, ProtocolError> {
        let words = [offset, 0, 0, size, 1, 1, 0, 0];
        Self::new(shape::LINEAR, List::Values(&words), size)
    }

    /// Whether it may be mapped: as it lies in memory it is what travels.
    pub(super) fn mappable(&self) -> bool {
        self.shape == shape::LINEAR
    }

    /// Bytes that stay together when it is cut.
    pub(super) fn row_bytes(&self) -> usize {
        match self.shape {
            shape::LINEAR | shape::SVM => 1,
            // Rows and slices are packed as they travel, and there are as many as the size says.
            _ => self.size / (self.region[1] * self.region[2]),
        }
    }

    /// Its parts of at most `limit` bytes, one behind the other as they travel, and where each begins; `None` when a row is longer.
    pub(super) fn parts(&self, limit: usize) -> Option<Vec<(usize, Self)>> {
        let [width, height, depth] = self.region;
        if matches!(self.shape, shape::LINEAR | shape::SVM) {
            let part = |offset| {
                let mut part = *self;
                part.origin[0] += offset;
                part.size = limit.min(self.size - offset);
                part.region[0] = part.size;
                (offset, part)
            };
            return Some((0..self.size).step_by(limit).map(part).collect());
        }
        let row = self.row_bytes();
        let slice = row * height;
        let (rows, slices) = match limit {
            limit if slice <= limit => (height, limit / slice),
            limit if row <= limit => (limit / row, 1),
            _ => return None,
        };
        let part = |(z, y): (usize, usize)| {
            let mut part = *self;
            part.origin[1] += y;
            part.origin[2] += z;
            part.region = [width, rows.min(height - y), slices.min(depth - z)];
            part.size = row * part.region[1] * part.region[2];
            (z * slice + y * row, part)
        };
        let places = (0..depth).step_by(slices);
        let places = places.flat_map(|z| (0..height).step_by(rows).map(move |y| (z, y)));
        Some(places.map(part).collect())
    }
}

/// A wait list as the API takes it: NULL beside zero.
pub(super) fn wait_list(list: &[cl_event]) -> (cl_uint, *const cl_event) {
    (
        list.len() as cl_uint,
        if list.is_empty() {
            std::ptr::null()
        } else {
            list.as_ptr()
        },
    )
}

/// Enqueues a write from packed memory.
///
/// # Safety
/// `data` has the place's size and lives until the command is complete.
pub(super) unsafe fn write(
    api: &dyn OpenClApi,
    transfer: &Transfer,
    place: &Place,
    data: *mut u8,
    (waits, list): (cl_uint, *const cl_event),
    done: *mut cl_event,
) -> cl_int {
    let (queue, mem) = (transfer.queue, transfer.mem);
    let data = data.cast();
    let blocking = CL_FALSE as cl_bool;
    match place.shape {
        // SAFETY: the caller's contract; the vendor checks the device's side.
        shape::LINEAR => unsafe {
            api.clEnqueueWriteBuffer(
                queue,
                mem,
                blocking,
                place.origin[0],
                place.size,
                data,
                waits,
                list,
                done,
            )
        },
        // SAFETY: as above; the host side is packed, so a pitch of zero says it all.
        shape::RECT => unsafe {
            api.clEnqueueWriteBufferRect(
                queue,
                mem,
                blocking,
                place.origin.as_ptr(),
                [0; 3].as_ptr(),
                place.region.as_ptr(),
                place.row_pitch,
                place.slice_pitch,
                0,
                0,
                data,
                waits,
                list,
                done,
            )
        },
        // SAFETY: as above.
        shape::IMAGE => unsafe {
            api.clEnqueueWriteImage(
                queue,
                mem,
                blocking,
                place.origin.as_ptr(),
                place.region.as_ptr(),
                0,
                0,
                data,
                waits,
                list,
                done,
            )
        },
        _ => {
            let target = std::ptr::with_exposed_provenance_mut(place.origin[0]);
            // SAFETY: as above; the session has checked that the range is its own.
            unsafe {
                api.clEnqueueSVMMemcpy(queue, blocking, target, data, place.size, waits, list, done)
            }
        }
    }
}

/// Enqueues a read into packed memory.
///
/// # Safety
/// `data` has the place's size and lives until the command is complete.
pub(super) unsafe fn read(
    api: &dyn OpenClApi,
    transfer: &Transfer,
    place: &Place,
    blocking: bool,
    data: *mut u8,
    (waits, list): (cl_uint, *const cl_event),
    done: *mut cl_event,
) -> cl_int {
    let (queue, mem) = (transfer.queue, transfer.mem);
    let data = data.cast();
    let blocking = cl_bool::from(blocking);
    match place.shape {
        // SAFETY: the caller's contract; the vendor checks the device's side.
        shape::LINEAR => unsafe {
            api.clEnqueueReadBuffer(
                queue,
                mem,
                blocking,
                place.origin[0],
                place.size,
                data,
                waits,
                list,
                done,
            )
        },
        // SAFETY: as above; the host side is packed, so a pitch of zero says it all.
        shape::RECT => unsafe {
            api.clEnqueueReadBufferRect(
                queue,
                mem,
                blocking,
                place.origin.as_ptr(),
                [0; 3].as_ptr(),
                place.region.as_ptr(),
                place.row_pitch,
                place.slice_pitch,
                0,
                0,
                data,
                waits,
                list,
                done,
            )
        },
        // SAFETY: as above.
        shape::IMAGE => unsafe {
            api.clEnqueueReadImage(
                queue,
                mem,
                blocking,
                place.origin.as_ptr(),
                place.region.as_ptr(),
                0,
                0,
                data,
                waits,
                list,
                done,
            )
        },
        _ => {
            let source = std::ptr::with_exposed_provenance(place.origin[0]);
            // SAFETY: as above; the session has checked that the range is its own.
            unsafe {
                api.clEnqueueSVMMemcpy(queue, blocking, data, source, place.size, waits, list, done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(shape: u32, words: [u64; 8], size: u64) -> Place {
        Place::new(shape, List::Values(&words), size).expect("the place fits its size")
    }

    /// Offset, origin, region and size of each part.
    fn parts(place: Place, limit: usize) -> Vec<(usize, [usize; 3], [usize; 3], usize)> {
        let parts = place.parts(limit).expect("it can be cut");
        let told = |(offset, part): (usize, Place)| (offset, part.origin, part.region, part.size);
        parts.into_iter().map(told).collect()
    }

    #[test]
    fn bytes_are_cut_anywhere() {
        let bytes = place(shape::LINEAR, [100, 0, 0, 25, 1, 1, 0, 0], 25);
        let wanted = [
            (0, [100, 0, 0], [10, 1, 1], 10),
            (10, [110, 0, 0], [10, 1, 1], 10),
            (20, [120, 0, 0], [5, 1, 1], 5),
        ];
        assert_eq!(parts(bytes, 10), wanted);
    }

    #[test]
    fn a_box_is_cut_between_rows_or_slices() {
        let tall = place(shape::RECT, [3, 4, 5, 8, 5, 2, 64, 640], 80);
        let rows = [
            (0, [3, 4, 5], [8, 3, 1], 24),
            (24, [3, 7, 5], [8, 2, 1], 16),
            (40, [3, 4, 6], [8, 3, 1], 24),
            (64, [3, 7, 6], [8, 2, 1], 16),
        ];
        assert_eq!(parts(tall, 30), rows);
        let slices = [
            (0, [3, 4, 5], [8, 5, 1], 40),
            (40, [3, 4, 6], [8, 5, 1], 40),
        ];
        assert_eq!(parts(tall, 79), slices);
        assert_eq!(parts(tall, 80), [(0, [3, 4, 5], [8, 5, 2], 80)]);
    }

    #[test]
    fn an_image_is_cut_by_elements_of_its_size() {
        let image = place(shape::IMAGE, [1, 2, 0, 6, 4, 1, 0, 0], 6 * 4 * 16);
        let halves = [
            (0, [1, 2, 0], [6, 2, 1], 192),
            (192, [1, 4, 0], [6, 2, 1], 192),
        ];
        assert_eq!(parts(image, 200), halves);
    }

    #[test]
    fn a_row_stays_whole() {
        let wide = place(shape::RECT, [0, 0, 0, 32, 2, 1, 64, 128], 64);
        assert!(wide.parts(31).is_none());
    }
}
