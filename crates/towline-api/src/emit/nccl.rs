//! What follows from NCCL's declarations: its types, what our driver library exports for it, the library that programs load in its place,
//! and the coverage page.
//!
//! Everything is done in the driver library, which has the sessions. There each function has a name of its own, so that a program's NCCL
//! keeps its functions where ours was not put before it; the library with NCCL's name has nothing but jumps to those.

use std::fmt::Write;

use crate::runtime::{Answer, Function, Runtime};

/// Stands before a function's name in the driver library.
const PREFIX: &str = "towline_";

/// Types and constants.
pub fn types(runtime: &Runtime) -> String {
    runtime.items.join("\n")
}

/// The functions that the driver library exports.
pub fn exports(runtime: &Runtime) -> String {
    runtime.functions.iter().map(export).collect()
}

fn export(function: &Function) -> String {
    let Function { name, doc, ret, .. } = function;
    let params = function.params.iter();
    let signature: Vec<_> = params
        .map(|param| format!("{}: {}", param.name, param.ty))
        .collect();
    let names: Vec<_> = function.params.iter().map(|param| &*param.name).collect();
    let returns = match ret.is_empty() {
        true => String::new(),
        false => format!(" -> {ret}"),
    };
    let refused = match ret.as_str() {
        "ncclResult_t" => "refuse()",
        "" => "",
        _ => "0",
    };
    let body = match function.answer {
        Answer::Refused => {
            let ignored = match names.as_slice() {
                [] => String::new(),
                names => format!("let _ = ({},);\n    ", names.join(", ")),
            };
            format!("{ignored}{refused}")
        }
        _ => format!(
            "guard(\"{name}\", || {{\n        // SAFETY: the application's contract, passed on.\n        unsafe {{ super::calls::{name}({}) }}\n    }})",
            names.join(", ")
        ),
    };
    format!(
        "/// {doc}\n///\n/// # Safety\n/// The contract of the C function.\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {PREFIX}{name}({}){returns} {{\n    {body}\n}}\n",
        signature.join(", ")
    )
}

/// The names that NCCL's library has: each function's, and the one for profilers.
pub fn symbols(runtime: &Runtime) -> Vec<String> {
    let functions = runtime.functions.iter();
    functions
        .flat_map(|function| [function.name.clone(), format!("p{}", function.name)])
        .collect()
}

/// Those names as jumps to the driver library.
pub fn jumps(runtime: &Runtime) -> String {
    let mut out = String::from("unsafe extern \"C\" {\n");
    for function in &runtime.functions {
        let _ = writeln!(out, "    fn {PREFIX}{}();", function.name);
    }
    out.push_str("}\n");
    for function in &runtime.functions {
        for symbol in [function.name.clone(), format!("p{}", function.name)] {
            let target = format!("{PREFIX}{}", function.name);
            let _ = write!(
                out,
                "/// {}\n#[unsafe(naked)]\n#[unsafe(no_mangle)]\npub extern \"C\" fn {symbol}() {{\n    \
                 #[cfg(target_arch = \"x86_64\")]\n    core::arch::naked_asm!(\"jmp *{{}}@GOTPCREL(%rip)\", sym {target}, options(att_syntax));\n    \
                 #[cfg(target_arch = \"aarch64\")]\n    core::arch::naked_asm!(\"b {{}}\", sym {target});\n}}\n",
                function.doc
            );
        }
    }
    out
}

/// The coverage page.
pub fn coverage(runtime: &Runtime) -> String {
    let refused = |function: &&Function| function.answer == Answer::Refused;
    let (all, no) = (
        runtime.functions.len(),
        runtime.functions.iter().filter(refused).count(),
    );
    let mut out = format!(
        "# NCCL coverage\n\nGenerated from `api/nccl/` by `cargo xtask api coverage`; `make test` checks that it is fresh.\n\n\
         `libnccl.so.2`, of version 2.32: {all} functions, {} answered, {no} refused with `ncclInvalidUsage` or zeros. Each has its\n\
         name for profilers (`pnccl...`) too. What of it a server's NCCL lacks is refused as well.\n",
        all - no
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
        let answer = match function.answer {
            Answer::Refused => "refused",
            _ => "yes",
        };
        let _ = writeln!(
            out,
            "| `{}` | {answer} | {} |",
            function.name,
            function.doc.replace('|', "\\|")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Runtime {
        crate::runtime::load(&crate::root(), "nccl").unwrap_or_default()
    }

    #[test]
    fn every_function_is_a_jump_under_both_names() {
        let runtime = declared();
        assert!(runtime.functions.len() > 90);
        for architecture in ["x86_64", "aarch64"] {
            let text = jumps(&runtime, architecture);
            assert!(
                symbols(&runtime)
                    .iter()
                    .all(|symbol| text.contains(&format!("\n{symbol}:\n")))
            );
        }
    }

    #[test]
    fn what_is_refused_says_so_or_gives_nothing() {
        let runtime = declared();
        let of = |name: &str| {
            let mut functions = runtime.functions.iter();
            functions
                .find(|function| function.name == name)
                .map(export)
                .unwrap_or_default()
        };
        assert!(of("ncclDevCommCreate").contains("refuse()"));
        assert!(of("ncclTeamWorld").contains("    0\n"));
        assert!(of("ncclAllReduce").contains("super::calls::ncclAllReduce("));
    }
}
