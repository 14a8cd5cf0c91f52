//! Clusters that come with the program.

use super::Cluster;
use crate::{Error, Result};

/// Name and description of each.
const PRESETS: &[(&str, &str)] = &[
    ("study-gbe", include_str!("../../presets/study-gbe.toml")),
    ("study-qdr", include_str!("../../presets/study-qdr.toml")),
    ("two-leaves", include_str!("../../presets/two-leaves.toml")),
];

/// Names of the clusters that come with the program.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// The text of a preset, to start a description of one's own from.
pub fn text(name: &str) -> Result<&'static str> {
    let known = PRESETS.iter().find(|(known, _)| *known == name);
    known.map(|(_, text)| *text).ok_or_else(|| Error::Cluster {
        what: name.to_owned(),
        reason: format!("there is no such preset; there are {}", names().join(", ")),
    })
}

/// The cluster of a name.
pub fn cluster(name: &str) -> Result<Cluster> {
    Cluster::from_toml(text(name)?, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_read() {
        for name in names() {
            cluster(name).unwrap();
        }
        assert_eq!(cluster("study-qdr").unwrap().cores(), 384);
        assert!(
            cluster("study")
                .unwrap_err()
                .to_string()
                .contains("study-qdr")
        );
    }
}
