//! Streams that are captured. What is enqueued on them becomes nodes of a graph that lives here; the server hears of nothing until the
//! graph is made executable.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;

use super::model::{Content, Dep, Graphs, WHOLE};
use crate::driver::{Acting, Driver, lock, read, write};
use crate::launch::ATTRIBUTE_WORDS;
use crate::thread;

/// All captures that are under way, and what they have left in events.
#[derive(Default)]
pub(crate) struct Captures {
    captures: HashMap<u64, Capture>,
    /// The capture that a stream is in.
    streams: HashMap<u64, u64>,
    /// Where in a capture an event was recorded last.
    events: HashMap<u64, (u64, Vec<Dep>)>,
    next: u64,
}

/// One capture.
struct Capture {
    graph: u64,
    /// The graph was there before.
    into: bool,
    origin: u64,
    thread: u64,
    mode: CUstreamCaptureMode,
    valid: bool,
    streams: HashMap<u64, Branch>,
    /// The last node of each communicator, which has its collectives one after the other.
    collectives: HashMap<u64, u64>,
}

/// A stream in a capture.
struct Branch {
    context: u64,
    /// It keeps order with its context's default stream.
    blocking: bool,
    /// What the next node stands behind.
    deps: Vec<Dep>,
    /// What the application was told of that.
    told: (Vec<u64>, Vec<CUgraphEdgeData>),
}

/// A captured stream that a call was made for.
pub(crate) struct Captured<'a> {
    driver: &'a Driver,
    capture: u64,
    stream: u64,
}

/// A call's session and context, its stream, and that stream's capture.
pub(crate) type Place<'a> = (Acting<'a>, wire::StreamHandle, Option<Captured<'a>>);

/// What an event means to a stream that waits for it.
pub(crate) enum Meeting {
    /// Both are outside of captures.
    Outside,
    /// It has been dealt with.
    Done,
}

/// What is told of a stream's capture.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) status: CUstreamCaptureStatus,
    pub(crate) id: u64,
    pub(crate) graph: u64,
    pub(crate) nodes: usize,
    pub(crate) edges: usize,
    pub(crate) count: usize,
    pub(crate) plain: bool,
}

pub(crate) fn edge_data(data: [u8; 8]) -> CUgraphEdgeData {
    let [from_port, to_port, kind, reserved @ ..] = data;
    CUgraphEdgeData {
        from_port,
        to_port,
        r#type: kind,
        reserved,
    }
}

pub(crate) fn edge_bytes(data: &CUgraphEdgeData) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..3].copy_from_slice(&[data.from_port, data.to_port, data.r#type]);
    bytes[3..].copy_from_slice(&data.reserved);
    bytes
}

impl Captures {
    fn invalidate(&mut self, which: impl Fn(&Capture) -> bool) -> bool {
        let mut any = false;
        for capture in self.captures.values_mut().filter(|capture| which(capture)) {
            capture.valid = false;
            any = true;
        }
        any
    }

    pub(crate) fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
    }

    /// Whether a stream is captured into a graph.
    pub(super) fn fill(&self, graph: u64) -> bool {
        self.captures.values().any(|capture| capture.graph == graph)
    }

    fn branch(&mut self, stream: u64) -> Option<(u64, &mut Branch)> {
        let id = *self.streams.get(&stream)?;
        let capture = self.captures.get_mut(&id)?;
        capture.streams.get_mut(&stream).map(|branch| (id, branch))
    }
}

