//! `cargo xtask api`: what holds the declarations in `api/` to everything that was said about them elsewhere.
//!
//! `check` compares them with the ids ever given (`api/ids.lock`), with the coverage pages, with the loader's dispatch table, with the
//! symbols that the built library exports and, where one is named, with an installed C header.

mod cost;
mod driver_header;
mod header;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use towline_api::runtime::{self, MAJORS, Runtime};
use towline_api::{Api, emit};

use crate::workspace::Workspace;

/// The folders below `api/`, with the names that titles have.
const APIS: [(&str, &str); 3] = [("opencl", "OpenCL"), ("cuda", "CUDA"), ("nvml", "NVML")];
/// The runtime, which sends nothing: its folder below `api/`, and the name that titles have.
const RUNTIME: (&str, &str) = ("cudart", "CUDA runtime");
/// NCCL, which is answered by the CUDA library.
const NCCL: (&str, &str) = ("nccl", "NCCL");
const LIBRARY: &str = "libtowline_opencl.so";

/// What NVML's library exports beside the declared calls: functions that return no status or are not documented.
const NVML_FURTHER: [&str; 2] = ["nvmlErrorString", "nvmlInternalGetExportTable"];
/// Tells a library that is found by its symbols from a vendor's.
const OWN_LIBRARY: &str = "towline_library";

/// What loaders look for by `dlsym`. They find everything else through these; one symbol more could take the place of a loader's or an
/// application's own function.
const EXPORTS: &[&str] = &[
    "clGetExtensionFunctionAddress",
    "clGetPlatformInfo",
    "clIcdGetPlatformIDsKHR",
];

#[derive(Subcommand)]
pub(crate) enum ApiChore {
    /// Compare the declarations with ids, coverage pages, dispatch table, exported symbols and C headers
    Check {
        /// Compare signatures and constants with an installed header (may be repeated)
        #[arg(long = "header", value_name = "PATH")]
        headers: Vec<PathBuf>,
    },
    /// Write the coverage pages again
    Coverage,
    /// Count the lines that are written by hand for one call, by file
    Cost {
        /// A C function, by its declared name
        name: String,
    },
    /// Print everything that is generated for one call
    Show {
        /// A C function, by its name or an alias
        name: String,
    },
}

