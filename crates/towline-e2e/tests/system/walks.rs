//! Random sequences of OpenCL calls answer through Towline as they do natively: codes, bytes, and whether the process lives.
//!
//! `programs/opencl_walk.c` plays sequences over any OpenCL library and says what each call answered. Here sequences come from a seed, or
//! from `walks/`, where those are kept that once differed. Each plays on PoCL itself; one that ends the process there means nothing and is
//! left out. What differs afterwards is reduced to the calls that it takes, and printed as a file for `walks/`.
//!
//! `programs/opencl_orders.c` asks every command for each pair of its faults, so that the order of checks is known whole.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{Server, forget_surroundings, holds_within, opencl_program, towline};

/// How long random sequences are played, in seconds.
const SECONDS: &str = "TOWLINE_WALK_SECONDS";
/// The first sequence; the others follow.
const SEED: &str = "TOWLINE_WALK_SEED";
/// Marks a difference that did not come again.
const ONCE: &str = "only once";
/// Without [`SECONDS`]: the same sequences on every machine, or as many of them as there is time for.
const USUAL_SECONDS: u64 = 60;
const USUAL_SEEDS: u64 = 100;
/// Sequences that one process plays.
const BATCH: u64 = 20;
/// Calls of a sequence beyond its beginning.
const CALLS: usize = 40;
/// A batch that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A sequence: one operation with its words in each line.
type Walk = Vec<String>;
/// Output of the program for a sequence, one line for each call.
type Transcript = Vec<String>;

