//! `towline serve --config FILE`: a TOML file whose keys are the long options.
//!
//! Its entries become arguments, so that what an option takes, and what it says when it is wrong, is the same in both places. Options
//! on the command line and variables of the environment come before the file.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches};
use toml::Value;
use towline_transport::Address;

use crate::cli::{Cli, Command, ServeOptions};

/// The subcommand that has a file.
const SERVE: &str = "serve";
/// The option that names it.
const CONFIG: &str = "config";

/// The options of a file that a running server takes over when it reads the file again.
const LIVE: [&str; 10] = [
    "drain-time",
    "kernel-time-limit",
    "max-sessions",
    "session-code",
    "session-cpus",
    "session-descriptors",
    "session-host-memory",
    "session-memory",
    "session-processes",
    "token-file",
];

/// The command line of this process, with the options of a file that the arguments name.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut all = arguments.to_vec();
    if arguments.get(1).is_some_and(|command| command == SERVE) {
        // Options may lack what is in the file.
        let given = Cli::command().ignore_errors(true);
        let given = given.try_get_matches_from(arguments)?;
        let given = given.subcommand_matches(SERVE);
        if let Some((given, file)) = given.and_then(|given| Some((given, file_of(given)?))) {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| wrong(file, &error.to_string()))?;
            let more = arguments_of(&text, given).map_err(|why| wrong(file, &why))?;
            all.splice(2..2, more);
        }
    }
    let mut command = Cli::command();
    let matches = match command.try_get_matches_from_mut(all) {
        Ok(matches) => matches,
        Err(error) => {
            return Err(from_file(&error, arguments).unwrap_or(with_advice(error, arguments)));
        }
    };
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// An error of the whole, where the arguments alone would have none: it names the file, as a service has no command line to look at.
fn from_file(error: &clap::Error, arguments: &[OsString]) -> Option<clap::Error> {
    let alone = Cli::command().try_get_matches_from(arguments);
    if alone.is_err_and(|alone| alone.to_string() == error.to_string()) {
        return None;
    }
    let given = Cli::command().ignore_errors(true);
    let given = given.try_get_matches_from(arguments).ok()?;
    let file = file_of(given.subcommand_matches(SERVE)?)?;
    let text = error.to_string();
    // Usage and advice, which clap adds, are for a terminal.
    let lines = text.lines().take_while(|line| !line.is_empty());
    let why = lines.collect::<Vec<_>>().join("\n");
    Some(wrong(file, why.trim_start_matches("error: ")))
}

/// An unknown option before a program is mistyped: the usual advice, to have it taken for the program, is wrong.
fn with_advice(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let words: Vec<_> = arguments.iter().skip(1).take(2).collect();
    let starts_program = words
        .first()
        .is_some_and(|word| *word == "run" || *word == "trace")
        || words == ["slurm", "run"];
    if starts_program && error.kind() == ErrorKind::UnknownArgument {
        let advice = "options of towline come first, then `--`, then the program with its own";
        let advice = ContextValue::StyledStrs(vec![advice.into()]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

/// The options of `towline serve` as they are now in its file.
pub(crate) fn serve_options(arguments: &[OsString]) -> anyhow::Result<ServeOptions> {
    // Usage and advice, which clap adds, are for a terminal.
    let cli = parse(arguments).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().to_owned();
        anyhow::anyhow!(line.trim_start_matches("error: ").to_owned())
    })?;
    match cli.command {
        Command::Serve(options) => Ok(options),
        _ => bail!("this process does not serve"),
    }
}

/// The entries of a file.
pub(crate) fn entries(file: &Path) -> anyhow::Result<toml::Table> {
    let action = || format!("could not read {}", file.display());
    let text = std::fs::read_to_string(file).with_context(action)?;
    text.parse().with_context(action)
}

/// The keys that differ, of those that a running server does not take over.
pub(crate) fn changed_for_restart(before: &toml::Table, after: &toml::Table) -> Vec<String> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    keys.into_iter()
        .filter(|key| !LIVE.contains(&key.as_str()) && before.get(*key) != after.get(*key))
        .cloned()
        .collect()
}

fn file_of(given: &ArgMatches) -> Option<&Path> {
    let file: Option<&PathBuf> = given.get_one(CONFIG);
    file.map(PathBuf::as_path)
}

fn wrong(file: &Path, why: &str) -> clap::Error {
    let text = format!("{}: {}\n", file.display(), why.trim_end());
    clap::Error::raw(ErrorKind::InvalidValue, text)
}

