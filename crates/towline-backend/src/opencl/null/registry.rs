//! What the handles of the host-memory device name.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::super::handles::{Alive, Destructors, objects};
use super::super::scheduler::{self, Scheduler};
use super::super::{handles, *};
use super::kernels::{Kernel, Program};
use super::memory::Memory;

pub(super) type Event = scheduler::Event<Arc<Context>>;
pub(super) type Queue = scheduler::Queue<Arc<Context>>;
pub(super) type Registry = handles::Registry<Object>;

/// A context: which devices its objects are for.
pub(super) struct Context {
    pub(super) handle: usize,
    /// Handles of its devices.
    pub(super) devices: Vec<usize>,
    pub(super) properties: Vec<cl_context_properties>,
    pub(super) destructors: Destructors,
    pub(super) _alive: Alive,
}

objects! {
    Object {
        Context: CL_INVALID_CONTEXT,
        Event: CL_INVALID_EVENT,
        Kernel: CL_INVALID_KERNEL,
        Memory: CL_INVALID_MEM_OBJECT,
        Program: CL_INVALID_PROGRAM,
        Queue: CL_INVALID_COMMAND_QUEUE,
    }
}

/// What all objects of one platform share.
pub(super) struct Shared {
    pub(super) registry: Registry,
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) allocated: Arc<AtomicUsize>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            registry: Registry::default(),
            scheduler: Arc::new(Scheduler::new()),
            allocated: Arc::default(),
        }
    }
}