/// All that is declared in `api/`.
struct Declared {
    apis: Vec<(Api, &'static str)>,
    runtime: Runtime,
    nccl: Runtime,
}

pub(crate) fn run(workspace: &Workspace, chore: &ApiChore) -> Result<ExitCode> {
    let declared = load()?;
    let Declared {
        apis,
        runtime,
        nccl,
    } = &declared;
    match chore {
        ApiChore::Check { headers } => return check(workspace, &declared, headers),
        ApiChore::Coverage => {
            for (api, title) in apis {
                let page = coverage_page(workspace, api);
                fs::write(&page, emit::coverage::emit(api, title))
                    .with_context(|| format!("cannot write {}", page.display()))?;
                println!("wrote {}", page.display());
            }
            for (name, text) in [
                (RUNTIME.0, runtime_coverage(runtime)),
                (NCCL.0, nccl_coverage(nccl)),
            ] {
                let page = page(workspace, name);
                fs::write(&page, text)
                    .with_context(|| format!("cannot write {}", page.display()))?;
                println!("wrote {}", page.display());
            }
        }
        ApiChore::Cost { name } => print!("{}", cost::print(workspace, name)?),
        ApiChore::Show { name } => {
            let call = apis
                .iter()
                .find_map(|(api, _)| Some(emit::show(api, api.call(name)?)));
            let function = |declared: &Runtime, show: fn(&runtime::Function) -> String| {
                let mut functions = declared.functions.iter();
                Some(show(functions.find(|function| function.name == *name)?))
            };
            let shown = call
                .or_else(|| function(runtime, emit::runtime::show))
                .or_else(|| function(nccl, emit::nccl::show));
            print!(
                "{}",
                shown.with_context(|| format!("no call `{name}` is declared in api/"))?
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load() -> Result<Declared> {
    let root = towline_api::root();
    let load = |(name, title)| Ok((towline_api::load(&root, name)?, title));
    Ok(Declared {
        apis: APIS.into_iter().map(load).collect::<Result<_>>()?,
        runtime: runtime::load(&root, RUNTIME.0)?,
        nccl: runtime::load(&root, NCCL.0)?,
    })
}

/// Runs every comparison, so that one run tells everything that is wrong.
fn check(workspace: &Workspace, declared: &Declared, headers: &[PathBuf]) -> Result<ExitCode> {
    let Declared {
        apis,
        runtime,
        nccl,
    } = declared;
    let mut all_hold = true;
    let mut report = |what: &str, outcome: Result<String>| match outcome {
        Ok(said) => println!("ok      {what}: {said}"),
        Err(error) => {
            println!("FAILED  {what}: {error:#}");
            all_hold = false;
        }
    };
    let jumped = jumped(apis, nccl);
    for (api, title) in apis {
        report(&format!("{title} ids"), ids(workspace, api));
        report(
            &format!("{title} coverage"),
            coverage(workspace, api, title),
        );
        if api.dialect().by_symbol {
            if api.dialect().by_version {
                report(&format!("{title} symbols"), symbols(api));
            }
            report(
                &format!("{title} exported symbols"),
                symbol_exports(workspace, api, &jumped),
            );
        } else {
            report("dispatch table", dispatch(api));
        }
    }
    let (name, title) = RUNTIME;
    report(
        &format!("{title} coverage"),
        is_fresh(workspace, name, &runtime_coverage(runtime)),
    );
    for major in MAJORS {
        report(
            &format!("{title} {major} exported symbols"),
            runtime_exports(workspace, runtime, major),
        );
    }
    report(
        &format!("{} coverage", NCCL.1),
        is_fresh(workspace, NCCL.0, &nccl_coverage(nccl)),
    );
    report(
        &format!("{} exported symbols", NCCL.1),
        nccl_exports(workspace, nccl),
    );
    report("exported symbols", exports(workspace));
    for path in headers {
        report(&path.display().to_string(), compare(apis, path));
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

/// Compares a header with the API that it is of.
fn compare(apis: &[(Api, &'static str)], path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let driver = driver_header::is_driver(&text);
    let (api, _) = apis
        .iter()
        .find(|(api, _)| api.dialect().by_version == driver)
        .context("no API is declared that the header could be of")?;
    if driver {
        driver_header::compare(api, path)
    } else {
        header::compare(api, path)
    }
}

/// A base name means one symbol in each version, and one kind of default stream.
fn symbols(api: &Api) -> Result<String> {
    let exported = api.calls.iter().filter(|call| call.exported());
    let all: Vec<_> = exported
        .flat_map(|call| emit::symbols::of(api, call))
        .collect();
    let mut known = BTreeMap::new();
    for symbol in &all {
        let key = (symbol.base.as_str(), symbol.since, symbol.per_thread);
        if let Some(other) = known.insert(key, symbol.name.as_str()) {
            bail!(
                "{other} and {} are both {} of version {}",
                symbol.name,
                symbol.base,
                symbol.since
            );
        }
    }
    Ok(format!("{} are found by name and version", all.len()))
}

fn page(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.root().join(format!("docs/coverage/{name}.md"))
}

fn coverage_page(workspace: &Workspace, api: &Api) -> PathBuf {
    page(workspace, &api.name)
}

fn runtime_coverage(runtime: &Runtime) -> String {
    emit::runtime::coverage(runtime, RUNTIME.0, RUNTIME.1)
}

fn nccl_coverage(nccl: &Runtime) -> String {
    emit::nccl::coverage(nccl, NCCL.0, NCCL.1)
}

fn coverage(workspace: &Workspace, api: &Api, title: &str) -> Result<String> {
    is_fresh(workspace, &api.name, &emit::coverage::emit(api, title))
}

fn is_fresh(workspace: &Workspace, name: &str, expected: &str) -> Result<String> {
    let page = page(workspace, name);
    let written = fs::read_to_string(&page).unwrap_or_default();
    ensure!(
        written == expected,
        "{} is not what the declarations say; run `cargo xtask api coverage` and commit it",
        page.display()
    );
    Ok(format!(
        "docs/coverage/{name}.md is what the declarations say"
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

/// Symbols that the driver library exports for the libraries that jump to it, those of NCCL and of NVML.
fn jumped(apis: &[(Api, &str)], nccl: &Runtime) -> Vec<String> {
    let nvml = apis.iter().filter(|(api, _)| api.name == "nvml");
    let nvml = nvml.flat_map(|(api, _)| emit::export::jumps(api, &NVML_FURTHER));
    let nccl = nccl.functions.iter().map(emit::nccl::exported);
    nvml.map(|(_, target)| target).chain(nccl).collect()
}

/// A library that is found by its symbols exports those of every declared call, and nothing else.
fn symbol_exports(workspace: &Workspace, api: &Api, jumped: &[String]) -> Result<String> {
    let library = built(workspace, &api.name)?;
    let exported = api.calls.iter().filter(|call| call.exported());
    let further: Vec<&str> = match api.name.as_str() {
        "nvml" => NVML_FURTHER.to_vec(),
        _ => jumped.iter().map(String::as_str).collect(),
    };
    let declared = exported
        .flat_map(|call| emit::symbols::of(api, call))
        .map(|symbol| symbol.name)
        .chain(further.into_iter().chain([OWN_LIBRARY]).map(str::to_owned));
    same_symbols(&library, exported_symbols(&library)?, declared)
}

/// NCCL's library exports every declared function in both its forms, and nothing else.
fn nccl_exports(workspace: &Workspace, nccl: &Runtime) -> Result<String> {
    let library = built(workspace, NCCL.0)?;
    let declared = emit::nccl::symbols(nccl)
        .into_iter()
        .map(|(symbol, _)| symbol)
        .chain([OWN_LIBRARY.to_owned()]);
    same_symbols(&library, exported_symbols(&library)?, declared)
}

/// The runtime's library of a major version exports what is declared for it, each symbol in the version that programs ask for.
fn runtime_exports(workspace: &Workspace, runtime: &Runtime, major: u32) -> Result<String> {
    let library = built(workspace, &format!("{}{major}", RUNTIME.0))?;
    let version = format!("libcudart.so.{major}");
    let declared = emit::runtime::symbols(runtime, major)
        .into_iter()
        .chain([OWN_LIBRARY.to_owned()])
        .map(|symbol| format!("{symbol}@@{version}"))
        // The version itself is a symbol, without one.
        .chain([version.clone()]);
    let said = same_symbols(&library, versioned_symbols(&library)?, declared)?;
    Ok(format!("{said} of version {version}"))
}

/// The library of a crate, as it was built for release.
fn built(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let library = workspace
        .metadata()?
        .target_directory
        .join("release")
        .join(format!("libtowline_{name}.so"));
    ensure!(
        library.is_file(),
        "{} is missing; run `cargo build --release -p towline-{name}` first",
        library.display(),
    );
    Ok(library)
}

fn same_symbols(
    library: &Path,
    found: Vec<String>,
    declared: impl Iterator<Item = String>,
) -> Result<String> {
    let name = library.file_name().unwrap_or_default().display();
    let found: BTreeSet<String> = found.into_iter().collect();
    let declared = declared.collect();
    let differing: Vec<_> = found.symmetric_difference(&declared).collect();
    ensure!(
        differing.is_empty(),
        "{name} exports other symbols than are declared: {differing:?}"
    );
    Ok(format!("{name} exports {} symbols", found.len()))
}

/// The dynamic symbols that a shared library defines, without their versions.
fn exported_symbols(library: &Path) -> Result<Vec<String>> {
    Ok(versioned_symbols(library)?
        .into_iter()
        .map(|name| name.split('@').next().unwrap_or(&name).to_owned())
        .collect())
}

/// The dynamic symbols that a shared library defines, as binutils' `nm` lists them: address, type, name with version.
fn versioned_symbols(library: &Path) -> Result<Vec<String>> {
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
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opencl() -> Api {
        towline_api::load(&towline_api::root(), "opencl").unwrap()
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
    fn two_symbols_for_one_name_and_version_are_named() {
        let mut api = towline_api::load(&towline_api::root(), "cuda").unwrap();
        assert!(symbols(&api).is_ok());
        let twice = api.call("cuInit").unwrap().clone();
        api.calls.push(twice);
        let error = symbols(&api).unwrap_err().to_string();
        assert!(error.contains("are both cuInit of version 2000"), "{error}");
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
