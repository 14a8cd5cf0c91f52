//! Addresses and physical memory apart, and what other sessions open of it. Addresses are numbers that no memory of the process has.

use std::collections::BTreeMap;

use super::device::Allocation;
use super::*;

/// Where addresses begin that nobody asks for.
const FIRST: u64 = 0x1000_0000_0000;
/// What memory is rounded to.
const GRANULARITY: usize = 2 << 20;

/// See the module's text.
#[derive(Default)]
pub(super) struct VirtualMemory {
    /// Bytes by the first address.
    reserved: BTreeMap<u64, usize>,
    physical: HashMap<u64, Physical>,
    mapped: BTreeMap<u64, Mapped>,
    /// Memory of other sessions, by the address that it was opened at.
    opened: BTreeMap<u64, (u64, usize)>,
}

struct Physical {
    memory: Allocation,
    references: usize,
    mapped: usize,
}

struct Mapped {
    memory: u64,
    size: usize,
    /// Somebody may use it.
    usable: bool,
}

fn offset_in(start: u64, size: usize, address: u64, bytes: usize) -> Option<u64> {
    let offset = address.checked_sub(start)?;
    (offset.checked_add(bytes as u64)? <= size as u64).then_some(offset)
}

impl VirtualMemory {
    /// Bytes of physical memory.
    pub(super) fn bytes(&self) -> usize {
        self.physical.values().map(|one| one.memory.len()).sum()
    }

    /// Reservations, and memory of other sessions that is open.
    pub(super) fn live(&self) -> usize {
        self.reserved.len() + self.opened.len()
    }

    /// Where bytes at such an address lie.
    pub(super) fn find(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        let (start, mapped) = self.mapped.range(..=address).next_back()?;
        let offset = offset_in(*start, mapped.size, address, bytes)?;
        let physical = self.physical.get(&mapped.memory)?;
        let at = physical.memory.pointer().wrapping_add(offset as usize);
        mapped.usable.then_some(at)
    }

    /// What an address of another session's memory means.
    pub(super) fn resolve(&self, address: u64, bytes: usize) -> Option<u64> {
        let (start, (base, size)) = self.opened.range(..=address).next_back()?;
        Some(base + offset_in(*start, *size, address, bytes)?)
    }

    /// Addresses that nobody has, at `hint` where they are free.
    fn place(&self, size: usize, hint: u64) -> u64 {
        let taken = self.reserved.iter().map(|(start, size)| (*start, *size));
        let opened = self.opened.iter().map(|(start, (_, size))| (*start, *size));
        let taken: Vec<_> = taken.chain(opened).collect();
        let free = |at: u64| {
            let apart = |(start, other): &(u64, usize)| {
                at + size as u64 <= *start || *start + *other as u64 <= at
            };
            taken.iter().all(apart)
        };
        if hint != 0 && hint.is_multiple_of(GRANULARITY as u64) && free(hint) {
            return hint;
        }
        let ends = taken.iter().map(|(start, other)| start + *other as u64);
        let mut ends: Vec<u64> = ends.chain([FIRST]).filter(|end| *end >= FIRST).collect();
        ends.sort_unstable();
        let rounded = ends
            .into_iter()
            .map(|end| end.next_multiple_of(GRANULARITY as u64));
        let mut rounded = rounded.filter(|at| free(*at));
        rounded.next().unwrap_or(FIRST)
    }

    fn release(&mut self, handle: u64) {
        let unused = |one: &Physical| one.references == 0 && one.mapped == 0;
        if self.physical.get(&handle).is_some_and(unused) {
            self.physical.remove(&handle);
        }
    }
}

impl NullCuda {
    pub(super) fn reserve(&self, place: *mut CUdeviceptr, size: usize, hint: u64) -> CUresult {
        if size == 0 || !size.is_multiple_of(GRANULARITY) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let memory = &mut self.lock().virtual_memory;
        let address = memory.place(size, hint);
        memory.reserved.insert(address, size);
        put(place, address);
        CUDA_SUCCESS
    }

