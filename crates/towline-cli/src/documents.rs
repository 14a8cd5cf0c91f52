//! Completions and manual pages, both from the one declaration in [`cli`](crate::cli).

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap::builder::StyledStr;
use clap_mangen::Man;

use crate::cli::Cli;

/// The end of the page of `towline` itself.
const FILES: &str = r".SH FILES
.TP
\(ti/.config/towline/config.toml, /etc/towline/config.toml
Servers, tokens and profiles of the user and of the machine
.TP
/etc/towline/servers
Servers of the machine, one HOST:PORT a line
.TP
/etc/towline/server.toml
Options of the service
";

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "towline", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn manual(folder: &Path) -> anyhow::Result<ExitCode> {
    let action = || format!("could not write manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(action)?;
    let mut program = Cli::command();
    program.build();
    let statuses = program.get_after_help().cloned().unwrap_or_default();
    write_pages(&program, &statuses, folder).with_context(action)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(
    command: &clap::Command,
    statuses: &StyledStr,
    folder: &Path,
) -> std::io::Result<()> {
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write_pages(subcommand, statuses, folder)?;
    }
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    // clap_mangen's own synopsis lists every option without its value.
    let usage = command.clone().render_usage().to_string();
    let mut command = command
        .clone()
        .override_usage(usage.trim_start_matches("Usage: ").to_owned());
    if matches!(name.as_str(), "towline-run" | "towline-trace") {
        command = command.after_help(statuses.clone());
    }
    let page = Man::new(command).source(concat!("towline ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text =
        String::from_utf8_lossy(&text).replace(".SH EXTRA\nExit status: ", ".SH \"EXIT STATUS\"\n");
    let end = match name.as_str() {
        "towline" => FILES,
        _ => ".SH \"SEE ALSO\"\n\\fBtowline\\fR(1)\n",
    };
    std::fs::write(folder.join(page.get_filename()), text + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_usage_statuses_and_footers() {
        let folder = tempfile::tempdir().unwrap();
        manual(folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let footer = format!("\"towline {}\"", env!("CARGO_PKG_VERSION"));
        for name in ["towline.1", "towline-run.1", "towline-trace.1"] {
            let page = read(name);
            let title = page.lines().find(|line| line.starts_with(".TH"));
            assert!(title.unwrap().contains(&footer), "{name}: {title:?}");
            assert!(
                page.contains(".SH \"EXIT STATUS\"\n2 for wrong"),
                "{name}: {page}"
            );
        }
        let page = read("towline-run.1");
        assert!(page.contains(" [OPTIONS] [PROGRAM]..."), "{page}");
        let page = read("towline-tenant-add.1");
        assert!(page.contains("\\-\\-tenants\\-file <FILE>"), "{page}");
    }

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
