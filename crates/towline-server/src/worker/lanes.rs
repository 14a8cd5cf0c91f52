//! What the engines of both APIs do alike: join lanes that arrive in any order, and choose devices.

use std::collections::VecDeque;
use std::sync::Arc;

use towline_transport::Connection;
use towline_worker::SideLane;

use super::process::{Lane, LaneKind, LaneSource};

/// The command lane, once it has come, and a way to get the others; `None` when the session ends first.
pub(super) fn of(
    lanes: LaneSource,
) -> Option<(
    Arc<dyn Connection>,
    impl FnMut() -> Option<SideLane> + Send + 'static,
)> {
    // Connections may arrive in any order; the command lane starts everything.
    let mut early = VecDeque::new();
    let command = loop {
        match lanes.next()? {
            Lane {
                kind: LaneKind::Client { index: 0, .. },
                connection,
            } => break connection,
            lane => early.push_back(lane),
        }
    };
    let further = move || {
        let Lane { kind, connection } = early.pop_front().or_else(|| lanes.next())?;
        Some(match kind {
            LaneKind::Client { .. } => SideLane::Payload(connection),
            LaneKind::Peer { number } => SideLane::Peer(number, connection),
        })
    };
    Some((command, further))
}

/// Whether a device is offered: by its number or a part of its name; all are without selectors.
pub(super) fn is_selected(selectors: &[String], number: usize, name: &str) -> bool {
    let matches = |selector: &String| match selector.parse::<usize>() {
        Ok(wanted) => wanted == number,
        Err(_) => name.to_lowercase().contains(&selector.to_lowercase()),
    };
    selectors.is_empty() || selectors.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_selected_by_number_or_part_of_their_name() {
        let chosen = |selector: &str| is_selected(&[selector.to_owned()], 1, "NVIDIA H200");
        assert!(chosen("1") && chosen("h200") && !chosen("0") && !chosen("radeon"));
        assert!(is_selected(&[], 5, "anything"));
    }
}
