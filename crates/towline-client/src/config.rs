//! Settings of a client from outside: options of `towline`, variables, and the files of the user and of the system.
//!
//! [`resolve`] is the one place that knows the order of precedence, for `towline` and for the libraries that programs load. Each key is
//! taken from the first layer that has it:
//!
//! 1. options of the command line, then the profile that `--profile` names,
//! 2. variables of the environment,
//! 3. the profile that `TOWLINE_PROFILE`, else the key `default-profile`, names,
//! 4. the top level of the files.
//!
//! Within 1, 3 and 4 the user's file comes before the system's. A file `servers` beside a `config.toml`, one server a line, stands for the
//! key `servers` of one that lacks it. Keys that say how to be let in hold for servers that the files name, and where `--profile` is given.
//! Token and tenant go with the servers of their profile or top level: a server without a token refuses a client that has one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use towline_transport::{Address, TransportError};

use crate::access::usual_known_servers;

/// Environment variable with the user's folder.
pub(crate) const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
/// The file, in a folder `towline` of `~/.config` or `/etc`.
pub const FILE: &str = "config.toml";
/// Which profile of the files to use.
pub const PROFILE: &str = "TOWLINE_PROFILE";
/// The table of profiles in a file.
const PROFILES: &str = "profile";
/// The profile to use where neither option nor variable says.
const DEFAULT_PROFILE: &str = "default-profile";
/// The list of servers beside a file.
const LIST: &str = "servers";

/// A file, or what names a profile, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An address in a file or variable is none.
    #[error("{place}: {why}")]
    Address {
        /// The file, variable or option.
        place: String,
        /// The fault.
        why: TransportError,
    },
    /// A certificate without its key, or the other way round.
    #[error("a certificate and its key go together: the {0} is missing")]
    HalfIdentity(&'static str),
    /// A key has a value of another kind.
    #[error("{file}: `{key}` is {wanted}")]
    Kind {
        /// The file.
        file: String,
        /// The key, below its profile.
        key: String,
        /// The kind of value that it takes.
        wanted: &'static str,
    },
    /// No file has the profile.
    #[error("there is no profile `{name}`; {known}")]
    NoProfile {
        /// Its name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The file cannot be read, or is no TOML.
    #[error("{file}: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        why: String,
    },
    /// A key that nothing reads.
    #[error("{file}: unknown key `{key}`; keys are {known}")]
    UnknownKey {
        /// The file.
        file: String,
        /// The key, below its profile.
        key: String,
        /// Those that there are.
        known: String,
    },
}

/// The settings of one layer, or of all together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The servers.
    pub servers: Option<Vec<Address>>,
    /// File with the token.
    pub token_file: Option<PathBuf>,
    /// The tenant that it belongs to.
    pub tenant: Option<String>,
    /// Leave encryption out.
    pub no_encryption: Option<bool>,
    /// Certificates of the authority that signed the servers'.
    pub ca: Option<PathBuf>,
    /// The certificate to show.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// File with the keys of servers.
    pub known_servers: Option<PathBuf>,
    /// Options of `towline run`.
    pub run: RunSettings,
}

/// Options of `towline run` that a file may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunSettings {
    /// `--with-local`.
    pub with_local: Option<bool>,
    /// `--report`.
    pub report: Option<bool>,
    /// `--cudart`.
    pub cudart: Option<bool>,
    /// `--no-cudart-handshake`.
    pub no_cudart_handshake: Option<bool>,
    /// `--no-collectives`.
    pub no_collectives: Option<bool>,
    /// `--allow-none`.
    pub allow_none: Option<bool>,
}

impl Settings {
    /// Takes what is missing from a layer below.
    fn complete(&mut self, below: &Self) {
        self.servers = self.servers.take().or_else(|| below.servers.clone());
        let (run, other) = (&mut self.run, below.run);
        run.with_local = run.with_local.or(other.with_local);
        run.report = run.report.or(other.report);
        run.cudart = run.cudart.or(other.cudart);
        run.no_cudart_handshake = run.no_cudart_handshake.or(other.no_cudart_handshake);
        run.no_collectives = run.no_collectives.or(other.no_collectives);
        run.allow_none = run.allow_none.or(other.allow_none);
        self.known_servers = self
            .known_servers
            .take()
            .or_else(|| below.known_servers.clone());
    }

