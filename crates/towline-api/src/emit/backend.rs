//! The contract that backends, remote sessions and the platform layer share, and the table of a native vendor library.

use std::fmt::Write;

use super::command::Command;
use super::{arguments, doc, errcode, returns, signature};
use crate::model::{Api, Call, Extent, Param, Shape, Type};

/// The statements that refuse a call: "not supported" in the API's own way.
fn refuse(call: &Call, indent: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{indent}let _ = ({});",
        arguments(call) + if call.params.len() == 1 { "," } else { "" }
    );
    if let Some(param) = errcode(call) {
        let _ = writeln!(
            out,
            "{indent}if !{0}.is_null() {{\n{indent}    // SAFETY: the caller's contract: `{0}` is writable when it is not NULL.\n{indent}    unsafe {{ {0}.write(NOT_SUPPORTED) }};\n{indent}}}",
            param.name
        );
    }
    let refusal = if call.denied {
        "NO_PERMISSION"
    } else {
        "NOT_SUPPORTED"
    };
    match &call.ret {
        Type::Void => {}
        Type::Scalar(..) => {
            let _ = writeln!(out, "{indent}{refusal} as {}", call.ret.rust());
        }
        _ => {
            let _ = writeln!(out, "{indent}std::ptr::null_mut()");
        }
    }
    out
}

/// The contract's method for the call: what implements it not, refuses it.
pub(super) fn trait_method(call: &Call) -> String {
    format!(
        "{}    ///\n    /// # Safety\n    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.\n    unsafe fn {}(&self, {}){} {{\n{}    }}\n",
        doc(call, "    "),
        call.name,
        signature(call),
        returns(call),
        refuse(call, "        ")
    )
}

/// Emits the trait.
pub fn emit_trait(api: &Api, name: &str) -> String {
    let mut out = format!(
        "/// Every call of the API, by its C name and signature.\n#[allow(non_snake_case, clippy::too_many_arguments)]\npub trait {name}: Send + Sync {{\n"
    );
    for call in api.calls.iter().filter(|call| call.exported()) {
        out.push_str(&trait_method(call));
    }
    out.push_str("}\n");
    out
}

/// The expression for the object whose vendor serves the call.
fn owner(call: &Call) -> Option<String> {
    let by_value = call.params.iter().find(|param| {
        matches!(
            (&param.ty, &param.shape),
            (Type::Handle(_), Shape::Value { .. })
        )
    });
    if let Some(param) = by_value {
        return Some(format!("{}.cast()", param.name));
    }
    let list = |param: &&Param| {
        let Type::Pointer { to, .. } = &param.ty else {
            return false;
        };
        matches!(
            (&**to, &param.shape),
            (
                Type::Handle(_),
                Shape::Input {
                    extent: Extent::Len(_),
                    ..
                }
            )
        )
    };
    call.params
        .iter()
        .find(list)
        .map(|param| format!("first({})", param.name))
}

/// The hand-written method as `ManualNative` declares it, for a call that names no object, and the method of the contract.
pub(super) fn native_method(api: &Api, call: &Call) -> (String, String) {
    let (mut manual, mut out) = (String::new(), String::new());
    let _ = writeln!(
        out,
        "    unsafe fn {}(&self, {}){} {{",
        call.name,
        signature(call),
        returns(call)
    );
    if api.dialect().by_symbol {
        let _ = write!(
            out,
            "        if let Some(vendor) = self.functions.{} {{\n            // SAFETY: the caller's contract is the contract of the vendor's function.\n            return unsafe {{ vendor({}) }};\n        }}\n{}",
            call.name,
            arguments(call),
            refuse(call, "        ")
        );
    } else if let Some(owner) = owner(call) {
        let _ = write!(
            out,
            "        if let Some(function) = self.vendor({owner}).functions.{} {{\n            // SAFETY: the caller's contract is the contract of the vendor's function.\n            return unsafe {{ function({}) }};\n        }}\n{}",
            call.name,
            arguments(call),
            refuse(call, "        ")
        );
    } else {
        let _ = write!(
            out,
            "        // SAFETY: the caller's contract, passed on.\n        unsafe {{ ManualNative::{}(self{}) }}\n",
            call.name,
            if call.params.is_empty() {
                String::new()
            } else {
                format!(", {}", arguments(call))
            }
        );
        let _ = write!(
            manual,
            "    /// # Safety\n    /// The contract of the C function.\n    unsafe fn {}(&self, {}){};\n",
            call.name,
            signature(call),
            returns(call)
        );
    }
    out.push_str("    }\n");
    (manual, out)
}

