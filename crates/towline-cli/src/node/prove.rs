//! `towline node prove`: what virtual machines cost, by the same benchmarks on both sides in turns.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use towline_node::prove::report::report;
use towline_node::prove::run::{load, prove};
use towline_node::prove::spec::Spec;
use towline_node::prove::{Shell, cause, plot};
use towline_progress::Progress;

use super::{ProveOptions, print_json, tell};

pub(super) fn run(options: &ProveOptions) -> anyhow::Result<ExitCode> {
    let action = || format!("could not use {}", options.spec.display());
    let text = fs::read_to_string(&options.spec).with_context(action)?;
    let spec = Spec::parse(&text).with_context(action)?;
    let mut shell = Shell;
    let progress = Progress::new(!options.json);
    progress.tell("running benchmarks");
    let results = match options.report {
        true => load(&options.out)?,
        false => prove(&spec, &options.out, &mut shell, &mut |line| {
            progress.aside(|| tell(options.json, line))
        })
        .context("stopped; the same command goes on from here")?,
    };
    let report = report(&spec, &results, || {
        progress.tell("looking for causes");
        cause::look(&spec, &results.stage.vm, &mut shell)
    });
    progress.clear();
    let json = serde_json::to_string_pretty(&report).context("could not write the report")?;
    write(&options.out, "report.json", &json)?;
    write(&options.out, "report.txt", &report.text())?;
    for (name, svg) in plot::plots(&report) {
        write(&options.out, &name, &svg)?;
    }
    match options.json {
        true => print_json(&report)?,
        false => say!("{}", report.text().trim_end()),
    }
    let is_short = report.cases.iter().any(|case| case.is_short(spec.goal));
    Ok(match report.is_comparable && !is_short {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
}
