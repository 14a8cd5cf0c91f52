//! Host memory of a program that stays where it is: an adapter may keep it registered, and then moves its bytes by itself.
//!
//! Ordinary memory may be unmapped, and other memory mapped in its place, without a word to anybody; an adapter would go on with the pages
//! that were there. A program that pins memory has promised that this does not happen.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// Adapters have given up every request by then.
const PATIENCE: Duration = Duration::from_secs(30);

static DECLARED: RwLock<BTreeMap<usize, Arc<Range>>> = RwLock::new(BTreeMap::new());

/// A range that stays, and what transports have made for it.
#[derive(Debug)]
pub(crate) struct Range {
    start: usize,
    len: usize,
    process: u32,
    made: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

/// Says that the pages of this range stay until [`withdraw`].
pub fn declare(start: usize, len: usize) {
    let range = Range {
        start,
        len,
        process: std::process::id(),
        made: Mutex::default(),
    };
    let mut declared = DECLARED.write().unwrap_or_else(PoisonError::into_inner);
    declared.insert(start, Arc::new(range));
}

/// Takes that back, before the pages go, and waits until no transfer uses what was made for them. It is nothing where no range begins.
pub fn withdraw(start: usize) {
    let mut declared = DECLARED.write().unwrap_or_else(PoisonError::into_inner);
    let withdrawn = declared.remove(&start);
    drop(declared);
    let Some(range) = withdrawn else { return };
    let until = Instant::now() + PATIENCE;
    // A child has copies of what its parent's threads used, and none of the threads.
    while range.process == std::process::id() && is_used(&range) {
        if Instant::now() >= until {
            return log::error!("pinned memory at {start:#x} goes while an adapter may use it");
        }
        thread::sleep(Duration::from_micros(50));
    }
}

/// Whether anybody else has the range, or what was made for it.
fn is_used(range: &Arc<Range>) -> bool {
    let made = range.made.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::strong_count(range) > 1 || made.iter().any(|made| Arc::strong_count(made) > 1)
}

/// The declared range that all of these bytes lie in.
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "rdma asks, which only Linux has")
)]
pub(crate) fn find(start: usize, len: usize) -> Option<Arc<Range>> {
    let declared = DECLARED.read().unwrap_or_else(PoisonError::into_inner);
    let (_, range) = declared.range(..=start).next_back()?;
    let end = start.checked_add(len)?;
    (end <= range.start + range.len).then(|| Arc::clone(range))
}

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "rdma asks, which only Linux has")
)]
impl Range {
    /// The thing made for this range that `fits`; else `make` makes it of start and length, once.
    pub(crate) fn made<T: Any + Send + Sync>(
        &self,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce(usize, usize) -> T,
    ) -> Arc<T> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let known = made
            .iter()
            .filter_map(|made| Arc::clone(made).downcast().ok())
            .find(|made: &Arc<T>| fits(made));
        known.unwrap_or_else(|| {
            let new = Arc::new(make(self.start, self.len));
            made.push(Arc::clone(&new) as _);
            new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Addresses of no memory, of each test its own.

    #[test]
    fn only_bytes_within_one_range_are_found() {
        declare(0x1000, 0x100);
        declare(0x1100, 0x100);
        assert!(find(0x1000, 0x100).is_some());
        assert!(find(0x10ff, 1).is_some());
        assert!(find(0x1080, 0x100).is_none(), "two ranges");
        assert!(find(0xfff, 2).is_none());
        assert!(find(0x11ff, 2).is_none());
        assert!(find(0x1180, usize::MAX).is_none());
        withdraw(0x1000);
        assert!(find(0x1000, 1).is_none());
        assert!(find(0x1100, 1).is_some());
        withdraw(0x1100);
        withdraw(0x1100);
    }

    #[test]
    fn each_thing_is_made_once_and_waited_for() {
        declare(0x2000, 0x100);
        let range = find(0x2010, 1).unwrap();
        let of = |number| move |made: &(usize, usize, u8)| made.2 == number;
        let first = range.made(of(1), |start, len| (start, len, 1));
        assert_eq!(*first, (0x2000, 0x100, 1));
        let again = range.made(of(1), |_, _| (0, 0, 0));
        assert!(Arc::ptr_eq(&first, &again));
        let other = range.made(of(2), |start, len| (start, len, 2));
        assert!(!Arc::ptr_eq(&first, &other));
        drop((range, again, other));
        let user = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            *first
        });
        withdraw(0x2000);
        assert!(user.is_finished() || user.join().is_ok());
        assert!(find(0x2000, 1).is_none());
    }
}
