//! Requests, replies and their codec, with a round-trip sample of every message for the tests.

use std::fmt::Write;

use super::{length, pointee, wire_element};
use crate::model::{Api, Call, Extent, Mode, Param, Shape, Type};

/// How a field is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Scalar,
    Flag,
    Blob,
    List,
}

struct Field {
    name: String,
    ty: String,
    form: Form,
    optional: bool,
    doc: String,
}

impl Field {
    fn borrows(&self) -> bool {
        matches!(self.form, Form::Blob | Form::List)
    }

    fn rust(&self) -> String {
        let plain = match self.form {
            Form::Scalar => self.ty.clone(),
            Form::Flag => "bool".into(),
            Form::Blob => "&'a [u8]".into(),
            Form::List => format!("List<'a, {}>", self.ty),
        };
        if self.optional {
            format!("Option<{plain}>")
        } else {
            plain
        }
    }

    fn put(&self, value: &str) -> String {
        match self.form {
            Form::Scalar => format!("{value}.put(out);"),
            Form::Flag => format!("put_flag(out, {value});"),
            Form::Blob => format!("put_blob(out, {value});"),
            Form::List => format!("{value}.put(out);"),
        }
    }

    fn take(&self) -> String {
        match self.form {
            Form::Scalar => format!("decoder.scalar::<{}>()?", self.ty),
            Form::Flag => "decoder.flag()?".into(),
            Form::Blob => "decoder.blob()?".into(),
            Form::List => format!("decoder.list::<{}>()?", self.ty),
        }
    }

    fn sample(&self) -> String {
        let plain = match self.form {
            Form::Scalar => "source.scalar()".to_string(),
            Form::Flag => "source.flag()".into(),
            Form::Blob => "source.blob()".into(),
            Form::List => "source.list()".into(),
        };
        if self.optional {
            format!("source.flag().then(|| {plain})")
        } else {
            plain
        }
    }
}

/// The fields that a parameter puts into the request.
fn request_field(api: &Api, call: &Call, param: &Param) -> Option<Field> {
    let field = |ty: String, form, optional| {
        Some(Field {
            name: param.name.clone(),
            ty,
            form,
            optional,
            doc: format!("Parameter `{}`.", param.name),
        })
    };
    match &param.shape {
        Shape::Value { .. } => field(wire_element(api, &param.ty), Form::Scalar, false),
        Shape::Input { extent, nullable } => match extent {
            Extent::One => field(wire_element(api, pointee(param)), Form::Scalar, *nullable),
            Extent::Len(_) => field(wire_element(api, pointee(param)), Form::List, *nullable),
            Extent::Bytes(_) | Extent::CStr => field(String::new(), Form::Blob, *nullable),
            Extent::List => field("u64".into(), Form::List, *nullable),
        },
        Shape::Output {
            creates: true,
            nullable,
            ..
        } => field(wire_element(api, pointee(param)), Form::Scalar, *nullable),
        Shape::Output { nullable: true, .. } => Some(Field {
            name: format!("want_{}", param.name),
            ty: String::new(),
            form: Form::Flag,
            optional: false,
            doc: format!("Whether the caller gave room for `{}`.", param.name),
        }),
        Shape::Callback => Some(Field {
            name: "notify".into(),
            ty: String::new(),
            form: Form::Flag,
            optional: false,
            doc: "Whether the application gave a callback.".into(),
        }),
        Shape::InOut { .. } if call.carries_inout() => {
            field(wire_element(api, pointee(param)), Form::Scalar, false)
        }
        Shape::Output { .. }
        | Shape::InOut { .. }
        | Shape::SizeOf
        | Shape::ErrCode
        | Shape::UserData
        | Shape::Local => None,
    }
}

/// The fields that a parameter puts into the reply.
fn reply_field(api: &Api, call: &Call, param: &Param) -> Option<Field> {
    let field = |ty: String, form, optional| {
        Some(Field {
            name: param.name.clone(),
            ty,
            form,
            optional,
            doc: format!("What `{}` receives.", param.name),
        })
    };
    match &param.shape {
        Shape::Output { creates: true, .. } => None,
        Shape::Output { extent, .. } => match extent {
            Extent::One => field(wire_element(api, pointee(param)), Form::Scalar, true),
            Extent::Len(_) => field(wire_element(api, pointee(param)), Form::List, true),
            _ => field(String::new(), Form::Blob, true),
        },
        Shape::InOut { .. } if call.carries_inout() => {
            field(wire_element(api, pointee(param)), Form::Scalar, true)
        }
        Shape::SizeOf => field("u64".into(), Form::Scalar, false),
        _ => None,
    }
}

