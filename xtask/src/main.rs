//! `cargo xtask`: the chores of this workspace that are more than one cargo command.
//!
//! Nothing here is shipped. The makefile and CI call it; so may you.

#![forbid(unsafe_code)]

mod api;
mod ci;
mod dist;
mod study;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Chores of the Towline workspace
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check or read what follows from the declarations in api/
    Api {
        #[command(subcommand)]
        chore: api::ApiChore,
    },
    /// Run what must pass, stage by stage, and count what passed
    Ci {
        /// How much to run
        #[arg(long, value_enum, default_value_t = ci::Tier::Test)]
        tier: ci::Tier,
        /// Run only this stage (may be repeated)
        #[arg(long = "stage", value_name = "NAME")]
        only: Vec<String>,
    },
    /// Pack the release into build/dist/
    Dist {
        /// For which systems; for all unless said otherwise
        #[arg(long = "target", value_enum, value_name = "ARCH")]
        targets: Vec<dist::Target>,
        /// In which form; in all unless said otherwise
        #[arg(long = "form", value_enum, value_name = "FORM")]
        forms: Vec<dist::Form>,
        /// Pack what `cargo build --release` made for this machine into build/dist-quick/, to test packages
        #[arg(long, conflicts_with_all = ["targets", "forms"])]
        quick: bool,
    },
    /// Simulate the study of a 32-node GPU cluster (docs/study.md)
    Study(study::Options),
    /// Install the release
    Install {
        /// Where the files will be used
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
        /// Put before the prefix when copying, as packagers need
        #[arg(long, default_value = "")]
        destdir: PathBuf,
    },
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let workspace = Workspace::locate()?;
    match arguments.chore {
        Chore::Api { chore } => api::run(&workspace, &chore),
        Chore::Ci { tier, only } => ci::run(&workspace, tier, &only),
        Chore::Dist { quick: true, .. } => dist::pack_quick(&workspace),
        Chore::Dist { targets, forms, .. } => {
            dist::pack(&workspace, or_all(&targets), or_all(&forms))
        }
        Chore::Study(options) => study::run(&options),
        Chore::Install { prefix, destdir } => dist::install(&workspace, &prefix, &destdir),
    }
}

/// The named ones, or all.
fn or_all<T: clap::ValueEnum>(named: &[T]) -> &[T] {
    match named {
        [] => T::value_variants(),
        named => named,
    }
}
