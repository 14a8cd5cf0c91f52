//! `towline login` and `logout`: the token of a server, kept for the user, and the server's place in the user's `config.toml`.
//!
//! Nothing is written before the server has shown that it knows the token too. All servers of a profile share one token, as all servers
//! that a program is given do; another token goes into another profile.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use toml::{Table, Value};
use towline_client::access::usual_known_servers;
use towline_client::config::{self, Places};
use towline_sys::signals::BlockedSignals;
use towline_transport::{Address, read_secret};
use towline_wire::control::Token;

use crate::ask::Server;
use crate::cli::{AccessOptions, LoginOptions, LogoutOptions, ServerOptions};
use crate::servers::{self, short};

/// Keys of the file.
const SERVERS: &str = "servers";
const TOKEN_FILE: &str = "token-file";
/// More than any token has.
const TOKEN_LIMIT: usize = Token::MAX_BYTES + 64;

pub(crate) fn login(options: &LoginOptions) -> anyhow::Result<ExitCode> {
    let options = &with_variables(options);
    let address = &options.host;
    let file = UserFile::open()?;
    let profile = file.profile(options.profile.as_deref())?;
    let token = match &options.access.token_file {
        Some(path) => read_secret(path, TOKEN_LIMIT)
            .with_context(|| format!("could not use the token file {}", path.display()))?,
        None => ask(&short(address))?,
    };
    let token = token.trim_ascii();
    file.others(profile.as_deref(), address, token)?;

    let access = AccessOptions {
        token_file: None,
        ..options.access.clone()
    };
    let given = servers::settings(&ServerOptions {
        servers: vec![address.to_string()],
        access,
        ..ServerOptions::default()
    })?;
    // The profile may be new.
    let variable = |name: &str| variable(name).filter(|_| name != config::PROFILE);
    let resolved = config::resolve(&given, None, variable, &Places::of_process(true))?;
    let mut access = servers::access(&config::Settings {
        token_file: None,
        ..resolved.settings
    })?;
    if !token.is_empty() {
        access.token = Some(Token::from_bytes(token).context("this is no token")?);
    }
    Server::connect(address, &access)?;

    // Another command may have changed it since.
    let (_lock, mut file) = UserFile::locked()?;
    let others = file.others(profile.as_deref(), address, token)?;
    let names: Vec<Value> = others
        .iter()
        .chain([address])
        .map(|server| short(server).into())
        .collect();
    file.set(profile.as_deref(), SERVERS, Some(names.into()))?;
    let stored = match token.is_empty() {
        true => None,
        false => Some(store(profile.as_deref(), token)?),
    };
    let text = stored
        .as_ref()
        .map(|path| path.display().to_string().into());
    file.set(profile.as_deref(), TOKEN_FILE, text)?;
    for (key, value) in access_keys(&options.access)? {
        file.set(profile.as_deref(), key, Some(value))?;
    }
    file.save()?;
    eprintln!(
        "towline: {} lets this user in; {} names it now",
        short(address),
        file.path.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The options, with variables in place of those that are not given: they are what is tried and kept.
fn with_variables(options: &LoginOptions) -> LoginOptions {
    let text = |name: &str| Some(variable(name)?.to_string_lossy().into_owned());
    let file = |name: &str| variable(name).map(PathBuf::from);
    let access = options.access.clone();
    LoginOptions {
        host: options.host.clone(),
        profile: options.profile.clone(),
        access: AccessOptions {
            token_file: access.token_file.or_else(|| file("TOWLINE_TOKEN_FILE")),
            tenant: access.tenant.or_else(|| text("TOWLINE_TENANT")),
            ca: access.ca.or_else(|| file("TOWLINE_CA")),
            certificate: access.certificate.or_else(|| file("TOWLINE_CERTIFICATE")),
            key: access.key.or_else(|| file("TOWLINE_KEY")),
            known_servers: access
                .known_servers
                .or_else(|| file("TOWLINE_KNOWN_SERVERS")),
            ..access
        },
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

pub(crate) fn logout(options: &LogoutOptions) -> anyhow::Result<ExitCode> {
    let (_lock, mut file) = UserFile::locked()?;
    let profile = file.profile(options.profile.as_deref())?;
    let profile = profile.as_deref();
    let before = file.table(profile);
    let mut left = servers_of(&before, &file.path)?;
    let count = left.len();
    left.retain(|server| *server != options.host);
    if left.len() == count {
        let place = profile.map_or_else(String::new, |name| format!(", profile {name}"));
        bail!(
            "{} does not name {}{place}",
            file.path.display(),
            short(&options.host)
        );
    }
    if !left.is_empty() {
        let names: Vec<Value> = left.iter().map(|server| short(server).into()).collect();
        file.set(profile, SERVERS, Some(names.into()))?;
        file.save()?;
        return Ok(ExitCode::SUCCESS);
    }
    file.set(profile, SERVERS, None)?;
    let token = before
        .get(TOKEN_FILE)
        .and_then(Value::as_str)
        .map(PathBuf::from);
    // A file that `login` did not make is the user's own.
    if let Some(token) = token.filter(|token| token_file(profile).is_ok_and(|ours| ours == *token))
    {
        file.set(profile, TOKEN_FILE, None)?;
        match std::fs::remove_file(&token) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("could not remove {}", token.display()));
            }
            _ => {}
        }
    }
    file.save()?;
    Ok(ExitCode::SUCCESS)
}

/// The options that say how to be let in, as keys.
fn access_keys(options: &AccessOptions) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let mut keys = Vec::new();
    for (key, path) in [
        ("ca", &options.ca),
        ("certificate", &options.certificate),
        ("key", &options.key),
        ("known-servers", &options.known_servers),
    ] {
        if let Some(path) = path {
            let path = std::path::absolute(path)?;
            keys.push((key, path.display().to_string().into()));
        }
    }
    if let Some(tenant) = &options.tenant {
        keys.push(("tenant", tenant.clone().into()));
    }
    if options.no_encryption {
        keys.push(("no-encryption", true.into()));
    }
    Ok(keys)
}

