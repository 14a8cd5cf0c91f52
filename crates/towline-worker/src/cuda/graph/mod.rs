//! Graphs in the worker. A graph is the client's: it comes as a description when it is made executable. Those with numbers that the device
//! interprets are **anchored**: they live in the driver before that, and every description is what they are to become.

mod build;
mod call;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;
use towline_backend::cuda::*;

pub(crate) use build::{Builder, Built, Calls, Kernel, Ready, Refused, Work};
pub(crate) use call::{Call, Kind};

use super::collective::{Communicator, Posted};
use super::context::Context;
use super::shared::{Shared, lock};
use super::streams::Target;
use crate::link::Raw;

/// Most executable and anchored graphs of a session.
const LIMIT: usize = 1 << 20;

/// The session's graphs, by the client's numbers.
#[derive(Default)]
pub(crate) struct Graphs {
    pub(crate) anchors: HashMap<u64, Anchor>,
    execs: HashMap<u64, Arc<Exec>>,
}

/// A graph that lives in the driver before it is made executable.
#[derive(Clone)]
pub(crate) struct Anchor {
    pub(crate) built: Arc<Mutex<Built>>,
    context: u64,
}

/// An executable graph.
pub(crate) struct Exec {
    native: Raw,
    built: Arc<Mutex<Built>>,
    /// The graph is this one's own.
    owns: bool,
    calls: Mutex<Calls>,
    /// Calls that were replaced; launches that came before may still have them before them.
    retired: Mutex<Vec<Arc<Call>>>,
    context: Weak<Context>,
    context_id: u64,
    /// Of its collectives.
    communicators: Vec<Weak<Communicator>>,
    /// Launches, uploads and changes that the driver has not got.
    parked: AtomicUsize,
    launching: Mutex<()>,
}

/// A launch, upload or change that has come, until the driver has it or never gets it.
pub(crate) struct Parked {
    exec: Arc<Exec>,
    shared: Weak<Shared>,
}

impl std::ops::Deref for Parked {
    type Target = Exec;

    fn deref(&self) -> &Exec {
        &self.exec
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.exec.parked.fetch_sub(1, Ordering::AcqRel);
        if let Some(shared) = self.shared.upgrade() {
            shared.streams.wake();
        }
    }
}

impl Graphs {
    /// Whether there is room for another.
    pub(crate) fn has_room(&self) -> bool {
        self.anchors.len() + self.execs.len() < LIMIT
    }

    pub(crate) fn exec(&self, number: u64) -> Option<Arc<Exec>> {
        self.execs.get(&number).cloned()
    }

    pub(crate) fn take_exec(&mut self, number: u64) -> Option<Arc<Exec>> {
        self.execs.remove(&number)
    }

    /// Whether a number means something.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.anchors.contains_key(&number) || self.execs.contains_key(&number)
    }
}

/// What `GraphMake` asks for.
pub(crate) struct Making {
    pub(crate) anchor: Option<Anchor>,
    pub(crate) ready: Ready,
    pub(crate) flags: u64,
    pub(crate) stream: Raw,
    pub(crate) exec: u64,
}

impl Anchor {
    pub(crate) fn new(api: &dyn CudaApi, context: u64) -> Result<Self, CUresult> {
        let built = Arc::new(Mutex::new(Built::new(api)?));
        Ok(Self { built, context })
    }
}

