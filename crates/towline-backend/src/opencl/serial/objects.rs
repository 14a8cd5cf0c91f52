//! What the adapter knows of a serial vendor's objects, by the vendor's own handles.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::super::handles::{Destructors, objects};
use super::super::*;
use super::map::Mapping;
use super::turn;

pub(super) type Event = scheduler::Event<usize>;
pub(super) type Queue = scheduler::Queue<usize>;

/// One reference to an object of the vendor's. Commands keep it, so that an object outlives them whatever the application releases.
pub(super) struct Vendored {
    pub(super) handle: usize,
    pub(super) destructors: Destructors,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Vendored {
    pub(super) fn new(handle: usize, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            handle,
            destructors: Destructors::default(),
            release: Some(Box::new(release)),
        }
    }

    pub(super) fn handle<H>(&self) -> *mut H {
        std::ptr::with_exposed_provenance_mut(self.handle)
    }
}

impl Drop for Vendored {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            turn::end(release, std::mem::take(&mut self.destructors));
        }
    }
}

/// A command queue: the vendor's, on which one command at a time is finished, and ours, on which the others wait.
pub(super) struct CommandQueue {
    pub(super) vendored: Arc<Vendored>,
    pub(super) queue: Arc<Queue>,
}

/// What a memory object's contents look like.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Buffer {
        size: usize,
    },
    Image {
        /// Bytes of one element.
        element: usize,
        row_pitch: usize,
        /// Zero where there is no third dimension and no array.
        slice_pitch: usize,
        /// Its second dimension counts images, and the slice pitch lies between them.
        is_array_of_rows: bool,
    },
}

/// A memory object.
pub(super) struct Memory {
    pub(super) vendored: Vendored,
    pub(super) context: usize,
    pub(super) shape: Shape,
    /// The application's memory that it was made over (`CL_MEM_USE_HOST_PTR`); maps lead there.
    pub(super) host: Option<usize>,
    maps: Mutex<Vec<Mapping>>,
}

impl Memory {
    pub(super) fn new(
        vendored: Vendored,
        context: usize,
        shape: Shape,
        host: Option<usize>,
    ) -> Self {
        Self {
            vendored,
            context,
            shape,
            host,
            maps: Mutex::default(),
        }
    }

    pub(super) fn mem(&self) -> cl_mem {
        self.vendored.handle()
    }

    pub(super) fn maps(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the range lies inside the buffer.
    pub(super) fn range(&self, offset: usize, size: usize) -> Result<(), cl_int> {
        let Shape::Buffer { size: all } = self.shape else {
            return Err(CL_INVALID_MEM_OBJECT);
        };
        let end = offset.checked_add(size).filter(|end| *end <= all);
        end.map(drop).ok_or(CL_INVALID_VALUE)
    }
}

/// A sampler.
pub(super) struct Sampler {
    pub(super) _vendored: Vendored,
}

/// An object that an argument names. The kernel does not keep it, but a launch does.
#[derive(Clone)]
pub(super) enum Named {
    Memory(Weak<Memory>),
    Sampler(Weak<Sampler>),
}

/// What keeps an argument's object for a launch.
pub(super) enum Kept {
    Memory(#[expect(dead_code, reason = "it is only kept")] Arc<Memory>),
    Sampler(#[expect(dead_code, reason = "it is only kept")] Arc<Sampler>),
}

impl Named {
    pub(super) fn keep(&self) -> Option<Kept> {
        match self {
            Self::Memory(memory) => memory.upgrade().map(Kept::Memory),
            Self::Sampler(sampler) => sampler.upgrade().map(Kept::Sampler),
        }
    }
}

/// An argument as it was set.
#[derive(Clone)]
pub(super) struct Argument {
    pub(super) size: usize,
    /// `None` for local memory.
    pub(super) value: Option<Arc<[u8]>>,
    pub(super) named: Option<Named>,
}

/// A kernel.
pub(super) struct Kernel {
    pub(super) vendored: Vendored,
    pub(super) context: usize,
    /// The work-group size that its source demands; zeros for none.
    pub(super) required_group: [usize; 3],
    pub(super) arguments: Mutex<Vec<Option<Argument>>>,
}

impl Kernel {
    pub(super) fn arguments(&self) -> MutexGuard<'_, Vec<Option<Argument>>> {
        self.arguments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

objects! {
    Object {
        CommandQueue: CL_INVALID_COMMAND_QUEUE,
        Event: CL_INVALID_EVENT,
        Kernel: CL_INVALID_KERNEL,
        Memory: CL_INVALID_MEM_OBJECT,
        Sampler: CL_INVALID_SAMPLER,
    }
}
