//! The client's half: the contract's `impl` for `Remote`, which turns a call into a request and a reply into results.
//!
//! Calls that are written by hand belong to a trait per group. Where a library is found by its symbols the `impl` is the library's own,
//! since there is no layer above it: those that do not travel are written by hand too, the others find their session by their first handle.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{arguments, errcode, group_trait, length, pointee, returns, signature, wire_element};
use crate::model::{Api, Call, Extent, Mode, Param, Shape, Type};

/// Leaves the method with `status`, in the way that the call's signature has.
fn leave(call: &Call, status: &str) -> String {
    let mut out = String::new();
    if let Some(param) = errcode(call) {
        let _ = write!(
            out,
            "if !{0}.is_null() {{\n                // SAFETY: the caller's contract: `{0}` is writable when it is not NULL.\n                unsafe {{ {0}.write({status}) }};\n            }}\n            ",
            param.name
        );
    }
    match &call.ret {
        Type::Void => out.push_str("return;"),
        Type::Scalar(..) => {
            let _ = write!(out, "return {status};");
        }
        _ => out.push_str("return std::ptr::null_mut();"),
    }
    out
}

/// A local of the parameter's own name that holds its wire form.
fn prepare(out: &mut String, api: &Api, call: &Call, param: &Param) {
    if matches!(param.shape, Shape::InOut { .. }) && call.carries_inout() {
        let name = &param.name;
        let dialect = api.dialect();
        let _ = write!(
            out,
            "        // SAFETY: the caller's contract: `{name}` is NULL or a structure that says its own size.\n        let {name}_in = match unsafe {{ crate::raw::versioned({name}) }} {{\n            Some(Some(value)) => wire::{}::from(value),\n            Some(None) => {{\n            {}\n            }}\n            None => {{\n            {}\n            }}\n        }};\n",
            wire_element(api, pointee(param)),
            leave(call, &format!("wire::{}", dialect.version_mismatch)),
            leave(call, &format!("wire::{}", dialect.invalid_value)),
        );
        return;
    }
    let Shape::Input { extent, nullable } = &param.shape else {
        return;
    };
    let name = &param.name;
    let count = match extent {
        Extent::One => "1".to_string(),
        Extent::Len(expr) | Extent::Bytes(expr) => {
            length(expr, |other| format!("({other} as usize)"))
        }
        Extent::CStr => {
            let _ = write!(
                out,
                "        // SAFETY: the caller's contract: `{name}` is NULL or a NUL-terminated string.\n        let {name} = unsafe {{ crate::raw::text({name}) }};\n"
            );
            return required(out, api, call, name, *nullable);
        }
        Extent::List => {
            let _ = write!(
                out,
                "        // SAFETY: the caller's contract: `{name}` is NULL or a list of pairs that ends with a zero name.\n        let {name} = unsafe {{ crate::raw::pairs({name}.cast()) }};\n"
            );
            return required(out, api, call, name, *nullable);
        }
    };
    let _ = write!(
        out,
        "        // SAFETY: the caller's contract: `{name}` is NULL or readable for its count.\n        let {name} = unsafe {{ crate::raw::slice({name}{cast}, {count}) }};\n",
        cast = if matches!(extent, Extent::Bytes(_)) {
            ".cast::<u8>()"
        } else {
            ""
        },
    );
    let element = wire_element(api, pointee(param));
    let convert = match pointee(param) {
        Type::Handle(_) => format!("wire::{element}::from_raw(value)"),
        Type::Struct(_) => format!("wire::{element}::from(value)"),
        _ => format!("value as {element}"),
    };
    match extent {
        Extent::One => {
            let _ = writeln!(
                out,
                "        let {name} = {name}.and_then(|list| list.first().copied()).map(|value| {convert});"
            );
        }
        Extent::Len(_) => {
            let _ = writeln!(
                out,
                "        let {name} = {name}.map(|list| list.iter().map(|&value| {convert}).collect::<smallvec::SmallVec<[_; 8]>>());"
            );
        }
        _ => {}
    }
    required(out, api, call, name, *nullable);
}

fn required(out: &mut String, api: &Api, call: &Call, name: &str, nullable: bool) {
    if !nullable {
        let status = format!("wire::{}", api.dialect().invalid_value);
        let _ = write!(
            out,
            "        let Some({name}) = {name} else {{\n            {}\n        }};\n",
            leave(call, &status)
        );
    }
}

