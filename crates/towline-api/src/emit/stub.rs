//! What the shared library exports (the functions of the C ABI, the loader's dispatch table, the addresses by name) and the glue
//! between them and the platform: it turns the pointers of a call into slices and out-places, and a method's `Result` into the
//! status that the C function returns.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{arguments, doc, errcode, group_trait, length, pointee, returns, signature};
use crate::model::{Api, Call, Extent, Param, Shape, Type};

/// What a stub answers when the call could not run at all.
fn failure(call: &Call) -> &'static str {
    match &call.ret {
        Type::Void => "()",
        Type::Scalar(..) => "OUT_OF_HOST_MEMORY",
        _ => "std::ptr::null_mut()",
    }
}

/// The function of the C ABI.
pub(super) fn function(call: &Call) -> String {
    let status = match errcode(call) {
        Some(param) => param.name.clone(),
        None => "std::ptr::null_mut()".into(),
    };
    format!(
        "{doc}///\n/// # Safety\n/// The contract of the C function.\n#[allow(non_snake_case, clippy::too_many_arguments)]\npub(crate) unsafe extern \"C\" fn {name}({signature}){returns} {{\n    guard(\"{name}\", {failure}, {status}, |library| {{\n        // SAFETY: the application's contract, passed on.\n        unsafe {{ OpenClApi::{name}(library, {arguments}) }}\n    }})\n}}\n",
        doc = doc(call, ""),
        name = call.name,
        signature = signature(call),
        returns = returns(call),
        failure = failure(call),
        arguments = arguments(call),
    )
}

/// Emits stubs, dispatch table and address lookup.
pub fn emit(api: &Api) -> String {
    let mut out = String::new();
    let mut addresses = String::new();
    for call in api.calls.iter().filter(|call| call.exported()) {
        out.push_str(&function(call));
        for name in call.aliases.iter().chain([&call.name]) {
            let _ = writeln!(
                addresses,
                "        \"{name}\" => {} as *const c_void,",
                call.name
            );
        }
    }
    out.push_str("/// The table whose address every object begins with, in the loader's order; no entry is NULL.\npub(crate) static DISPATCH: Dispatch<");
    let _ = writeln!(out, "{}> = Dispatch([", api.dispatch_order.len());
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
        "]);\n\n/// The address of an API function by name, for `clGetExtensionFunctionAddress`.\npub(crate) fn address(name: &str) -> Option<*const c_void> {{\n    Some(match name {{\n{addresses}        _ => return None,\n    }})\n}}\n"
    );
    out
}

/// Whether the parameter takes part in the answer to an info query: room, value, true size.
fn answers(call: &Call, param: &Param) -> bool {
    matches!(
        param.name.as_str(),
        "param_value_size" | "param_value" | "param_value_size_ret"
    ) && call
        .params
        .iter()
        .any(|other| other.name == "param_value" && matches!(other.shape, Shape::Output { .. }))
}

/// A length expression as a function argument of type `usize`.
fn count(expr: &crate::model::Expr) -> String {
    match &expr.param {
        Some(param) if expr.factor == 1 => format!("{param} as usize"),
        _ => length(expr, |other| format!("({other} as usize)")),
    }
}

/// The type of a parameter in a platform method, and the expression that the glue passes; `None` where the glue keeps it to itself.
fn passed(call: &Call, param: &Param) -> Option<(String, String)> {
    let name = &param.name;
    let element = || pointee(param).rust();
    if answers(call, param) {
        return (name == "param_value").then(|| {
            (
                "Answer".into(),
                "Answer::new(param_value_size, param_value, param_value_size_ret)".into(),
            )
        });
    }
    Some(match &param.shape {
        Shape::ErrCode => return None,
        Shape::Input { extent, .. } if param.ty.rust().starts_with("*const") => match extent {
            Extent::One => (
                format!("Option<&{}>", element()),
                format!("raw::one({name})"),
            ),
            Extent::Len(expr) => (
                format!("Option<&[{}]>", element()),
                format!("raw::slice({name}, {})", count(expr)),
            ),
            Extent::CStr => ("Option<&CStr>".into(), format!("raw::text({name})")),
            Extent::List => (
                format!("Option<&[{}]>", element()),
                format!("raw::list({name})"),
            ),
            Extent::Bytes(_) => (param.ty.rust(), name.clone()),
        },
        Shape::Output { extent, .. } => match extent {
            Extent::Len(expr) => (
                format!("OutList<{}>", element()),
                format!("OutList::new({name}, {})", count(expr)),
            ),
            _ => (format!("Out<{}>", element()), format!("Out::new({name})")),
        },
        Shape::SizeOf => (format!("Out<{}>", element()), format!("Out::new({name})")),
        _ => (param.ty.rust(), name.clone()),
    })
}

/// What a platform method returns, and the name of what turns it into the C function's result.
fn method_result(call: &Call) -> (String, &'static str) {
    match (&call.ret, errcode(call)) {
        (Type::Void, _) => (String::new(), ""),
        (Type::Scalar(..), _) => (" -> Result<(), cl_int>".into(), "status"),
        (other, Some(_)) => (format!(" -> Result<{}, cl_int>", other.rust()), "created"),
        (other, None) => (format!(" -> {}", other.rust()), ""),
    }
}

