//! The glue of halves that are written in Rust types: it turns the pointers of a C call into references, slices and places, answers
//! NULL where the declaration does not allow it, and writes the results.
//!
//! A half gets no pointer that the declaration explains. Outputs that must not be NULL are its return value.

use std::fmt::Write;

use super::{group_trait, length, pointee, returns, signature};
use crate::model::{Api, Call, Expr, Extent, Param, Prim, Shape, Type};

/// The form in which the half gets a parameter.
enum Form {
    /// The half gets it as it is: a plain value, or a function of the application and what goes to it.
    AsIs,
    /// The half gets it as a pointer of this type, which may be NULL.
    Pointer { ty: String, new: &'static str },
    /// The half does not get it: a list has its length.
    Counted,
    /// The half gets a value of this type, which `make` yields as an `Option` where `optional` or `required`.
    Made {
        ty: String,
        make: String,
        contract: &'static str,
        required: bool,
    },
    /// The half returns a value of this type.
    Returned { ty: String, place: String },
}

/// Whether a value of this type may hold pointers, which only the call's contract vouches for.
fn holds_pointers(api: &Api, ty: &Type) -> bool {
    match ty {
        Type::Pointer { .. } | Type::Function(_) => true,
        Type::Array(of, _) => holds_pointers(api, of),
        Type::Struct(name) => api
            .structure(name)
            .is_some_and(|inner| inner.fields.iter().any(|(_, ty)| holds_pointers(api, ty))),
        _ => false,
    }
}

/// Whether a parameter points to a structure of which the driver refuses a place that is not aligned as declared.
fn is_aligned_further(api: &Api, param: &Param) -> bool {
    match (&param.ty, pointee(param)) {
        (Type::Pointer { .. }, Type::Struct(name)) => api
            .structure(name)
            .is_some_and(|structure| structure.align.is_some()),
        _ => false,
    }
}

/// The number of a list's elements, as `usize`. A count below zero is none; one behind a pointer was read already.
fn count(call: &Call, expr: &Expr) -> String {
    length(expr, |name| {
        let param = call.params.iter().find(|param| param.name == name);
        match param.map(|param| &param.ty) {
            Some(Type::Pointer { .. }) => {
                format!("{name}.as_deref().map_or(0, |count| *count as usize)")
            }
            Some(Type::Scalar(_, Prim::I32)) => format!("usize::try_from({name}).unwrap_or(0)"),
            _ => format!("({name} as usize)"),
        }
    })
}

/// Whether some list of the half says what `count` says.
fn is_told_by_a_list(call: &Call, count: &Param) -> bool {
    matches!(count.shape, Shape::Value { .. })
        && call.params.iter().any(|param| match &param.shape {
            Shape::Input {
                extent: Extent::Len(expr) | Extent::Bytes(expr),
                nullable: false,
            }
            | Shape::Output {
                extent: Extent::Len(expr) | Extent::Bytes(expr),
                ..
            } => {
                (expr.factor, expr.less, param.bulk) == (1, 0, false)
                    && expr.param.as_deref() == Some(&count.name)
            }
            _ => false,
        })
}

fn form(api: &Api, call: &Call, param: &Param) -> Form {
    let name = &param.name;
    let of = pointee(param);
    let element = of.rust();
    let one = |ty: String, make: String, contract, nullable: bool| Form::Made {
        ty: if nullable {
            format!("Option<{ty}>")
        } else {
            ty
        },
        make,
        contract,
        required: !nullable,
    };
    let vouched = || Form::Pointer {
        ty: format!("crate::raw::Vouched<'_, {}>", param.ty.rust()),
        new: "crate::raw::Vouched::new",
    };
    let readable = "is NULL or readable as far as the declaration says";
    let writable = "is NULL or writable as far as the declaration says";
    match &param.shape {
        Shape::Value { .. } if is_told_by_a_list(call, param) => Form::Counted,
        Shape::Input { .. } | Shape::Output { .. } if param.bulk => Form::Pointer {
            ty: "crate::raw::HostPtr".into(),
            new: "crate::raw::HostPtr::new",
        },
        Shape::Input { extent, nullable } => match extent {
            Extent::One if *of == Type::Void => vouched(),
            Extent::One if holds_pointers(api, of) => one(
                format!("crate::raw::Vouched<'_, {element}>"),
                format!("crate::raw::Vouched::read({name})"),
                "is NULL or readable, and its pointers are valid for what the call does with them",
                *nullable,
            ),
            Extent::One => one(
                format!("&{element}"),
                format!("{name}.as_ref()"),
                readable,
                *nullable,
            ),
            Extent::Len(expr) if matches!(of, Type::Pointer { .. }) => one(
                format!("crate::raw::Vouched<'_, &[{element}]>"),
                format!("crate::raw::Vouched::list({name}, {})", count(call, expr)),
                "is NULL or a list of pointers that are valid for what the call does with them",
                *nullable,
            ),
            Extent::Len(expr) => one(
                format!("&[{element}]"),
                format!("crate::raw::slice({name}, {})", count(call, expr)),
                readable,
                *nullable,
            ),
            Extent::Bytes(Expr {
                param: None,
                factor,
                ..
            }) => one(
                format!("&[u8; {factor}]"),
                format!("{name}.cast::<[u8; {factor}]>().as_ref()"),
                readable,
                *nullable,
            ),
            Extent::CStr => one(
                "&[u8]".into(),
                format!("crate::raw::text({name})"),
                "is NULL or a string",
                *nullable,
            ),
            Extent::Bytes(expr) => one(
                "&[u8]".into(),
                format!(
                    "crate::raw::slice({name}.cast::<u8>(), {})",
                    count(call, expr)
                ),
                readable,
                *nullable,
            ),
            Extent::List => vouched(),
        },
        Shape::InOut {
            extent: Extent::One,
            nullable,
        } => match holds_pointers(api, of) {
            true => one(
                format!("crate::raw::InOut<'_, {element}>"),
                format!("crate::raw::InOut::new({name})"),
                "is NULL or readable and writable, and its pointers are valid for what the call does with them",
                *nullable,
            ),
            false => one(
                format!("&mut {element}"),
                format!("{name}.as_mut()"),
                writable,
                *nullable,
            ),
        },
        Shape::Output {
            extent,
            nullable,
            place: own,
            ..
        } => {
            let (ty, place, list) = match extent {
                Extent::Len(expr) => (element, name.clone(), Some(count(call, expr))),
                Extent::Bytes(expr @ Expr { param: Some(_), .. }) => (
                    "u8".into(),
                    format!("{name}.cast::<u8>()"),
                    Some(count(call, expr)),
                ),
                Extent::Bytes(Expr {
                    param: None,
                    factor,
                    ..
                }) => (
                    format!("[u8; {factor}]"),
                    format!("{name}.cast::<[u8; {factor}]>()"),
                    None,
                ),
                Extent::One if *of != Type::Void => (element, name.clone(), None),
                _ => return vouched(),
            };
            match (list, *nullable || *own) {
                (Some(room), _) => Form::Made {
                    ty: format!("crate::raw::OutList<{ty}>"),
                    make: format!("crate::raw::OutList::new({place}, {room})"),
                    contract: writable,
                    required: false,
                },
                (None, true) => Form::Made {
                    ty: format!("crate::raw::Out<{ty}>"),
                    make: format!("crate::raw::Out::new({place})"),
                    contract: writable,
                    required: false,
                },
                (None, false) => Form::Returned { ty, place },
            }
        }
        Shape::InOut { .. } | Shape::Local => vouched(),
        _ => Form::AsIs,
    }
}

/// The half as its trait declares it, and the method of the contract that calls it.
pub(super) fn method(api: &Api, call: &Call) -> (String, String) {
    let dialect = api.dialect();
    let forms: Vec<(&Param, Form)> = (call.params.iter())
        .map(|param| (param, form(api, call, param)))
        .collect();
    // Before the driver is initialised, that comes first; the calls of group `driver` need no initialisation.
    let invalid = match call.group.as_str() {
        "driver" => format!("return wire::{};", dialect.invalid_value),
        _ => format!(
            "return self.ready().err().unwrap_or(wire::{});",
            dialect.invalid_value
        ),
    };
    let (mut declared, mut passed) = (String::new(), String::new());
    let (mut types, mut names, mut writes) = (Vec::new(), Vec::new(), String::new());
    let (mut checks, mut made) = (String::new(), String::new());
    // A count behind a pointer is read before the lists that it counts.
    let reads_first = |(param, _): &&(&Param, Form)| matches!(param.shape, Shape::InOut { .. });
    let ordered = forms.iter().filter(reads_first);
    for (param, form) in ordered.chain(forms.iter().filter(|form| !reads_first(form))) {
        let name = &param.name;
        if is_aligned_further(api, param) {
            let _ = writeln!(checks, "        if !{name}.is_aligned() {{ {invalid} }}");
        }
        let must_be_there = matches!(
            param.shape,
            Shape::Output {
                nullable: false,
                place: false,
                ..
            }
        );
        if must_be_there && !matches!(form, Form::Pointer { .. }) {
            let _ = writeln!(checks, "        if {name}.is_null() {{ {invalid} }}");
        }
        let (make, contract) = match form {
            Form::Made { make, contract, .. } => (make.clone(), *contract),
            Form::Pointer { new, .. } => (
                format!("{new}({name})"),
                "is NULL or valid for what the call does with it",
            ),
            _ => continue,
        };
        let _ = write!(
            made,
            "        // SAFETY: the caller's contract: `{name}` {contract}.\n        let {name} = unsafe {{ {make} }};\n"
        );
    }
    for (param, form) in &forms {
        let name = &param.name;
        let ty = match form {
            Form::AsIs => param.ty.rust(),
            Form::Pointer { ty, .. } => ty.clone(),
            Form::Made { ty, required, .. } => {
                if *required {
                    let _ = writeln!(
                        made,
                        "        let Some({name}) = {name} else {{ {invalid} }};"
                    );
                }
                ty.clone()
            }
            Form::Counted => continue,
            Form::Returned { ty, place } => {
                types.push(ty.clone());
                names.push(format!("{name}_value"));
                let _ = write!(
                    writes,
                    "                // SAFETY: the caller's contract: `{name}` is writable.\n                unsafe {{ {place}.write({name}_value) }};\n"
                );
                continue;
            }
        };
        let _ = write!(declared, ", {name}: {ty}");
        let _ = write!(passed, ", {name}");
    }
    let tuple = |items: &[String]| match items {
        [one] => one.clone(),
        _ => format!("({})", items.join(", ")),
    };
    // The application's functions are called with what they want.
    let is_unsafe = (call.params.iter()).any(|param| matches!(param.shape, Shape::Callback));
    let (safety, keyword) = match is_unsafe {
        true => (
            "    ///\n    /// # Safety\n    /// The contract of the C function, for the application's functions.\n",
            "unsafe ",
        ),
        false => ("", ""),
    };
    let group = group_trait(call);
    let invoke = format!("{group}::{}(self{passed})", call.name);
    let invoke = match is_unsafe {
        true => format!(
            "        // SAFETY: the caller's contract, passed on.\n        let result = unsafe {{ {invoke} }};\n"
        ),
        false => format!("        let result = {invoke};\n"),
    };
    let manual = format!(
        "{doc}{safety}    {keyword}fn {name}(&self{declared}) -> Result<{result}, {status}>;\n",
        doc = super::doc(call, "    "),
        name = call.name,
        result = tuple(&types),
        status = dialect.status,
    );
    let out = format!(
        "    unsafe fn {name}(&self, {signature}){returns} {{\n{checks}{made}{invoke}        match result {{\n            Ok({names}) => {{\n{writes}                wire::{success}\n            }}\n            Err(status) => status,\n        }}\n    }}\n",
        name = call.name,
        signature = signature(call),
        returns = returns(call),
        names = tuple(&names),
        success = dialect.success,
    );
    (manual, out)
}
