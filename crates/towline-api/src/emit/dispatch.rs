//! The server's half: from a decoded request to the backend's call, with client-minted numbers turned into native handles.

use std::fmt::Write;

use super::{errcode, length, pointee, wire_element};
use crate::model::{Api, Call, Extent, Mode, Param, Shape, Type};

/// Breaks off with a status when a handle cannot be used.
fn resolve(handle: &str, value: &str) -> String {
    format!(
        "match self.native({value}.0, wire::{handle}::TAG)? {{ Ok(raw) => raw.cast(), Err(status) => break 'call status }}"
    )
}

/// The native kernel of a call that nobody waits for and that uses its arguments: breaks off when one of them could not be set.
fn resolve_with_arguments(value: &str) -> String {
    format!(
        "match self.native_with_arguments({value}.0)? {{ Ok(raw) => raw.cast(), Err(status) => break 'call status }}"
    )
}

/// The request's field that names the queue whose next wait reports a failure.
fn queue(call: &Call) -> Option<&Param> {
    call.params.iter().find(|param| {
        matches!(param.shape, Shape::Value { destroys: false })
            && param.ty == Type::Handle("cl_command_queue".into())
    })
}

fn prepare(out: &mut String, api: &Api, call: &Call, param: &Param) {
    let name = &param.name;
    match &param.shape {
        Shape::Value { destroys: false }
            if call.mode == Mode::Async && param.ty == Type::Handle("cl_kernel".into()) =>
        {
            let value = format!("request.{name}");
            let _ = writeln!(
                out,
                "            let {name}: cl_kernel = {};",
                resolve_with_arguments(&value)
            );
        }
        Shape::InOut { .. } if call.carries_inout() => {
            let target = pointee(param).rust();
            let _ = write!(
                out,
                "            if request.{name}.version & 0x00ff_ffff != size_of::<{target}>() as u32 {{ break 'call wire::{} }}\n            {name} = request.{name}.to_raw();\n",
                api.dialect().version_mismatch
            );
        }
        Shape::Value { .. } => {
            if let Type::Handle(raw) = &param.ty {
                let _ = writeln!(
                    out,
                    "            let {name}: {raw} = {};",
                    resolve(&wire_element(api, &param.ty), &format!("request.{name}"))
                );
            }
        }
        Shape::Input { extent, nullable } => {
            let element = wire_element(api, pointee(param));
            let target = pointee(param).rust();
            match (extent, pointee(param)) {
                (Extent::Len(_), Type::Handle(_)) => {
                    let _ = write!(
                        out,
                        "            let mut {name} = smallvec::SmallVec::<[{target}; 8]>::new();\n            {open}\n                for handle in list.iter() {{\n                    {name}.push({});\n                }}\n            }}\n",
                        resolve(&element, "handle"),
                        open = if *nullable {
                            format!("if let Some(list) = &request.{name} {{")
                        } else {
                            format!("{{ let list = &request.{name};")
                        },
                    );
                }
                (Extent::Len(_) | Extent::List, ty) => {
                    let convert = if matches!(ty, Type::Struct(_)) {
                        "value.to_raw()".to_string()
                    } else {
                        format!("value as {target}")
                    };
                    let tail = if *extent == Extent::List {
                        ".chain([0])"
                    } else {
                        ""
                    };
                    let list = if *nullable {
                        format!("request.{name}.iter().flat_map(|list| list.iter())")
                    } else {
                        format!("request.{name}.iter()")
                    };
                    let _ = writeln!(
                        out,
                        "            let {name}: smallvec::SmallVec<[{target}; 8]> = {list}.map(|value| {convert}){tail}.collect();"
                    );
                }
                (Extent::CStr, _) => {
                    let value = if *nullable {
                        format!("request.{name}")
                    } else {
                        format!("Some(request.{name})")
                    };
                    let _ = writeln!(out, "            let {name} = {value}.map(c_string);");
                }
                (Extent::Bytes(_), _) => {
                    let value = if *nullable {
                        format!("request.{name}.map(aligned)")
                    } else {
                        format!("aligned(request.{name})")
                    };
                    let _ = writeln!(out, "            let {name} = {value};");
                }
                (Extent::One, Type::Struct(raw)) => {
                    let structure = api.structure(raw);
                    let optional = if *nullable {
                        format!("request.{name}")
                    } else {
                        format!("Some(request.{name})")
                    };
                    let _ = write!(
                        out,
                        "            let {name} = match {optional} {{\n                None => None,\n                Some(value) => {{\n                    #[allow(unused_mut)]\n                    let mut raw = value.to_raw();\n"
                    );
                    for (field, ty) in structure
                        .map(|structure| structure.fields.as_slice())
                        .unwrap_or_default()
                    {
                        if matches!(ty, Type::Handle(_)) {
                            let _ = writeln!(
                                out,
                                "                    if value.{field}.0 != 0 {{ raw.{field} = {}; }}",
                                resolve(&wire_element(api, ty), &format!("value.{field}"))
                            );
                        }
                    }
                    out.push_str(
                        "                    Some(raw)\n                }\n            };\n",
                    );
                }
                (Extent::One, Type::Scalar(..)) => {
                    let optional = if *nullable {
                        format!("request.{name}")
                    } else {
                        format!("Some(request.{name})")
                    };
                    let _ = writeln!(
                        out,
                        "            let {name} = {optional}.map(|value| value as {target});"
                    );
                }
                _ => {}
            }
        }
        Shape::Output {
            creates: false,
            extent,
            nullable,
            ..
        } => {
            let target = pointee(param).rust();
            let want = if *nullable {
                format!("request.want_{name}")
            } else {
                "true".into()
            };
            match extent {
                Extent::Bytes(expr) | Extent::Len(expr) => {
                    let count = length(expr, |other| format!("(request.{other} as u64)"));
                    let unit = if matches!(extent, Extent::Bytes(_)) {
                        "u8".to_string()
                    } else {
                        target
                    };
                    let _ = writeln!(
                        out,
                        "            {name} = if {want} {{ room::<{unit}>({count})? }} else {{ Vec::new() }};"
                    );
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn argument(api: &Api, call: &Call, param: &Param) -> String {
    let name = &param.name;
    match &param.shape {
        Shape::Value { .. } => match &param.ty {
            Type::Handle(_) => name.clone(),
            Type::Struct(_) => format!("request.{name}.to_raw()"),
            other => format!("request.{name} as {}", other.rust()),
        },
        Shape::Input { extent, nullable } => {
            let cast = if matches!(param.ty, Type::Pointer { mutable: true, .. }) {
                ".cast_mut()"
            } else {
                ""
            };
            let pointer = match extent {
                Extent::One => {
                    format!("{name}.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)")
                }
                Extent::CStr => {
                    format!("{name}.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())")
                }
                Extent::Bytes(_) if *nullable => format!(
                    "{name}.as_ref().map_or(std::ptr::null::<{}>(), |words| words.as_ptr().cast())",
                    pointee(param).rust()
                ),
                Extent::Bytes(_) if !cast.is_empty() => {
                    format!("{name}.as_ptr().cast::<{}>()", pointee(param).rust())
                }
                Extent::Bytes(_) => format!("{name}.as_ptr().cast()"),
                Extent::Len(_) | Extent::List if *nullable => {
                    // An empty list is NULL to the native call too: several vendors refuse a pointer beside a zero count.
                    let none = if *extent == Extent::List {
                        format!("request.{name}.is_none()")
                    } else {
                        format!("{name}.is_empty()")
                    };
                    format!("if {none} {{ std::ptr::null() }} else {{ {name}.as_ptr() }}")
                }
                _ => format!("{name}.as_ptr()"),
            };
            format!("({pointer}){cast}")
        }
        Shape::Output {
            creates: true,
            nullable,
            ..
        } => {
            if *nullable {
                let asked = format!("request.{name}.is_some()");
                let wanted = match api.dialect().creates_by_out {
                    true => asked,
                    false => format!("self.wants_event({asked})"),
                };
                format!("if {wanted} {{ &raw mut {name}_native }} else {{ std::ptr::null_mut() }}")
            } else {
                format!("&raw mut {name}_native")
            }
        }
        Shape::Output {
            extent, nullable, ..
        } => {
            let pointer = match extent {
                Extent::Bytes(_) => format!("{name}.as_mut_ptr().cast()"),
                Extent::Len(_) => format!("{name}.as_mut_ptr()"),
                _ => format!("&raw mut {name}"),
            };
            if *nullable {
                format!("if request.want_{name} {{ {pointer} }} else {{ std::ptr::null_mut() }}")
            } else {
                pointer
            }
        }
        Shape::InOut { .. } if call.carries_inout() => format!("&raw mut {name}"),
        Shape::SizeOf => format!("&raw mut {name}"),
        Shape::ErrCode => format!("&raw mut {name}"),
        Shape::Callback => "None".into(),
        Shape::UserData | Shape::Local | Shape::InOut { .. } => "std::ptr::null_mut()".into(),
    }
}

fn locals(out: &mut String, api: &Api, call: &Call) {
    for param in &call.params {
        let name = &param.name;
        let target = pointee(param).rust();
        let _ = match &param.shape {
            Shape::Output { creates: true, .. } => writeln!(
                out,
                "        let mut {name}_native: {target} = std::ptr::null_mut();"
            ),
            Shape::Output {
                extent: Extent::Bytes(_),
                ..
            } => writeln!(out, "        let mut {name}: Vec<u8> = Vec::new();"),
            Shape::Output {
                extent: Extent::Len(_),
                ..
            } => writeln!(out, "        let mut {name}: Vec<{target}> = Vec::new();"),
            Shape::Output { .. } | Shape::InOut { .. }
                if matches!(pointee(param), Type::Struct(_)) =>
            {
                // Zeros, whatever the structure derives.
                let wire = format!("wire::{}", wire_element(api, pointee(param)));
                writeln!(
                    out,
                    "        let mut {name}: {target} = <{wire} as wire::Scalar>::take(&[0; <{wire} as wire::Scalar>::WIDTH]).to_raw();"
                )
            }
            Shape::Output { .. } | Shape::SizeOf | Shape::ErrCode => writeln!(
                out,
                "        let mut {name}: {target} = Default::default();"
            ),
            _ => Ok(()),
        };
    }
    if call.creates() {
        let _ = writeln!(
            out,
            "        let mut created: {} = std::ptr::null_mut();",
            call.ret.rust()
        );
    }
}

fn reply(api: &Api, call: &Call) -> String {
    let mut fields = Vec::new();
    for param in &call.params {
        let name = &param.name;
        match &param.shape {
            Shape::Output {
                creates: false,
                extent,
                nullable,
                actual,
                ..
            } => {
                let want = if *nullable {
                    format!("request.want_{name}")
                } else {
                    "true".into()
                };
                let count = match actual {
                    Some(actual) => format!("reported({name}.len(), {actual} as u64)"),
                    None => format!("{name}.len()"),
                };
                fields.push(match extent {
                    Extent::Bytes(_) => format!("{name}: {want}.then(|| {name}.get(..{count}).unwrap_or_default())"),
                    Extent::Len(_) => {
                        let element = wire_element(api, pointee(param));
                        let convert = match pointee(param) {
                            Type::Struct(_) => format!("wire::{element}::from(value)"),
                            _ => format!("value as {element}"),
                        };
                        format!("{name}: {want}.then_some(wire::List::Values(&{name}.iter().take({count}).map(|&value| {convert}).collect::<Vec<_>>()))")
                    }
                    _ if matches!(pointee(param), Type::Struct(_)) => format!("{name}: {want}.then(|| wire::{}::from({name}))", wire_element(api, pointee(param))),
                    _ => format!("{name}: {want}.then_some({name} as {})", wire_element(api, pointee(param))),
                });
            }
            Shape::InOut { .. } if call.carries_inout() => fields.push(format!(
                "{name}: Some(wire::{}::from({name}))",
                wire_element(api, pointee(param))
            )),
            Shape::SizeOf => fields.push(format!("{name}: {name} as u64")),
            _ => {}
        }
    }
    format!("wire::{}Reply {{ {} }}", call.message(), fields.join(", "))
}

fn body(out: &mut String, api: &Api, call: &Call) {
    locals(out, api, call);
    let _ = writeln!(out, "        let status = 'call: {{");
    for param in &call.params {
        prepare(out, api, call, param);
    }
    if call.params.iter().any(|param| param.name == "param_name") {
        let _ = writeln!(
            out,
            "            if withheld(request.param_name) {{ break 'call wire::{} }}",
            api.dialect().invalid_value
        );
    }
    let arguments = call
        .params
        .iter()
        .map(|param| argument(api, call, param))
        .collect::<Vec<_>>()
        .join(", ");
    let invoke = format!("unsafe {{ self.api.{}({arguments}) }}", call.name);
    let safety = "// SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.";
    if call.creates() {
        let error = errcode(call)
            .map(|param| param.name.clone())
            .unwrap_or_default();
        let _ = write!(
            out,
            "            {safety}\n            created = {invoke};\n            {error}\n"
        );
    } else if call.ret == Type::Void {
        let _ = write!(
            out,
            "            {safety}\n            {invoke};\n            wire::{}\n",
            api.dialect().success
        );
    } else {
        let _ = write!(out, "            {safety}\n            {invoke}\n");
    }
    out.push_str("        };\n");
    for param in &call.params {
        let name = &param.name;
        match &param.shape {
            Shape::Output {
                creates: true,
                nullable,
                ..
            } => {
                let handle = if *nullable {
                    format!("request.{name}")
                } else {
                    format!("Some(request.{name})")
                };
                let _ = if *nullable && !api.dialect().creates_by_out {
                    writeln!(
                        out,
                        "        self.enqueued({handle}, {name}_native, status)?;"
                    )
                } else if api.dialect().creates_by_out {
                    let kind = wire_element(api, pointee(param));
                    writeln!(
                        out,
                        "        if let Some(handle) = {handle} {{ self.born(handle.0, wire::{kind}::TAG, {name}_native.cast(), status)?; }}"
                    )
                } else {
                    writeln!(
                        out,
                        "        self.born_event({handle}, {name}_native, status)?;"
                    )
                };
            }
            Shape::Value { destroys: true } => {
                let _ = writeln!(
                    out,
                    "        self.destroy(request.{name}.0, wire::{}::TAG)?;",
                    wire_element(api, &param.ty)
                );
            }
            _ => {}
        }
    }
    if call.creates() {
        let _ = writeln!(
            out,
            "        self.born(request.created.0, wire::{}::TAG, created.cast(), status)?;",
            wire_element(api, &call.ret)
        );
    }
    if call.mode == Mode::Sync {
        let _ = writeln!(
            out,
            "        self.reply(number, status, &{});",
            reply(api, call)
        );
    } else if let Some(Param { name, .. }) = queue(call) {
        let _ = writeln!(
            out,
            "        self.settle_on(number, {:#06x}, request.{name}.0, status);",
            call.id
        );
    } else {
        let _ = writeln!(
            out,
            "        self.settle(number, {:#06x}, status);",
            call.id
        );
    }
    out.push_str("        Ok(())\n");
}

/// The dispatcher's arm for the call, and the methods that it leads to, less what is written by hand.
pub(super) fn method(api: &Api, call: &Call) -> (String, String) {
    let (name, id) = (call.message(), call.id);
    let arm = format!("            {id:#06x} => self.take_{name}(number, body),\n");
    // A method of this name in the worker's `manual` modules, where it is written by hand: forgetting it does not compile.
    let carries_out = match call.manual_server {
        true => call.name.clone(),
        false => format!("on_{}", call.name),
    };
    // Apart from the others: one function that decodes every message would need kilobytes of stack for each.
    let mut methods = format!(
        "    #[inline(never)]\n    fn take_{name}(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {{\n\
         \x20       self.{carries_out}(number, wire::{name}::decode(body)?)\n    }}\n"
    );
    if !call.manual_server {
        let _ = writeln!(
            methods,
            "    fn {carries_out}(&mut self, number: u64, request: wire::{name}{}) -> Result<(), ProtocolError> {{",
            if lends(call) { "<'_>" } else { "" }
        );
        body(&mut methods, api, call);
        methods.push_str("    }\n");
    }
    (arm, methods)
}

/// Emits the dispatcher; requests with a hand-written half go to the method of the call's name.
pub fn emit(api: &Api) -> String {
    let mut arms = String::new();
    let mut methods = String::new();
    let served = |call: &&Call| call.travels() && call.served();
    for call in api.calls.iter().filter(served) {
        let (arm, method) = method(api, call);
        arms.push_str(&arm);
        methods.push_str(&method);
    }
    format!(
        "#[allow(non_snake_case, unused_assignments, unused_braces, unused_labels, unused_parens, unused_mut, unused_variables, clippy::unnecessary_cast, clippy::double_parens, clippy::nonminimal_bool)]\n\
         impl Session {{\n    /// Carries out one request.\n    pub(super) fn dispatch(&mut self, number: u64, id: u16, body: &[u8]) -> Result<(), ProtocolError> {{\n        match id {{\n{arms}            other => Err(ProtocolError::new(CloseCode::UnknownCall, format!(\"call {{other:#06x}}\"))),\n        }}\n    }}\n{methods}}}\n"
    )
}

/// Whether the request borrows from the frame.
fn lends(call: &Call) -> bool {
    call.params
        .iter()
        .any(|param| matches!(&param.shape, Shape::Input { extent, .. } if *extent != Extent::One))
}