/// What a request is sent through.
fn sender(api: &Api) -> &'static str {
    if api.dialect().by_symbol {
        "session"
    } else {
        "self"
    }
}

/// Finds the session that the call is for.
fn enter(api: &Api, call: &Call) -> String {
    if !api.dialect().by_symbol {
        return "        let _call = self.enter();\n".into();
    }
    let by_value = |param: &&Param| {
        matches!(param.shape, Shape::Value { .. }) && matches!(param.ty, Type::Handle(_))
    };
    let of = match call.params.iter().find(by_value) {
        Some(param) => format!("{}.addr() as u64", param.name),
        None => "0".into(),
    };
    format!(
        "        let session = match self.session_for({of}) {{\n            Ok(session) => session,\n            Err(status) => return status,\n        }};\n"
    )
}

/// Whether somebody writes the client's half.
fn by_hand(api: &Api, call: &Call) -> bool {
    call.manual_client || api.dialect().by_symbol && call.mode == Mode::Local
}

/// The request's field for a parameter.
fn field(api: &Api, call: &Call, param: &Param) -> Option<String> {
    let name = &param.name;
    Some(match &param.shape {
        Shape::Value { .. } => match &param.ty {
            Type::Handle(kind) if kind == "CUstream" => format!("{name}: session.stream({name})"),
            Type::Handle(_) => format!(
                "{name}: wire::{}::from_raw({name})",
                wire_element(api, &param.ty)
            ),
            Type::Struct(_) => format!(
                "{name}: wire::{}::from({name})",
                wire_element(api, &param.ty)
            ),
            _ => match room_of(call, name) {
                Some(unit) => format!(
                    "{name}: crate::raw::room({name} as u64, {unit}) as {}",
                    wire_element(api, &param.ty)
                ),
                None => format!("{name}: {name} as {}", wire_element(api, &param.ty)),
            },
        },
        Shape::Input {
            extent: Extent::Len(_) | Extent::List,
            nullable: true,
        } => {
            format!("{name}: {name}.as_deref().map(wire::List::Values)")
        }
        Shape::Input {
            extent: Extent::Len(_) | Extent::List,
            ..
        } => format!("{name}: wire::List::Values(&{name})"),
        Shape::Input { .. } => name.clone(),
        Shape::Output {
            creates: true,
            nullable,
            ..
        } => {
            let handle = wire_element(api, pointee(param));
            let mint = if handle == "EventHandle" && !api.dialect().creates_by_out {
                format!("self.mint_event({})", queue(call))
            } else {
                format!("wire::{handle}({}.mint(wire::{handle}::TAG))", sender(api))
            };
            if *nullable {
                format!("{name}: (!{name}.is_null()).then(|| {mint})")
            } else {
                format!("{name}: {mint}")
            }
        }
        Shape::Output { nullable: true, .. } => format!("want_{name}: !{name}.is_null()"),
        Shape::InOut { .. } if call.carries_inout() => format!("{name}: {name}_in"),
        _ => return None,
    })
}

/// Where a parameter says how much room the caller gives for an answer, the size of one element of that: a server makes as much room, so
/// that there is a limit.
fn room_of(call: &Call, name: &str) -> Option<String> {
    call.params.iter().find_map(|param| match &param.shape {
        Shape::Output {
            creates: false,
            extent: extent @ (Extent::Len(expr) | Extent::Bytes(expr)),
            ..
        } if expr.param.as_deref() == Some(name) => Some(match extent {
            Extent::Bytes(_) => "1".into(),
            _ => format!("size_of::<{}>()", pointee(param).rust()),
        }),
        _ => None,
    })
}

/// The number of the queue that the call enqueues to: what the session keeps of its event.
fn queue(call: &Call) -> String {
    let by_value = |param: &&Param| {
        matches!(param.shape, Shape::Value { .. })
            && matches!(&param.ty, Type::Handle(name) if name == "cl_command_queue")
    };
    match call.params.iter().find(by_value) {
        Some(param) => format!("{}.addr() as u64", param.name),
        None => "0".into(),
    }
}

/// What the session keeps of the objects that live: how each was made, until it ends.
fn remember(call: &Call) -> String {
    let mut out = String::new();
    if call.creates() {
        out.push_str("                self.made(request.created.0, &request);\n");
    }
    for param in &call.params {
        if matches!(param.shape, Shape::Value { destroys: true }) {
            let _ = writeln!(out, "                self.ended(request.{}.0);", param.name);
        }
    }
    out
}

