//! Device memory that the driver places.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::ProtocolError;

use crate::cuda::context::Context;
use crate::cuda::placed;
use crate::cuda::session::Session;
use crate::cuda::shared::{Freed, Held, Shared, lock};
use crate::cuda::streams::{Places, Target};
use crate::link::{Charge, Raw};

/// Drivers place memory at multiples of this.
const GRANULARITY: u64 = 512;
/// So many frees of pools wait to be credited before somebody looks.
const MANY_FREES: usize = 64;

impl Shared {
    /// Allocates what the session may have: `allocate` runs when `bytes` are charged, and they are credited when it fails. Where there is not
    /// enough for all, sessions whose clients are cut off give way, and it runs again.
    pub(crate) fn within_limit(&self, bytes: u64, allocate: impl FnMut() -> CUresult) -> CUresult {
        self.measure(bytes, None);
        self.charge_and(bytes, allocate)
    }

    /// Charges memory that is about to be allocated, if the session may have it.
    pub(super) fn charged(&self, bytes: u64) -> Option<Charge> {
        self.measure(bytes, None);
        self.settle_frees();
        Charge::new(&self.counters, bytes)
    }

    fn charge_and(&self, bytes: u64, mut allocate: impl FnMut() -> CUresult) -> CUresult {
        loop {
            let is_charged =
                self.counters.charge(bytes) || (self.settle_frees() && self.counters.charge(bytes));
            let status = match is_charged {
                true => allocate(),
                false => CUDA_ERROR_OUT_OF_MEMORY,
            };
            if status == CUDA_SUCCESS {
                return status;
            }
            if is_charged {
                self.counters.credit(bytes);
            }
            let lacking = match is_charged {
                true if status == CUDA_ERROR_OUT_OF_MEMORY => self.lacking(bytes),
                true => None,
                false => self.counters.is_within_own_limit(bytes).then_some(1),
            };
            let make_room = |lacking| {
                let make = || self.broker.make_room(lacking, !is_charged);
                self.counters.swap.outside(make)
            };
            if !lacking.is_some_and(make_room) {
                return status;
            }
        }
    }

    /// As many bytes as are not free on the current device, if it is so large.
    fn lacking(&self, bytes: u64) -> Option<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two places for sizes.
        let told = unsafe { self.api.cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        let fits = told == CUDA_SUCCESS && bytes <= total as u64;
        fits.then(|| bytes.saturating_sub(free as u64).max(1))
    }

    /// Learns how much the driver holds for the session beside what is charged: for graphs, and in pools. Where `bytes` more would
    /// exceed the limit, the driver is to give back first what is not in use. What a pool keeps `serves` its own allocations.
    pub(crate) fn measure(&self, bytes: u64, serves: Option<Raw>) {
        let counters = &self.counters;
        if !counters.has_limit_of_its_own() {
            return;
        }
        let limit = counters.memory_limit();
        let mut unlisted = self.unlisted(serves);
        let held = counters.device_memory_bytes.load(Ordering::Relaxed);
        let over = |unlisted: u64| held.saturating_add(bytes).saturating_add(unlisted) > limit;
        if unlisted > 0 && over(unlisted) {
            let pools = lock(&self.pools_used);
            for pool in pools.iter().filter(|pool| Some(**pool) != serves) {
                // SAFETY: the pool is live: its end takes it out of the list.
                unsafe { self.api.cuMemPoolTrimTo(pool.0.cast(), 0) };
            }
            drop(pools);
            for device in lock(&self.graph_devices).iter() {
                // SAFETY: no pointers.
                unsafe { self.api.cuDeviceGraphMemTrim(*device) };
            }
            unlisted = self.unlisted(serves);
        }
        let contexts = counters.context_bytes.load(Ordering::Relaxed);
        let unlisted = unlisted.saturating_add(contexts);
        counters.unlisted_bytes.store(unlisted, Ordering::Relaxed);
    }

