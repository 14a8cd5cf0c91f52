//! Memory of the client's own that this worker maps and the driver has registered: pinned memory of an application on the same host, and
//! what it stages copies in. Copies go straight between it and the device.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use towline_backend::cuda::*;
use towline_transport::shared_memory::SharedMemory;

use super::context::Context;
use super::shared::{Shared, lock};
use crate::link::Raw;

/// Most areas of a session: each is a mapping, of which a process has 65,530.
const AREAS: usize = 16 << 10;

/// Memory that the client shares.
pub(crate) struct Area {
    memory: SharedMemory,
    /// Contexts whose devices may be at it.
    users: Mutex<Vec<Weak<Context>>>,
}

/// All of a session's, by the client's numbers; `None` while one is being registered.
#[derive(Default)]
pub(crate) struct Areas {
    known: HashMap<u64, Option<Arc<Area>>>,
    bytes: u64,
}

/// Why an area cannot be had.
pub(crate) enum Refusal {
    /// The number means another.
    InUse,
    /// There is too much already.
    TooMuch,
}

impl Areas {
    /// Makes place for an area; in the error, why there is none.
    pub(crate) fn reserve(&mut self, number: u64, size: u64) -> Result<(), Refusal> {
        if self.known.contains_key(&number) {
            return Err(Refusal::InUse);
        }
        let bytes = self.bytes.saturating_add(size);
        if size == 0 || bytes > most_bytes() || self.known.len() >= AREAS {
            return Err(Refusal::TooMuch);
        }
        self.bytes = bytes;
        self.known.insert(number, None);
        Ok(())
    }

    fn settle(&mut self, number: u64, size: u64, area: Option<Arc<Area>>) {
        match area {
            Some(area) => drop(self.known.insert(number, Some(area))),
            None => {
                self.known.remove(&number);
                self.bytes -= size;
            }
        }
    }

    /// The area of this number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Area>> {
        self.known.get(&number).cloned().flatten()
    }

    /// Forgets an area.
    pub(crate) fn take(&mut self, number: u64) -> Option<Arc<Area>> {
        let area = self.get(number)?;
        self.known.remove(&number);
        self.bytes -= area.memory.len() as u64;
        Some(area)
    }

    /// Forgets all of them.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Area>> {
        self.bytes = 0;
        self.known.drain().filter_map(|(_, area)| area).collect()
    }
}

/// Memory that is registered stays where it is: half of the machine's must be left for everything else.
fn most_bytes() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    *MOST.get_or_init(|| {
        let system = rustix::system::sysinfo();
        (system.totalram as u64).saturating_mul(system.mem_unit.into()) / 2
    })
}

impl Area {
    /// Its part from `offset` on, when that has `size` bytes.
    pub(crate) fn part(&self, offset: u64, size: u64) -> Option<Raw> {
        let end = offset.checked_add(size)?;
        let within = size > 0 && end <= self.memory.len() as u64;
        let start = self.memory.start().as_ptr();
        within.then(|| Raw(start.wrapping_add(offset as usize).cast()))
    }

    /// A device of this context may be at it from now on.
    pub(crate) fn used_in(&self, context: &Arc<Context>) {
        let mut users = lock(&self.users);
        let known = |user: &Weak<Context>| std::ptr::eq(user.as_ptr(), Arc::as_ptr(context));
        if !users.iter().any(known) {
            users.push(Arc::downgrade(context));
        }
    }

    /// Waits until no device is at it, and gives it back to the driver. A context that ended has waited itself.
    pub(crate) fn release(&self, api: &dyn CudaApi) -> CUresult {
        let mut entered = false;
        for context in lock(&self.users).iter().filter_map(Weak::upgrade) {
            if context.enter(api) == CUDA_SUCCESS {
                // SAFETY: the context is current.
                unsafe { api.cuCtxSynchronize() };
                entered = true;
            }
        }
        if !entered {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        // SAFETY: the memory was registered, and nothing copies from it or to it.
        unsafe { api.cuMemHostUnregister(self.memory.start().as_ptr().cast()) }
    }
}

impl Shared {
    /// Maps and registers what the client sent, for which there is a place. `there`: its address and size at the client. Told is also
    /// where kernels find it, if that is its address at the client, and 0 otherwise.
    pub(crate) fn take_area(
        &self,
        number: u64,
        there: (u64, u64),
        file: OwnedFd,
        context: Option<&Arc<Context>>,
    ) -> (CUresult, u64) {
        let registered = self.register(there, file, context);
        let (status, area, device) = match registered {
            Ok((area, device)) => (CUDA_SUCCESS, Some(area), device),
            Err(status) => (status, None, 0),
        };
        lock(&self.areas).settle(number, there.1, area);
        (status, device)
    }

    fn register(
        &self,
        (wish, size): (u64, u64),
        file: OwnedFd,
        context: Option<&Arc<Context>>,
    ) -> Result<(Arc<Area>, u64), CUresult> {
        let context = context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let size = usize::try_from(size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let memory = SharedMemory::open_near(file, size, wish as usize).map_err(|error| {
            log::warn!("the client's memory is of no use: {error}");
            CUDA_ERROR_INVALID_VALUE
        })?;
        match context.enter(&*self.api) {
            CUDA_SUCCESS => {}
            status => return Err(status),
        }
        let start = memory.start().as_ptr().cast();
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range is mapped, and stays so until the area is released.
        let status = unsafe { self.api.cuMemHostRegister_v2(start, size, flags) };
        if status != CUDA_SUCCESS {
            return Err(status);
        }
        let mut device: CUdeviceptr = 0;
        // SAFETY: one place for the address; the memory is registered.
        let told = unsafe {
            self.api
                .cuMemHostGetDevicePointer_v2(&raw mut device, start, 0)
        };
        // The application knows the memory by one address.
        let same = told == CUDA_SUCCESS && start.addr() as u64 == wish && device == wish;
        let users = Mutex::new(vec![Arc::downgrade(context)]);
        let area = Arc::new(Area { memory, users });
        Ok((area, if same { wish } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_once_and_come_back() {
        let mut areas = Areas::default();
        assert!(areas.reserve(1, 4096).is_ok());
        assert!(matches!(areas.reserve(1, 4096), Err(Refusal::InUse)));
        assert!(areas.get(1).is_none(), "it is not registered yet");
        assert!(areas.take(1).is_none());
        areas.settle(1, 4096, None);
        assert!(areas.reserve(1, 4096).is_ok());
    }

    #[test]
    fn half_of_the_machines_memory_is_the_most() {
        let mut areas = Areas::default();
        assert!(matches!(areas.reserve(1, 0), Err(Refusal::TooMuch)));
        assert!(matches!(areas.reserve(1, u64::MAX), Err(Refusal::TooMuch)));
        assert!(areas.reserve(1, most_bytes()).is_ok());
        assert!(matches!(areas.reserve(2, 1), Err(Refusal::TooMuch)));
    }

    #[test]
    fn only_parts_within_the_area_can_be_named() {
        let area = Area {
            memory: SharedMemory::allocate("test", 4096).unwrap(),
            users: Mutex::default(),
        };
        assert!(area.part(0, 4096).is_some() && area.part(4095, 1).is_some());
        for (offset, size) in [(0, 0), (0, 4097), (4096, 1), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(area.part(offset, size).is_none(), "{offset}, {size}");
        }
    }
}
