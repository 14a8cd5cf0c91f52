//! The API's own types and constants, and the handle newtypes of the wire.

use std::fmt::Write;

use super::{wire_element, wire_struct};
use crate::model::{Api, Prim, Struct, Type};

/// Longest array that has a default.
const DEFAULT_ARRAY: usize = 32;

/// The traits that a structure of the C API can derive beside `Debug`, `Clone` and `Copy`.
fn derived(structure: &Struct) -> &'static str {
    let all = |of: &dyn Fn(&Type) -> bool| structure.fields.iter().all(|(_, ty)| of(ty));
    let scalar = |ty: &Type| matches!(ty, Type::Scalar(_, prim) if !is_float(*prim));
    let counted = |ty: &Type| match ty {
        Type::Array(of, len) => *len <= DEFAULT_ARRAY && scalar(of),
        ty => scalar(ty),
    };
    if all(&counted) {
        ", Default, PartialEq, Eq"
    } else if all(&|ty| scalar(ty) || matches!(ty, Type::Handle(_) | Type::Pointer { .. })) {
        ", PartialEq, Eq"
    } else {
        ""
    }
}

fn is_float(prim: Prim) -> bool {
    matches!(prim, Prim::F32 | Prim::F64)
}

/// Whether a value holds a floating-point number somewhere.
fn has_float(api: &Api, ty: &Type) -> bool {
    match ty {
        Type::Scalar(_, prim) => is_float(*prim),
        Type::Array(of, _) => has_float(api, of),
        Type::Struct(name) => api
            .structure(name)
            .is_some_and(|inner| inner.fields.iter().any(|(_, ty)| has_float(api, ty))),
        _ => false,
    }
}

/// A field's value as it travels, and back: the expressions.
fn converted(api: &Api, field: &str, ty: &Type) -> (String, String) {
    let element = wire_element(api, ty);
    match ty {
        Type::Handle(_) => (
            format!("{element}::from_raw(value.{field})"),
            format!("self.{field}.to_raw()"),
        ),
        Type::Struct(_) => (
            format!("{element}::from(value.{field})"),
            format!("self.{field}.to_raw()"),
        ),
        Type::Array(of, _) => (
            format!(
                "value.{field}.map(|item| item as {})",
                wire_element(api, of)
            ),
            format!("self.{field}.map(|item| item as {})", of.rust()),
        ),
        other => (
            format!("value.{field} as {element}"),
            format!("self.{field} as {}", other.rust()),
        ),
    }
}

/// Emits types, constants, handle newtypes and wire structures.
pub fn emit(api: &Api) -> String {
    let mut out = String::from("pub use std::ffi::{c_char, c_void};\n");
    for (name, target) in &api.alias_items {
        let _ = writeln!(out, "/// Scalar `{name}`.\npub type {name} = {target};");
    }
    for handle in &api.handles {
        let (name, opaque, wire) = (&handle.name, format!("_{}", handle.name), handle.wire());
        let _ = write!(
            out,
            "/// What a `{name}` points to.\n#[repr(C)]\npub struct {opaque} {{ _opaque: [usize; 0] }}\n\
             /// Handle `{name}` as the C API has it.\npub type {name} = *mut {opaque};\n\
             /// `{name}` on the wire: a number that the client chose; 0 is NULL.\n\
             #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]\npub struct {wire}(pub u64);\n\
             impl {wire} {{\n    /// Number of the handle kind.\n    pub const TAG: u8 = {tag};\n\
             \x20   /// The handle whose bits an application's pointer holds.\n    pub fn from_raw(raw: {name}) -> Self {{ Self(raw.addr() as u64) }}\n\
             \x20   /// The pointer that stands for it on the client.\n    pub fn to_raw(self) -> {name} {{ std::ptr::without_provenance_mut(self.0 as usize) }}\n}}\n\
             impl Scalar for {wire} {{\n    const WIDTH: usize = 8;\n    #[inline]\n    fn put(self, out: &mut Vec<u8>) {{ self.0.put(out) }}\n\
             \x20   #[inline]\n    fn take(bytes: &[u8]) -> Self {{ Self(u64::take(bytes)) }}\n}}\n",
            tag = handle.tag,
        );
    }
    for (name, target) in &api.functions {
        let _ = writeln!(
            out,
            "/// A function of the application, `{name}`.\npub type {name} = {target};"
        );
    }
    for structure in &api.structs {
        c_structure(&mut out, structure);
        if api.travels(&structure.name) {
            wire_structure(&mut out, api, structure);
        }
    }
    for (name, ty, value) in &api.constants {
        let _ = writeln!(
            out,
            "/// Constant `{name}`.\npub const {name}: {ty} = {value};"
        );
    }
    let _ = writeln!(
        out,
        "/// The constant that an error code has as its name.\npub fn status_name(status: i32) -> Option<&'static str> {{"
    );
    out.push_str("    Some(match status {\n");
    let mut seen = std::collections::BTreeSet::new();
    let mut texts = String::new();
    for (name, ty, value) in &api.constants {
        // The error codes are the negative numbers of the status type, and success.
        let value = value.replace(' ', "");
        let dialect = api.dialect();
        let is_status = ty == dialect.status
            && (dialect.by_symbol || value.starts_with('-') || name == dialect.success);
        if is_status && seen.insert(value.clone()) {
            let _ = writeln!(out, "        {value} => \"{name}\",");
            if let Some(text) = api.texts.get(name) {
                let _ = writeln!(texts, "        {value} => c\"{text}\",");
            }
        }
    }
    out.push_str("        _ => return None,\n    })\n}\n");
    if !texts.is_empty() {
        let _ = write!(
            out,
            "/// What an error says.\npub fn status_text(status: i32) -> Option<&'static std::ffi::CStr> {{\n    Some(match status {{\n{texts}        _ => return None,\n    }})\n}}\n"
        );
    }
    out
}

