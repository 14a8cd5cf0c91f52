//! Addresses that servers have given out, kept free of everything else in this process.
//!
//! Where a pointer leads is told by its address alone: device memory of a server must lie nowhere where the host has memory, or another
//! server's device. A driver sees to that in its own process, which is the worker's, and knows nothing of this one. So what a server
//! gives is reserved here as well, before the application learns of it, and stays so: the server gives the same addresses again. What
//! cannot be reserved because something lies there is given back, and the server is asked for more ([`Driver::place`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use towline_backend::cuda::*;

use crate::driver::{Driver, lock, read};
use crate::mirror::{Hold, hold, let_go};

/// Reserved at once where that can be: drivers give out addresses in pieces of this size.
const PIECE: u64 = 2 << 20;
/// What is mapped begins and ends at such.
const PAGE: u64 = 4096;
/// No memory lies below, whatever a server says: NULL with an offset is no device pointer.
const LOWEST: u64 = 64 << 10;
/// How often a server is asked for other addresses. What it gave stays taken meanwhile, so each time they are others.
const ATTEMPTS: usize = 64;

/// Where to ask for addresses after others were in use: somewhere between what drivers give out first and what hosts use.
pub(crate) fn elsewhere(alignment: u64) -> u64 {
    const FIRST: u64 = 0x2000_0000_0000;
    const ROOM: u64 = 1 << 45;
    // The keys of a new map are random, which is what is needed of it.
    let chance = RandomState::new().hash_one(alignment) % ROOM;
    (FIRST + chance).next_multiple_of(alignment.max(PIECE))
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Workers are threads of this process, so that what they give out is mapped here anyway.
    shared: bool,
    /// By where it begins: where it ends, and whose it is.
    held: Mutex<BTreeMap<u64, (u64, u8)>>,
}