/// The kernel whose arguments the answer depends on: a query of a kernel on a device or a queue.
fn asked_kernel<'a>(api: &Api, call: &'a Call) -> Option<&'a str> {
    let handle = |kind: &str| {
        call.params.iter().find(|param| {
            matches!(param.shape, Shape::Value { .. }) && param.ty == Type::Handle(kind.into())
        })
    };
    let kernel = handle("cl_kernel").filter(|_| !api.dialect().by_symbol)?;
    let place = handle("cl_device_id").or_else(|| handle("cl_command_queue"));
    place.map(|_| kernel.name.as_str())
}

/// Writes what the request minted into the caller's out parameters.
fn minted(call: &Call) -> String {
    let mut out = String::new();
    for param in &call.params {
        let Shape::Output {
            creates: true,
            nullable,
            ..
        } = &param.shape
        else {
            continue;
        };
        let name = &param.name;
        let value = if *nullable {
            "handle".to_string()
        } else {
            format!("request.{name}")
        };
        let open = if *nullable {
            format!("if let Some(handle) = request.{name} ")
        } else {
            String::new()
        };
        let _ = write!(
            out,
            "                {open}{{\n                    // SAFETY: the caller's contract: `{name}` is writable.\n                    unsafe {{ {name}.write({value}.to_raw()) }};\n                }}\n"
        );
    }
    out
}

/// Writes a reply's fields into the caller's out parameters, never past the room that the caller gave.
fn results(call: &Call) -> String {
    let mut out = String::new();
    for param in &call.params {
        let name = &param.name;
        match &param.shape {
            Shape::Output {
                creates: false,
                extent,
                ..
            } => {
                let (room, unit) = match extent {
                    Extent::Len(expr) | Extent::Bytes(expr) => {
                        (length(expr, |other| format!("({other} as usize)")), extent)
                    }
                    _ => ("1".to_string(), extent),
                };
                let target = pointee(param).rust();
                // What the reply holds is called `value` below; a parameter of that name steps aside.
                let (name, aside) = match name.as_str() {
                    "value" => ("place", "                let place = value;\n"),
                    other => (other, ""),
                };
                let copy = match unit {
                    Extent::Bytes(_) => format!(
                        "unsafe {{ crate::raw::fill({name}.cast::<u8>(), {room}, value.iter().copied()) }}"
                    ),
                    Extent::Len(_) => match pointee(param) {
                        Type::Struct(_) => format!(
                            "unsafe {{ crate::raw::fill({name}, {room}, value.iter().map(|value| value.to_raw())) }}"
                        ),
                        Type::Handle(_) => format!(
                            "unsafe {{ crate::raw::fill({name}, {room}, value.iter().map(|value| value.to_raw())) }}"
                        ),
                        _ => format!(
                            "unsafe {{ crate::raw::fill({name}, {room}, value.iter().map(|value| value as {target})) }}"
                        ),
                    },
                    _ if matches!(pointee(param), Type::Struct(_)) => format!(
                        "unsafe {{ crate::raw::fill({name}, 1, [value.to_raw()].into_iter()) }}"
                    ),
                    _ => format!(
                        "unsafe {{ crate::raw::fill({name}, 1, [value as {target}].into_iter()) }}"
                    ),
                };
                let _ = write!(
                    out,
                    "{aside}                if let Some(value) = reply.{} {{\n                    // SAFETY: the caller's contract: `{name}` is NULL or writable for its count, which `fill` does not exceed.\n                    {copy};\n                }}\n",
                    param.name
                );
            }
            Shape::InOut { .. } if call.carries_inout() => {
                let _ = write!(
                    out,
                    "                if let Some(value) = reply.{name} {{\n                    // SAFETY: the caller's contract: `{name}` is writable.\n                    unsafe {{ crate::raw::fill({name}, 1, [value.to_raw()].into_iter()) }};\n                }}\n"
                );
            }
            Shape::SizeOf => {
                let target = pointee(param).rust();
                let _ = write!(
                    out,
                    "                // SAFETY: the caller's contract: `{name}` is NULL or writable.\n                unsafe {{ crate::raw::fill({name}, 1, [reply.{name} as {target}].into_iter()) }};\n"
                );
            }
            _ => {}
        }
    }
    out
}