    pub(super) fn unreserve(&self, address: u64, size: usize) -> CUresult {
        let memory = &mut self.lock().virtual_memory;
        let end = address.saturating_add(size as u64);
        let used = memory.mapped.range(address..end).next().is_some();
        if used || memory.reserved.get(&address) != Some(&size) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        memory.reserved.remove(&address);
        CUDA_SUCCESS
    }

    pub(super) fn create_physical(&self, place: *mut u64, size: usize) -> CUresult {
        if size == 0 || !size.is_multiple_of(GRANULARITY) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if size > (8 << 30) - self.allocated_bytes().min(8 << 30) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        let handle = self.fresh() as u64;
        let physical = Physical {
            memory: Allocation::new(size),
            references: 1,
            mapped: 0,
        };
        self.lock().virtual_memory.physical.insert(handle, physical);
        put(place, handle);
        CUDA_SUCCESS
    }

    pub(super) fn release_physical(&self, handle: u64) -> CUresult {
        let memory = &mut self.lock().virtual_memory;
        let Some(physical) = memory.physical.get_mut(&handle) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if physical.references == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        physical.references -= 1;
        memory.release(handle);
        CUDA_SUCCESS
    }

    pub(super) fn map(&self, address: u64, size: usize, handle: u64) -> CUresult {
        let memory = &mut self.lock().virtual_memory;
        let end = address.saturating_add(size as u64);
        let reserved = memory.reserved.range(..=address).next_back();
        let reserved = reserved
            .is_some_and(|(start, bytes)| offset_in(*start, *bytes, address, size).is_some());
        let free = memory.mapped.range(address..end).next().is_none();
        let Some(physical) = memory.physical.get_mut(&handle) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if !reserved || !free || size == 0 || size > physical.memory.len() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        physical.mapped += 1;
        let mapped = Mapped {
            memory: handle,
            size,
            usable: false,
        };
        memory.mapped.insert(address, mapped);
        CUDA_SUCCESS
    }

    pub(super) fn unmap(&self, address: u64, size: usize) -> CUresult {
        self.streams.wait_all(None);
        let memory = &mut self.lock().virtual_memory;
        let end = address.saturating_add(size as u64);
        let inside: Vec<u64> = memory
            .mapped
            .range(address..end)
            .map(|(at, _)| *at)
            .collect();
        if inside.is_empty() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for at in inside {
            if let Some(mapped) = memory.mapped.remove(&at) {
                if let Some(physical) = memory.physical.get_mut(&mapped.memory) {
                    physical.mapped -= 1;
                }
                memory.release(mapped.memory);
            }
        }
        CUDA_SUCCESS
    }

    pub(super) fn allow(&self, address: u64, size: usize, usable: bool) -> CUresult {
        let memory = &mut self.lock().virtual_memory;
        let end = address.saturating_add(size as u64);
        let mut inside = memory.mapped.range_mut(address..end).peekable();
        if inside.peek().is_none() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        inside.for_each(|(_, mapped)| mapped.usable = usable);
        CUDA_SUCCESS
    }

    /// A file that says which memory it stands for.
    pub(super) fn export_physical(&self, place: *mut c_void, handle: u64) -> CUresult {
        if !self.lock().virtual_memory.physical.contains_key(&handle) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        tell(place.cast(), pools::numbered_file(handle, self.fresh()))
    }

