//! Compares declarations with an installed C header: names, parameters, types and constants.
//!
//! The header is read, not copied and not compiled. What is understood of C is what the Khronos headers use: functions between
//! `CL_API_ENTRY` and `CL_API_CALL`, and `#define`s of numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use towline_api::Api;
use towline_api::model::{Call, Type};

/// A function of the header, its types as `api/` would spell them.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    returns: String,
    params: Vec<String>,
}

/// Compares and says how much was compared.
pub(super) fn compare(api: &Api, path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (functions, constants) = (functions(&text), constants(&text));
    ensure!(
        !functions.is_empty(),
        "no function is declared there between CL_API_ENTRY and CL_API_CALL"
    );
    let mut faults = Vec::new();
    let (mut signatures, mut numbers) = (0, 0);
    for (name, function) in &functions {
        match api.call(name) {
            Some(call) => {
                signatures += 1;
                faults.extend(differences(name, call, function));
            }
            // The core has no function that we may leave out; extensions we name only where we have them.
            None if is_core(name) => {
                faults.push(format!(
                    "{name} is not declared; declare it, as `unsupported` if need be"
                ));
            }
            None => {}
        }
    }
    for (name, _, written) in &api.constants {
        if let (Some(theirs), Some(ours)) = (constants.get(name.as_str()), number(written)) {
            numbers += 1;
            if *theirs != ours {
                faults.push(format!("{name} is {ours}, there {theirs}"));
            }
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n        "));
    Ok(format!(
        "{signatures} of {} functions and {numbers} constants are declared as there",
        functions.len()
    ))
}

/// Extensions end in their vendor's capitals.
fn is_core(name: &str) -> bool {
    ![
        "ARM", "EXT", "IMG", "INTEL", "KHR", "NV", "POCL", "QCOM", "APPLE",
    ]
    .iter()
    .any(|vendor| name.ends_with(vendor))
}

fn differences(name: &str, call: &Call, function: &Function) -> Vec<String> {
    let mut faults = Vec::new();
    let mut compare = |what: &str, ours: &Type, theirs: &str| {
        let ours = spelled(ours);
        if ours != theirs {
            faults.push(format!("{name}: {what} is `{ours}`, there `{theirs}`"));
        }
    };
    compare("its result", &call.ret, &function.returns);
    for (param, theirs) in call.params.iter().zip(&function.params) {
        compare(&format!("`{}`", param.name), &param.ty, theirs);
    }
    if call.params.len() != function.params.len() {
        faults.push(format!(
            "{name} has {} parameters, there {}",
            call.params.len(),
            function.params.len()
        ));
    }
    faults
}

/// A declared type as [`c_type`] spells the header's.
fn spelled(ty: &Type) -> String {
    match ty {
        Type::Function(_) => "function".to_owned(),
        Type::Pointer { mutable, to } => {
            format!(
                "*{} {}",
                if *mutable { "mut" } else { "const" },
                spelled(to)
            )
        }
        other => other.rust(),
    }
}

/// Every function that the header declares.
fn functions(text: &str) -> BTreeMap<String, Function> {
    let text = without_directives(&without_comments(text));
    let mut found = BTreeMap::new();
    for declaration in text.split("CL_API_ENTRY").skip(1) {
        let Some((returns, rest)) = declaration.split_once("CL_API_CALL") else {
            continue;
        };
        let Some((name, rest)) = rest.split_once('(') else {
            continue;
        };
        let name = name.trim();
        // A type of function pointers has its name in parentheses, and thus none here.
        if name.is_empty()
            || !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            continue;
        }
        let params = parameters(rest)
            .iter()
            .filter_map(|param| c_type(param, true))
            .collect();
        if let Some(returns) = c_type(returns, false).or_else(|| Some("c_void".to_owned())) {
            found.insert(name.to_owned(), Function { returns, params });
        }
    }
    found
}

/// The parameters up to the closing parenthesis.
fn parameters(text: &str) -> Vec<String> {
    let (mut depth, mut found) = (0, vec![String::new()]);
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => break,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = found.last_mut() {
            last.push(letter);
        }
    }
    found
}

/// A C type, with a parameter's name behind it if `named`, as `api/` spells it; `None` for `void` alone.
fn c_type(text: &str, named: bool) -> Option<String> {
    if text.contains("(*") || text.contains("(CL_CALLBACK") {
        return Some("function".to_owned());
    }
    // An array as a parameter is a pointer.
    let (text, arrays) = match text.split_once('[') {
        Some((text, _)) => (text, 1),
        None => (text, 0),
    };
    let spaced = text.replace('*', " * ");
    let mut words: Vec<&str> = spaced.split_whitespace().collect();
    if words == ["void"] {
        return None;
    }
    if named && words.len() > 1 && words.last().is_some_and(|word| *word != "*") {
        words.pop();
    }
    // What stands before the first star is the type pointed to; `const` there may come first or last.
    let mut levels = words.split(|word| *word == "*");
    let mut is_const = false;
    let mut base = Vec::new();
    for word in levels.next().unwrap_or_default() {
        match *word {
            "const" => is_const = true,
            "extern" | "struct" => {}
            word if word.starts_with("CL_API_PREFIX") => {}
            word => base.push(word),
        }
    }
    let mut spelled = match base.join(" ").as_str() {
        "void" => "c_void".to_owned(),
        "char" => "c_char".to_owned(),
        "unsigned char" => "u8".to_owned(),
        "size_t" => "usize".to_owned(),
        other => other.to_owned(),
    };
    let wrap = |spelled: String, is_const: bool| {
        format!("*{} {spelled}", if is_const { "const" } else { "mut" })
    };
    for level in levels {
        spelled = wrap(spelled, is_const);
        is_const = level.contains(&"const");
    }
    for _ in 0..arrays {
        spelled = wrap(spelled, is_const);
    }
    Some(spelled)
}

