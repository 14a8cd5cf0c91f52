//! Every target over its committed corpus, then over mutants of it: a few thousand, or as long as `TOWLINE_FUZZ_SECONDS` says.
//!
//! `TOWLINE_FUZZ_SEED` chooses other mutants. An input that breaks a target is left in `artifacts/`: fix the decoder and commit the
//! input to the target's corpus.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use towline_fuzz::Target;
use towline_fuzz::mutate::Mutator;
use towline_fuzz::targets::TARGETS;

/// Mutants of a run that has no time given.
const MUTANTS: u64 = 4000;

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                fuzz(stringify!($name));
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets! {
    address, chunk, collective, control, cubin, cuda_reply, cuda_request, facts, fatbin, files, frame, handles, handshake, landing,
    peer, ptx, push, reply, request, resume, shm_ring, snapshot, trace,
}

#[test]
fn the_committed_seeds_are_what_the_encoders_write() {
    for target in TARGETS {
        for seed in (target.seeds)() {
            let committed = fs::read(corpus(target).join(&seed.name)).unwrap_or_default();
            assert_eq!(
                committed, seed.bytes,
                "{}/{} is stale: `cargo run --example seeds` in fuzz/ writes it anew",
                target.name, seed.name
            );
        }
    }
}

fn fuzz(name: &str) {
    let target = TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("the list of tests is the list of targets");
    let mut paths: Vec<PathBuf> = fs::read_dir(corpus(target))
        .expect("every target has a corpus")
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    let inputs: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| fs::read(path).expect("the corpus can be read"))
        .collect();
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    for (path, input) in paths.iter().zip(&inputs) {
        run(target, input, &path.display().to_string());
    }

    let seconds: Option<u64> = number("TOWLINE_FUZZ_SECONDS");
    let seed = number("TOWLINE_FUZZ_SEED").unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(u32::MAX.into()));
    let mut mutator = Mutator::new(seed);
    for count in 0.. {
        let over = match seconds {
            Some(_) => Instant::now() >= end,
            None => count >= MUTANTS,
        };
        if over {
            println!(
                "{name}: {} seeds, {count} mutants of seed {seed}",
                inputs.len()
            );
            break;
        }
        let first = &inputs[mutator.below(inputs.len())];
        let other = &inputs[mutator.below(inputs.len())];
        let mutant = mutator.mutate(first, other);
        run(target, &mutant, &format!("mutant {count} of seed {seed}"));
    }
}

fn run(target: &Target, input: &[u8], what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts");
        let path = folder.join(format!("{}-{}", target.name, input.len()));
        let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, input));
        eprintln!(
            "{} failed on {what}, kept as {} ({kept:?})",
            target.name,
            path.display()
        );
        resume_unwind(panic);
    }
}

fn corpus(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name)
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number, it is `{value}`")),
    )
}
