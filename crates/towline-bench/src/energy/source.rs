//! Sources of power as the command line names them, and the thread that samples them.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::nvml::Nvml;
use super::outside::{Printed, read_csv};
use super::series::{Sample, Series};
use super::sysfs::{Hwmon, Rapl};

/// How often a meter's file is read in the end, and how long to wait in between: a meter writes once a second.
const READINGS: u32 = 25;
const BETWEEN_READINGS: Duration = Duration::from_millis(100);

/// Which machine a source is about.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// The machine with the program.
    Client,
    /// The machine with the GPU.
    Server,
}

/// A source, as in `nvml`, `nvml:1`, `csv:meter.csv`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Spec {
    Nvml(Option<u32>),
    Rapl,
    Hwmon(Option<String>),
    Ipmi,
    Command(String),
    Csv { file: PathBuf, whole: bool },
}

impl Spec {
    /// It counts everything that its machine uses.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Nvml(_) | Self::Rapl | Self::Hwmon(_) => false,
            Self::Ipmi | Self::Command(_) => true,
            Self::Csv { whole, .. } => *whole,
        }
    }
}

impl FromStr for Spec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, detail) = match text.split_once(':') {
            Some((kind, detail)) => (kind, Some(detail)),
            None => (text, None),
        };
        match (kind, detail) {
            ("nvml", None) => Ok(Self::Nvml(None)),
            ("nvml", Some(index)) => {
                let index = index.parse();
                let index =
                    index.with_context(|| format!("{text}: nvml:N takes a GPU's number"))?;
                Ok(Self::Nvml(Some(index)))
            }
            ("rapl", None) => Ok(Self::Rapl),
            ("hwmon", chip) => Ok(Self::Hwmon(chip.map(str::to_owned))),
            ("ipmi", None) => Ok(Self::Ipmi),
            ("command", Some(command)) if !command.is_empty() => Ok(Self::Command(command.into())),
            ("csv" | "csv-part", Some(file)) if !file.is_empty() => Ok(Self::Csv {
                file: file.into(),
                whole: kind == "csv",
            }),
            _ => bail!(
                "{text:?} is no source: nvml[:GPU], rapl, hwmon[:CHIP], ipmi, command:COMMAND, csv:FILE or csv-part:FILE"
            ),
        }
    }
}

/// What is read again and again.
enum Meter {
    Nvml(Nvml),
    Rapl(Rapl),
    Hwmon(Hwmon),
    Printed(Printed),
}

impl Meter {
    fn sample(&mut self) -> anyhow::Result<Sample> {
        match self {
            Self::Nvml(meter) => meter.sample(),
            Self::Rapl(meter) => meter.sample(),
            Self::Hwmon(meter) => meter.sample(),
            Self::Printed(meter) => meter.sample(),
        }
    }
}

/// What became of a source.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SourceReport {
    /// Which machine it is about.
    pub of: Of,
    /// As the command line names it.
    pub name: String,
    /// It counts everything that its machine uses.
    pub whole: bool,
    /// Samples that it gave.
    pub samples: usize,
    /// Why it is unknown, or was for a while.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// One source and what it gave so far.
pub(super) struct Source {
    pub(super) of: Of,
    name: String,
    spec: Spec,
    meter: Option<Meter>,
    pub(super) series: Series,
    error: Option<String>,
}

impl Source {
    /// Opens a source. One that cannot be read stays, as unknown.
    pub(super) fn open(of: Of, name: &str) -> anyhow::Result<Self> {
        let spec: Spec = name.parse()?;
        let meter = match &spec {
            Spec::Nvml(index) => Nvml::open(*index).map(Meter::Nvml).map(Some),
            Spec::Rapl => Rapl::open(Path::new("/sys/class/powercap"))
                .map(Meter::Rapl)
                .map(Some),
            Spec::Hwmon(chip) => Hwmon::open(Path::new("/sys/class/hwmon"), chip.as_deref())
                .map(Meter::Hwmon)
                .map(Some),
            Spec::Ipmi => Ok(Some(Meter::Printed(Printed::ipmi()))),
            Spec::Command(command) => Ok(Some(Meter::Printed(Printed::new(command)))),
            Spec::Csv { .. } => Ok(None),
        };
        let mut source = Self {
            of,
            name: name.into(),
            spec,
            meter: None,
            series: Series::default(),
            error: None,
        };
        match meter {
            Ok(meter) => source.meter = meter,
            Err(error) => source.error = Some(format!("{error:#}")),
        }
        source.sample();
        Ok(source)
    }

