//! Values that streams and graphs wait for and write.

use std::sync::atomic::AtomicU32;

use super::*;

/// How long a wait sleeps before it looks again.
const PAUSE: std::time::Duration = std::time::Duration::from_micros(100);

/// Carries out an operation: the words of the API's union.
pub(super) fn operate(state: &Mutex<State>, operation: &[u64; 6]) -> CUresult {
    let [kind, address, value, flags, ..] = *operation;
    let flags = flags as u32;
    match kind as u32 {
        CU_STREAM_MEM_OP_WRITE_VALUE_32 => write(state, address, &(value as u32).to_ne_bytes()),
        CU_STREAM_MEM_OP_WRITE_VALUE_64 => write(state, address, &value.to_ne_bytes()),
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

/// Whether these bytes are of pinned memory, or of host memory that was registered: whoever looks there does not ask this device.
fn of_the_host(state: &State, address: u64, bytes: usize) -> bool {
    let start = address as usize;
    let pinned = || {
        let holds = |(at, memory): (&usize, &Allocation)| {
            let offset = start.checked_sub(*at);
            offset.is_some_and(|offset| offset.saturating_add(bytes) <= memory.len())
        };
        state.pinned.iter().any(holds)
    };
    address.is_multiple_of(bytes as u64) && (state.is_registered(start, bytes) || pinned())
}

fn write(state: &Mutex<State>, address: u64, bytes: &[u8]) -> CUresult {
    let held = state.lock().unwrap_or_else(PoisonError::into_inner);
    let &[a, b, c, d] = bytes else {
        drop(held);
        return device::write(state, address, bytes);
    };
    if !of_the_host(&held, address, bytes.len()) {
        drop(held);
        return device::write(state, address, bytes);
    }
    let place = std::ptr::with_exposed_provenance::<AtomicU32>(address as usize);
    // SAFETY: the memory is pinned or registered, so it is mapped; the lock keeps it so. It is aligned.
    let word = unsafe { &*place };
    word.store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release);
    CUDA_SUCCESS
}

fn read(state: &Mutex<State>, address: u64, value: &mut [u8; 8], bytes: usize) -> CUresult {
    let held = state.lock().unwrap_or_else(PoisonError::into_inner);
    if bytes != 4 || !of_the_host(&held, address, bytes) {
        drop(held);
        let place = device::Place(value.as_mut_ptr());
        return device::read(state, address, bytes, place);
    }
    let place = std::ptr::with_exposed_provenance::<AtomicU32>(address as usize);
    // SAFETY: as above.
    let word = unsafe { &*place };
    value[..4].copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
    CUDA_SUCCESS
}

fn wait(
    state: &Mutex<State>,
    address: u64,
    bytes: usize,
    enough: impl Fn(u64) -> bool,
) -> CUresult {
    loop {
        let mut value = [0; 8];
        // Memory that is freed ends the wait.
        let status = read(state, address, &mut value, bytes);
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