fn message(out: &mut String, name: &str, doc: &str, fields: &[Field], check: &str) {
    let lifetime = if fields.iter().any(Field::borrows) {
        "<'a>"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "/// {doc}\n#[derive(Debug, Clone, PartialEq)]\npub struct {name}{lifetime} {{"
    );
    for field in fields {
        let _ = writeln!(
            out,
            "    /// {}\n    pub {}: {},",
            field.doc,
            field.name,
            field.rust()
        );
    }
    let _ = writeln!(
        out,
        "}}\nimpl<'a> Message<'a> for {name}{lifetime} {{\n    #[inline]\n    fn encode(&self, out: &mut Vec<u8>) {{"
    );
    if fields.is_empty() {
        out.push_str("        let _ = out;\n");
    }
    for field in fields {
        if field.optional {
            let _ = writeln!(
                out,
                "        put_flag(out, self.{0}.is_some());\n        if let Some(value) = &self.{0} {{ {1} }}",
                field.name,
                field.put("value")
            );
        } else {
            let _ = writeln!(
                out,
                "        {}",
                field.put(&format!("self.{}", field.name))
            );
        }
    }
    out.push_str(
        "    }\n    #[inline]\n    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {\n",
    );
    let mutable = if fields.is_empty() { "" } else { "mut " };
    let _ = writeln!(out, "        let {mutable}decoder = Decoder::new(body);");
    for field in fields {
        if field.optional {
            let _ = writeln!(
                out,
                "        let {} = if decoder.flag()? {{ Some({}) }} else {{ None }};",
                field.name,
                field.take()
            );
        } else {
            let _ = writeln!(out, "        let {} = {};", field.name, field.take());
        }
    }
    let names = fields
        .iter()
        .map(|field| field.name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let _ = writeln!(
        out,
        "        decoder.finish()?;\n        let message = Self {{ {names} }};\n{check}        Ok(message)\n    }}\n}}"
    );
}

/// Code that compares every count parameter with the list that it counts: the native call will trust it.
fn length_check(call: &Call) -> String {
    let mut out = String::new();
    for param in &call.params {
        let Shape::Input { extent, nullable } = &param.shape else {
            continue;
        };
        let (Extent::Len(expr) | Extent::Bytes(expr)) = extent else {
            continue;
        };
        let said = length(expr, |name| format!("(message.{name} as u64)"));
        let name = &param.name;
        let (found, list) = if *nullable {
            let bind = format!("let Some(list) = &message.{name}\n            && ");
            (bind, "list".to_string())
        } else {
            (String::new(), format!("message.{name}"))
        };
        let _ = write!(
            out,
            "        if {found}{list}.len() as u64 != {said}\n        {{\n            return Err(DecodeError::LengthMismatch {{ what: \"{name}\", said: {said}, found: {list}.len() as u64 }});\n        }}\n"
        );
    }
    out
}

fn request_fields(api: &Api, call: &Call) -> Vec<Field> {
    let mut fields: Vec<Field> = call
        .params
        .iter()
        .filter_map(|param| request_field(api, call, param))
        .collect();
    if let Type::Handle(_) = &call.ret {
        fields.push(Field {
            name: "created".into(),
            ty: wire_element(api, &call.ret),
            form: Form::Scalar,
            optional: false,
            doc: "The number that the client gave the new handle.".into(),
        });
    }
    fields
}

fn reply_fields(api: &Api, call: &Call) -> Vec<Field> {
    call.params
        .iter()
        .filter_map(|param| reply_field(api, call, param))
        .collect()
}

/// The request, and the reply where one is waited for, with their codec.
pub(super) fn messages(api: &Api, call: &Call) -> String {
    let mut out = String::new();
    let (name, fields) = (call.message(), request_fields(api, call));
    message(
        &mut out,
        &name,
        &format!("Request `{}`: {}", call.name, call.doc),
        &fields,
        &length_check(call),
    );
    let lifetime = if fields.iter().any(Field::borrows) {
        "<'a>"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "impl<'a> Request<'a> for {name}{lifetime} {{\n    const ID: u16 = {:#06x};\n    const NAME: &'static str = \"{}\";\n}}",
        call.id, call.name
    );
    if call.mode == Mode::Sync {
        message(
            &mut out,
            &format!("{name}Reply"),
            &format!("Reply to `{}`, behind the status.", call.name),
            &reply_fields(api, call),
            "",
        );
    }
    out
}

/// A statement that sends a sample of the message through the codec and back.
fn check(name: &str, what: &str, counted: bool, fields: &[Field]) -> String {
    let values = fields
        .iter()
        .map(|field| format!("{}: {}", field.name, field.sample()))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "    check::<{name}>(\"{what}\", {counted}, {name} {{ {values} }}, |out, message| message.encode(out), |body| {name}::decode(body).map(|message| {{ let mut again = Vec::new(); message.encode(&mut again); again }}));\n"
    )
}

