//! Applies a plan, and takes everything back.
//!
//! Each change is read before and after it is made, and announced in the journal between. So a run that was cut off goes on where
//! it was, and undo knows what to take back wherever that was. A change whose place shows neither the state before nor the one
//! after was disturbed by somebody else: neither apply nor undo guesses then.

use crate::act::{self, State};
use crate::address::PciAddress;
use crate::host::Use;
use crate::inspect::inspect;
use crate::journal::{Entry, Journal, JournalError, Place, Section};
use crate::plan::{Plan, plan};
use crate::request::Request;
use crate::step::{Action, Class, Form, Step};
use crate::world::{World, WorldError};

/// How to apply.
#[derive(Clone, Debug, Default)]
pub struct ApplyOptions {
    /// Devices to take although somebody needs them. The request has to name them as well.
    pub take: Vec<PciAddress>,
}

/// How to undo.
#[derive(Clone, Copy, Debug, Default)]
pub struct UndoOptions {
    /// Leave what somebody else has changed since as it is, instead of refusing to go on.
    pub skip_drifted: bool,
}

/// What became of applying.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Applied {
    /// Everything is as planned.
    Complete,
    /// What counts from the next start on is written; the rest comes after it, by applying again.
    RestartNeeded,
}

/// Why it did not go on. What was done stays, and is known to undo.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Somebody else changed it.
    #[error(
        "{what}: found {found}, neither as before nor as planned: somebody else has changed it. {advice}"
    )]
    Drift {
        /// What the action does.
        what: String,
        /// What is there.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// The kernel or a command refused.
    #[error("{what} failed{held}")]
    Failed {
        /// What was done.
        what: String,
        /// Who has the device.
        held: String,
        /// What the kernel said.
        source: WorldError,
    },
    /// A machine has what is to be taken back.
    #[error("{device} is in use: {uses}; shut the machine down first")]
    Held {
        /// Which.
        device: PciAddress,
        /// By whom.
        uses: String,
    },
    /// A device is needed.
    #[error(
        "{device} is in use: {uses}; free it, or name it in take_in_use and with --take {device}"
    )]
    InUse {
        /// Which.
        device: PciAddress,
        /// By whom.
        uses: String,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It was done, and the kernel shows something else.
    #[error("{what} was accepted, but {check} does not hold: {found}")]
    NotEffective {
        /// What was done.
        what: String,
        /// What should be.
        check: String,
        /// What is.
        found: String,
    },
    /// The plan says that it cannot be done.
    #[error("this host cannot do what is asked:\n{0}")]
    Obstacles(String),
    /// Another request was applied.
    #[error("something else is applied on this host; undo that first (towline node undo)")]
    Other,
    /// The plan is for another state.
    #[error("the plan was made for {planned}, and this is {present}; plan again")]
    OtherHost {
        /// The host and start that it was made for.
        planned: String,
        /// This one.
        present: String,
    },
}