/// A structure or union as C has it.
fn c_structure(out: &mut String, structure: &Struct) {
    let name = &structure.name;
    let layout = match structure.align {
        Some(align) => format!("C, align({align})"),
        None => "C".into(),
    };
    let (word, keyword) = if structure.union {
        ("Union", "union")
    } else {
        ("Structure", "struct")
    };
    let derive = if structure.union {
        "Clone, Copy".to_owned()
    } else {
        format!("Debug, Clone, Copy{}", derived(structure))
    };
    let _ = writeln!(
        out,
        "/// {word} `{name}` as the C API has it.\n#[repr({layout})]\n#[derive({derive})]\npub {keyword} {name} {{"
    );
    for (field, ty) in &structure.fields {
        let _ = writeln!(
            out,
            "    /// Field `{field}`.\n    pub {field}: {},",
            ty.rust()
        );
    }
    out.push_str("}\n");
    if structure.union {
        // Which of its fields it holds, only the structure around it says.
        let _ = writeln!(
            out,
            "impl std::fmt::Debug for {name} {{\n    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{ f.write_str(\"{name} {{ .. }}\") }}\n}}"
        );
    }
}

/// A structure as it travels, field by field.
fn wire_structure(out: &mut String, api: &Api, structure: &Struct) {
    let (name, wire) = (&structure.name, wire_struct(&structure.name));
    let plain = |ty: &Type| matches!(ty, Type::Scalar(..) | Type::Handle(_));
    let default = match structure.fields.iter().all(|(_, ty)| plain(ty)) {
        true => ", Default",
        false => "",
    };
    let eq = match structure.fields.iter().any(|(_, ty)| has_float(api, ty)) {
        true => "",
        false => ", Eq",
    };
    let _ = writeln!(
        out,
        "/// `{name}` on the wire.\n#[derive(Debug, Clone, Copy{default}, PartialEq{eq})]\npub struct {wire} {{"
    );
    let mut width = Vec::new();
    let (mut put, mut take, mut from, mut into) =
        (String::new(), String::new(), String::new(), String::new());
    for (field, ty) in &structure.fields {
        let element = wire_element(api, ty);
        let _ = writeln!(out, "    /// Field `{field}`.\n    pub {field}: {element},");
        let start = if width.is_empty() {
            "0".to_string()
        } else {
            width.join(" + ")
        };
        width.push(format!("<{element} as Scalar>::WIDTH"));
        let end = width.join(" + ");
        let (out_of, back) = converted(api, field, ty);
        let _ = write!(put, "self.{field}.put(out); ");
        let _ = write!(take, "{field}: Scalar::take(&bytes[{start}..{end}]), ");
        let _ = write!(from, "{field}: {out_of}, ");
        let _ = write!(into, "{field}: {back}, ");
    }
    let _ = write!(
        out,
        "}}\nimpl Scalar for {wire} {{\n    const WIDTH: usize = {};\n    fn put(self, out: &mut Vec<u8>) {{ {put}}}\n\
         \x20   fn take(bytes: &[u8]) -> Self {{ Self {{ {take}}} }}\n}}\n\
         impl From<{name}> for {wire} {{\n    fn from(value: {name}) -> Self {{ Self {{ {from}}} }}\n}}\n\
         impl {wire} {{\n    /// As the C API has it; handles keep their numbers.\n    pub fn to_raw(self) -> {name} {{ {name} {{ {into}}} }}\n}}\n",
        width.join(" + "),
    );
}