fn servers_of(table: &Table, file: &Path) -> anyhow::Result<Vec<Address>> {
    let place = file.display().to_string();
    match table.get(SERVERS) {
        Some(Value::String(list)) => Ok(config::parse_list(list, &place)?),
        Some(Value::Array(values)) => {
            let list: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            Ok(config::parse_list(&list.join(","), &place)?)
        }
        _ => Ok(Vec::new()),
    }
}

/// The token that a table names, as far as it can be read.
fn token_of(table: &Table, file: &Path) -> Option<Vec<u8>> {
    let named = table.get(TOKEN_FILE)?.as_str()?;
    let bytes = read_secret(&file.parent()?.join(named), TOKEN_LIMIT).ok()?;
    Some(bytes.trim_ascii().to_vec())
}

/// The file with the token of a profile, beside the known servers.
fn token_file(profile: Option<&str>) -> anyhow::Result<PathBuf> {
    let known = usual_known_servers().context("no home folder: set HOME or XDG_STATE_HOME")?;
    Ok(known.with_file_name(match profile {
        Some(name) => format!("token-{name}"),
        None => "token".to_owned(),
    }))
}

fn store(profile: Option<&str>, token: &[u8]) -> anyhow::Result<PathBuf> {
    let file = token_file(profile)?;
    write_file(&file, 0o600, &[token, b"\n"].concat())?;
    Ok(file)
}

