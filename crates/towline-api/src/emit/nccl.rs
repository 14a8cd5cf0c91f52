//! NCCL from its declarations: types, the functions that the driver library exports under names of its own, the jumps to them of which
//! `libnccl.so.2` is made, and the coverage page.
//!
//! A program's own `libnccl.so.2` must find none of its functions in our driver: those are exported as `towline_ncclX`.

use std::fmt::Write;

use super::DRIVER_PREFIX;
use super::runtime::{returns, signature};
use crate::jumps;
use crate::runtime::{Answer, Function, Runtime};

/// The symbols of our `libnccl.so.2`, each with the driver library's that it jumps to. Profilers call the forms with a `p`, of which
/// NCCL has one for every function of its headers.
pub fn symbols(runtime: &Runtime) -> Vec<(String, String)> {
    let functions = runtime.functions.iter();
    functions
        .flat_map(|function| {
            let target = exported(function);
            [
                (function.name.clone(), target.clone()),
                (format!("p{}", function.name), target),
            ]
        })
        .collect()
}

/// The symbol by which the driver library exports a function.
pub fn exported(function: &Function) -> String {
    format!("{DRIVER_PREFIX}{}", function.name)
}

/// The functions that the driver library exports.
pub fn exports(runtime: &Runtime) -> String {
    runtime.functions.iter().map(export).collect()
}

fn export(function: &Function) -> String {
    let name = &function.name;
    let names: Vec<_> = function.params.iter().map(|p| p.name.as_str()).collect();
    let names = names.join(", ");
    let body = match &function.answer {
        Answer::RefusedWith(value) => refusal(name, &names, value),
        Answer::Refused => refusal(name, &names, "ncclInvalidUsage"),
        _ => format!(
            "    guard(\"{name}\", {}, || {{\n        // SAFETY: the application's contract, passed on.\n        unsafe {{ crate::nccl::{name}({names}) }}\n    }})\n",
            failure(&function.ret)
        ),
    };
    format!(
        "/// {}\n///\n/// # Safety\n/// The contract of the C function.\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {}({}){} {{\n{body}}}\n",
        function.doc,
        exported(function),
        signature(function),
        returns(function)
    )
}

fn refusal(name: &str, params: &str, value: &str) -> String {
    let unused = match (params.is_empty(), params.contains(',')) {
        (true, _) => String::new(),
        (false, true) => format!("    let _ = ({params});\n"),
        (false, false) => format!("    let _ = {params};\n"),
    };
    format!("{unused}    guard(\"{name}\", {value}, || refuse(\"{name}\", {value}))\n")
}

/// The value that a function written by hand returns where it could not run at all.
fn failure(ret: &str) -> &'static str {
    match ret {
        "" => "()",
        "ncclResult_t" => "ncclInternalError",
        _ => "c\"failed inside Towline\".as_ptr()",
    }
}

/// Everything that is generated for one function, for people to read: `cargo xtask api show` and the golden files.
pub fn show(function: &Function) -> String {
    let one = Runtime {
        functions: vec![function.clone()],
        ..Runtime::default()
    };
    format!(
        "// ---- exported by libcuda.so.1\n\n{}\n// ---- exported by libnccl.so.2\n\n{}",
        export(function),
        jumps::emit(&symbols(&one))
    )
}

/// The coverage page.
pub fn coverage(runtime: &Runtime, name: &str, title: &str) -> String {
    let all = runtime.functions.len();
    let refused = runtime.functions.iter().filter(|f| f.is_refused()).count();
    let mut out = format!(
        "# {title} coverage\n\nGenerated from `api/{name}/` by `cargo xtask api coverage`; `make test` checks that it is fresh.\n\n\
         `libnccl.so.2`: {all} functions, {} answered, {refused} refused with `ncclInvalidUsage`, or with nothing where they return no\n\
         status. The forms of profilers (`pncclX`) are not counted. The library passes every call to Towline's `libcuda.so.1`.\n",
        all - refused
    );
    let mut group = "";
    for function in &runtime.functions {
        if function.group != group {
            group = &function.group;
            let _ = write!(
                out,
                "\n## {group}\n\n| function | answered | what it does |\n| --- | --- | --- |\n"
            );
        }
        let _ = writeln!(
            out,
            "| `{}` | {} | {} |",
            function.name,
            if function.is_refused() {
                "refused"
            } else {
                "yes"
            },
            function.doc.replace('|', "\\|")
        );
    }
    out
}
