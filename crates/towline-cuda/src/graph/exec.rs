//! Executable graphs: made on the server, changed, launched.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{HostArea, MovedTo, RebuildError};
use towline_wire::cuda::graph as described;

use super::model::{Content, Deed, Flat, HostRows, Step, WHOLE, pointer};
use crate::driver::{Acting, Driver, lock, read, write};
use crate::memory::Range;
use crate::timeline;

/// Flags that graphs are made executable with.
pub(super) const INSTANTIATE_FLAGS: u64 = (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
    | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
    as u64;

/// Longest description that fits a message.
const DESCRIPTION_LIMIT: usize = 60 << 20;

/// An executable graph.
pub(crate) struct Exec {
    pub(crate) number: u64,
    pub(crate) id: u32,
    /// The graph that it was made from.
    graph: u64,
    session: u8,
    context: u64,
    pub(crate) flags: u64,
    /// The graph that it was made from, where that is the server's too; 0 elsewhere.
    pub(crate) anchor: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    flat: Flat,
    places: HashMap<u64, usize>,
    /// Steps for which the client does something.
    deeds: Vec<usize>,
    /// Events that a launch records.
    records: Vec<u64>,
    /// Allocations that a launch leaves, with their sizes.
    left: Vec<(u64, usize)>,
    /// Allocations of other graphs that a launch frees.
    freed: Vec<u64>,
    disabled: HashSet<u64>,
    launched: Launched,
    /// Changes were posted that the server may not have made yet: to be made in the order of this stream.
    adjusted: Option<u64>,
}

/// Where launches went since the server last told that the driver has all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Launched {
    #[default]
    Nowhere,
    /// To one stream, which has a number of its own.
    On(u64),
    Elsewhere,
}

impl Launched {
    fn and(self, stream: u64) -> Self {
        match self {
            // The default stream depends on who launches.
            _ if stream <= CU_STREAM_LEGACY => Self::Elsewhere,
            Self::Nowhere => Self::On(stream),
            Self::On(other) if other == stream => self,
            Self::On(_) | Self::Elsewhere => Self::Elsewhere,
        }
    }
}

impl Step {
    /// The change to send where it does something else now.
    fn becoming(&self, work: &described::Work) -> Option<described::Node> {
        (self.work != *work).then(|| described::Node {
            number: self.number,
            work: work.clone(),
        })
    }
}

impl State {
    fn new(flat: Flat) -> Self {
        let mut state = Self {
            flat,
            ..Self::default()
        };
        state.look();
        state
    }

    /// Finds what launches need to know.
    fn look(&mut self) {
        let steps = || self.flat.steps.iter().enumerate();
        self.places = steps().map(|(at, step)| (step.number, at)).collect();
        self.deeds = steps()
            .filter(|(_, step)| step.deed.is_some())
            .map(|(at, _)| at)
            .collect();
        (self.left, self.freed) = Default::default();
        for step in &self.flat.steps {
            match &step.content {
                Content::Alloc(alloc) => {
                    self.left.push((alloc.given.0.dptr, alloc.given.0.bytesize));
                }
                Content::Free(address) => self.freed.push(*address),
                _ => {}
            }
        }
        let freed = std::mem::take(&mut self.freed);
        for address in freed {
            let count = self.left.len();
            self.left.retain(|(left, _)| *left != address);
            if self.left.len() == count {
                self.freed.push(address);
            }
        }
        self.look_for_records();
    }

    fn look_for_records(&mut self) {
        let recorded = |step: &Step| match step.content {
            Content::Record(event) => Some(event),
            _ => None,
        };
        self.records = self.flat.steps.iter().filter_map(recorded).collect();
    }
}

impl Exec {
    pub(crate) fn session(&self) -> u8 {
        self.session
    }