impl Driver {
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire) > 0
    }

    fn is_blocking(&self, stream: u64) -> bool {
        let streams = read(&self.streams);
        streams
            .get(&stream)
            .is_none_or(|stream| stream.is_blocking())
    }

    /// Whether what a call enqueues is captured. The default stream must be left alone while a stream is captured that keeps order
    /// with it.
    #[inline]
    pub(crate) fn captured(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<Option<Captured<'_>>, CUresult> {
        if !self.is_capturing() {
            return Ok(None);
        }
        self.captured_now(acting, stream.0)
    }

    fn captured_now(
        &self,
        acting: &Acting<'_>,
        stream: u64,
    ) -> Result<Option<Captured<'_>>, CUresult> {
        // A program that only captures would never learn of it.
        if let Some(broken) = acting.session.broken() {
            return Err(broken);
        }
        let mut graphs = lock(&self.graphs);
        let captures = &mut graphs.captures;
        if stream <= CU_STREAM_LEGACY {
            let context = acting.context.number;
            let keeps_order = |branch: &Branch| branch.blocking && branch.context == context;
            let hit = captures.invalidate(|capture| capture.streams.values().any(keeps_order));
            return if hit {
                Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            } else {
                Ok(None)
            };
        }
        let Some(id) = captures.streams.get(&stream).copied() else {
            return Ok(None);
        };
        match captures.captures.get(&id) {
            Some(capture) if capture.valid => Ok(Some(Captured {
                driver: self,
                capture: id,
                stream,
            })),
            _ => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// Where a call enqueues work, and the capture that takes the work instead. The driver checks both before the call's other parameters
    /// (seen with driver 580.159).
    #[inline]
    pub(crate) fn enqueue_on(&self, stream: CUstream) -> Result<Place<'_>, CUresult> {
        let (acting, stream) = self.on(stream)?;
        let captured = self.captured(&acting, stream)?;
        Ok((acting, stream, captured))
    }

    /// As [`Self::enqueue_on`], for a call that cannot be captured: it invalidates the stream's capture, and is refused in the same way once
    /// that is invalid.
    #[inline]
    pub(crate) fn on_uncaptured(
        &self,
        stream: CUstream,
    ) -> Result<(Acting<'_>, wire::StreamHandle), CUresult> {
        let (acting, stream) = self.on(stream)?;
        match self.captured(&acting, stream) {
            Ok(None) => Ok((acting, stream)),
            Ok(Some(captured)) => Err(captured.refuse()),
            Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) => {
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
            Err(status) => Err(status),
        }
    }

    /// Refuses a stream whose capture is invalid, from threads without a context too.
    pub(crate) fn expect_valid_capture(&self, stream: CUstream) -> Result<(), CUresult> {
        if !self.is_capturing() {
            return Ok(());
        }
        let captures = &lock(&self.graphs).captures;
        let id = captures.streams.get(&(stream.addr() as u64));
        match id.and_then(|id| captures.captures.get(id)) {
            Some(capture) if !capture.valid => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            _ => Ok(()),
        }
    }

    /// Refuses what waits for all of a context while a stream of it is captured.
    pub(crate) fn uncaptured_context(&self, context: u64) -> Result<(), CUresult> {
        if !self.is_capturing() {
            return Ok(());
        }
        let captures = &mut lock(&self.graphs).captures;
        let of = |branch: &Branch| branch.context == context;
        match captures.invalidate(|capture| capture.streams.values().any(of)) {
            true => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            false => Ok(()),
        }
    }

    /// Refuses a call that the driver calls potentially unsafe, where the thread's mode and captures under way say so.
    #[inline]
    pub(crate) fn safe_in_captures(&self) -> Result<(), CUresult> {
        if !self.is_capturing() {
            return Ok(());
        }
        let (me, mode) = thread::with(|thread| (thread.number, thread.capture_mode.get()));
        if mode == CU_STREAM_CAPTURE_MODE_RELAXED {
            return Ok(());
        }
        let hit = lock(&self.graphs).captures.invalidate(|capture| {
            if capture.thread == me {
                capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
            } else {
                mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                    && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL
            }
        });
        match hit {
            true => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            false => Ok(()),
        }
    }

    pub(crate) fn begin_capture(
        &self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
        into: Option<(u64, Vec<Dep>)>,
    ) -> Result<(), CUresult> {
        if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (acting, handle) = self.on(stream)?;
        if handle.0 <= CU_STREAM_LEGACY {
            self.captured(&acting, handle)?;
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if let Some(broken) = acting.session.broken() {
            return Err(broken);
        }
        let blocking = self.is_blocking(handle.0);
        let mut graphs = lock(&self.graphs);
        if graphs.captures.streams.contains_key(&handle.0) {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let is_into = into.is_some();
        let (graph, deps) = match into {
            Some((graph, deps)) => {
                graphs.check_deps(graph, &deps)?;
                graphs.graph(graph)?;
                graphs.expect_uncaptured(graph)?;
                (graph, deps)
            }
            None => (graphs.create(acting.context.session, None), Vec::new()),
        };
        let captures = &mut graphs.captures;
        captures.next += 1;
        let id = captures.next;
        let branch = Branch {
            context: acting.context.number,
            blocking,
            deps,
            told: Default::default(),
        };
        let capture = Capture {
            graph,
            into: is_into,
            origin: handle.0,
            thread: acting.actor.thread,
            mode,
            valid: true,
            streams: HashMap::from([(handle.0, branch)]),
            collectives: HashMap::new(),
        };
        captures.streams.insert(handle.0, id);
        captures.captures.insert(id, capture);
        self.capturing.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Whether a stream is captured into a graph that was there before, so that its end need not tell the graph.
    pub(crate) fn captures_into(&self, stream: CUstream) -> Result<bool, CUresult> {
        let (_, handle) = self.on(stream)?;
        let captures = &lock(&self.graphs).captures;
        let id = captures.streams.get(&handle.0);
        let capture = id.and_then(|id| captures.captures.get(id));
        Ok(capture.is_some_and(|capture| capture.into))
    }

    /// Takes a stream that ends out of its capture, where that goes on with what the stream has done. Without the stream that it began on
    /// no call can end it.
    pub(crate) fn leave_capture(&self, stream: u64) -> Result<(), CUresult> {
        if !self.is_capturing() {
            return Ok(());
        }
        let mut graphs = lock(&self.graphs);
        let captures = &mut graphs.captures;
        let Some(id) = captures.streams.remove(&stream) else {
            return Ok(());
        };
        if captures
            .captures
            .get(&id)
            .is_none_or(|it| it.origin != stream)
        {
            return Ok(());
        }
        captures.streams.retain(|_, other| *other != id);
        let capture = captures.captures.remove(&id);
        self.capturing.fetch_sub(1, Ordering::AcqRel);
        drop(graphs);
        match capture {
            Some(capture) => self.abandon(capture.graph),
            None => Ok(()),
        }
    }

    /// Ends the graph of a capture that has failed, even if it was there before (seen with driver 580.159). A node's own graph ends with its
    /// node.
    fn abandon(&self, graph: u64) -> Result<(), CUresult> {
        let is_owned = lock(&self.graphs).graph(graph)?.owner.is_some();
        match is_owned {
            true => Ok(()),
            false => self.destroy_graph(graph),
        }
    }

    pub(crate) fn end_capture(&self, stream: CUstream) -> Result<u64, CUresult> {
        let (acting, handle) = self.on(stream)?;
        if handle.0 <= CU_STREAM_LEGACY {
            self.captured(&acting, handle)?;
        }
        let mut held = lock(&self.graphs);
        let graphs = &mut *held;
        let found = graphs.captures.streams.get(&handle.0).copied();
        let id = found.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = graphs.captures.captures.get_mut(&id);
        let capture = capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != handle.0 {
            capture.valid = false;
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let capture = graphs.captures.captures.remove(&id);
        let capture = capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        graphs.captures.streams.retain(|_, other| *other != id);
        self.capturing.fetch_sub(1, Ordering::AcqRel);
        let status = if let Some(broken) = acting.session.broken() {
            broken
        } else if !capture.valid {
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        } else if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
            && capture.thread != acting.actor.thread
        {
            // The capture has ended all the same (seen with driver 580.159).
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
        } else if !is_joined(graphs, &capture) {
            CUDA_ERROR_STREAM_CAPTURE_UNJOINED
        } else {
            return Ok(capture.graph);
        };
        let allocated = graphs.allocations(capture.graph);
        drop(held);
        // Its allocations are no memory any more (seen with driver 580.159).
        self.abandon(capture.graph)?;
        let mut memory = write(&self.memory);
        for address in allocated {
            memory.take_device(address);
        }
        Err(status)
    }

    /// What an event does to a stream that is to wait for it, as far as captures go.
    pub(crate) fn meet(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        captured: Option<&Captured<'_>>,
        event: u64,
        flags: u32,
    ) -> Result<Meeting, CUresult> {
        if captured.is_some() && flags & CU_EVENT_WAIT_EXTERNAL != 0 {
            self.event_number(wire::EventHandle(event).to_raw())?;
        }
        let mut graphs = lock(&self.graphs);
        if let Some(captured) = captured
            && flags & CU_EVENT_WAIT_EXTERNAL != 0
        {
            captured.add_to(&mut graphs, Content::Wait(event))?;
            return Ok(Meeting::Done);
        }
        let captures = &mut graphs.captures;
        let Some((from, deps)) = captures.events.get(&event).cloned() else {
            let Some(captured) = captured else {
                return Ok(Meeting::Outside);
            };
            // What happened before the capture is no part of it.
            captures.end(captured.capture);
            return Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        };
        if !captures.captures.get(&from).is_some_and(|it| it.valid) {
            // A stream of that capture was refused before. Another's capture is lost with it (seen with driver 580.159).
            captured.into_iter().for_each(|it| captures.end(it.capture));
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match captured {
            Some(captured) if captured.capture != from => {
                captures.end(captured.capture);
                captures.end(from);
                Err(CUDA_ERROR_STREAM_CAPTURE_MERGE)
            }
            Some(captured) => {
                if let Some((_, branch)) = captures.branch(captured.stream) {
                    branch.wait(&deps);
                }
                Ok(Meeting::Done)
            }
            None if stream.0 <= CU_STREAM_LEGACY => {
                captures.end(from);
                Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            }
            None if Session::index_of(event) != acting.context.session => {
                // A graph is one server's.
                captures.end(from);
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
            None => {
                let branch = Branch {
                    context: acting.context.number,
                    blocking: self.is_blocking(stream.0),
                    deps,
                    told: Default::default(),
                };
                captures.streams.insert(stream.0, from);
                if let Some(capture) = captures.captures.get_mut(&from) {
                    capture.streams.insert(stream.0, branch);
                }
                Ok(Meeting::Done)
            }
        }
    }

    /// Refuses an event that was recorded last in a capture. A question whether it has passed costs the capture.
    pub(crate) fn uncaptured_event(&self, event: u64, is_asked: bool) -> Result<(), CUresult> {
        let captures = &mut lock(&self.graphs).captures;
        let Some(id) = captures.events.get(&event).map(|(id, _)| *id) else {
            return Ok(());
        };
        match captures.captures.get_mut(&id) {
            Some(capture) if capture.valid => {
                capture.valid = !is_asked;
                Err(CUDA_ERROR_CAPTURED_EVENT)
            }
            // Of a capture that is over or invalid (seen with driver 580.159).
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// What is to be told of a stream.
    pub(crate) fn capture_state(&self, stream: CUstream) -> Result<State, CUresult> {
        if !self.is_capturing() {
            self.describe(stream)?;
            return Ok(State::default());
        }
        let (acting, handle) = self.on(stream)?;
        let mut graphs = lock(&self.graphs);
        let captures = &mut graphs.captures;
        if handle.0 <= CU_STREAM_LEGACY {
            let context = acting.context.number;
            let keeps_order = |branch: &Branch| branch.blocking && branch.context == context;
            let mut all = captures.captures.values();
            return match all.any(|capture| capture.streams.values().any(keeps_order)) {
                true => Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
                false => Ok(State::default()),
            };
        }
        let Some(id) = captures.streams.get(&handle.0).copied() else {
            return Ok(State::default());
        };
        let capture = captures.captures.get_mut(&id);
        let capture = capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if !capture.valid {
            return Ok(State {
                status: CU_STREAM_CAPTURE_STATUS_INVALIDATED,
                ..State::default()
            });
        }
        let graph = capture.graph;
        let branch = capture.streams.get_mut(&handle.0);
        let branch = branch.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        branch.told = (
            branch.deps.iter().map(|dep| dep.node).collect(),
            branch.deps.iter().map(|dep| edge_data(dep.data)).collect(),
        );
        Ok(State {
            status: CU_STREAM_CAPTURE_STATUS_ACTIVE,
            id,
            graph,
            nodes: branch.told.0.as_ptr().expose_provenance(),
            edges: branch.told.1.as_ptr().expose_provenance(),
            count: branch.deps.len(),
            plain: branch.deps.iter().all(|dep| dep.data == WHOLE),
        })
    }

    /// Changes what the next captured node of a stream stands behind.
    pub(crate) fn update_dependencies(
        &self,
        stream: CUstream,
        deps: Option<&[Dep]>,
        flags: u32,
    ) -> Result<(), CUresult> {
        let (_, handle, captured) = self.enqueue_on(stream)?;
        let captured = captured.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let deps = deps.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut graphs = lock(&self.graphs);
        let graph = captured.graph(&graphs)?;
        graphs.check_deps(graph, deps)?;
        let branch = graphs.captures.branch(handle.0);
        let (_, branch) = branch.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        match flags {
            CU_STREAM_ADD_CAPTURE_DEPENDENCIES => branch.wait(deps),
            CU_STREAM_SET_CAPTURE_DEPENDENCIES => branch.deps = deps.to_vec(),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

impl Captures {
    fn end(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.valid = false;
        }
    }
}

impl Branch {
    /// The next node stands behind these too.
    fn wait(&mut self, deps: &[Dep]) {
        for dep in deps {
            match self.deps.iter_mut().find(|known| known.node == dep.node) {
                // All of a node covers any part of it.
                Some(known) if known.data != dep.data => known.data = WHOLE,
                Some(_) => {}
                None => self.deps.push(*dep),
            }
        }
    }
}

/// Whether all that other streams did comes before what the first stream has come to.
fn is_joined(graphs: &Graphs, capture: &Capture) -> bool {
    let Some(origin) = capture.streams.get(&capture.origin) else {
        return false;
    };
    if capture.streams.len() == 1 {
        return true;
    }
    let mut seen: HashSet<u64> = HashSet::new();
    let mut ahead: Vec<u64> = origin.deps.iter().map(|dep| dep.node).collect();
    while let Some(node) = ahead.pop() {
        if seen.insert(node)
            && let Ok(node) = graphs.node(node)
        {
            ahead.extend(node.before.iter().map(|dep| dep.node));
        }
    }
    let branches = capture.streams.values();
    branches
        .flat_map(|branch| &branch.deps)
        .all(|dep| seen.contains(&dep.node))
}

impl Captured<'_> {
    fn graph(&self, graphs: &Graphs) -> Result<u64, CUresult> {
        let capture = graphs.captures.captures.get(&self.capture);
        capture
            .map(|capture| capture.graph)
            .ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    }

    /// What cannot be captured ends the capture's worth.
    pub(crate) fn refuse(&self) -> CUresult {
        self.invalidate();
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    }

    pub(crate) fn invalidate(&self) {
        lock(&self.driver.graphs).captures.end(self.capture);
    }

    /// Whether what is captured is the body of a condition.
    pub(crate) fn fills_body(&self) -> bool {
        let graphs = lock(&self.driver.graphs);
        let graph = self.graph(&graphs);
        graph.is_ok_and(|graph| graphs.is_body(graph))
    }

    /// Adds a node, which the stream's next one stands behind.
    pub(crate) fn add(&self, content: Content) -> Result<(), CUresult> {
        let mut graphs = lock(&self.driver.graphs);
        self.add_to(&mut graphs, content).map(|_| ())
    }

    /// As [`Self::add`], of what frees memory of the graph's, which it does once.
    pub(crate) fn add_free(&self, address: u64, content: Content) -> Result<(), CUresult> {
        let mut graphs = lock(&self.driver.graphs);
        let nodes = &graphs.graph(self.graph(&graphs)?)?.nodes;
        let frees = |number: &u64| {
            let node = graphs.nodes.get(number);
            node.is_some_and(|node| matches!(node.content, Content::Free(it) if it == address))
        };
        if nodes.iter().any(frees) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.add_to(&mut graphs, content).map(|_| ())
    }

    pub(crate) fn add_to(&self, graphs: &mut Graphs, content: Content) -> Result<u64, CUresult> {
        let graph = self.graph(graphs)?;
        let branch = graphs.captures.branch(self.stream);
        let (_, branch) = branch.ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        let mut deps = branch.deps.clone();
        if !matches!(content, Content::Kernel(_)) {
            // Only kernels begin before what they stand behind has ended.
            deps.iter_mut().for_each(|dep| dep.data = WHOLE);
        }
        let node = graphs.add(graph, &deps, content)?;
        self.came_to(graphs, node);
        Ok(node)
    }

    fn came_to(&self, graphs: &mut Graphs, node: u64) {
        if let Some((_, branch)) = graphs.captures.branch(self.stream) {
            branch.deps = vec![Dep::whole(node)];
        }
    }

    /// Whether another stream is in the same capture.
    pub(crate) fn is_with(&self, other: &Self) -> bool {
        self.capture == other.capture
    }

    /// Adds nodes of collectives, each with its communicators: they stand behind all that these streams of one capture have come to, and behind
    /// what the communicators did before; the streams' next nodes stand behind all of them.
    pub(crate) fn add_collectives(
        streams: &[Self],
        contents: Vec<(Vec<u64>, Content)>,
    ) -> Result<(), CUresult> {
        let Some(first) = streams.first() else {
            return Ok(());
        };
        let mut graphs = lock(&first.driver.graphs);
        let graph = first.graph(&graphs)?;
        let invalidated = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        let mut before: Vec<u64> = Vec::new();
        for stream in streams {
            let (_, branch) = graphs.captures.branch(stream.stream).ok_or(invalidated)?;
            before.extend(branch.deps.iter().map(|dep| dep.node));
        }
        let capture = graphs.captures.captures.get(&first.capture);
        let earlier = &capture.ok_or(invalidated)?.collectives;
        let communicators = contents.iter().flat_map(|(communicators, _)| communicators);
        let earlier = communicators.filter_map(|of| earlier.get(of).copied());
        // The program may have taken nodes out of the graph.
        let earlier: Vec<u64> = earlier.filter(|node| graphs.node(*node).is_ok()).collect();
        before.extend(earlier);
        before.sort_unstable();
        before.dedup();
        let deps: Vec<Dep> = before.into_iter().map(Dep::whole).collect();
        let mut added = Vec::new();
        for (communicators, content) in contents {
            let node = graphs.add(graph, &deps, content)?;
            added.push(Dep::whole(node));
            if let Some(capture) = graphs.captures.captures.get_mut(&first.capture) {
                let last = communicators.into_iter().map(|of| (of, node));
                capture.collectives.extend(last);
            }
        }
        for stream in streams {
            if let Some((_, branch)) = graphs.captures.branch(stream.stream) {
                branch.deps.clone_from(&added);
            }
        }
        Ok(())
    }

    /// Adds a node that is made with the server's help, given the graph and what it stands behind.
    pub(crate) fn add_with(
        &self,
        make: impl FnOnce(u64, &[Dep]) -> Result<u64, CUresult>,
    ) -> Result<(), CUresult> {
        let (graph, deps) = {
            let mut graphs = lock(&self.driver.graphs);
            let graph = self.graph(&graphs)?;
            let branch = graphs.captures.branch(self.stream);
            let deps = branch.map(|(_, branch)| branch.deps.clone());
            (graph, deps.unwrap_or_default())
        };
        let whole: Vec<Dep> = deps.iter().map(|dep| Dep::whole(dep.node)).collect();
        let node = make(graph, &whole)?;
        self.came_to(&mut lock(&self.driver.graphs), node);
        Ok(())
    }

    /// Adds a launch. Attributes that say how it relates to its stream become edges.
    pub(crate) fn add_kernel(&self, mut content: Content) -> Result<(), CUresult> {
        let mut early = false;
        if let Content::Kernel(kernel) = &mut content {
            let words = std::mem::take(&mut kernel.work.attributes);
            for attribute in words.as_chunks::<ATTRIBUTE_WORDS>().0 {
                let [id, value, ..] = attribute;
                let id = *id as CUlaunchAttributeID;
                if id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION {
                    early = *value as u32 != 0;
                } else if super::params::is_node_attribute(id) {
                    kernel.work.attributes.extend(attribute);
                }
            }
            let streams = read(&self.driver.streams);
            let priority = streams.get(&self.stream).map_or(0, |it| it.priority());
            if priority != 0 && kernel.attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY).is_none() {
                let value = [u64::from(priority as u32), 0, 0, 0, 0, 0, 0, 0];
                kernel.set_attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY, value);
            }
        }
        let mut graphs = lock(&self.driver.graphs);
        if early {
            self.begin_early(&mut graphs);
        }
        self.add_to(&mut graphs, content).map(|_| ())
    }

    /// The next launch begins when the kernels before it say so.
    fn begin_early(&self, graphs: &mut Graphs) {
        let Some((_, branch)) = graphs.captures.branch(self.stream) else {
            return;
        };
        let mut deps = branch.deps.clone();
        for dep in deps.iter_mut().filter(|dep| dep.data == WHOLE) {
            let node = graphs.nodes.get(&dep.node);
            if node.is_some_and(|node| matches!(node.content, Content::Kernel(_))) {
                dep.data[0] = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8;
                dep.data[2] = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;
            }
        }
        if let Some((_, branch)) = graphs.captures.branch(self.stream) {
            branch.deps = deps;
        }
    }

    /// Notes where the stream is, under an event.
    pub(crate) fn record(&self, event: u64) {
        let captures = &mut lock(&self.driver.graphs).captures;
        if let Some((id, branch)) = captures.branch(self.stream) {
            let deps = branch.deps.clone();
            captures.events.insert(event, (id, deps));
        }
    }
}
