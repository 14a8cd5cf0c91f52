//! Aborts of communicators, on threads of their own. The library's abort waits for graphs that have operations of its communicator, which may
//! end much later: it must hold up neither other aborts nor what ends the graphs.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use towline_backend::cuda::*;
use towline_backend::nccl::Collectives as Library;

use super::Communicator;
use crate::cuda::context;
use crate::cuda::shared::lock;

/// Most threads that abort communicators of a session; further aborts wait.
const THREADS: usize = 32;

/// Communicators that come to their end.
#[derive(Default)]
pub(super) struct Endings {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    all: Vec<Arc<Communicator>>,
    /// Those of them that no thread has begun to abort.
    waiting: VecDeque<Arc<Communicator>>,
    threads: usize,
}

impl Endings {
    /// Aborts a communicator that nobody uses any more, on another thread.
    pub(super) fn abort(
        self: &Arc<Self>,
        communicator: &Arc<Communicator>,
        api: &Arc<dyn CudaApi>,
        library: &Arc<dyn Library>,
    ) {
        let mut state = lock(&self.state);
        state.all.push(Arc::clone(communicator));
        state.waiting.push_back(Arc::clone(communicator));
        if state.threads == THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        let (endings, its_api, its_library) =
            (Arc::clone(self), Arc::clone(api), Arc::clone(library));
        let thread = std::thread::Builder::new().name("collectives".into());
        let spawned = thread.spawn(move || endings.work(&*its_api, &*its_library));
        if spawned.is_err() {
            self.work(&**api, &**library);
        }
    }

    fn work(&self, api: &dyn CudaApi, library: &dyn Library) {
        let mut state = lock(&self.state);
        while let Some(communicator) = state.waiting.pop_front() {
            drop(state);
            if communicator.context.enter(api) == CUDA_SUCCESS {
                communicator.abort(library);
                context::look_again();
            }
            communicator.put_away();
            state = self.over(communicator);
        }
        state.threads -= 1;
    }

    /// Has `end` end a communicator here and now.
    pub(super) fn during<T>(&self, communicator: &Arc<Communicator>, end: impl FnOnce() -> T) -> T {
        lock(&self.state).all.push(Arc::clone(communicator));
        let outcome = end();
        drop(self.over(Arc::clone(communicator)));
        outcome
    }

    /// A communicator has ended: nobody here holds it, nor its context, any more.
    fn over(&self, communicator: Arc<Communicator>) -> std::sync::MutexGuard<'_, State> {
        let ended = Arc::as_ptr(&communicator);
        drop(communicator);
        let mut state = lock(&self.state);
        state.all.retain(|one| Arc::as_ptr(one) != ended);
        self.changed.notify_all();
        state
    }

    /// Those that come to their end.
    pub(super) fn all(&self) -> Vec<Arc<Communicator>> {
        lock(&self.state).all.clone()
    }

    /// Waits for communicators' ends, but no longer than that.
    pub(super) fn join(&self, ending: &[Arc<Communicator>], patience: Duration) {
        let still = |state: &mut State| {
            let mut all = state.all.iter();
            all.any(|one| ending.iter().any(|other| Arc::ptr_eq(one, other)))
        };
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.state), patience, still);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