/// Emits the table of one vendor's functions and the `impl` that picks the vendor by the call's first object. Calls that name no
/// object are left to the hand-written `ManualNative` trait.
pub fn emit_native(api: &Api, name: &str) -> String {
    let mut out = String::from(
        "/// The functions of one vendor; `None` where it has none.\n#[allow(non_snake_case, dead_code, reason = \"calls that name no object are answered without a vendor\")]\n#[derive(Debug, Default)]\npub(super) struct Functions {\n",
    );
    for call in api
        .calls
        .iter()
        .filter(|call| call.exported() && !call.unsupported)
    {
        let types = call
            .params
            .iter()
            .map(|param| param.ty.rust())
            .collect::<Vec<_>>()
            .join(", ");
        let _ = writeln!(
            out,
            "    pub(super) {}: Option<unsafe extern \"C\" fn({types}){}>,",
            call.name,
            returns(call)
        );
    }
    out.push_str("}\n\nimpl Functions {\n    /// Fills the table from `lookup`, which answers NULL for what the vendor lacks.\n    pub(super) fn load(lookup: &mut dyn FnMut(&'static str, &'static str) -> *const c_void) -> Self {\n        Self {\n");
    for call in api
        .calls
        .iter()
        .filter(|call| call.exported() && !call.unsupported)
    {
        let types = call
            .params
            .iter()
            .map(|param| param.ty.rust())
            .collect::<Vec<_>>()
            .join(", ");
        // A call that the core took over from an extension is found in the table; only the others go by name.
        let since = match (&call.since, &call.extension) {
            (Some(version), _) => version.as_str(),
            (None, Some(_)) => "extension",
            (None, None) => api.dialect().first_version,
        };
        let _ = write!(
            out,
            "            {0}: {{\n                let found = lookup(\"{0}\", \"{since}\");\n                // SAFETY: the vendor's table and name lookup give the function of this name, whose C type the declaration states; NULL is `None`.\n                unsafe {{ std::mem::transmute::<*const c_void, Option<unsafe extern \"C\" fn({types}){1}>>(found) }}\n            }},\n",
            call.name,
            returns(call)
        );
    }
    out.push_str("        }\n    }\n}\n\n");
    let mut manual = String::new();
    let _ = write!(
        out,
        "#[allow(non_snake_case, clippy::too_many_arguments)]\nimpl super::{name} for {} {{\n",
        api.dialect().native
    );
    for call in api
        .calls
        .iter()
        .filter(|call| call.exported() && !call.unsupported)
    {
        let (declared, implemented) = native_method(api, call);
        manual.push_str(&declared);
        out.push_str(&implemented);
    }
    if manual.is_empty() {
        return out + "}\n";
    }
    let _ = write!(
        out,
        "}}\n\n/// Calls that name no object, so that no vendor follows from them.\n#[allow(non_snake_case)]\ntrait ManualNative {{\n{manual}}}\n"
    );
    out
}

/// Whether the call orders its command by events.
fn waits_for_events(call: &Call) -> bool {
    call.params.iter().any(|param| {
        matches!(&param.ty, Type::Pointer { to, .. } if matches!(&**to, Type::Handle(name) if name == "cl_event"))
    })
}