/// Makes a folder for the user alone, unless it is there.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Waits until no other command has the folder's lock, and takes it.
fn lock_in(folder: &Path) -> std::io::Result<File> {
    make_folder(folder)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(folder.join("config.lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Writes a file whole, or not at all.
fn write_file(file: &Path, mode: u32, contents: &[u8]) -> anyhow::Result<()> {
    let action = || format!("could not write {}", file.display());
    let folder = file.parent().unwrap_or(Path::new("/"));
    make_folder(folder).with_context(action)?;
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let written = options
        .open(&draft)
        .and_then(|mut file| file.write_all(contents))
        .and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written.with_context(action)
}

/// Reads a line of standard input; from a terminal without showing it.
fn ask(server: &str) -> anyhow::Result<Vec<u8>> {
    let stdin = std::io::stdin();
    let mut line = Vec::new();
    if stdin.is_terminal() {
        eprint!("Token for {server} (it is not shown; empty for none): ");
        // An interrupt leaves the terminal as it was.
        let signals = BlockedSignals::of_server(false)?;
        let silent = Silent::new()?;
        let before = silent.before.clone();
        std::thread::Builder::new().spawn(move || {
            if let Ok(signal) = signals.wait() {
                drop(Silent { before });
                std::process::exit(128 + signal);
            }
        })?;
        stdin.lock().read_until(b'\n', &mut line)?;
        drop(silent);
        eprintln!();
    } else {
        stdin.lock().read_until(b'\n', &mut line)?;
    }
    Ok(line)
}

/// A terminal that does not show what is typed, for as long as this lives.
struct Silent {
    before: Termios,
}

impl Silent {
    fn new() -> anyhow::Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// The user's `config.toml`, changed line by line, so that comments and order stay as they are.
struct UserFile {
    path: PathBuf,
    text: String,
    entries: Table,
}

impl UserFile {
    fn open() -> anyhow::Result<Self> {
        let folder =
            config::personal_folder().context("no home folder: set HOME or XDG_CONFIG_HOME")?;
        Self::open_in(&folder)
    }

    /// As [`Self::open`]; other commands do not change it until the lock is dropped.
    fn locked() -> anyhow::Result<(File, Self)> {
        let folder =
            config::personal_folder().context("no home folder: set HOME or XDG_CONFIG_HOME")?;
        let lock = lock_in(&folder);
        let lock = lock.with_context(|| format!("could not lock {}", folder.display()))?;
        Ok((lock, Self::open_in(&folder)?))
    }

    fn open_in(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(config::FILE);
        // A link leads to the file that is meant.
        let path = path.canonicalize().unwrap_or(path);
        let read = |path: &Path| match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            text => text.with_context(|| format!("could not read {}", path.display())),
        };
        let text = read(&path)?;
        let entries: Table = text
            .parse()
            .with_context(|| format!("could not read {}", path.display()))?;
        let mut file = Self {
            path,
            text,
            entries,
        };
        // The list beside it would no longer be read once the file has the key.
        let list = folder.join(SERVERS);
        if !file.entries.contains_key(SERVERS) {
            let listed = config::parse_lines(&read(&list)?, &list.display().to_string())?;
            if !listed.is_empty() {
                let names: Vec<Value> = listed.iter().map(|server| short(server).into()).collect();
                file.set(None, SERVERS, Some(names.into()))?;
            }
        }
        Ok(file)
    }

    /// The profile's servers but this one, where they share its token.
    fn others(
        &self,
        profile: Option<&str>,
        address: &Address,
        token: &[u8],
    ) -> anyhow::Result<Vec<Address>> {
        let before = self.table(profile);
        let mut others = servers_of(&before, &self.path)?;
        others.retain(|other| other != address);
        let kept = token_of(&before, &self.path);
        match others.first() {
            Some(other) if kept.as_deref().unwrap_or_default() != token => bail!(
                "the token is not the one that {} has, and the servers of a profile share one; give {} a profile of its own with --profile NAME",
                short(other),
                short(address)
            ),
            _ => Ok(others),
        }
    }

    /// The profile to change: the one that is named, else the one that is used unless another is named.
    fn profile(&self, named: Option<&str>) -> anyhow::Result<Option<String>> {
        let variable = std::env::var(config::PROFILE)
            .ok()
            .filter(|name| !name.is_empty());
        let usual = self
            .entries
            .get("default-profile")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let name = named.map(str::to_owned).or(variable).or(usual);
        if let Some(name) = &name
            && (name.is_empty()
                || !name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)))
        {
            bail!("`{name}` is no name of a profile: take letters, digits, - and _");
        }
        Ok(name)
    }

    /// The entries of a profile, or of the top.
    fn table(&self, profile: Option<&str>) -> Table {
        let table = match profile {
            None => Some(&self.entries),
            Some(name) => self
                .entries
                .get("profile")
                .and_then(|all| all.get(name))
                .and_then(Value::as_table),
        };
        table.cloned().unwrap_or_default()
    }

    /// Gives a key a value, or takes the key away.
    fn set(
        &mut self,
        profile: Option<&str>,
        key: &str,
        value: Option<Value>,
    ) -> anyhow::Result<()> {
        if self.table(profile).get(key) == value.as_ref() {
            return Ok(());
        }
        let wanted = changed(self.entries.clone(), profile, key, value.clone());
        let line = value.as_ref().map(|value| format!("{key} = {value}"));
        let text = with_line(&self.text, profile, key, line.as_deref());
        // Lines are not all of TOML: what they became is compared with what was meant.
        match text.parse::<Table>() {
            Ok(entries) if Some(&entries) == wanted.as_ref() => {
                (self.text, self.entries) = (text, entries);
                Ok(())
            }
            _ => bail!(
                "{} is laid out in a way that `towline login` does not change: write `{}` there{}",
                self.path.display(),
                line.unwrap_or_else(|| format!("no {key}")),
                profile.map_or_else(String::new, |name| format!(", below [profile.{name}]"))
            ),
        }
    }

    fn save(&self) -> anyhow::Result<()> {
        write_file(&self.path, 0o644, self.text.as_bytes())
    }
}

fn changed(
    mut entries: Table,
    profile: Option<&str>,
    key: &str,
    value: Option<Value>,
) -> Option<Table> {
    let mut table = &mut entries;
    for name in profile.into_iter().flat_map(|name| ["profile", name]) {
        let below = table.entry(name).or_insert_with(|| Table::new().into());
        table = below.as_table_mut()?;
    }
    match value {
        Some(value) => table.insert(key.to_owned(), value),
        None => table.remove(key),
    };
    Some(entries)
}

/// The text with a line for a key in place of the one that there is.
fn with_line(text: &str, profile: Option<&str>, key: &str, line: Option<&str>) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let heading = profile.map(|name| format!("[profile.{name}]"));
    let is_heading = |line: &&str| line.trim_start().starts_with('[');
    let start = match &heading {
        None => 0,
        Some(heading) => match lines.iter().position(|line| line.trim() == heading) {
            Some(at) => at + 1,
            None => {
                if !lines.is_empty() {
                    lines.push("");
                }
                lines.push(heading);
                lines.len()
            }
        },
    };
    let end = lines[start..]
        .iter()
        .position(is_heading)
        .map_or(lines.len(), |count| start + count);
    let is_key = |line: &&str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    match (lines[start..end].iter().position(is_key), line) {
        (Some(at), Some(line)) => lines[start + at] = line,
        (Some(at), None) => {
            lines.remove(start + at);
        }
        (None, Some(line)) => {
            let filled = lines[start..end]
                .iter()
                .rposition(|line| !line.trim().is_empty());
            lines.insert(filled.map_or(start, |at| start + at + 1), line);
        }
        (None, None) => {}
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, UserFile) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(config::FILE), text).unwrap();
        let file = UserFile::open_in(folder.path()).unwrap();
        (folder, file)
    }

    fn names(list: &[&str]) -> Option<Value> {
        Some(Value::Array(
            list.iter().map(|name| (*name).into()).collect(),
        ))
    }

    #[test]
    fn comments_and_order_stay() {
        let (_folder, mut file) = file(
            "# ours\nservers = [\"a\"] # one\nca = \"x\"\n\n[profile.lab]\n# lab\n\n[profile.home]\ntenant = \"t\"\n",
        );
        file.set(None, SERVERS, names(&["a", "b"])).unwrap();
        file.set(Some("lab"), TOKEN_FILE, Some("/t".into()))
            .unwrap();
        file.set(Some("home"), "tenant", None).unwrap();
        file.set(Some("new"), SERVERS, names(&["c"])).unwrap();
        assert_eq!(
            file.text,
            "# ours\nservers = [\"a\", \"b\"]\nca = \"x\"\n\n[profile.lab]\n# lab\ntoken-file = \"/t\"\n\n[profile.home]\n\n\
             [profile.new]\nservers = [\"c\"]\n"
        );
    }

    #[test]
    fn empty_file_gets_its_first_key() {
        let (folder, mut file) = file("");
        file.set(None, SERVERS, names(&["a"])).unwrap();
        file.save().unwrap();
        let text = std::fs::read_to_string(folder.path().join(config::FILE)).unwrap();
        assert_eq!(text, "servers = [\"a\"]\n");
    }

    #[test]
    fn unusual_layout_is_left_alone() {
        for text in [
            "servers = [\n  \"a\",\n]\n",
            "profile = { lab = { tenant = \"t\" } }\n",
        ] {
            let (_folder, mut file) = file(text);
            let profile = text.contains("lab").then_some("lab");
            let error = file
                .set(profile, SERVERS, names(&["b"]))
                .unwrap_err()
                .to_string();
            assert!(error.contains("write `servers = [\"b\"]` there"), "{error}");
            assert_eq!(file.text, text);
        }
    }

    #[test]
    fn list_beside_the_file_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(SERVERS), "gpu1\ngpu2:1 # spare\n").unwrap();
        let file = UserFile::open_in(folder.path()).unwrap();
        assert_eq!(file.text, "servers = [\"gpu1\", \"gpu2:1\"]\n");
    }

    #[test]
    fn token_is_written_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/token");
        for token in ["first", "second"] {
            write_file(&path, 0o600, token.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), token);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
    }

    #[test]
    fn one_command_at_a_time_has_the_lock() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("towline");
        let lock = lock_in(&folder).unwrap();
        let (done, taken) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _lock = lock_in(&folder).unwrap();
                done.send(()).unwrap();
            });
            assert!(
                taken
                    .recv_timeout(std::time::Duration::from_millis(50))
                    .is_err()
            );
            drop(lock);
            taken.recv().unwrap();
        });
    }
}
