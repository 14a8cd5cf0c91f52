//! Memory in stream order, and the pools that it is counted in.
//!
//! Memory that is given back in a stream's order is free when the stream comes there, and goes back to the system then: a pool keeps
//! nothing for later. What is asked for before that, and finds no room, is given what another allocation leaves: the stream that asks
//! stands behind the one that gives back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towline_backend::cuda::*;

use super::streams::{Place, Queue};
use super::{SoftCuda, fresh, lock};
use crate::memory::{Arena, Purpose};

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    device: u32,
    /// Most bytes that it may give out; 0 for any.
    most: u64,
    settings: Mutex<Settings>,
    used: AtomicU64,
    used_high: AtomicU64,
    reserved_high: AtomicU64,
    /// Devices that were granted or denied access.
    access: Mutex<HashMap<u32, CUmemAccess_flags>>,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    follow_events: bool,
    opportunistic: bool,
    internal_dependencies: bool,
    /// Kept as it was set: nothing is held back that could be released.
    release_threshold: u64,
}

/// All pools, and what came from them.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: HashMap<usize, Arc<Pool>>,
    defaults: HashMap<u32, usize>,
    current: HashMap<u32, usize>,
    /// Whose an allocation is, and its bytes.
    owners: HashMap<u64, (Arc<Pool>, u64)>,
    leaving: Vec<Leaving>,
}

/// Memory that a stream gives back when it comes there.
#[derive(Debug)]
struct Leaving {
    device: u32,
    address: u64,
    bytes: u64,
    place: Place,
    fate: Arc<Mutex<Fate>>,
}

/// What becomes of memory when its stream comes to where it was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Free,
    /// It was freed.
    Gone,
    /// So many bytes of it are another allocation by now.
    Taken(u64),
}

impl Pool {
    fn new(device: u32, most: u64) -> Arc<Self> {
        Arc::new(Self {
            device,
            most,
            settings: Mutex::new(Settings {
                follow_events: true,
                opportunistic: true,
                internal_dependencies: true,
                release_threshold: 0,
            }),
            used: AtomicU64::new(0),
            used_high: AtomicU64::new(0),
            reserved_high: AtomicU64::new(0),
            access: Mutex::default(),
        })
    }

    fn count(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::AcqRel) + bytes;
        for high in [&self.used_high, &self.reserved_high] {
            high.fetch_max(used, Ordering::AcqRel);
        }
    }
}

impl Pools {
    /// An allocation ends; nothing happens where it came from no pool.
    pub(super) fn ended(&mut self, address: u64) {
        if let Some((pool, bytes)) = self.owners.remove(&address) {
            pool.used.fetch_sub(bytes, Ordering::AcqRel);
        }
    }

    /// The last context of a device ends: what pools gave out there ends too, for a pool is a device's and no context's. Gives the addresses
    /// to free. Streams that were to give some back may never come there, and find nothing to do if they do.
    pub(super) fn end_on(&mut self, device: u32) -> Vec<u64> {
        self.leaving.retain(|one| {
            let stays = one.device != device;
            if !stays {
                *lock(&one.fate) = Fate::Gone;
            }
            stays
        });
        let mut gone = Vec::new();
        self.owners.retain(|address, (pool, bytes)| {
            let stays = pool.device != device;
            if !stays {
                pool.used.fetch_sub(*bytes, Ordering::AcqRel);
                gone.push(*address);
            }
            stays
        });
        gone
    }

