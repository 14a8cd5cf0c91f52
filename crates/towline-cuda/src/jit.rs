//! Options of compiling and linking device code: which of them travel, and where what the compiler says goes.

use std::ffi::c_void;

use towline_backend::cuda::*;
use towline_client::raw::Vouched;

/// Longest log that is passed on; the server has the same number.
const LOG_ROOM: usize = 1 << 20;

/// A log of the caller's, by the addresses that it gave: they are good as long as the call that named them says.
#[derive(Debug, Default, Clone, Copy)]
struct Log {
    buffer: usize,
    room: usize,
    /// Where the driver says how much of it is filled: the value of the option that said its size.
    size: usize,
}

/// The options that travel, and where answers go.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) names: Vec<CUjit_option>,
    pub(crate) values: Vec<u64>,
    error: Log,
    info: Log,
    /// Where the compiler's time goes.
    wall: usize,
}

/// What the compiler said.
#[derive(Debug, Default)]
pub(crate) struct Told<'a> {
    pub(crate) error: Option<&'a [u8]>,
    pub(crate) info: Option<&'a [u8]>,
    /// The bits of so many milliseconds.
    pub(crate) wall: Option<u32>,
}

impl Log {
    /// Room for text and its NUL; none where there is no buffer.
    fn room(&self) -> u64 {
        match self.buffer {
            0 => 0,
            _ => self.room.min(LOG_ROOM) as u64,
        }
    }

    /// Writes text where the caller wants it.
    fn write(&self, text: Option<&[u8]>) {
        let Some(most) = self.room.checked_sub(1).filter(|_| self.buffer != 0) else {
            return;
        };
        let text = text.unwrap_or_default();
        let end = text
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(text.len());
        let text = text.get(..end.min(most)).unwrap_or_default();
        let bytes = text.iter().copied().chain([0]);
        let buffer = std::ptr::with_exposed_provenance_mut::<u8>(self.buffer);
        // SAFETY: the contract of `Options::read`.
        unsafe { crate::raw::fill(buffer, self.room, bytes) };
        if self.size != 0 {
            let size = std::ptr::with_exposed_provenance_mut::<*mut c_void>(self.size);
            let filled = std::ptr::without_provenance_mut(text.len());
            // SAFETY: as above.
            unsafe { size.write(filled) };
        }
    }
}

impl Options {
    /// Takes a value for each name. What they name is writable as long as these options are used.
    pub(crate) fn read(
        names: &[CUjit_option],
        values: Vouched<'_, *mut *mut c_void>,
    ) -> Result<Self, CUresult> {
        // SAFETY: the values are vouched for.
        let given = unsafe { crate::raw::slice(values.cast_const(), names.len()) };
        let given = given.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut options = Self::default();
        for (at, (name, value)) in names.iter().zip(given).enumerate() {
            let place = || values.wrapping_add(at).expose_provenance();
            match *name {
                CU_JIT_ERROR_LOG_BUFFER => options.error.buffer = value.expose_provenance(),
                CU_JIT_INFO_LOG_BUFFER => options.info.buffer = value.expose_provenance(),
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    options.error.room = value.addr() & 0xffff_ffff;
                    options.error.size = place();
                }
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    options.info.room = value.addr() & 0xffff_ffff;
                    options.info.size = place();
                }
                CU_JIT_WALL_TIME => {
                    options.wall = place();
                    options.names.push(CU_JIT_WALL_TIME);
                    options.values.push(0);
                }
                // Addresses of the application's: symbols of the host that the device is to use, and names that only help an
                // optimiser.
                CU_JIT_GLOBAL_SYMBOL_NAMES
                | CU_JIT_GLOBAL_SYMBOL_ADDRESSES
                | CU_JIT_GLOBAL_SYMBOL_COUNT
                | CU_JIT_REFERENCED_KERNEL_NAMES
                | CU_JIT_REFERENCED_KERNEL_COUNT
                | CU_JIT_REFERENCED_VARIABLE_NAMES
                | CU_JIT_REFERENCED_VARIABLE_COUNT => {}
                other if other >= CU_JIT_NUM_OPTIONS => return Err(CUDA_ERROR_INVALID_VALUE),
                other => {
                    options.names.push(other);
                    options.values.push(value.addr() as u64);
                }
            }
        }
        Ok(options)
    }

    /// The options that travel, for the same thing once more: nobody is told what the compiler says then.
    pub(crate) fn without_answers(&self) -> Self {
        Self {
            names: self.names.clone(),
            values: self.values.clone(),
            ..Self::default()
        }
    }

    /// Bytes that a log of errors may have.
    pub(crate) fn log_room(&self) -> u64 {
        self.error.room()
    }

    /// Bytes that a log of remarks may have.
    pub(crate) fn info_room(&self) -> u64 {
        self.info.room()
    }

    /// Writes what the compiler said to where the caller wants it.
    pub(crate) fn tell(&self, told: &Told<'_>) {
        self.error.write(told.error);
        self.info.write(told.info);
        if let Some(wall) = told.wall.filter(|_| self.wall != 0) {
            let place = std::ptr::with_exposed_provenance_mut::<u32>(self.wall);
            // SAFETY: the contract of `read`: the value of an option, which begins with the number.
            unsafe { place.write(wall) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[CUjit_option], values: &mut [*mut c_void]) -> Result<Options, CUresult> {
        // SAFETY: both are as long as each other, and what they name outlives the test.
        Options::read(names, unsafe { Vouched::new(values.as_mut_ptr()) })
    }

    #[test]
    fn logs_are_cut_to_their_room_and_say_how_much_is_there() {
        let mut text = [0xff_u8; 8];
        let names = [
            CU_JIT_ERROR_LOG_BUFFER,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_WALL_TIME,
        ];
        let room = std::ptr::without_provenance_mut(6);
        let mut values = [text.as_mut_ptr().cast(), room, std::ptr::null_mut()];
        let options = read(&names, &mut values).unwrap();
        assert_eq!((options.log_room(), options.info_room()), (6, 0));
        assert_eq!(options.names, [CU_JIT_WALL_TIME]);
        let told = Told {
            error: Some(b"no such thing"),
            info: Some(b"not wanted"),
            wall: Some(1.5_f32.to_bits()),
        };
        options.tell(&told);
        assert_eq!(&text, b"no su\0\xff\xff");
        assert_eq!(values[1].addr(), 5);
        assert_eq!(values[2].addr() as u32, 1.5_f32.to_bits());
    }

    #[test]
    fn a_log_without_room_is_left_alone() {
        let mut text = [0xff_u8; 2];
        let names = [CU_JIT_INFO_LOG_BUFFER];
        let mut values = [text.as_mut_ptr().cast()];
        let options = read(&names, &mut values).unwrap();
        assert_eq!(options.info_room(), 0);
        let told = Told {
            info: Some(b"remark"),
            ..Told::default()
        };
        options.tell(&told);
        assert_eq!(text, [0xff; 2]);
    }

    #[test]
    fn options_that_no_driver_knows_are_refused() {
        let names = [CU_JIT_NUM_OPTIONS];
        let refused = read(&names, &mut [std::ptr::null_mut()]);
        assert_eq!(refused.err(), Some(CUDA_ERROR_INVALID_VALUE));
    }
}