/// What is told while it goes on: a line for each change.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// Brings the host to what is asked for, or goes on doing so.
///
/// # Errors
///
/// See [`ApplyError`]; what was done by then stays.
pub fn apply(
    world: &mut dyn World,
    request: &Request,
    options: &ApplyOptions,
    progress: Progress<'_>,
) -> Result<Applied, ApplyError> {
    let mut journal = Journal::load(world)?;
    let boot_id = world
        .root()
        .text("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default();
    let section = match journal.sections.last() {
        Some(last) if last.plan.request != *request => return Err(ApplyError::Other),
        // Half undone: only undo goes on from there.
        Some(last) if last.entries.iter().any(|entry| entry.is_undone) => {
            return Err(ApplyError::Other);
        }
        Some(last) if last.plan.boot_id == boot_id => Some(last.plan.clone()),
        _ => None,
    };
    match section {
        Some(plan) => {
            let position = journal.sections.len().saturating_sub(1);
            carry_out(world, &mut journal, position, &plan, options, progress)
        }
        None => {
            let plan = plan(&inspect(world.root()), request);
            begin(world, &mut journal, &plan, options, progress)
        }
    }
}

/// Applies a plan that was made before, on this start of this host.
///
/// # Errors
///
/// See [`ApplyError`]; what was done by then stays.
pub fn apply_plan(
    world: &mut dyn World,
    plan: &Plan,
    options: &ApplyOptions,
    progress: Progress<'_>,
) -> Result<Applied, ApplyError> {
    let mut journal = Journal::load(world)?;
    let text = |path: &str| world.root().text(path).unwrap_or_default();
    let present = (
        text("/proc/sys/kernel/hostname"),
        text("/proc/sys/kernel/random/boot_id"),
    );
    if present != (plan.host.clone(), plan.boot_id.clone()) {
        return Err(ApplyError::OtherHost {
            planned: format!("{} (start {})", plan.host, plan.boot_id),
            present: format!("{} (start {})", present.0, present.1),
        });
    }
    match journal.sections.last().map(|last| last.plan == *plan) {
        Some(false) => Err(ApplyError::Other),
        Some(true) => {
            let position = journal.sections.len().saturating_sub(1);
            carry_out(world, &mut journal, position, plan, options, progress)
        }
        None => begin(world, &mut journal, plan, options, progress),
    }
}

fn begin(
    world: &mut dyn World,
    journal: &mut Journal,
    plan: &Plan,
    options: &ApplyOptions,
    progress: Progress<'_>,
) -> Result<Applied, ApplyError> {
    if !plan.obstacles.is_empty() {
        let lines: Vec<String> = plan
            .obstacles
            .iter()
            .map(|obstacle| format!("- {}\n  would help: {}", obstacle.what, obstacle.remedy))
            .collect();
        return Err(ApplyError::Obstacles(lines.join("\n")));
    }
    // Named twice: what the request names in take_in_use has to be named here as well.
    let host = inspect(world.root());
    let adapters = plan
        .vms
        .iter()
        .flat_map(crate::plan::Vm::functions)
        .map(|function| function.physical);
    for address in plan.devices().into_iter().chain(adapters) {
        let Some(device) = host.device(address) else {
            continue;
        };
        let is_named =
            options.take.contains(&address) && plan.request.take_in_use.contains(&address);
        let vital: Vec<String> = device
            .uses
            .iter()
            .filter(|by| by.is_vital())
            .map(ToString::to_string)
            .collect();
        if !vital.is_empty() && !is_named {
            return Err(ApplyError::InUse {
                device: address,
                uses: vital.join("; "),
            });
        }
    }
    let section = journal.begin(world, plan)?;
    carry_out(world, journal, section, plan, options, progress)
}

fn carry_out(
    world: &mut dyn World,
    journal: &mut Journal,
    section: usize,
    plan: &Plan,
    options: &ApplyOptions,
    progress: Progress<'_>,
) -> Result<Applied, ApplyError> {
    // What counts from the next start on goes first; the rest may need it and waits.
    let waits = plan.needs_reboot();
    for (number, step) in plan.steps.iter().enumerate() {
        if waits && step.class == Class::Runtime {
            continue;
        }
        for (position, action) in step.actions.iter().enumerate() {
            let place = Place {
                section,
                step: number,
                action: position,
            };
            make(world, journal, place, step, action, plan, options, progress)?;
        }
    }
    if journal
        .sections
        .get(section)
        .is_some_and(|section| !section.is_applied)
    {
        journal.applied(world, section)?;
    }
    Ok(match waits {
        true => Applied::RestartNeeded,
        false => Applied::Complete,
    })
}

#[allow(clippy::too_many_arguments)]
fn make(
    world: &mut dyn World,
    journal: &mut Journal,
    place: Place,
    step: &Step,
    action: &Action,
    plan: &Plan,
    options: &ApplyOptions,
    progress: Progress<'_>,
) -> Result<(), ApplyError> {
    let what = action.forward();
    let failed = |world: &mut dyn World, source| ApplyError::Failed {
        held: holders(world, action),
        what: format!("{} ({what})", step.title),
        source,
    };
    let begun = journal.entry(place).cloned();
    if begun.as_ref().is_some_and(|entry| entry.is_done)
        && is_superseded(journal, plan, place, action)
    {
        return Ok(());
    }
    let found = begun.as_ref().and_then(|entry| entry.found.clone());
    match act::state(world, action, found.as_deref()).map_err(|source| failed(world, source))? {
        Some(State::After) => {
            // Announced and then cut off: it is ours all the same.
            if begun.is_some_and(|entry| !entry.is_done) {
                journal.done(world, place)?;
            }
            return Ok(());
        }
        None if begun.as_ref().is_some_and(|entry| entry.is_done) => return Ok(()),
        Some(State::Gone) if is_dispensable(action) => return Ok(()),
        // It was done to a virtual function that a later action has made anew; actions for the new one look for themselves.
        Some(State::Gone) if begun.is_some_and(|entry| entry.is_done) => return Ok(()),
        Some(State::Other(found)) if !is_dispensable(action) => {
            return Err(ApplyError::Drift {
                what,
                found,
                advice: "Undo, and plan again.",
            });
        }
        Some(State::Gone) if !matches!(action, Action::VirtualFunction { .. }) => {
            return Err(ApplyError::Drift {
                what,
                found: "nothing".to_owned(),
                advice: "Undo, and plan again.",
            });
        }
        // An `ip` that does not tell is no reason not to set it.
        Some(_) | None => {}
    }
    if let Action::Unbind { device, .. } = action {
        free(world, *device, plan, options)?;
    }
    if journal.entry(place).is_none() {
        let found = act::found(world, action).map_err(|source| failed(world, source))?;
        journal.intend(world, place, found)?;
    }
    if !what.is_empty() && !matches!(action, Action::Run { forward: None, .. }) {
        progress(&what);
    }
    if let Err(source) = act::forward(world, action) {
        // Interrupts that the kernel manages itself cannot be moved.
        if is_dispensable(action) {
            return Ok(());
        }
        return Err(failed(world, source));
    }
    match act::state(world, action, None).map_err(|source| failed(world, source))? {
        Some(State::After) | None => {}
        Some(State::Gone) if matches!(action, Action::VirtualFunction { .. }) => {}
        _ if is_dispensable(action) => {}
        Some(state) => {
            return Err(ApplyError::NotEffective {
                what,
                check: action.check(),
                found: describe(action, &state),
            });
        }
    }
    Ok(journal.done(world, place)?)
}

/// Whether a later action that was begun has changed the same thing again.
fn is_superseded(journal: &Journal, plan: &Plan, place: Place, action: &Action) -> bool {
    let target = act::target(action);
    let entries = journal
        .sections
        .get(place.section)
        .map(|section| &section.entries);
    !target.is_empty()
        && entries
            .into_iter()
            .flatten()
            .filter(|entry| entry.place > place)
            .any(|entry| {
                let later = plan
                    .steps
                    .get(entry.place.step)
                    .and_then(|step| step.actions.get(entry.place.action));
                later.is_some_and(|later| act::target(later) == target)
            })
}

/// What a machine runs without, only less evenly.
fn is_dispensable(action: &Action) -> bool {
    matches!(
        action,
        Action::Attribute {
            form: Form::Processors,
            ..
        }
    )
}

fn describe(action: &Action, state: &State) -> String {
    match (action, state) {
        (
            Action::Attribute {
                form: Form::Amount, ..
            },
            State::Before | State::Between,
        ) => "there is less in one piece: free memory, or reserve pages at the start (persist = true)".to_owned(),
        (_, State::Other(found)) => found.clone(),
        (_, State::Gone) => "it is gone".to_owned(),
        _ => "it is as before".to_owned(),
    }
}

/// Refuses to take a device from its driver while somebody has it: that can hang for ever.
fn free(
    world: &mut dyn World,
    address: PciAddress,
    plan: &Plan,
    options: &ApplyOptions,
) -> Result<(), ApplyError> {
    if options.take.contains(&address) && plan.request.take_in_use.contains(&address) {
        return Ok(());
    }
    let host = inspect(world.root());
    let uses: Vec<String> = host
        .device(address)
        .into_iter()
        .flat_map(|device| &device.uses)
        .filter(|by| !matches!(by, Use::VirtualFunctions { .. }))
        .map(ToString::to_string)
        .collect();
    match uses.is_empty() {
        true => Ok(()),
        false => Err(ApplyError::InUse {
            device: address,
            uses: uses.join("; "),
        }),
    }
}

/// Refuses to take a device back that a machine has: the kernel would wait for its end, and take it then.
fn released(world: &mut dyn World, address: PciAddress) -> Result<(), ApplyError> {
    let host = inspect(world.root());
    let uses: Vec<String> = host
        .device(address)
        .into_iter()
        .flat_map(|device| &device.uses)
        .filter(|by| matches!(by, Use::Process { .. }))
        .map(ToString::to_string)
        .collect();
    match uses.is_empty() {
        true => Ok(()),
        false => Err(ApplyError::Held {
            device: address,
            uses: uses.join("; "),
        }),
    }
}

/// Who has the device of a change that failed.
fn holders(world: &mut dyn World, action: &Action) -> String {
    let Some(address) = act::device(action) else {
        return String::new();
    };
    let host = inspect(world.root());
    let uses: Vec<String> = host
        .device(address)
        .into_iter()
        .flat_map(|device| &device.uses)
        .map(ToString::to_string)
        .collect();
    match uses.is_empty() {
        true => format!("; nobody is seen to have {address}"),
        false => format!("; {address} is held: {}", uses.join("; ")),
    }
}

/// Takes back everything that was applied, newest first, and answers what was left as it is.
///
/// Goes on where an earlier undo was cut off. What a restart has undone already is not touched.
///
/// # Errors
///
/// See [`ApplyError`]; what is not undone by then stays in the journal.
pub fn undo(
    world: &mut dyn World,
    options: UndoOptions,
    progress: Progress<'_>,
) -> Result<Vec<String>, ApplyError> {
    let mut journal = Journal::load(world)?;
    let boot_id = world
        .root()
        .text("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default();
    nobody_has(world, &journal)?;
    let mut left = Vec::new();
    for section in (0..journal.sections.len()).rev() {
        let Some(found) = journal.sections.get(section) else {
            continue;
        };
        let plan = found.plan.clone();
        let entries: Vec<Entry> = pending(found).cloned().collect();
        let is_this_start = plan.boot_id == boot_id;
        for entry in entries {
            let step = plan.steps.get(entry.place.step);
            let Some((step, action)) =
                step.and_then(|step| Some((step, step.actions.get(entry.place.action)?)))
            else {
                continue;
            };
            let is_reset = !is_this_start && step.class == Class::Runtime;
            if let Some(line) = take_back(world, step, action, &entry, is_reset, options, progress)?
            {
                left.push(line);
            }
            journal.undone(world, entry.place)?;
        }
    }
    if !journal.is_empty() {
        journal.remove(world)?;
    }
    Ok(left)
}

/// What is to be taken back, in that order.
fn pending(section: &Section) -> impl Iterator<Item = &Entry> {
    let entries = section.entries.iter().rev();
    entries.filter(|entry| !entry.is_undone)
}

/// Refuses before anything is taken back, where a machine still has a device.
fn nobody_has(world: &mut dyn World, journal: &Journal) -> Result<(), ApplyError> {
    for section in &journal.sections {
        for entry in pending(section) {
            let step = section.plan.steps.get(entry.place.step);
            let action = step.and_then(|step| step.actions.get(entry.place.action));
            let Some(action @ Action::Probe { device, .. }) = action else {
                continue;
            };
            let state = act::state(world, action, entry.found.as_deref());
            // What cannot be said now is told when its turn comes.
            if matches!(state, Ok(Some(State::After | State::Between))) {
                released(world, *device)?;
            }
        }
    }
    Ok(())
}

/// Takes back one change, and answers what it left as it is.
fn take_back(
    world: &mut dyn World,
    step: &Step,
    action: &Action,
    entry: &Entry,
    is_reset: bool,
    options: UndoOptions,
    progress: Progress<'_>,
) -> Result<Option<String>, ApplyError> {
    let what = action.backward();
    let failed = |world: &mut dyn World, source| ApplyError::Failed {
        held: holders(world, action),
        what: format!("undoing: {} ({what})", step.title),
        source,
    };
    let found = entry.found.as_deref();
    match act::state(world, action, found).map_err(|source| failed(world, source))? {
        // A file that was being put in place may have left its unfinished copy.
        Some(State::Before) if matches!(action, Action::File { .. }) => {}
        // A drive may have been told what to keep from its next reset on.
        Some(State::Before)
            if !is_reset && matches!(action, Action::DriveShare { function: None, .. }) => {}
        Some(State::Before | State::Gone) => return Ok(None),
        Some(State::Other(now)) => {
            // The restart made it what it is.
            if is_reset {
                return Ok(None);
            }
            // Somebody (irqbalance) moves interrupts all the time.
            if options.skip_drifted || is_dispensable(action) {
                return Ok(Some(format!("{}: left as it is, {now}", action.check())));
            }
            return Err(ApplyError::Drift {
                what: format!("undo of: {}", action.forward()),
                found: now,
                advice: "Set it right by hand, or undo with --skip-drifted, which leaves it as it is.",
            });
        }
        Some(State::After | State::Between) | None => {}
    }
    if let Action::VirtualFunction { stays: false, .. } = action {
        return Ok(None);
    }
    if let Action::Probe { device, .. } = action {
        released(world, *device)?;
    }
    if !matches!(action, Action::Run { backward: None, .. }) {
        progress(&what);
    }
    match act::backward(world, action, found) {
        Ok(()) => {}
        Err(_) if is_dispensable(action) => {
            return Ok(Some(format!("{}: the kernel keeps it", action.check())));
        }
        Err(source) => return Err(failed(world, source)),
    }
    match act::state(world, action, found).map_err(|source| failed(world, source))? {
        Some(State::Before | State::Gone) | None => Ok(None),
        // What was unset cannot be unset again.
        _ if matches!(action, Action::VirtualFunction { .. }) => Ok(Some(format!(
            "{} stays: it was not known before",
            action.check()
        ))),
        _ if is_dispensable(action) => Ok(Some(format!("{}: the kernel keeps it", action.check()))),
        Some(state) => Err(ApplyError::NotEffective {
            what,
            check: format!("undo of: {}", action.forward()),
            found: describe(action, &state),
        }),
    }
}
