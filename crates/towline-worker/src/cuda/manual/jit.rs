//! Options of compiling and linking device code, and what the compiler says. Logs are the session's own and travel with replies.

use std::ffi::c_void;

use towline_backend::cuda::*;

/// Most text that the driver writes about an image.
const LOG_LIMIT: u64 = 1 << 20;

/// Options that are numbers; the others hold addresses of the client's.
const NUMERIC: &[CUjit_option] = &[
    CU_JIT_MAX_REGISTERS,
    CU_JIT_THREADS_PER_BLOCK,
    CU_JIT_OPTIMIZATION_LEVEL,
    CU_JIT_TARGET_FROM_CUCONTEXT,
    CU_JIT_TARGET,
    CU_JIT_FALLBACK_STRATEGY,
    CU_JIT_GENERATE_DEBUG_INFO,
    CU_JIT_LOG_VERBOSE,
    CU_JIT_GENERATE_LINE_INFO,
    CU_JIT_CACHE_MODE,
    CU_JIT_NEW_SM3X_OPT,
    CU_JIT_FAST_COMPILE,
    CU_JIT_LTO,
    CU_JIT_FTZ,
    CU_JIT_PREC_DIV,
    CU_JIT_PREC_SQRT,
    CU_JIT_FMA,
    CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES,
    CU_JIT_POSITION_INDEPENDENT_CODE,
    CU_JIT_MIN_CTA_PER_SM,
    CU_JIT_MAX_THREADS_PER_BLOCK,
    CU_JIT_OVERRIDE_DIRECTIVE_VALUES,
    CU_JIT_SPLIT_COMPILE,
    CU_JIT_BINARY_LOADER_THREAD_COUNT,
];

/// Options as the driver takes them, with logs of so many bytes. It has to be where it is while the driver uses it: a link does from its
/// beginning to its end.
pub(crate) struct Jit {
    names: Box<[CUjit_option]>,
    values: Box<[*mut c_void]>,
    error: Box<[u8]>,
    info: Box<[u8]>,
    /// Which of the values is the compiler's time.
    wall: Option<usize>,
}

// SAFETY: the values are numbers, and addresses of the logs that it owns.
unsafe impl Send for Jit {}

impl Jit {
    pub(crate) fn new(options: &[(CUjit_option, u64)], error_room: u64, info_room: u64) -> Self {
        let log = |room: u64| vec![0; room.min(LOG_LIMIT) as usize].into_boxed_slice();
        let (mut error, mut info) = (log(error_room), log(info_room));
        let (mut names, mut values, mut wall) = (Vec::new(), Vec::new(), None);
        for (name, value) in options {
            if *name == CU_JIT_WALL_TIME {
                wall = Some(values.len());
            } else if !NUMERIC.contains(name) {
                continue;
            }
            names.push(*name);
            values.push(std::ptr::without_provenance_mut(*value as usize));
        }
        for (log, buffer, size) in [
            (
                &mut error,
                CU_JIT_ERROR_LOG_BUFFER,
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            ),
            (
                &mut info,
                CU_JIT_INFO_LOG_BUFFER,
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            ),
        ] {
            if !log.is_empty() {
                names.extend([buffer, size]);
                values.push(log.as_mut_ptr().cast());
                values.push(std::ptr::without_provenance_mut(log.len()));
            }
        }
        Self {
            names: names.into(),
            values: values.into(),
            error,
            info,
            wall,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.names.len() as u32
    }

    pub(crate) fn names(&mut self) -> *mut CUjit_option {
        self.names.as_mut_ptr()
    }

    pub(crate) fn values(&mut self) -> *mut *mut c_void {
        self.values.as_mut_ptr()
    }

    pub(crate) fn error(&self) -> &[u8] {
        text(&self.error)
    }

    pub(crate) fn info(&self) -> &[u8] {
        text(&self.info)
    }

    /// The bits of the milliseconds that the compiler took.
    pub(crate) fn wall(&self) -> u32 {
        let value = self.wall.and_then(|at| self.values.get(at));
        value.map_or(0, |value| value.addr() as u32)
    }
}

fn text(log: &[u8]) -> &[u8] {
    log.split(|byte| *byte == 0).next().unwrap_or_default()
}