    /// The same for the secret and whose it is.
    fn complete_token(&mut self, below: &Self) {
        self.token_file = self.token_file.take().or_else(|| below.token_file.clone());
        self.tenant = self.tenant.take().or_else(|| below.tenant.clone());
    }

    /// The same for what else says how to be let in.
    fn complete_access(&mut self, below: &Self) {
        self.no_encryption = self.no_encryption.or(below.no_encryption);
        self.ca = self.ca.take().or_else(|| below.ca.clone());
        self.certificate = self
            .certificate
            .take()
            .or_else(|| below.certificate.clone());
        self.key = self.key.take().or_else(|| below.key.clone());
    }
}

/// All layers together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// The settings. Without servers none are named anywhere.
    pub settings: Settings,
    /// The profile, where one is used.
    pub profile: Option<String>,
    /// The name of the place that names the servers.
    pub origin: Option<String>,
}

impl Resolved {
    /// The servers, if any.
    pub fn servers(&self) -> &[Address] {
        self.settings.servers.as_deref().unwrap_or_default()
    }
}

/// Folders to look for files in; the user's first.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders that hold `config.toml`.
    pub folders: Vec<PathBuf>,
}

impl Places {
    /// Those of this process. A program that runs with more rights than its user reads the system's only.
    pub fn of_process(trusted: bool) -> Self {
        let personal = trusted.then(personal_folder).flatten();
        // On Windows any user could make such a folder.
        let system = cfg!(unix).then(|| PathBuf::from("/etc/towline"));
        Self {
            folders: personal.into_iter().chain(system).collect(),
        }
    }
}

/// The user's folder: `towline` below `XDG_CONFIG_HOME` or `~/.config`.
pub fn personal_folder() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let folder = variable("XDG_CONFIG_HOME").or_else(|| Some(variable(HOME)?.join(".config")));
    Some(folder?.join("towline"))
}

/// Brings options, variables and files together.
pub fn resolve(
    options: &Settings,
    profile: Option<&str>,
    variable: impl Fn(&str) -> Option<OsString>,
    places: &Places,
) -> Result<Resolved, ConfigError> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let files: Vec<File> = places
        .folders
        .iter()
        .map(|folder| File::read(folder))
        .collect::<Result<_, _>>()?;
    let chosen = match profile {
        Some(name) => Some(name.to_owned()),
        None => variable(PROFILE)
            .map(|name| name.to_string_lossy().into_owned())
            .or_else(|| files.iter().find_map(|file| file.default_profile.clone())),
    };
    let of_profile: Vec<Layer> = match &chosen {
        Some(name) => profiles(&files, name)?,
        None => Vec::new(),
    };
    let mut layers = vec![Layer::new("--server", options.clone())];
    let environment = Layer::new("TOWLINE_SERVERS", environment(&variable)?);
    match profile {
        Some(_) => layers.extend(of_profile.into_iter().chain([environment])),
        None => layers.extend([environment].into_iter().chain(of_profile)),
    }
    layers.extend(files.into_iter().map(|file| file.top));

    let mut resolved = Resolved {
        profile: chosen,
        origin: layers
            .iter()
            .find(|layer| layer.settings.servers.is_some())
            .map(|layer| layer.origin.clone()),
        ..Resolved::default()
    };
    let settings = &mut resolved.settings;
    layers
        .iter()
        .for_each(|layer| settings.complete(&layer.settings));
    let used = settings.servers.clone().unwrap_or_default();
    let named_by = |level: Level| {
        let of_level = layers.iter().filter(|layer| layer.level == level);
        let servers = of_level
            .filter_map(|layer| layer.settings.servers.as_ref())
            .next();
        servers.map(|servers| used.iter().any(|server| servers.contains(server)))
    };
    let by_top = named_by(Level::Top) == Some(true);
    // A profile without servers is one for those of the top level.
    let by_profile = named_by(Level::Profile).unwrap_or(by_top) || profile.is_some();
    for layer in &layers {
        let (token, access) = match layer.level {
            Level::Given => (true, true),
            Level::Profile => (by_profile, by_profile || by_top),
            Level::Top => (by_top, by_profile || by_top),
        };
        if token {
            settings.complete_token(&layer.settings);
        }
        if access {
            settings.complete_access(&layer.settings);
        }
    }
    match (&settings.certificate, &settings.key) {
        (Some(_), None) => return Err(ConfigError::HalfIdentity("key")),
        (None, Some(_)) => return Err(ConfigError::HalfIdentity("certificate")),
        _ => {}
    }
    settings.known_servers = settings.known_servers.take().or_else(usual_known_servers);
    Ok(resolved)
}

