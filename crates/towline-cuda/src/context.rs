//! Contexts, and which of them is a thread's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{Actor, Session};
use towline_client::pinned;
use towline_client::raw::{Out, Vouched};

use crate::device::{Device, Primary};
use crate::driver::{ContextCalls, Driver, lock, read, write};
use crate::mirror::Mirrored;
use crate::module::{expect_banks, expect_cache};
use crate::stream::Work;
use crate::thread;
use crate::written::Written;

/// A context of a device.
pub(crate) struct Context {
    pub(crate) number: u64,
    pub(crate) id: u64,
    pub(crate) device: CUdevice,
    pub(crate) session: u8,
    pub(crate) ordinal: i32,
    pub(crate) primary: bool,
    flags: AtomicU32,
    /// The driver keeps the largest local memory for it.
    keeps_local_memory: AtomicBool,
    /// It lives on the server; a primary context is made there when it is first needed.
    live: AtomicBool,
    making: Mutex<()>,
    settings: Mutex<Settings>,
    /// Streams that may have work, by number.
    pub(crate) work: Mutex<HashMap<u64, Work>>,
    pub(crate) written: Written,
    /// Memory that both sides have, of all contexts of the session.
    pub(crate) mirrored: Arc<Mirrored>,
}

#[derive(Default)]
struct Settings {
    limits: HashMap<CUlimit, usize>,
    cache: CUfunc_cache,
    shared: CUsharedconfig,
    /// Users that were counted beside the first.
    attached: u32,
}

impl Context {
    /// Notes that a graph has work for the context, for which the driver keeps local memory (seen with driver 580.159).
    pub(crate) fn note_graph(&self) {
        self.keeps_local_memory.store(true, Ordering::Relaxed);
    }

    /// Makes sure that the context lives on the server; whether it did not before.
    pub(crate) fn ensure(&self, session: &Session) -> Result<bool, CUresult> {
        if self.live.load(Ordering::Acquire) || !self.primary {
            return Ok(false);
        }
        let _making = lock(&self.making);
        if self.live.load(Ordering::Acquire) {
            return Ok(false);
        }
        let request = wire::PrimaryRetain {
            device: self.ordinal,
            flags: self.flags.load(Ordering::Relaxed),
            context: wire::ContextHandle(self.number),
        };
        let retain = || session.call(Actor::default(), "cuDevicePrimaryCtxRetain", &request);
        match retain() {
            // The one that was released before had not ended; it has now.
            Err(CUDA_ERROR_NOT_READY) => retain()?,
            retained => retained?,
        };
        self.live.store(true, Ordering::Release);
        Ok(true)
    }

    /// Whether threads that wait in it sleep, rather than look for what they wait for.
    pub(crate) fn sleeps(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CU_CTX_SCHED_BLOCKING_SYNC != 0
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }
}

impl Driver {
    /// The primary context of a device, which may not live yet.
    pub(crate) fn primary(&self, device: CUdevice) -> Result<Arc<Context>, CUresult> {
        let known = self.device(device)?;
        if let Ok(context) = self.context(known.primary) {
            return Ok(context);
        }
        let mut contexts = write(&self.contexts);
        let made = contexts.entry(known.primary).or_insert_with(|| {
            let context = Arc::new(Context {
                number: known.primary,
                id: self.new_id(),
                device,
                session: known.session,
                ordinal: known.ordinal,
                primary: true,
                flags: AtomicU32::new(lock(&known.references).flags),
                keeps_local_memory: AtomicBool::new(false),
                live: AtomicBool::new(false),
                making: Mutex::new(()),
                settings: Mutex::default(),
                work: Mutex::default(),
                written: Written::default(),
                mirrored: self.mirrors.of_session(known.session),
            });
            context.mirrored.add_context(&context);
            context
        });
        Ok(Arc::clone(made))
    }

    /// The context that a call means: NULL is the thread's own.
    pub(crate) fn context_or_current(&self, ctx: CUcontext) -> Result<Arc<Context>, CUresult> {
        match ctx.addr() as u64 {
            0 => self.current(),
            number => self.ready().and_then(|_| self.context(number)),
        }
    }

