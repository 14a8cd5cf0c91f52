//! `towline tenant`: the file of a server's tenants, which a running server follows.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use towline_server::supervisor::{QuotaChanges, TenantEntry, TenantLimits};
use towline_transport::read_secret;
use towline_wire::control::limits::{TENANT_BYTES, TENANT_DEVICES};
use towline_wire::control::{Priority, TimeShare, Token};

use crate::cli::{
    DeviceWords, Limit, TenantChanges, TenantCommand, TenantOptions, TokenOut, cpu_percent,
    device_word, memory_bytes_or_none, processes, seconds, share,
};
use crate::table::{self, Table};

mod follower;

pub(crate) use self::follower::Follower;

/// Longest file that is read: thousands of tenants.
const MAX_BYTES: usize = 4 << 20;
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Random bytes that tell an entry from another of the same name.
const ID_BYTES: usize = 8;

const HEADING: &str = "\
# Tenants of `towline serve --tenants-file`, with their tokens: nobody else may read this file.
# `towline tenant` changes it and keeps no comments. A running server follows it within a second.

";

/// The contents of a file, by tenants' names.
type Entries = BTreeMap<String, Entry>;

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    /// Differs when a tenant is revoked and added anew.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    token: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    admin: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sessions: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Moment>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    devices: Vec<String>,
    /// Given, renewed and ended over the network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lease: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_memory: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_host_memory: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_processes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel_time_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_code: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_cpus: Option<f64>,
}

/// A number of bytes, written as in options: 512M.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "toml::Value", into = "String")]
struct Bytes(u64);

impl TryFrom<toml::Value> for Bytes {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(bytes) => bytes.to_string(),
            _ => return Err("no number of bytes, such as \"512M\"".into()),
        };
        memory_bytes_or_none(&text).map(Self)
    }
}

impl From<Bytes> for String {
    fn from(Bytes(bytes): Bytes) -> Self {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        let unit = units.iter().find(|(shift, _)| bytes % (1 << shift) == 0);
        match unit.filter(|_| bytes > 0) {
            Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
            None => bytes.to_string(),
        }
    }
}

/// A time, written as RFC 3339 has it, with quotation marks or without.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "toml::Value", into = "String")]
struct Moment(Timestamp);

impl TryFrom<toml::Value> for Moment {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Datetime(time) => time.to_string(),
            _ => String::new(),
        };
        let parsed = text.parse().map(Self);
        parsed.map_err(|_| "no time such as 2030-01-31T18:00:00Z".into())
    }
}

impl From<Moment> for String {
    fn from(Moment(time): Moment) -> Self {
        time.to_string()
    }
}

impl Entry {
    fn change(&mut self, changes: &TenantChanges) {
        fn set<T, U>(to: &mut Option<U>, from: Option<Limit<T>>, written: fn(T) -> U) {
            if let Some(Limit(limit)) = from {
                *to = limit.map(written);
            }
        }
        if let Some(admin) = changes.admin {
            self.admin = admin;
        }
        let same = |number| number;
        set(&mut self.sessions, changes.sessions, |number| number);
        set(&mut self.memory, changes.memory, Bytes);
        let until = changes.time.map(|time| Limit(Some(time)));
        set(&mut self.until, changes.until.or(until), Moment);
        if let Some(DeviceWords(words)) = &changes.devices {
            self.devices.clone_from(words);
        }
        set(&mut self.share, changes.share, |percent| percent);
        if let Some(priority) = changes.priority {
            let is_usual = priority == Priority::default();
            self.priority = (!is_usual).then(|| priority.name().to_owned());
        }
        set(&mut self.session_memory, changes.session_memory, Bytes);
        set(
            &mut self.session_host_memory,
            changes.session_host_memory,
            Bytes,
        );
        set(&mut self.session_processes, changes.session_processes, same);
        set(&mut self.kernel_time_limit, changes.kernel_time_limit, same);
        set(&mut self.session_code, changes.session_code, Bytes);
        let cpus = |percent: u64| percent as f64 / 100.0;
        set(&mut self.session_cpus, changes.session_cpus, cpus);
    }

