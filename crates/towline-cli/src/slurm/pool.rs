//! Jobs of Slurm with devices of standing servers. Licences say how many a job wants, and Slurm starts no more jobs than there are; the
//! node's Prolog has the servers give the job a lease, and writes down for the job's user what its tasks have to know.
//!
//! Every node of a job asks for the same lease, with the same token, made from what the servers' admin and the job have: no node has to
//! tell another anything. A lease ends with the job's time at the latest.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use towline_wire::control::{GiveLease, LeasedPart, Nonce, TimeShare};

use super::{said, variable};
use crate::cli::{Cli, Command, SlurmPoolOptions};
use crate::lease::Pool;
use crate::tenants::write_new_secret;
use crate::{run, servers};

/// Files of a job's folder: arguments of `towline run`, one a line, or the reason why there is no lease.
const ARGUMENTS: &str = "arguments";
const REASON: &str = "reason";
/// A lease lasts so much longer than its job may: Slurm takes a while to end one.
const MARGIN: Duration = Duration::from_secs(10 * 60);

/// Fields of a job that Slurm tells in columns. None is a text of the user's own, as a job's name is, which could look like other fields;
/// names of licences are the site's.
const FIELDS: &str =
    "JobID:24,UserID:24,GroupID:24,SubmitTime:24,RestartCnt:24,EndTime:24,Licenses:4096";
/// Fields for a look at all jobs.
const RUN_FIELDS: &str = "JobID:24,State:24,RestartCnt:24,EndTime:24";
/// States of jobs that have been started and not ended. One that waits to be started again has a new lease then.
const STARTED: [&str; 8] = [
    "COMPLETING",
    "CONFIGURING",
    "RESIZING",
    "RUNNING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
];

/// A job as `squeue` tells of it.
#[derive(Debug, PartialEq)]
struct Job {
    id: u64,
    user: u32,
    group: u32,
    licenses: String,
    /// Number of times that it was started again.
    restarts: u64,
    /// Seconds since 1970, as is the next.
    submitted: String,
    /// None where its time has no limit.
    ends: Option<Timestamp>,
}

impl Job {
    fn ask(id: &str) -> anyhow::Result<Self> {
        let fields = format!("--Format={FIELDS}");
        let asked = ["--noheader", "--all", "--states=all", "--jobs", id, &fields];
        let shown = said("squeue", &asked)?;
        // Of an array of jobs it tells of each.
        let mut jobs = shown.lines().filter_map(Self::of);
        let job = jobs.find(|job| job.id.to_string() == id);
        job.with_context(|| format!("squeue does not tell of the job {id} what is needed"))
    }

    fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        Some(Self {
            id: words.next()?.parse().ok()?,
            user: words.next()?.parse().ok()?,
            group: words.next()?.parse().ok()?,
            submitted: words.next()?.to_owned(),
            restarts: words.next()?.parse().ok()?,
            ends: end(words.next()?),
            licenses: words.next().unwrap_or_default().to_owned(),
        })
    }

    fn run(&self) -> Run {
        Run {
            job: self.id,
            restarts: self.restarts,
        }
    }

    /// The devices that it asks for.
    fn part(&self, options: &SlurmPoolOptions) -> anyhow::Result<Option<LeasedPart>> {
        let count = |name: &str| license(&self.licenses, name);
        match (count(&options.license), count(&options.memory_license)) {
            (0, 0) => Ok(None),
            (devices, 0) => Ok(Some(LeasedPart::Whole(u32::try_from(devices)?))),
            (0, gib) => {
                let bytes = gib.checked_mul(1 << 30);
                Ok(Some(LeasedPart::Memory(
                    bytes.context("so much memory has no device")?,
                )))
            }
            _ => bail!(
                "a job has whole devices ({}) or a part of one ({}), not both",
                options.license,
                options.memory_license
            ),
        }
    }

    /// Makes its token unlike that of any job that has the same number later.
    fn nonce(&self, lease: &str) -> Nonce {
        let text = format!("{lease} {} {}", self.user, self.submitted);
        Sha256::digest(text).into()
    }

    /// Seconds from now for which it needs its lease; 0: until it is ended.
    fn seconds(&self) -> u64 {
        self.ends.map_or(0, |ends| {
            let left = ends.duration_since(Timestamp::now()).as_secs();
            u64::try_from(left).unwrap_or(0) + MARGIN.as_secs()
        })
    }
}