fn body(out: &mut String, api: &Api, call: &Call) {
    for param in &call.params {
        prepare(out, api, call, param);
    }
    let mut fields: Vec<String> = call
        .params
        .iter()
        .filter_map(|param| field(api, call, param))
        .collect();
    if call.creates() {
        fields.push(format!(
            "created: wire::{0}(self.mint(wire::{0}::TAG))",
            wire_element(api, &call.ret)
        ));
    }
    let _ = writeln!(
        out,
        "        let request = wire::{} {{ {} }};",
        call.message(),
        fields.join(", ")
    );
    let success = |out: &mut String| {
        if let Some(param) = errcode(call) {
            let _ = write!(
                out,
                "                // SAFETY: the caller's contract: `{0}` is NULL or writable.\n                unsafe {{ crate::raw::fill({0}, 1, [wire::{1}].into_iter()) }};\n",
                param.name,
                api.dialect().success
            );
        }
        match &call.ret {
            Type::Void => {}
            Type::Scalar(..) => {
                let _ = writeln!(out, "                wire::{}", api.dialect().success);
            }
            _ => out.push_str("                request.created.to_raw()\n"),
        }
    };
    if call.mode == Mode::Async {
        let _ = write!(
            out,
            "        match {}.post(&request) {{\n            Ok(()) => {{\n{}{}",
            sender(api),
            minted(call),
            remember(call)
        );
        success(out);
        let _ = write!(
            out,
            "            }}\n            Err(status) => {{\n            {}\n            }}\n        }}\n",
            leave(call, "status")
        );
    } else {
        if let Some(kernel) = asked_kernel(api, call) {
            let _ = writeln!(out, "        self.post_arguments({kernel});");
        }
        let _ = write!(
            out,
            "        match {}.call(&request) {{\n            Ok(body) => {{\n                let Ok(reply) = wire::{}Reply::decode(&body) else {{\n            {}\n                }};\n                let _ = &reply;\n{}{}",
            sender(api),
            call.message(),
            leave(call, &format!("{}.malformed()", sender(api))),
            minted(call),
            results(call)
        );
        success(out);
        let _ = write!(
            out,
            "            }}\n            Err(status) => {{\n            {}\n            }}\n        }}\n",
            leave(call, "status")
        );
    }
}

/// The hand-written method as its trait declares it, if there is one, and the method of the contract.
pub(super) fn method(api: &Api, call: &Call) -> (String, String) {
    let (mut manual, mut out) = (String::new(), String::new());
    if by_hand(api, call) && api.dialect().typed {
        return super::typed::method(api, call);
    }
    if by_hand(api, call) {
        let entered = match api.dialect().by_symbol {
            true => String::new(),
            false => enter(api, call),
        };
        let _ = write!(
            out,
            "    unsafe fn {0}(&self, {1}){2} {{\n{entered}        // SAFETY: the caller's contract, passed on.\n        unsafe {{ {4}::{0}(self, {3}) }}\n    }}\n",
            call.name,
            signature(call),
            returns(call),
            arguments(call),
            group_trait(call),
        );
        let _ = write!(
            manual,
            "    /// # Safety\n    /// The contract of the C function.\n    unsafe fn {}(&self, {}){};\n",
            call.name,
            signature(call),
            returns(call)
        );
    } else if call.travels() {
        let _ = writeln!(
            out,
            "    unsafe fn {}(&self, {}){} {{",
            call.name,
            signature(call),
            returns(call)
        );
        out.push_str(&enter(api, call));
        body(&mut out, api, call);
        out.push_str("    }\n");
    }
    (manual, out)
}

/// Emits the implementation and the traits of its hand-written methods.
pub fn emit(api: &Api, name: &str, implementor: &str) -> String {
    let mut out = format!(
        "#[allow(non_snake_case, clippy::too_many_arguments, clippy::unnecessary_cast, clippy::needless_return, unused_braces, unused_parens)]\nimpl {name} for {implementor} {{\n"
    );
    let mut manual: BTreeMap<String, String> = BTreeMap::new();
    for call in api
        .calls
        .iter()
        .filter(|call| call.exported() && call.served())
    {
        let (declared, implemented) = method(api, call);
        if !declared.is_empty() {
            *manual.entry(group_trait(call)).or_default() += &declared;
        }
        out.push_str(&implemented);
    }
    out.push_str("}\n");
    for (name, methods) in manual {
        let _ = write!(
            out,
            "\n/// The calls whose client half is written by hand; a missing one does not compile.\n#[allow(non_snake_case, clippy::too_many_arguments)]\npub(crate) trait {name} {{\n{methods}}}\n"
        );
    }
    out
}
