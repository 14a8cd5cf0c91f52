//! Memory of the device, and what its kernels compute.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

/// Memory of the device, or pinned. It stays where it is.
pub struct Allocation {
    words: Box<[u128]>,
    bytes: usize,
}

impl Allocation {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            words: vec![0; bytes.div_ceil(16)].into(),
            bytes,
        }
    }

    pub(super) fn pointer(&self) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().cast_mut()
    }

    pub(super) fn address(&self) -> u64 {
        self.pointer().expose_provenance() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }
}

/// Host memory that a command writes to.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) *mut u8);

// SAFETY: the contract of the copy: the memory is writable until the command is done, from whatever thread carries it out.
unsafe impl Send for Place {}

/// Where an address range lies, if it is all of one allocation's.
pub(super) fn find(state: &State, address: u64, bytes: usize) -> Option<*mut u8> {
    if let Some(memory) = state.virtual_memory.find(address, bytes) {
        return Some(memory);
    }
    // As on a device that has the host's addresses.
    if state.is_registered(address as usize, bytes) {
        return Some(std::ptr::with_exposed_provenance_mut(address as usize));
    }
    let opened = state.virtual_memory.resolve(address, bytes);
    let address = opened.unwrap_or(address);
    let memory = state.memory.values().find(|memory| {
        let offset = address.checked_sub(memory.address());
        offset.is_some_and(|offset| {
            offset
                .checked_add(bytes as u64)
                .is_some_and(|end| end <= memory.len() as u64)
        })
    })?;
    let offset = address - memory.address();
    Some(memory.pointer().wrapping_add(offset as usize))
}

pub(super) fn write(state: &Mutex<State>, address: u64, bytes: &[u8]) -> CUresult {
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    match find(&state, address, bytes.len()) {
        None => CUDA_ERROR_ILLEGAL_ADDRESS,
        Some(memory) => {
            // SAFETY: the range lies in an allocation, which the lock keeps, or is registered.
            unsafe { memory.copy_from(bytes.as_ptr(), bytes.len()) };
            CUDA_SUCCESS
        }
    }
}

pub(super) fn read(state: &Mutex<State>, address: u64, size: usize, to: Place) -> CUresult {
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    match find(&state, address, size) {
        None => CUDA_ERROR_ILLEGAL_ADDRESS,
        Some(memory) => {
            // SAFETY: the range lies in an allocation, which the lock keeps, or is registered; the place has room by the contract of the copy.
            unsafe { to.0.copy_from(memory, size) };
            CUDA_SUCCESS
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    AddOne,
    Scale,
    SpinUntil,
    Fetch,
    Fault,
    CountDown,
}

/// A kernel of an image.
pub struct Kernel {
    kind: Kind,
    name: CString,
    /// Until it is loaded, drivers do not tell all of a module's function.
    pub(super) loaded: AtomicBool,
}

impl Kernel {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let kind = match name {
            b"add_one" => Kind::AddOne,
            b"scale" => Kind::Scale,
            b"spin_until" => Kind::SpinUntil,
            b"fetch" => Kind::Fetch,
            b"fault" => Kind::Fault,
            b"count_down" => Kind::CountDown,
            _ => return None,
        };
        let name = CString::new(name).ok()?;
        let loaded = AtomicBool::new(false);
        Some(Self { kind, name, loaded })
    }

    pub(super) fn name(&self) -> &CString {
        &self.name
    }

    /// Offset and size of each parameter.
    pub(super) fn parameters(&self) -> &'static [(usize, usize)] {
        match self.kind {
            Kind::AddOne => &[(0, 8), (8, 4)],
            Kind::Scale => &[(0, 8), (8, 4), (12, 4)],
            Kind::SpinUntil => &[(0, 8)],
            Kind::Fetch => &[(0, 8), (8, 8), (16, 4)],
            Kind::Fault => &[],
            Kind::CountDown => &[(0, 8), (8, 8)],
        }
    }

    fn block(&self) -> usize {
        let last = self.parameters().last();
        last.map_or(0, |(offset, size)| offset + size)
    }

    pub(super) fn run(&self, state: &Mutex<State>, arguments: &[u8]) -> CUresult {
        let word = |at: usize| {
            let bytes = arguments.get(at..at + 4).unwrap_or(&[0; 4]);
            u32::from_ne_bytes(bytes.try_into().unwrap_or_default())
        };
        let address = u64::from(word(0)) | u64::from(word(4)) << 32;
        match self.kind {
            Kind::AddOne => each(state, address, word(8), |value| value.wrapping_add(1)),
            Kind::Scale => {
                let factor = word(12);
                each(state, address, word(8), |value| value.wrapping_mul(factor))
            }
            Kind::SpinUntil => spin(state, address),
            Kind::Fetch => {
                let to = u64::from(word(8)) | u64::from(word(12)) << 32;
                texture::fetch(state, address, to, word(16) as usize)
            }
            Kind::Fault => CUDA_ERROR_ILLEGAL_ADDRESS,
            Kind::CountDown => {
                let handle = u64::from(word(8)) | u64::from(word(12)) << 32;
                let mut left = 0;
                let status = each(state, address, 1, |value| {
                    left = value.wrapping_sub(1);
                    left
                });
                let conditions = &mut state
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .conditions;
                if let Some(condition) = conditions.get_mut(&handle) {
                    condition.value = left;
                }
                status
            }
        }
    }
}

