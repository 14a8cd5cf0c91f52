//! The handles that applications see: fixed slots in one reserved address range.
//!
//! A handle is the address of its slot, so whether a pointer is one of ours, of which kind and still alive is decided without
//! touching foreign memory. A slot begins with the address of the dispatch table, as the ICD convention has it, and carries two
//! counts: the application's references (what `clRetain*` and `clRelease*` move) and the holds of Rust owners ([`Ref`]), where the
//! application as a whole is one holder. An object ends when nobody holds it; its slot is reused late, so that a stale handle is
//! recognised for long.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use towline_backend::opencl::*;

use crate::system;

const SLOT_BYTES: usize = 64;
/// Most objects that live at once: a server that has 4 Mi of a session ends it.
const SLOTS: u32 = 3 << 20;
/// Address space reserved for handles; memory is used only where slots are.
const ARENA_BYTES: usize = SLOTS as usize * SLOT_BYTES;
/// A freed slot waits behind so many others before it is used again.
const REUSE_DISTANCE: usize = 4096;

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Platform = 1,
    Device = 2,
    Context = 3,
    Queue = 4,
    Mem = 5,
    Sampler = 6,
    Program = 7,
    Kernel = 8,
    Event = 9,
}

/// An object behind a handle.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// What the handle points to in the C API.
    type Raw;
    /// Its kind.
    const KIND: Kind;
    /// What a call answers that was given something else.
    const INVALID: cl_int;
}

#[repr(C, align(64))]
struct Slot {
    dispatch: AtomicPtr<c_void>,
    kind: AtomicU32,
    app: AtomicU32,
    holds: AtomicU32,
    generation: AtomicU32,
    object: AtomicPtr<c_void>,
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);

struct Free {
    unused: u32,
    freed: VecDeque<u32>,
}

struct Arena {
    base: NonNull<Slot>,
    free: Mutex<Free>,
}

// SAFETY: slots are made of atomics; the range stays mapped for the life of the process.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

static ARENA: OnceLock<Option<Arena>> = OnceLock::new();

fn arena() -> Option<&'static Arena> {
    ARENA
        .get_or_init(|| {
            let Some(base) = system::map_zeros(ARENA_BYTES) else {
                log::error!("cannot reserve address space for OpenCL handles");
                return None;
            };
            Some(Arena {
                base: base.cast(),
                free: Mutex::new(Free {
                    unused: 0,
                    freed: VecDeque::new(),
                }),
            })
        })
        .as_ref()
}

impl Arena {
    fn slot(&self, index: u32) -> &Slot {
        // SAFETY: callers give indexes below `SLOTS`.
        let slot = unsafe { self.base.add(index as usize) };
        // SAFETY: the range is mapped and zero bytes are a valid free slot.
        unsafe { slot.as_ref() }
    }

    fn find(&self, address: usize) -> Option<&Slot> {
        let offset = address.wrapping_sub(self.base.as_ptr().addr());
        (offset < ARENA_BYTES && offset.is_multiple_of(SLOT_BYTES))
            .then(|| self.slot((offset / SLOT_BYTES) as u32))
    }

    fn index(&self, slot: &Slot) -> u32 {
        ((std::ptr::from_ref(slot).addr() - self.base.as_ptr().addr()) / SLOT_BYTES) as u32
    }

    fn take(&self) -> Option<&Slot> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.freed.len() <= REUSE_DISTANCE && free.unused < SLOTS {
            free.unused += 1;
            return Some(self.slot(free.unused - 1));
        }
        let index = free.freed.pop_front()?;
        Some(self.slot(index))
    }

    fn put_back(&self, slot: &Slot) {
        let index = self.index(slot);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.freed.push_back(index);
    }
}

/// A hold on an object: it stays while this lives.
pub(crate) struct Ref<T: Object> {
    slot: &'static Slot,
    object: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: objects are `Send + Sync`, and the counts are atomic.
unsafe impl<T: Object> Send for Ref<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Ref<T> {}

impl<T: Object> Ref<T> {
    /// Gives the object a handle that nobody but the caller knows yet.
    pub(crate) fn new(object: T) -> Result<Self, cl_int> {
        let slot = arena().and_then(Arena::take).ok_or(CL_OUT_OF_HOST_MEMORY)?;
        let object = NonNull::from(Box::leak(Box::new(object)));
        slot.dispatch
            .store(crate::stub::dispatch_table(), Ordering::Relaxed);
        slot.object.store(object.as_ptr().cast(), Ordering::Relaxed);
        slot.app.store(0, Ordering::Relaxed);
        slot.generation.fetch_add(1, Ordering::Relaxed);
        slot.kind.store(T::KIND as u32, Ordering::Relaxed);
        slot.holds.store(1, Ordering::Release);
        Ok(Self {
            slot,
            object,
            owns: PhantomData,
        })
    }