/// The entries of a file as arguments, without those that `given` has from elsewhere.
fn arguments_of(text: &str, given: &ArgMatches) -> Result<Vec<OsString>, String> {
    let entries: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.to_string())?;
    let command = Cli::command();
    let serve = command.find_subcommand(SERVE).expect("it is a subcommand");
    let mut arguments = Vec::new();
    for (key, value) in entries {
        let named = |argument: &&clap::Arg| argument.get_long() == Some(&key);
        let argument = serve.get_arguments().find(named);
        let Some(argument) = argument.filter(|_| key != CONFIG && key != "help") else {
            return Err(format!(
                "`{key}` is no option; keys are the long options of `towline serve`, without the --"
            ));
        };
        let source = given.value_source(argument.get_id().as_str());
        if source.is_some_and(|source| source != ValueSource::DefaultValue) {
            continue;
        }
        match (&value, argument.get_action()) {
            (Value::Boolean(true), ArgAction::SetTrue) => arguments.push(format!("--{key}").into()),
            (Value::Boolean(false), ArgAction::SetTrue) => {}
            // As without a value on the command line.
            (Value::Boolean(true), _) if may_lack_value(argument) => {
                arguments.push(format!("--{key}").into());
            }
            (Value::Boolean(false), _) if may_lack_value(argument) => {}
            (_, ArgAction::SetTrue) => return Err(format!("`{key}` is true or false")),
            (Value::Array(values), ArgAction::Append) => {
                for value in values {
                    arguments.push(option(&key, value, argument)?);
                }
            }
            (value, _) => arguments.push(option(&key, value, argument)?),
        }
    }
    Ok(arguments)
}

fn may_lack_value(argument: &clap::Arg) -> bool {
    argument
        .get_num_args()
        .is_some_and(|count| count.min_values() == 0 && count.max_values() > 0)
}