impl Shared {
    /// Makes a graph executable. The context is current. A refusal comes with the driver's word for it.
    pub(crate) fn make_graph(
        self: &Arc<Self>,
        context: &Arc<Context>,
        making: Making,
    ) -> Result<(), (Refused, CUgraphInstantiateResult)> {
        let plain = |refused| (refused, CUDA_GRAPH_INSTANTIATE_ERROR);
        let owns = making.anchor.is_none();
        let built = match making.anchor {
            Some(anchor) => anchor.built,
            None => {
                let built = Built::new(&*self.api).map_err(|status| plain((status, 0)))?;
                Arc::new(Mutex::new(built))
            }
        };
        let mut builder = Builder {
            shared: self,
            context,
            calls: Calls::new(),
        };
        let mut held = lock(&built);
        let done = builder.build(&mut held, making.ready, false);
        let calls = builder.calls;
        let made = done.map_err(plain).and_then(|()| {
            let mut exec: CUgraphExec = std::ptr::null_mut();
            let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
                flags: making.flags,
                hUploadStream: making.stream.0.cast(),
                hErrNode_out: std::ptr::null_mut(),
                result_out: CUDA_GRAPH_INSTANTIATE_SUCCESS,
            };
            let graph = held.graph.0.cast();
            let (place, told) = (&raw mut exec, &raw mut params);
            // SAFETY: one place each; the graph is live.
            let status = unsafe { self.api.cuGraphInstantiateWithParams(place, graph, told) };
            match status {
                CUDA_SUCCESS => Ok(Raw(exec.cast())),
                status => {
                    let node = held.number_of(params.hErrNode_out);
                    Err(((status, node), params.result_out))
                }
            }
        });
        let native = match made {
            Ok(native) => native,
            Err(refused) => {
                if owns {
                    held.destroy(&*self.api);
                }
                calls.values().for_each(|call| call.release(&*self.api));
                return Err(refused);
            }
        };
        let communicators = held.communicators();
        drop(held);
        let exec = Exec {
            native,
            built,
            owns,
            calls: Mutex::new(calls),
            retired: Mutex::default(),
            context: Arc::downgrade(context),
            context_id: context.id,
            communicators,
            parked: AtomicUsize::new(0),
            launching: Mutex::default(),
        };
        lock(&self.graphs).execs.insert(making.exec, Arc::new(exec));
        Ok(())
    }

    /// Replaces what nodes of an executable graph do; launches that came before are as they were.
    pub(crate) fn change_graph(
        self: &Arc<Self>,
        exec: &Exec,
        changes: Ready,
    ) -> Result<(), Refused> {
        if !self
            .streams
            .wait_until(|| exec.parked.load(Ordering::Acquire) == 0)
        {
            return Err((CUDA_ERROR_INVALID_CONTEXT, 0));
        }
        self.change_now(exec, changes)
    }

    /// As [`Self::change_graph`], where what was parked before has run.
    pub(crate) fn change_now(self: &Arc<Self>, exec: &Exec, changes: Ready) -> Result<(), Refused> {
        let context = exec
            .context
            .upgrade()
            .ok_or((CUDA_ERROR_INVALID_CONTEXT, 0))?;
        match context.enter(&*self.api) {
            CUDA_SUCCESS => {}
            status => return Err((status, 0)),
        }
        let is_conditional = |(_, work): &(u64, Work)| matches!(work, Work::Conditional(..));
        if changes.nodes.iter().any(is_conditional) {
            return self.become_like(exec, &context, changes);
        }
        let built = lock(&exec.built);
        for (number, work) in changes.nodes {
            let mut builder = Builder {
                shared: self,
                context: &context,
                calls: Calls::new(),
            };
            let changed = builder.change_in(exec.native, &built, number, work);
            if changed.is_err() {
                for call in builder.calls.into_values() {
                    call.release(&*self.api);
                }
            } else {
                self.replace_calls(exec, &context, builder.calls);
            }
            changed.map_err(|status| (status, number))?;
        }
        Ok(())
    }

    /// Changes the graph that an executable one was made of, bodies of its conditional nodes too, and has that become like it.
    fn become_like(
        self: &Arc<Self>,
        exec: &Exec,
        context: &Arc<Context>,
        ready: Ready,
    ) -> Result<(), Refused> {
        let mut builder = Builder {
            shared: self,
            context,
            calls: Calls::new(),
        };
        let mut built = lock(&exec.built);
        let built_anew = builder.build(&mut built, ready, false);
        let changed = built_anew.and_then(|()| {
            let mut told = CUgraphExecUpdateResultInfo {
                result: CU_GRAPH_EXEC_UPDATE_SUCCESS,
                errorNode: std::ptr::null_mut(),
                errorFromNode: std::ptr::null_mut(),
            };
            let (native, graph) = (exec.native.0.cast(), built.graph.0.cast());
            // SAFETY: both are live; one place for what is told.
            match unsafe { self.api.cuGraphExecUpdate_v2(native, graph, &raw mut told) } {
                CUDA_SUCCESS => Ok(()),
                status => Err((status, built.number_of(told.errorNode))),
            }
        });
        if changed.is_err() {
            let calls = builder.calls.values();
            calls.for_each(|call| call.release(&*self.api));
            return changed;
        }
        self.replace_calls(exec, context, builder.calls);
        Ok(())
    }

    /// Takes the calls that nodes of an executable graph have now in the place of those that they had. Of these, those that no launch has
    /// before it give their memory back.
    fn replace_calls(self: &Arc<Self>, exec: &Exec, context: &Arc<Context>, calls: Calls) {
        let replaced: Vec<Arc<Call>> = {
            let mut now = lock(&exec.calls);
            let calls = calls.into_iter();
            calls
                .filter_map(|(number, call)| now.insert(number, call))
                .collect()
        };
        let mut retired = lock(&exec.retired);
        retired.extend(replaced);
        let idle: Vec<Arc<Call>> = retired.extract_if(.., |call| call.is_idle()).collect();
        drop(retired);
        if !idle.iter().any(|call| call.has_memory()) {
            return;
        }
        let context = Arc::clone(context);
        // The driver may wait for the device, which may wait for the client, which waits for this change.
        self.start(move |shared| {
            if context.enter(&*shared.api) == CUDA_SUCCESS {
                idle.iter().for_each(|call| call.release(&*shared.api));
            }
        });
    }

    /// Switches a node on or off.
    pub(crate) fn enable_node(&self, exec: &Exec, node: u64, enabled: u32) -> CUresult {
        let Some(context) = exec.context.upgrade() else {
            return CUDA_ERROR_INVALID_CONTEXT;
        };
        if !self
            .streams
            .wait_until(|| exec.parked.load(Ordering::Acquire) == 0)
        {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        context.enter(&*self.api);
        let node = lock(&exec.built).node(node);
        match node {
            None => CUDA_ERROR_INVALID_VALUE,
            // SAFETY: both are live.
            Some(node) => unsafe {
                self.api
                    .cuGraphNodeSetEnabled(exec.native.0.cast(), node.0.cast(), enabled)
            },
        }
    }

    /// Ends executable and anchored graphs of a context, which is current. Nothing uses them any more.
    pub(crate) fn end_graphs(&self, context: u64) {
        let mut graphs = lock(&self.graphs);
        let mut execs = Vec::new();
        graphs.execs.retain(|_, exec| {
            let stays = exec.context_id != context;
            if !stays {
                execs.push(Arc::clone(exec));
            }
            stays
        });
        let mut anchors = Vec::new();
        graphs.anchors.retain(|_, anchor| {
            let stays = anchor.context != context;
            if !stays {
                anchors.push(Arc::clone(&anchor.built));
            }
            stays
        });
        drop(graphs);
        execs.iter().for_each(|exec| exec.end(&*self.api));
        for anchor in anchors {
            lock(&anchor).destroy(&*self.api);
        }
    }
}

