//! What is asked for: a small TOML file.

use serde::{Deserialize, Serialize};

use crate::address::PciAddress;

/// The virtual machines that a host is to carry. All are alike.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// How many.
    pub vms: u32,
    /// What they are called: `NAME0`, `NAME1`.
    #[serde(default = "default_name")]
    pub name: String,
    /// GPUs for each.
    #[serde(default)]
    pub gpus: u32,
    /// Virtual functions of network adapters for each.
    #[serde(default)]
    pub vfs: u32,
    /// Virtual functions of NVMe drives for each.
    #[serde(default)]
    pub drives: u32,
    /// Cores for each, with all of their threads.
    pub cores: u32,
    /// Memory for each: `"20 GiB"`.
    pub memory: Memory,
    /// Whether a machine may span NUMA nodes.
    #[serde(default)]
    pub affinity: Affinity,
    /// The size of huge pages; the largest that the host has and the memory is whole in when not said.
    #[serde(default)]
    pub page: Option<Memory>,
    /// Cores of each node that stay with the host.
    #[serde(default = "default_host_cores")]
    pub host_cores: u32,
    /// Let GPUs and adapters below one switch talk directly.
    #[serde(default = "default_true")]
    pub gpudirect: bool,
    /// Keep the host's tasks and timers off the machines' cores, from the next start on.
    #[serde(default)]
    pub isolate: bool,
    /// Set devices aside at each start too.
    #[serde(default)]
    pub persist: bool,
    /// Let the machines change the hardware addresses of their functions.
    #[serde(default)]
    pub trust: bool,
    /// The InfiniBand partition that the machines' ports have to be in.
    #[serde(default)]
    pub partition_key: Option<u16>,
    /// Only these GPUs, adapters and drives, if any are named.
    #[serde(default)]
    pub only: Vec<PciAddress>,
    /// Never these.
    #[serde(default)]
    pub exclude: Vec<PciAddress>,
    /// These although somebody needs them; `apply` has to be told as well.
    #[serde(default)]
    pub take_in_use: Vec<PciAddress>,
}

fn default_name() -> String {
    "node".to_owned()
}

fn default_host_cores() -> u32 {
    1
}

fn default_true() -> bool {
    true
}

/// Whether everything of a machine has to be on one NUMA node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Affinity {
    /// It has to
    #[default]
    Strict,
    /// If there is room; else the machine has as many nodes as its devices
    Preferred,
}

/// An amount of memory, written with its unit.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct Memory {
    kib: u64,
}

impl Memory {
    /// The amount in KiB.
    #[must_use]
    pub fn kib(self) -> u64 {
        self.kib
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> Self {
        crate::picture::size(memory.kib << 10)
    }
}

impl TryFrom<String> for Memory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        /// More than any machine has; keeps sums from overflowing.
        const MAX_KIB: u64 = 1 << 40;
        let split = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = match unit.trim() {
            "KiB" => 1,
            "MiB" => 1 << 10,
            "GiB" => 1 << 20,
            _ => 0,
        };
        let kib = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit));
        match kib.filter(|&kib| kib > 0 && kib <= MAX_KIB) {
            Some(kib) => Ok(Self { kib }),
            None => Err(format!(
                "`{text}` is no amount of memory: write it like \"20 GiB\" or \"512 MiB\""
            )),
        }
    }
}

/// A request that makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A number beyond what makes sense.
    #[error("`{field}` is {value}; it has to be {range}")]
    Range {
        /// The field.
        field: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// A name that other programs would stumble over.
    #[error("`name` is `{0}`; it has to be letters, digits and dashes, at most 32, a letter first")]
    Name(String),
    /// Not TOML, or not with these fields.
    #[error("the request cannot be read")]
    Syntax(#[from] toml::de::Error),
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// When it is no TOML, has unknown fields, or asks for what makes no sense.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let request: Self = toml::from_str(text)?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), RequestError> {
        let within = |field, value: u32, least: u32, most: u32, range| match (least..=most)
            .contains(&value)
        {
            true => Ok(()),
            false => Err(RequestError::Range {
                field,
                value: value.into(),
                range,
            }),
        };
        within("vms", self.vms, 1, 64, "1 to 64")?;
        within("gpus", self.gpus, 0, 32, "0 to 32")?;
        within("vfs", self.vfs, 0, 32, "0 to 32")?;
        within("drives", self.drives, 0, 32, "0 to 32")?;
        within("cores", self.cores, 1, 1024, "1 to 1024")?;
        within("host_cores", self.host_cores, 0, 1024, "0 to 1024")?;
        let mut letters = self.name.bytes();
        let fits = letters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic())
            && letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && self.name.len() <= 32;
        match fits {
            true => Ok(()),
            false => Err(RequestError::Name(self.name.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_request_has_sensible_defaults() {
        let request =
            Request::parse("vms = 2\ncores = 8\nmemory = \"20 GiB\"\ngpus = 1\n").unwrap();
        assert_eq!(
            (request.memory.kib(), request.affinity),
            (20 << 20, Affinity::Strict)
        );
        assert!(
            request.gpudirect
                && !request.persist
                && request.name == "node"
                && request.host_cores == 1
        );
    }

    #[test]
    fn requests_that_make_no_sense_say_what_would() {
        for (text, part) in [
            ("vms = 0\ncores = 1\nmemory = \"1 GiB\"", "1 to 64"),
            ("vms = 1\ncores = 1\nmemory = \"1 GB\"", "\"20 GiB\""),
            (
                "vms = 1\ncores = 1\nmemory = \"99999999999999999999 GiB\"",
                "\"20 GiB\"",
            ),
            (
                "vms = 1\ncores = 1\nmemory = \"1 GiB\"\nname = \"a b\"",
                "letters",
            ),
            ("vms = 1\ncores = 1\nmemory = \"1 GiB\"\ngpu = 1", "gpus"),
            (
                "vms = 1\ncores = 1\nmemory = \"1 GiB\"\nexclude = [\"17\"]",
                "0000:17:00.0",
            ),
        ] {
            let error = Request::parse(text).unwrap_err();
            let text = match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            assert!(text.contains(part), "{text}");
        }
    }
}