fn each(
    state: &Mutex<State>,
    address: u64,
    count: u32,
    mut step: impl FnMut(u32) -> u32,
) -> CUresult {
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(memory) = find(&state, address, count as usize * 4) else {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    };
    let numbers = memory.cast::<u32>();
    for index in 0..count as usize {
        let number = numbers.wrapping_add(index);
        // SAFETY: the range lies in an allocation, which the lock keeps.
        let value = unsafe { number.read_unaligned() };
        // SAFETY: as above.
        unsafe { number.write_unaligned(step(value)) };
    }
    CUDA_SUCCESS
}

fn spin(state: &Mutex<State>, address: u64) -> CUresult {
    loop {
        {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(memory) = find(&state, address, 4) else {
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            };
            // SAFETY: four bytes of an allocation, which the lock keeps; allocations are aligned and numbers in them too.
            let number = unsafe { &*memory.cast::<AtomicU32>() };
            if number.load(Ordering::Acquire) != 0 {
                return CUDA_SUCCESS;
            }
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}

/// The parameter block of a launch; `None` when what describes it does not fit the kernel.
///
/// # Safety
///
/// The contract of `cuLaunchKernel`: `params` points to as many addresses as the kernel has parameters, or `extra` to a list that
/// ends.
pub(super) unsafe fn arguments(
    kernel: &Kernel,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Option<Vec<u8>> {
    let mut block = vec![0_u8; kernel.block()];
    if !extra.is_null() {
        let (mut from, mut size, mut at) = (std::ptr::null::<u8>(), 0_usize, extra);
        // A list has at most two pairs.
        for _ in 0..3 {
            // SAFETY: the list has not ended.
            let key = unsafe { *at }.addr();
            if key == CU_LAUNCH_PARAM_END {
                break;
            }
            // SAFETY: a value follows each key.
            let value = unsafe { *at.wrapping_add(1) };
            if key == CU_LAUNCH_PARAM_BUFFER_POINTER {
                from = value.cast();
            } else {
                // SAFETY: the value of the size's key points to it.
                size = unsafe { *value.cast::<usize>() };
            }
            at = at.wrapping_add(2);
        }
        if size < block.len() {
            return None;
        }
        // SAFETY: the block has the size that was given, which is at least what is copied.
        unsafe { block.as_mut_ptr().copy_from(from, block.len()) };
        return Some(block);
    }
    for (index, (offset, size)) in kernel.parameters().iter().enumerate() {
        if params.is_null() {
            return None;
        }
        // SAFETY: an address for each parameter.
        let from = unsafe { *params.wrapping_add(index) }.cast::<u8>();
        let place = block.as_mut_ptr().wrapping_add(*offset);
        // SAFETY: the parameter has its size, and so has its place in the block.
        unsafe { place.copy_from(from, *size) };
    }
    Some(block)
}
