//! Completions and manual pages, both from the one declaration in [`cli`](crate::cli).

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::Cli;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "towline", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn manual(folder: &Path) -> anyhow::Result<ExitCode> {
    let action = || format!("could not write manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(action)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(action)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_has_a_page_for_each_public_subcommand() {
        let folder = tempfile::tempdir().unwrap();
        manual(folder.path()).unwrap();
        let mut pages: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        pages.sort();
        let expected = [
            "-bench-cuda",
            "-bench-energy",
            "-bench-net",
            "-bench-opencl",
            "-bench-peer",
            "-bench-power",
            "-bench-proxy",
            "-bench-soft",
            "-bench",
            "-calibrate",
            "-checkpoint",
            "-completions",
            "-devices",
            "-doctor",
            "-drain",
            "-kill",
            "-lease-end",
            "-lease-give",
            "-lease-list",
            "-lease-renew",
            "-lease-serve",
            "-lease",
            "-login",
            "-logout",
            "-man",
            "-migrate",
            "-node-apply",
            "-node-inspect",
            "-node-plan",
            "-node-prove",
            "-node-undo",
            "-node",
            "-nvcc",
            "-place",
            "-run",
            "-serve",
            "-servers-forget",
            "-servers",
            "-simulate-mix",
            "-simulate-program",
            "-simulate",
            "-slurm-account",
            "-slurm-check",
            "-slurm-epilog",
            "-slurm-prolog",
            "-slurm-run",
            "-slurm-setup",
            "-slurm-sweep",
            "-slurm-task-prolog",
            "-slurm",
            "-status",
            "-tenant-add",
            "-tenant-list",
            "-tenant-revoke",
            "-tenant-rotate",
            "-tenant-set",
            "-tenant",
            "-top",
            "-trace",
            "-vm-cluster",
            "-vm-define",
            "-vm-openstack",
            "-vm-start",
            "-vm-stop",
            "-vm-undefine",
            "-vm-xml",
            "-vm",
            "",
        ];
        assert_eq!(pages, expected.map(|name| format!("towline{name}.1")));
    }
}