    /// Forgets a context and what lived in it.
    fn drop_context(&self, number: u64) {
        self.drop_graphs_of(number);
        write(&self.contexts).remove(&number);
        write(&self.streams).retain(|_, stream| stream.context != number);
        self.forget_stream_attributes(|context, _| context == number);
        self.forget_opened(number);
        self.drop_mirrors(number);
        write(&self.events).retain(|_, event| event.context != number);
        write(&self.functions).drop_context(number);
        let registered = read(&self.memory).registered_in(number);
        for (start, size) in registered {
            // Data on its way ends with the context, or with its session.
            let _ = self.settle_host(start, size);
            pinned::withdraw(start as usize);
        }
        write(&self.memory).drop_context(number);
        lock(&self.kept_memory).drop_context(number);
        write(&self.arrays).drop_context(number);
        write(&self.textures).drop_context(number);
        self.peers.drop_context(number);
        self.end_kept(number);
        thread::with(|thread| {
            let mut own = thread.own_streams.borrow_mut();
            own.retain(|_, own| own.context != number);
        });
    }

    fn release_primary(&self, device: CUdevice) -> Result<(), CUresult> {
        let known = self.device(device)?;
        // Until it has ended: who retains it meanwhile gets a new one.
        let _holding = lock(&known.holding);
        let mut held = lock(&known.references);
        held.references = held
            .references
            .checked_sub(1)
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if held.references > 0 {
            return Ok(());
        }
        drop(held);
        let context = self.primary(device)?;
        let session = &self.started()?.sessions[usize::from(known.session)];
        self.end_twins(context.number);
        if context.is_live() {
            session.post(
                Actor::default(),
                &wire::PrimaryRelease {
                    device: known.ordinal,
                    context: wire::ContextHandle(context.number),
                },
            )?;
        }
        self.drop_context(context.number);
        Ok(())
    }

    fn synchronise(&self, context: Arc<Context>) -> Result<(), CUresult> {
        self.uncaptured_context(context.number)?;
        if context.primary && !context.is_live() {
            return Ok(());
        }
        let acting = self.acting_in(context)?;
        acting.synchronise_all()
    }

    fn create(&self, flags: u32, dev: CUdevice) -> Result<CUcontext, CUresult> {
        let device = self.device(dev)?;
        let session = &self.started()?.sessions[usize::from(device.session)];
        let handle = wire::ContextHandle(session.mint(wire::ContextHandle::TAG));
        let request = wire::ContextCreate {
            device: device.ordinal,
            flags,
            context: handle,
        };
        session.call(Actor::default(), "cuCtxCreate", &request)?;
        let context = Context {
            number: handle.0,
            id: self.new_id(),
            device: dev,
            session: device.session,
            ordinal: device.ordinal,
            primary: false,
            flags: AtomicU32::new(flags),
            keeps_local_memory: AtomicBool::new(false),
            live: AtomicBool::new(true),
            making: Mutex::new(()),
            settings: Mutex::default(),
            work: Mutex::default(),
            written: Written::default(),
            mirrored: self.mirrors.of_session(device.session),
        };
        let context = Arc::new(context);
        context.mirrored.add_context(&context);
        write(&self.contexts).insert(handle.0, context);
        self.note_live();
        self.latest.store(handle.0, Ordering::Relaxed);
        thread::with(|thread| thread.contexts.borrow_mut().push(handle.0));
        Ok(handle.to_raw())
    }

    /// The device whose primary context this is, which has ended: by a reset, where that is one.
    fn reset_device(&self, number: u64) -> Result<CUdevice, CUresult> {
        let mut devices = self.ready()?.devices().iter();
        let device = devices.position(|device| device.primary == number);
        device
            .map(|device| device as CUdevice)
            .ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// The number of a context that can be made current: a primary one also between a reset and its next use (seen with driver 580.159).
    fn known(&self, ctx: CUcontext) -> Result<u64, CUresult> {
        let number = ctx.addr() as u64;
        let is_primary = |device: &Device| device.primary == number;
        match self.ready()?.devices().iter().any(is_primary) {
            true => Ok(number),
            false => self.context(number).map(|context| context.number),
        }
    }
}

impl ContextCalls for Driver {
    fn cuDevicePrimaryCtxRetain(&self, dev: CUdevice) -> Result<CUcontext, CUresult> {
        self.device(dev).and_then(|device| {
            let _holding = lock(&device.holding);
            let context = self.acting_in(self.primary(dev)?)?.context;
            lock(&device.references).references += 1;
            Ok(wire::ContextHandle(context.number).to_raw())
        })
    }