/// Small numbers of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// The sequence of a seed: mostly something to work with first, then anything.
fn walk(seed: u64, weights: &[(String, u64)]) -> Walk {
    let mut random = Random(seed);
    let mut lines: Walk = [
        "CreateContext",
        "CreateQueue 0",
        "CreateQueue 1",
        "CreateBuffer 0",
        "CreateBuffer 1",
        "CreateProgram 0",
        "BuildProgram 0",
        "CreateKernel 0",
        "SetArg 0 0",
        "SetArg 0 1",
        "SetArg 0 2",
    ]
    .map(String::from)
    .to_vec();
    if random.below(5) < 2 {
        lines.push(format!("CreateKernel 1 0 {}", 1 + random.below(3)));
        lines.extend((0..4).map(|index| format!("SetArg 1 {index} {index}")));
    }
    if random.below(5) < 2 {
        lines.push("SvmAlloc 0".into());
        lines.push(format!("SvmAlloc 1 0 0 {}", random.below(4)));
    }
    if random.below(10) < 3 {
        lines.extend(["CreateImage 2".into(), "CreateSampler 0".into()]);
    }
    lines.retain(|_| random.below(100) != 0);
    let total = weights.iter().map(|(_, weight)| weight).sum();
    for _ in 0..CALLS {
        let mut at = random.below(total);
        let chosen = weights.iter().find(|(_, weight)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        let mut line = chosen.expect("the point lies in the sum").0.clone();
        for _ in 0..10 {
            let word = if random.below(20) < 11 {
                0
            } else {
                random.below(256)
            };
            let _ = write!(line, " {word}");
        }
        lines.push(line);
    }
    lines
}

/// The program's operations, with how often each shall come.
fn weights() -> Vec<(String, u64)> {
    let output = Command::new(opencl_program("opencl_walk"))
        .arg("--operations")
        .output();
    let text = String::from_utf8(output.expect("it is a program").stdout).expect("it is text");
    let parts = |line: &str| {
        let (name, weight) = line.split_once(' ')?;
        Some((name.to_owned(), weight.parse().ok()?))
    };
    text.lines().filter_map(parts).collect()
}

/// How sequences are played.
struct Player {
    name: &'static str,
    /// Under `towline run` with these options.
    options: Option<Vec<String>>,
    device: &'static str,
    shares: bool,
    folder: TempDir,
}

impl Player {
    fn new(
        name: &'static str,
        options: Option<&[&str]>,
        device: &'static str,
        shares: bool,
    ) -> Self {
        let options = options.map(|options| options.iter().map(|&option| option.into()).collect());
        let folder = tempfile::tempdir().expect("room for temporary files");
        Self {
            name,
            options,
            device,
            shares,
            folder,
        }
    }

    /// PoCL itself.
    fn native(shares: bool) -> Self {
        Self::new("natively", None, "first", shares)
    }

    /// Runs a program: its lines, and its end.
    fn run(&self, program: &str, arguments: &[&str], input: &Path) -> (Vec<String>, String) {
        let path = |name: &str| self.folder.path().join(name);
        let program = opencl_program(program);
        let mut command = match &self.options {
            None => Command::new(&program),
            Some(options) => {
                let mut command = Command::new(towline());
                command.arg("run").args(options).arg("--").arg(&program);
                command
            }
        };
        forget_surroundings(&mut command);
        let file = |name: &str| File::create(path(name)).expect("room for a file");
        let mut child = command
            .args(arguments)
            .env("POCL_CACHE_DIR", path("cache"))
            .stdin(Stdio::from(File::open(input).expect("it was just written")))
            .stdout(file("output"))
            .stderr(file("errors"))
            .spawn()
            .expect("it is a program");
        let mut status = None;
        holds_within(LIMIT, || {
            status = child.try_wait().expect("it was our child");
            status.is_some()
        });
        let end = status.map_or_else(|| "it hangs".into(), |status| status.to_string());
        // Both fail only where it has ended already.
        let _ = child.kill();
        let _ = child.wait();
        let output = std::fs::read(path("output")).expect("it was just made");
        let lines = String::from_utf8_lossy(&output)
            .lines()
            .map(str::to_owned)
            .collect();
        (lines, end)
    }

    /// Plays sequences, and gives what became of each. A process that ends with one begins again behind it.
    fn play(&self, walks: &[Walk]) -> Vec<Transcript> {
        let input = self.folder.path().join("input");
        let mut transcripts: Vec<Transcript> = Vec::new();
        while transcripts.len() < walks.len() {
            let first = transcripts.len();
            let mut text = String::new();
            for (index, walk) in walks.iter().enumerate().skip(first) {
                let _ = writeln!(text, "seq {index}\n{}", walk.join("\n"));
            }
            std::fs::write(&input, text).expect("room for a file");
            let kind = if self.shares { "svm" } else { "plain" };
            let (lines, end) = self.run("opencl_walk", &[self.device, kind], &input);
            for line in lines {
                match transcripts.last_mut() {
                    _ if line.starts_with("seq ") => transcripts.push(Vec::new()),
                    Some(transcript) => transcript.push(line),
                    None => panic!("{}: the program says {line:?} first", self.name),
                }
            }
            assert!(
                transcripts.len() > first,
                "{}: the program does not begin: {end}",
                self.name
            );
            let last = transcripts.last_mut().expect("there is one");
            if last.last().is_none_or(|line| line != "end") {
                last.push(format!("the process ended: {end}"));
            }
        }
        transcripts
    }

    /// The first lines that differ.
    fn difference(natively: &Transcript, here: &Transcript) -> Option<(String, String)> {
        let lines = natively.len().max(here.len());
        let at = (0..lines).find(|&at| natively.get(at) != here.get(at))?;
        let line = |transcript: &Transcript| transcript.get(at).cloned().unwrap_or_default();
        Some((line(natively), line(here)))
    }

    /// Leaves out calls, larger runs of them first, while an operation of the same name still differs.
    fn reduce(&self, native: &Self, walk: &Walk) -> Walk {
        let operation = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let differing = |walks: &[Walk]| -> Vec<Option<String>> {
            let natively = native.play(walks);
            let here = self.play(walks);
            let both = natively.iter().zip(&here);
            both.map(|(natively, here)| {
                let lives = natively.last().is_some_and(|line| line == "end");
                let difference = Self::difference(natively, here).filter(|_| lives);
                difference.map(|(natively, _)| operation(&natively))
            })
            .collect()
        };
        let mut walk = walk.clone();
        let Some(wanted) = differing(std::slice::from_ref(&walk)).swap_remove(0) else {
            return walk;
        };
        let mut length = walk.len().div_ceil(2);
        while length > 0 {
            let shorter: Vec<Walk> = (0..walk.len().div_ceil(length))
                .map(|part| {
                    let left_out = part * length..(part + 1) * length;
                    let kept = walk
                        .iter()
                        .enumerate()
                        .filter(|(index, _)| !left_out.contains(index));
                    kept.map(|(_, line)| line.clone()).collect()
                })
                .collect();
            let outcomes = differing(&shorter);
            match outcomes
                .iter()
                .position(|outcome| outcome.as_ref() == Some(&wanted))
            {
                Some(index) => {
                    walk.clone_from(&shorter[index]);
                    length = length.min(walk.len());
                }
                None => length /= 2,
            }
        }
        walk
    }
}

/// The native player, and the players that are compared with it.
fn players(server: &Server) -> [(Player, Vec<Player>); 2] {
    let remote = ["--server", server.address()];
    let beside = ["--with-local", "--server", server.address()];
    let sharing = vec![
        Player::new("on a server's device", Some(&remote), "first", true),
        Player::new("on a device of this host", Some(&beside), "first", true),
    ];
    let plain = vec![Player::new(
        "on both in one context",
        Some(&beside),
        "all",
        false,
    )];
    [
        (Player::native(true), sharing),
        (Player::native(false), plain),
    ]
}

/// Differences among the sequences that live natively, with the number of those.
fn differences(native: &Player, others: &[Player], walks: &[Walk]) -> (usize, Vec<String>) {
    let natively = native.play(walks);
    let alive: Vec<usize> = (0..walks.len())
        .filter(|&index| natively[index].last().is_some_and(|line| line == "end"))
        .collect();
    let walks: Vec<Walk> = alive.iter().map(|&index| walks[index].clone()).collect();
    let natively: Vec<&Transcript> = alive.iter().map(|&index| &natively[index]).collect();
    let mut found = Vec::new();
    for player in others {
        for (index, here) in player.play(&walks).iter().enumerate() {
            let Some((expected, answered)) = Player::difference(natively[index], here) else {
                continue;
            };
            let reduced = [player.reduce(native, &walks[index])];
            let (once, again) = (native.play(&reduced), player.play(&reduced));
            let Some((expected, answered)) = Player::difference(&once[0], &again[0]) else {
                found.push(format!(
                    "{}, {ONCE}:\n  natively: {expected}\n  here:     {answered}\n{}",
                    player.name,
                    walks[index].join("\n")
                ));
                continue;
            };
            found.push(format!(
                "{}:\n  natively: {expected}\n  here:     {answered}\n{}",
                player.name,
                reduced[0].join("\n")
            ));
        }
    }
    (walks.len(), found)
}

#[test]
fn kept_sequences_answer_as_natively() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("walks");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is committed")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("walk")))
        .collect();
    files.sort();
    let read = |path| std::fs::read_to_string(path).expect("it is text");
    let lines = |text: String| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let walks: Vec<Walk> = files.iter().map(read).map(lines).collect();
    let server = Server::start();
    for (native, others) in players(&server) {
        let (alive, found) = differences(&native, &others, &walks);
        assert_eq!(
            alive,
            walks.len(),
            "a kept sequence ends the process natively"
        );
        assert!(found.is_empty(), "{}", found.join("\n\n"));
    }
}

