//! Bonds between sessions of a job: what they do together comes to no end once one of them is gone.
//!
//! The supervisor knows who is bound by what, for it alone sees every session's end, and tells the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes of a bond's name.
pub const BOND_BYTES: usize = 16;

/// A bond's name: the same in every session that it binds.
pub type Bond = [u8; BOND_BYTES];

/// Keeps bonds.
pub trait Fellows: fmt::Debug + Send + Sync {
    /// The session is bound.
    fn bind(&self, bond: Bond);

    /// It is bound no more; the others need not hear of it.
    fn part(&self, bond: Bond);
}

/// Hears that another session of a bond is gone.
type Ear = Box<dyn Fn() + Send>;

/// The bonds of a session. Without fellows it hears of nobody.
#[derive(Default)]
pub struct Bonds {
    fellows: OnceLock<Box<dyn Fellows>>,
    /// By bond, and by a number of whoever is bound: a session may be bound twice.
    ears: Mutex<HashMap<Bond, HashMap<u64, Ear>>>,
}

impl fmt::Debug for Bonds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bonds")
            .field("fellows", &self.fellows)
            .finish_non_exhaustive()
    }
}

impl Bonds {
    /// Has bonds kept there. Before the session begins.
    pub fn keep(&self, fellows: Box<dyn Fellows>) {
        // Of two the first counts; there is one.
        let _ = self.fellows.set(fellows);
    }

    /// Another session of a bond is gone.
    pub fn lose(&self, bond: &Bond) {
        let ears = self.lock();
        ears.get(bond)
            .into_iter()
            .flat_map(HashMap::values)
            .for_each(|ear| ear());
    }

    /// Binds the session. `ear` hears on the supervisor's thread, and must not wait.
    pub(crate) fn bind(&self, bond: Bond, number: u64, ear: Ear) {
        let mut ears = self.lock();
        let bound = ears.entry(bond).or_default();
        let first = bound.is_empty();
        bound.insert(number, ear);
        // In the lock, as below: what is told has the order of what happened.
        if let (true, Some(fellows)) = (first, self.fellows.get()) {
            fellows.bind(bond);
        }
    }

    /// Ends what [`Self::bind`] began.
    pub(crate) fn part(&self, bond: &Bond, number: u64) {
        let mut ears = self.lock();
        let Some(bound) = ears.get_mut(bond) else {
            return;
        };
        if bound.remove(&number).is_none() || !bound.is_empty() {
            return;
        }
        ears.remove(bond);
        if let Some(fellows) = self.fellows.get() {
            fellows.part(*bond);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Bond, HashMap<u64, Ear>>> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Told(Arc<Mutex<Vec<(bool, Bond)>>>);

    impl Fellows for Told {
        fn bind(&self, bond: Bond) {
            self.0.lock().unwrap().push((true, bond));
        }

        fn part(&self, bond: Bond) {
            self.0.lock().unwrap().push((false, bond));
        }
    }

    #[test]
    fn session_bound_twice_is_told_once() {
        let (bonds, told) = (Bonds::default(), Told::default());
        bonds.keep(Box::new(told.clone()));
        let heard = Arc::new(AtomicUsize::new(0));
        let bond = [7; BOND_BYTES];
        for number in [1, 2] {
            let heard = Arc::clone(&heard);
            let ear = move || _ = heard.fetch_add(1, Ordering::Relaxed);
            bonds.bind(bond, number, Box::new(ear));
        }
        bonds.lose(&[8; BOND_BYTES]);
        assert_eq!(heard.load(Ordering::Relaxed), 0);
        bonds.lose(&bond);
        assert_eq!(heard.load(Ordering::Relaxed), 2);
        bonds.part(&bond, 1);
        bonds.part(&bond, 1);
        assert_eq!(*told.0.lock().unwrap(), [(true, bond)]);
        bonds.part(&bond, 2);
        bonds.lose(&bond);
        assert_eq!(heard.load(Ordering::Relaxed), 2);
        assert_eq!(*told.0.lock().unwrap(), [(true, bond), (false, bond)]);
    }
}
