//! `towline bench` as a program of its own, for work on the measurements: `cargo run -p towline-bench --example bench -- bench net`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure networks and OpenCL
    Bench(towline_bench::Options),
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::new().filter_or("TOWLINE_LOG", "warn")).init();
    let Command::Bench(options) = Cli::parse().command;
    match towline_bench::run(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(125)
        }
    }
}