    /// Makes it on the server that its session moves to.
    pub(crate) fn remake(&self, there: &MovedTo<'_>) -> Result<(), RebuildError> {
        let state = lock(&self.state);
        let description = state.flat.description().encode();
        let request = wire::GraphMake {
            graph: wire::GraphHandle(0),
            flags: self.flags,
            stream: wire::StreamHandle(0),
            size: description.len() as u64,
            description: &description,
            exec: self.number,
        };
        there.ask(self.context, "an executable graph", &request)?;
        for node in &state.disabled {
            let request = wire::GraphEnable {
                exec: self.number,
                node: *node,
                enabled: 0,
            };
            there.ask(self.context, "a node of an executable graph", &request)?;
        }
        Ok(())
    }

    /// Its session has moved: it was not launched there, and is as it is here.
    pub(crate) fn moved(&self) {
        let mut state = lock(&self.state);
        (state.launched, state.adjusted) = (Launched::Nowhere, None);
    }
}

/// A graph that could not be made executable: why, in which words, and because of which node.
pub(crate) struct Unmade {
    pub(crate) status: CUresult,
    pub(crate) result: CUgraphInstantiateResult,
    pub(crate) node: u64,
}

impl From<CUresult> for Unmade {
    fn from(status: CUresult) -> Self {
        Self {
            status,
            result: CUDA_GRAPH_INSTANTIATE_ERROR,
            node: 0,
        }
    }
}

/// An update that was refused: in which words, and because of which nodes.
pub(crate) struct Unchanged {
    pub(crate) status: CUresult,
    pub(crate) result: CUgraphExecUpdateResult,
    pub(crate) node: u64,
}

impl Unchanged {
    fn new(result: CUgraphExecUpdateResult, node: u64) -> Self {
        Self {
            status: CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            result,
            node,
        }
    }
}

impl From<CUresult> for Unchanged {
    fn from(status: CUresult) -> Self {
        Self {
            status,
            result: CU_GRAPH_EXEC_UPDATE_ERROR,
            node: 0,
        }
    }
}

fn area(rows: &HostRows) -> HostArea {
    HostArea {
        start: pointer(rows.start).cast(),
        width: rows.width,
        height: rows.height,
        depth: rows.depth,
        pitch: rows.pitch,
        slice: rows.slice,
    }
}

/// The edges between steps of a range, of a graph that begins at `first`.
fn inside<'a>(
    edges: &'a [described::Edge],
    range: &'a std::ops::Range<usize>,
    first: usize,
) -> impl Iterator<Item = (usize, usize, [u8; 8])> + 'a {
    edges.iter().filter_map(move |edge| {
        let (from, to) = (edge.from as usize + first, edge.to as usize + first);
        let whole = range.contains(&from) && range.contains(&to);
        whole.then_some((from, to, edge.data))
    })
}

/// Copies rows to rows.
fn move_rows(from: &HostRows, to: &HostRows) {
    for row in (0..from.depth).flat_map(|z| (0..from.height).map(move |y| (y, z))) {
        let at = |rows: &HostRows| rows.start + row.1 * rows.slice + row.0 * rows.pitch;
        let (source, target) = (pointer(at(from)), pointer(at(to)));
        // SAFETY: the application's contract of memcpy nodes: both boxes are valid whenever the graph runs.
        unsafe { std::ptr::copy(source.cast::<u8>(), target.cast::<u8>(), from.width) };
    }
}

impl Driver {
    pub(crate) fn exec(&self, exec: CUgraphExec) -> Result<Arc<Exec>, CUresult> {
        self.ready()?;
        let number = exec.addr() as u64;
        let found = lock(&self.graphs).execs.get(&number).cloned();
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The session in which a graph acts: in the thread's context where that is of the graph's server, for a graph needs none.
    pub(crate) fn acting_for(&self, session: u8) -> Result<Acting<'_>, CUresult> {
        let current = self.current();
        let context = match current.ok().filter(|context| context.session == session) {
            Some(context) => context,
            None => self.context_in_use(Some(session))?,
        };
        self.acting_in(context)
    }