    /// Takes a sample, if it is of a kind that is asked.
    fn sample(&mut self) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        let asked = now_s();
        match meter.sample() {
            // Asking may take a while: the moment in between is the likeliest.
            Ok(sample) => self.series.add((asked + now_s()) / 2.0, sample),
            Err(error) => self.error = Some(format!("{error:#}")),
        }
    }

    /// Reads what a meter has written, which may need a moment to get as far as `until_s`.
    fn collect(&mut self, until_s: f64) {
        let Spec::Csv { file, .. } = &self.spec else {
            return;
        };
        for _ in 0..READINGS {
            match read_csv(file) {
                Ok(series) => self.series = series,
                Err(error) => {
                    self.error = Some(format!("{error:#}"));
                    return;
                }
            }
            if self.series.last_s().is_some_and(|last_s| last_s >= until_s) {
                return;
            }
            std::thread::sleep(BETWEEN_READINGS);
        }
        self.error = Some(format!(
            "its last sample is {:.1} s older than the last run",
            until_s - self.series.last_s().unwrap_or(0.0)
        ));
    }

    pub(super) fn is_whole(&self) -> bool {
        self.spec.is_whole()
    }

    pub(super) fn report(&self) -> SourceReport {
        SourceReport {
            of: self.of,
            name: self.name.clone(),
            whole: self.is_whole(),
            samples: self.series.len(),
            error: self.error.clone(),
        }
    }
}

/// Seconds since 1970: what other machines' files can be compared with.
pub(super) fn now_s() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// Samples sources until it is told to end.
pub(super) struct Sampler {
    sources: Arc<Mutex<Vec<Source>>>,
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Sampler {
    pub(super) fn start(sources: Vec<Source>, period: Duration) -> Self {
        let sources = Arc::new(Mutex::new(sources));
        let ending = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (sources, ending) = (Arc::clone(&sources), Arc::clone(&ending));
            move || {
                while !ending.load(Ordering::Acquire) {
                    std::thread::sleep(period);
                    let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
                    sources.iter_mut().for_each(Source::sample);
                }
            }
        });
        Self {
            sources,
            ending,
            thread,
        }
    }

    /// Fewest samples of any source that is asked and answers.
    pub(super) fn samples(&self) -> usize {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let answering = sources.iter().filter(|source| source.error.is_none());
        let asked = answering.filter(|source| source.meter.is_some());
        asked
            .map(|source| source.series.len())
            .min()
            .unwrap_or(usize::MAX)
    }

    /// Takes a last sample and gives the sources back.
    pub(super) fn end(self) -> anyhow::Result<Vec<Source>> {
        let until_s = now_s();
        self.ending.store(true, Ordering::Release);
        if self.thread.join().is_err() {
            bail!("the thread that takes samples was lost");
        }
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        for source in sources.iter_mut() {
            // The thread's last sample may have been under way before.
            source.sample();
            source.collect(until_s);
        }
        Ok(std::mem::take(&mut *sources))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_names() {
        let parsed = |text: &str| text.parse::<Spec>().unwrap();
        assert_eq!(parsed("nvml"), Spec::Nvml(None));
        assert_eq!(parsed("nvml:1"), Spec::Nvml(Some(1)));
        assert_eq!(parsed("hwmon:board"), Spec::Hwmon(Some("board".into())));
        assert_eq!(parsed("command:echo 1:2"), Spec::Command("echo 1:2".into()));
        let meter = parsed("csv-part:a.csv");
        assert!(!meter.is_whole());
        assert!(parsed("csv:a.csv").is_whole());
        for wrong in ["", "nvml:x", "rapl:0", "csv", "csv:", "redfish"] {
            assert!(wrong.parse::<Spec>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn source_that_cannot_be_read_stays_and_says_why() {
        let name = "csv:/nonexistent/meter.csv";
        let sampler = Sampler::start(
            vec![Source::open(Of::Server, name).unwrap()],
            Duration::from_millis(1),
        );
        let sources = sampler.end().unwrap();
        let report = sources[0].report();
        assert_eq!((report.samples, report.name.as_str()), (0, name));
        assert!(report.error.unwrap().contains("/nonexistent/meter.csv"));
    }

    #[test]
    fn sampler_takes_samples_until_the_end() {
        let source = Source::open(Of::Client, "command:echo 20").unwrap();
        let begin = now_s();
        let sampler = Sampler::start(vec![source], Duration::from_millis(1));
        while sampler.samples() < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let end = now_s();
        let sources = sampler.end().unwrap();
        assert_eq!(sources[0].report().error, None);
        let joules = sources[0].series.joules(begin, end).unwrap();
        assert!((joules - 20.0 * (end - begin)).abs() < 1e-6, "{joules}");
    }
}
