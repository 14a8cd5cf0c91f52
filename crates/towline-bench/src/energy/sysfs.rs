//! Power as the Linux kernel tells it: processors' energy counters (powercap), and sensors on the board (hwmon).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::series::Sample;

/// Energy counters of processor packages and their memory: `/sys/class/powercap/intel-rapl:*`, AMD's too.
pub(super) struct Rapl {
    counters: Vec<Counter>,
    /// Sums of counters start anew each at its own time; this keeps them going on.
    total_j: f64,
}

struct Counter {
    file: PathBuf,
    range_uj: f64,
    last_uj: f64,
}

impl Rapl {
    pub(super) fn open(root: &Path) -> anyhow::Result<Self> {
        let mut counters = Vec::new();
        let entries = std::fs::read_dir(root)
            .with_context(|| format!("no energy counters: could not read {}", root.display()))?;
        for entry in entries.flatten() {
            let folder = entry.path();
            let name = std::fs::read_to_string(folder.join("name")).unwrap_or_default();
            let zone = entry.file_name().to_string_lossy().into_owned();
            // Cores and graphics are inside packages; memory is not. MMIO counters are the same packages again.
            let counts = name.starts_with("package") || name.trim() == "dram";
            if !counts || !zone.starts_with("intel-rapl:") {
                continue;
            }
            let file = folder.join("energy_uj");
            let last_uj = number(&file).with_context(|| {
                format!(
                    "could not read {} (as root it may be readable)",
                    file.display()
                )
            })?;
            let range_uj = number(&folder.join("max_energy_range_uj")).unwrap_or(0.0);
            counters.push(Counter {
                file,
                range_uj,
                last_uj,
            });
        }
        if counters.is_empty() {
            bail!("{} has no counter of a processor package", root.display());
        }
        Ok(Self {
            counters,
            total_j: 0.0,
        })
    }

    pub(super) fn sample(&mut self) -> anyhow::Result<Sample> {
        for counter in &mut self.counters {
            let now = number(&counter.file)?;
            let used = now - counter.last_uj;
            let used = if used < 0.0 {
                used + counter.range_uj
            } else {
                used
            };
            self.total_j += used.max(0.0) * 1e-6;
            counter.last_uj = now;
        }
        Ok(Sample::Joules {
            total: self.total_j,
            range: None,
        })
    }
}

/// Power sensors under `/sys/class/hwmon`.
pub(super) struct Hwmon {
    files: Vec<PathBuf>,
}

impl Hwmon {
    /// Every sensor of the chip of this name, or of all chips.
    pub(super) fn open(root: &Path, chip: Option<&str>) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        let entries = std::fs::read_dir(root)
            .with_context(|| format!("no sensors: could not read {}", root.display()))?;
        for entry in entries.flatten() {
            let folder = entry.path();
            let name = std::fs::read_to_string(folder.join("name")).unwrap_or_default();
            if chip.is_some_and(|chip| chip != name.trim()) {
                continue;
            }
            for number in 1..=16 {
                let sensor = |kind: &str| folder.join(format!("power{number}_{kind}"));
                files.extend(
                    ["input", "average"]
                        .map(sensor)
                        .into_iter()
                        .find(|file| file.exists()),
                );
            }
        }
        if files.is_empty() {
            bail!(
                "{} has no power sensor{}",
                root.display(),
                chip.map_or(String::new(), |chip| format!(" of a chip named {chip}"))
            );
        }
        Ok(Self { files })
    }

    pub(super) fn sample(&mut self) -> anyhow::Result<Sample> {
        let watts = self.files.iter().map(|file| number(file));
        let watts: f64 = watts.sum::<anyhow::Result<f64>>()? * 1e-6;
        Ok(Sample::Watts(watts))
    }
}

fn number(file: &Path) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("could not read {}", file.display()))?;
    text.trim()
        .parse()
        .with_context(|| format!("{} holds no number: {:?}", file.display(), text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn package(root: &Path, zone: &str, name: &str, energy_uj: &str) {
        write(root, &format!("{zone}/name"), name);
        write(root, &format!("{zone}/energy_uj"), energy_uj);
        write(root, &format!("{zone}/max_energy_range_uj"), "10000000\n");
    }

    #[test]
    fn packages_and_memory_are_summed_and_may_start_anew() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        package(root, "intel-rapl:0", "package-0\n", "9000000\n");
        package(root, "intel-rapl:0:0", "core\n", "5000000\n");
        package(root, "intel-rapl:0:1", "dram\n", "1000000\n");
        package(root, "intel-rapl-mmio:0", "package-0\n", "9000000\n");
        let mut rapl = Rapl::open(root).unwrap();
        write(root, "intel-rapl:0/energy_uj", "1000000\n");
        write(root, "intel-rapl:0:1/energy_uj", "1500000\n");
        let joules = |total| Sample::Joules { total, range: None };
        assert_eq!(rapl.sample().unwrap(), joules(2.5));
        assert_eq!(rapl.sample().unwrap(), joules(2.5));
    }

    #[test]
    fn machine_without_counters_says_so() {
        let root = tempfile::tempdir().unwrap();
        let error = Rapl::open(root.path()).err().unwrap().to_string();
        assert!(error.contains("no counter"), "{error}");
        assert!(Rapl::open(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn sensors_of_one_chip_are_summed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "hwmon0/name", "board\n");
        write(root, "hwmon0/power1_input", "20000000\n");
        write(root, "hwmon0/power2_average", "5000000\n");
        write(root, "hwmon1/name", "other\n");
        write(root, "hwmon1/power1_input", "7000000\n");
        let watts = |chip| Hwmon::open(root, chip).unwrap().sample().unwrap();
        assert_eq!(watts(Some("board")), Sample::Watts(25.0));
        assert_eq!(watts(None), Sample::Watts(32.0));
        assert!(Hwmon::open(root, Some("none")).is_err());
    }
}
