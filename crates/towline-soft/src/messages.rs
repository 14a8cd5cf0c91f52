//! Messages for the program: faults of kernels, and what this device cannot run. They go to the functions that `cuLogsRegisterCallback`
//! was given, and to the log. Each kind of message is told once about each kernel, then counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::driver::lock;

/// Most kinds of messages that are counted, all kernels together; further ones are not told.
const KINDS: usize = 1024;
/// Most characters of a name, which C++ makes as long as it likes.
const NAME: usize = 160;

/// A function that takes messages.
pub(crate) type Listener = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Messages(Mutex<State>);

#[derive(Default)]
struct State {
    /// How often there was something to tell, by what it is about and its kind.
    counts: HashMap<(String, &'static str), u64>,
    listeners: BTreeMap<usize, Listener>,
}

/// A name as messages show it.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(NAME) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}...", name.split_at(end).0),
    }
}

impl Messages {
    pub(crate) fn listen(&self, number: usize, listener: Listener) {
        lock(&self.0).listeners.insert(number, listener);
    }

    /// Whether there was such a listener.
    pub(crate) fn forget(&self, number: usize) -> bool {
        lock(&self.0).listeners.remove(&number).is_some()
    }

    /// Tells a message of a kind about a kernel, or about whatever `about` names; after the first only how many there were, and that by
    /// powers of ten.
    pub(crate) fn tell(&self, about: &str, kind: &'static str, text: impl FnOnce() -> String) {
        let mut state = lock(&self.0);
        let key = (shown(about), kind);
        if state.counts.len() >= KINDS && !state.counts.contains_key(&key) {
            return;
        }
        let count = state.counts.entry(key).or_insert(0);
        *count += 1;
        let count = *count;
        let listeners: Vec<Listener> = state.listeners.values().cloned().collect();
        drop(state);
        let text = match count {
            1 => text(),
            _ if 10_u64.pow(count.ilog10()) == count => {
                format!("{}: {kind}, {count} times by now", shown(about))
            }
            _ => return,
        };
        log::error!("{text}");
        listeners.iter().for_each(|listener| listener(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_messages_are_counted_by_powers_of_ten() {
        let messages = Messages::default();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        messages.listen(1, Arc::new(move |text| lock(&ear).push(text.to_owned())));
        for _ in 0..120 {
            messages.tell("k", "cannot run", || "k cannot run: no such thing".into());
        }
        messages.tell("k", "trap", || "k: trap".into());
        let expected = [
            "k cannot run: no such thing",
            "k: cannot run, 10 times by now",
            "k: cannot run, 100 times by now",
            "k: trap",
        ];
        assert_eq!(*lock(&heard), expected);
        assert!(messages.forget(1) && !messages.forget(1));
        messages.tell("l", "trap", || "l: trap".into());
        assert_eq!(lock(&heard).len(), 4);
    }

    #[test]
    fn kinds_beyond_the_limit_are_not_told() {
        let messages = Messages::default();
        let told = Arc::new(Mutex::new(0));
        let count = Arc::clone(&told);
        messages.listen(1, Arc::new(move |_| *lock(&count) += 1));
        for number in 0..2 * KINDS {
            messages.tell(&number.to_string(), "trap", String::new);
        }
        assert_eq!(*lock(&told), KINDS);
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shown("short"), "short");
        assert_eq!(shown(&"n".repeat(500)), "n".repeat(NAME) + "...");
    }
}
