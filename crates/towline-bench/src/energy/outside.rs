//! Power that something else measures: a command that prints it, a board controller, a meter that writes a file.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::series::{Sample, Series};
use crate::child;

/// How long a command may take: longer ones could not give a sample a second anyway.
const LIMIT: Duration = Duration::from_secs(5);

/// A shell command that prints watts.
pub(super) struct Printed {
    command: String,
    /// The words before the number; empty for the first number there is.
    label: &'static str,
}

impl Printed {
    pub(super) fn new(command: &str) -> Self {
        Self {
            command: command.into(),
            label: "",
        }
    }

    /// What the board's controller says, by DCMI.
    pub(super) fn ipmi() -> Self {
        Self {
            command: "ipmitool dcmi power reading".into(),
            label: "Instantaneous power reading:",
        }
    }

    pub(super) fn sample(&self) -> anyhow::Result<Sample> {
        let mut shell = Command::new("sh");
        let output = child::output(shell.args(["-c", &self.command]), LIMIT)
            .with_context(|| format!("`{}`", self.command))?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "`{}` ended with {}: {}",
            self.command,
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let watts = number_after(&text, self.label)
            .with_context(|| format!("`{}` printed no power: {:?}", self.command, text.trim()))?;
        Ok(Sample::Watts(watts))
    }
}

/// The first number after `label`.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    rest.split_whitespace().find_map(|word| word.parse().ok())
}

/// Reads what a meter has written: lines `SECONDS,WATTS`, seconds since 1970. Lines that begin with no digit are headings.
pub(super) fn read_csv(file: &Path) -> anyhow::Result<Series> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("could not read {}", file.display()))?;
    // The last line may still be under way.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut series = Series::default();
    for (index, line) in complete.lines().enumerate() {
        if !line.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        let mut fields = line.split(',').map(|field| field.trim().parse::<f64>());
        match (fields.next(), fields.next()) {
            (Some(Ok(at_s)), Some(Ok(watts))) => series.add(at_s, Sample::Watts(watts)),
            _ => bail!(
                "{}, line {}: {line:?} is no pair of seconds since 1970 and watts",
                file.display(),
                index + 1
            ),
        }
    }
    ensure!(series.len() > 0, "{} has no samples", file.display());
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_prints_watts() {
        let sample = Printed::new("echo 12.5 W").sample().unwrap();
        assert_eq!(sample, Sample::Watts(12.5));
    }

    #[test]
    fn command_that_fails_or_prints_none_says_so() {
        let error = |command| format!("{:#}", Printed::new(command).sample().unwrap_err());
        assert!(error("echo none").contains("printed no power"));
        assert!(error("echo broken >&2; exit 3").contains("broken"));
    }

    #[test]
    fn board_controller_is_read_by_its_label() {
        let text = "\n    Instantaneous power reading:                   220 Watts\n    Minimum during sampling period: 3 Watts\n";
        assert_eq!(number_after(text, Printed::ipmi().label), Some(220.0));
    }

    #[test]
    fn file_of_a_meter_is_read_up_to_its_last_whole_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "time,watts\n100.0,50\n101.0, 70\n102.0,9").unwrap();
        let series = read_csv(file.path()).unwrap();
        assert_eq!(series.len(), 2);
        assert_eq!(series.joules(100.0, 101.0), Some(60.0));
    }

    #[test]
    fn wrong_line_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "100,5\n101 7\n").unwrap();
        let error = read_csv(file.path()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        std::fs::write(file.path(), "time,watts\n").unwrap();
        assert!(
            read_csv(file.path())
                .unwrap_err()
                .to_string()
                .contains("no samples")
        );
    }
}
