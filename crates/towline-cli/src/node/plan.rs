//! `towline node plan`: what would have to be done.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use towline_node::{Host, Request, Root};

use super::PlanOptions;
use crate::FAILURE;

/// A request of more is not a request.
const MAX_REQUEST_BYTES: u64 = 1 << 20;

pub(super) fn run(options: &PlanOptions) -> anyhow::Result<ExitCode> {
    let request = request(&options.request)?;
    let (host, _) = host(options.host.as_deref(), &options.root.root)?;
    let plan = towline_node::plan(&host, &request);
    let text = if options.json {
        serde_json::to_string_pretty(&plan)? + "\n"
    } else if options.diff {
        plan.difference()
    } else {
        plan.text()
    };
    // Names of processes and interfaces come from others.
    let text = text.replace(|c: char| c.is_control() && c != '\n', "?");
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(match plan.obstacles.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILURE),
    })
}

pub(crate) fn request(path: &Path) -> anyhow::Result<Request> {
    let size = fs::metadata(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .len();
    anyhow::ensure!(
        size <= MAX_REQUEST_BYTES,
        "{} is too large for a request",
        path.display()
    );
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Request::parse(&text).with_context(|| path.display().to_string())
}

/// The host of a file, or the one below `root` with where to look at it.
pub(crate) fn host(facts: Option<&Path>, root: &Path) -> anyhow::Result<(Host, Option<Root>)> {
    let Some(path) = facts else {
        let root = Root::new(root);
        return Ok((towline_node::inspect(&root), Some(root)));
    };
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let host = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not what `towline node inspect --json` writes",
            path.display()
        )
    })?;
    Ok((host, None))
}