    /// The handle, which counts for the application only once it is [published](Self::publish).
    pub(crate) fn handle(&self) -> *mut T::Raw {
        std::ptr::from_ref(self.slot).cast_mut().cast()
    }

    /// Gives the application its first reference.
    pub(crate) fn publish(self) -> *mut T::Raw {
        let handle = self.handle();
        self.slot.app.store(1, Ordering::Release);
        std::mem::forget(self);
        handle
    }

    /// Adds a reference of the application.
    pub(crate) fn retain(&self) {
        if self.slot.app.fetch_add(1, Ordering::AcqRel) == 0 {
            std::mem::forget(self.clone());
        }
    }

    /// Drops a reference of the application; true when that was its last.
    pub(crate) fn release(&self) -> Result<bool, cl_int> {
        let mut app = self.slot.app.load(Ordering::Acquire);
        loop {
            if app == 0 {
                return Err(T::INVALID);
            }
            match self.slot.app.compare_exchange_weak(
                app,
                app - 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(1) => break,
                Ok(_) => return Ok(false),
                Err(now) => app = now,
            }
        }
        // The application's share of the holds, which `publish` or `retain` left behind.
        drop(Self {
            slot: self.slot,
            object: self.object,
            owns: PhantomData,
        });
        Ok(true)
    }

    /// The application's references.
    pub(crate) fn count(&self) -> cl_uint {
        self.slot.app.load(Ordering::Acquire)
    }

    /// Whether both are the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.slot, other.slot)
    }
}

impl<T: Object> Clone for Ref<T> {
    fn clone(&self) -> Self {
        self.slot.holds.fetch_add(1, Ordering::Relaxed);
        Self {
            slot: self.slot,
            object: self.object,
            owns: PhantomData,
        }
    }
}

impl<T: Object> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object lives while it is held.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Object> Drop for Ref<T> {
    fn drop(&mut self) {
        if self.slot.holds.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // The handle is dead before the object is: what its end calls sees an unknown handle.
        self.slot.kind.store(0, Ordering::Release);
        if matches!(T::KIND, Kind::Mem | Kind::Sampler | Kind::Queue) {
            ENDED.fetch_add(1, Ordering::Release);
        }
        // SAFETY: nobody holds the object any more, and `new` leaked it from a box.
        drop(unsafe { Box::from_raw(self.object.as_ptr()) });
        if let Some(arena) = arena() {
            arena.put_back(self.slot);
        }
    }
}

/// The object behind a handle, or the kind's own error for anything else.
#[inline]
pub(crate) fn get<T: Object>(handle: *mut T::Raw) -> Result<Ref<T>, cl_int> {
    let slot = arena()
        .and_then(|arena| arena.find(handle.addr()))
        .ok_or(T::INVALID)?;
    let mut holds = slot.holds.load(Ordering::Relaxed);
    loop {
        if holds == 0 || slot.kind.load(Ordering::Relaxed) != T::KIND as u32 {
            return Err(T::INVALID);
        }
        match slot.holds.compare_exchange_weak(
            holds,
            holds + 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            Ok(_) => break,
            Err(now) => holds = now,
        }
    }
    // The slot may have ended and begun again in between; from here on it stays what it is.
    let kind = slot.kind.load(Ordering::Acquire);
    let object = NonNull::new(slot.object.load(Ordering::Acquire));
    if kind != T::KIND as u32 {
        release_foreign(slot, kind);
        return Err(T::INVALID);
    }
    Ok(Ref {
        slot,
        object: object.ok_or(T::INVALID)?.cast(),
        owns: PhantomData,
    })
}

/// An object for the length of a call, mostly without a hold.
pub(crate) struct Lent<T: Object> {
    object: ManuallyDrop<Ref<T>>,
    held: bool,
}

impl<T: Object> Deref for Lent<T> {
    type Target = Ref<T>;

    fn deref(&self) -> &Ref<T> {
        &self.object
    }
}

impl<T: Object> Drop for Lent<T> {
    fn drop(&mut self) {
        if self.held {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.object) };
        }
    }
}

/// As [`get`], for the calls that programs make most: taking and giving back a hold would cost more than the rest of such a call.
///
/// # Safety
/// The application does not give up its last reference before the call returns. OpenCL asks that of it: what is released while
/// a call uses it is undefined.
#[inline]
pub(crate) unsafe fn lend<T: Object>(handle: *mut T::Raw) -> Result<Lent<T>, cl_int> {
    let slot = arena()
        .and_then(|arena| arena.find(handle.addr()))
        .ok_or(T::INVALID)?;
    let live =
        slot.app.load(Ordering::Acquire) > 0 && slot.kind.load(Ordering::Acquire) == T::KIND as u32;
    let (object, held) = match NonNull::new(slot.object.load(Ordering::Acquire)) {
        Some(object) if live => {
            let lent = Ref {
                slot,
                object: object.cast(),
                owns: PhantomData,
            };
            (lent, false)
        }
        // Dead, or kept by others alone.
        _ => (get::<T>(handle)?, true),
    };
    Ok(Lent {
        object: ManuallyDrop::new(object),
        held,
    })
}