    /// Whether its time is over.
    fn is_over(&self) -> bool {
        let until = self.until;
        until.is_some_and(|Moment(until)| until <= Timestamp::now())
    }

    /// As the server wants it.
    fn checked(&self) -> anyhow::Result<TenantEntry> {
        let bytes = |bytes: Option<Bytes>| bytes.map(|Bytes(bytes)| bytes);
        // A file is held to the ranges of the options.
        let checked = |key, text: Option<String>, parse: fn(&str) -> Result<u64, String>| {
            let parsed = text.map(|text| parse(&text)).transpose();
            parsed.map_err(|why| anyhow::anyhow!("{key}: {why}"))
        };
        if self.sessions == Some(0) || bytes(self.memory) == Some(0) {
            bail!("a limit of 0 for all its sessions; revoke it, or leave the limit out");
        }
        if self.devices.len() > TENANT_DEVICES {
            bail!("devices: more than {TENANT_DEVICES}");
        }
        for word in &self.devices {
            device_word(word).map_err(|why| anyhow::anyhow!("devices: {why}"))?;
        }
        let percent = self.share.map(|percent| share(&percent.to_string()));
        let percent = percent.transpose();
        let priority = match &self.priority {
            None => Priority::default(),
            Some(name) => Priority::from_name(name).with_context(|| {
                let known = Priority::ALL.map(Priority::name).join(", ");
                format!("priority: `{}` is none of {known}", name.escape_debug())
            })?,
        };
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        let cpus = self.session_cpus.map(|cpus| cpus.to_string());
        let time = checked("kernel-time-limit", text(self.kernel_time_limit), seconds)?;
        Ok(TenantEntry {
            id: self.id.clone(),
            token: Token::from_bytes(self.token.as_bytes())?,
            admin: self.admin,
            devices: self.devices.clone(),
            is_lease: self.lease,
            limits: TenantLimits {
                sessions: self.sessions,
                memory: bytes(self.memory),
                until: self.until.map(|Moment(until)| until),
                time: TimeShare {
                    percent: percent.map_err(|why| anyhow::anyhow!("share: {why}"))?,
                    priority,
                },
                quota: QuotaChanges {
                    device_memory_bytes: bytes(self.session_memory),
                    host_memory_bytes: bytes(self.session_host_memory),
                    processes: checked(
                        "session-processes",
                        text(self.session_processes),
                        processes,
                    )?,
                    kernel_time_ms: time.map(|seconds| seconds * 1000),
                    code_bytes: bytes(self.session_code),
                    cpu_percent: checked("session-cpus", cpus, cpu_percent)?,
                },
            },
        })
    }
}

/// The tenants in a file.
pub(crate) fn load(file: &Path) -> anyhow::Result<BTreeMap<String, TenantEntry>> {
    let action = || format!("could not use the tenants file {}", file.display());
    check(&read(file).with_context(action)?).with_context(action)
}

fn read(file: &Path) -> anyhow::Result<Entries> {
    let bytes = read_secret(file, MAX_BYTES)?;
    if bytes.len() > MAX_BYTES {
        bail!("it has more than {MAX_BYTES} bytes");
    }
    Ok(toml::from_slice(&bytes)?)
}

fn check(entries: &Entries) -> anyhow::Result<BTreeMap<String, TenantEntry>> {
    let checked = |(name, entry): (&String, &Entry)| {
        let entry = check_name(name).and_then(|()| entry.checked());
        Ok((
            name.clone(),
            entry.with_context(|| format!("tenant `{name}`"))?,
        ))
    };
    entries.iter().map(checked).collect()
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let starts_well = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if !starts_well || name.len() > TENANT_BYTES || !name.chars().all(is_good) {
        bail!(
            "`{}` is no name for a tenant: at most {TENANT_BYTES} letters, digits and -_. that begin with a letter or digit",
            name.escape_debug()
        );
    }
    Ok(())
}

