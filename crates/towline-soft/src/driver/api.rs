//! The contract's face: pointers to values and back. All that is unsafe about the driver is here.
#![allow(unsafe_code, reason = "the contract is the C interface")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::Arc;

use towline_backend::cuda::arrays::without_contexts;
use towline_backend::cuda::*;
use towline_ptx::fatbin::{WRAPPER_BYTES, Wrapper};
use towline_ptx::image::{Extent, Kind, extent, kind};

use super::copy::{Rows, read_into};
use super::graphs::graph_memory_calls;
use super::launch::{self, Shape};
use super::link::{self, Logs, link_calls};
use super::modules::Function;
use super::operations::{Operations, operation_calls};
use super::pools::{self, pool_calls};
use super::streams::{Event, Queue};
use super::textures::{Resource, texture_calls};
use super::virtual_memory::{Number, virtual_memory_calls};
use super::{CURRENT, SoftCuda, fresh};

/// The level of errors in the driver's log.
const LOG_ERROR: CUlogLevel = 0;
/// Most launch attributes that are looked at.
const ATTRIBUTE_LIMIT: u32 = 64;

fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the contract of every call here: places for answers are writable.
        unsafe { place.write(value) };
    }
}

fn status(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(CUDA_SUCCESS)
}

/// Answers with a value at a place.
fn answer<T>(place: *mut T, result: Result<T, CUresult>) -> CUresult {
    status(result.map(|value| put(place, value)))
}

fn handle<T>(number: usize) -> *mut T {
    std::ptr::without_provenance_mut(number)
}

/// A name that ends with a NUL.
fn name_of<'a>(name: *const c_char) -> Result<&'a str, CUresult> {
    if name.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the contract of the call: the name ends with a NUL, and is there during it.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| CUDA_ERROR_NOT_FOUND)
}

/// So many bytes of the caller's.
fn bytes_of<'a>(from: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the contract of the call that gave the pointer: so many bytes are readable during it.
    unsafe { std::slice::from_raw_parts(from, len) }
}

/// An image, whose length only its contents tell. A wrapper stands for the container it points to.
fn image_of<'a>(image: *const c_void) -> Result<&'a [u8], CUresult> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut start = image.cast::<u8>();
    let mut seen = 0;
    loop {
        let bytes = bytes_of(start, seen);
        if kind(bytes) == Some(Kind::Ptx) {
            // SAFETY: the contract of the call: what is nothing else is text that ends with a NUL.
            return Ok(unsafe { CStr::from_ptr(start.cast()) }.to_bytes());
        }
        match extent(bytes) {
            Err(_) => return Err(CUDA_ERROR_INVALID_IMAGE),
            Ok(Extent::Unknown(wanted)) => seen = wanted as usize,
            Ok(Extent::Known(Kind::Wrapper, _)) => {
                let wrapper = bytes_of(start, WRAPPER_BYTES).first_chunk::<WRAPPER_BYTES>();
                let wrapper = wrapper.and_then(|bytes| Wrapper::decode(bytes).ok());
                let wrapper = wrapper.ok_or(CUDA_ERROR_INVALID_IMAGE)?;
                start = std::ptr::with_exposed_provenance(wrapper.container as usize);
                if start.is_null() || seen == 0 {
                    return Err(CUDA_ERROR_INVALID_IMAGE);
                }
                seen = 0;
            }
            Ok(Extent::Known(_, len)) => return Ok(bytes_of(start, len as usize)),
        }
    }
}

