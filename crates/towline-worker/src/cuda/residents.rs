//! Objects that lie in a context and end with it: arrays, mipmapped arrays, texture references, textures, surfaces and events. A
//! driver that is given an event after its context has ended crashes.

use std::collections::{HashMap, HashSet};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_session::Entry;
use towline_wire::error::ProtocolError;

use super::session::Session;
use crate::link::Raw;

/// An object with a number in the session's table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resident {
    pub(crate) tag: u8,
    /// The number of its context.
    pub(crate) context: u64,
    /// The array that it is a part of, and ends with.
    pub(crate) whole: Option<u64>,
    /// Bytes that the session is charged for it.
    pub(crate) charged: u64,
}

/// What a texture object or a surface object is bound through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Binding {
    Texture,
    Surface,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Residents {
    pub(crate) objects: HashMap<u64, Resident>,
    /// Textures and surfaces, by the number of their context, their kind, and the number that the driver gave each in its context.
    pub(crate) bindings: HashSet<(u64, Binding, u64)>,
}

impl Session {
    /// Whether objects of this kind end with their context.
    pub(crate) fn resides(tag: u8) -> bool {
        matches!(
            tag,
            wire::ArrayHandle::TAG | wire::MipmappedArrayHandle::TAG | wire::EventHandle::TAG
        )
    }

    /// Enters an object of the context that messages act in.
    pub(crate) fn settle_in(&mut self, id: u64, tag: u8, whole: Option<u64>) {
        if let Some(context) = self.acting.as_ref().map(|context| context.id) {
            let resident = Resident {
                tag,
                context,
                whole,
                charged: 0,
            };
            self.residents.objects.insert(id, resident);
        }
    }

    /// The native object of a handle that may be 0.
    pub(crate) fn optional(
        &self,
        id: u64,
        tag: u8,
    ) -> Result<Result<Raw, CUresult>, ProtocolError> {
        if id == 0 {
            return Ok(Ok(Raw(std::ptr::null_mut())));
        }
        Ok(self.native(id, tag)?.map(Raw))
    }

    /// A context ends, and what lies in it with it. Gives what the session is charged for that, and events, which are to be destroyed before.
    pub(crate) fn forget_residents(&mut self, context: u64) -> (u64, Vec<Raw>) {
        let (table, mut charged, mut events) = (&mut self.table, 0, Vec::new());
        self.residents.objects.retain(|id, resident| {
            let stays = resident.context != context;
            if !stays {
                charged += resident.charged;
                // It is there, since it is in this list.
                let entry = table.remove(*id, resident.tag);
                if let (wire::EventHandle::TAG, Ok(Entry::Live(event))) = (resident.tag, entry) {
                    events.push(event);
                }
            }
            stays
        });
        let bindings = &mut self.residents.bindings;
        bindings.retain(|(home, ..)| *home != context);
        (charged, events)
    }

    /// Gives everything back at the session's end.
    pub(crate) fn release_residents(&mut self) {
        let residents = std::mem::take(&mut self.residents);
        for (context, binding, object) in residents.bindings {
            if let Some(context) = self.contexts.get(&context) {
                context.enter(&*self.api);
                unbind(&*self.api, binding, object);
            }
        }
        for (id, resident) in residents.objects {
            let entry = self.table.remove(id, resident.tag);
            let context = self.contexts.get(&resident.context);
            if let (Ok(Entry::Live(raw)), None, Some(context)) = (entry, resident.whole, context) {
                context.enter(&*self.api);
                self.release(resident.tag, raw);
            }
        }
    }
}

/// Gives an array, mipmapped array or texture reference back.
pub(crate) fn release(api: &dyn CudaApi, tag: u8, raw: Raw) -> CUresult {
    match tag {
        // SAFETY: the table owned the object, and it is in no table any more.
        wire::ArrayHandle::TAG => unsafe { api.cuArrayDestroy(raw.0.cast()) },
        // SAFETY: as above.
        wire::MipmappedArrayHandle::TAG => unsafe { api.cuMipmappedArrayDestroy(raw.0.cast()) },
        // SAFETY: as above.
        wire::TexrefHandle::TAG => unsafe { api.cuTexRefDestroy(raw.0.cast()) },
        _ => CUDA_SUCCESS,
    }
}

/// Ends a texture or a surface.
pub(crate) fn unbind(api: &dyn CudaApi, binding: Binding, object: u64) -> CUresult {
    match binding {
        // SAFETY: the object is the session's, and in no list any more.
        Binding::Texture => unsafe { api.cuTexObjectDestroy(object) },
        // SAFETY: as above.
        Binding::Surface => unsafe { api.cuSurfObjectDestroy(object) },
    }
}