/// Emits every message of the API.
pub fn emit(api: &Api) -> String {
    let mut out = String::new();
    let mut samples = String::new();
    let mut describe = String::new();
    let (mut requests, mut replies) = (String::new(), String::new());
    let mut names = String::new();
    for call in api.calls.iter().filter(|call| call.travels()) {
        out.push_str(&messages(api, call));
        let name = call.message();
        let counted = call.params.iter().any(|param| {
            matches!(
                &param.shape,
                Shape::Input {
                    extent: Extent::Len(_) | Extent::Bytes(_),
                    ..
                }
            )
        });
        samples.push_str(&check(
            &name,
            &call.name,
            counted,
            &request_fields(api, call),
        ));
        let _ = writeln!(
            describe,
            "        {:#06x} => format!(\"{} {{:?}}\", {name}::decode(body)?),",
            call.id, call.name
        );
        let _ = writeln!(names, "        {:#06x} => \"{}\",", call.id, call.name);
        let _ = writeln!(
            requests,
            "        {:#06x} => again({name}::decode(body)),",
            call.id
        );
        if call.mode == Mode::Sync {
            let _ = writeln!(
                replies,
                "        {:#06x} => again({name}Reply::decode(body)),",
                call.id
            );
            let what = format!("{} reply", call.name);
            let fields = reply_fields(api, call);
            samples.push_str(&check(&format!("{name}Reply"), &what, false, &fields));
        }
    }
    let _ = write!(
        out,
        "/// The call's name.\npub fn call_name(id: u16) -> Option<&'static str> {{\n    Some(match id {{\n{names}        _ => return None,\n    }})\n}}\n\
         /// A request in words, for traces; an error when it does not decode.\npub fn describe(id: u16, body: &[u8]) -> Result<String, DecodeError> {{\n    Ok(match id {{\n{describe}        _ => format!(\"unknown call {{id:#06x}}\"),\n    }})\n}}\n\
         fn again<'a, M: Message<'a>>(message: Result<M, DecodeError>) -> Option<Result<Vec<u8>, DecodeError>> {{\n    Some(message.map(|message| {{\n        let mut out = Vec::new();\n        message.encode(&mut out);\n        out\n    }}))\n}}\n\
         /// Reads a request and writes it again, to hold the codec to one encoding per message; `None` for an id that is no call's.\npub fn recode_request(id: u16, body: &[u8]) -> Option<Result<Vec<u8>, DecodeError>> {{\n    match id {{\n{requests}        _ => None,\n    }}\n}}\n\
         /// As [`recode_request`], for the reply to a call; `None` also where nothing is answered.\npub fn recode_reply(id: u16, body: &[u8]) -> Option<Result<Vec<u8>, DecodeError>> {{\n    match id {{\n{replies}        _ => None,\n    }}\n}}\n\
         /// Every request id.\npub const CALL_IDS: &[u16] = &[{}];\n",
        api.calls
            .iter()
            .filter(|call| call.travels())
            .map(|call| format!("{:#06x}", call.id))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let device_values: Vec<String> = api
        .calls
        .iter()
        .filter(|call| call.travels() && gives_device_value(call))
        .map(|call| format!("{:#06x}", call.id))
        .collect();
    if !device_values.is_empty() {
        let _ = writeln!(
            out,
            "/// Requests whose answers the driver picks and the device interprets: what a migration must rewrite.\npub const DEVICE_VALUES: &[u16] = &[{}];",
            device_values.join(", ")
        );
    }
    let fixed: Vec<String> = api
        .calls
        .iter()
        .filter(|call| call.travels() && call.fixed)
        .map(|call| format!("{:#06x}", call.id))
        .collect();
    if !fixed.is_empty() {
        let _ = writeln!(
            out,
            "/// Requests whose answers never change while the server runs.\npub const FIXED_CALLS: &[u16] = &[{}];",
            fixed.join(", ")
        );
    }
    let _ = write!(
        out,
        "#[cfg(test)]\nfn round_trips(source: &mut sample::Source) {{\n    use sample::check;\n{samples}}}\n"
    );
    out
}

fn gives_device_value(call: &Call) -> bool {
    let gives = |param: &Param| {
        matches!(
            param.shape,
            Shape::Output {
                device_value: true,
                ..
            }
        )
    };
    call.params.iter().any(gives)
}