impl Exec {
    /// Finds what each number of a launch is for: a call, and the number. `None` when a node is none that calls the client.
    pub(crate) fn expecting(&self, pairs: &[u64]) -> Option<Vec<(Arc<Call>, u64)>> {
        let calls = lock(&self.calls);
        let numbers: HashMap<u64, u64> = pairs
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[node, number]| (*node, *number))
            .collect();
        if !numbers.keys().all(|node| calls.contains_key(node)) {
            return None;
        }
        let number = |node: &u64| numbers.get(node).copied().unwrap_or(0);
        let all = calls.iter();
        Some(
            all.map(|(node, call)| (Arc::clone(call), number(node)))
                .collect(),
        )
    }

    /// The communicators of its collectives that are still there.
    pub(crate) fn communicators(&self) -> SmallVec<[Arc<Communicator>; 2]> {
        let all = self.communicators.iter();
        all.filter_map(Weak::upgrade).collect()
    }

    /// A launch has come, an upload or a change of values.
    pub(crate) fn park(self: Arc<Self>, shared: &Arc<Shared>) -> Parked {
        self.parked.fetch_add(1, Ordering::AcqRel);
        Parked {
            exec: self,
            shared: Arc::downgrade(shared),
        }
    }

    /// Launches on a stream whose context is current.
    pub(crate) fn launch(
        &self,
        shared: &Shared,
        target: &Target,
        request: Posted,
        expecting: &[(Arc<Call>, u64)],
    ) -> CUresult {
        let communicators = self.communicators();
        // Numbers in the order of the driver's launches.
        let launching = lock(&self.launching);
        for (call, number) in expecting {
            call.expect(*number);
        }
        // SAFETY: both are live: what ends the graph waits for parked launches.
        let launch = || unsafe {
            shared
                .api
                .cuGraphLaunch(self.native.0.cast(), target.stream())
        };
        // Nothing that was captured of one that is gone can run.
        let status = match communicators.iter().any(|one| one.is_lost()) {
            true => CUDA_ERROR_EXTERNAL_DEVICE,
            false => launch(),
        };
        for communicator in communicators.iter().filter(|_| status == CUDA_SUCCESS) {
            communicator.note(&*shared.api, target, request);
        }
        if status != CUDA_SUCCESS {
            for (call, _) in expecting {
                call.unexpect(shared, status);
            }
        }
        drop(launching);
        status
    }

    pub(crate) fn bring(&self, shared: &Shared, target: &Target) -> CUresult {
        // SAFETY: both are live.
        unsafe {
            shared
                .api
                .cuGraphUpload(self.native.0.cast(), target.stream())
        }
    }

    /// Whether no launch is parked, or on the device with calls before it.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |call: &Arc<Call>| call.is_idle();
        self.parked.load(Ordering::Acquire) == 0
            && lock(&self.calls).values().all(idle)
            && lock(&self.retired).iter().all(idle)
    }

    /// The context, while it lives.
    pub(crate) fn context(&self) -> Option<Arc<Context>> {
        self.context.upgrade()
    }

    /// Gives all back.
    pub(crate) fn end(&self, api: &dyn CudaApi) {
        self.destroy(api);
        self.release_memory(api);
    }

    /// Whether nodes have memory of the host.
    pub(crate) fn has_memory(&self) -> bool {
        let has = |call: &Arc<Call>| call.has_memory();
        lock(&self.calls).values().any(has) || lock(&self.retired).iter().any(has)
    }

    /// As [`Self::end`], but for what [`Self::release_memory`] does.
    pub(crate) fn destroy(&self, api: &dyn CudaApi) {
        // SAFETY: the graph is ours, and ends once; the driver keeps what runs.
        unsafe { api.cuGraphExecDestroy(self.native.0.cast()) };
        if self.owns {
            lock(&self.built).destroy(api);
        }
    }

    /// Gives memory of the host back, for which the driver may wait until the device is idle.
    pub(crate) fn release_memory(&self, api: &dyn CudaApi) {
        for call in lock(&self.calls).values() {
            call.release(api);
        }
        for call in lock(&self.retired).iter() {
            call.release(api);
        }
    }
}