    /// Whether the session holds more device memory than it may have.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.measure(0, None);
        let counters = &self.counters;
        let held = counters.device_memory_bytes.load(Ordering::Relaxed);
        let unlisted = counters.unlisted_bytes.load(Ordering::Relaxed);
        held.saturating_add(unlisted) > counters.memory_limit()
    }

    fn unlisted(&self, serves: Option<Raw>) -> u64 {
        let graphs = lock(&self.graph_devices);
        let graphs = graphs.iter().map(|device| {
            let mut bytes = 0_u64;
            let attribute = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
            let place = (&raw mut bytes).cast();
            // SAFETY: room for 64 bits, which this attribute has.
            unsafe {
                self.api
                    .cuDeviceGetGraphMemAttribute(*device, attribute, place)
            };
            bytes
        });
        let graphs: u64 = graphs.sum();
        let pools = lock(&self.pools_used);
        let others = pools.iter().filter(|pool| Some(**pool) != serves);
        let pools = others.map(|pool| {
            let ask = |attribute| {
                let mut bytes = 0_u64;
                let place = (&raw mut bytes).cast();
                // SAFETY: the pool is live; room for 64 bits, which these attributes have.
                unsafe {
                    self.api
                        .cuMemPoolGetAttribute(pool.0.cast(), attribute, place)
                };
                bytes
            };
            ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
                .saturating_sub(ask(CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
        });
        let kept: u64 = pools.sum();
        // The driver counts memory that a pool is to get back as kept (seen with driver 580), and it is charged still.
        let freed = match serves {
            None => lock(&self.frees).iter().map(|freed| freed.charged).sum(),
            Some(_) => 0,
        };
        graphs + kept.saturating_sub(freed)
    }

    /// A pool is allocated from, the current one of a device or another; the driver's for it.
    fn uses_pool(&self, pool: CUmemoryPool, device: CUdevice) -> Raw {
        let mut used = pool;
        if pool.is_null() {
            // SAFETY: one place for the pool.
            unsafe { self.api.cuDeviceGetMemPool(&raw mut used, device) };
        }
        let mut known = lock(&self.pools_used);
        let used = Raw(used.cast());
        if !used.0.is_null() && !known.contains(&used) {
            known.push(used);
        }
        used
    }

    /// Allocates from a pool, in the order of a stream whose context is current.
    fn allocate_from_pool(
        &self,
        target: &Target,
        pool: Raw,
        bytes: u64,
    ) -> Result<CUdeviceptr, CUresult> {
        let mut address: CUdeviceptr = 0;
        let (place, size, charged) = (&raw mut address, bytes as usize, charge_of(bytes));
        let native: CUmemoryPool = pool.0.cast();
        if self.counters.has_limit_of_its_own() {
            let used = self.uses_pool(native, target.context.device);
            self.measure(charged, Some(used));
        }
        let status = self.charge_and(charged, || {
            if native.is_null() {
                // SAFETY: one place for the address, the stream is live.
                unsafe { self.api.cuMemAllocAsync(place, size, target.stream()) }
            } else {
                let stream = target.stream();
                // SAFETY: as above; the pool is live.
                unsafe {
                    self.api
                        .cuMemAllocFromPoolAsync(place, size, native, stream)
                }
            }
        });
        if status != CUDA_SUCCESS {
            return Err(status);
        }
        let held = Held {
            bytes,
            charged,
            context: 0,
        };
        self.memory_came(address, held);
        Ok(address)
    }

    /// Gives memory back to its pool in the order of a stream, whose context is current.
    fn free_to_pool(&self, target: &Target, address: u64) -> CUresult {
        let (status, charged) = self.take_and_free(address, || {
            // SAFETY: the driver judges the address; the stream is live.
            unsafe { self.api.cuMemFreeAsync(address, target.stream()) }
        });
        self.enqueued(target);
        if status != CUDA_SUCCESS {
            return status;
        }
        self.freed_to_pool(target.key);
        // The pool has it when the stream has come so far. Where there is no limit nobody asks.
        let event = match charged > 0 && self.counters.is_memory_limited() {
            true => self.mark(target).ok(),
            false => None,
        };
        let Some(event) = event else {
            self.counters.credit(charged);
            return status;
        };
        let mut frees = lock(&self.frees);
        frees.push(Freed {
            context: Arc::clone(&target.context),
            event,
            charged,
        });
        let is_long = frees.len() >= MANY_FREES && frees.len().is_power_of_two();
        drop(frees);
        if is_long {
            self.settle_frees();
        }
        status
    }

    /// Credits what pools have got back by now; whether that is anything.
    pub(crate) fn settle_frees(&self) -> bool {
        let mut frees = lock(&self.frees);
        let has_passed = |freed: &mut Freed| {
            // SAFETY: the event is ours, and stays so while the list has it.
            let status = unsafe { self.api.cuEventQuery(freed.event.0.cast()) };
            status != CUDA_ERROR_NOT_READY
        };
        let passed: Vec<Freed> = frees.extract_if(.., has_passed).collect();
        drop(frees);
        let is_any = !passed.is_empty();
        passed
            .into_iter()
            .for_each(|freed| self.credit_freed(freed));
        is_any
    }

    /// Waits until a pool has got back what was given to it first; whether there was any.
    fn await_free(&self) -> bool {
        let mut frees = lock(&self.frees);
        if frees.is_empty() {
            return false;
        }
        let freed = frees.remove(0);
        drop(frees);
        // SAFETY: the event is ours.
        unsafe { self.api.cuEventSynchronize(freed.event.0.cast()) };
        self.credit_freed(freed);
        true
    }

    fn credit_freed(&self, freed: Freed) {
        freed.context.give_event(freed.event);
        self.counters.credit(freed.charged);
    }

    fn reply_allocated(&self, number: u64, made: Result<CUdeviceptr, CUresult>) {
        let status = made.err().unwrap_or(CUDA_SUCCESS);
        let reply = wire::PoolAllocReply {
            address: Some(made.unwrap_or(0)),
        };
        self.reply(number, status, &reply);
    }

    /// Notes memory that was allocated.
    pub(super) fn memory_came(&self, address: u64, held: Held) {
        lock(&self.memory).insert(address, held);
    }

    /// Frees memory that the driver has placed, or another server's has.
    fn free(&self, address: u64) -> CUresult {
        let is_placed = lock(&self.placed).has(address);
        if !is_placed {
            // SAFETY: the driver judges the address; the client may free its own memory whenever it likes.
            return unsafe { self.api.cuMemFree_v2(address) };
        }
        // As the driver does of itself before it takes memory back.
        // SAFETY: no pointers.
        let status = unsafe { self.api.cuCtxSynchronize() };
        let went = lock(&self.placed).free(&*self.api, address);
        self.counters.credit(went);
        status
    }

    /// Frees memory of the list with `free`. It leaves the list first: another allocation may get the address as soon as the driver has it.
    fn take_and_free(&self, address: u64, free: impl FnOnce() -> CUresult) -> (CUresult, u64) {
        let taken = lock(&self.memory).remove(&address);
        let status = free();
        match taken {
            Some(held) if status == CUDA_SUCCESS => (status, held.charged),
            Some(held) => {
                lock(&self.memory).entry(address).or_insert(held);
                (status, 0)
            }
            None => (status, 0),
        }
    }

    /// As [`Self::free`], of memory that is in the list.
    fn free_listed(&self, address: u64) -> CUresult {
        let (status, charged) = self.take_and_free(address, || self.free(address));
        self.counters.credit(charged);
        status
    }

    /// Frees the memory of a context that is about to end.
    pub(crate) fn free_memory_of(&self, context: &Context) {
        let taken = self.take_memory_of(context.id);
        let entered = !taken.is_empty() && context.enter(&*self.api) == CUDA_SUCCESS;
        for (address, held) in taken {
            if entered {
                self.free(address);
            }
            self.counters.credit(held.charged);
        }
    }

    fn take_memory_of(&self, context: u64) -> Vec<(u64, Held)> {
        let mut memory = lock(&self.memory);
        memory
            .extract_if(|_, held| held.context == context)
            .collect()
    }
}

/// Bytes that an allocation is charged with.
fn charge_of(size: u64) -> u64 {
    size.checked_next_multiple_of(GRANULARITY)
        .unwrap_or(u64::MAX)
}

impl Session {
    pub(crate) fn MemoryPlace(
        &mut self,
        number: u64,
        request: wire::MemoryPlace<'_>,
    ) -> Result<(), ProtocolError> {
        let words: Vec<u64> = request.allocations.iter().collect();
        let (allocations, rest) = words.as_chunks::<2>();
        let span = (request.span, request.span_size);
        let taken = placed::bytes_of(allocations, span);
        let is_known = {
            let memory = lock(&self.shared.memory);
            allocations
                .iter()
                .any(|[start, _]| memory.contains_key(start))
        };
        let status = match (self.device(request.device), &self.acting, taken) {
            (Err(status), _, _) => status,
            (_, None, _) => CUDA_ERROR_INVALID_CONTEXT,
            (_, _, None) => CUDA_ERROR_INVALID_VALUE,
            _ if !rest.is_empty() || is_known => CUDA_ERROR_INVALID_VALUE,
            (Ok(device), Some(_), Some(taken)) => {
                let peers = self.reached_from(device);
                self.shared.within_limit(taken, || {
                    let mut placed = lock(&self.shared.placed);
                    let done = placed.place(&*self.api, device, &peers, span, allocations);
                    done.err().unwrap_or(CUDA_SUCCESS)
                })
            }
        };
        if status == CUDA_SUCCESS {
            let context = self.acting.as_ref().map_or(0, |context| context.id);
            for [start, size] in allocations {
                let held = Held {
                    bytes: *size,
                    // The memory behind it is charged as a whole.
                    charged: 0,
                    context,
                };
                self.shared.memory_came(*start, held);
            }
        }
        self.reply(number, status, &wire::MemoryPlaceReply {});
        Ok(())
    }

    /// The session's other devices that reach a device's memory.
    fn reached_from(&self, device: CUdevice) -> Vec<CUdevice> {
        let reaches = |other: &CUdevice| {
            let mut reaches = 0;
            // SAFETY: one place for the answer.
            let status = unsafe {
                self.api
                    .cuDeviceCanAccessPeer(&raw mut reaches, *other, device)
            };
            *other != device && status == CUDA_SUCCESS && reaches != 0
        };
        self.devices.iter().copied().filter(reaches).collect()
    }

    /// Frees such memory once the device has come so far. What comes behind on the stream cannot use it.
    fn free_placed(&mut self, number: u64, call: u16, target: Target, address: u64) {
        let places = self.shared.streams.all(None);
        self.shared.start(move |shared| {
            shared.streams.wait(&places);
            let status = match target.context.enter(&*shared.api) {
                CUDA_SUCCESS => shared.free_listed(address),
                status => status,
            };
            shared.settle(number, call, target.id, status);
            shared.flush();
        });
    }

    pub(crate) fn MemoryAlloc(
        &mut self,
        number: u64,
        request: wire::MemoryAlloc,
    ) -> Result<(), ProtocolError> {
        let mut address: CUdeviceptr = 0;
        let (place, size) = (&raw mut address, request.size as usize);
        let swaps = self.shared.counters.swap.is_on();
        let swappable = swaps && request.managed_flags == 0 && request.size >= placed::PIECE;
        let charged = match swappable {
            true => placed::whole_pieces(request.size).unwrap_or(u64::MAX),
            false => charge_of(request.size),
        };
        let status = if self.acting.is_none() {
            CUDA_ERROR_INVALID_CONTEXT
        } else {
            let device = self.acting.as_ref().map_or(0, |context| context.device);
            let peers = if swappable {
                self.reached_from(device)
            } else {
                Vec::new()
            };
            self.shared.within_limit(charged, || {
                if swappable {
                    let mut placed = lock(&self.shared.placed);
                    match placed.allocate(&*self.api, device, &peers, request.size) {
                        Ok(start) => address = start,
                        Err(status) => return status,
                    }
                    CUDA_SUCCESS
                } else if request.managed_flags == 0 {
                    // SAFETY: one place for the address.
                    unsafe { self.api.cuMemAlloc_v2(place, size) }
                } else {
                    // SAFETY: as above.
                    unsafe {
                        self.api
                            .cuMemAllocManaged(place, size, request.managed_flags)
                    }
                }
            })
        };
        if status == CUDA_SUCCESS {
            let held = Held {
                bytes: request.size,
                // Memory of its own is charged as a whole.
                charged: if swappable { 0 } else { charged },
                context: self.acting.as_ref().map_or(0, |context| context.id),
            };
            self.shared.memory_came(address, held);
        }
        let reply = wire::MemoryAllocReply {
            address: Some(address),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn cuMemGetInfo_v2(
        &mut self,
        number: u64,
        _request: wire::MemGetInfoV2,
    ) -> Result<(), ProtocolError> {
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: two places for the answers.
        let status = unsafe { self.api.cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        self.shared.measure(0, None);
        self.shared.settle_frees();
        let counters = &self.shared.counters;
        let limit = counters.memory_limit();
        let left = counters.memory_left();
        let most = (total as u64).min(limit);
        let free = match counters.swap.is_on() {
            // Memory of others is free, once they give way.
            true => {
                let device = self.acting.as_ref().map_or(0, |context| context.device);
                let own = lock(&self.shared.placed).bytes_on(device);
                most.saturating_sub(own).max(free as u64)
            }
            false => free as u64,
        };
        let reply = wire::MemGetInfoV2Reply {
            free: Some(free.min(left)),
            total: Some(most),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn MemoryFree(
        &mut self,
        number: u64,
        request: wire::MemoryFree,
    ) -> Result<(), ProtocolError> {
        self.shared.withdraw_memory(request.address);
        let places = self.shared.streams.all(None);
        let context = self.acting.clone();
        self.wait(move |shared| {
            shared.streams.wait(&places);
            let status = match context.map(|context| context.enter(&*shared.api)) {
                Some(CUDA_SUCCESS) => shared.free_listed(request.address),
                Some(status) => status,
                None => CUDA_ERROR_INVALID_CONTEXT,
            };
            shared.reply(number, status, &wire::MemoryFreeReply {});
        });
        Ok(())
    }

    pub(crate) fn cuDeviceGetGraphMemAttribute(
        &mut self,
        number: u64,
        request: wire::DeviceGetGraphMemAttribute,
    ) -> Result<(), ProtocolError> {
        let mut value = 0_u64;
        let place = (&raw mut value).cast();
        let status = match self.device(request.device) {
            Err(status) => status,
            // SAFETY: room for 64 bits, which every attribute of this kind has.
            Ok(device) => unsafe {
                self.api
                    .cuDeviceGetGraphMemAttribute(device, request.attr, place)
            },
        };
        let reply = wire::DeviceGetGraphMemAttributeReply {
            value: Some(&value.to_le_bytes()),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn cuDeviceSetGraphMemAttribute(
        &mut self,
        number: u64,
        request: wire::DeviceSetGraphMemAttribute<'_>,
    ) -> Result<(), ProtocolError> {
        let mut value = [0; 8];
        for (to, from) in value.iter_mut().zip(request.value) {
            *to = *from;
        }
        let mut value = u64::from_le_bytes(value);
        let place = (&raw mut value).cast();
        let status = match self.device(request.device) {
            Err(status) => status,
            // SAFETY: 64 bits, which every attribute of this kind has.
            Ok(device) => unsafe {
                self.api
                    .cuDeviceSetGraphMemAttribute(device, request.attr, place)
            },
        };
        self.reply(number, status, &wire::DeviceSetGraphMemAttributeReply {});
        Ok(())
    }

    pub(crate) fn cuDeviceGraphMemTrim(
        &mut self,
        number: u64,
        request: wire::DeviceGraphMemTrim,
    ) -> Result<(), ProtocolError> {
        let call = <wire::DeviceGraphMemTrim as Request<'_>>::ID;
        let status = match self.device(request.device) {
            Err(status) => status,
            // SAFETY: no pointers.
            Ok(device) => unsafe { self.api.cuDeviceGraphMemTrim(device) },
        };
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn cuDeviceSetMemPool(
        &mut self,
        number: u64,
        request: wire::DeviceSetMemPool,
    ) -> Result<(), ProtocolError> {
        let call = <wire::DeviceSetMemPool as Request<'_>>::ID;
        let pool = self.native(request.pool.0, wire::MemoryPoolHandle::TAG)?;
        let status = match (self.device(request.dev), pool) {
            (Err(status), _) | (_, Err(status)) => status,
            // SAFETY: the pool is live.
            (Ok(device), Ok(pool)) => unsafe { self.api.cuDeviceSetMemPool(device, pool.cast()) },
        };
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn PoolAlloc(
        &mut self,
        number: u64,
        request: wire::PoolAlloc,
    ) -> Result<(), ProtocolError> {
        let target = self.target(request.stream)?;
        let pool = self.native(request.pool.0, wire::MemoryPoolHandle::TAG)?;
        let (target, pool) = match (target, pool) {
            (Ok(target), Ok(pool)) => (target, Raw(pool)),
            (Err(status), _) | (_, Err(status)) => {
                self.shared.reply_allocated(number, Err(status));
                return Ok(());
            }
        };
        let bytes = request.size;
        let allocate = move |shared: &Shared, target: &Target| {
            let entered = target.context.enter(&*shared.api);
            match entered {
                CUDA_SUCCESS => shared.allocate_from_pool(target, pool, bytes),
                status => Err(status),
            }
        };
        // Ahead of what is parked at the stream: nothing before this request can use the memory.
        let made = allocate(&self.shared, &target);
        if made != Err(CUDA_ERROR_OUT_OF_MEMORY) || lock(&self.shared.frees).is_empty() {
            self.shared.reply_allocated(number, made);
            return Ok(());
        }
        // There may be enough when pools have got back what was freed before.
        let call = <wire::PoolAlloc as Request<'_>>::ID;
        let wait = move |shared: &Arc<Shared>, target: &Target| {
            let mut made = made;
            while made == Err(CUDA_ERROR_OUT_OF_MEMORY) && shared.await_free() {
                made = allocate(shared, target);
            }
            shared.reply_allocated(number, made);
            CUDA_SUCCESS
        };
        self.park(number, call, &target, Places::new(), wait);
        Ok(())
    }

    pub(crate) fn PoolFree(
        &mut self,
        number: u64,
        request: wire::PoolFree,
    ) -> Result<(), ProtocolError> {
        let call = <wire::PoolFree as Request<'_>>::ID;
        let address = request.address;
        self.shared.withdraw_memory(address);
        match self.target(request.stream)? {
            Err(status) => self.shared.settle(number, call, request.stream.0, status),
            Ok(target) if lock(&self.shared.placed).has(address) => {
                self.free_placed(number, call, target, address);
            }
            Ok(target) => {
                self.issue(
                    number,
                    call,
                    &target,
                    Places::new(),
                    move |shared, target| shared.free_to_pool(target, address),
                );
            }
        }
        Ok(())
    }
}