/// The contract's method for a call that is declared `forward`: it picks the provider by the call's objects and turns their handles
/// into that provider's. Pointers pass as they are, once those that must not be NULL are not.
fn forwarded(call: &Call) -> String {
    let handles: Vec<&str> = call
        .params
        .iter()
        .filter(|param| matches!(param.ty, Type::Handle(_)))
        .map(|param| param.name.as_str())
        .collect();
    let mut steps = String::new();
    for handle in &handles {
        let _ = writeln!(steps, "            {handle}.note(&mut route)?;");
    }
    for param in &call.params {
        let required = matches!(
            param.shape,
            Shape::Input {
                nullable: false,
                ..
            } | Shape::Output {
                nullable: false,
                ..
            }
        );
        if required {
            let _ = writeln!(
                steps,
                "            if {}.is_null() {{ return Err(CL_INVALID_VALUE); }}",
                param.name
            );
        }
    }
    steps.push_str("            let settled = route.settle()?;\n");
    for handle in &handles {
        let _ = writeln!(steps, "            let {handle} = {handle}.on(&settled)?;");
    }
    format!(
        "    unsafe fn {name}(&self, {signature}){returns} {{\n        use crate::forward::{{Forwarded, Route}};\n        crate::forward::call(|| {{\n            let mut route = Route::default();\n{steps}            // SAFETY: the handles are the provider's own, of objects that the application must keep; the rest is the caller's contract.\n            Ok(unsafe {{ settled.api().{name}({arguments}) }})\n        }})\n    }}\n",
        name = call.name,
        signature = signature(call),
        returns = returns(call),
        arguments = arguments(call),
    )
}

/// The platform's method as its trait declares it (nothing where the call is passed on as it is), and the method of the contract that
/// calls it.
pub(super) fn platform_method(call: &Call) -> (String, String) {
    if call.forward {
        return (String::new(), forwarded(call));
    }
    let (group, mut out) = (group_trait(call), String::new());
    let passed: Vec<(&Param, (String, String))> = call
        .params
        .iter()
        .filter_map(|param| passed(call, param).map(|passed| (param, passed)))
        .collect();
    let method_params: String = passed
        .iter()
        .map(|(param, (ty, _))| {
            let name = if ty == "Answer" {
                "answer"
            } else {
                &param.name
            };
            format!(", {name}: {ty}")
        })
        .collect();
    let (method_returns, convert) = method_result(call);
    let declared = format!(
        "{}    ///\n    /// # Safety\n    /// The contract of the C function, for what is still a pointer here.\n    unsafe fn {}(&self{method_params}){method_returns};\n",
        doc(call, "    "),
        call.name
    );
    let _ = writeln!(
        out,
        "    unsafe fn {}(&self, {}){} {{",
        call.name,
        signature(call),
        returns(call)
    );
    for (param, (ty, expression)) in &passed {
        let callback = matches!(param.shape, Shape::Callback);
        let borrowed = ["Out", "Option<", "Answer"]
            .iter()
            .any(|start| ty.starts_with(start));
        if borrowed && !callback {
            let name = if ty == "Answer" {
                "answer"
            } else {
                &param.name
            };
            let _ = write!(
                out,
                "        // SAFETY: the caller's contract: `{}` is NULL or points as far as the declaration says.\n        let {name} = unsafe {{ {expression} }};\n",
                param.name
            );
        }
    }
    let names: String = passed
        .iter()
        .map(|(param, (ty, _))| {
            let name = if ty == "Answer" {
                "answer"
            } else {
                &param.name
            };
            format!(", {name}")
        })
        .collect();
    let invoke = format!("unsafe {{ {group}::{}(self{names}) }}", call.name);
    let invoke = match convert {
        "" => invoke,
        _ => format!("let result = {invoke};"),
    };
    let _ = writeln!(
        out,
        "        // SAFETY: the caller's contract, passed on.\n        {invoke}"
    );
    match (convert, errcode(call)) {
        ("status", _) => out.push_str("        raw::status(result)\n"),
        ("created", Some(param)) => {
            let _ = write!(
                out,
                "        // SAFETY: the caller's contract: `{0}` is NULL or writable.\n        unsafe {{ raw::created(result, {0}) }}\n",
                param.name
            );
        }
        _ => {}
    }
    out.push_str("    }\n");
    (declared, out)
}

/// Emits one trait per group of calls, without defaults, and the implementation of the contract that delegates to them. Calls that
/// are declared `unsupported` keep the contract's own refusal; those declared `forward` need no method.
pub fn emit_platform(api: &Api, contract: &str, target: &str) -> String {
    let mut traits: BTreeMap<String, String> = BTreeMap::new();
    let mut out = format!(
        "#[allow(non_snake_case, clippy::too_many_arguments)]\nimpl {contract} for {target} {{\n"
    );
    for call in api
        .calls
        .iter()
        .filter(|call| call.exported() && call.served())
    {
        let (declared, implemented) = platform_method(call);
        out.push_str(&implemented);
        if !call.forward {
            traits
                .entry(group_trait(call))
                .or_default()
                .push_str(&declared);
        }
    }
    out.push_str("}\n");
    for (name, methods) in traits {
        let _ = write!(
            out,
            "\n/// One group of the platform's calls; a missing one does not compile.\n#[allow(non_snake_case, clippy::too_many_arguments)]\npub(crate) trait {name} {{\n{methods}}}\n"
        );
    }
    out
}