    pub(super) fn import_physical(&self, place: *mut u64, file: *mut c_void) -> CUresult {
        // SAFETY: the contract of the call: an open descriptor.
        let Some(handle) = (unsafe { pools::number_of(file) }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        match self.lock().virtual_memory.physical.get_mut(&handle) {
            Some(physical) => {
                physical.references += 1;
                put(place, handle);
                CUDA_SUCCESS
            }
            None => CUDA_ERROR_INVALID_VALUE,
        }
    }

    pub(super) fn tell_memory(&self, place: *mut CUipcMemHandle, address: u64) -> CUresult {
        if !self.lock().memory.contains_key(&address) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        put(place.cast::<[u64; 8]>(), [address, 0, 0, 0, 0, 0, 0, 0]);
        CUDA_SUCCESS
    }

    pub(super) fn open_memory(&self, place: *mut CUdeviceptr, handle: CUipcMemHandle) -> CUresult {
        let base = handle_number(&handle.reserved);
        tell(place, self.open_at_another_address(base))
    }

    pub(super) fn open_at_another_address(&self, base: u64) -> Result<u64, CUresult> {
        let state = &mut *self.lock();
        let memory = state.memory.get(&base).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let size = memory.len();
        let address = state.virtual_memory.place(size, 0);
        state.virtual_memory.opened.insert(address, (base, size));
        Ok(address)
    }

    /// An allocation of a pool of another session is freed.
    pub(super) fn close_pooled(state: &mut State, address: u64) -> CUresult {
        match state.virtual_memory.opened.remove(&address) {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_INVALID_VALUE,
        }
    }

    pub(super) fn close_memory(&self, address: u64) -> CUresult {
        self.streams.wait_all(None);
        match self.lock().virtual_memory.opened.remove(&address) {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_INVALID_VALUE,
        }
    }
}

fn handle_number(bytes: &[c_char; 64]) -> u64 {
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(bytes) {
        *to = *from as u8;
    }
    u64::from_ne_bytes(number)
}

macro_rules! virtual_memory_calls {
    () => {
        unsafe fn cuMemAddressReserve(
            &self,
            address: *mut CUdeviceptr,
            size: usize,
            _alignment: usize,
            hint: CUdeviceptr,
            _flags: u64,
        ) -> CUresult {
            self.reserve(address, size, hint)
        }
        unsafe fn cuMemAddressFree(&self, address: CUdeviceptr, size: usize) -> CUresult {
            self.unreserve(address, size)
        }
        unsafe fn cuMemCreate(
            &self,
            handle: *mut CUmemGenericAllocationHandle,
            size: usize,
            _prop: *const CUmemAllocationProp,
            _flags: u64,
        ) -> CUresult {
            self.create_physical(handle, size)
        }
        unsafe fn cuMemRelease(&self, handle: CUmemGenericAllocationHandle) -> CUresult {
            self.release_physical(handle)
        }
        unsafe fn cuMemMap(
            &self,
            address: CUdeviceptr,
            size: usize,
            _offset: usize,
            handle: CUmemGenericAllocationHandle,
            _flags: u64,
        ) -> CUresult {
            self.map(address, size, handle)
        }
        unsafe fn cuMemUnmap(&self, address: CUdeviceptr, size: usize) -> CUresult {
            self.unmap(address, size)
        }
        unsafe fn cuMemSetAccess(
            &self,
            address: CUdeviceptr,
            size: usize,
            access: *const CUmemAccessDesc,
            count: usize,
        ) -> CUresult {
            let each = (0..count).map(|at| {
                // SAFETY: the contract of the call: as many as it says.
                unsafe { access.wrapping_add(at).read() }
            });
            let usable = each
                .into_iter()
                .any(|one| one.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            self.allow(address, size, usable)
        }
        unsafe fn cuMemExportToShareableHandle(
            &self,
            place: *mut c_void,
            handle: CUmemGenericAllocationHandle,
            _type: CUmemAllocationHandleType,
            _flags: u64,
        ) -> CUresult {
            self.export_physical(place, handle)
        }
        unsafe fn cuMemImportFromShareableHandle(
            &self,
            handle: *mut CUmemGenericAllocationHandle,
            file: *mut c_void,
            _type: CUmemAllocationHandleType,
        ) -> CUresult {
            self.import_physical(handle, file)
        }
        unsafe fn cuIpcGetMemHandle(
            &self,
            handle: *mut CUipcMemHandle,
            address: CUdeviceptr,
        ) -> CUresult {
            self.tell_memory(handle, address)
        }
        unsafe fn cuIpcOpenMemHandle_v2(
            &self,
            address: *mut CUdeviceptr,
            handle: CUipcMemHandle,
            _flags: u32,
        ) -> CUresult {
            self.open_memory(address, handle)
        }
        unsafe fn cuIpcCloseMemHandle(&self, address: CUdeviceptr) -> CUresult {
            self.close_memory(address)
        }
    };
}
pub(super) use virtual_memory_calls;
