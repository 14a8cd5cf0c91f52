//! `towline slurm setup` and `check`: the configuration of Slurm by which jobs get devices of standing servers.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::{said, this_program};
use crate::cli::{SlurmPoolOptions, SlurmSetupOptions};
use crate::lease::Pool;

/// Scripts that Slurm calls, by the settings that name them.
const SCRIPTS: [(&str, &str); 4] = [
    ("Prolog", "prolog"),
    ("Epilog", "epilog"),
    ("TaskProlog", "task-prolog"),
    ("EpilogSlurmctld", "sweep"),
];
/// Lines for slurm.conf.
const CONF: &str = "towline.conf";
/// Takes `--gres=rgpu:2` for licences. Slurm looks for it beside slurm.conf.
const SUBMIT: &str = "job_submit.lua";
const MARK: &str = "Written by `towline slurm setup`.";

/// `towline slurm setup`.
pub(super) fn run(options: &SlurmSetupOptions) -> anyhow::Result<ExitCode> {
    let out = std::path::absolute(&options.out)?;
    if options.undo {
        return undo(&out);
    }
    let capacity = Capacity::of(&options.pool)?;
    fs::create_dir_all(&out).with_context(|| format!("could not make {}", out.display()))?;
    for (_, command) in SCRIPTS {
        let text = script(command, &options.pool)?;
        write(&out.join(command), &text, 0o755)?;
    }
    write(&out.join(SUBMIT), &submit(&options.pool), 0o644)?;
    let conf = out.join(CONF);
    write(&conf, &lines(&out, &capacity, &options.pool), 0o644)?;
    println!(
        "wrote {}\n\n1. Have this folder, Towline and the token's file on all nodes; the token is for root alone.\n2. Add to slurm.conf:  include {}\n3. scontrol reconfigure; towline slurm check with the same options",
        out.display(),
        conf.display(),
    );
    Ok(ExitCode::SUCCESS)
}

