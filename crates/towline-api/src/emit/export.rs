//! The exported functions of a library that is found by its symbols, and their addresses by name.
//!
//! A call has one function per symbol. Those of the per-thread default stream hand the thread's stream on where a stream is a parameter
//! and NULL, and say so to the guard where none is.

use std::fmt::Write;

use super::{DRIVER_PREFIX, arguments, doc, returns, signature, symbols};
use crate::model::{Api, Call, Shape, Type};

/// Whether the call takes a stream by value.
fn takes_stream(call: &Call) -> bool {
    call.params
        .iter()
        .any(|param| is_stream(&param.ty) && matches!(param.shape, Shape::Value { .. }))
}

fn is_stream(ty: &Type) -> bool {
    matches!(ty, Type::Handle(name) if name == "CUstream")
}

/// The statements that clear outputs.
fn cleared(call: &Call) -> String {
    let mut out = String::new();
    for param in &call.params {
        if matches!(param.shape, Shape::Output { cleared: true, .. }) {
            let _ = write!(
                out,
                "        // SAFETY: the application's contract: NULL or writable.\n        unsafe {{ clear({}) }};\n",
                param.name
            );
        }
    }
    out
}

/// The functions of one call.
pub(super) fn functions(api: &Api, call: &Call) -> String {
    let contract = api.dialect().contract;
    let mut out = String::new();
    for symbol in symbols::of(api, call) {
        let (guard, passed) = match (symbol.per_thread, takes_stream(call)) {
            (false, _) => ("guard", arguments(call)),
            (true, false) => ("guard_per_thread", arguments(call)),
            (true, true) => {
                let passed = call.params.iter().map(|param| match &param.ty {
                    ty if is_stream(ty) => format!("per_thread({})", param.name),
                    _ => param.name.clone(),
                });
                ("guard", passed.collect::<Vec<_>>().join(", "))
            }
        };
        let comma = if passed.is_empty() { "" } else { ", " };
        let _ = write!(
            out,
            "{doc}///\n/// # Safety\n/// The contract of the C function.\n#[allow(non_snake_case, clippy::too_many_arguments)]\n{attributes}pub unsafe extern \"C\" fn {symbol}({signature}){returns} {{\n    {guard}(\"{symbol}\", |driver| {{\n{cleared}        // SAFETY: the application's contract, passed on.\n        unsafe {{ {contract}::{name}(driver{comma}{passed}) }}\n    }})\n}}\n",
            doc = doc(call, ""),
            attributes = attributes(api, &symbol.name),
            symbol = symbol.name,
            cleared = cleared(call),
            name = call.name,
            signature = signature(call),
            returns = returns(call),
        );
    }
    out
}

/// The attributes that export a function. On Linux another library than ours is of jumps to it, and it has a name of its own there: a
/// program that finds the vendor's library must not find our function first.
fn attributes(api: &Api, symbol: &str) -> String {
    if api.dialect().by_version {
        return "#[unsafe(no_mangle)]\n".into();
    }
    format!(
        "#[cfg_attr(target_os = \"linux\", unsafe(export_name = \"{DRIVER_PREFIX}{symbol}\"))]\n#[cfg_attr(not(target_os = \"linux\"), unsafe(no_mangle))]\n"
    )
}

/// The symbols of a library of jumps, each with the driver library's that it jumps to: those of the declared calls, and `further`.
pub fn jumps(api: &Api, further: &[&str]) -> Vec<(String, String)> {
    let calls = api.calls.iter().filter(|call| call.exported());
    let declared = calls.flat_map(|call| symbols::of(api, call));
    let further = further.iter().map(|name| (*name).to_owned());
    let all = declared.map(|symbol| symbol.name).chain(further);
    all.map(|name| (name.clone(), format!("{DRIVER_PREFIX}{name}")))
        .collect()
}

/// Emits every exported function, and the lookup of an address by symbol.
pub fn emit(api: &Api) -> String {
    let (mut out, mut addresses) = (String::new(), String::new());
    for call in api.calls.iter().filter(|call| call.exported()) {
        out.push_str(&functions(api, call));
        for symbol in symbols::of(api, call) {
            let _ = writeln!(
                addresses,
                "        \"{0}\" => {0} as *const c_void,",
                symbol.name
            );
        }
    }
    if !api.dialect().by_version {
        return out;
    }
    let _ = write!(
        out,
        "\n/// The address of an exported function by its symbol.\npub(crate) fn address(symbol: &str) -> Option<*const c_void> {{\n    Some(match symbol {{\n{addresses}        _ => return None,\n    }})\n}}\n"
    );
    out
}
