//! What a run leaves behind: JSON for machines, tables for people. `bench/README.md` describes the JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cpu::CpuSeconds;
use crate::machine::Machine;
use crate::proxy::Link;
use crate::stats::Summary;
use crate::table::{Table, number};

pub use crate::cpu::CpuSeconds as Cpu;
pub use crate::machine::Machine as MeasuredOn;

/// Version of the JSON; goes up when a reader of an older one would go wrong.
pub const SCHEMA: u32 = 1;

/// The legs, in the order in which tables show them.
pub const LEGS: [&str; 6] = [
    "native",
    "local",
    "remote",
    "unpipelined",
    "uncached",
    "tcp",
];

/// One run of a benchmark.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `opencl` or `net`.
    pub kind: String,
    /// When it began, UTC.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// Fewer repetitions, sizes and sections.
    pub quick: bool,
    /// Version of Towline.
    pub version: String,
    /// Where the client ran.
    pub machine: Machine,
    /// Other servers than ones that the run started itself.
    pub servers: Vec<String>,
    /// The shaped link in between, if any.
    pub link: Option<Link>,
    /// What each leg ran on: name of the device, version of the driver.
    pub devices: BTreeMap<String, Device>,
    /// The measurements, in the order in which they were taken.
    pub figures: Vec<Figure>,
    /// What went wrong or was left out, in words.
    pub notes: Vec<String>,
}

/// The device of a leg.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its platform.
    pub platform: String,
    /// The driver's version.
    pub driver: String,
    /// The driver's OpenCL version.
    pub version: String,
    /// A GPU, by the driver's own account.
    pub gpu: bool,
    /// It computes in double precision.
    pub double: bool,
}

/// One quantity, measured on several legs in turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Figure {
    /// Unique in the report; the same in every run.
    pub id: String,
    /// Which part of the run.
    pub section: String,
    /// What was measured, in words.
    pub title: String,
    /// The table or figure of the VOCL paper that it stands for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paper: Option<String>,
    /// Unit of the measurements.
    pub unit: String,
    /// What each leg measured.
    pub legs: BTreeMap<String, Leg>,
    /// Leg over native, taken within each repetition.
    pub ratios: BTreeMap<String, Summary>,
    /// What was promised, and whether it holds.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bars: Vec<BarResult>,
}

/// What one leg measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Leg {
    /// Median and spread.
    #[serde(flatten)]
    pub summary: Summary,
    /// CPU seconds of all repetitions of the measurement that this figure was taken from.
    pub cpu: CpuSeconds,
    /// Share of kernels in the time (workloads).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compute_share: Option<f64>,
}

/// A promise, held against the medians.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct BarResult {
    /// The promise in words.
    pub promise: String,
    /// The leg that it is about.
    pub leg: String,
    /// What that leg measured.
    pub value: f64,
    /// The limit in this run, in the figure's unit.
    pub limit: f64,
    /// Whether the value keeps to it.
    pub pass: bool,
}

impl Report {
    /// Promises kept and promises made.
    pub fn bars(&self) -> (usize, usize) {
        let bars = || self.figures.iter().flat_map(|figure| &figure.bars);
        (bars().filter(|bar| bar.pass).count(), bars().count())
    }

    /// The figure of this id.
    pub fn figure(&self, id: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.id == id)
    }

    /// Tables, one per section, and the promises at the end.
    pub fn render(&self) -> String {
        let mut text = self.heading();
        let mut sections: Vec<&str> = Vec::new();
        for figure in &self.figures {
            if !sections.contains(&figure.section.as_str()) {
                sections.push(&figure.section);
            }
        }
        for section in sections {
            text.push_str(&format!("\n{section}\n"));
            let figures = self
                .figures
                .iter()
                .filter(|figure| figure.section == section);
            text.push_str(&render_figures(figures));
        }
        text.push_str(&self.render_bars());
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }

    fn heading(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{}, {} cores, {:.0} GiB, {}; {}\n",
            machine.cpu,
            machine.cores,
            machine.memory_bytes as f64 / (1_u64 << 30) as f64,
            machine.kernel,
            self.started,
        );
        for (leg, device) in &self.devices {
            text.push_str(&format!(
                "{leg}: {} ({}, driver {})\n",
                device.name, device.platform, device.driver
            ));
        }
        if let Some(link) = &self.link {
            text.push_str(&format!("link: {link}\n"));
        }
        text.push_str(
            "Cells: median [min-max]. cpu: seconds of client + server / whole machine.\n",
        );
        text
    }

    fn render_bars(&self) -> String {
        let mut table = Table::new([
            "",
            "figure",
            "leg",
            ">measured",
            ">limit",
            "unit",
            "promise",
        ]);
        for figure in &self.figures {
            for bar in &figure.bars {
                table.add(vec![
                    verdict(bar.pass).into(),
                    figure.id.clone(),
                    bar.leg.clone(),
                    number(bar.value),
                    number(bar.limit),
                    figure.unit.clone(),
                    bar.promise.clone(),
                ]);
            }
        }
        match self.bars() {
            (_, 0) => String::new(),
            (kept, made) => format!("\nPromises: {kept} of {made} kept\n{}", table.render()),
        }
    }
}