/// As [`resolve`], for this process without options.
pub fn of_process(trusted: bool) -> Result<Resolved, ConfigError> {
    let places = Places::of_process(trusted);
    resolve(
        &Settings::default(),
        None,
        |name| std::env::var_os(name),
        &places,
    )
}

/// The settings by variables.
fn environment(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Settings, ConfigError> {
    let file = |name| variable(name).map(PathBuf::from);
    let text = |name| variable(name).map(|value: OsString| value.to_string_lossy().into_owned());
    let servers = text("TOWLINE_SERVERS").map(|list| parse_list(&list, "TOWLINE_SERVERS"));
    let is_true = |value: String| !["0", "false", "no", "off"].contains(&value.as_str());
    Ok(Settings {
        servers: servers.transpose()?.filter(|servers| !servers.is_empty()),
        token_file: file("TOWLINE_TOKEN_FILE"),
        tenant: text("TOWLINE_TENANT"),
        no_encryption: text("TOWLINE_NO_ENCRYPTION").map(is_true),
        ca: file("TOWLINE_CA"),
        certificate: file("TOWLINE_CERTIFICATE"),
        key: file("TOWLINE_KEY"),
        known_servers: file("TOWLINE_KNOWN_SERVERS"),
        run: RunSettings::default(),
    })
}

/// Parses servers that are separated by commas or white space.
pub fn parse_list(list: &str, place: &str) -> Result<Vec<Address>, ConfigError> {
    list.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|part| !part.is_empty())
        .map(|part| address(part, place))
        .collect()
}

/// Parses one server per line; `#` starts a comment.
pub fn parse_lines(text: &str, place: &str) -> Result<Vec<Address>, ConfigError> {
    let mut servers = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            servers.push(address(line, &format!("{place}, line {}", index + 1))?);
        }
    }
    Ok(servers)
}

fn address(text: &str, place: &str) -> Result<Address, ConfigError> {
    Address::parse(text).map_err(|why| ConfigError::Address {
        place: place.to_owned(),
        why,
    })
}

/// Settings with the place that they are from.
struct Layer {
    origin: String,
    level: Level,
    settings: Settings,
}

/// Kinds of layers.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Level {
    /// Options and variables.
    Given,
    /// A profile of a file.
    Profile,
    /// The top level of a file.
    Top,
}

impl Layer {
    fn new(origin: &str, settings: Settings) -> Self {
        Self {
            origin: origin.to_owned(),
            level: Level::Given,
            settings,
        }
    }
}

/// The layers of a profile: in each file that has it.
fn profiles(files: &[File], name: &str) -> Result<Vec<Layer>, ConfigError> {
    let layers: Vec<Layer> = files
        .iter()
        .filter_map(|file| file.profile(name).transpose())
        .collect::<Result<_, _>>()?;
    if layers.is_empty() {
        let names: Vec<&str> = files.iter().flat_map(File::names).collect();
        return Err(ConfigError::NoProfile {
            name: name.to_owned(),
            known: match names.is_empty() {
                true => "no file has any: `towline login --profile NAME HOST` makes one".to_owned(),
                false => format!("there are {}", names.join(", ")),
            },
        });
    }
    Ok(layers)
}

/// One `config.toml` with the list beside it.
struct File {
    path: PathBuf,
    top: Layer,
    profiles: Table,
    default_profile: Option<String>,
}