/// `towline tenant`.
pub(crate) fn run(options: &TenantOptions) -> anyhow::Result<ExitCode> {
    let file = &options.tenants_file;
    let action = || format!("could not change the tenants file {}", file.display());
    match &options.command {
        TenantCommand::Add {
            name,
            changes,
            token_out,
        } => {
            check_name(name)?;
            let issued = Issued::prepare(random_text::<TOKEN_BYTES>()?, token_out, false)?;
            let mut store = Store::open(file, true).with_context(action)?;
            if store.entries.contains_key(name) {
                bail!("there is a tenant `{name}` already; see `towline tenant set` and `rotate`");
            }
            let mut entry = Entry {
                id: random_text::<ID_BYTES>()?,
                token: issued.token.clone(),
                ..Entry::default()
            };
            entry.change(changes);
            store.entries.insert(name.clone(), entry);
            store.save().with_context(action)?;
            let handed = issued.hand_out(serde_json::json!({ "name": name }));
            handed.with_context(|| lost(name))?;
        }
        TenantCommand::List { json } => {
            let action = || format!("could not read the tenants file {}", file.display());
            let entries = Store::open(file, false).with_context(action)?.entries;
            match json {
                true => say!("{:#}", listed(&entries)),
                false => say!("{}", render(&entries).trim_end()),
            }
        }
        TenantCommand::Revoke { name, .. } => {
            let mut store = Store::open(file, false).with_context(action)?;
            match name {
                Some(name) => {
                    store.find(name)?;
                    store.entries.remove(name);
                }
                None => store.entries.retain(|_, entry| !entry.is_over()),
            }
            store.save().with_context(action)?;
        }
        TenantCommand::Rotate { name, token_out } => {
            let issued = Issued::prepare(random_text::<TOKEN_BYTES>()?, token_out, true)?;
            let mut store = Store::open(file, false).with_context(action)?;
            store.find(name)?.token.clone_from(&issued.token);
            store.save().with_context(action)?;
            let handed = issued.hand_out(serde_json::json!({ "name": name }));
            handed.with_context(|| lost(name))?;
        }
        TenantCommand::Set { name, changes } => {
            let mut store = Store::open(file, false).with_context(action)?;
            store.find(name)?.change(changes);
            store.save().with_context(action)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The tenant has a new token that nobody knows.
fn lost(name: &str) -> String {
    format!(
        "the tenants file is changed, but the new token of `{name}` is lost; make another with `towline tenant rotate {name}`"
    )
}

/// The tenants without their tokens; a limit that is not set is null.
fn listed(entries: &Entries) -> serde_json::Value {
    let bytes = |bytes: Option<Bytes>| bytes.map(|Bytes(count)| count);
    let describe = |(name, entry): (&String, &Entry)| {
        serde_json::json!({
            "name": name,
            "admin": entry.admin,
            "sessions": entry.sessions,
            "memory_bytes": bytes(entry.memory),
            "until": entry.until,
            "devices": entry.devices,
            "lease": entry.lease,
            "share": entry.share,
            "priority": entry.priority.as_deref().unwrap_or(Priority::default().name()),
            "session_memory_bytes": bytes(entry.session_memory),
            "session_host_memory_bytes": bytes(entry.session_host_memory),
            "session_processes": entry.session_processes,
            "kernel_time_limit_s": entry.kernel_time_limit,
            "session_code_bytes": bytes(entry.session_code),
            "session_cpus": entry.session_cpus,
        })
    };
    entries.iter().map(describe).collect()
}

fn render(entries: &Entries) -> String {
    let columns = [
        "TENANT",
        "ADMIN",
        ">SESSIONS",
        ">SESSION MEMORY",
        ">MEMORY",
        ">SHARE",
        "UNTIL",
    ];
    let mut table = Table::new(columns);
    for (name, entry) in entries {
        let bytes = |bytes: Option<Bytes>| bytes.map_or("-".into(), |Bytes(n)| table::bytes(n));
        table.add(vec![
            name.clone(),
            if entry.admin { "yes" } else { "no" }.into(),
            entry.sessions.map_or("-".into(), |limit| limit.to_string()),
            bytes(entry.session_memory),
            bytes(entry.memory),
            entry.share.map_or("-".into(), |share| format!("{share}%")),
            match entry.until {
                None => "-".into(),
                Some(_) if entry.is_over() => "over".into(),
                Some(Moment(until)) => until.to_string(),
            },
        ]);
    }
    table.render_within(crate::table::terminal_columns(), &[])
}

/// A new token on its way to who asked for it.
pub(crate) struct Issued<'a> {
    token: String,
    json: bool,
    /// The file for it, with what is to be in it.
    file: Option<(&'a Path, NamedTempFile)>,
    replaces: bool,
}

impl<'a> Issued<'a> {
    /// Makes the file of a token, under another name: what fails, fails before the tenants change.
    pub(crate) fn prepare(
        token: String,
        out: &'a TokenOut,
        replaces: bool,
    ) -> anyhow::Result<Self> {
        let file = out.token_out.as_deref().map(|path| {
            if !replaces && path.exists() {
                bail!(
                    "{} exists; remove it, or name another file with --token-out",
                    path.display()
                );
            }
            let mut draft = NamedTempFile::new_in(folder_of(path))
                .with_context(|| format!("could not write {}", path.display()))?;
            writeln!(draft, "{token}")?;
            Ok((path, draft))
        });
        Ok(Self {
            file: file.transpose()?,
            token,
            json: out.json,
            replaces,
        })
    }

    /// Hands it to who asked; `tenant` is an object that describes whose it is.
    pub(crate) fn hand_out(self, mut tenant: serde_json::Value) -> anyhow::Result<()> {
        let Some((path, draft)) = self.file else {
            let text = match self.json {
                true => {
                    tenant["token"] = self.token.into();
                    format!("{tenant:#}")
                }
                false => self.token,
            };
            writeln!(std::io::stdout(), "{text}")?;
            return Ok(());
        };
        let persisted = match self.replaces {
            true => draft.persist(path),
            false => draft.persist_noclobber(path),
        };
        persisted.with_context(|| format!("could not write {}", path.display()))?;
        Ok(())
    }
}

/// A tenants file that is locked against other `towline tenant` commands.
struct Store {
    file: PathBuf,
    entries: Entries,
    _lock: File,
}

impl Store {
    /// With `make` a file that is not there is an empty one.
    fn open(file: &Path, make: bool) -> anyhow::Result<Self> {
        // A link stays one.
        let file = file.canonicalize().or_else(|error| match make {
            true => Ok(file.to_owned()),
            false => Err(error),
        })?;
        let mut name = file.as_os_str().to_owned();
        name.push(".lock");
        let lock = open_lock(Path::new(&name))
            .with_context(|| format!("could not open {}", Path::new(&name).display()))?;
        lock.lock()?;
        let entries = match make && !file.exists() {
            true => Entries::new(),
            false => read(&file)?,
        };
        Ok(Self {
            file,
            entries,
            _lock: lock,
        })
    }

    fn find(&mut self, name: &str) -> anyhow::Result<&mut Entry> {
        let entry = self.entries.get_mut(name);
        entry.with_context(|| format!("there is no tenant `{name}`; see `towline tenant list`"))
    }

    /// Puts a new file, which its owner alone can use, in the place of the old one.
    fn save(&self) -> anyhow::Result<()> {
        check(&self.entries)?;
        let text = HEADING.to_owned() + &toml::to_string(&self.entries)?;
        let mut draft = NamedTempFile::new_in(folder_of(&self.file))?;
        draft.write_all(text.as_bytes())?;
        give_to_owner_of(folder_of(&self.file), draft.as_file())?;
        draft.as_file().sync_all()?;
        draft.persist(&self.file)?;
        Ok(())
    }
}

/// Opens the lock of a tenants file, or makes it.
fn open_lock(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => options.open(path),
        made => {
            let made = made?;
            give_to_owner_of(folder_of(path), &made)?;
            Ok(made)
        }
    }
}

/// Gives a file that this process has made to the owner of its folder, where root makes it for a service: the service is to read it.
fn give_to_owner_of(folder: &Path, file: &File) -> std::io::Result<()> {
    let owner = folder.metadata()?;
    match rustix::process::geteuid().is_root() && owner.uid() != 0 {
        true => fchown(file, Some(owner.uid()), Some(owner.gid())),
        false => Ok(()),
    }
}

/// Writes a file that its owner alone may read, unless there is one of that name.
pub(crate) fn write_new_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("could not write {}", path.display()))
}