/// A time that a program of Slurm tells with SLURM_TIME_FORMAT=%s, if it is one.
fn moment(text: &str) -> Option<Timestamp> {
    Timestamp::from_second(text.trim().parse().ok()?).ok()
}

/// The end of a job that has been started; none where its time has no limit. One that is not known is near: a sweep renews the lease.
fn end(text: &str) -> Option<Timestamp> {
    match text {
        "NONE" | "Unknown" | "UNLIMITED" => None,
        _ => Some(moment(text).unwrap_or_else(Timestamp::now)),
    }
}

/// A job's run: a job that is started again has another lease, so that nothing that is late for one run ends the lease of the next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Run {
    job: u64,
    restarts: u64,
}

impl Run {
    fn lease(self, prefix: &str) -> String {
        match self.restarts {
            0 => format!("{prefix}{}", self.job),
            restarts => format!("{prefix}{}.{restarts}", self.job),
        }
    }

    fn of_lease(name: &str, prefix: &str) -> Option<Self> {
        let run = name.strip_prefix(prefix)?;
        let (job, restarts) = run.split_once('.').unwrap_or((run, "0"));
        Some(Self {
            job: job.parse().ok()?,
            restarts: restarts.parse().ok()?,
        })
    }
}

/// The number of a licence in a list like `matlab:2,rgpu@db:3`.
fn license(list: &str, name: &str) -> u64 {
    let counts = list.split([',', ';']).filter_map(|word| {
        let (named, count) = word.split_once([':', '=']).unwrap_or((word, "1"));
        let named = named.split_once('@').map_or(named, |(named, _)| named);
        (named == name).then(|| count.parse::<u64>().unwrap_or(0))
    });
    counts.sum()
}

/// Stands before the job's number in the names of a cluster's leases.
fn prefix() -> anyhow::Result<String> {
    let cluster = match variable("SLURM_CLUSTER_NAME") {
        Some(cluster) => cluster,
        None => {
            let shown = said("scontrol", &["show", "config"])?;
            let value = super::setup::setting(&shown, "ClusterName");
            value.context("scontrol does not name the cluster")?
        }
    };
    Ok(format!("slurm-{cluster}-"))
}

fn job_id() -> anyhow::Result<String> {
    let id = variable("SLURM_JOB_ID").context("Slurm calls this for a job (SLURM_JOB_ID)")?;
    // It becomes part of a path.
    let number: u64 = id.parse().context("SLURM_JOB_ID is no number")?;
    Ok(number.to_string())
}