/// What a description of a resource says.
fn resource_of(told: &CUDA_RESOURCE_DESC) -> Result<Resource, CUresult> {
    if told.flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(match told.resType {
        // SAFETY: in this and the others the kind says which field it is.
        CU_RESOURCE_TYPE_ARRAY => Resource::Array(unsafe { told.res.array }.hArray),
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            // SAFETY: as above.
            Resource::Mipmap(unsafe { told.res.mipmap }.hMipmappedArray)
        }
        // SAFETY: as above.
        CU_RESOURCE_TYPE_LINEAR => Resource::Linear(unsafe { told.res.linear }),
        // SAFETY: as above.
        CU_RESOURCE_TYPE_PITCH2D => Resource::Rows(unsafe { told.res.pitch2D }),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// Memory of the host's that a command writes to.
#[derive(Clone, Copy)]
struct Place(*mut u8);

// SAFETY: the contract of the copy: the memory is writable until the command is done, from whatever thread carries it out.
unsafe impl Send for Place {}

impl SoftCuda {
    fn list<T>(&self, module: usize, place: *mut *mut T, room: u32) -> Result<(), CUresult> {
        let module = self.module(module)?;
        for (index, function) in module.functions.iter().take(room as usize).enumerate() {
            // SAFETY: the contract of the call: room for as many as it says.
            unsafe { place.wrapping_add(index).write(handle(*function)) };
        }
        Ok(())
    }

    fn create_queue(&self, flags: u32) -> Result<CUstream, CUresult> {
        let context = self.context()?;
        if flags > CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let blocking = flags & CU_STREAM_NON_BLOCKING == 0;
        let queue = Queue::start(&self.streams, &context, blocking, false);
        let number = fresh();
        self.lock().queues.insert(number, queue);
        Ok(handle(number))
    }

    /// The parameter block of a launch.
    ///
    /// # Safety
    ///
    /// The contract of `cuLaunchKernel`: `params` points to an address for each parameter, or `extra` to a list that ends.
    pub(super) unsafe fn parameters(
        &self,
        function: &Function,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<Vec<u8>, CUresult> {
        let image = self.image(&function.module)?;
        let kernel = image.program.function(function.id);
        let kernel = kernel.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let mut block = vec![0_u8; kernel.parameter_bytes as usize];
        if !extra.is_null() {
            let (mut from, mut size) = (std::ptr::null::<u8>(), 0_usize);
            // A list has at most two pairs.
            for index in 0..2 {
                // SAFETY: the list has not ended.
                let key = unsafe { *extra.wrapping_add(2 * index) }.addr();
                if key == CU_LAUNCH_PARAM_END {
                    break;
                }
                // SAFETY: a value follows each key.
                let value = unsafe { *extra.wrapping_add(2 * index + 1) };
                if key == CU_LAUNCH_PARAM_BUFFER_POINTER {
                    from = value.cast();
                } else {
                    // SAFETY: the value of the size's key points to it.
                    size = unsafe { *value.cast::<usize>() };
                }
            }
            if size < block.len() || from.is_null() && !block.is_empty() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let len = block.len();
            block.copy_from_slice(bytes_of(from, len));
            return Ok(block);
        }
        for (index, parameter) in kernel.parameters.iter().enumerate() {
            let towline_ptx::ir::ParameterPlace::Memory(offset) = parameter.place else {
                continue;
            };
            if params.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            // SAFETY: an address for each parameter.
            let from = unsafe { *params.wrapping_add(index) }.cast::<u8>();
            if from.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let (offset, len) = (offset as usize, parameter.len as usize);
            if let Some(place) = block.get_mut(offset..offset + len) {
                place.copy_from_slice(bytes_of(from, len));
            }
        }
        Ok(block)
    }

    /// # Safety
    ///
    /// As for [`SoftCuda::parameters`].
    unsafe fn start(
        &self,
        function: CUfunction,
        shape: Shape,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<(), CUresult> {
        let queue = self.queue(stream)?;
        let function = self.function(function.addr())?;
        // SAFETY: the caller's.
        let parameters = unsafe { self.parameters(&function, params, extra) }?;
        if self.lock().captures.contains_key(&stream.addr()) {
            let plan = self.plan(&function, shape, queue.context(), parameters);
            let costs = plan.as_ref().err() == Some(&CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
            if costs {
                self.lock().captures.insert(stream.addr(), false);
            }
            return plan.map(|_| ());
        }
        self.launch(&function, shape, &queue, parameters)
    }

    fn fill_with(&self, to: CUdeviceptr, element: &[u8], rows: Rows, stream: CUstream) -> CUresult {
        let queue = self.queue(stream);
        status(queue.and_then(|queue| self.fill(&queue, to, element, rows)))
    }
}

fn row(width: usize) -> Rows {
    Rows {
        pitch: 0,
        width,
        height: 1,
    }
}

impl CudaApi for SoftCuda {
    unsafe fn cuInit(&self, flags: u32) -> CUresult {
        match flags {
            0 => CUDA_SUCCESS,
            _ => CUDA_ERROR_INVALID_VALUE,
        }
    }
    unsafe fn cuDriverGetVersion(&self, version: *mut i32) -> CUresult {
        put(version, 13_000);
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGetCount(&self, count: *mut i32) -> CUresult {
        put(count, self.options.devices as i32);
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGet(&self, device: *mut CUdevice, ordinal: i32) -> CUresult {
        answer(
            device,
            self.check_device(ordinal).map(|number| number as CUdevice),
        )
    }
    unsafe fn cuDeviceGetName(&self, name: *mut c_char, len: i32, dev: CUdevice) -> CUresult {
        let room = usize::try_from(len).unwrap_or(0);
        if let Err(status) = self.check_device(dev) {
            return status;
        }
        if room == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let text = self.device_name().bytes().take(room - 1).chain([0]);
        for (index, byte) in text.enumerate() {
            // SAFETY: the contract of the call: `name` has room for `len` bytes.
            unsafe { name.wrapping_add(index).write(byte as c_char) };
        }
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGetUuid_v2(&self, uuid: *mut CUuuid, dev: CUdevice) -> CUresult {
        let place = uuid.cast::<[u8; 16]>();
        answer(
            place,
            self.check_device(dev).map(|number| self.uuid(number)),
        )
    }
    unsafe fn cuDeviceTotalMem_v2(&self, bytes: *mut usize, dev: CUdevice) -> CUresult {
        let total = self.options.memory_bytes as usize;
        answer(bytes, self.check_device(dev).map(|_| total))
    }
    unsafe fn cuDeviceGetAttribute(
        &self,
        value: *mut i32,
        which: CUdevice_attribute,
        dev: CUdevice,
    ) -> CUresult {
        answer(value, self.device_attribute(dev, which))
    }
    unsafe fn cuDevicePrimaryCtxRetain(&self, context: *mut CUcontext, dev: CUdevice) -> CUresult {
        answer(context, self.retain_primary(dev).map(handle))
    }
    unsafe fn cuDevicePrimaryCtxRelease_v2(&self, dev: CUdevice) -> CUresult {
        status(self.release_primary(dev))
    }
    unsafe fn cuDevicePrimaryCtxReset_v2(&self, dev: CUdevice) -> CUresult {
        status(self.reset_primary(dev))
    }
    unsafe fn cuDevicePrimaryCtxSetFlags_v2(&self, dev: CUdevice, _flags: u32) -> CUresult {
        status(self.check_device(dev).map(|_| ()))
    }
    unsafe fn cuCtxCreate_v2(
        &self,
        context: *mut CUcontext,
        _flags: u32,
        dev: CUdevice,
    ) -> CUresult {
        answer(context, self.create_context(dev).map(handle))
    }
    unsafe fn cuCtxDestroy_v2(&self, ctx: CUcontext) -> CUresult {
        status(self.destroy_context(ctx.addr()))
    }
    unsafe fn cuCtxSetCurrent(&self, ctx: CUcontext) -> CUresult {
        CURRENT.set(ctx.addr());
        CUDA_SUCCESS
    }
    unsafe fn cuCtxGetCurrent(&self, pctx: *mut CUcontext) -> CUresult {
        let current = std::ptr::without_provenance_mut(CURRENT.get());
        // SAFETY: the contract's: one place for the context.
        unsafe { pctx.write(current) };
        CUDA_SUCCESS
    }
    unsafe fn cuThreadExchangeStreamCaptureMode(
        &self,
        _mode: *mut CUstreamCaptureMode,
    ) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuCtxGetLimit(&self, value: *mut usize, limit: CUlimit) -> CUresult {
        answer(value, self.limit(limit))
    }
    unsafe fn cuCtxSetLimit(&self, limit: CUlimit, value: usize) -> CUresult {
        status(self.set_limit(limit, value))
    }
    // Caches and banks are hints about speed.
    unsafe fn cuCtxSetCacheConfig(&self, _config: CUfunc_cache) -> CUresult {
        status(self.context().map(drop))
    }
    unsafe fn cuCtxSetSharedMemConfig(&self, _config: CUsharedconfig) -> CUresult {
        status(self.context().map(drop))
    }
    unsafe fn cuCtxResetPersistingL2Cache(&self) -> CUresult {
        status(self.context().map(drop))
    }
    unsafe fn cuCtxGetStreamPriorityRange(&self, least: *mut i32, greatest: *mut i32) -> CUresult {
        // Every stream is as urgent as the others.
        put(least, 0);
        put(greatest, 0);
        status(self.context().map(|_| ()))
    }
    unsafe fn cuCtxSynchronize(&self) -> CUresult {
        status(self.current().and_then(|context| {
            self.streams.wait_all(Some(&context));
            context.status()
        }))
    }
    unsafe fn cuMemGetInfo_v2(&self, free: *mut usize, total: *mut usize) -> CUresult {
        match self.context() {
            Err(status) => status,
            Ok(context) => {
                put(free, self.free_bytes(context.device as u32) as usize);
                put(total, self.options.memory_bytes as usize);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuMemAlloc_v2(&self, address: *mut CUdeviceptr, size: usize) -> CUresult {
        answer(address, self.allocate(size))
    }
    unsafe fn cuMemFree_v2(&self, address: CUdeviceptr) -> CUresult {
        status(self.free(address))
    }
    unsafe fn cuMemHostAlloc(&self, place: *mut *mut c_void, size: usize, _flags: u32) -> CUresult {
        let address = self.allocate_pinned(size);
        let pointer =
            address.map(|address| std::ptr::with_exposed_provenance_mut(address as usize));
        answer(place, pointer)
    }
    unsafe fn cuMemFreeHost(&self, memory: *mut c_void) -> CUresult {
        status(self.free_pinned(memory.addr() as u64))
    }
    unsafe fn cuMemHostRegister_v2(&self, p: *mut c_void, size: usize, _flags: u32) -> CUresult {
        status(self.register(p.addr() as u64, size as u64))
    }
    unsafe fn cuMemHostUnregister(&self, p: *mut c_void) -> CUresult {
        status(self.unregister(p.addr() as u64))
    }
    unsafe fn cuMemHostGetDevicePointer_v2(
        &self,
        place: *mut CUdeviceptr,
        p: *mut c_void,
        _flags: u32,
    ) -> CUresult {
        answer(place, self.device_pointer(p.addr() as u64))
    }
    unsafe fn cuMemcpyHtoDAsync_v2(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        size: usize,
        stream: CUstream,
    ) -> CUresult {
        let address = from.addr() as u64;
        status(self.queue(stream).and_then(|queue| {
            if self.is_pinned(address, size as u64) {
                return self.copy(&queue, to, address, size);
            }
            self.check_range(to, size as u64)?;
            // Other memory is read before the call returns, as the driver reads it.
            self.write(&queue, to, bytes_of(from.cast(), size).to_vec())
        }))
    }
    unsafe fn cuMemcpyDtoHAsync_v2(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> CUresult {
        let address = to.addr() as u64;
        status(self.queue(stream).and_then(|queue| {
            if self.is_pinned(address, size as u64) {
                return self.copy(&queue, address, from, size);
            }
            self.check_range(from, size as u64)?;
            let place = Place(to.cast());
            let arena = Arc::clone(&self.arena);
            let work = move || {
                let place = place;
                if size == 0 {
                    return CUDA_SUCCESS;
                }
                // SAFETY: the contract of the copy: the memory is writable until it is done, and nobody else's meanwhile.
                let to = unsafe { std::slice::from_raw_parts_mut(place.0, size) };
                read_into(&arena, from, to)
            };
            self.streams.push(&queue, Box::new(work));
            Ok(())
        }))
    }
    unsafe fn cuMemcpyDtoDAsync_v2(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> CUresult {
        let queue = self.queue(stream);
        status(queue.and_then(|queue| self.copy(&queue, to, from, size)))
    }
    unsafe fn cuMemcpyPeerAsync(
        &self,
        to: CUdeviceptr,
        _to_context: CUcontext,
        from: CUdeviceptr,
        _from_context: CUcontext,
        size: usize,
        stream: CUstream,
    ) -> CUresult {
        // All devices are in one address space.
        let queue = self.queue(stream);
        status(queue.and_then(|queue| self.copy(&queue, to, from, size)))
    }
    unsafe fn cuMemcpy3DAsync_v2(&self, copy: *const CUDA_MEMCPY3D, stream: CUstream) -> CUresult {
        if copy.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the contract of the call.
        let copy = unsafe { &*copy };
        let queue = self.queue(stream);
        status(queue.and_then(|queue| self.copy_box(&queue, self.copying(copy)?)))
    }
    unsafe fn cuMemcpy3DPeerAsync(
        &self,
        copy: *const CUDA_MEMCPY3D_PEER,
        stream: CUstream,
    ) -> CUresult {
        // SAFETY: the contract of the call.
        let Some(copy) = (unsafe { copy.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        // All devices are in one address space.
        let contexts = [copy.srcContext, copy.dstContext].map(|one| self.find_context(one.addr()));
        if contexts.iter().any(Result::is_err) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        let copy = without_contexts(copy);
        let queue = self.queue(stream);
        status(queue.and_then(|queue| self.copy_box(&queue, self.copying(&copy)?)))
    }
    unsafe fn cuDeviceCanAccessPeer(
        &self,
        can: *mut i32,
        dev: CUdevice,
        peer: CUdevice,
    ) -> CUresult {
        // All of them are in one address space.
        let known = self.check_device(dev).and_then(|_| self.check_device(peer));
        answer(can, known.map(|_| i32::from(dev != peer)))
    }
    unsafe fn cuCtxEnablePeerAccess(&self, peer: CUcontext, flags: u32) -> CUresult {
        status(self.enable_peer(peer, flags))
    }
    unsafe fn cuCtxDisablePeerAccess(&self, peer: CUcontext) -> CUresult {
        status(self.disable_peer(peer))
    }
    unsafe fn cuMemsetD8Async(
        &self,
        to: CUdeviceptr,
        value: u8,
        count: usize,
        stream: CUstream,
    ) -> CUresult {
        self.fill_with(to, &[value], row(count), stream)
    }
    unsafe fn cuMemsetD16Async(
        &self,
        to: CUdeviceptr,
        value: u16,
        count: usize,
        stream: CUstream,
    ) -> CUresult {
        self.fill_with(to, &value.to_le_bytes(), row(count), stream)
    }
    unsafe fn cuMemsetD32Async(
        &self,
        to: CUdeviceptr,
        value: u32,
        count: usize,
        stream: CUstream,
    ) -> CUresult {
        self.fill_with(to, &value.to_le_bytes(), row(count), stream)
    }
    unsafe fn cuMemsetD2D8Async(
        &self,
        to: CUdeviceptr,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> CUresult {
        let rows = Rows {
            pitch,
            width,
            height,
        };
        self.fill_with(to, &[value], rows, stream)
    }
    unsafe fn cuMemsetD2D16Async(
        &self,
        to: CUdeviceptr,
        pitch: usize,
        value: u16,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> CUresult {
        let rows = Rows {
            pitch,
            width,
            height,
        };
        self.fill_with(to, &value.to_le_bytes(), rows, stream)
    }
    unsafe fn cuMemsetD2D32Async(
        &self,
        to: CUdeviceptr,
        pitch: usize,
        value: u32,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> CUresult {
        let rows = Rows {
            pitch,
            width,
            height,
        };
        self.fill_with(to, &value.to_le_bytes(), rows, stream)
    }
    unsafe fn cuStreamCreate(&self, stream: *mut CUstream, flags: u32) -> CUresult {
        answer(stream, self.create_queue(flags))
    }
    unsafe fn cuStreamCreateWithPriority(
        &self,
        stream: *mut CUstream,
        flags: u32,
        _priority: i32,
    ) -> CUresult {
        answer(stream, self.create_queue(flags))
    }
    unsafe fn cuStreamGetFlags(&self, stream: CUstream, flags: *mut u32) -> CUresult {
        let queue = self.queue(stream);
        let set = queue.map(|queue| match queue.is_blocking() {
            true => 0,
            false => CU_STREAM_NON_BLOCKING,
        });
        answer(flags, set)
    }
    unsafe fn cuStreamSetAttribute(
        &self,
        stream: CUstream,
        _attribute: CUstreamAttrID,
        _value: *const CUlaunchAttributeValue,
    ) -> CUresult {
        // They are about speed.
        status(self.queue(stream).map(drop))
    }
    unsafe fn cuStreamDestroy_v2(&self, stream: CUstream) -> CUresult {
        let queue = self.lock().queues.remove(&stream.addr());
        let queue = queue.ok_or(CUDA_ERROR_INVALID_HANDLE);
        status(queue.map(|queue| self.streams.end(&queue)))
    }
    // Captures tell what launches would be refused; clients make graphs by themselves.
    unsafe fn cuStreamBeginCapture_v2(
        &self,
        stream: CUstream,
        _mode: CUstreamCaptureMode,
    ) -> CUresult {
        status(self.queue(stream).map(|_| {
            self.lock().captures.insert(stream.addr(), true);
        }))
    }
    unsafe fn cuStreamEndCapture(&self, stream: CUstream, graph: *mut CUgraph) -> CUresult {
        match self.lock().captures.remove(&stream.addr()) {
            None => CUDA_ERROR_ILLEGAL_STATE,
            Some(is_sound) => {
                put(graph, std::ptr::null_mut());
                match is_sound {
                    true => CUDA_SUCCESS,
                    false => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                }
            }
        }
    }
    unsafe fn cuStreamSynchronize(&self, stream: CUstream) -> CUresult {
        status(
            self.queue(stream)
                .and_then(|queue| self.streams.wait(&queue)),
        )
    }
    unsafe fn cuStreamQuery(&self, stream: CUstream) -> CUresult {
        status(
            self.queue(stream)
                .and_then(|queue| match self.streams.is_idle(&queue) {
                    true => queue.context().status(),
                    false => Err(CUDA_ERROR_NOT_READY),
                }),
        )
    }
    unsafe fn cuStreamWaitEvent(&self, stream: CUstream, event: CUevent, _flags: u32) -> CUresult {
        status(self.queue(stream).and_then(|queue| {
            let event = self.event(event)?;
            self.streams.wait_event(&queue, &event);
            Ok(())
        }))
    }
    unsafe fn cuEventCreate(&self, event: *mut CUevent, flags: u32) -> CUresult {
        let number = fresh();
        let made = self.context().map(|_| {
            self.lock()
                .events
                .insert(number, Arc::new(Event::new(flags)));
            handle(number)
        });
        answer(event, made)
    }
    unsafe fn cuEventDestroy_v2(&self, event: CUevent) -> CUresult {
        let known = self.lock().events.remove(&event.addr());
        status(known.map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE))
    }
    unsafe fn cuEventRecord(&self, event: CUevent, stream: CUstream) -> CUresult {
        // SAFETY: the caller's.
        unsafe { self.cuEventRecordWithFlags(event, stream, 0) }
    }
    unsafe fn cuEventRecordWithFlags(
        &self,
        event: CUevent,
        stream: CUstream,
        _flags: u32,
    ) -> CUresult {
        status(self.queue(stream).and_then(|queue| {
            let event = self.event(event)?;
            self.streams.record(&queue, &event);
            Ok(())
        }))
    }
    unsafe fn cuEventQuery(&self, event: CUevent) -> CUresult {
        status(
            self.event(event)
                .and_then(|event| self.streams.query(&event)),
        )
    }
    unsafe fn cuEventSynchronize(&self, event: CUevent) -> CUresult {
        status(
            self.event(event)
                .and_then(|event| self.streams.wait_passed(&event)),
        )
    }
    unsafe fn cuEventElapsedTime_v2(
        &self,
        milliseconds: *mut f32,
        start: CUevent,
        end: CUevent,
    ) -> CUresult {
        let between = self.event(start).and_then(|start| {
            let end = self.event(end)?;
            self.streams.between(&start, &end)
        });
        answer(milliseconds, between)
    }
    unsafe fn cuModuleLoadDataEx(
        &self,
        module: *mut CUmodule,
        image: *const c_void,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the caller's.
        let log = unsafe { Logs::of(count, options, values) };
        let loaded = image_of(image).and_then(|image| self.load_module(image, &log));
        answer(module, loaded.map(handle))
    }
    unsafe fn cuModuleUnload(&self, module: CUmodule) -> CUresult {
        status(self.unload_module(module.addr()))
    }
    unsafe fn cuModuleGetFunction(
        &self,
        function: *mut CUfunction,
        module: CUmodule,
        name: *const c_char,
    ) -> CUresult {
        let found = name_of(name).and_then(|name| self.find_function(module.addr(), name));
        answer(function, found.map(handle))
    }
    unsafe fn cuModuleGetFunctionCount(&self, count: *mut u32, module: CUmodule) -> CUresult {
        let module = self.module(module.addr());
        answer(count, module.map(|module| module.functions.len() as u32))
    }
    unsafe fn cuModuleEnumerateFunctions(
        &self,
        functions: *mut CUfunction,
        room: u32,
        module: CUmodule,
    ) -> CUresult {
        status(self.list(module.addr(), functions, room))
    }
    unsafe fn cuModuleGetGlobal_v2(
        &self,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    ) -> CUresult {
        let found = name_of(name).and_then(|name| self.global(module.addr(), name));
        status(found.map(|(at, len)| {
            put(address, at);
            put(bytes, len);
        }))
    }
    unsafe fn cuLibraryLoadData(
        &self,
        library: *mut CUlibrary,
        image: *const c_void,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_count: u32,
    ) -> CUresult {
        // SAFETY: the caller's.
        let log = unsafe { Logs::of(count, options, values) };
        let loaded = image_of(image).and_then(|image| self.load_library(image, &log));
        answer(library, loaded.map(handle))
    }
    unsafe fn cuLibraryUnload(&self, library: CUlibrary) -> CUresult {
        status(self.unload_library(library.addr()))
    }
    unsafe fn cuLibraryGetKernel(
        &self,
        kernel: *mut CUkernel,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult {
        let found = name_of(name).and_then(|name| self.find_function(library.addr(), name));
        answer(kernel, found.map(handle))
    }
    unsafe fn cuLibraryGetKernelCount(&self, count: *mut u32, library: CUlibrary) -> CUresult {
        let module = self.module(library.addr());
        answer(count, module.map(|module| module.functions.len() as u32))
    }
    unsafe fn cuLibraryEnumerateKernels(
        &self,
        kernels: *mut CUkernel,
        room: u32,
        library: CUlibrary,
    ) -> CUresult {
        status(self.list(library.addr(), kernels, room))
    }
    unsafe fn cuLibraryGetModule(&self, module: *mut CUmodule, library: CUlibrary) -> CUresult {
        let known = self.module(library.addr());
        answer(module, known.map(|_| library.cast()))
    }
    unsafe fn cuLibraryGetGlobal(
        &self,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult {
        let found = name_of(name).and_then(|name| self.global(library.addr(), name));
        status(found.map(|(at, len)| {
            put(address, at);
            put(bytes, len);
        }))
    }
    unsafe fn cuLibraryGetManaged(
        &self,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult {
        let found = name_of(name).and_then(|name| self.managed(library.addr(), name));
        status(found.map(|(at, len)| {
            put(address, at);
            put(bytes, len);
        }))
    }
    unsafe fn cuKernelGetFunction(&self, function: *mut CUfunction, kernel: CUkernel) -> CUresult {
        let known = self.function(kernel.addr());
        answer(function, known.map(|_| kernel.cast()))
    }
    unsafe fn cuFuncGetName(&self, name: *mut *const c_char, function: CUfunction) -> CUresult {
        let known = self.function(function.addr());
        answer(name, known.map(|function| function.name.as_ptr()))
    }
    unsafe fn cuKernelGetName(&self, name: *mut *const c_char, kernel: CUkernel) -> CUresult {
        let known = self.function(kernel.addr());
        answer(name, known.map(|function| function.name.as_ptr()))
    }
    unsafe fn cuFuncGetParamInfo(
        &self,
        function: CUfunction,
        index: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> CUresult {
        status(self.parameter(function.addr(), index).map(|(at, len)| {
            put(offset, at);
            put(size, len);
        }))
    }
    unsafe fn cuKernelGetParamInfo(
        &self,
        kernel: CUkernel,
        index: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> CUresult {
        status(self.parameter(kernel.addr(), index).map(|(at, len)| {
            put(offset, at);
            put(size, len);
        }))
    }
    unsafe fn cuFuncGetAttribute(
        &self,
        value: *mut i32,
        which: CUfunction_attribute,
        function: CUfunction,
    ) -> CUresult {
        answer(value, self.function_attribute(function.addr(), which))
    }
    unsafe fn cuKernelGetAttribute(
        &self,
        value: *mut i32,
        which: CUfunction_attribute,
        kernel: CUkernel,
        _dev: CUdevice,
    ) -> CUresult {
        answer(value, self.function_attribute(kernel.addr(), which))
    }
    unsafe fn cuFuncSetAttribute(
        &self,
        function: CUfunction,
        which: CUfunction_attribute,
        value: i32,
    ) -> CUresult {
        status(self.set_function_attribute(function.addr(), which, value))
    }
    unsafe fn cuKernelSetAttribute(
        &self,
        which: CUfunction_attribute,
        value: i32,
        kernel: CUkernel,
        _dev: CUdevice,
    ) -> CUresult {
        status(self.set_function_attribute(kernel.addr(), which, value))
    }
    unsafe fn cuFuncSetCacheConfig(&self, function: CUfunction, _config: CUfunc_cache) -> CUresult {
        status(self.function(function.addr()).map(|_| ()))
    }
    unsafe fn cuFuncSetSharedMemConfig(
        &self,
        function: CUfunction,
        _config: CUsharedconfig,
    ) -> CUresult {
        status(self.function(function.addr()).map(|_| ()))
    }
    unsafe fn cuKernelSetCacheConfig(
        &self,
        kernel: CUkernel,
        _config: CUfunc_cache,
        _dev: CUdevice,
    ) -> CUresult {
        status(self.function(kernel.addr()).map(|_| ()))
    }
    unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &self,
        blocks: *mut i32,
        function: CUfunction,
        threads: i32,
        dynamic: usize,
        _flags: u32,
    ) -> CUresult {
        let function = self.function(function.addr());
        let found = function.and_then(|function| self.occupancy(&function, threads, dynamic));
        answer(blocks, found)
    }
    unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
        &self,
        bytes: *mut usize,
        function: CUfunction,
        blocks: i32,
        threads: i32,
    ) -> CUresult {
        let function = self.function(function.addr());
        let found = function.and_then(|function| self.shared_left(&function, blocks, threads));
        answer(bytes, found)
    }
    unsafe fn cuLaunchKernel(
        &self,
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult {
        let shape = Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_bytes: shared_bytes,
            cooperative: false,
        };
        // SAFETY: the caller's.
        status(unsafe { self.start(function, shape, stream, params, extra) })
    }
    unsafe fn cuLaunchKernelEx(
        &self,
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult {
        if config.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the contract of the call.
        let config = unsafe { *config };
        let mut cooperative = false;
        for index in 0..config.numAttrs.min(ATTRIBUTE_LIMIT) as usize {
            // SAFETY: as many attributes as it says, each a number and, from its eighth byte on, a value.
            let words = unsafe {
                config
                    .attrs
                    .wrapping_add(index)
                    .cast::<[u32; 5]>()
                    .read_unaligned()
            };
            let [id, _, value @ ..] = words;
            match launch::cooperative(id, value, &self.messages) {
                Ok(wanted) => cooperative |= wanted.unwrap_or(false),
                Err(status) => return status,
            }
        }
        let shape = Shape {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            dynamic_bytes: config.sharedMemBytes,
            cooperative,
        };
        // SAFETY: the caller's.
        status(unsafe { self.start(function, shape, config.hStream, params, extra) })
    }
    unsafe fn cuLogsRegisterCallback(
        &self,
        callback: CUlogsCallback,
        data: *mut c_void,
        registered: *mut CUlogsCallbackHandle,
    ) -> CUresult {
        let Some(callback) = callback else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let data = data.expose_provenance();
        let listener = move |text: &str| {
            let Ok(message) = CString::new(text) else {
                return;
            };
            let data = std::ptr::with_exposed_provenance_mut(data);
            let len = message.as_bytes().len();
            // SAFETY: the contract of the call: the function takes its data and a message, until it is taken back.
            unsafe { callback(data, LOG_ERROR, message.as_ptr().cast_mut(), len) };
        };
        let number = fresh();
        self.messages.listen(number, Arc::new(listener));
        answer(registered, Ok(handle(number)))
    }
    unsafe fn cuLogsUnregisterCallback(&self, callback: CUlogsCallbackHandle) -> CUresult {
        match self.messages.forget(callback.addr()) {
            true => CUDA_SUCCESS,
            false => CUDA_ERROR_INVALID_VALUE,
        }
    }
    towline_backend::array_calls!();
    towline_backend::graph_calls!();
    towline_backend::reference_calls!();
    graph_memory_calls!();
    link_calls!();
    operation_calls!();
    pool_calls!();
    texture_calls!();
    virtual_memory_calls!();
}
