//! The memory that a shared event is: a page that all sessions have which use it, and their devices.
//!
//! A recording takes a slot and a value. Who takes a slot writes the value and the number that he has on this page in one word, so at no
//! moment is there a value whose taker is unknown: when a session has died, whoever has the page can tell which recordings nobody will
//! carry out. A slot is not taken from anybody before its last recording has passed.
//!
//! What another session wrote here is not believed further than that events pass early, late or never.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use towline_transport::shared_memory::SharedMemory;

/// Bytes of a page.
pub(super) const BYTES: usize = 4096;
/// Where slots begin; the word at 0 tells the latest recording.
const TAKEN: usize = 64;
/// Bytes of a slot in the first part: the value that was given out last, and who took it.
const TAKEN_BYTES: usize = 8;
/// Bytes of a slot in the second part: the value that has passed. The device writes it.
const PASSED_BYTES: usize = 4;
pub(super) const SLOTS: u32 = ((BYTES - TAKEN) / (TAKEN_BYTES + PASSED_BYTES)) as u32;
/// Where the second part begins.
const PASSED: usize = TAKEN + SLOTS as usize * TAKEN_BYTES;

/// The number of the session that made a page. Sessions that open it have the numbers that they were given with it.
pub(crate) const OWNER: u32 = 0;

/// One recording of a shared event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recording {
    pub(super) slot: u32,
    pub(super) value: u32,
}

/// See the module's text.
pub(super) struct Page(SharedMemory);

/// The word of a slot that is taken.
fn word_of(taker: u32, value: u32) -> u64 {
    u64::from(taker) << 32 | u64::from(value)
}

/// Taker and value.
fn parts_of(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Whether a recording has passed where `passed` has. Values wrap.
fn reaches(passed: u32, value: u32) -> bool {
    passed.wrapping_sub(value) as i32 >= 0
}

impl Page {
    pub(super) fn create() -> io::Result<Self> {
        SharedMemory::allocate("towline-event", BYTES).map(Self)
    }

    /// The page of another session.
    pub(super) fn open(file: OwnedFd) -> io::Result<Self> {
        SharedMemory::open(file, BYTES).map(Self)
    }

    /// The page's file.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    /// Where the device writes that a recording has passed, from the start on.
    pub(super) fn offset(recording: Recording) -> usize {
        PASSED + recording.slot as usize * PASSED_BYTES
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= BYTES);
        let place = self.start().as_ptr().wrapping_add(at);
        // SAFETY: the place is aligned and within the page, which is mapped as long as `self` lives; all others write whole words.
        unsafe { &*place.cast::<AtomicU64>() }
    }

    pub(super) fn latest_word(&self) -> &AtomicU64 {
        self.word(0)
    }

    pub(super) fn taken(&self, slot: u32) -> &AtomicU64 {
        self.word(TAKEN + slot as usize * TAKEN_BYTES)
    }

    pub(super) fn passed(&self, slot: u32) -> &AtomicU32 {
        let at = PASSED + slot as usize * PASSED_BYTES;
        debug_assert!(at + 4 <= BYTES);
        let place = self.start().as_ptr().wrapping_add(at);
        // SAFETY: as above; the other sessions and the device write whole words of 32 bits here.
        unsafe { &*place.cast::<AtomicU32>() }
    }

    /// The recording that was posted last, by whatever session.
    pub(super) fn latest(&self) -> Option<Recording> {
        let word = self.latest_word().load(Ordering::Acquire);
        let slot = ((word >> 32) as u32).checked_sub(1)?;
        let value = word as u32;
        (slot < SLOTS).then_some(Recording { slot, value })
    }

    /// Makes a recording the latest one.
    pub(super) fn publish(&self, recording: Recording) {
        let word = u64::from(recording.slot + 1) << 32 | u64::from(recording.value);
        self.latest_word().store(word, Ordering::Release);
    }

    pub(super) fn has_passed(&self, recording: Recording) -> bool {
        let passed = self.passed(recording.slot).load(Ordering::Acquire);
        reaches(passed, recording.value)
    }

    /// The next value of the slot of `last`, if it is still `last`'s taker's and nobody has taken it since.
    pub(super) fn take_again(&self, taker: u32, last: Recording) -> Option<Recording> {
        self.take(taker, last.slot, word_of(taker, last.value))
    }

    /// A value of a slot of which all recordings have passed.
    pub(super) fn take_free(&self, taker: u32) -> Option<Recording> {
        (0..SLOTS).find_map(|slot| {
            let word = self.taken(slot).load(Ordering::Acquire);
            let free = self.passed(slot).load(Ordering::Acquire) == word as u32;
            free.then(|| self.take(taker, slot, word)).flatten()
        })
    }

    fn take(&self, taker: u32, slot: u32, word: u64) -> Option<Recording> {
        let value = (word as u32).wrapping_add(1);
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let taken =
            self.taken(slot)
                .compare_exchange(word, word_of(taker, value), order.0, order.1);
        taken.ok().map(|_| Recording { slot, value })
    }

    /// A recording that will not be carried out keeps nobody waiting.
    pub(super) fn give_up(&self, recording: Recording) {
        let passed = self.passed(recording.slot);
        passed.store(recording.value, Ordering::Release);
    }
}