#[test]
fn arguments_are_checked_in_native_order() {
    let answers = |player: &Player| player.run("opencl_orders", &[], Path::new("/dev/null"));
    let server = Server::start();
    let [(native, others), _] = players(&server);
    let (natively, end) = answers(&native);
    assert!(
        natively.len() > 1000 && end == "exit status: 0",
        "natively it ends with {end} after {} lines",
        natively.len()
    );
    for player in others {
        let (here, end) = answers(&player);
        let differing: Vec<String> = natively
            .iter()
            .zip(&here)
            .filter(|(natively, here)| natively != here)
            .map(|(natively, here)| format!("natively {natively}, here {here}"))
            .collect();
        assert!(
            differing.is_empty() && here.len() == natively.len(),
            "{} ({end} after {} lines):\n{}",
            player.name,
            here.len(),
            differing.join("\n")
        );
    }
}

#[test]
fn random_sequences_answer_as_natively() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let asked = number(SECONDS);
    let seconds = asked.unwrap_or(USUAL_SECONDS);
    let mut seed = number(SEED).unwrap_or(1);
    let last = match asked {
        Some(_) => u64::MAX,
        None => seed + USUAL_SEEDS,
    };
    let weights = weights();
    let server = Server::start();
    let players = players(&server);
    let (mut played, mut found) = (0, Vec::new());
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while found.is_empty() && seed < last && Instant::now() < deadline {
        let walks: Vec<Walk> = (seed..seed + BATCH)
            .map(|seed| walk(seed, &weights))
            .collect();
        for (native, others) in &players {
            let (alive, differing) = differences(native, others, &walks);
            played += alive * others.len();
            found.extend(differing);
        }
        seed += BATCH;
    }
    println!("{played} sequences up to seed {seed}");
    // One by chance, as processors are busy, is for long runs to look for.
    let (once, mut found): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|text| text.contains(ONCE));
    once.iter().for_each(|text| println!("{text}"));
    if asked.is_some() {
        found.extend(once);
    }
    assert!(
        found.is_empty(),
        "{} of {played} differ:\n{}",
        found.len(),
        found.join("\n\n")
    );
}
