//! The `towline` program. Each subcommand is a module; [`cli`] declares them all, and help, manual pages and completions
//! derive from it.
//!
//! Exit status: 2 for wrong usage, 125 when towline itself fails; `towline run` and `towline trace` otherwise give the
//! program's own, or 126 and 127 when it cannot be run or found, as `env` and `nohup` do.

#![forbid(unsafe_code)]

/// Prints a line to the standard output. Who reads it may leave (`| head`) without ending what is under way.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say(format_args!($($text)*))
    };
}

mod ask;
mod bypass;
mod checkpoint;
mod cli;
mod config;
mod devices;
mod doctor;
mod documents;
mod kill;
mod lease;
mod login;
mod migrate;
mod node;
mod notify;
mod nvcc;
mod probe;
mod run;
mod serve;
mod servers;
mod slurm;
mod status;
mod table;
mod tenants;
mod top;
mod trace;
mod vm;
mod worker;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::Command;

/// Exit status when towline itself fails.
const FAILURE: u8 = 125;

/// A line was lost that somebody may wait for: the command goes on, and fails at its end.
static IS_OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

fn say(line: std::fmt::Arguments<'_>) {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            // Not the line: it may name a secret.
            log::error!("the standard output takes nothing: {error}");
            IS_OUTPUT_LOST.store(true, Ordering::Relaxed);
        }
        _ => {}
    }
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = config::parse(&arguments).unwrap_or_else(|error| error.exit());
    let env = env_logger::Env::new().filter_or("TOWLINE_LOG", cli.command.default_log_level());
    let filter = std::env::var("TOWLINE_LOG").unwrap_or_default();
    // Processes that towline starts leave it to their parent.
    let is_own = matches!(cli.command, Command::Watch(_) | Command::Worker(_));
    if let Some(word) = no_level(&filter).filter(|_| !is_own) {
        eprintln!(
            "towline: TOWLINE_LOG: `{word}` is no level, and hides all else; levels are off, error, warn, info, debug and trace"
        );
    }
    env_logger::Builder::new()
        // Of code that it makes it tells every instruction.
        .filter_module("cranelift", log::LevelFilter::Warn)
        .parse_env(env)
        .format_target(false)
        .init();
    let result = match cli.command {
        Command::Bench(options) => towline_bench::run(options),
        Command::Calibrate(options) => {
            towline_place::command::calibrate::run(&options).map_err(anyhow::Error::from)
        }
        Command::Checkpoint(options) => checkpoint::checkpoint(&options),
        Command::Completions(options) => documents::completions(options.shell),
        Command::Devices(options) => devices::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Drain(options) => migrate::drain(&options),
        Command::Kill(options) => kill::run(&options),
        Command::Lease(options) => lease::run(&options),
        Command::Login(options) => login::login(&options),
        Command::Logout(options) => login::logout(&options),
        Command::Man(options) => documents::manual(&options.folder),
        Command::Migrate(options) => migrate::migrate(&options),
        Command::Node(options) => node::run(options),
        Command::Nvcc(options) => nvcc::run(&options),
        Command::Place(options) => {
            towline_place::command::place::run(&options).map_err(anyhow::Error::from)
        }
        Command::Run(options) => match &options.restore {
            Some(folder) => checkpoint::restore(folder, &options),
            None => run::run(&options),
        },
        Command::Serve(options) => serve::run(options, &arguments),
        Command::Servers(options) => servers::run(&options),
        Command::Simulate(options) => {
            towline_place::command::simulate::run(&options).map_err(anyhow::Error::from)
        }
        Command::Slurm(options) => slurm::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Tenant(options) => tenants::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Vm(options) => vm::run(options),
        Command::Watch(options) => bypass::run(&options),
        Command::Worker(options) => worker::run(options),
    };
    match result {
        Ok(_) if IS_OUTPUT_LOST.load(Ordering::Relaxed) => ExitCode::from(FAILURE),
        Ok(code) => code,
        // The reader of a pipe has gone: it has what it wanted.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("towline: {error:#}");
            ExitCode::from(FAILURE)
        }
    }
}

/// A word of a filter that is meant as a level and is none: env_logger would take it for the name of a module.
fn no_level(filter: &str) -> Option<&str> {
    let words = filter.split('/').next()?.split(',').map(str::trim);
    let mut words = words.filter(|word| !word.is_empty() && !word.contains(['=', ':', '_']));
    words.find(|word| word.parse::<log::LevelFilter>().is_err() && *word != "device")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_level_is_found() {
        for filter in [
            "",
            "info",
            "WARN",
            "warn,device=off",
            "towline_cli=debug,off",
            "info/text",
        ] {
            assert_eq!(no_level(filter), None, "{filter}");
        }
        assert_eq!(no_level("verbose"), Some("verbose"));
        assert_eq!(no_level("info, bogus"), Some("bogus"));
    }
}