/// Nobody waits any more for what a session had recorded in a page under its number. It is dead, so neither it nor its device writes
/// there.
///
/// For the supervisor, which maps nothing of what a session has made.
pub(crate) fn release(page: BorrowedFd<'_>, dead: u32) {
    if let Err(error) = release_in(page, dead) {
        log::debug!("the page of a shared event is of no use: {error}");
    }
}

fn release_in(page: BorrowedFd<'_>, dead: u32) -> io::Result<()> {
    // Reading and writing an anonymous file never waits, whoever made it.
    rustix::fs::fcntl_get_seals(page)?;
    if rustix::fs::fstat(page)?.st_size != BYTES as i64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let first = outstanding(page, dead)?;
    if first.is_empty() {
        return Ok(());
    }
    // What another took meanwhile may have been read in halves. What is the dead one's does not change any more.
    let second = outstanding(page, dead)?;
    for recording in first.iter().filter(|recording| second.contains(recording)) {
        let value = recording.value.to_ne_bytes();
        rustix::io::pwrite(page, &value, Page::offset(*recording) as u64)?;
    }
    Ok(())
}

/// What a session has recorded last in each of its slots, where that has not passed.
fn outstanding(page: BorrowedFd<'_>, taker: u32) -> io::Result<Vec<Recording>> {
    let mut bytes = [0; BYTES];
    if rustix::io::pread(page, &mut bytes, 0)? != BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (slots, passed) = bytes[TAKEN..].split_at(PASSED - TAKEN);
    let slots = slots.as_chunks().0.iter().zip(passed.as_chunks().0);
    let slots = (0..SLOTS).zip(slots).filter_map(|(slot, (word, passed))| {
        let (of, value) = parts_of(u64::from_ne_bytes(*word));
        let behind = !reaches(u32::from_ne_bytes(*passed), value);
        (of == taker && behind).then_some(Recording { slot, value })
    });
    Ok(slots.collect())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// What three sessions have of one page.
    fn three() -> [Page; 3] {
        let page = Page::create().unwrap();
        let [first, second] =
            [(); 2].map(|()| Page::open(page.file().try_clone_to_owned().unwrap()).unwrap());
        [page, first, second]
    }

    fn words(page: &Page) -> Vec<(u64, u32)> {
        let both = |slot| {
            let taken = page.taken(slot).load(Ordering::Relaxed);
            (taken, page.passed(slot).load(Ordering::Relaxed))
        };
        (0..SLOTS).map(both).collect()
    }

    #[test]
    fn what_the_dead_has_recorded_has_passed_and_what_others_have_is_outstanding() {
        let [ours, dead, theirs] = three();
        let own = ours.take_free(OWNER).unwrap();
        let first = dead.take_free(1).unwrap();
        let last = dead.take_again(1, first).unwrap();
        let other = theirs.take_free(2).unwrap();
        release(ours.file(), 1);
        assert!(theirs.has_passed(first) && theirs.has_passed(last));
        assert!(!ours.has_passed(own) && !ours.has_passed(other));
        release(ours.file(), OWNER);
        assert!(theirs.has_passed(own));
        assert!(!theirs.has_passed(other));
    }

    #[test]
    fn a_slot_that_was_taken_and_not_told_of_at_the_death_serves_others_again() {
        let [ours, dead, theirs] = three();
        let never_told = dead.take_free(1).unwrap();
        assert_ne!(ours.take_free(OWNER).unwrap().slot, never_told.slot);
        release(theirs.file(), 1);
        let next = theirs.take_free(2).unwrap();
        assert_eq!(
            (next.slot, next.value),
            (never_told.slot, never_told.value + 1)
        );
        assert!(!ours.has_passed(next));
    }

    #[test]
    fn a_slot_that_another_takes_while_the_dead_is_looked_for_stays_its_own() {
        let [ours, dead, theirs] = three();
        let old = dead.take_free(1).unwrap();
        dead.give_up(old);
        // As it is seen where the word was read before, and the value that has passed after.
        let next = theirs.take_free(2).unwrap();
        theirs.give_up(next);
        ours.taken(old.slot)
            .store(word_of(1, old.value), Ordering::Relaxed);
        release(ours.file(), 1);
        assert!(ours.has_passed(next), "what passed is not undone");
    }

    #[test]
    fn a_number_that_the_dead_did_not_have_releases_nothing() {
        let [ours, dead, _] = three();
        let recording = dead.take_free(1).unwrap();
        release(ours.file(), 2);
        assert!(!ours.has_passed(recording));
    }

    #[test]
    fn values_that_wrap_are_released_as_well() {
        let [ours, dead, _] = three();
        for (taken, passed) in [(0, u32::MAX), (3, u32::MAX - 3), (1 << 31, 7), (1 << 31, 0)] {
            dead.taken(9).store(word_of(1, taken), Ordering::Relaxed);
            dead.passed(9).store(passed, Ordering::Relaxed);
            let recording = Recording {
                slot: 9,
                value: taken,
            };
            assert!(!ours.has_passed(recording), "{taken} {passed}");
            release(ours.file(), 1);
            assert!(ours.has_passed(recording), "{taken} {passed}");
            assert_eq!(ours.passed(9).load(Ordering::Relaxed), taken);
        }
    }

    #[test]
    fn whatever_lies_in_a_page_only_slots_of_the_dead_change_and_only_to_what_it_took() {
        let page = Page::create().unwrap();
        // A generator of Marsaglia's: any bytes will do.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut any = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..200 {
            page.latest_word().store(any(), Ordering::Relaxed);
            for slot in 0..SLOTS {
                let word = word_of(any() as u32 % 4, any() as u32);
                page.taken(slot).store(word, Ordering::Relaxed);
                page.passed(slot).store(any() as u32, Ordering::Relaxed);
            }
            let before = words(&page);
            release(page.file(), 2);
            let expected: Vec<_> = before
                .into_iter()
                .map(|(word, passed)| {
                    let (taker, value) = parts_of(word);
                    let outstanding = (passed.wrapping_sub(value) as i32) < 0;
                    let released = taker == 2 && outstanding;
                    (word, if released { value } else { passed })
                })
                .collect();
            assert_eq!(words(&page), expected);
            assert!(page.latest().is_none_or(|latest| latest.slot < SLOTS));
        }
    }

    #[test]
    fn sessions_that_go_on_lose_nothing_while_others_die() {
        let [ours, dead, theirs] = three();
        let over = std::sync::atomic::AtomicBool::new(false);
        let lives = |page: &Page, taker: u32| {
            let mut lost = 0;
            for _ in 0..20_000 {
                let recording = page.take_free(taker).unwrap();
                // Nobody else tells that it has passed.
                lost += usize::from(page.has_passed(recording));
                page.give_up(recording);
                lost += usize::from(!page.has_passed(recording));
            }
            lost
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 10.. {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    // One that dies with two recordings outstanding, in the slots that the others use.
                    let outstanding = [(); 2].map(|()| dead.take_free(number).unwrap());
                    release(dead.file(), number);
                    assert!(outstanding.iter().all(|one| dead.has_passed(*one)));
                }
            });
            let theirs = scope.spawn(|| lives(&theirs, 2));
            let lost = [lives(&ours, 1), theirs.join().unwrap()];
            over.store(true, Ordering::Release);
            assert_eq!(lost, [0; 2]);
        });
    }

    #[test]
    fn what_is_no_page_is_neither_opened_nor_marked() {
        let unsealed = || -> OwnedFd {
            let file = tempfile::tempfile().unwrap();
            file.set_len(BYTES as u64).unwrap();
            file.into()
        };
        let file = unsealed();
        rustix::io::pwrite(&file, &word_of(1, 5).to_ne_bytes(), TAKEN as u64).unwrap();
        release(file.as_fd(), 1);
        let mut bytes = [1; 4];
        rustix::io::pread(&file, &mut bytes, PASSED as u64).unwrap();
        assert_eq!(bytes, [0; 4]);
        assert!(Page::open(file).is_err());
    }

    #[test]
    fn a_slot_that_another_session_made_up_is_no_recording() {
        let [ours, theirs, _] = three();
        theirs.latest_word().store(u64::MAX, Ordering::Relaxed);
        assert_eq!(ours.latest(), None);
    }
}
