//! One file per thing that is generated. Emitters write text, not tokens: generated `unsafe` blocks carry their SAFETY comments like
//! any other code here.

pub mod backend;
pub mod codec;
pub mod coverage;
pub mod dispatch;
pub mod remote;
pub mod stub;
pub mod types;

use crate::model::{Api, Call, Expr, Param, Shape, Type};

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
        other => other.rust(),
    }
}

/// `cl_image_desc` travels as `ImageDesc`.
fn wire_struct(name: &str) -> String {
    crate::model::camel(name.strip_prefix("cl_").unwrap_or(name))
}

/// The parameter that receives the status of a creating call.
fn errcode(call: &Call) -> Option<&Param> {
    call.params
        .iter()
        .find(|param| param.shape == Shape::ErrCode)
}