    fn cuDevicePrimaryCtxRelease_v2(&self, dev: CUdevice) -> Result<(), CUresult> {
        self.release_primary(dev)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(&self, dev: CUdevice, flags: u32) -> Result<(), CUresult> {
        let schedules = (flags & CU_CTX_SCHED_MASK).count_ones();
        if flags & !CU_CTX_FLAGS_MASK != 0 || schedules > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.primary(dev).and_then(|context| {
            // Scheduling flags say how this process waits; the server's driver keeps its own.
            lock(&self.device(dev)?.references).flags = flags;
            context.flags.store(flags, Ordering::Relaxed);
            Ok(())
        })
    }

    fn cuDevicePrimaryCtxGetState(&self, dev: CUdevice) -> Result<(u32, i32), CUresult> {
        let flags = lock(&self.device(dev)?.references).flags;
        Ok((flags, i32::from(self.primary(dev)?.is_live())))
    }

    fn cuDevicePrimaryCtxReset_v2(&self, dev: CUdevice) -> Result<(), CUresult> {
        self.device(dev).and_then(|device| {
            let _holding = lock(&device.holding);
            let context = self.primary(dev)?;
            if context.is_live() {
                self.finish_printing(&context);
                self.end_twins(context.number);
                let session = &self.started()?.sessions[usize::from(device.session)];
                let request = wire::PrimaryReset {
                    device: device.ordinal,
                };
                let reset = session.call(Actor::default(), "cuDevicePrimaryCtxReset", &request);
                // After a fault too a reset ends the context, and the device is of no use as before (seen with driver 580.159).
                if session.fault().is_none() {
                    reset?;
                }
                self.drop_context(context.number);
            }
            // Nobody has it any more (seen with driver 580.159).
            *lock(&device.references) = Primary::default();
            context.flags.store(0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn cuCtxCreate_v2(&self, flags: u32, dev: CUdevice) -> Result<CUcontext, CUresult> {
        self.create(flags, dev)
    }

    fn cuCtxCreate_v3(
        &self,
        pctx: Out<CUcontext>,
        _paramsArray: Option<&[CUexecAffinityParam]>,
        numParams: i32,
        flags: u32,
        dev: CUdevice,
    ) -> Result<(), CUresult> {
        match numParams {
            0 if !pctx.wanted() => Err(CUDA_ERROR_INVALID_VALUE),
            0 => {
                pctx.set(self.create(flags, dev)?);
                Ok(())
            }
            // No device says that contexts can be bound to part of it.
            1.. => Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuCtxCreate_v4(
        &self,
        pctx: Out<CUcontext>,
        ctxCreateParams: Option<Vouched<'_, CUctxCreateParams>>,
        flags: u32,
        dev: CUdevice,
    ) -> Result<(), CUresult> {
        let count = ctxCreateParams.map_or(0, |given| given.numExecAffinityParams);
        let graphics = ctxCreateParams.is_some_and(|given| !given.cigParams.is_null());
        match (count, graphics) {
            (0, true) => Err(CUDA_ERROR_NOT_SUPPORTED),
            (_, true) => Err(CUDA_ERROR_INVALID_VALUE),
            (count, false) => ContextCalls::cuCtxCreate_v3(self, pctx, None, count, flags, dev),
        }
    }

    fn cuCtxAttach(&self, flags: u32) -> Result<CUcontext, CUresult> {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = self.current()?;
        lock(&context.settings).attached += 1;
        Ok(wire::ContextHandle(context.number).to_raw())
    }

    fn cuCtxDetach(&self, ctx: CUcontext) -> Result<(), CUresult> {
        let context = self.current()?;
        if context.number != ctx.addr() as u64 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let left = lock(&context.settings).attached.checked_sub(1);
        match left {
            Some(left) => {
                lock(&context.settings).attached = left;
                Ok(())
            }
            // The last user ends it.
            None => ContextCalls::cuCtxDestroy_v2(self, ctx),
        }
    }

    fn cuCtxSetFlags(&self, flags: u32) -> Result<(), CUresult> {
        let schedules = (flags & CU_CTX_SCHED_MASK).count_ones();
        if flags & !CU_CTX_FLAGS_MASK != 0 || schedules > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Like those of its beginning, they say how this process waits.
        let set = |context: Arc<Context>| context.flags.store(flags, Ordering::Relaxed);
        self.current().map(set)
    }

    fn cuCtxGetExecAffinity(
        &self,
        pExecAffinity: Out<CUexecAffinityParam>,
        r#type: CUexecAffinityType,
    ) -> Result<(), CUresult> {
        self.current()?;
        match pExecAffinity.wanted() && r#type < CU_EXEC_AFFINITY_TYPE_MAX {
            true => Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuCtxDestroy_v2(&self, ctx: CUcontext) -> Result<(), CUresult> {
        if ctx.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.context_or_invalid(ctx).and_then(|context| {
            if context.primary {
                return Err(CUDA_ERROR_INVALID_CONTEXT);
            }
            self.finish_printing(&context);
            self.end_twins(context.number);
            let session = &self.started()?.sessions[usize::from(context.session)];
            session.post(
                Actor::default(),
                &wire::ContextDestroy {
                    context: wire::ContextHandle(context.number),
                },
            )?;
            thread::with(|thread| {
                let mut contexts = thread.contexts.borrow_mut();
                if contexts.last() == Some(&context.number) {
                    contexts.pop();
                }
            });
            self.drop_context(context.number);
            Ok(())
        })
    }

    fn cuCtxPushCurrent_v2(&self, ctx: CUcontext) -> Result<(), CUresult> {
        self.known(ctx).map(|number| {
            self.latest.store(number, Ordering::Relaxed);
            thread::with(|thread| thread.contexts.borrow_mut().push(number));
        })
    }

    fn cuCtxPopCurrent_v2(&self, pctx: Out<CUcontext>) -> Result<(), CUresult> {
        let popped = self.ready().and_then(|_| {
            let popped = thread::with(|thread| thread.contexts.borrow_mut().pop());
            popped.ok_or(CUDA_ERROR_INVALID_CONTEXT)
        });
        if popped.is_err() && !pctx.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pctx.set(wire::ContextHandle(popped?).to_raw());
        Ok(())
    }

    fn cuCtxSetCurrent(&self, ctx: CUcontext) -> Result<(), CUresult> {
        let number = match ctx.is_null() {
            true => self.ready().map(|_| 0),
            false => self.known(ctx),
        };
        number.map(|number| {
            thread::with(|thread| {
                let mut contexts = thread.contexts.borrow_mut();
                contexts.pop();
                if number != 0 {
                    self.latest.store(number, Ordering::Relaxed);
                    contexts.push(number);
                }
            });
        })
    }

    fn cuCtxGetCurrent(&self) -> Result<CUcontext, CUresult> {
        self.ready()?;
        Ok(wire::ContextHandle(thread::current()).to_raw())
    }

    fn cuCtxGetDevice(&self) -> Result<CUdevice, CUresult> {
        match self.current() {
            Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) => self.reset_device(thread::current()),
            current => current.map(|context| context.device),
        }
    }

    fn cuCtxGetDevice_v2(&self, ctx: CUcontext) -> Result<CUdevice, CUresult> {
        // The runtime library asks so after a reset.
        if ctx.is_null() {
            return ContextCalls::cuCtxGetDevice(self);
        }
        match self.context_or_current(ctx) {
            Ok(context) => Ok(context.device),
            Err(status) => self.reset_device(ctx.addr() as u64).map_err(|_| status),
        }
    }

    fn cuCtxGetFlags(&self) -> Result<u32, CUresult> {
        let context = match self.current() {
            Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) => {
                return self.reset_device(thread::current()).map(|_| 0);
            }
            current => current?,
        };
        let flags = context.flags.load(Ordering::Relaxed);
        // A primary context maps host memory, whatever its flags (seen with driver 580.159).
        let maps = if context.primary { CU_CTX_MAP_HOST } else { 0 };
        let keeps = match context.keeps_local_memory.load(Ordering::Relaxed) {
            true => CU_CTX_LMEM_RESIZE_TO_MAX,
            false => 0,
        };
        Ok(flags | maps | keeps)
    }

    fn cuCtxGetId(&self, ctx: CUcontext) -> Result<u64, CUresult> {
        self.context_or_current(ctx).map(|context| context.id)
    }

    fn cuCtxSynchronize(&self) -> Result<(), CUresult> {
        self.current().and_then(|context| self.synchronise(context))
    }

    fn cuCtxSynchronize_v2(&self, ctx: CUcontext) -> Result<(), CUresult> {
        let context = self.context_or_current(ctx);
        context.and_then(|context| self.synchronise(context))
    }

    fn cuCtxSetLimit(&self, limit: CUlimit, value: usize) -> Result<(), CUresult> {
        self.session_for(0).and_then(|acting| {
            self.safe_in_captures()?;
            acting.call(&wire::CtxSetLimit {
                limit,
                value: value as u64,
            })?;
            // The driver may have rounded it: the next question asks again.
            lock(&acting.context.settings).limits.remove(&limit);
            Ok(())
        })
    }

    fn cuCtxGetLimit(&self, limit: CUlimit) -> Result<usize, CUresult> {
        self.session_for(0).and_then(|acting| {
            if let Some(value) = lock(&acting.context.settings).limits.get(&limit) {
                return Ok(*value);
            }
            let body = acting.call(&wire::CtxGetLimit { limit })?;
            let reply = wire::CtxGetLimitReply::decode(&body).map_err(|_| acting.malformed())?;
            let value = reply.pvalue.ok_or(CUDA_ERROR_UNKNOWN)? as usize;
            lock(&acting.context.settings).limits.insert(limit, value);
            Ok(value)
        })
    }

    fn cuCtxGetCacheConfig(&self) -> Result<CUfunc_cache, CUresult> {
        self.current().map(|context| lock(&context.settings).cache)
    }

    fn cuCtxSetCacheConfig(&self, config: CUfunc_cache) -> Result<(), CUresult> {
        self.session_for(0).and_then(|acting| {
            expect_cache(config)?;
            acting.post(&wire::CtxSetCacheConfig { config })?;
            lock(&acting.context.settings).cache = config;
            Ok(())
        })
    }

    fn cuCtxGetSharedMemConfig(&self) -> Result<CUsharedconfig, CUresult> {
        self.current().map(|context| lock(&context.settings).shared)
    }

    fn cuCtxSetSharedMemConfig(&self, config: CUsharedconfig) -> Result<(), CUresult> {
        self.session_for(0).and_then(|acting| {
            expect_banks(config)?;
            acting.post(&wire::CtxSetSharedMemConfig { config })?;
            lock(&acting.context.settings).shared = config;
            Ok(())
        })
    }

    fn cuCtxGetApiVersion(&self, ctx: CUcontext) -> Result<u32, CUresult> {
        // What every driver since CUDA 3.2 answers for a context of the second interface.
        self.context_or_current(ctx).map(|_| 3020)
    }

    fn cuCtxEnablePeerAccess(&self, peerContext: CUcontext, Flags: u32) -> Result<(), CUresult> {
        self.enable_access(peerContext, Flags)
    }

    fn cuCtxDisablePeerAccess(&self, peerContext: CUcontext) -> Result<(), CUresult> {
        self.disable_access(peerContext)
    }

    fn cuCtxGetStreamPriorityRange(
        &self,
        leastPriority: Out<i32>,
        greatestPriority: Out<i32>,
    ) -> Result<(), CUresult> {
        let range = self
            .current()
            .and_then(|context| Ok(self.device(context.device)?.facts.priorities));
        if range.is_err() && !leastPriority.wanted() && greatestPriority.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (least, greatest) = range?;
        leastPriority.set(least);
        greatestPriority.set(greatest);
        Ok(())
    }
}

impl Driver {
    /// Before a context or its code goes: what kernels under way print appears, as with the driver, since the program may end behind this.
    pub(crate) fn finish_printing(&self, context: &Arc<Context>) {
        // A wait would end captures.
        if self.capturing.load(Ordering::Relaxed) == 0
            && let Ok(acting) = self.acting_in(Arc::clone(context))
        {
            // A failure stays for calls that tell of failures.
            let _ = acting.wait_for_all();
        }
    }

    fn context_or_invalid(&self, ctx: CUcontext) -> Result<Arc<Context>, CUresult> {
        self.ready()?;
        read(&self.contexts)
            .get(&(ctx.addr() as u64))
            .cloned()
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }
}
