//! Objects of the application that graphs keep alive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use towline_backend::cuda::*;

use super::model::pointer;
use crate::driver::{Driver, lock};
use crate::stream::HostCalls;

/// The objects, by number.
#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<Mutex<HashMap<u64, Object>>>);

struct Object {
    data: usize,
    destroy: CUhostFn,
    references: u64,
    /// The thread that calls the application's function.
    calls: HostCalls,
}

impl Objects {
    /// Whether there is such an object.
    pub(crate) fn check(&self, number: u64) -> Result<(), CUresult> {
        let known = lock(&self.0).contains_key(&number);
        known.then_some(()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Adds references.
    pub(crate) fn retain(&self, number: u64, count: u32) -> Result<(), CUresult> {
        let mut all = lock(&self.0);
        let object = all.get_mut(&number).filter(|_| count > 0);
        object.ok_or(CUDA_ERROR_INVALID_VALUE)?.references += u64::from(count);
        Ok(())
    }

    /// Drops references; the last one has the application's function called, on the thread for that.
    pub(crate) fn release(&self, number: u64, count: u32) -> Result<(), CUresult> {
        let mut all = lock(&self.0);
        let object = all.get_mut(&number).filter(|_| count > 0);
        let object = object.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let left = object.references.checked_sub(u64::from(count));
        object.references = left.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if object.references > 0 {
            return Ok(());
        }
        let ended = all.remove(&number);
        drop(all);
        if let Some(Object {
            data,
            destroy: Some(destroy),
            calls,
            ..
        }) = ended
        {
            calls.run(Box::new(move || {
                // As CUDA has it, it makes no calls; one that waited would wait for this thread.
                crate::thread::in_host_function(|| {
                    // SAFETY: the application's contract of cuUserObjectCreate: called once, with this.
                    unsafe { destroy(pointer(data)) };
                });
            }));
        }
        Ok(())
    }
}

/// References that a graph holds, or what was made of it. A clone has as many of its own; they are released with this.
#[derive(Default)]
pub(crate) struct Held {
    objects: Objects,
    counts: HashMap<u64, u32>,
}

impl Held {
    pub(crate) fn nothing(objects: &Objects) -> Self {
        Self {
            objects: objects.clone(),
            counts: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Takes references over.
    pub(crate) fn take(&mut self, number: u64, count: u32) {
        let held = self.counts.entry(number).or_default();
        *held = held.saturating_add(count);
    }

    /// Releases some of them.
    pub(crate) fn release(&mut self, number: u64, count: u32) -> Result<(), CUresult> {
        let held = self.counts.get_mut(&number);
        let held = held.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        *held = held.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if *held == 0 {
            self.counts.remove(&number);
        }
        self.objects.release(number, count)
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        for (number, count) in &self.counts {
            // An object that is gone was released too often by the application.
            let _ = self.objects.retain(*number, *count);
        }
        Self {
            objects: self.objects.clone(),
            counts: self.counts.clone(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (number, count) in &self.counts {
            // As above.
            let _ = self.objects.release(*number, *count);
        }
    }
}

impl Driver {
    pub(crate) fn create_object(
        &self,
        data: usize,
        destroy: CUhostFn,
        count: u32,
        flags: u32,
    ) -> Result<CUuserObject, CUresult> {
        self.ready()?;
        if destroy.is_none() || count == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut graphs = lock(&self.graphs);
        let number = graphs.number(UserObjectHandle::TAG);
        let object = Object {
            data,
            destroy,
            references: u64::from(count),
            calls: self.host_calls.clone(),
        };
        lock(&graphs.objects.0).insert(number, object);
        Ok(UserObjectHandle(number).to_raw())
    }
}