    /// Makes a graph executable.
    pub(crate) fn instantiate(
        &self,
        graph: u64,
        flags: u64,
        stream: CUstream,
    ) -> Result<CUgraphExec, Unmade> {
        if flags & !INSTANTIATE_FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE.into());
        }
        self.current()?;
        self.safe_in_captures()?;
        if flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH as u64 != 0 {
            log::error!(
                "no kernel can launch a graph here: the handle of an executable graph means nothing to the device"
            );
            return Err(CUDA_ERROR_NOT_SUPPORTED.into());
        }
        let (session, anchor, flat, number, id) = {
            let mut graphs = lock(&self.graphs);
            graphs.expect_room()?;
            if graphs.is_body(graph) {
                return Err(CUDA_ERROR_NOT_SUPPORTED.into());
            }
            // As a graph that frees something, which the server refuses (seen with driver 580.159).
            let is_made = |exec: &Arc<Exec>| exec.graph == graph;
            if graphs.graph(graph)?.freed_nothing && graphs.execs.values().any(is_made) {
                return Err(CUDA_ERROR_NOT_SUPPORTED.into());
            }
            let flat = graphs.flatten(graph).map_err(|status| Unmade {
                result: CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
                ..status.into()
            })?;
            let (number, id) = (graphs.number(GraphExecHandle::TAG), graphs.id());
            let known = graphs.graph(graph)?;
            let (session, anchor) = (known.session, known.anchor);
            (session, anchor, flat, number, id)
        };
        let acting = self.acting_for(session)?;
        let handle = acting.stream(stream);
        let description = flat.description().encode();
        if description.len() > DESCRIPTION_LIMIT {
            log::error!(
                "a graph of {} nodes is too large to be sent in one message; divide it",
                flat.steps.len()
            );
            return Err(CUDA_ERROR_OUT_OF_MEMORY.into());
        }
        let answer = acting.ask(
            "cuGraphInstantiate",
            &wire::GraphMake {
                graph: wire::GraphHandle(anchor.map_or(0, |_| graph)),
                flags,
                stream: handle,
                size: description.len() as u64,
                description: &description,
                exec: number,
            },
        )?;
        let reply = wire::GraphMakeReply::decode(&answer.body).map_err(|_| acting.malformed())?;
        if answer.status != CUDA_SUCCESS {
            return Err(Unmade {
                status: answer.status,
                result: reply.result.unwrap_or(CUDA_GRAPH_INSTANTIATE_ERROR),
                node: reply.error_node.unwrap_or(0),
            });
        }
        for step in &flat.steps {
            if let Some(context) = step.content.device_context() {
                self.context(context)?.note_graph();
            }
        }
        let exec = Exec {
            number,
            id,
            graph,
            session,
            context: acting.context.number,
            flags,
            anchor: anchor.map_or(0, |_| graph),
            state: Mutex::new(State::new(flat)),
        };
        lock(&self.graphs).execs.insert(number, Arc::new(exec));
        Ok(GraphExecHandle(number).to_raw())
    }

    pub(crate) fn destroy_exec(&self, exec: CUgraphExec) -> Result<(), CUresult> {
        let exec = self.exec(exec)?;
        lock(&self.graphs).execs.remove(&exec.number);
        // In a context that is gone it has ended with that.
        if let Ok(acting) = self
            .context(exec.context)
            .and_then(|context| self.acting_in(context))
        {
            acting.post(&wire::GraphEnd { exec: exec.number })?;
        }
        Ok(())
    }

    /// Forgets executable graphs of a context that ends.
    pub(crate) fn drop_graphs_of(&self, context: u64) {
        let mut graphs = lock(&self.graphs);
        graphs.execs.retain(|_, exec| exec.context != context);
        for graph in graphs.graphs.values_mut() {
            graph.anchor = graph.anchor.filter(|anchor| *anchor != context);
        }
    }

    pub(crate) fn upload(&self, exec: CUgraphExec, stream: CUstream) -> Result<(), CUresult> {
        let (acting, handle) = self.on_uncaptured(stream)?;
        let exec = self.exec(exec)?;
        if acting.context.session != exec.session {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        acting.post(&wire::GraphBring {
            exec: exec.number,
            stream: handle,
        })?;
        acting.touch(handle);
        Ok(())
    }

    pub(crate) fn launch_graph(&self, exec: CUgraphExec, stream: CUstream) -> Result<(), CUresult> {
        let (acting, handle) = self.on_uncaptured(stream)?;
        let exec = self.exec(exec)?;
        if acting.context.session != exec.session {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.settle_memory(&acting, &exec)?;
        let posting = acting.context.mirrored.posting();
        self.before_work(&acting, handle)?;
        // Held until the launch is posted: what nodes do for it is what they do now.
        let mut state = lock(&exec.state);
        self.settle_changes(&exec, &mut state, handle.0)?;
        state.launched = state.launched.and(handle.0);
        let mut calls: SmallVec<[u64; 16]> = SmallVec::new();
        let steps = || {
            let deeds = state.deeds.iter();
            deeds.filter_map(|at| state.flat.steps.get(*at))
        };
        // What is sent first: it waits for bytes that earlier launches bring there, and not for this one's.
        for takes in [false, true] {
            for step in steps() {
                let Some(deed) = step.deed else { continue };
                let is_now = matches!(deed, Deed::Take(_)) == takes;
                if !is_now {
                    continue;
                }
                let deed = match (state.disabled.contains(&step.number), deed) {
                    (false, deed) => deed,
                    // For the server it is a function of ours, which is called all the same.
                    (true, Deed::Move(..)) => Deed::Settle,
                    (true, _) => continue,
                };
                calls.extend([step.number, self.expect(&acting, handle, &deed)?]);
            }
        }
        let begun = timeline::begin(&acting, handle);
        acting.post(&wire::GraphRun {
            exec: exec.number,
            stream: handle,
            words: calls.len() as u32,
            calls: wire::List::Values(&calls),
        })?;
        timeline::end(begun, &acting, handle, || "graph".into());
        acting.touch(handle);
        drop(posting);
        let (records, held) = (state.records.clone(), state.flat.held.clone());
        drop(state);
        if !held.is_empty() {
            // Held until the launch has ended, whatever becomes of the executable graph.
            let (mark, _) = acting.mark_here(handle)?;
            acting.session.when_ended(mark, |_| drop(held));
            acting.session.forget(mark);
        }
        for event in records {
            self.recorded_by_graph(&acting, handle, event)?;
        }
        acting.after_launch(handle)
    }

    /// Notes what a launch allocates for others to free, and what it frees of others. What an earlier launch has left must be free again.
    fn settle_memory(&self, acting: &Acting<'_>, exec: &Exec) -> Result<(), CUresult> {
        let (left, freed) = {
            let state = lock(&exec.state);
            if state.left.is_empty() && state.freed.is_empty() {
                return Ok(());
            }
            (state.left.clone(), state.freed.clone())
        };
        let frees_itself = exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH as u64 != 0;
        let mut graphs = lock(&self.graphs);
        if !frees_itself
            && left
                .iter()
                .any(|(address, _)| graphs.left.contains(address))
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for address in freed {
            graphs.left.remove(&address);
        }
        graphs.left.extend(left.iter().map(|(address, _)| *address));
        drop(graphs);
        for (address, size) in left {
            if read(&self.memory).find(address).is_none() {
                let range = Range {
                    of_graph: true,
                    ..Range::device(&acting.context, size, self.new_id())
                };
                write(&self.memory).insert(address, range);
            }
        }
        Ok(())
    }

    /// The number under which the server calls for what a node does, in a launch on `stream`.
    fn expect(
        &self,
        acting: &Acting<'_>,
        stream: StreamHandle,
        deed: &Deed,
    ) -> Result<u64, CUresult> {
        match *deed {
            // Captured before a kernel first used that memory: its pages may be protected when the data moves.
            Deed::Fetch(rows) | Deed::FetchSettled(rows) | Deed::Take(rows)
                if self.device_side(rows.start as u64, 1) != Ok(None) =>
            {
                Err(CUDA_ERROR_NOT_SUPPORTED)
            }
            Deed::Function(function, data) => {
                self.host_number(&self.host_calls, acting, stream, move |ended| {
                    if let Some(function) = function
                        && ended == CUDA_SUCCESS
                    {
                        // SAFETY: the application's contract of host nodes: the function may be called when the graph runs.
                        unsafe { function(pointer(data)) };
                    }
                })
            }
            Deed::Settle => self.host_number(&self.own_calls, acting, stream, |_| {}),
            Deed::Move(from, to) => {
                self.host_number(&self.own_calls, acting, stream, move |ended| {
                    if ended == CUDA_SUCCESS {
                        move_rows(&from, &to);
                    }
                })
            }
            // SAFETY: the application's contract of memcpy nodes: the memory is readable whenever the graph runs.
            Deed::Fetch(rows) => unsafe { acting.session.offer(&area(&rows), true) },
            // SAFETY: as above.
            Deed::FetchSettled(rows) => unsafe { acting.session.offer(&area(&rows), false) },
            // SAFETY: as above: writable.
            Deed::Take(rows) => Ok(unsafe {
                acting
                    .session
                    .await_data(acting.actor, stream.0, &area(&rows))
            }),
        }
    }

    /// Sends what nodes of an executable graph are to do; with edges, all of them as they are to be. Where launches differ in the values of
    /// their parameters alone, nothing is left for the driver to judge, and nobody waits for it.
    fn send_changes(
        &self,
        exec: &Exec,
        state: &mut State,
        changes: described::Graph,
    ) -> Result<(), (CUresult, u64)> {
        let nodes = &changes.nodes;
        if nodes.is_empty() {
            return Ok(());
        }
        let plain = |status| (status, 0);
        let acting = self.acting_for(exec.session).map_err(plain)?;
        let only_values = nodes.iter().all(|node| state.differs_in_values(node));
        // Held until it is posted: what ends a stream is posted after that stream was forgotten.
        let streams = read(&self.streams);
        let stream = match state.launched {
            Launched::On(stream) if only_values && streams.contains_key(&stream) => stream,
            _ => {
                drop(streams);
                return self.ask_changes(exec, state, &changes);
            }
        };
        let changes = changes.encode();
        state.adjusted = Some(stream);
        let request = wire::GraphAdjust {
            exec: exec.number,
            stream: wire::StreamHandle(stream),
            size: changes.len() as u64,
            changes: &changes,
        };
        acting.post(&request).map_err(plain)
    }

    /// Has the driver change nodes of an executable graph, after all that was posted for it.
    fn ask_changes(
        &self,
        exec: &Exec,
        state: &mut State,
        changes: &described::Graph,
    ) -> Result<(), (CUresult, u64)> {
        let plain = |status| (status, 0);
        let acting = self.acting_for(exec.session).map_err(plain)?;
        let changes = changes.encode();
        let request = wire::GraphChange {
            exec: exec.number,
            size: changes.len() as u64,
            changes: &changes,
        };
        let answer = acting.ask("cuGraphExecUpdate", &request).map_err(plain)?;
        let reply = wire::GraphChangeReply::decode(&answer.body);
        let reply = reply.map_err(|_| plain(acting.malformed()))?;
        // The server has waited until the driver had all launches and changes before this one.
        (state.launched, state.adjusted) = (Launched::Nowhere, None);
        match answer.status {
            CUDA_SUCCESS => Ok(()),
            status => Err((status, reply.error_node.unwrap_or(0))),
        }
    }

    /// Has a launch on `stream` come after the changes that were posted in another one's order.
    fn settle_changes(&self, exec: &Exec, state: &mut State, stream: u64) -> Result<(), CUresult> {
        if state.adjusted.is_none_or(|adjusted| adjusted == stream) {
            return Ok(());
        }
        self.ask_changes(exec, state, &described::Graph::default())
            .map_err(|(status, _)| status)
    }

    /// Replaces what one node of an executable graph does.
    pub(crate) fn change_node(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        mut content: Content,
    ) -> Result<(), CUresult> {
        let exec = self.exec(exec)?;
        content.check_session(exec.session)?;
        let mut state = lock(&exec.state);
        let at = state.places.get(&(node.addr() as u64)).copied();
        let at = at.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let step = state.flat.steps.get(at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if let (Content::Kernel(old), Content::Kernel(new)) = (&step.content, &mut content) {
            // Attributes are no parameters: they stay.
            new.work.attributes.clone_from(&old.work.attributes);
        }
        let change = changed(step, &content).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let changes = described::Graph {
            nodes: change.into_iter().collect(),
            edges: Vec::new(),
        };
        self.send_changes(&exec, &mut state, changes)
            .map_err(|(status, _)| status)?;
        state.take(at, content);
        Ok(())
    }

    /// Makes an executable graph do what another graph does, which has the same nodes and edges.
    pub(crate) fn update(&self, exec: &Exec, graph: u64) -> Result<(), Unchanged> {
        let flat = lock(&self.graphs).flatten(graph)?;
        let mut state = lock(&exec.state);
        let range = 0..state.flat.steps.len();
        self.adopt(exec, &mut state, range, &flat)
    }

    /// As [`Self::update`], for the graph of one node.
    pub(crate) fn update_child(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        child: u64,
    ) -> Result<(), CUresult> {
        let exec = self.exec(exec)?;
        let mut flat = lock(&self.graphs).flatten(child)?;
        // Those of the whole graph are at its end.
        flat.steps.truncate(flat.steps.len() - flat.guards);
        let mut state = lock(&exec.state);
        let number = node.addr() as u64;
        let at = state.places.get(&number).copied();
        let first = at.ok_or(CUDA_ERROR_INVALID_VALUE)? + 1;
        match state.flat.children.get(&number) {
            None => return Err(CUDA_ERROR_INVALID_VALUE),
            Some(steps) if *steps == flat.steps.len() => {}
            // Seen with driver 580.159.
            Some(_) => return Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
        }
        let range = first..first.saturating_add(flat.steps.len());
        self.adopt(&exec, &mut state, range, &flat)
            .map_err(|unchanged| match unchanged.status {
                CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => CUDA_ERROR_INVALID_VALUE,
                status => status,
            })
    }

    fn adopt(
        &self,
        exec: &Exec,
        state: &mut State,
        range: std::ops::Range<usize>,
        flat: &Flat,
    ) -> Result<(), Unchanged> {
        let topology = |node| Unchanged::new(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node);
        let steps = state.flat.steps.get(range.clone());
        let steps = steps.filter(|steps| steps.len() == flat.steps.len());
        let steps = steps.ok_or_else(|| topology(0))?;
        let mine = || inside(&state.flat.edges, &range, 0);
        let theirs = || inside(&flat.edges, &range, range.start);
        // In the same order, mostly.
        if !mine().eq(theirs()) {
            let (mine, theirs): (HashSet<_>, HashSet<_>) = (mine().collect(), theirs().collect());
            if let Some((_, to, _)) = mine.symmetric_difference(&theirs).next() {
                let node = flat.steps.get(to - range.start);
                return Err(topology(node.map_or(0, |step| step.number)));
            }
        }
        let mut changes = described::Graph::default();
        let mut sources = HashMap::new();
        // The last that differs is told (seen with driver 580.159).
        for (step, new) in steps.iter().zip(&flat.steps).rev() {
            new.content.check_session(exec.session).map_err(|_| {
                Unchanged::new(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, new.number)
            })?;
            let change = match (&step.work, &new.work) {
                (described::Work::Conditional { .. }, described::Work::Conditional { .. }) => {
                    expect_like(&step.work, &new.work).map(|()| step.becoming(&new.work))
                }
                _ => changed(step, &new.content),
            };
            if let Some(node) = change.map_err(|result| Unchanged::new(result, new.number))? {
                sources.insert(node.number, new.number);
                changes.nodes.push(node);
            }
        }
        let is_conditional =
            |node: &described::Node| matches!(node.work, described::Work::Conditional { .. });
        if changes.nodes.iter().any(is_conditional) {
            // Nodes of bodies are changed in the graph, which the executable one then becomes like: all of it has to be as told.
            let all = steps
                .iter()
                .zip(&flat.steps)
                .map(|(step, new)| described::Node {
                    number: step.number,
                    work: new.work.clone(),
                });
            changes.nodes = all.collect();
            changes.edges.clone_from(&flat.edges);
        }
        self.send_changes(exec, state, changes)
            .map_err(|(status, node)| Unchanged {
                status: match status {
                    CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_NOT_SUPPORTED => {
                        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
                    }
                    status => status,
                },
                result: CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                node: sources.get(&node).copied().unwrap_or(0),
            })?;
        // A graph's references begin where its steps do, and no other's do just behind them.
        let (first, own) = (range.start, range.start..=range.end);
        state.flat.held.retain(|(at, _)| !own.contains(at));
        let held = flat.held.iter();
        let held = held.map(|(at, held)| (first + at, Arc::clone(held)));
        state.flat.held.extend(held);
        for (at, new) in range.zip(&flat.steps) {
            // What has to be in place before bytes are sent depends on the graph, not on the node alone.
            let before = state.flat.steps.get(at).and_then(|step| step.deed);
            state.take(at, new.content.clone());
            if let Some(step) = state.flat.steps.get_mut(at) {
                if matches!(new.content, Content::Conditional(_)) {
                    step.work.clone_from(&new.work);
                }
                step.deed = match (before, new.deed) {
                    (Some(Deed::FetchSettled(_)), Some(Deed::Fetch(rows))) => {
                        Some(Deed::FetchSettled(rows))
                    }
                    (_, deed) => deed,
                };
            }
        }
        Ok(())
    }

    /// Switches a node on or off.
    pub(crate) fn enable(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        enabled: u32,
    ) -> Result<(), CUresult> {
        let exec = self.exec(exec)?;
        let number = node.addr() as u64;
        let mut state = lock(&exec.state);
        state.switchable(number)?;
        if (enabled != 0) != state.disabled.contains(&number) {
            return Ok(());
        }
        if !state.is_of_client(number) {
            let acting = self.acting_for(exec.session)?;
            let request = wire::GraphEnable {
                exec: exec.number,
                node: number,
                enabled: u32::from(enabled != 0),
            };
            acting.call_for("cuGraphNodeSetEnabled", &request)?;
        }
        match enabled {
            0 => state.disabled.insert(number),
            _ => state.disabled.remove(&number),
        };
        Ok(())
    }

    pub(crate) fn is_enabled(&self, exec: CUgraphExec, node: CUgraphNode) -> Result<u32, CUresult> {
        let exec = self.exec(exec)?;
        let number = node.addr() as u64;
        let state = lock(&exec.state);
        state.switchable(number)?;
        Ok(u32::from(!state.disabled.contains(&number)))
    }

    /// An event that a launch records passes, as far as the application is told, when the launch is over.
    fn recorded_by_graph(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        event: u64,
    ) -> Result<(), CUresult> {
        let known = read(&self.events).get(&event).cloned();
        let Some(known) = known else {
            return Ok(());
        };
        let (mark, position) = acting.mark_here(stream)?;
        known.recorded_behind(acting, stream.0, mark, position);
        Ok(())
    }
}

impl State {
    /// A step does something else of its kind from now on.
    fn take(&mut self, at: usize, content: Content) {
        let Some(step) = self.flat.steps.get_mut(at) else {
            return;
        };
        if matches!(content, Content::Alloc(_)) {
            return;
        }
        if !matches!(content, Content::Child(_) | Content::Conditional(_)) {
            (step.work, step.deed) = content.work();
        }
        let records = matches!(content, Content::Record(_));
        step.content = content;
        if records {
            self.look_for_records();
        }
    }

    /// Whether a step is to launch what it launches, as it does, with other parameters.
    fn differs_in_values(&self, node: &described::Node) -> bool {
        let at = self.places.get(&node.number);
        let step = at.and_then(|at| self.flat.steps.get(*at));
        match (step.map(|step| &step.work), &node.work) {
            (Some(described::Work::Kernel(old)), described::Work::Kernel(new)) => {
                let shape = |kernel: &described::Kernel| {
                    let (grid, block, shared) = (kernel.grid, kernel.block, kernel.shared_bytes);
                    (
                        kernel.function,
                        kernel.context,
                        grid,
                        block,
                        shared,
                        kernel.params.len(),
                    )
                };
                shape(old) == shape(new) && old.attributes == new.attributes
            }
            _ => false,
        }
    }

    /// Whether a step is a copy within the application's memory, which the client makes.
    fn is_of_client(&self, number: u64) -> bool {
        let at = self.places.get(&number);
        let step = at.and_then(|at| self.flat.steps.get(*at));
        step.is_some_and(|step| matches!(step.deed, Some(Deed::Move(..))))
    }

    fn switchable(&self, number: u64) -> Result<(), CUresult> {
        let step = self
            .places
            .get(&number)
            .and_then(|at| self.flat.steps.get(*at));
        match step.map(|step| &step.content) {
            Some(Content::Kernel(_) | Content::Copy(_) | Content::Fill(_)) => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Refuses what becomes of a conditional node, or of a node in its bodies, where more than parameters of nodes in bodies differs.
fn expect_like(
    old: &described::Work,
    new: &described::Work,
) -> Result<(), CUgraphExecUpdateResult> {
    use described::Work::{Conditional, Kernel};
    let (old, new) = match (old, new) {
        (
            Conditional {
                handle,
                kind,
                context,
                bodies,
            },
            Conditional {
                handle: of,
                kind: as_kind,
                context: within,
                bodies: new,
            },
        ) if (handle, kind, context) == (of, as_kind, within) && bodies.len() == new.len() => {
            (bodies, new)
        }
        (Conditional { .. }, Conditional { .. }) => {
            return Err(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
        }
        (Kernel(old), Kernel(new)) if old.attributes != new.attributes => {
            return Err(CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
        }
        (old, new) if discriminant(old) != discriminant(new) => {
            return Err(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
        }
        _ => return Ok(()),
    };
    for (old, new) in old.iter().zip(new) {
        let numbers = |graph: &described::Graph| -> Vec<u64> {
            graph.nodes.iter().map(|node| node.number).collect()
        };
        if old.edges != new.edges || numbers(old) != numbers(new) {
            return Err(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        }
        for (old, new) in old.nodes.iter().zip(&new.nodes) {
            expect_like(&old.work, &new.work)?;
        }
    }
    Ok(())
}

/// The request that has a step do something else; none when that is the client's alone.
fn changed(
    step: &Step,
    content: &Content,
) -> Result<Option<described::Node>, CUgraphExecUpdateResult> {
    if step.content.kind() != content.kind() {
        return Err(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    }
    let (work, deed) = match content {
        // An allocation cannot be changed (seen with driver 580.159).
        Content::Child(_) | Content::Alloc(_) => return Ok(None),
        Content::Free(address) => return step.content.frees(*address).map(|()| None),
        Content::Conditional(_) => return Err(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED),
        content => content.work(),
    };
    let same_way = matches!(
        (step.deed, deed),
        (None, None)
            | (Some(Deed::Function(..)), Some(Deed::Function(..)))
            | (Some(Deed::Settle), Some(Deed::Function(..)))
            | (
                Some(Deed::Fetch(_) | Deed::FetchSettled(_)),
                Some(Deed::Fetch(_))
            )
            | (Some(Deed::Take(_)), Some(Deed::Take(_)))
            | (Some(Deed::Move(..)), Some(Deed::Move(..)))
    );
    if !same_way {
        return Err(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    }
    if let (described::Work::Kernel(old), described::Work::Kernel(new)) = (&step.work, &work)
        && old.attributes != new.attributes
    {
        return Err(CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
    }
    Ok(step.becoming(&work))
}

/// What begins an edge that orders whole nodes.
pub(crate) fn is_plain(data: [u8; 8]) -> bool {
    data == WHOLE
}
