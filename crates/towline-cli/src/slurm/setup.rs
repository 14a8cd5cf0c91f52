//! `towline slurm setup` and `check`: the configuration of Slurm by which jobs get devices of standing servers.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
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
    ("EpilogSlurmctld", SWEEP),
];
const SWEEP: &str = "sweep";
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
    let shown = said("scontrol", &["show", "config"]);
    if let Err(error) = &shown {
        eprintln!(
            "towline: {error:#}; lines of {CONF} replace what slurm.conf has of the same settings"
        );
    }
    let shown = shown.unwrap_or_default();
    make(&out).with_context(|| format!("could not make {}", out.display()))?;
    for (_, command) in SCRIPTS {
        let text = script(command, &options.pool)?;
        write(&out.join(command), &text, 0o755)?;
    }
    write(&out.join(SUBMIT), &submit(&options.pool), 0o644)?;
    let conf = out.join(CONF);
    let (text, notes) = lines(&shown, &out, &capacity, &options.pool);
    write(&conf, &text, 0o644)?;
    say!(
        "wrote {}\n\n1. Have this folder, Towline and the token's file on all nodes; the token is for root alone.\n2. Add to slurm.conf:  include {}\n3. scontrol reconfigure; towline slurm check with the same options",
        out.display(),
        conf.display(),
    );
    for note in notes {
        say!("\n{note}");
    }
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
    say!(
        "removed; take the line `include {}` out of slurm.conf, then scontrol reconfigure",
        out.join(CONF).display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Makes a folder that all may look into, unless it is there.
fn make(out: &Path) -> std::io::Result<()> {
    if out.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(out)?;
    fs::set_permissions(out, fs::Permissions::from_mode(0o755))
}

/// Writes a file that only root changes, unless one is there that is not ours.
fn write(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let action = || format!("could not write {}", file.display());
    match fs::read(file) {
        Ok(before) if !String::from_utf8_lossy(&before).contains(MARK) => {
            bail!("{} is not ours; it stays", file.display())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(action);
        }
        _ => {}
    }
    // In its place at once: Slurm may call the one before at any time, and drains a node whose Prolog it does not find.
    let new = file.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut opened = fs::OpenOptions::new();
    let opened = opened.write(true).create_new(true).mode(mode).open(&new);
    let written = opened.and_then(|mut opened| {
        opened.write_all(text.as_bytes())?;
        // A umask would keep jobs' users from the TaskProlog.
        opened.set_permissions(fs::Permissions::from_mode(mode))?;
        fs::rename(&new, file)
    });
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
    /// Of the largest device.
    largest_gib: u64,
}

impl Capacity {
    fn of(options: &SlurmPoolOptions) -> anyhow::Result<Self> {
        let sizes = Pool::of(&options.servers)?.device_sizes()?;
        let gib = || sizes.iter().map(|bytes| bytes >> 30);
        Ok(Self {
            devices: sizes.len() as u64,
            gib: gib().sum(),
            largest_gib: gib().max().unwrap_or(0),
        })
    }
}

/// Lines for slurm.conf, which leave a site what it has, and notes on what is left to do.
fn lines(
    shown: &str,
    out: &Path,
    capacity: &Capacity,
    options: &SlurmPoolOptions,
) -> (String, Vec<String>) {
    let mut notes = Vec::new();
    let scripts = SCRIPTS.map(|(name, command)| {
        let line = format!("{name}={}\n", out.join(command).display());
        let site = set(shown, name).filter(|site| *site != out.join(command).display().to_string());
        if let Some(site) = site {
            notes.push(format!(
                "{name}={site} stays: have it call {} too",
                out.join(command).display()
            ));
            return format!("# The site's stays: {site}\n#{line}");
        }
        if command == SWEEP && slurm_user(shown) != 0 {
            notes.push(format!(
                "{name} would run as SlurmUser, who may not read root's token: have a timer of root run {} every five minutes",
                out.join(command).display()
            ));
            return format!("# As SlurmUser, who may not read root's token: a timer of root runs it instead.\n#{line}");
        }
        line
    });
    let names = [&options.license, &options.memory_license];
    let site = set(shown, "Licenses").unwrap_or_default();
    let others = site.split(',').filter(|word| {
        let name = word.split([':', '=']).next().unwrap_or_default();
        !word.is_empty() && names.iter().all(|own| *own != name)
    });
    let others: String = others.map(|word| format!("{word},")).collect();
    let site = set(shown, "PrologFlags").unwrap_or_default();
    let mut flags: Vec<_> = site.split(',').filter(|flag| !flag.is_empty()).collect();
    if !has_alloc(&site) {
        flags.push("Alloc");
    }
    let text = format!(
        "# {MARK}\n\
         # A licence is a whole device. Parts: {part}:N in place of it is N GiB of one device; give away fewer of either where both are used.\n\
         Licenses={others}{whole}:{devices}\n\
         # The pool has {gib} GiB: Licenses={others}{part}:{gib}\n\
         # For sbatch --gres={whole}:2, with {submit} copied beside slurm.conf, and {whole} added to the GresTypes that there are:\n\
         #JobSubmitPlugins=lua\n\
         #GresTypes={whole}\n\
         PrologFlags={flags}\n\
         {scripts}",
        part = options.memory_license,
        whole = options.license,
        devices = capacity.devices,
        gib = capacity.gib,
        flags = flags.join(","),
        scripts = scripts.concat(),
        submit = out.join(SUBMIT).display(),
    );
    (text, notes)
}

/// Whether a job's Prolog runs on all of its nodes before its batch script does.
fn has_alloc(flags: &str) -> bool {
    let is_alloc = |flag: &str| ["alloc", "contain"].contains(&flag.to_ascii_lowercase().as_str());
    flags.split(',').map(str::trim).any(is_alloc)
}

/// The number of Slurm's user; 0 where it is not told.
fn slurm_user(shown: &str) -> u32 {
    let user = setting(shown, "SlurmUser").unwrap_or_default();
    let number = user
        .split_once('(')
        .and_then(|(_, number)| number.strip_suffix(')'));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A job_submit plugin in Lua: licences in the place of a kind of device that no node has.
fn submit(options: &SlurmPoolOptions) -> String {
    let name = &options.license;
    format!(
        "-- {MARK}\n\
         local function licences(job)\n\
         \x20 local count, rest = 0, {{}}\n\
         \x20 for word in (job.tres_per_node or \"\"):gmatch(\"[^,]+\") do\n\
         \x20   -- Newer versions of Slurm put gres/ before each, older ones gres:\n\
         \x20   local wish = word:gsub(\"^gres[:/]\", \"\")\n\
         \x20   local kind, number = wish:match(\"^([^:=]+)[:=]?(%d*)$\")\n\
         \x20   if kind == \"{name}\" then count = count + (tonumber(number) or 1)\n\
         \x20   else rest[#rest + 1] = word end\n\
         \x20 end\n\
         \x20 if count == 0 then return end\n\
         \x20 local others = job.licenses\n\
         \x20 job.licenses = ((others and others ~= \"\") and others .. \",\" or \"\") .. \"{name}:\" .. count\n\
         \x20 job.tres_per_node = table.concat(rest, \",\")\n\
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
        // Newer versions of Slurm number settings that may be several.
        let key = key.trim();
        let is_named = key == name || key.strip_suffix("[0]") == Some(name);
        is_named.then(|| value.trim().to_owned())
    };
    shown.lines().find_map(of)
}

/// The same, if it is set.
fn set(shown: &str, name: &str) -> Option<String> {
    setting(shown, name).filter(|value| !value.is_empty() && value != "(null)")
}

/// `towline slurm check`.
pub(super) fn check(options: &SlurmPoolOptions) -> anyhow::Result<ExitCode> {
    let shown = said("scontrol", &["show", "config"])?;
    let licenses = said("scontrol", &["--oneliner", "show", "licenses"])?;
    let capacity = Capacity::of(options)?;
    let findings = findings(&shown, &licenses, &capacity, options);
    for (is_good, text) in &findings {
        say!("{:5} {text}", if *is_good { "ok" } else { "ERROR" });
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
        // A site's own script may call ours; whether it does shows in the jobs.
        findings.push(match set(shown, name) {
            Some(value) if command == SWEEP => sweeper(&value, slurm_user(shown), options),
            Some(value) => (true, format!("{name}={value}; it has to call `towline slurm {command}`")),
            None if command == SWEEP && slurm_user(shown) != 0 => (true, format!("{name} is not set: a timer of root has to run `towline slurm {command}`")),
            None => (false, format!("{name} is not set: name a script that calls `towline slurm {command}`, as `towline slurm setup` writes one")),
        });
    }
    let flags = set(shown, "PrologFlags").unwrap_or_default();
    findings.push(match has_alloc(&flags) {
        true => (true, format!("PrologFlags={flags}")),
        false => (false, "PrologFlags has neither Alloc nor Contain: a node's Prolog would run with its first task only, and a batch script start without devices".to_owned()),
    });
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
        // The devices that are given whole may be the largest.
        (whole, gib)
            if whole > 0 && gib > 0 && whole * capacity.largest_gib + gib > capacity.gib =>
        {
            (
                false,
                format!(
                    "{whole} licences {name} of {} GiB and {gib} {} are more than {} GiB: jobs would start without",
                    capacity.largest_gib, options.memory_license, capacity.gib
                ),
            )
        }
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

/// Whether the script that sweeps can: Slurm runs it as `user`, who has to read the token's file.
fn sweeper(value: &str, user: u32, options: &SlurmPoolOptions) -> (bool, String) {
    let text = fs::read_to_string(value).unwrap_or_default();
    let named = text.split("'--token-file=").nth(1);
    let named = named.and_then(|rest| rest.split('\'').next().map(PathBuf::from));
    let file = named.or_else(|| options.servers.access.token_file.clone());
    let readable = |file: &PathBuf| {
        let found = fs::metadata(file).ok()?;
        let is_owners = found.uid() == user && found.mode() & 0o400 != 0;
        Some(is_owners || found.mode() & 0o004 != 0)
    };
    match file.filter(|file| user != 0 && readable(file) == Some(false)) {
        Some(file) => (
            false,
            format!(
                "EpilogSlurmctld={value} runs as SlurmUser ({user}), who cannot read {}: leave it out, and have a timer of root run `towline slurm {SWEEP}`",
                file.display()
            ),
        ),
        None => (
            true,
            format!("EpilogSlurmctld={value}; it has to call `towline slurm {SWEEP}`"),
        ),
    }
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
        let shown = "Prolog                  = /x/prolog\nEpilog = (null)\nTaskProlog = /x/t\nEpilogSlurmctld = /x/s\nPrologFlags = Alloc,Contain\n";
        let capacity = CAPACITY;
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
        let both =
            |gib| format!("LicenseName=rgpu Total=1\nLicenseName=rgpu_gib Total={gib} Used=0\n");
        assert_eq!(bad(&both(80)).len(), 1);
        assert!(bad(&both(81))[1].contains("are more than 160 GiB"));
    }

    const CAPACITY: Capacity = Capacity {
        devices: 2,
        gib: 160,
        largest_gib: 80,
    };

    #[test]
    fn settings_of_the_site_stay() {
        let out = Path::new("/etc/towline");
        let shown = "Licenses = matlab:4,rgpu:9\nPrologFlags = X11\nProlog[0] = /site/prolog\n\
                     Epilog = /etc/towline/epilog\nTaskProlog = (null)\nSlurmUser = slurm(64030)\n";
        let (text, notes) = lines(shown, out, &CAPACITY, &options(&[]));
        for line in [
            "Licenses=matlab:4,rgpu:2",
            "PrologFlags=X11,Alloc",
            "#Prolog=/etc/towline/prolog",
            "Epilog=/etc/towline/epilog",
            "TaskProlog=/etc/towline/task-prolog",
            "#EpilogSlurmctld=/etc/towline/sweep",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(
            notes.len() == 2 && notes[0].contains("/site/prolog stays"),
            "{notes:?}"
        );
        let (text, notes) = lines("PrologFlags = Contain\n", out, &CAPACITY, &options(&[]));
        assert!(text.contains("\nPrologFlags=Contain\n"), "{text}");
        assert!(text.contains("\nProlog=/etc/towline/prolog\n") && notes.is_empty());
    }

    #[test]
    fn flags_without_alloc_are_found() {
        let found = findings("PrologFlags = X11\n", "", &CAPACITY, &options(&[]));
        let flags = |(is_good, text): &(bool, String)| !is_good && text.contains("neither Alloc");
        assert!(found.iter().any(flags), "{found:?}");
    }

    #[test]
    fn sweep_needs_a_token_that_it_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (sweep, token) = (path("sweep"), path("token"));
        write(Path::new(&token), "secret", 0o600).unwrap();
        let given = options(&["--token-file", &token]);
        write(Path::new(&sweep), &script("sweep", &given).unwrap(), 0o755).unwrap();
        let other = fs::metadata(&token).unwrap().uid() + 1;
        let shown = |user| format!("SlurmUser = x({user})\nEpilogSlurmctld = {sweep}\n");
        let is_good = |shown: &str| {
            let found = findings(shown, "", &CAPACITY, &options(&[]));
            let sweep = found
                .iter()
                .find(|(_, text)| text.starts_with("EpilogSlurmctld"));
            sweep.unwrap().0
        };
        assert!(!is_good(&shown(other)) && is_good(&shown(0)));
        // A timer of root runs it.
        assert!(is_good("SlurmUser = x(7)\n") && !is_good("SlurmUser = root(0)\n"));
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
        let mode = fs::metadata(&file).unwrap().mode() & 0o777;
        assert_eq!(
            (mode, fs::read_dir(folder.path()).unwrap().count()),
            (0o755, 1)
        );
        undo(folder.path()).unwrap();
        assert!(!folder.path().exists());
    }
}