/// Gives back a hold that `get` took on a slot which became another object meanwhile.
#[cold]
fn release_foreign(slot: &'static Slot, kind: u32) {
    fn end<T: Object>(slot: &'static Slot) {
        if let Some(object) = NonNull::new(slot.object.load(Ordering::Acquire)) {
            drop(Ref::<T> {
                slot,
                object: object.cast(),
                owns: PhantomData,
            });
        }
    }
    match kind {
        2 => end::<crate::device::Device>(slot),
        3 => end::<crate::context::Context>(slot),
        4 => end::<crate::queue::Queue>(slot),
        5 => end::<crate::memory::Mem>(slot),
        6 => end::<crate::sampler::Sampler>(slot),
        7 => end::<crate::program::Program>(slot),
        8 => end::<crate::kernel::Kernel>(slot),
        9 => end::<crate::event::Event>(slot),
        _ => end::<crate::platform::PlatformHandle>(slot),
    }
}

/// Kind and generation of the live object at this address, if it is one of ours.
#[inline]
pub(crate) fn live_at(address: usize) -> Option<(u32, u32)> {
    let slot = arena()?.find(address)?;
    (slot.holds.load(Ordering::Relaxed) != 0).then(|| {
        (
            slot.kind.load(Ordering::Relaxed),
            slot.generation.load(Ordering::Relaxed),
        )
    })
}

/// Counts the ends of objects that kernels have as arguments.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Changes whenever an object has ended that can be an argument of a kernel.
#[inline]
pub(crate) fn ended() -> u64 {
    ENDED.load(Ordering::Acquire)
}

/// Whether the address lies in the range of handles, live or not.
#[inline]
pub(crate) fn is_handle_address(address: usize) -> bool {
    arena().is_some_and(|arena| arena.find(address).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::PlatformHandle;

    #[test]
    fn foreign_and_misaligned_pointers_are_no_handles() {
        let mut local = 0_u64;
        let object = Ref::new(PlatformHandle).expect("there is room");
        let inside = object
            .handle()
            .wrapping_byte_add(8)
            .cast::<_cl_platform_id>();
        assert!(get::<PlatformHandle>((&raw mut local).cast()).is_err());
        assert!(get::<PlatformHandle>(std::ptr::null_mut()).is_err());
        assert!(get::<PlatformHandle>(inside).is_err());
        assert!(get::<PlatformHandle>(object.handle()).is_ok());
    }

    #[test]
    fn a_released_handle_is_recognised_as_stale() {
        let handle = Ref::new(PlatformHandle).expect("there is room").publish();
        let object = get::<PlatformHandle>(handle).expect("live");
        object.retain();
        assert_eq!(object.count(), 2);
        assert_eq!(object.release(), Ok(false));
        assert_eq!(object.release(), Ok(true));
        assert_eq!(object.release(), Err(CL_INVALID_PLATFORM));
        drop(object);
        assert!(get::<PlatformHandle>(handle).is_err());
    }

    #[test]
    fn what_is_lent_takes_a_hold_only_where_the_application_has_none() {
        fn lent(handle: cl_platform_id) -> Result<(bool, u32), cl_int> {
            // SAFETY: nobody releases it meanwhile.
            let lent = unsafe { lend::<PlatformHandle>(handle) }?;
            Ok((lent.held, lent.slot.holds.load(Ordering::Relaxed)))
        }
        let handle = Ref::new(PlatformHandle).expect("there is room").publish();
        assert_eq!(lent(handle), Ok((false, 1)));
        // SAFETY: as above.
        assert!(unsafe { lend::<crate::kernel::Kernel>(handle.cast()) }.is_err());
        let holder = get::<PlatformHandle>(handle).expect("live");
        assert_eq!(holder.release(), Ok(true));
        assert_eq!(lent(handle), Ok((true, 2)));
        assert_eq!(lent(handle), Ok((true, 2)));
        drop(holder);
        assert_eq!(lent(handle), Err(CL_INVALID_PLATFORM));
    }

    #[test]
    fn a_handle_that_another_object_keeps_alive_can_be_retained_again() {
        let handle = Ref::new(PlatformHandle).expect("there is room").publish();
        let holder = get::<PlatformHandle>(handle).expect("live");
        assert_eq!(holder.release(), Ok(true));
        get::<PlatformHandle>(handle).expect("held").retain();
        drop(holder);
        assert_eq!(get::<PlatformHandle>(handle).expect("retained").count(), 1);
    }
}
