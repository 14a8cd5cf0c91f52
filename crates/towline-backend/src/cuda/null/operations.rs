//! Values that streams and graphs wait for and write.

use super::*;

/// How long a wait sleeps before it looks again.
const PAUSE: std::time::Duration = std::time::Duration::from_micros(100);

/// Carries out an operation: the words of the API's union.
pub(super) fn operate(state: &Mutex<State>, operation: &[u64; 6]) -> CUresult {
    let [kind, address, value, flags, ..] = *operation;
    let flags = flags as u32;
    match kind as u32 {
        CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
            device::write(state, address, &(value as u32).to_ne_bytes())
        }
        CU_STREAM_MEM_OP_WRITE_VALUE_64 => device::write(state, address, &value.to_ne_bytes()),
        CU_STREAM_MEM_OP_WAIT_VALUE_32 => wait(state, address, 4, |there| {
            let (there, wanted) = (there as u32, value as u32);
            match flags & 3 {
                CU_STREAM_WAIT_VALUE_GEQ => there.wrapping_sub(wanted) as i32 >= 0,
                CU_STREAM_WAIT_VALUE_EQ => there == wanted,
                CU_STREAM_WAIT_VALUE_AND => there & wanted != 0,
                _ => !(there | wanted) != 0,
            }
        }),
        CU_STREAM_MEM_OP_WAIT_VALUE_64 => wait(state, address, 8, |there| match flags & 3 {
            CU_STREAM_WAIT_VALUE_GEQ => there.wrapping_sub(value) as i64 >= 0,
            CU_STREAM_WAIT_VALUE_EQ => there == value,
            CU_STREAM_WAIT_VALUE_AND => there & value != 0,
            _ => !(there | value) != 0,
        }),
        CU_STREAM_MEM_OP_BARRIER => CUDA_SUCCESS,
        _ => CUDA_ERROR_INVALID_VALUE,
    }
}

fn wait(
    state: &Mutex<State>,
    address: u64,
    bytes: usize,
    enough: impl Fn(u64) -> bool,
) -> CUresult {
    loop {
        let mut value = [0; 8];
        let place = device::Place(value.as_mut_ptr());
        // Memory that is freed ends the wait.
        let status = device::read(state, address, bytes, place);
        if status != CUDA_SUCCESS || enough(u64::from_ne_bytes(value)) {
            return status;
        }
        std::thread::sleep(PAUSE);
    }
}

impl NullCuda {
    pub(super) fn operate(
        &self,
        stream: CUstream,
        count: u32,
        operations: *mut CUstreamBatchMemOpParams,
    ) -> CUresult {
        let one = |index: usize| {
            let place = operations.cast::<[u64; 6]>().wrapping_add(index);
            // SAFETY: the contract of the call: as many as it says.
            unsafe { place.read() }
        };
        let operations: Vec<_> = (0..count as usize).map(one).collect();
        self.enqueue(stream, move |state| {
            let mut outcomes = operations.iter().map(|one| operate(state, one));
            let failed = outcomes.find(|status| *status != CUDA_SUCCESS);
            failed.unwrap_or(CUDA_SUCCESS)
        })
    }
}
