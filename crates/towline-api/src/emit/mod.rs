//! One file per thing that is generated. Emitters write text, not tokens: generated `unsafe` blocks carry their SAFETY comments like
//! any other code here.

pub mod backend;
pub mod codec;
mod command;
pub mod coverage;
pub mod dispatch;
pub mod export;
pub mod nccl;
pub mod remote;
pub mod runtime;
pub mod stub;
pub mod symbols;
mod typed;
pub mod types;

use crate::model::{Api, Call, Expr, Param, Shape, Type};

/// Beginning of the names by which the driver library exports the functions of libraries that are jumps to it.
const DRIVER_PREFIX: &str = "towline_";

/// Everything that is generated for one call, for people to read: `cargo xtask api show` and the golden files.
pub fn show(api: &Api, call: &Call) -> String {
    let mut out = String::new();
    let mut section = |title: &str, code: String| {
        if !code.is_empty() {
            out.push_str(&format!("// ---- {title}\n\n{}\n\n", code.trim_end()));
        }
    };
    if call.exported() {
        if api.dialect().by_symbol {
            section("the C ABI (export)", export::functions(api, call));
            if api.dialect().by_version {
                section("its symbols (symbols)", symbols::entries(api, call));
            }
        } else {
            section("the C ABI (stub)", stub::function(call));
        }
        section("the contract (backend)", backend::trait_method(call));
    }
    if call.exported() && !call.unsupported {
        if !api.dialect().by_symbol {
            let (declared, implemented) = stub::platform_method(call);
            section("the platform's method to write (stub)", declared);
            section("the platform's glue (stub)", implemented);
        }
        let (declared, implemented) = remote::method(api, call);
        section("the session's method to write (remote)", declared);
        section("the session's half (remote)", implemented);
        let (declared, implemented) = backend::native_method(api, call);
        section("the vendors' method to write (backend)", declared);
        section("the vendors' half (backend)", implemented);
        if let Some(command) = command::Command::of(call) {
            let frame = command.enqueue("self", "");
            section("a device with queues of its own (command)", frame);
            let method = command.serial_method();
            section("passed to a serial vendor as it is (command)", method);
        }
    }
    if call.travels() {
        section("the messages (codec)", codec::messages(api, call));
        let (arm, method) = dispatch::method(api, call);
        section("the worker's half (dispatch)", arm + &method);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Documentation in front of a generated method: the call's own line.
fn doc(call: &Call, indent: &str) -> String {
    format!("{indent}/// {}\n", call.doc)
}

/// `name: type, ..` as the trait and the C ABI have them.
fn signature(call: &Call) -> String {
    call.params
        .iter()
        .map(|param| format!("{}: {}", param.name, param.ty.rust()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The names of the parameters, in order.
fn arguments(call: &Call) -> String {
    call.params
        .iter()
        .map(|param| param.name.clone())
        .collect::<Vec<_>>()
        .join(", ")
}

/// ` -> type`, or nothing.
fn returns(call: &Call) -> String {
    if call.ret == Type::Void {
        String::new()
    } else {
        format!(" -> {}", call.ret.rust())
    }
}

/// The trait of the hand-written methods that the call's belongs to, by the file that declares it.
fn group_trait(call: &Call) -> String {
    format!("{}Calls", crate::model::camel(&call.group))
}

/// What a pointer parameter points to.
fn pointee(param: &Param) -> &Type {
    match &param.ty {
        Type::Pointer { to, .. } => to,
        other => other,
    }
}

/// The value of a length expression as `u64`, given how a parameter is spelled.
fn length(expr: &Expr, spell: impl Fn(&str) -> String) -> String {
    match &expr.param {
        None => expr.factor.to_string(),
        Some(param) if expr.less > 0 => format!("{}.saturating_sub({})", spell(param), expr.less),
        Some(param) if expr.factor == 1 => spell(param),
        Some(param) => format!("{}.saturating_mul({})", spell(param), expr.factor),
    }
}

/// The type of one element on the wire.
fn wire_element(api: &Api, ty: &Type) -> String {
    match ty {
        Type::Scalar(_, prim) => prim.wire().into(),
        Type::Handle(name) => api
            .handle(name)
            .map(|handle| handle.wire())
            .unwrap_or_default(),
        Type::Struct(name) => wire_struct(name),
        Type::Char | Type::Void => "u8".into(),
        Type::Array(of, len) => format!("[{}; {len}]", wire_element(api, of)),
        other => other.rust(),
    }
}

/// `cl_image_desc` travels as `ImageDesc`, `CUDA_ARRAY3D_DESCRIPTOR` as `Array3dDescriptor`, `nvmlMemory_v2_t` as `MemoryV2`.
fn wire_struct(name: &str) -> String {
    if let Some(shouted) = name.strip_prefix("CUDA_") {
        return crate::model::camel(&shouted.to_lowercase());
    }
    let short = name.strip_prefix("cl_");
    let short = short.or_else(|| name.strip_prefix("CU"));
    if let Some(short) = name.strip_prefix("nvml") {
        return crate::model::camel(short.strip_suffix("_t").unwrap_or(short));
    }
    crate::model::camel(short.unwrap_or(name))
}

/// The parameter that receives the status of a creating call.
fn errcode(call: &Call) -> Option<&Param> {
    call.params
        .iter()
        .find(|param| param.shape == Shape::ErrCode)
}
