//! What follows from a runtime's declarations: its types, the calls that are only passed on, the exported functions of each major
//! version, and the coverage page.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::runtime::{Answer, Function, MAJORS, Param, Passed, Runtime};

/// Types, constants and the table of errors.
pub fn types(runtime: &Runtime) -> String {
    let mut out = String::new();
    for item in &runtime.items {
        let _ = writeln!(out, "{item}");
    }
    let status = runtime.status;
    let _ = writeln!(
        out,
        "\n/// Every error: its number, its name, and what it says.\npub(crate) const ERRORS: &[({status}, &std::ffi::CStr, &std::ffi::CStr)] = &["
    );
    let mut errors = runtime.errors.clone();
    errors.sort_by_key(|(_, number, _)| *number);
    for (name, number, text) in &errors {
        let _ = writeln!(out, "    ({number}, c\"{name}\", c\"{text}\"),");
    }
    out.push_str("];\n");
    out
}

pub(super) fn signature(function: &Function) -> String {
    let params = function.params.iter();
    params
        .map(|param| format!("{}: {}", param.name, param.ty))
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn returns(function: &Function) -> String {
    if function.ret.is_empty() {
        String::new()
    } else {
        format!(" -> {}", function.ret)
    }
}

/// Everything that is generated for one function, for people to read: `cargo xtask api show` and the golden files.
pub fn show(function: &Function) -> String {
    let mut exports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for major in MAJORS {
        for (symbol, own) in function.symbols(major) {
            let versions = exports.entry(export(function, &symbol, own)).or_default();
            versions.push(major.to_string());
        }
    }
    let mut out = method(function);
    for (code, versions) in exports {
        let versions = versions.join(" and ");
        let _ = write!(out, "\n// ---- exported by version {versions}\n\n{code}");
    }
    out.trim_start_matches('\n').to_owned()
}

/// The methods of the calls that are passed on, answered by a shared method, or refused.
pub fn methods(runtime: &Runtime) -> String {
    let methods: String = runtime.functions.iter().map(method).collect();
    format!("impl Runtime {{\n{methods}}}\n")
}

/// The function's method; nothing for one that is written by hand.
fn method(function: &Function) -> String {
    let names = function.params.iter().map(|param| param.name.as_str());
    let body = match &function.answer {
        Answer::Manual => return String::new(),
        Answer::Refused => {
            let names: Vec<_> = names.collect();
            format!(
                "        let _ = ({}{});\n        self.refuse(\"{}\")\n",
                names.join(", "),
                if names.len() == 1 { "," } else { "" },
                function.name
            )
        }
        Answer::RefusedWith(value) => format!("        {value}\n"),
        Answer::Shared(method) => format!("        crate::runtime::status(|| {method})\n"),
        Answer::Driver(driver) | Answer::Bare(driver) => {
            let is_kernel = |param: &Param| param.passed == Passed::Kernel;
            let start = match function.answer {
                // Finding a kernel's function enters.
                Answer::Driver(_) if !function.params.iter().any(is_kernel) => "enter",
                _ => "start",
            };
            let before: String = function.params.iter().map(before).collect();
            let passed: Vec<_> = names.map(|name| format!("{name}.pass()")).collect();
            format!(
                "        let driver = match self.{start}() {{\n            Ok(driver) => driver,\n            Err(error) => return error,\n        }};\n{before}        // SAFETY: the application's contract, passed on; both sides' types have one layout.\n        unsafe {{ driver.{driver}({}) }}\n",
                passed.join(", ")
            )
        }
    };
    format!(
        "    /// {}\n    ///\n    /// # Safety\n    /// The contract of the C function.\n    pub unsafe fn {}(&self, {}){} {{\n{body}    }}\n",
        function.doc,
        function.name,
        signature(function),
        returns(function)
    )
}

/// What happens to a parameter before the driver is called.
fn before(param: &Param) -> String {
    let name = &param.name;
    match param.passed {
        Passed::AsItIs => String::new(),
        Passed::Kernel => format!(
            "        let {name} = match self.function({name}) {{\n            Ok((_, function)) => function,\n            Err(error) => return error,\n        }};\n"
        ),
        Passed::UnlessNull => {
            format!("        if {name}.is_null() {{\n            return cudaSuccess;\n        }}\n")
        }
    }
}

/// The exported functions of a major version.
pub fn exports(runtime: &Runtime, major: u32) -> String {
    let mut out = String::new();
    for function in &runtime.functions {
        for (symbol, own) in function.symbols(major) {
            out.push_str(&export(function, &symbol, own));
        }
    }
    out
}

/// The function under one of its symbols.
fn export(function: &Function, symbol: &str, own: bool) -> String {
    let guard = match (function.ret.as_str(), function.unrecorded) {
        ("cudaError_t", false) => "guard",
        ("cudaError_t", true) => "guard_unrecorded",
        _ => "guard_plain",
    };
    let pass = |param: &Param| match param.ty.as_str() {
        "cudaStream_t" if own => format!("per_thread({})", param.name),
        _ => param.name.clone(),
    };
    let passed: Vec<_> = function.params.iter().map(pass).collect();
    format!(
        "/// {}\n///\n/// # Safety\n/// The contract of the C function.\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {symbol}({}){} {{\n    {guard}(MAJOR, \"{symbol}\", {own}, |runtime| {{\n        // SAFETY: the application's contract, passed on.\n        unsafe {{ runtime.{}({}) }}\n    }})\n}}\n",
        function.doc,
        signature(function),
        returns(function),
        function.name,
        passed.join(", ")
    )
}

/// The symbols that a major version exports.
pub fn symbols(runtime: &Runtime, major: u32) -> Vec<String> {
    let functions = runtime.functions.iter();
    functions
        .flat_map(|function| function.symbols(major))
        .map(|(symbol, _)| symbol)
        .collect()
}

/// The coverage page.
pub fn coverage(runtime: &Runtime, name: &str, title: &str) -> String {
    let refused = |function: &&Function| function.is_refused();
    let counts = MAJORS.map(|major| {
        let exported = |function: &&Function| function.symbol(major).is_some();
        let all = runtime.functions.iter().filter(exported).count();
        let no = runtime.functions.iter().filter(exported).filter(refused);
        (all, no.count())
    });
    let [(all_12, no_12), (all_13, no_13)] = counts;
    let mut out = format!(
        "# {title} coverage\n\nGenerated from `api/{name}/` by `cargo xtask api coverage`; `make test` checks that it is fresh.\n\n\
         `libcudart.so.12`: {all_12} functions, {} answered, {no_12} refused with `cudaErrorNotSupported`. `libcudart.so.13`: {all_13},\n\
         {} answered, {no_13} refused. Forms with a default stream per thread (`_ptds`, `_ptsz`) are not counted.\n\n\
         *passed on*: to the driver's function of that name. *runtime*: answered or composed by the library. *refused*: declared, and\n\
         answered with an error. What the driver below does with a call is in [cuda.md](cuda.md).\n",
        all_12 - no_12,
        all_13 - no_13
    );
    let mut group = "";
    for function in &runtime.functions {
        if function.group != group {
            group = &function.group;
            let _ = write!(
                out,
                "\n## {group}\n\n| function | versions | answered | what it does |\n| --- | --- | --- | --- |\n"
            );
        }
        let names: Vec<_> = MAJORS
            .iter()
            .filter_map(|major| function.symbol(*major))
            .collect();
        let shown = match names.as_slice() {
            [one, other] if one != other => format!("`{other}`, `{one}` in 12"),
            [one, ..] => format!("`{one}`"),
            [] => continue,
        };
        let versions = match function.only {
            Some(major) => major.to_string(),
            None => "12, 13".to_owned(),
        };
        let answer = match &function.answer {
            Answer::Driver(driver) | Answer::Bare(driver) => format!("passed on to `{driver}`"),
            Answer::Manual | Answer::Shared(_) => "runtime".to_owned(),
            Answer::Refused | Answer::RefusedWith(_) => "refused".to_owned(),
        };
        let _ = writeln!(
            out,
            "| {shown} | {versions} | {answer} | {} |",
            function.doc.replace('|', "\\|")
        );
    }
    out
}