/// Emits the `impl` of the adapter for vendors that compute inside the call. Calls of `scheduled` go to its own methods, of which those
/// of `plain` commands are generated. Other commands are refused, and what is left takes its turn at the vendor. Objects of other
/// vendors pass by.
pub fn emit_serial(api: &Api, name: &str, scheduled: &[&str], plain: &[&str]) -> String {
    let mut out = String::from(
        "/// Commands that the vendor gets as they are.\n#[allow(non_snake_case, clippy::too_many_arguments)]\nimpl Serial {\n",
    );
    let is_plain = |call: &&Call| plain.contains(&call.name.as_str());
    for command in api.calls.iter().filter(is_plain).filter_map(Command::of) {
        out.push_str(&command.serial_method());
    }
    let _ = write!(
        out,
        "}}\n\n#[allow(non_snake_case, clippy::too_many_arguments)]\nimpl super::{name} for SerialOpenCl {{\n"
    );
    for call in api
        .calls
        .iter()
        .filter(|call| call.exported() && !call.unsupported)
    {
        let (function, given) = (&call.name, arguments(call));
        let owner = owner(call);
        let is_scheduled = scheduled.contains(&function.as_str()) || is_plain(&call);
        let _ = writeln!(
            out,
            "    unsafe fn {function}(&self, {}){} {{",
            signature(call),
            returns(call)
        );
        let pass_on = format!(
            "        // SAFETY: the caller's contract, passed on.\n        unsafe {{ self.serial.native.{function}({given}) }}\n"
        );
        match owner {
            Some(owner) if is_scheduled => {
                let scheduled = match Command::of(call) {
                    Some(command) => format!(
                        "            return {};\n",
                        command.enqueue("self.serial", "            ").trim()
                    ),
                    None => format!(
                        "            // SAFETY: the caller's contract, passed on.\n            return unsafe {{ self.serial.{function}({given}) }};\n"
                    ),
                };
                let _ = write!(
                    out,
                    "        if self.is_serial({owner}) {{\n{scheduled}        }}\n{pass_on}"
                );
            }
            Some(owner) if waits_for_events(call) => {
                let _ = write!(
                    out,
                    "        if self.is_serial({owner}) {{\n{}        }}\n{pass_on}",
                    refuse(call, "            ").replacen(
                        "NOT_SUPPORTED as",
                        "return NOT_SUPPORTED as",
                        1
                    )
                );
            }
            Some(owner) if call.creates() => {
                let _ = write!(
                    out,
                    "        let turn = self.turn({owner});\n        // SAFETY: the caller's contract, passed on.\n        let made = unsafe {{ self.serial.native.{function}({given}) }};\n        if turn.is_some() {{\n            self.serial.adopt(made);\n        }}\n        made\n"
                );
            }
            Some(owner) => {
                let _ = write!(out, "        let _turn = self.turn({owner});\n{pass_on}");
            }
            None => {
                let _ = write!(out, "        let _turn = turn::take();\n{pass_on}");
            }
        }
        out.push_str("    }\n");
    }
    out.push_str("}\n");
    out
}

/// Emits the `impl` of a backend whose methods lie where they belong, in several files: each call of `implemented` is counted and
/// goes to the method of its name. The contract's defaults answer the others.
pub fn emit_methods(api: &Api, name: &str, backend: &str, implemented: &[&str]) -> String {
    let mut out = format!(
        "#[allow(non_snake_case, clippy::too_many_arguments)]\nimpl {name} for {backend} {{\n"
    );
    let is_implemented = |call: &&Call| implemented.contains(&call.name.as_str());
    for call in api.calls.iter().filter(is_implemented) {
        let (function, given) = (&call.name, arguments(call));
        let body = match Command::of(call) {
            Some(command) => command.enqueue("self", "        "),
            None => format!(
                "        // SAFETY: the caller's contract, passed on.\n        unsafe {{ self.{function}({given}) }}\n"
            ),
        };
        let _ = write!(
            out,
            "    unsafe fn {function}(&self, {}){} {{\n        self.count(\"{function}\");\n{body}    }}\n",
            signature(call),
            returns(call)
        );
    }
    out.push_str("}\n");
    out
}
