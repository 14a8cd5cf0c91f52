//! `towline doctor`: what stands between a program on this machine and the devices of its servers, and what to do about it.
//!
//! [`client`] looks at this machine, [`pytorch`] at its PyTorch, [`server`] at one server. Each gives findings in the order in which a connection would meet them;
//! what follows an error on the way to a server is left out.

mod client;
mod pytorch;
mod server;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use towline_progress::Progress;

use self::pytorch::PyTorch;
use crate::ask;
use crate::cli::DoctorOptions;
use crate::servers::{self, short};

/// The state of a finding.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Programs run, and may disappoint.
    Warning,
    /// Programs get no device.
    Error,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Note => "36",
            Self::Warning => "33",
            Self::Error => "31",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    subject: &'static str,
    state: State,
    text: String,
    /// The thing to do, where there is one.
    remedy: Option<String>,
}

impl Finding {
    fn new(subject: &'static str, state: State, text: impl Into<String>) -> Self {
        Self {
            subject,
            state,
            text: text.into(),
            remedy: None,
        }
    }

    fn ok(subject: &'static str, text: impl Into<String>) -> Self {
        Self::new(subject, State::Ok, text)
    }

    fn but(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Findings about one place.
#[derive(Debug, Serialize)]
struct Section {
    /// A server's address, or `client`.
    place: String,
    findings: Vec<Finding>,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// The worst state of all.
    state: State,
    sections: Vec<Section>,
}

impl Report {
    fn new(sections: Vec<Section>) -> Self {
        let states = sections
            .iter()
            .flat_map(|section| &section.findings)
            .map(|finding| finding.state);
        Self {
            state: states.max().unwrap_or(State::Ok),
            sections,
        }
    }

    fn render(&self, coloured: bool) -> String {
        let mut text = String::new();
        let all = || self.sections.iter().flat_map(|section| &section.findings);
        let width = all()
            .map(|finding| finding.subject.len())
            .max()
            .unwrap_or(0);
        for section in &self.sections {
            let title = match section.place.as_str() {
                "client" => "This machine",
                place => place,
            };
            let _ = writeln!(text, "{title}");
            for finding in &section.findings {
                let state = format!("{:<7}", finding.state.name());
                let state = match coloured {
                    true => format!("\x1b[{}m{state}\x1b[0m", finding.state.colour()),
                    false => state,
                };
                let said = printable(&finding.text);
                let _ = writeln!(text, "  {state}  {:<width$}  {said}", finding.subject);
                if let Some(remedy) = &finding.remedy {
                    let _ = writeln!(text, "  {:7}  {:<width$}  -> {}", "", "", printable(remedy));
                }
            }
        }
        let count = |state| all().filter(|finding| finding.state == state).count();
        let (errors, warnings) = (count(State::Error), count(State::Warning));
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "{errors} error{}, {warnings} warning{}",
            plural(errors),
            plural(warnings)
        );
        text
    }
}

/// Text of servers must not move the cursor.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

pub(crate) fn run(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let mut named = options.servers.clone();
    named.servers.extend(options.hosts.iter().cloned());
    let progress = Progress::new(!options.json);
    let mut sections = Vec::new();
    match servers::choose_any(&named) {
        Ok(chosen) => {
            let pytorch = PyTorch::find();
            let mut findings = client::look(&chosen);
            findings.extend(pytorch.as_ref().map(PyTorch::finding));
            sections.push(Section {
                place: "client".to_owned(),
                findings,
            });
            progress.tell("asking servers");
            let looked = ask::on_all(&chosen.servers, |address| {
                Ok(server::look(address, &chosen.settings, pytorch.as_ref()))
            });
            for (address, findings) in chosen.servers.iter().zip(looked) {
                sections.push(Section {
                    place: short(address),
                    findings: findings?,
                });
            }
        }
        Err(error) => {
            let finding = Finding::new("settings", State::Error, format!("{error:#}"));
            sections.push(Section {
                place: "client".to_owned(),
                findings: vec![finding],
            });
        }
    }
    progress.clear();
    let report = Report::new(sections);
    let mut out = std::io::stdout();
    let text = match options.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => {
            let asked_not_to = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            report.render(out.is_terminal() && !asked_not_to)
        }
    };
    out.write_all(text.as_bytes())?;
    Ok(ExitCode::from(u8::from(report.state == State::Error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let findings = vec![
            Finding::ok("port", "open\x1b[2J"),
            Finding::new("protocol", State::Error, "no").but("do this"),
        ];
        Report::new(vec![Section {
            place: "gpu1".into(),
            findings,
        }])
    }

    #[test]
    fn findings_stand_below_their_place_with_remedies() {
        assert_eq!(
            report().render(false),
            "gpu1\n  ok       port      open?[2J\n  error    protocol  no\n                     -> do this\n1 error, 0 warnings\n"
        );
    }

    #[test]
    fn colour_is_of_the_state_alone() {
        assert!(
            report()
                .render(true)
                .contains("\x1b[31merror  \x1b[0m  protocol")
        );
    }

    #[test]
    fn worst_state_is_the_reports() {
        assert_eq!(report().state, State::Error);
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["state"], "error");
        assert_eq!(json["sections"][0]["findings"][1]["remedy"], "do this");
    }
}
