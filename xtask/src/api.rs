//! `cargo xtask api`: what holds the declarations in `api/` to everything that was said about them elsewhere.
//!
//! `check` compares them with the ids ever given (`api/ids.lock`), with the coverage page, with the loader's dispatch table, with the
//! symbols that the built library exports and, where one is named, with an installed C header.

mod header;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use towline_api::{Api, emit};

use crate::workspace::Workspace;

/// The API's folder below `api/`, and its name in titles.
const OPENCL: (&str, &str) = ("opencl", "OpenCL");
const LIBRARY: &str = "libtowline_opencl.so";

/// What loaders look for by `dlsym`. They find everything else through these; one symbol more could take the place of a loader's or an
/// application's own function.
const EXPORTS: &[&str] = &[
    "clGetExtensionFunctionAddress",
    "clGetPlatformInfo",
    "clIcdGetPlatformIDsKHR",
];

#[derive(Subcommand)]
pub(crate) enum ApiChore {
    /// Compare the declarations with ids, coverage page, dispatch table, exported symbols and C headers
    Check {
        /// Compare signatures and constants with an installed header (may be repeated)
        #[arg(long = "header", value_name = "PATH")]
        headers: Vec<PathBuf>,
    },
    /// Write the coverage page again
    Coverage,
    /// Print everything that is generated for one call
    Show {
        /// A C function, by its name or an alias
        name: String,
    },
}

pub(crate) fn run(workspace: &Workspace, chore: &ApiChore) -> Result<ExitCode> {
    let api = towline_api::load(&towline_api::root(), OPENCL.0)?;
    match chore {
        ApiChore::Check { headers } => return check(workspace, &api, headers),
        ApiChore::Coverage => {
            let page = coverage_page(workspace);
            fs::write(&page, emit::coverage::emit(&api, OPENCL.1))
                .with_context(|| format!("cannot write {}", page.display()))?;
            println!("wrote {}", page.display());
        }
        ApiChore::Show { name } => {
            let call = api
                .call(name)
                .with_context(|| format!("no call `{name}` is declared in api/{}/", OPENCL.0))?;
            print!("{}", emit::show(&api, call));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs every comparison, so that one run tells everything that is wrong.
fn check(workspace: &Workspace, api: &Api, headers: &[PathBuf]) -> Result<ExitCode> {
    let mut all_hold = true;
    let mut report = |what: &str, outcome: Result<String>| match outcome {
        Ok(said) => println!("ok      {what}: {said}"),
        Err(error) => {
            println!("FAILED  {what}: {error:#}");
            all_hold = false;
        }
    };
    report("ids", ids(workspace, api));
    report("coverage", coverage(workspace, api));
    report("dispatch table", dispatch(api));
    report("exported symbols", exports(workspace));
    for path in headers {
        report(&path.display().to_string(), header::compare(api, path));
    }
    Ok(if all_hold {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn ids(workspace: &Workspace, api: &Api) -> Result<String> {
    let path = workspace.root().join("api/ids.lock");
    let lock =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    towline_api::check_ids(api, &lock)?;
    Ok(format!("{} calls keep theirs", api.calls.len()))
}

fn coverage_page(workspace: &Workspace) -> PathBuf {
    workspace
        .root()
        .join(format!("docs/coverage/{}.md", OPENCL.0))
}

fn coverage(workspace: &Workspace, api: &Api) -> Result<String> {
    let page = coverage_page(workspace);
    let written = fs::read_to_string(&page).unwrap_or_default();
    ensure!(
        written == emit::coverage::emit(api, OPENCL.1),
        "{} is not what the declarations say; run `cargo xtask api coverage` and commit it",
        page.display()
    );
    Ok(format!(
        "docs/coverage/{}.md is what the declarations say",
        OPENCL.0
    ))
}

fn dispatch(api: &Api) -> Result<String> {
    let undeclared: Vec<_> = api
        .dispatch_order
        .iter()
        .filter(|name| api.call(name).is_none())
        .map(String::as_str)
        .collect();
    ensure!(
        undeclared.is_empty(),
        "declare these, as `unsupported` if need be: {}",
        undeclared.join(", ")
    );
    Ok(format!(
        "all {} entries are declared",
        api.dispatch_order.len()
    ))
}

fn exports(workspace: &Workspace) -> Result<String> {
    let library = workspace
        .metadata()?
        .target_directory
        .join("release")
        .join(LIBRARY);
    ensure!(
        library.is_file(),
        "{} is missing; run `cargo build --release -p towline-opencl` first",
        library.display()
    );
    let found = exported_symbols(&library)?;
    for name in &found {
        ensure!(
            EXPORTS.contains(&name.as_str()),
            "{LIBRARY} exports {name}, which loaders must find by address only; drop its #[no_mangle]"
        );
    }
    for name in EXPORTS {
        ensure!(
            found.iter().any(|found| found == name),
            "{LIBRARY} does not export {name}, so that no loader takes it for an OpenCL library"
        );
    }
    Ok(format!("{LIBRARY} exports {}", EXPORTS.join(", ")))
}

/// The dynamic symbols that a shared library defines, as binutils' `nm` lists them: address, type, name.
fn exported_symbols(library: &Path) -> Result<Vec<String>> {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only"])
        .arg(library)
        .output()
        .context("cannot run nm, of binutils")?;
    if !output.status.success() {
        bail!("nm failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opencl() -> Api {
        towline_api::load(&towline_api::root(), OPENCL.0).unwrap()
    }

    #[test]
    fn an_entry_of_the_dispatch_table_without_a_declaration_is_named() {
        let mut api = opencl();
        assert!(dispatch(&api).is_ok());
        api.dispatch_order.push("clNobodyDeclaredThis".to_owned());
        let error = dispatch(&api).unwrap_err().to_string();
        assert!(error.contains("clNobodyDeclaredThis"), "{error}");
    }

    #[test]
    fn everything_that_is_generated_for_a_call_names_it() {
        let api = opencl();
        let shown = emit::show(&api, api.call("clEnqueueFillBuffer").unwrap());
        for part in [
            "stub", "contract", "session", "vendors", "messages", "worker",
        ] {
            assert!(shown.contains(part), "no {part} in\n{shown}");
        }
    }

    #[test]
    fn symbols_of_a_library_are_listed_without_their_versions() {
        let libc = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/aarch64-linux-gnu/libc.so.6",
            "/lib64/libc.so.6",
        ]
        .iter()
        .map(Path::new)
        .find(|path| path.is_file())
        .expect("this system's libc lies in one of the usual places");
        let symbols = exported_symbols(libc).unwrap();
        assert!(symbols.iter().any(|name| name == "memcpy"));
    }
}
