//! What the shared library exports: the functions of the C ABI, the loader's dispatch table and the addresses by name.

use std::fmt::Write;

use super::{arguments, returns, signature};
use crate::model::{Api, Call, Type};

fn failure(call: &Call) -> &'static str {
    match &call.ret {
        Type::Void => "()",
        Type::Scalar(..) => "OUT_OF_HOST_MEMORY",
        _ => "std::ptr::null_mut()",
    }
}

/// Emits stubs, dispatch table and address lookup.
pub fn emit(api: &Api) -> String {
    let mut out = String::new();
    let mut addresses = String::new();
    for call in api.calls.iter().filter(|call| call.exported()) {
        let _ = write!(
            out,
            "/// {}\n///\n/// # Safety\n/// The contract of the C function.\n#[allow(non_snake_case, clippy::too_many_arguments)]\npub unsafe extern \"C\" fn {}({}){} {{\n    guard(\"{}\", {}, || {{\n        // SAFETY: the application's contract, passed on.\n        unsafe {{ OpenClApi::{}(platform(), {}) }}\n    }})\n}}\n",
            call.doc,
            call.name,
            signature(call),
            returns(call),
            call.name,
            failure(call),
            call.name,
            arguments(call)
        );
        for name in call.aliases.iter().chain([&call.name]) {
            let _ = writeln!(
                addresses,
                "        \"{name}\" => {} as *const c_void,",
                call.name
            );
        }
    }
    let _ = writeln!(
        out,
        "/// Entries of the loader's dispatch table.\npub const DISPATCH_LEN: usize = {};",
        api.dispatch_order.len()
    );
    out.push_str("/// The table whose address every object begins with, in the loader's order; no entry is NULL.\npub static DISPATCH: Dispatch = Dispatch([\n");
    for name in &api.dispatch_order {
        match api.call(name) {
            Some(call) => {
                let _ = writeln!(out, "    {} as *const c_void,", call.name);
            }
            None => {
                let _ = writeln!(out, "    not_supported as *const c_void, // {name}");
            }
        }
    }
    let _ = write!(
        out,
        "]);\n\n/// The address of an API function by name, for `clGetExtensionFunctionAddress`.\npub fn address(name: &str) -> Option<*const c_void> {{\n    Some(match name {{\n{addresses}        _ => return None,\n    }})\n}}\n"
    );
    out
}