impl File {
    /// A file that is not there says nothing.
    fn read(folder: &Path) -> Result<Self, ConfigError> {
        let path = folder.join(FILE);
        let file = path.display().to_string();
        let mut top = match read(&path)? {
            Some(text) => text
                .parse::<Table>()
                .map_err(|error| ConfigError::Unreadable {
                    file: file.clone(),
                    why: error.to_string().trim_end().to_owned(),
                })?,
            None => Table::new(),
        };
        let profiles = match top.remove(PROFILES) {
            None => Table::new(),
            Some(Value::Table(profiles)) => profiles,
            Some(_) => return Err(no_profile_table(file, PROFILES.to_owned())),
        };
        let default_profile = top
            .remove(DEFAULT_PROFILE)
            .map(|name| text(&file, DEFAULT_PROFILE, name))
            .transpose()?;
        let mut settings = settings(&path, "", top)?;
        let mut origin = file;
        if settings.servers.is_none() {
            let list = folder.join(LIST);
            let place = list.display().to_string();
            let lines = read(&list)?.map(|text| parse_lines(&text, &place));
            settings.servers = lines.transpose()?.filter(|servers| !servers.is_empty());
            origin = place;
        }
        let top = Layer {
            origin,
            level: Level::Top,
            settings,
        };
        Ok(Self {
            path,
            top,
            profiles,
            default_profile,
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    fn profile(&self, name: &str) -> Result<Option<Layer>, ConfigError> {
        let key = format!("{PROFILES}.{name}");
        let table = match self.profiles.get(name) {
            None => return Ok(None),
            Some(Value::Table(table)) => table.clone(),
            Some(_) => return Err(no_profile_table(self.path.display().to_string(), key)),
        };
        let settings = settings(&self.path, &key, table)?;
        Ok(Some(Layer {
            origin: format!("{}, profile {name}", self.path.display()),
            level: Level::Profile,
            settings,
        }))
    }
}

fn no_profile_table(file: String, key: String) -> ConfigError {
    ConfigError::Kind {
        file,
        key,
        wanted: "a table, as in [profile.lab]",
    }
}

/// The text of a file that may be missing, or lie where this user cannot look.
fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if [NotFound, NotADirectory, PermissionDenied].contains(&error.kind()) => {
            Ok(None)
        }
        Err(error) => Err(ConfigError::Unreadable {
            file: path.display().to_string(),
            why: error.to_string(),
        }),
    }
}

/// The settings of a table; keys are the long options.
fn settings(path: &Path, below: &str, table: Table) -> Result<Settings, ConfigError> {
    const KEYS: &str = "servers, token-file, tenant, no-encryption, ca, certificate, key, known-servers, with-local, report, cudart, \
                        no-cudart-handshake, no-collectives, allow-none; at the top also default-profile and [profile.NAME]";
    let file = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut settings = Settings::default();
    for (name, value) in table {
        let key = match below {
            "" => name.clone(),
            below => format!("{below}.{name}"),
        };
        let is = |value| truth(&file, &key, value).map(Some);
        let path = |value| Ok(Some(placed(folder, &text(&file, &key, value)?)));
        match name.as_str() {
            "servers" => settings.servers = Some(servers(&file, &key, value)?),
            "token-file" => settings.token_file = path(value)?,
            "tenant" => settings.tenant = Some(text(&file, &key, value)?),
            "no-encryption" => settings.no_encryption = is(value)?,
            "ca" => settings.ca = path(value)?,
            "certificate" => settings.certificate = path(value)?,
            "key" => settings.key = path(value)?,
            "known-servers" => settings.known_servers = path(value)?,
            "with-local" => settings.run.with_local = is(value)?,
            "report" => settings.run.report = is(value)?,
            "cudart" => settings.run.cudart = is(value)?,
            "no-cudart-handshake" => settings.run.no_cudart_handshake = is(value)?,
            "no-collectives" => settings.run.no_collectives = is(value)?,
            "allow-none" => settings.run.allow_none = is(value)?,
            _ => {
                let known = KEYS.to_owned();
                return Err(ConfigError::UnknownKey { file, key, known });
            }
        }
    }
    Ok(settings)
}

fn servers(file: &str, key: &str, value: Value) -> Result<Vec<Address>, ConfigError> {
    let place = format!("{file}: `{key}`");
    let wrong = || ConfigError::Kind {
        file: file.to_owned(),
        key: key.to_owned(),
        wanted: "a server or a list of them, as in [\"gpu1\", \"gpu2:7141\"]",
    };
    match value {
        Value::String(list) => parse_list(&list, &place),
        Value::Array(values) => values
            .iter()
            .map(|value| address(value.as_str().ok_or_else(wrong)?, &place))
            .collect(),
        _ => Err(wrong()),
    }
}

fn text(file: &str, key: &str, value: Value) -> Result<String, ConfigError> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(ConfigError::Kind {
            file: file.to_owned(),
            key: key.to_owned(),
            wanted: "a string",
        }),
    }
}