/// The folder that a file lies in.
pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder.parent().is_some() || folder.has_root() => folder,
        _ => Path::new("."),
    }
}

pub(crate) fn random_text<const N: usize>() -> anyhow::Result<String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("the system gives no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;
    use towline_server::supervisor::{LeaseChange, LeaseStore};

    use super::*;
    use crate::cli::{Cli, Command};

    struct Tried {
        folder: tempfile::TempDir,
    }

    impl Tried {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self { folder }
        }

        fn path(&self, name: &str) -> String {
            self.folder.path().join(name).to_str().unwrap().to_owned()
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("tenants")
        }

        fn tenant(&self, arguments: &[&str]) -> Result<(), String> {
            let file = self.path("tenants");
            let all = ["towline", "tenant", "--tenants-file", &file];
            let cli = Cli::try_parse_from(all.iter().chain(arguments)).unwrap();
            let Command::Tenant(options) = cli.command else {
                panic!("not tenant")
            };
            run(&options)
                .map(drop)
                .map_err(|error| format!("{error:#}"))
        }

        /// Adds a tenant and gives its token.
        fn add(&self, name: &str) -> Token {
            let out = self.path(&format!("token.{name}"));
            self.tenant(&["add", name, "--token-out", &out]).unwrap();
            crate::servers::read_token(out.as_ref()).unwrap()
        }
    }

    #[test]
    fn errors_name_the_file() {
        let tried = Tried::new();
        for arguments in [&["list"][..], &["rotate", "anna"]] {
            let error = tried.tenant(arguments).unwrap_err();
            assert!(error.contains(&tried.path("tenants")), "{error}");
        }
    }

    #[test]
    fn file_of_root_belongs_to_its_folders_owner() {
        const OWNER: u32 = 65_533;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let tried = Tried::new();
        std::os::unix::fs::chown(tried.folder.path(), Some(OWNER), Some(OWNER)).unwrap();
        tried.add("anna");
        for name in ["tenants", "tenants.lock"] {
            let made = std::fs::metadata(tried.path(name)).unwrap();
            assert_eq!(
                (made.uid(), made.gid(), made.mode() & 0o777),
                (OWNER, OWNER, 0o600),
                "{name}"
            );
        }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn tenants_are_listed_as_json_without_tokens() {
        let entry = Entry {
            token: "secret".into(),
            memory: Some(Bytes(1 << 30)),
            ..Entry::default()
        };
        let json = listed(&Entries::from([("anna".to_owned(), entry)]));
        assert_eq!(json[0]["memory_bytes"], 1 << 30);
        assert!(json[0]["sessions"].is_null() && !json.to_string().contains("secret"));
    }

    #[test]
    fn added_tenant_has_its_token_and_limits() {
        let tried = Tried::new();
        let token = tried.add("anna");
        let changes = [
            "set",
            "anna",
            "--sessions",
            "4",
            "--memory",
            "8G",
            "--session-cpus",
            "1.5",
            "--admin",
        ];
        tried.tenant(&changes).unwrap();
        let anna = load(&tried.file()).unwrap().remove("anna").unwrap();
        assert_eq!(anna.token, token);
        assert!(anna.admin);
        let limits = TenantLimits {
            sessions: Some(4),
            memory: Some(8 << 30),
            quota: QuotaChanges {
                cpu_percent: Some(150),
                ..QuotaChanges::default()
            },
            ..TenantLimits::default()
        };
        assert_eq!(anna.limits, limits);
        assert_eq!(mode(&tried.file()), 0o600);
        assert_eq!(mode(tried.path("token.anna").as_ref()), 0o600);
        let text = std::fs::read_to_string(tried.file()).unwrap();
        assert!(
            text.contains("\n[anna]\n") && text.contains("memory = \"8G\""),
            "{text}"
        );
    }

    #[test]
    fn limit_of_none_is_taken_away() {
        let tried = Tried::new();
        tried.add("anna");
        tried.tenant(&["set", "anna", "--sessions", "4"]).unwrap();
        tried
            .tenant(&["set", "anna", "--sessions", "none"])
            .unwrap();
        assert_eq!(
            load(&tried.file()).unwrap()["anna"].limits,
            TenantLimits::default()
        );
    }

    #[test]
    fn rotated_token_is_another_of_the_same_entry() {
        let tried = Tried::new();
        let (before, out) = (tried.add("anna"), tried.path("token.anna"));
        let id = load(&tried.file()).unwrap()["anna"].id.clone();
        tried
            .tenant(&["rotate", "anna", "--token-out", &out])
            .unwrap();
        let anna = load(&tried.file()).unwrap().remove("anna").unwrap();
        assert_ne!(anna.token, before);
        assert_eq!(
            anna.token,
            crate::servers::read_token(out.as_ref()).unwrap()
        );
        assert_eq!(anna.id, id);
    }

    #[test]
    fn tenant_added_after_revocation_has_another_id() {
        let tried = Tried::new();
        tried.add("anna");
        let id = load(&tried.file()).unwrap()["anna"].id.clone();
        tried.tenant(&["revoke", "anna"]).unwrap();
        assert!(load(&tried.file()).unwrap().is_empty());
        tried.tenant(&["add", "anna"]).unwrap();
        assert_ne!(load(&tried.file()).unwrap()["anna"].id, id);
    }

    #[test]
    fn tenants_have_sessions_until_a_time() {
        let tried = Tried::new();
        let until = |name: &str| load(&tried.file()).unwrap()[name].limits.until;
        let at = "2130-01-31T18:00:00+01:00";
        tried.tenant(&["add", "anna", "--until", at]).unwrap();
        assert_eq!(until("anna"), Some(at.parse().unwrap()));
        let before = Timestamp::now();
        tried.tenant(&["set", "anna", "--for", "1d2h30m"]).unwrap();
        let left = until("anna").unwrap().duration_since(before).as_secs();
        assert!((95_399..95_460).contains(&left), "{left} s");
        tried.tenant(&["set", "anna", "--until", "none"]).unwrap();
        assert_eq!(until("anna"), None);
        for wrong in [
            ["--until", "2020-01-31T18:00:00Z"],
            ["--until", "2130-01-31 18:00"],
            ["--for", "0s"],
            ["--for", "-2h"],
            ["--for", "1month"],
            ["--for", "soon"],
        ] {
            let arguments = ["towline", "tenant", "set", "anna", wrong[0], wrong[1]];
            assert!(Cli::try_parse_from(arguments).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn tenants_whose_time_is_over_are_revoked_together() {
        let tried = Tried::new();
        tried.add("anna");
        // By hand, in the form of TOML.
        let entry = |name: &str, until: &str| {
            format!("[{name}]\ntoken = \"the token of {name}\"\nuntil = {until}\n")
        };
        let by_hand = [
            std::fs::read_to_string(tried.file()).unwrap(),
            entry("bert", "2020-01-31T18:00:00Z"),
            entry("carl", "\"2130-01-31T18:00:00Z\""),
        ];
        std::fs::write(tried.file(), by_hand.concat()).unwrap();
        let shown = render(&read(&tried.file()).unwrap());
        assert!(
            shown.contains("over") && shown.contains("2130-01-31T18:00:00Z"),
            "{shown}"
        );
        tried.tenant(&["revoke", "--expired"]).unwrap();
        let left: Vec<String> = load(&tried.file()).unwrap().into_keys().collect();
        assert_eq!(left, ["anna", "carl"]);
        std::fs::write(tried.file(), entry("dora", "2030-01-31")).unwrap();
        let error = format!("{:#}", load(&tried.file()).unwrap_err());
        assert!(error.contains("no time such as"), "{error}");
    }

    #[test]
    fn wrong_commands_say_why_and_change_nothing() {
        let tried = Tried::new();
        tried.add("anna");
        let before = std::fs::read(tried.file()).unwrap();
        for (arguments, part) in [
            (["add", "anna"], "already"),
            (["add", "an na"], "no name for a tenant"),
            (["add", ".anna"], "no name for a tenant"),
            (["add", &"a".repeat(65)], "at most 64"),
            (["revoke", "bert"], "no tenant `bert`"),
            (["rotate", "bert"], "no tenant `bert`"),
        ] {
            let error = tried.tenant(&arguments).unwrap_err();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
        assert_eq!(std::fs::read(tried.file()).unwrap(), before);
    }

    #[test]
    fn file_that_others_can_read_is_refused() {
        let tried = Tried::new();
        tried.add("anna");
        std::fs::set_permissions(tried.file(), std::fs::Permissions::from_mode(0o640)).unwrap();
        for result in [
            load(&tried.file())
                .map(drop)
                .map_err(|error| format!("{error:#}")),
            tried.tenant(&["revoke", "anna"]),
        ] {
            let error = result.unwrap_err();
            assert!(error.contains("chmod 600"), "{error}");
        }
    }

    fn write(file: &Path, text: &str) {
        std::fs::write(file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn damaged_file_is_refused_with_the_place() {
        let tried = Tried::new();
        for (text, part) in [
            ("[anna]\n", "token"),
            ("[anna]\ntoken = \"short\"\n", "tenant `anna`"),
            (
                "[\"an na\"]\ntoken = \"0123456789abcdef\"\n",
                "no name for a tenant",
            ),
            (
                "[anna]\ntoken = \"0123456789abcdef\"\nmemory = \"much\"\n",
                "512M",
            ),
            (
                "[anna]\ntoken = \"0123456789abcdef\"\nsesions = 1\n",
                "sesions",
            ),
            (
                "[anna]\ntoken = \"0123456789abcdef\"\n[anna]\n",
                "duplicate",
            ),
        ] {
            write(&tried.file(), text);
            let error = format!("{:#}", load(&tried.file()).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// The tenants that a look finds changed.
    fn looked(follower: &Follower) -> Option<usize> {
        let mut found = None;
        follower.look_with(|entries| found = Some(entries.len()));
        found
    }

    #[test]
    fn follower_takes_settled_changes_and_keeps_damage_out() {
        let tried = Tried::new();
        tried.add("anna");
        let (follower, entries) = Follower::start(&tried.file()).unwrap();
        assert_eq!(entries.len(), 1);
        assert!(looked(&follower).is_none());
        tried.add("bert");
        assert!(looked(&follower).is_none(), "it may be being written");
        assert_eq!(looked(&follower), Some(2));
        write(&tried.file(), "[anna");
        assert!([(); 3].iter().all(|()| looked(&follower).is_none()));
        std::fs::remove_file(tried.file()).unwrap();
        assert!([(); 3].iter().all(|()| looked(&follower).is_none()));
        tried.add("carl");
        looked(&follower);
        assert_eq!(looked(&follower), Some(1));
    }

    fn changed(follower: &Follower, changes: &[LeaseChange]) -> Result<usize, String> {
        let taken = std::cell::Cell::new(0);
        let store: &dyn LeaseStore = follower;
        store.change(&mut |_| Ok(changes.to_vec()), &|entries| {
            taken.set(entries.len());
        })?;
        Ok(taken.get())
    }

    #[test]
    fn lease_is_kept_in_the_file() {
        let tried = Tried::new();
        tried.add("anna");
        let (follower, _) = Follower::start(&tried.file()).unwrap();
        let until = "2130-01-31T18:00:00Z".parse().ok();
        let token = Token::from_bytes(b"the token of a lease").unwrap();
        let lease = TenantEntry {
            limits: TenantLimits {
                memory: Some(20 << 30),
                ..TenantLimits::default()
            },
            devices: vec!["GPU-8f2c01d4".into()],
            is_lease: true,
            ..TenantEntry::new("", token)
        };
        let add = LeaseChange::Add("job-1".into(), lease.clone().into());
        assert_eq!(changed(&follower, &[add]), Ok(2));
        assert!(looked(&follower).is_none(), "the server has it already");
        let renew = LeaseChange::Renew("job-1".into(), until);
        assert_eq!(changed(&follower, &[renew]), Ok(2));
        let kept = load(&tried.file()).unwrap().remove("job-1").unwrap();
        assert_eq!(
            (kept.limits.until, kept.limits.memory),
            (until, Some(20 << 30))
        );
        assert_eq!((&kept.token, &kept.devices), (&lease.token, &lease.devices));
        assert!(kept.is_lease && !kept.id.is_empty());
        assert_eq!(mode(&tried.file()), 0o600);
        let remove = LeaseChange::Remove("job-1".into());
        assert_eq!(changed(&follower, &[remove]), Ok(1));
    }

    #[test]
    fn lease_that_cannot_be_kept_is_refused() {
        let tried = Tried::new();
        tried.add("anna");
        let (follower, _) = Follower::start(&tried.file()).unwrap();
        let lease = load(&tried.file()).unwrap().remove("anna").unwrap();
        let before = std::fs::read(tried.file()).unwrap();
        let wrong_name = LeaseChange::Add("job 1".into(), lease.into());
        assert!(changed(&follower, &[wrong_name]).is_err());
        assert_eq!(std::fs::read(tried.file()).unwrap(), before);
        std::fs::remove_file(tried.file()).unwrap();
        assert!(changed(&follower, &[LeaseChange::Remove("anna".into())]).is_err());
    }

    #[test]
    fn devices_of_a_tenant_are_numbers_or_uuids() {
        let tried = Tried::new();
        tried.add("anna");
        let devices = |list: &str| {
            tried.tenant(&["set", "anna", "--devices", list]).unwrap();
            load(&tried.file()).unwrap().remove("anna").unwrap().devices
        };
        assert_eq!(devices("0, GPU-8f2c"), ["0", "GPU-8f2c"]);
        assert!(devices("all").is_empty());
        for wrong in [
            "",
            "0,",
            "1234567890abcdef0123456789abcdef01234",
            "GPU-1",
            "H100",
            "-1",
        ] {
            let option = format!("--devices={wrong}");
            let arguments = ["towline", "tenant", "set", "anna", &option];
            assert!(Cli::try_parse_from(arguments).is_err(), "{wrong}");
        }
        let text = "[anna]\ntoken = \"0123456789abcdef\"\ndevices = [\"H100\"]\n";
        write(&tried.file(), text);
        let error = format!("{:#}", load(&tried.file()).unwrap_err());
        assert!(error.contains("`H100` is no device"), "{error}");
    }
}