    fn find(&self, pool: usize) -> Result<Arc<Pool>, CUresult> {
        let found = self.pools.get(&pool).cloned();
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn default_of(&mut self, device: u32) -> usize {
        *self.defaults.entry(device).or_insert_with(|| {
            let number = fresh();
            self.pools.insert(number, Pool::new(device, 0));
            number
        })
    }

    fn current_of(&mut self, device: u32) -> usize {
        let current = self.current.get(&device).copied();
        current.unwrap_or_else(|| self.default_of(device))
    }

    /// The smallest memory that is on its way back and large enough, that of this stream first.
    fn take_leaving(&mut self, pool: &Pool, bytes: u64, queue: &Arc<Queue>) -> Option<Leaving> {
        let others = lock(&pool.settings).internal_dependencies;
        let fits = |one: &Leaving| {
            let own = one.place.is_of(queue);
            one.device == pool.device && one.bytes >= bytes && (own || others)
        };
        let all = self.leaving.iter().enumerate().filter(|(_, one)| fits(one));
        let best = all.min_by_key(|(_, one)| (!one.place.is_of(queue), one.bytes));
        let (index, _) = best?;
        Some(self.leaving.swap_remove(index))
    }
}

/// A stream has come to where memory is given back.
fn leave(arena: &Arena, pools: &Mutex<Pools>, address: u64, fate: &Mutex<Fate>) -> CUresult {
    let mut pools = lock(pools);
    let mut fate = lock(fate);
    match *fate {
        Fate::Gone => CUDA_SUCCESS,
        Fate::Free => {
            *fate = Fate::Gone;
            pools.leaving.retain(|one| one.address != address);
            pools.ended(address);
            match arena.free(address, Purpose::Device) {
                Some(_) => CUDA_SUCCESS,
                None => CUDA_ERROR_ILLEGAL_ADDRESS,
            }
        }
        Fate::Taken(bytes) => {
            arena.cut(address, bytes);
            CUDA_SUCCESS
        }
    }
}

impl SoftCuda {
    /// Allocates from a pool, NULL for the current one of the stream's device.
    pub(super) fn allocate_from(
        &self,
        pool: usize,
        bytes: usize,
        stream: CUstream,
    ) -> Result<CUdeviceptr, CUresult> {
        let queue = self.queue(stream)?;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = bytes as u64;
        let mut pools = lock(&self.pools);
        let pool = match pool {
            0 => pools.current_of(queue.context().device as u32),
            pool => pool,
        };
        let pool = pools.find(pool)?;
        let used = pool.used.load(Ordering::Acquire);
        if pool.most != 0 && used.saturating_add(bytes) > pool.most {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let found = match bytes <= self.free_bytes(pool.device) {
            true => self.arena.allocate(bytes, pool.device, Purpose::Device),
            false => None,
        };
        let address = match found {
            Some(address) => address,
            None => {
                let left = pools.take_leaving(&pool, bytes, &queue);
                let left = left.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
                *lock(&left.fate) = Fate::Taken(bytes);
                pools.ended(left.address);
                if !left.place.is_of(&queue) {
                    // However many commands the stream has: what it waits for may need the pools.
                    let nothing = Box::new(|| CUDA_SUCCESS);
                    self.streams.follow(&queue, vec![left.place], nothing);
                }
                left.address
            }
        };
        pool.count(bytes);
        pools.owners.insert(address, (pool, bytes));
        Ok(address)
    }

    /// Gives memory back when the stream comes to it.
    pub(super) fn free_later(
        &self,
        queue: &Arc<Queue>,
        address: CUdeviceptr,
    ) -> Result<(), CUresult> {
        let arena = Arc::clone(&self.arena);
        // The launch that allocates it may not have run yet.
        if arena.is_kept(address, Purpose::Graph) {
            let work = move || match arena.rest(address, Purpose::Graph) {
                true => CUDA_SUCCESS,
                false => CUDA_ERROR_ILLEGAL_ADDRESS,
            };
            self.streams.push(queue, Box::new(work));
            return Ok(());
        }
        let known = arena.find(address).filter(|one| one.base == address);
        let known = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if known.purpose != Purpose::Device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let leaves = |pools: &Pools| pools.leaving.iter().any(|one| one.address == address);
        if leaves(&lock(&self.pools)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // It goes by its stream from here on, not by its context.
        self.lock().memory.remove(&address);
        let fate = Arc::new(Mutex::new(Fate::Free));
        let (pools, decided) = (Arc::clone(&self.pools), Arc::clone(&fate));
        let work = move || leave(&arena, &pools, address, &decided);
        let place = self.streams.push(queue, Box::new(work));
        let mut pools = lock(&self.pools);
        if *lock(&fate) == Fate::Free {
            pools.leaving.push(Leaving {
                device: known.device,
                address,
                bytes: known.len,
                place,
                fate,
            });
        }
        Ok(())
    }

    pub(super) fn create_pool(&self, props: &CUmemPoolProps) -> Result<usize, CUresult> {
        use super::virtual_memory::Number;
        if props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if props.handleTypes != CU_MEM_HANDLE_TYPE_NONE {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = self.located(props.location.r#type, props.location.number())?;
        let number = fresh();
        let pool = Pool::new(device, props.maxSize as u64);
        lock(&self.pools).pools.insert(number, pool);
        Ok(number)
    }

    /// What came from it stays until it is given back.
    pub(super) fn destroy_pool(&self, pool: usize) -> Result<(), CUresult> {
        let mut pools = lock(&self.pools);
        if pools.defaults.values().any(|default| *default == pool) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let ended = pools.pools.remove(&pool);
        pools.current.retain(|_, current| *current != pool);
        ended.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn pool_of(&self, device: CUdevice, current: bool) -> Result<usize, CUresult> {
        let device = self.check_device(device)?;
        let mut pools = lock(&self.pools);
        Ok(match current {
            true => pools.current_of(device),
            false => pools.default_of(device),
        })
    }

    pub(super) fn set_pool(&self, device: CUdevice, pool: usize) -> Result<(), CUresult> {
        let device = self.check_device(device)?;
        let mut pools = lock(&self.pools);
        if pools.find(pool)?.device != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pools.current.insert(device, pool);
        Ok(())
    }

    /// An attribute's value; those of 32 bits are told apart by [`is_wide`].
    pub(super) fn pool_attribute(
        &self,
        pool: usize,
        which: CUmemPool_attribute,
    ) -> Result<u64, CUresult> {
        let pool = lock(&self.pools).find(pool)?;
        let settings = *lock(&pool.settings);
        let load = |value: &AtomicU64| value.load(Ordering::Acquire);
        Ok(match which {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => settings.follow_events.into(),
            CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => settings.opportunistic.into(),
            CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                settings.internal_dependencies.into()
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => settings.release_threshold,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT | CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => {
                load(&pool.used)
            }
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => load(&pool.used_high),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => load(&pool.reserved_high),
            CU_MEMPOOL_ATTR_ALLOCATION_TYPE => CU_MEM_ALLOCATION_TYPE_PINNED.into(),
            CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => CU_MEM_HANDLE_TYPE_NONE.into(),
            CU_MEMPOOL_ATTR_LOCATION_ID => pool.device.into(),
            CU_MEMPOOL_ATTR_LOCATION_TYPE => CU_MEM_LOCATION_TYPE_DEVICE.into(),
            CU_MEMPOOL_ATTR_MAX_POOL_SIZE => pool.most,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    pub(super) fn set_pool_attribute(
        &self,
        pool: usize,
        which: CUmemPool_attribute,
        value: u64,
    ) -> Result<(), CUresult> {
        let pool = lock(&self.pools).find(pool)?;
        let mut settings = lock(&pool.settings);
        let high = match which {
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => Some(&pool.used_high),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => Some(&pool.reserved_high),
            _ => None,
        };
        match (which, high) {
            // A mark can only be begun anew.
            (_, Some(_)) if value != 0 => return Err(CUDA_ERROR_INVALID_VALUE),
            (_, Some(high)) => high.store(pool.used.load(Ordering::Acquire), Ordering::Release),
            (CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, _) => {
                settings.follow_events = value != 0;
            }
            (CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, _) => settings.opportunistic = value != 0,
            (CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, _) => {
                settings.internal_dependencies = value != 0;
            }
            (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, _) => settings.release_threshold = value,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    /// All devices are in one address space: what is granted is told again, and nothing else.
    pub(super) fn set_pool_access(
        &self,
        pool: usize,
        wanted: &[CUmemAccessDesc],
    ) -> Result<(), CUresult> {
        use super::virtual_memory::Number;
        let pool = lock(&self.pools).find(pool)?;
        for one in wanted {
            let device = self.located(one.location.r#type, one.location.number())?;
            let none = one.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
            if device == pool.device && none
                || !none && one.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            lock(&pool.access).insert(device, one.flags);
        }
        Ok(())
    }

    pub(super) fn pool_access(
        &self,
        pool: usize,
        device: u32,
    ) -> Result<CUmemAccess_flags, CUresult> {
        let pool = lock(&self.pools).find(pool)?;
        let known = lock(&pool.access).get(&device).copied();
        Ok(known.unwrap_or(match device == pool.device {
            true => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            false => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        }))
    }
}

/// Whether an attribute has 64 bits, not 32.
pub(super) fn is_wide(which: CUmemPool_attribute) -> bool {
    matches!(
        which,
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            | CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
            | CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
            | CU_MEMPOOL_ATTR_USED_MEM_CURRENT
            | CU_MEMPOOL_ATTR_USED_MEM_HIGH
            | CU_MEMPOOL_ATTR_MAX_POOL_SIZE
    )
}

/// The methods of the contract: an `impl` cannot be in two files.
macro_rules! pool_calls {
    () => {
        unsafe fn cuMemAllocAsync(
            &self,
            address: *mut CUdeviceptr,
            size: usize,
            stream: CUstream,
        ) -> CUresult {
            answer(address, self.allocate_from(0, size, stream))
        }
        unsafe fn cuMemAllocFromPoolAsync(
            &self,
            address: *mut CUdeviceptr,
            size: usize,
            pool: CUmemoryPool,
            stream: CUstream,
        ) -> CUresult {
            if pool.is_null() {
                return CUDA_ERROR_INVALID_VALUE;
            }
            answer(address, self.allocate_from(pool.addr(), size, stream))
        }
        unsafe fn cuMemFreeAsync(&self, address: CUdeviceptr, stream: CUstream) -> CUresult {
            let queue = self.queue(stream);
            status(queue.and_then(|queue| self.free_later(&queue, address)))
        }
        unsafe fn cuMemPoolCreate(
            &self,
            pool: *mut CUmemoryPool,
            props: *const CUmemPoolProps,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let Some(props) = (unsafe { props.as_ref() }) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            answer(pool, self.create_pool(props).map(handle))
        }
        unsafe fn cuMemPoolDestroy(&self, pool: CUmemoryPool) -> CUresult {
            status(self.destroy_pool(pool.addr()))
        }
        unsafe fn cuMemPoolTrimTo(&self, pool: CUmemoryPool, _keep: usize) -> CUresult {
            // Nothing is kept that nobody uses.
            let wanted = CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
            status(self.pool_attribute(pool.addr(), wanted).map(drop))
        }
        unsafe fn cuMemPoolSetAttribute(
            &self,
            pool: CUmemoryPool,
            which: CUmemPool_attribute,
            value: *mut c_void,
        ) -> CUresult {
            let value = match pools::is_wide(which) {
                // SAFETY: the contract of the call: a value of the attribute's width.
                true => unsafe { value.cast::<u64>().read() },
                // SAFETY: as above.
                false => unsafe { value.cast::<u32>().read() }.into(),
            };
            status(self.set_pool_attribute(pool.addr(), which, value))
        }
        unsafe fn cuMemPoolGetAttribute(
            &self,
            pool: CUmemoryPool,
            which: CUmemPool_attribute,
            place: *mut c_void,
        ) -> CUresult {
            let value = self.pool_attribute(pool.addr(), which);
            match pools::is_wide(which) {
                true => answer(place.cast::<u64>(), value),
                false => answer(place.cast::<u32>(), value.map(|value| value as u32)),
            }
        }
        unsafe fn cuMemPoolSetAccess(
            &self,
            pool: CUmemoryPool,
            access: *const CUmemAccessDesc,
            count: usize,
        ) -> CUresult {
            if access.is_null() {
                return CUDA_ERROR_INVALID_VALUE;
            }
            // SAFETY: the contract of the call: as many as it says.
            let access = unsafe { std::slice::from_raw_parts(access, count) };
            status(self.set_pool_access(pool.addr(), access))
        }
        unsafe fn cuMemPoolGetAccess(
            &self,
            flags: *mut CUmemAccess_flags,
            pool: CUmemoryPool,
            location: *mut CUmemLocation,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let Some(location) = (unsafe { location.as_ref() }) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            let device = self.located(location.r#type, location.number());
            answer(
                flags,
                device.and_then(|device| self.pool_access(pool.addr(), device)),
            )
        }
        unsafe fn cuDeviceGetDefaultMemPool(
            &self,
            pool: *mut CUmemoryPool,
            dev: CUdevice,
        ) -> CUresult {
            answer(pool, self.pool_of(dev, false).map(handle))
        }
        unsafe fn cuDeviceGetMemPool(&self, pool: *mut CUmemoryPool, dev: CUdevice) -> CUresult {
            answer(pool, self.pool_of(dev, true).map(handle))
        }
        unsafe fn cuDeviceSetMemPool(&self, dev: CUdevice, pool: CUmemoryPool) -> CUresult {
            status(self.set_pool(dev, pool.addr()))
        }
    };
}
pub(super) use pool_calls;