fn truth(file: &str, key: &str, value: Value) -> Result<bool, ConfigError> {
    value.as_bool().ok_or_else(|| ConfigError::Kind {
        file: file.to_owned(),
        key: key.to_owned(),
        wanted: "true or false",
    })
}

/// A path of a file, from the file's folder or, behind `~/`, from the user's.
fn placed(folder: &Path, text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), std::env::var_os(HOME)) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => folder.join(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a user and of a system.
    struct Files {
        folder: tempfile::TempDir,
    }

    impl Files {
        fn new(user: &str, system: &str) -> Self {
            let files = Self {
                folder: tempfile::tempdir().unwrap(),
            };
            files.write("user/config.toml", user);
            files.write("system/config.toml", system);
            files
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn resolve(
            &self,
            server: &str,
            profile: Option<&str>,
            variables: &[(&str, &str)],
        ) -> Result<Resolved, ConfigError> {
            let options = Settings {
                servers: Some(parse_list(server, "--server")?).filter(|list| !list.is_empty()),
                ..Settings::default()
            };
            let variable = |name: &str| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let folders = ["user", "system"].map(|name| self.folder.path().join(name));
            let places = Places {
                folders: folders.into(),
            };
            resolve(&options, profile, variable, &places)
        }

        fn path(&self, name: &str) -> Option<PathBuf> {
            Some(self.folder.path().join(name))
        }
    }

    fn texts(resolved: &Resolved) -> Vec<String> {
        resolved.servers().iter().map(Address::to_string).collect()
    }

    const LAB: &str = "servers = [\"top\"]\ntoken-file = \"token\"\nca = \"ca.pem\"\n[profile.lab]\nservers = \"lab1,lab2:1\"\ntenant = \"anna\"\n";

    #[test]
    fn nothing_named_is_no_error() {
        let files = Files::new("", "");
        let resolved = files.resolve("", None, &[]).unwrap();
        assert_eq!(resolved.servers(), []);
        assert_eq!(resolved.origin, None);
    }

    #[test]
    fn options_precede_variables_precede_profile_precedes_top() {
        let files = Files::new(LAB, "");
        let servers =
            |server, variables: &[_]| texts(&files.resolve(server, None, variables).unwrap());
        let (list, lab) = (("TOWLINE_SERVERS", "v"), (PROFILE, "lab"));
        assert_eq!(servers("o", &[list, lab]), ["tcp://o:7140"]);
        assert_eq!(servers("", &[list, lab]), ["tcp://v:7140"]);
        assert_eq!(servers("", &[lab]), ["tcp://lab1:7140", "tcp://lab2:1"]);
        assert_eq!(servers("", &[]), ["tcp://top:7140"]);
    }

    #[test]
    fn profile_of_the_command_line_precedes_variables() {
        let files = Files::new(LAB, "");
        let variables = [("TOWLINE_SERVERS", "v"), ("TOWLINE_TENANT", "ben")];
        let resolved = files.resolve("", Some("lab"), &variables).unwrap();
        assert_eq!(texts(&resolved), ["tcp://lab1:7140", "tcp://lab2:1"]);
        assert_eq!(resolved.settings.tenant.as_deref(), Some("anna"));
        // The token of the top level is for its own servers; all else that the profile lacks is the top level's.
        assert_eq!(resolved.settings.token_file, None);
        assert_eq!(resolved.settings.ca, files.path("user/ca.pem"));
        assert!(
            resolved
                .origin
                .unwrap()
                .ends_with("config.toml, profile lab")
        );
    }

    #[test]
    fn users_file_precedes_the_systems_key_by_key() {
        let system = "servers = \"site\"\nca = \"ca.pem\"\ndefault-profile = \"p\"\n[profile.p]\ntenant = \"t\"\n";
        let files = Files::new("servers = \"mine\"\n", system);
        let resolved = files.resolve("", None, &[]).unwrap();
        assert_eq!(texts(&resolved), ["tcp://mine:7140"]);
        assert_eq!(resolved.settings.ca, files.path("system/ca.pem"));
        assert_eq!(resolved.settings.tenant.as_deref(), Some("t"));
    }

    #[test]
    fn list_beside_a_file_stands_for_its_servers() {
        let files = Files::new("tenant = \"t\"\n", "servers = \"site\"\n");
        files.write("user/servers", "# ours\ngpu1 # spare\n\ngpu2:1\n");
        files.write("system/servers", "not-read\n");
        let resolved = files.resolve("", None, &[]).unwrap();
        assert_eq!(texts(&resolved), ["tcp://gpu1:7140", "tcp://gpu2:1"]);
        files.write("user/servers", "# none\n");
        let resolved = files.resolve("", None, &[]).unwrap();
        assert_eq!(texts(&resolved), ["tcp://site:7140"]);
    }

    #[test]
    fn token_goes_to_servers_of_the_files_only() {
        let files = Files::new(LAB, "");
        let token = |server| {
            files
                .resolve(server, None, &[])
                .unwrap()
                .settings
                .token_file
        };
        assert_eq!(token("top"), files.path("user/token"));
        assert_eq!(token("127.0.0.1"), None);
        let named = files.resolve("127.0.0.1", None, &[("TOWLINE_TOKEN_FILE", "/t")]);
        assert_eq!(named.unwrap().settings.token_file, Some("/t".into()));
        let asked = files.resolve("127.0.0.1", Some("lab"), &[]).unwrap();
        assert_eq!(asked.settings.tenant.as_deref(), Some("anna"));
        let unasked = files
            .resolve("127.0.0.1", None, &[(PROFILE, "lab")])
            .unwrap();
        assert_eq!(unasked.settings.tenant, None);
    }

    #[test]
    fn profile_without_servers_is_for_those_of_the_top() {
        let files = Files::new(
            "servers = \"top\"\n[profile.me]\ntoken-file = \"mine\"\n",
            "",
        );
        let resolved = files.resolve("", None, &[(PROFILE, "me")]).unwrap();
        assert_eq!(resolved.settings.token_file, files.path("user/mine"));
    }

    #[test]
    fn errors_name_file_and_key() {
        for (text, parts) in [
            ("sever = 1\n", ["user/config.toml", "unknown key `sever`"]),
            (
                "[profile.x]\nservers = []\n[profile.lab]\nsever = 1\n",
                ["user/config.toml", "`profile.lab.sever`"],
            ),
            (
                "servers = 1\n",
                ["user/config.toml", "`servers` is a server or a list"],
            ),
            (
                "servers = [\"a:b\"]\n",
                ["user/config.toml: `servers`", "`b` is no port"],
            ),
            ("tenant = 1\n", ["user/config.toml", "`tenant` is a string"]),
            (
                "report = 1\n",
                ["user/config.toml", "`report` is true or false"],
            ),
            ("profile = 1\n", ["user/config.toml", "[profile.lab]"]),
            ("profile.lab = 1\n", ["`profile.lab`", "[profile.lab]"]),
            ("servers\n", ["user/config.toml", "line 1"]),
            (
                "key = \"k\"\nservers = \"x\"\n",
                ["certificate", "is missing"],
            ),
            ("[profile.home]\n", ["no profile `lab`", "there are home"]),
        ] {
            let profile = text.contains("profile.").then_some("lab");
            let error = Files::new(text, "").resolve("", profile, &[]);
            let error = error.unwrap_err().to_string();
            assert!(
                parts.iter().all(|part| error.contains(part)),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn wrong_line_is_named() {
        let error = parse_lines("gpu1:7000\ngpu2:x\n", "file").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("file, line 2: `gpu2:x` is not an address"),
            "{error}"
        );
    }

    #[test]
    fn list_is_separated_by_commas() {
        let list = parse_list("gpu1:7000, gpu2:7001,", "here").unwrap();
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn variable_that_denies_is_false() {
        let files = Files::new("", "");
        let clear = |value| {
            let resolved = files.resolve("", None, &[("TOWLINE_NO_ENCRYPTION", value)]);
            resolved.unwrap().settings.no_encryption
        };
        assert_eq!(
            [clear("1"), clear("0"), clear("")],
            [Some(true), Some(false), None]
        );
    }
}
