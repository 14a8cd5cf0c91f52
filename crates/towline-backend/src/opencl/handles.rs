//! Handles of objects that no vendor made: numbers that are never given twice, so that a stale or foreign one is an error, and no
//! crash. (The adapter for serial vendors also books the vendor's objects here, by the vendor's handles.)
//!
//! A handle is no address: nothing is ever read through it. Objects keep each other alive by `Arc`, as the specification's implicit
//! references do; the registry only knows what the application may still name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::*;

/// Where handles start: no address of any supported machine, so whoever reads through one faults at once.
const FIRST_HANDLE: usize = 0x7a00_0000_0000_0010;
const HANDLE_STEP: usize = 0x10;

/// Whether the number is a handle that [`Registry::mint`] gave.
pub(super) fn is_minted(handle: usize) -> bool {
    handle >= FIRST_HANDLE
}

/// Counts an object for as long as it lives, named or not.
pub(super) struct Alive(Arc<AtomicU64>);

impl Alive {
    pub(super) fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A function of the application, to be called once with an object's handle.
pub(super) struct Destructor(Box<dyn FnOnce() + Send>);

impl Destructor {
    /// A call of `function` with `handle` and `user_data`.
    pub(super) fn new<H: 'static>(
        function: unsafe extern "C" fn(*mut H, *mut c_void),
        handle: *mut H,
        user_data: *mut c_void,
    ) -> Self {
        let (handle, user_data) = (handle.expose_provenance(), user_data.expose_provenance());
        Self(Box::new(move || {
            // SAFETY: the application gave this function to be called with its pointer when the object ends.
            unsafe {
                function(
                    std::ptr::with_exposed_provenance_mut(handle),
                    std::ptr::with_exposed_provenance_mut(user_data),
                )
            }
        }))
    }
}

/// Destructor callbacks of one object, called in reverse order when it ends.
#[derive(Default)]
pub(super) struct Destructors(Mutex<Vec<Destructor>>);

impl Destructors {
    pub(super) fn add(&self, destructor: Destructor) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(destructor);
    }
}

impl Drop for Destructors {
    fn drop(&mut self) {
        let all = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for destructor in all.drain(..).rev() {
            (destructor.0)();
        }
    }
}

/// One kind of object among those that `O` may be, and the error of a handle that names none of it.
pub(super) trait Kind<O>: Sized {
    const INVALID: cl_int;
    fn wrap(object: Arc<Self>) -> O;
    fn of(object: &O) -> Option<&Arc<Self>>;
}

/// Declares what a handle may name, each kind with the error of a handle that names none of it.
macro_rules! objects {
    ($object:ident { $($kind:ident: $invalid:ident,)* }) => {
        /// What a handle names.
        pub(super) enum $object {
            $($kind(Arc<$kind>),)*
        }

        $(impl $crate::opencl::handles::Kind<$object> for $kind {
            const INVALID: cl_int = $invalid;
            fn wrap(object: Arc<Self>) -> $object {
                $object::$kind(object)
            }
            fn of(object: &$object) -> Option<&Arc<Self>> {
                match object {
                    $object::$kind(object) => Some(object),
                    _ => None,
                }
            }
        })*
    };
}
pub(super) use objects;

struct Slot<O> {
    object: O,
    /// References of the application.
    references: u32,
    /// Callbacks still to come, for which the handle must stay good.
    holds: u32,
}

/// All live handles.
pub(super) struct Registry<O> {
    slots: RwLock<HashMap<usize, Slot<O>>>,
    given: AtomicUsize,
}

impl<O> Default for Registry<O> {
    fn default() -> Self {
        Self {
            slots: RwLock::default(),
            given: AtomicUsize::new(0),
        }
    }
}

impl<O> Registry<O> {
    /// A fresh handle and the object made for it.
    pub(super) fn add<T: Kind<O>>(&self, make: impl FnOnce(usize) -> T) -> (usize, Arc<T>) {
        let handle = self.mint();
        let object = Arc::new(make(handle));
        self.name(handle, object.clone());
        (handle, object)
    }

    /// A fresh handle for an object that is there already.
    pub(super) fn publish<T: Kind<O>>(&self, object: Arc<T>) -> usize {
        let handle = self.mint();
        self.name(handle, object);
        handle
    }

    /// A handle that names nothing yet.
    pub(super) fn mint(&self) -> usize {
        FIRST_HANDLE + HANDLE_STEP * self.given.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes `handle` name `object`, with one reference.
    pub(super) fn name<T: Kind<O>>(&self, handle: usize, object: Arc<T>) {
        let slot = Slot {
            object: T::wrap(object),
            references: 1,
            holds: 0,
        };
        self.slots
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, slot);
    }

    /// The object that `handle` names, or its kind's error.
    pub(super) fn get<T: Kind<O>, H>(&self, handle: *mut H) -> Result<Arc<T>, cl_int> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots
            .get(&handle.addr())
            .and_then(|slot| T::of(&slot.object).cloned())
            .ok_or(T::INVALID)
    }

    /// The application's references to `handle`.
    pub(super) fn references<H>(&self, handle: *mut H) -> u32 {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(&handle.addr()).map_or(0, |slot| slot.references)
    }

    /// One reference more.
    pub(super) fn retain<T: Kind<O>, H>(&self, handle: *mut H) -> Result<(), cl_int> {
        self.with::<T, _>(handle.addr(), |slot| {
            slot.references = slot.references.saturating_add(1);
        })
    }

    /// One reference less; gives the object back when that was the last.
    pub(super) fn release<T: Kind<O>, H>(&self, handle: *mut H) -> Result<Option<Arc<T>>, cl_int> {
        self.drop_one::<T>(handle.addr(), |slot| {
            slot.references = slot.references.saturating_sub(1);
        })
    }

    /// Keeps the handle good for a callback to come.
    pub(super) fn hold<T: Kind<O>>(&self, handle: usize) -> Result<(), cl_int> {
        self.with::<T, _>(handle, |slot| slot.holds += 1)
    }

    /// The callback was called.
    pub(super) fn let_go<T: Kind<O>>(&self, handle: usize) {
        let last = self.drop_one::<T>(handle, |slot| slot.holds = slot.holds.saturating_sub(1));
        drop(last);
    }

    /// How many handles are live.
    pub(super) fn len(&self) -> usize {
        self.slots
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    fn with<T: Kind<O>, R>(
        &self,
        handle: usize,
        act: impl FnOnce(&mut Slot<O>) -> R,
    ) -> Result<R, cl_int> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get_mut(&handle).ok_or(T::INVALID)?;
        T::of(&slot.object).ok_or(T::INVALID)?;
        Ok(act(slot))
    }

    /// The object leaves through the caller: its end may call the application, which must find no lock held.
    fn drop_one<T: Kind<O>>(
        &self,
        handle: usize,
        act: impl FnOnce(&mut Slot<O>),
    ) -> Result<Option<Arc<T>>, cl_int> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get_mut(&handle).ok_or(T::INVALID)?;
        let object = T::of(&slot.object).ok_or(T::INVALID)?.clone();
        act(slot);
        if slot.references > 0 || slot.holds > 0 {
            return Ok(None);
        }
        let slot = slots.remove(&handle);
        drop(slots);
        drop(slot);
        Ok(Some(object))
    }
}