fn undo(out: &Path) -> anyhow::Result<ExitCode> {
    let files = SCRIPTS.map(|(_, command)| command);
    for name in files.iter().chain(&[CONF, SUBMIT]) {
        let file = out.join(name);
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        if !text.contains(MARK) {
            bail!("{} is not ours; it stays", file.display());
        }
        fs::remove_file(&file).with_context(|| format!("could not remove {}", file.display()))?;
    }
    // Other files in it are somebody's.
    let _ = fs::remove_dir(out);
    println!(
        "removed; take the line `include {}` out of slurm.conf, then scontrol reconfigure",
        out.join(CONF).display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Writes a file that only root changes, unless one is there that is not ours.
fn write(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let action = || format!("could not write {}", file.display());
    match fs::read_to_string(file) {
        Ok(before) if !before.contains(MARK) => bail!("{} is not ours; it stays", file.display()),
        Ok(_) => fs::remove_file(file).with_context(action)?,
        Err(_) => {}
    }
    let mut opened = fs::OpenOptions::new();
    let opened = opened.write(true).create_new(true).mode(mode).open(file);
    let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.with_context(action)
}

/// A script that calls this program with the pool's options.
fn script(command: &str, options: &SlurmPoolOptions) -> anyhow::Result<String> {
    let mut words = vec![
        this_program()?.display().to_string(),
        "slurm".to_owned(),
        command.to_owned(),
        format!("--folder={}", options.folder.folder.display()),
    ];
    if command != "task-prolog" {
        let access = &options.servers.access;
        words.push(format!("--license={}", options.license));
        words.push(format!("--memory-license={}", options.memory_license));
        if !options.servers.servers.is_empty() {
            words.push(format!("--server={}", options.servers.servers.join(",")));
        }
        let texts = [
            ("tenant", &access.tenant),
            ("profile", &options.servers.profile),
        ];
        for (option, text) in texts {
            words.extend(text.as_ref().map(|text| format!("--{option}={text}")));
        }
        for (option, file) in [
            ("server-file", &options.servers.server_file),
            ("token-file", &access.token_file),
            ("ca", &access.ca),
        ] {
            if let Some(file) = file {
                let file = std::path::absolute(file)?;
                words.push(format!("--{option}={}", file.display()));
            }
        }
        if access.no_encryption {
            words.push("--no-encryption".to_owned());
        }
    }
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    // slurmd gives its scripts no PATH.
    Ok(format!(
        "#!/bin/sh\n# {MARK}\nexport PATH=\"${{PATH:-/usr/local/bin:/usr/bin:/bin}}\"\nexec {}\n",
        words.join(" ")
    ))
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The pool's devices.
struct Capacity {
    devices: u64,
    gib: u64,
}

impl Capacity {
    fn of(options: &SlurmPoolOptions) -> anyhow::Result<Self> {
        let sizes = Pool::of(&options.servers)?.device_sizes()?;
        Ok(Self {
            devices: sizes.len() as u64,
            gib: sizes.iter().map(|bytes| bytes >> 30).sum(),
        })
    }
}

fn lines(out: &Path, capacity: &Capacity, options: &SlurmPoolOptions) -> String {
    let scripts =
        SCRIPTS.map(|(setting, command)| format!("{setting}={}\n", out.join(command).display()));
    format!(
        "# {MARK}\n\
         # A licence is a whole device. Parts: {part}:N in place of it is N GiB of one device; give away fewer of either where both are used.\n\
         Licenses={whole}:{devices}\n\
         # The pool has {gib} GiB: Licenses={whole}:{devices},{part}:{gib}\n\
         # For sbatch --gres={whole}:2, with {submit} copied beside slurm.conf, and {whole} added to the GresTypes that there are:\n\
         #JobSubmitPlugins=lua\n\
         #GresTypes={whole}\n\
         PrologFlags=Alloc\n\
         {scripts}",
        part = options.memory_license,
        whole = options.license,
        devices = capacity.devices,
        gib = capacity.gib,
        scripts = scripts.concat(),
        submit = out.join(SUBMIT).display(),
    )
}

/// A job_submit plugin in Lua: licences in the place of a kind of device that no node has.
fn submit(options: &SlurmPoolOptions) -> String {
    let name = &options.license;
    format!(
        "-- {MARK}\n\
         local function licences(job)\n\
         \x20 local wish = job.tres_per_node or \"\"\n\
         \x20 local count = wish:match(\"^gres:{name}:(%d+)$\") or wish:match(\"^{name}:(%d+)$\")\n\
         \x20 if not count and (wish == \"gres:{name}\" or wish == \"{name}\") then count = \"1\" end\n\
         \x20 if not count then return end\n\
         \x20 local others = job.licenses\n\
         \x20 job.licenses = ((others and others ~= \"\") and others .. \",\" or \"\") .. \"{name}:\" .. count\n\
         \x20 job.tres_per_node = \"\"\n\
         end\n\
         function slurm_job_submit(job, partitions, user)\n\
         \x20 licences(job)\n\
         \x20 return slurm.SUCCESS\n\
         end\n\
         function slurm_job_modify(job, record, partitions, user)\n\
         \x20 return slurm.SUCCESS\n\
         end\n\
         return slurm.SUCCESS\n",
    )
}

/// The value of a setting, as `scontrol show config` has it.
pub(super) fn setting(shown: &str, name: &str) -> Option<String> {
    let of = |line: &str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    shown.lines().find_map(of)
}

/// `towline slurm check`.
pub(super) fn check(options: &SlurmPoolOptions) -> anyhow::Result<ExitCode> {
    let shown = said("scontrol", &["show", "config"])?;
    let licenses = said("scontrol", &["--oneliner", "show", "licenses"])?;
    let capacity = Capacity::of(options)?;
    let findings = findings(&shown, &licenses, &capacity, options);
    for (is_good, text) in &findings {
        println!("{:5} {text}", if *is_good { "ok" } else { "ERROR" });
    }
    let is_good = findings.iter().all(|(is_good, _)| *is_good);
    Ok(ExitCode::from(u8::from(!is_good)))
}

fn findings(
    shown: &str,
    licenses: &str,
    capacity: &Capacity,
    options: &SlurmPoolOptions,
) -> Vec<(bool, String)> {
    let mut findings = Vec::new();
    for (name, command) in SCRIPTS {
        let value = setting(shown, name).unwrap_or_default();
        // A site's own script may call ours; whether it does shows in the jobs.
        let is_set = !value.is_empty() && value != "(null)";
        findings.push(match is_set {
            true => (true, format!("{name}={value}; it has to call `towline slurm {command}`")),
            false => (false, format!("{name} is not set: name a script that calls `towline slurm {command}`, as `towline slurm setup` writes one")),
        });
    }
    let total = |name: &str| {
        let mut lines = licenses.lines().filter(|line| {
            line.split_whitespace()
                .any(|word| word.strip_prefix("LicenseName=") == Some(name))
        });
        let line = lines.next()?;
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix("Total=")?.parse::<u64>().ok())
    };
    let whole = total(&options.license).unwrap_or(0);
    let gib = total(&options.memory_license).unwrap_or(0);
    let name = &options.license;
    findings.push(match (whole, gib) {
        (0, 0) => (
            false,
            format!(
                "there is no licence {name}: Licenses={name}:{}",
                capacity.devices
            ),
        ),
        (whole, _) if whole > capacity.devices => (
            false,
            format!(
                "{whole} licences {name} for {} devices: jobs would start without",
                capacity.devices
            ),
        ),
        (_, gib) if gib > capacity.gib => (
            false,
            format!(
                "{gib} licences {} for {} GiB: jobs would start without",
                options.memory_license, capacity.gib
            ),
        ),
        _ => (
            true,
            format!(
                "{whole} licences {name} of {} devices, {gib} {} of {} GiB",
                capacity.devices, options.memory_license, capacity.gib
            ),
        ),
    });
    findings
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, SlurmCommand};

    fn options(arguments: &[&str]) -> SlurmPoolOptions {
        let all = ["towline", "slurm", "check"].iter().chain(arguments);
        let Command::Slurm(slurm) = Cli::try_parse_from(all).unwrap().command else {
            panic!("not slurm")
        };
        match slurm.command {
            SlurmCommand::Check(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn script_passes_the_pools_options_on() {
        let given = [
            "--server",
            "a,b",
            "--tenant",
            "it's",
            "--token-file",
            "/t",
            "--license",
            "gpus",
        ];
        let text = script("prolog", &options(&given)).unwrap();
        let wanted = "'--license=gpus' '--memory-license=rgpu_gib' '--server=a,b' '--tenant=it'\\''s' '--token-file=/t'\n";
        assert!(text.ends_with(wanted), "{text}");
        let text = script("task-prolog", &options(&given)).unwrap();
        assert!(
            text.ends_with("'task-prolog' '--folder=/run/towline-jobs'\n"),
            "{text}"
        );
    }

    #[test]
    fn lacking_settings_and_too_many_licenses_are_found() {
        let shown = "Prolog                  = /x/prolog\nEpilog = (null)\nTaskProlog = /x/t\nEpilogSlurmctld = /x/s\n";
        let capacity = Capacity {
            devices: 2,
            gib: 160,
        };
        let bad = |licenses: &str| {
            let found = findings(shown, licenses, &capacity, &options(&[]));
            let bad = found.into_iter().filter(|(is_good, _)| !is_good);
            bad.map(|(_, text)| text).collect::<Vec<_>>()
        };
        let found = bad("LicenseName=rgpu Total=2 Used=0 Free=2 Reserved=0 Remote=no\n");
        assert!(
            found.len() == 1 && found[0].starts_with("Epilog is not set"),
            "{found:?}"
        );
        let found = bad("LicenseName=rgpu Total=3 Used=0\n");
        assert!(
            found[1].contains("3 licences rgpu for 2 devices"),
            "{found:?}"
        );
        assert!(bad("")[1].contains("Licenses=rgpu:2"));
        assert!(bad("LicenseName=rgpu_gib Total=161\n")[1].contains("161 licences"));
    }

    #[test]
    fn files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prolog");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(write(&file, MARK, 0o755).is_err() && undo(folder.path()).is_err());
        fs::remove_file(&file).unwrap();
        write(&file, MARK, 0o755).unwrap();
        write(&file, MARK, 0o755).unwrap();
        undo(folder.path()).unwrap();
        assert!(!folder.path().exists());
    }
}