/// Parts of a run of addresses that nobody in `held` has.
fn gaps(held: &BTreeMap<u64, (u64, u8)>, start: u64, end: u64) -> Vec<(u64, u64)> {
    let (mut at, mut gaps) = (start, Vec::new());
    let before = held.range(..=start).next_back();
    for (begin, (stop, _)) in before.into_iter().chain(held.range(start + 1..end)) {
        if *begin > at {
            gaps.push((at, *begin));
        }
        at = at.max(*stop);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

/// Whether any of these addresses are another server's.
fn is_others(held: &BTreeMap<u64, (u64, u8)>, start: u64, end: u64, session: u8) -> bool {
    let reaching = held.range(..end).rev();
    let mut reaching = reaching.take_while(|(_, (stop, _))| *stop > start);
    reaching.any(|(_, (_, owner))| *owner != session)
}

impl Addresses {
    /// Of a driver whose workers are in its own process.
    pub(crate) fn shared() -> Self {
        Self {
            shared: true,
            ..Self::default()
        }
    }

    /// Reserves what a server has given; `false` where this process has something else there.
    pub(crate) fn claim(&self, session: u8, start: u64, size: usize) -> bool {
        if start < LOWEST && size > 0 {
            return false;
        }
        if self.shared || size == 0 {
            return true;
        }
        let end = start.checked_add(size as u64);
        let Some(wide_end) = end.and_then(|end| end.checked_next_multiple_of(PIECE)) else {
            return false;
        };
        let (first, last) = (
            start / PAGE * PAGE,
            (start + size as u64).next_multiple_of(PAGE),
        );
        let mut held = lock(&self.held);
        if is_others(&held, first, last, session) {
            return false;
        }
        let mut fresh = Vec::new();
        for (from, to) in gaps(&held, start / PIECE * PIECE, wide_end) {
            let mut part = (from, to);
            let mut outcome = hold(from, to - from);
            if outcome == Hold::Taken {
                // Only what was given has to be free.
                part = (from.max(first), to.min(last));
                if part.0 >= part.1 {
                    continue;
                }
                outcome = hold(part.0, part.1 - part.0);
            }
            match outcome {
                Hold::Held => fresh.push(part),
                Hold::Refused => {}
                Hold::Taken => {
                    fresh.iter().for_each(|(from, to)| let_go(*from, to - from));
                    return false;
                }
            }
        }
        held.extend(fresh.into_iter().map(|(from, to)| (from, (to, session))));
        true
    }

    /// Whether an address is reserved for what a server has given, or has taken back.
    pub(crate) fn is_held(&self, address: u64) -> bool {
        let held = lock(&self.held);
        let before = held.range(..=address).next_back();
        before.is_some_and(|(_, (end, _))| *end > address)
    }

    /// Whether memory of this process lies at an address that no server has given out.
    fn is_own(&self, address: u64) -> bool {
        if self.shared || self.is_held(address) {
            return false;
        }
        let memory = File::open("/proc/self/mem");
        memory.is_ok_and(|memory| memory.read_at(&mut [0], address).is_ok())
    }

    /// Lets others have addresses that a server takes back, or that something of ours is to lie at.
    pub(crate) fn release(&self, session: u8, start: u64, size: usize) {
        let (first, Some(end)) = (start / PAGE * PAGE, start.checked_add(size as u64)) else {
            return;
        };
        let Some(end) = end.checked_next_multiple_of(PAGE) else {
            return;
        };
        let mut held = lock(&self.held);
        let reaching = held.range(..end).rev();
        let reaching = reaching.take_while(|(_, (stop, _))| *stop > first);
        let own = reaching.filter(|(_, (_, owner))| *owner == session);
        let own: Vec<_> = own.map(|(from, (to, _))| (*from, *to)).collect();
        for (from, to) in own {
            held.remove(&from);
            let gone = (from.max(first), to.min(end));
            let_go(gone.0, gone.1 - gone.0);
            if from < gone.0 {
                held.insert(from, (gone.0, session));
            }
            if gone.1 < to {
                held.insert(gone.1, (to, session));
            }
        }
    }
}

impl Driver {
    /// Refuses memory that only the host has, where a call takes it for the device's. What else is unknown here, such as a variable whose
    /// address a kernel told, is the server's to judge.
    pub(crate) fn expect_on_device(&self, address: u64) -> Result<(), CUresult> {
        let known = read(&self.memory).find(address).is_some();
        match !known && self.addresses.is_own(address) {
            true => Err(CUDA_ERROR_INVALID_VALUE),
            false => Ok(()),
        }
    }

    /// Memory at addresses that this process has free: `ask` has the server give some, the first time with 0, and `give_back` takes what
    /// lies elsewhere.
    pub(crate) fn place(
        &self,
        session: u8,
        size: usize,
        ask: impl Fn(usize) -> Result<u64, CUresult>,
        give_back: impl Fn(u64) -> Result<(), CUresult>,
    ) -> Result<u64, CUresult> {
        let mut unfit = Vec::new();
        let placed = loop {
            match ask(unfit.len()) {
                Ok(address) if !self.is_free(session, address, size) => unfit.push(address),
                outcome => break outcome,
            }
            if unfit.len() == ATTEMPTS {
                log::warn!(
                    "the server gives out memory only at addresses that this process has in use, such as {:#x}",
                    unfit[0]
                );
                break Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
        };
        for address in unfit {
            if let Err(status) = give_back(address) {
                log::debug!("memory at unfit addresses could not be given back: {status}");
            }
        }
        placed
    }

    /// Whether new memory can lie there: neither something else of this process nor memory that lives does.
    fn is_free(&self, session: u8, address: u64, size: usize) -> bool {
        !read(&self.memory).is_taken(address, size as u64)
            && self.addresses.claim(session, address, size)
    }

    /// As [`Self::place`], for what lies where it lies.
    pub(crate) fn claim(&self, session: u8, address: u64, size: usize) -> Result<(), CUresult> {
        if self.addresses.claim(session, address, size) {
            return Ok(());
        }
        log::warn!(
            "the server has memory at {address:#x}, where this process has something else: it cannot be used"
        );
        Err(CUDA_ERROR_OUT_OF_MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::write;
    use crate::memory::{Kind, Range};
    use crate::mirror::map_private;

    /// Addresses that nothing else of these tests uses.
    const AT: u64 = 0x3100_0000_0000;

    fn is_free(at: u64) -> bool {
        match hold(at, PAGE) {
            Hold::Held => {
                let_go(at, PAGE);
                true
            }
            _ => false,
        }
    }

    #[test]
    fn what_a_server_gave_is_not_free_for_the_host_and_is_claimed_again() {
        let (addresses, at) = (Addresses::default(), AT);
        assert!(addresses.claim(0, at + 512, 100));
        assert!(addresses.claim(0, at + 1024, 5 << 20));
        assert!(!is_free(at) && !is_free(at + (5 << 20)));
        assert!(is_free(at + (6 << 20)));
        assert!(addresses.claim(0, at + 512, 100));
    }

    #[test]
    fn what_the_host_has_cannot_be_claimed_and_what_lies_beside_it_can() {
        let (addresses, at) = (Addresses::default(), AT + (1 << 30));
        map_private(Some(at + 8 * PAGE), PAGE as usize).expect("it is free");
        assert!(!addresses.claim(0, at, 9 * PAGE as usize));
        assert!(is_free(at), "nothing of it stays reserved");
        assert!(addresses.claim(0, at, 8 * PAGE as usize));
        assert!(!is_free(at) && is_free(at + 9 * PAGE));
    }

    #[test]
    fn what_one_server_gave_is_not_anothers() {
        let (addresses, at) = (Addresses::default(), AT + (2 << 30));
        assert!(addresses.claim(0, at, 4 << 20));
        assert!(!addresses.claim(1, at + (3 << 20), 4 << 20));
        assert!(addresses.claim(1, at + (4 << 20), 4 << 20));
    }

    #[test]
    fn what_is_released_is_free_and_the_rest_stays() {
        let (addresses, at) = (Addresses::default(), AT + (3 << 30));
        assert!(addresses.claim(0, at, 8 << 20));
        addresses.release(0, at + (2 << 20), 4 << 20);
        let free = [0, 2, 5, 6].map(|piece| is_free(at + (piece << 20)));
        assert_eq!(free, [false, true, true, false]);
        assert!(addresses.claim(1, at + (2 << 20), 4 << 20));
        assert!(!addresses.claim(1, at, 4 << 20));
    }

    #[test]
    fn memory_that_overlaps_other_memory_is_given_back() {
        let driver = Driver::default();
        let at = AT + (4 << 30);
        let range = Range {
            size: 8192,
            context: 1,
            device: 0,
            id: 1,
            kind: Kind::Device,
            alone: true,
            of_pool: false,
            pool: 0,
            of_graph: false,
            synchronous: false,
        };
        write(&driver.memory).insert(at, range);
        let given_back = Mutex::new(Vec::new());
        let places = [at - 4096, at + 4096, at, at + 8192];
        let ask = |attempt: usize| Ok(places[attempt]);
        let placed = driver.place(0, 8192, ask, |address| {
            given_back.lock().unwrap().push(address);
            Ok(())
        });
        assert_eq!(placed, Ok(at + 8192));
        assert_eq!(*given_back.lock().unwrap(), places[..3]);
    }

    #[test]
    fn addresses_beyond_all_are_refused_and_nothing_takes_none() {
        let addresses = Addresses::default();
        assert!(!addresses.claim(0, u64::MAX - 10, 100));
        assert!(!addresses.claim(0, 4096, 100));
        assert!(addresses.claim(0, 0, 0));
    }
}