fn verdict(pass: bool) -> &'static str {
    if pass { "PASS" } else { "MISS" }
}

/// Median, and spread where there is one.
fn cell(summary: &Summary) -> String {
    if summary.n < 2 {
        return number(summary.median);
    }
    format!(
        "{} [{}-{}]",
        number(summary.median),
        number(summary.min),
        number(summary.max)
    )
}

fn cpu_cell(cpu: &CpuSeconds) -> String {
    match cpu.server_s {
        Some(server) => format!("{:.2}+{server:.2}/{:.2}", cpu.client_s, cpu.system_s),
        None => format!("{:.2}/{:.2}", cpu.client_s, cpu.system_s),
    }
}

fn render_figures<'a>(figures: impl Iterator<Item = &'a Figure>) -> String {
    let heading = ["figure", "unit"]
        .map(String::from)
        .into_iter()
        .chain(LEGS.map(|leg| format!(">{leg}")))
        .chain([
            ">local/native".into(),
            ">remote/native".into(),
            ">compute".into(),
            ">cpu native".into(),
            ">cpu remote".into(),
            "bar".into(),
        ]);
    let mut table = Table::new(heading);
    for figure in figures {
        let leg = |name: &str| figure.legs.get(name);
        let ratio = |name: &str| figure.ratios.get(name).map_or(String::new(), cell);
        let mut row = vec![figure.title.clone(), figure.unit.clone()];
        row.extend(LEGS.map(|name| leg(name).map_or(String::new(), |leg| cell(&leg.summary))));
        row.extend([ratio("local"), ratio("remote")]);
        row.push(
            leg("native")
                .and_then(|leg| leg.compute_share)
                .map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
        );
        row.extend(
            ["native", "remote"]
                .map(|name| leg(name).map_or(String::new(), |leg| cpu_cell(&leg.cpu))),
        );
        row.push(
            figure
                .bars
                .iter()
                .map(|bar| format!("{} {}", verdict(bar.pass), number(bar.limit)))
                .collect::<Vec<_>>()
                .join(", "),
        );
        table.add(row);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let leg = |values: &[f64]| Leg {
            summary: Summary::of(values).unwrap(),
            cpu: CpuSeconds {
                wall_s: 1.0,
                client_s: 0.25,
                server_s: Some(0.5),
                system_s: 1.5,
            },
            compute_share: None,
        };
        let figure = Figure {
            id: "launch.finish".into(),
            section: "Launches".into(),
            title: "launch + finish".into(),
            paper: None,
            unit: "us".into(),
            legs: BTreeMap::from([
                ("native".into(), leg(&[5.0, 4.0, 6.0])),
                ("remote".into(), leg(&[30.0, 28.0, 33.0])),
            ]),
            ratios: BTreeMap::from([("remote".into(), Summary::of(&[6.0, 7.0, 5.5]).unwrap())]),
            bars: vec![BarResult {
                promise: "at most native + one TCP round trip + 25 us".into(),
                leg: "remote".into(),
                value: 30.0,
                limit: 44.0,
                pass: true,
            }],
        };
        Report {
            schema: SCHEMA,
            kind: "opencl".into(),
            started: "2026-11-21T03:08:51Z".into(),
            seconds: 12.5,
            quick: true,
            version: "0.1.0".into(),
            machine: Machine::here(),
            servers: Vec::new(),
            link: Some("1G,100us".parse().unwrap()),
            devices: BTreeMap::from([("native".into(), Device::default())]),
            figures: vec![figure],
            notes: vec!["no GPU".into()],
        }
    }

    #[test]
    fn json_round_trip_keeps_everything() {
        let report = sample();
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn json_has_the_documented_names() {
        let json = serde_json::to_value(sample()).unwrap();
        let native = &json["figures"][0]["legs"]["native"];
        assert_eq!((&native["median"], &native["n"]), (&5.0.into(), &3.into()));
        assert_eq!(native["cpu"]["server_s"], 0.5);
        assert_eq!(json["figures"][0]["ratios"]["remote"]["median"], 6.0);
        assert_eq!(json["figures"][0]["bars"][0]["pass"], true);
        assert_eq!(json["link"]["delay_us"], 100.0);
    }

    #[test]
    fn table_shows_medians_spread_and_verdict() {
        let text = sample().render();
        assert!(text.contains("5.00 [4.00-6.00]"), "{text}");
        assert!(text.contains("6.00 [5.50-7.00]"), "{text}");
        assert!(text.contains("Promises: 1 of 1 kept"), "{text}");
        assert!(text.contains("0.25+0.50/1.50"), "{text}");
        assert!(!text.contains("unpipelined"), "{text}");
    }

    #[test]
    fn missed_promise_is_counted_and_named() {
        let mut report = sample();
        report.figures[0].bars[0].pass = false;
        assert_eq!(report.bars(), (0, 1));
        assert!(report.render().contains("MISS"));
    }
}
