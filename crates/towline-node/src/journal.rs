//! What was done to a host, on the disk before it is done.
//!
//! One line per record: a checksum and JSON. A line that is cut short is the last one, since each is on the disk before the next
//! is begun; what it announces has not been done. `/var/lib/towline-node/journal` is there from the first change until all is
//! undone.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::paths;
use crate::plan::Plan;
use crate::root::Root;
use crate::world::{World, WorldError};

/// Where an action is: plan, step, action, each from 0.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Place {
    /// Which of the plans that were begun.
    pub section: usize,
    /// The step in it.
    pub step: usize,
    /// The action of the step.
    pub action: usize,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Record {
    /// A plan is going to be applied.
    Begin(Box<Plan>),
    /// A change is going to be made; what was found before, where only the host knows it.
    Intend { place: Place, found: Option<String> },
    /// It is made.
    Done { place: Place },
    /// All of the plan that could be done in this start is.
    Applied { section: usize },
    /// A change is undone.
    Undone { place: Place },
}

/// A plan that was begun.
#[derive(Debug)]
pub struct Section {
    /// The plan.
    pub plan: Plan,
    /// Its changes that were begun, in order.
    pub entries: Vec<Entry>,
    /// Whether it came to its end.
    pub is_applied: bool,
}

/// A change that was begun.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Which.
    pub place: Place,
    /// What was found before, where only the host knows it.
    pub found: Option<String>,
    /// Whether it is known to be made.
    pub is_done: bool,
    /// Whether it is undone again.
    pub is_undone: bool,
}

/// The journal of a host.
#[derive(Debug, Default)]
pub struct Journal {
    /// The plans, in the order they were begun.
    pub sections: Vec<Section>,
}

/// A journal that cannot be gone on with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Not what was written.
    #[error(
        "the journal {path} is damaged in line {line}: undo by hand what it lists, then remove it"
    )]
    Damaged {
        /// Where it lies.
        path: String,
        /// The line, from 1.
        line: usize,
    },
    /// It is there and cannot be read.
    #[error("the journal {path} cannot be read: this needs root")]
    Unreadable {
        /// Where it lies.
        path: String,
    },
    /// Cannot be written.
    #[error("the journal cannot be written")]
    World(#[from] WorldError),
}

/// Where the journal lies.
pub(crate) fn path() -> String {
    format!("{}/journal", paths::STATE)
}

/// The plan that is applied to a host, read without mending anything; `None` when there is none or it cannot be read.
#[must_use]
pub fn applied(root: &Root) -> Option<Plan> {
    let bytes = root.bytes(&path())?;
    let mut journal = Journal::default();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        parse(line).and_then(|record| journal.take(record))?;
    }
    journal
        .sections
        .pop()
        .filter(|section| section.is_applied)
        .map(|section| section.plan)
}

impl Journal {
    /// Reads the journal of a host; an empty one when there is none. A line that was cut short is taken away.
    ///
    /// # Errors
    ///
    /// When it is damaged, or cannot be mended.
    pub fn load(world: &mut dyn World) -> Result<Self, JournalError> {
        let path = path();
        let Some(bytes) = world.root().bytes(&path) else {
            // Not as if nothing had been applied.
            return match world.root().exists(&path) {
                true => Err(JournalError::Unreadable { path }),
                false => Ok(Self::default()),
            };
        };
        let mut journal = Self::default();
        let mut whole = 0;
        for (line, number) in bytes.split_inclusive(|&byte| byte == b'\n').zip(1..) {
            match parse(line).and_then(|record| journal.take(record)) {
                Some(()) => whole += line.len(),
                // Only the last line may be one that a crash cut short.
                None if whole + line.len() == bytes.len() && !line.ends_with(b"\n") => break,
                None => return Err(JournalError::Damaged { path, line: number }),
            }
        }
        if whole < bytes.len() {
            let kept = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default()).into_owned();
            world.replace(&path, Some(&kept))?;
        }
        Ok(journal)
    }

    /// Whether there is nothing to undo.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    pub(crate) fn begin(
        &mut self,
        world: &mut dyn World,
        plan: &Plan,
    ) -> Result<usize, JournalError> {
        self.record(world, Record::Begin(Box::new(plan.clone())))?;
        Ok(self.sections.len().saturating_sub(1))
    }

    pub(crate) fn intend(
        &mut self,
        world: &mut dyn World,
        place: Place,
        found: Option<String>,
    ) -> Result<(), JournalError> {
        self.record(world, Record::Intend { place, found })
    }

    pub(crate) fn done(&mut self, world: &mut dyn World, place: Place) -> Result<(), JournalError> {
        self.record(world, Record::Done { place })
    }

    pub(crate) fn applied(
        &mut self,
        world: &mut dyn World,
        section: usize,
    ) -> Result<(), JournalError> {
        self.record(world, Record::Applied { section })
    }

    pub(crate) fn undone(
        &mut self,
        world: &mut dyn World,
        place: Place,
    ) -> Result<(), JournalError> {
        self.record(world, Record::Undone { place })
    }

    /// The entry of a change that was begun and not undone.
    pub(crate) fn entry(&self, place: Place) -> Option<&Entry> {
        let section = self.sections.get(place.section)?;
        section
            .entries
            .iter()
            .rev()
            .find(|entry| entry.place == place && !entry.is_undone)
    }

    /// Ends it: all is undone.
    pub(crate) fn remove(self, world: &mut dyn World) -> Result<(), JournalError> {
        Ok(world.replace(&path(), None)?)
    }

    fn record(&mut self, world: &mut dyn World, record: Record) -> Result<(), JournalError> {
        let json = serde_json::to_string(&record).expect("records have only strings as keys");
        world.append(
            &path(),
            format!("{} {json}\n", checksum(json.as_bytes())).as_bytes(),
        )?;
        self.take(record)
            .expect("a record of this run fits those before it");
        Ok(())
    }

    /// `None` for a record that fits none before it.
    fn take(&mut self, record: Record) -> Option<()> {
        match record {
            Record::Begin(plan) => self.sections.push(Section {
                plan: *plan,
                entries: Vec::new(),
                is_applied: false,
            }),
            Record::Intend { place, found } => {
                self.sections.get_mut(place.section)?.entries.push(Entry {
                    place,
                    found,
                    is_done: false,
                    is_undone: false,
                })
            }
            Record::Done { place } => self.last(place)?.is_done = true,
            Record::Undone { place } => self.last(place)?.is_undone = true,
            Record::Applied { section } => self.sections.get_mut(section)?.is_applied = true,
        }
        Some(())
    }

    fn last(&mut self, place: Place) -> Option<&mut Entry> {
        let entries = &mut self.sections.get_mut(place.section)?.entries;
        entries.iter_mut().rev().find(|entry| entry.place == place)
    }
}

fn parse(line: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = text.split_once(' ')?;
    (sum == checksum(json.as_bytes())).then(|| serde_json::from_str(json).ok())?
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