fn option(key: &str, value: &Value, argument: &clap::Arg) -> Result<OsString, String> {
    let kind = argument.get_value_parser().type_id();
    let takes_text = kind == TypeId::of::<Address>() || kind == TypeId::of::<PathBuf>();
    let text = match value {
        Value::String(text) => text.clone(),
        // `listen = 5` would be a host of that name.
        _ if takes_text => return Err(format!("`{key}` is a string")),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => return Err(format!("`{key}` is a string or a number")),
    };
    Ok(
        [OsStr::new("--"), key.as_ref(), "=".as_ref(), text.as_ref()]
            .into_iter()
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::CollectivesReach;

    /// Has a file of that text, and more arguments, read by a function.
    fn with<T>(file: &str, more: &[&str], read: impl Fn(&[OsString]) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.toml");
        std::fs::write(&path, file).unwrap();
        let mut arguments: Vec<OsString> = ["towline", "serve", "--config"].map(Into::into).into();
        arguments.push(path.into());
        arguments.extend(more.iter().map(Into::into));
        read(&arguments)
    }

    fn served(file: &str, more: &[&str]) -> Result<ServeOptions, String> {
        with(file, more, |arguments| {
            serve_options(arguments).map_err(|error| error.to_string())
        })
    }

    fn parse_with(file: &str, more: &[&str]) -> Result<Cli, clap::Error> {
        with(file, more, parse)
    }

    #[test]
    fn keys_are_long_options() {
        let text = "listen = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nmax-sessions = 3\ninsecure = true\nno-jail = false\ncuda = \"soft\"\n";
        let options = served(text, &[]).unwrap();
        assert_eq!(options.listen.len(), 2);
        assert_eq!((options.max_sessions, options.cuda.as_str()), (3, "soft"));
        assert!(options.insecure && !options.no_jail);
    }

    #[test]
    fn option_without_value_is_true_in_the_file() {
        let collectives = |text: &str| served(text, &[]).unwrap().collectives;
        assert_eq!(collectives(""), None);
        assert_eq!(collectives("collectives = false\n"), None);
        let local = Some(CollectivesReach::Local);
        assert_eq!(collectives("collectives = true\n"), local);
        let network = "collectives = \"network\"\nnccl = \"/opt/libnccl.so.2\"\n";
        assert_eq!(collectives(network), Some(CollectivesReach::Network));
        let given = served("", &["--collectives", "--max-sessions", "2"]).unwrap();
        assert_eq!(given.collectives, local);
    }

    #[test]
    fn command_line_comes_before_the_file() {
        let options = served(
            "max-sessions = 3\ndrain-time = 5\nlisten = \"127.0.0.1:1\"\n",
            &["--max-sessions", "4", "--listen", "127.0.0.1:2"],
        );
        let options = options.unwrap();
        assert_eq!(options.max_sessions, 4);
        assert_eq!(options.drain_time(), Duration::from_secs(5));
        assert_eq!(options.listen.len(), 1);
    }

    #[test]
    fn option_may_need_one_of_the_file() {
        let options = served(
            "image-cache = \"/var/cache/towline\"\n",
            &["--image-cache-size", "1G"],
        );
        assert_eq!(options.unwrap().image_cache_size, 1 << 30);
    }

    #[test]
    fn errors_name_file_and_key() {
        for (text, part) in [
            ("max-sesions = 3\n", "`max-sesions` is no option"),
            ("config = \"x\"\n", "`config` is no option"),
            ("insecure = 1\n", "`insecure` is true or false"),
            ("cuda = { x = 1 }\n", "`cuda` is a string or a number"),
            ("max-sessions = 0\n", "--max-sessions"),
            ("max-sessions\n", "server.toml"),
            ("max-sessions = \"many\"\n", "'many'"),
            ("backend = \"cpu\"\n", "possible values: opencl"),
            ("listen = 5\n", "`listen` is a string"),
            ("token-file = 5\n", "`token-file` is a string"),
        ] {
            let error = parse_with(text, &[]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}: {error}");
            let error = error.to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains("server.toml: "), "{text}: {error}");
            let is_bare = !error.contains("Usage") && !error.contains("\n\n");
            assert!(is_bare, "{text}: {error}");
        }
        assert!(served("device = [0, \"gpu\"]\n", &[]).is_ok());
        let option = parse_with("", &["--max-sessions", "many"]).unwrap_err();
        assert!(!option.to_string().contains("server.toml"), "{option}");
        let help = parse_with("", &["--help"]).unwrap_err();
        assert_eq!(help.kind(), ErrorKind::DisplayHelp);
    }

    #[test]
    fn keys_that_need_a_restart_are_told() {
        let table = |text: &str| text.parse::<toml::Table>().unwrap();
        let before = table("listen = \"a:1\"\nmax-sessions = 1\ncuda = \"soft\"\n");
        let after = table("listen = \"a:2\"\nmax-sessions = 2\nnvml = \"off\"\ncuda = \"soft\"\n");
        assert_eq!(changed_for_restart(&before, &after), ["listen", "nvml"]);
    }

    #[test]
    fn live_keys_are_options() {
        let text = LIVE.map(|key| format!("{key} = \"1\"\n")).concat();
        let given = Cli::command()
            .try_get_matches_from(["towline", "serve"])
            .unwrap();
        let given = given.subcommand_matches(SERVE).unwrap();
        assert_eq!(arguments_of(&text, given).unwrap().len(), LIVE.len());
    }

    #[test]
    fn mistyped_option_is_not_the_program() {
        let parsed = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            parse(&words)
        };
        for start in ["run --server a", "trace", "slurm run"] {
            for rest in ["--bogus -- true", "--bogus true", "-z true"] {
                let line = format!("towline {start} {rest}");
                let error = parsed(&line).unwrap_err();
                let text = error.to_string();
                assert_eq!(error.exit_code(), 2, "{line}");
                let option = rest.split(' ').next().unwrap();
                assert!(text.contains(&format!("'{option}'")), "{text}");
                assert!(text.contains("then `--`, then the program"), "{text}");
                assert!(!text.contains("as a value"), "{text}");
            }
        }
        for (line, program) in [
            ("towline run -- prog -x --server b", "prog -x --server b"),
            (
                "towline run --server a prog -x --bogus -- y",
                "prog -x --bogus -- y",
            ),
            ("towline run -- prog -- -x", "prog -- -x"),
        ] {
            let Command::Run(options) = parsed(line).unwrap().command else {
                panic!("{line}")
            };
            assert_eq!(options.program.join(OsStr::new(" ")), program, "{line}");
        }
    }

    #[test]
    fn missing_file_is_an_error() {
        let arguments = ["towline", "serve", "--config", "/nonexistent/server.toml"];
        let error = parse(&arguments.map(OsString::from)).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/server.toml"),
            "{error}"
        );
    }
}
