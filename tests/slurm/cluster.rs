//! A cluster of four nodes of Slurm on this machine, for tests of several crates: `tests/slurm/cluster`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Slurm's clients wait for minutes for a controller that is gone; and a job for its nodes.
const LIMIT_S: &str = "300";

/// Four nodes, n0 to n3, that end with it.
pub(crate) struct Slurm {
    daemons: Child,
    folder: tempfile::TempDir,
}

impl Slurm {
    /// Nodes with sockets and cores like `2x3`; `bind` if tasks are to be bound to cores, which have to be there then. None where
    /// this machine cannot.
    pub(crate) fn start(shape: &[&str]) -> Option<Self> {
        Self::configured(shape, |_| String::new())
    }

    /// The same with more lines of slurm.conf, made where the cluster's folder is known.
    pub(crate) fn configured(shape: &[&str], more: impl FnOnce(&Path) -> String) -> Option<Self> {
        if !is_possible() {
            eprintln!("skipped: it needs root and Slurm: run `scripts/setup test` as root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("more.conf"), more(folder.path())).unwrap();
        let mut daemons =
            Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/slurm/cluster"))
                .arg(folder.path())
                .args(shape)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(daemons.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let slurm = Self { daemons, folder };
        assert_eq!(line, "ready\n", "the cluster did not start");
        Some(slurm)
    }

    /// Kills a node's slurmd and has another in its place.
    #[allow(dead_code, reason = "not every crate's tests do so")]
    pub(crate) fn restart(&mut self, node: &str) {
        let input = self.daemons.stdin.as_mut().unwrap();
        writeln!(input, "restart {node}").unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run_in(&self, program: &str, arguments: &[&str], folder: &Path) -> String {
        let output = Command::new("timeout")
            .args([LIMIT_S, program])
            .args(arguments)
            .current_dir(folder)
            .env("SLURM_CONF", self.path("slurm.conf"))
            .output()
            .unwrap();
        let (text, errors) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {text}{errors}"
        );
        text.into_owned()
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        self.run_in(program, arguments, self.folder.path())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // The end of its input ends all daemons.
        drop(self.daemons.stdin.take());
        let _ = self.daemons.wait();
    }
}

fn is_possible() -> bool {
    let script = "test $(id -u) = 0 && for p in slurmctld slurmd munged srun; do command -v $p || exit 1; done";
    let asked = Command::new("sh").args(["-c", script]).output();
    asked.is_ok_and(|asked| asked.status.success())
}