/// Every `#define` of a number.
fn constants(text: &str) -> BTreeMap<String, i128> {
    without_comments(text)
        .lines()
        .filter_map(|line| {
            let (name, value) = line
                .trim()
                .strip_prefix("#define")?
                .trim()
                .split_once(char::is_whitespace)?;
            Some((name.to_owned(), number(value)?))
        })
        .collect()
}

/// The value of a constant: a number, perhaps negative, shifted or complemented, in parentheses or cast.
fn number(text: &str) -> Option<i128> {
    let mut text = text.trim();
    if let Some((value, _)) = text.split_once(" as ") {
        text = value.trim();
    }
    if let Some(inner) = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
        && !inner.contains(['(', ')'])
    {
        return number(inner);
    }
    if let Some((value, shift)) = text.split_once("<<") {
        return number(value)?.checked_shl(u32::try_from(number(shift)?).ok()?);
    }
    if let Some(value) = text.strip_prefix('-') {
        return number(value)?.checked_neg();
    }
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']).replace('_', "");
    match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hex) => i128::from_str_radix(hex.trim(), 16).ok(),
        None => digits.parse().ok(),
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Without preprocessor lines and what continues them.
fn without_directives(text: &str) -> String {
    let mut continued = false;
    text.lines()
        .filter(|line| {
            let directive = continued || line.trim_start().starts_with('#');
            continued = directive && line.ends_with('\\');
            !directive
        })
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "
        /* A comment, with CL_API_ENTRY in it. */
        #define CL_SUCCESS 0
        #define CL_DEVICE_NOT_FOUND -1 // so much
        #define CL_MEM_READ_ONLY (1 << 2)
        #define CL_MAX 0xFFFF
        #define CL_API_ENTRY \\
            something
        #ifdef CL_VERSION_1_0
        extern CL_API_ENTRY cl_mem CL_API_CALL
        clCreateBuffer(cl_context   context,
                       size_t       size,
                       const char **strings,
                       void *       host_ptr,
                       const cl_event * const events[],
                       void (CL_CALLBACK * pfn_notify)(cl_mem memory, void * data),
                       cl_int *     errcode_ret) CL_API_SUFFIX__VERSION_1_0;
        #endif
        extern CL_API_ENTRY CL_API_PREFIX__VERSION_1_2_DEPRECATED void CL_API_CALL clNothing(void);
        typedef cl_int (CL_API_CALL * clSome_fn)(cl_uint count);
        ";

    #[test]
    fn signatures_are_read_as_declarations_spell_them() {
        let functions = functions(HEADER);
        assert_eq!(functions.len(), 2);
        assert_eq!(
            functions["clCreateBuffer"],
            Function {
                returns: "cl_mem".to_owned(),
                params: [
                    "cl_context",
                    "usize",
                    "*mut *const c_char",
                    "*mut c_void",
                    "*const *const cl_event",
                    "function",
                    "*mut cl_int",
                ]
                .map(str::to_owned)
                .to_vec(),
            }
        );
        assert_eq!(
            functions["clNothing"],
            Function {
                returns: "c_void".to_owned(),
                params: Vec::new(),
            }
        );
    }

    #[test]
    fn constants_are_read_whichever_way_they_are_written() {
        let constants = constants(HEADER);
        assert_eq!(constants["CL_SUCCESS"], 0);
        assert_eq!(constants["CL_DEVICE_NOT_FOUND"], -1);
        assert_eq!(constants["CL_MEM_READ_ONLY"], 4);
        assert_eq!(constants["CL_MAX"], 0xFFFF);
    }

    fn compared(header: &str) -> Result<String> {
        let api = towline_api::load(&towline_api::root(), "opencl").unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), header).unwrap();
        compare(&api, file.path())
    }

    #[test]
    fn a_declaration_like_the_header_passes() {
        let said = compared(
            "extern CL_API_ENTRY cl_int CL_API_CALL clFinish(cl_command_queue command_queue);",
        );
        assert!(said.unwrap().starts_with("1 of 1 functions"));
    }

    #[test]
    fn what_differs_is_named() {
        let error = compared(
            "#define CL_INVALID_VALUE -31
             extern CL_API_ENTRY cl_uint CL_API_CALL clFinish(cl_event event, cl_uint more);
             extern CL_API_ENTRY cl_int CL_API_CALL clInventedYesterday(void);
             extern CL_API_ENTRY cl_int CL_API_CALL clOfAnExtensionINTEL(void);",
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("its result is `cl_int`, there `cl_uint`"),
            "{error}"
        );
        assert!(
            error.contains("is `cl_command_queue`, there `cl_event`"),
            "{error}"
        );
        assert!(error.contains("has 1 parameters, there 2"), "{error}");
        assert!(
            error.contains("clInventedYesterday is not declared"),
            "{error}"
        );
        assert!(
            error.contains("CL_INVALID_VALUE is -30, there -31"),
            "{error}"
        );
        assert!(!error.contains("INTEL"), "{error}");
    }
}
