//! Objects of the application that graphs keep alive.

use std::collections::HashMap;

use towline_backend::cuda::*;

use super::model::pointer;
use crate::driver::{Driver, lock};

/// The objects, by number.
#[derive(Default)]
pub(crate) struct Objects(HashMap<u64, Object>);

struct Object {
    data: usize,
    destroy: CUhostFn,
    references: u64,
}

impl Objects {
    fn get(&mut self, number: u64) -> Result<&mut Object, CUresult> {
        self.0.get_mut(&number).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Whether there is such an object.
    pub(crate) fn check(&mut self, number: u64) -> Result<(), CUresult> {
        self.get(number).map(|_| ())
    }

    /// Adds references.
    pub(crate) fn retain(&mut self, number: u64, count: u32) -> Result<(), CUresult> {
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.get(number)?.references += u64::from(count);
        Ok(())
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
        };
        graphs.objects.0.insert(number, object);
        Ok(UserObjectHandle(number).to_raw())
    }

    /// Drops references; the last one has the application's function called, on the thread for that.
    pub(crate) fn release_object(&self, number: u64, count: u32) -> Result<(), CUresult> {
        let ended = {
            let objects = &mut lock(&self.graphs).objects;
            let object = objects.get(number)?;
            let left = object.references.checked_sub(u64::from(count));
            object.references = left.filter(|_| count > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            match object.references {
                0 => objects.0.remove(&number),
                _ => None,
            }
        };
        if let Some(Object {
            data,
            destroy: Some(destroy),
            ..
        }) = ended
        {
            self.host_calls.run(Box::new(move || {
                // SAFETY: the application's contract of cuUserObjectCreate: called once, with this.
                unsafe { destroy(pointer(data)) };
            }));
        }
        Ok(())
    }

    /// Drops all references that something held.
    pub(crate) fn release_objects(&self, held: &HashMap<u64, u32>) {
        for (number, count) in held {
            // An object that is gone was released too often by the application.
            let _ = self.release_object(*number, *count);
        }
    }
}
