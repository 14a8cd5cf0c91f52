//! The API's own types and constants, and the handle newtypes of the wire.

use std::fmt::Write;

use super::{wire_element, wire_struct};
use crate::model::{Api, Type};

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
             impl Scalar for {wire} {{\n    const WIDTH: usize = 8;\n    fn put(self, out: &mut Vec<u8>) {{ self.0.put(out) }}\n\
             \x20   fn take(bytes: &[u8]) -> Self {{ Self(u64::take(bytes)) }}\n}}\n",
            tag = handle.tag,
        );
    }
    for structure in &api.structs {
        let derive = if structure
            .fields
            .iter()
            .any(|(_, ty)| matches!(ty, Type::Array(..)))
        {
            ""
        } else if structure
            .fields
            .iter()
            .all(|(_, ty)| matches!(ty, Type::Scalar(..)))
        {
            ", Default, PartialEq, Eq"
        } else {
            ", PartialEq, Eq"
        };
        let _ = writeln!(
            out,
            "/// Structure `{name}` as the C API has it.\n#[repr(C)]\n#[derive(Debug, Clone, Copy{derive})]\npub struct {name} {{",
            name = structure.name
        );
        for (field, ty) in &structure.fields {
            let _ = writeln!(
                out,
                "    /// Field `{field}`.\n    pub {field}: {},",
                ty.rust()
            );
        }
        out.push_str("}\n");
        if !structure
            .fields
            .iter()
            .all(|(_, ty)| matches!(ty, Type::Scalar(..) | Type::Handle(_)))
        {
            continue;
        }
        let wire = wire_struct(&structure.name);
        let _ = writeln!(
            out,
            "/// `{}` on the wire.\n#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]\npub struct {wire} {{",
            structure.name
        );
        for (field, ty) in &structure.fields {
            let _ = writeln!(
                out,
                "    /// Field `{field}`.\n    pub {field}: {},",
                wire_element(api, ty)
            );
        }
        let mut width = Vec::new();
        let (mut put, mut take, mut from, mut into) =
            (String::new(), String::new(), String::new(), String::new());
        for (field, ty) in &structure.fields {
            let element = wire_element(api, ty);
            let start = if width.is_empty() {
                "0".to_string()
            } else {
                width.join(" + ")
            };
            width.push(format!("<{element} as Scalar>::WIDTH"));
            let end = width.join(" + ");
            let _ = write!(put, "self.{field}.put(out); ");
            let _ = write!(take, "{field}: Scalar::take(&bytes[{start}..{end}]), ");
            match ty {
                Type::Handle(_) => {
                    let _ = write!(from, "{field}: {element}::from_raw(value.{field}), ");
                    let _ = write!(into, "{field}: self.{field}.to_raw(), ");
                }
                Type::Scalar(name, _) => {
                    let _ = write!(from, "{field}: value.{field} as {element}, ");
                    let _ = write!(into, "{field}: self.{field} as {name}, ");
                }
                _ => {}
            }
        }
        let _ = write!(
            out,
            "}}\nimpl Scalar for {wire} {{\n    const WIDTH: usize = {};\n    fn put(self, out: &mut Vec<u8>) {{ {put}}}\n\
             \x20   fn take(bytes: &[u8]) -> Self {{ Self {{ {take}}} }}\n}}\n\
             impl From<{name}> for {wire} {{\n    fn from(value: {name}) -> Self {{ Self {{ {from}}} }}\n}}\n\
             impl {wire} {{\n    /// As the C API has it; handles keep their numbers.\n    pub fn to_raw(self) -> {name} {{ {name} {{ {into}}} }}\n}}\n",
            width.join(" + "),
            name = structure.name,
        );
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
    for (name, ty, value) in &api.constants {
        // The error codes are the negative numbers of the status type, and success.
        let value = value.replace(' ', "");
        let is_status = ty == "cl_int" && (value.starts_with('-') || name == "CL_SUCCESS");
        if is_status && seen.insert(value.clone()) {
            let _ = writeln!(out, "        {value} => \"{name}\",");
        }
    }
    out.push_str("        _ => return None,\n    })\n}\n");
    out
}