/// `towline slurm prolog`. A job whose devices cannot be had learns why from its tasks; the node is not to be drained for it.
pub(super) fn prolog(options: &SlurmPoolOptions) -> anyhow::Result<ExitCode> {
    let id = job_id()?;
    let wanted = variable("SLURM_JOB_LICENSES");
    let is_ours = |list: &String| {
        let names = [&options.license, &options.memory_license];
        names.iter().any(|name| license(list, name) > 0)
    };
    // Newer versions of Slurm say it here, so that jobs without licences cost nothing.
    if wanted.is_some_and(|list| !is_ours(&list)) {
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(error) = equip(&id, options) {
        eprintln!("towline: job {id} has no devices: {error:#}");
    }
    Ok(ExitCode::SUCCESS)
}

fn equip(id: &str, options: &SlurmPoolOptions) -> anyhow::Result<()> {
    let job = Job::ask(id)?;
    let part = job.part(options);
    if matches!(part, Ok(None)) {
        return Ok(());
    }
    let folder = options.folder.folder.join(id);
    let mut parents = fs::DirBuilder::new();
    let parents = parents.recursive(true).mode(0o755);
    let action = || format!("could not make {}", folder.display());
    parents
        .create(&options.folder.folder)
        .with_context(action)?;
    // Of a start before, whose end nobody noticed.
    remove(&folder)?;
    let record = record(&folder);
    if record.exists() {
        fs::remove_file(&record).with_context(action)?;
    }
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .with_context(action)?;
    let leased = part.and_then(|part| match part {
        Some(part) => lease(&job, part, &folder, options),
        None => Ok(()),
    });
    if let Err(error) = &leased {
        write_new_secret(&folder.join(REASON), &format!("{error:#}"))?;
    }
    // Its user's from here on: nothing is written into it after this.
    for entry in fs::read_dir(&folder).with_context(action)? {
        chown(entry?.path(), Some(job.user), Some(job.group))?;
    }
    chown(&folder, Some(job.user), Some(job.group))?;
    leased
}

/// The file beside a job's folder with the name of its lease.
fn record(folder: &Path) -> PathBuf {
    folder.with_extension("lease")
}

fn lease(
    job: &Job,
    part: LeasedPart,
    folder: &Path,
    options: &SlurmPoolOptions,
) -> anyhow::Result<()> {
    let name = job.run().lease(&prefix()?);
    // Root's: the Epilog may end no other lease.
    write_new_secret(&record(folder), &name)?;
    let known_servers = folder.join("known_servers");
    let pool = Pool::with_known_servers(&options.servers, &known_servers)?;
    let request = GiveLease {
        nonce: job.nonce(&name),
        name,
        part,
        on: Vec::new(),
        seconds: job.seconds(),
        sessions: 0,
        time: TimeShare::default(),
    };
    end_earlier(&pool, job.run())?;
    let given = pool.give(&request)?;
    let token = folder.join("token");
    write_new_secret(&token, &pool.token_of(&request).to_text())?;
    let servers = given.iter().map(|given| given.server.to_string());
    let mut arguments = vec![
        "--server".to_owned(),
        servers.collect::<Vec<_>>().join(","),
        "--tenant".to_owned(),
        request.name,
    ];
    let access = &options.servers.access;
    for (option, file) in [
        ("--token-file", Some(&token)),
        ("--known-servers", Some(&known_servers)),
        ("--ca", access.ca.as_ref()),
    ] {
        if let Some(file) = file {
            let file = std::path::absolute(file)?;
            let file = file.to_str().context("a path that is no text")?;
            arguments.extend([option.to_owned(), file.to_owned()]);
        }
    }
    if access.no_encryption {
        arguments.push("--no-encryption".to_owned());
    }
    write_new_secret(&folder.join(ARGUMENTS), &arguments.join("\n"))
}

/// Ends leases that a job had when it was started before: on a node that died no Epilog did.
fn end_earlier(pool: &Pool, run: Run) -> anyhow::Result<()> {
    let prefix = prefix()?;
    for lease in pool.leases()? {
        let of = Run::of_lease(&lease.name, &prefix);
        if of.is_some_and(|of| of.job == run.job && of.restarts < run.restarts)
            && let Err(error) = pool.end(&lease.name)
        {
            // Another node of the job may have ended it meanwhile.
            eprintln!("towline: {}: {error:#}", lease.name);
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// `towline slurm epilog`: what cannot be ended now ends with its time, or by `towline slurm sweep`.
pub(super) fn epilog(options: &SlurmPoolOptions) -> anyhow::Result<ExitCode> {
    let id = job_id()?;
    let folder = options.folder.folder.join(&id);
    if folder.exists() {
        let end = || {
            let record = record(&folder);
            let name = match fs::read_to_string(&record) {
                // It was told why it could have none.
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                read => Some(read.with_context(|| format!("could not read {}", record.display()))?),
            };
            remove(&folder)?;
            if let Some(name) = name {
                fs::remove_file(&record)?;
                Pool::of(&options.servers)?.end(&name)?;
            }
            anyhow::Ok(())
        };
        if let Err(error) = end() {
            eprintln!("towline: the lease of job {id} could not be ended: {error:#}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `towline slurm task-prolog`: Slurm gives the task what is printed.
pub(super) fn task_prolog(folder: &Path) -> anyhow::Result<ExitCode> {
    let folder = folder.join(job_id()?);
    if let Ok(reason) = fs::read_to_string(folder.join(REASON)) {
        eprintln!("towline: this job has no devices: {}", reason.trim());
        say!(
            "print towline: this job has no devices: {}",
            one_line(&reason)
        );
        return Ok(ExitCode::FAILURE);
    }
    let file = folder.join(ARGUMENTS);
    if !file.exists() {
        return Ok(ExitCode::SUCCESS);
    }
    for (name, value) in variables(&folder, &file)? {
        say!("export {name}={value}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The variables of a program of the job.
fn variables(folder: &Path, file: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("could not read {}", file.display()))?;
    let links = folder.to_str().context("a path that is no text")?;
    let fixed = ["towline", "run", "--links", links];
    let arguments = fixed.into_iter().chain(text.lines()).chain(["--", "true"]);
    let Command::Run(options) = Cli::try_parse_from(arguments)?.command else {
        bail!("{} does not say how to run", file.display());
    };
    let command = run::command(&options, &servers::choose(&options.servers)?)?;
    let variables = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_str()?;
        Some((name.to_str()?.to_owned(), one_line(value)))
    });
    Ok(variables.collect())
}

/// Slurm reads lines.
fn one_line(text: &str) -> String {
    text.trim().replace(char::is_control, " ")
}

/// `towline slurm sweep`.
pub(super) fn sweep(options: &SlurmPoolOptions) -> anyhow::Result<ExitCode> {
    let prefix = prefix()?;
    let pool = Pool::of(&options.servers)?;
    // Before Slurm is asked: a lease that is there by now is of a job that Slurm has started, and tells of until it is over.
    let leases = pool.leases()?;
    let fields = format!("--Format={RUN_FIELDS}");
    let runs = runs(&said("squeue", &["--noheader", "--all", &fields])?);
    let mut failed = false;
    for lease in leases {
        let Some(of) = Run::of_lease(&lease.name, &prefix) else {
            continue;
        };
        let changed = match runs.iter().find(|(run, _)| *run == of) {
            None => pool.end(&lease.name),
            Some((_, ends)) => renew(&pool, &lease.name, lease.ends(), *ends),
        };
        if let Err(error) = changed {
            eprintln!("towline: {}: {error:#}", lease.name);
            failed = true;
        }
    }
    Ok(ExitCode::from(if failed { crate::FAILURE } else { 0 }))
}

/// Gives a lease the job's end where its own comes before that.
fn renew(
    pool: &Pool,
    name: &str,
    lease: Option<Timestamp>,
    job: Option<Timestamp>,
) -> anyhow::Result<bool> {
    match seconds_more(lease, job, Timestamp::now()) {
        None => Ok(false),
        Some(seconds) => pool.renew(name, seconds),
    }
}

/// Seconds from now for which a lease is to be renewed, if it is: 0 for no end. A job may be there beyond its time: suspended, or as the
/// site allows.
fn seconds_more(lease: Option<Timestamp>, job: Option<Timestamp>, now: Timestamp) -> Option<u64> {
    let (lease, Some(job)) = (lease?, job) else {
        return Some(0);
    };
    let margin = MARGIN.as_secs();
    let left = |end: Timestamp| u64::try_from(end.duration_since(now).as_secs()).unwrap_or(0);
    (lease <= job || left(lease) < margin).then(|| left(job) + margin)
}

/// Runs of jobs that Slurm has started and not ended, and their ends.
fn runs(shown: &str) -> Vec<(Run, Option<Timestamp>)> {
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let job = words.next()?.parse().ok()?;
        let state = words.next()?;
        let restarts = words.next()?.parse().ok()?;
        let ends = end(words.next()?);
        STARTED
            .contains(&state)
            .then_some((Run { job, restarts }, ends))
    };
    shown.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str =
        "7      1000      1001   1700000000   0   1700003700    matlab:1,rgpu:2     ";

    #[test]
    fn job_is_read_from_what_squeue_shows() {
        let job = Job::of(SHOWN).unwrap();
        assert_eq!((job.id, job.user, job.group), (7, 1000, 1001));
        assert_eq!(job.ends, Timestamp::from_second(1_700_003_700).ok());
        assert_eq!(job.licenses, "matlab:1,rgpu:2");
        let endless = SHOWN.replace("1700003700", "NONE");
        assert_eq!(Job::of(&endless).unwrap().seconds(), 0);
        let unknown = Job::of(&SHOWN.replace("1700003700", "N/A")).unwrap();
        assert!((1..=MARGIN.as_secs()).contains(&unknown.seconds()));
        assert_eq!(Job::of("7 anna 1001 1700000000 0 1700003700 rgpu:2"), None);
        assert_eq!(Job::of("7"), None);
        assert_eq!(Job::of(""), None);
    }

    #[test]
    fn no_field_is_the_users_own_text() {
        for free in [
            "Name",
            "Comment",
            "Command",
            "WorkDir",
            "Dependency",
            "WCKey",
            "Std",
            "Features",
            "ReqNodes",
        ] {
            assert!(!FIELDS.contains(free), "{free}");
        }
    }

    #[test]
    fn leases_are_renewed_as_long_as_their_jobs_are_there() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).ok();
        let now = at(0).unwrap();
        let more = |lease, job| seconds_more(lease, job, now);
        // Without an end, and with one that comes behind the job's.
        assert_eq!(more(None, at(60)), None);
        assert_eq!(more(at(4200), at(3600)), None);
        // The job has more time, or no end, or is there beyond its time.
        assert_eq!(more(at(600), at(3600)), Some(4200));
        assert_eq!(more(at(600), None), Some(0));
        assert_eq!(more(at(60), at(-540)), Some(600));
        assert_eq!(more(at(599), at(-1)), Some(600));
    }

    #[test]
    fn licenses_are_counted_by_name() {
        for (list, count) in [
            ("rgpu:2", 2),
            ("rgpu", 1),
            ("matlab:9,rgpu@db:3", 3),
            ("rgpu=4", 4),
            ("rgpus:2", 0),
            ("(null)", 0),
            ("", 0),
            ("rgpu:x", 0),
        ] {
            assert_eq!(license(list, "rgpu"), count, "{list}");
        }
    }

    #[test]
    fn token_is_of_one_job_alone() {
        let job = Job::of(SHOWN).unwrap();
        let later = Job::of(&SHOWN.replace("1700000000", "1700009999"));
        let other = Job::of(&SHOWN.replace("1000      1001", "1002      1001"));
        let nonce = job.nonce("slurm-c-7");
        assert_eq!(nonce, Job::of(SHOWN).unwrap().nonce("slurm-c-7"));
        assert_ne!(nonce, later.unwrap().nonce("slurm-c-7"));
        assert_ne!(nonce, other.unwrap().nonce("slurm-c-7"));
    }

    #[test]
    fn started_runs_are_read_from_what_squeue_shows() {
        let shown = "7 RUNNING 0 1700003700\n 8 SUSPENDED 2 NONE\nrubbish\n9 PENDING 1 N/A\n\
                     10 REQUEUED 0 N/A\n11 SPECIAL_EXIT 1 N/A\n12 COMPLETING 0 N/A\n";
        let ends = Timestamp::from_second(1_700_003_700).ok();
        let run = |job, restarts| Run { job, restarts };
        let found = runs(shown);
        assert_eq!(found[..2], [(run(7, 0), ends), (run(8, 2), None)]);
        // An end that is not known is no reason for a lease without one.
        assert!(found[2].0 == run(12, 0) && found[2].1.is_some());
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn each_run_of_a_job_has_its_lease() {
        for (restarts, name) in [(0, "slurm-c-7"), (2, "slurm-c-7.2")] {
            let run = Run { job: 7, restarts };
            assert_eq!(run.lease("slurm-c-"), name);
            assert_eq!(Run::of_lease(name, "slurm-c-"), Some(run));
        }
        for other in ["slurm-d-7", "slurm-c-", "slurm-c-7.x", "slurm-c-7.1.1"] {
            assert_eq!(Run::of_lease(other, "slurm-c-"), None, "{other}");
        }
    }
}
