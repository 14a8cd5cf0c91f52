//! The declarations of a library that is written over another API and sends nothing: the CUDA runtime (`api/cudart/`), and NCCL
//! (`api/nccl/`), of which the words (nothing) and `refused` are used.
//!
//! Its functions need no wire ids and no directions, so the language is smaller than that of [`crate::load`]: types are taken as they
//! stand, and a function says which major versions of the library export it, under which symbols, and who answers it.
//!
//! | In `#[call(..)]` | Meaning |
//! |---|---|
//! | (nothing) | written by hand: a method of `Runtime` with the function's name |
//! | `by = self.m(..)` | answered by that method of `Runtime`, which serves several functions and returns an `Outcome` |
//! | `driver = "cuX"` | passed on to that function of the driver, parameter by parameter |
//! | `bare = "cuX"` | the same, where the driver needs no current context |
//! | `refused` | answers "not supported" |
//! | `refused = value` | answers that value, since it returns no status |
//! | `only = 12` | exported by that major version alone |
//! | `symbol = "x"`, `symbol_12 = "x"` | exported as `x`, in every version or in that one |
//! | `ptds`, `ptsz` | exported again with that ending, its default stream being the calling thread's own |
//! | `unrecorded` | what it returns does not become the thread's last error |
//!
//! | On a parameter of a function that is passed on | Meaning |
//! |---|---|
//! | (nothing) | goes on with the same bits |
//! | `#[kernel]` | a kernel by its host function: goes on as the driver's function on the current device |
//! | `#[unless_null]` | NULL is nothing to do, and not passed on |

use std::path::Path;

use proc_macro2::Span;
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{ForeignItem, Ident, Item, LitInt, LitStr, Token};

use crate::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// The major versions of the library that there are.
pub const MAJORS: [u32; 2] = [12, 13];

/// The types of status of the libraries that are not the CUDA runtime.
const STATUS_TYPES: [(&str, &str); 1] = [("nccl", "ncclResult_t")];

/// A runtime's declarations.
#[derive(Debug, Clone, Default)]
pub struct Runtime {
    /// The type of what its functions return.
    pub status: &'static str,
    /// Types and constants, as Rust source.
    pub items: Vec<String>,
    /// Errors: name, number, what it says.
    pub errors: Vec<(String, i32, String)>,
    /// The functions, by group and as declared.
    pub functions: Vec<Function>,
}

/// Who answers a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A function of the driver, on the thread's device.
    Driver(String),
    /// A function of the driver that needs no device to be current.
    Bare(String),
    /// A method that several functions share: the expression that calls it.
    Shared(String),
    /// A method that is written by hand.
    Manual,
    /// Nobody: "not supported".
    Refused,
    /// Nobody: this value, as Rust source, where no status is returned.
    RefusedWith(String),
}

/// How a parameter goes on to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// With the same bits.
    AsItIs,
    /// As the driver's function of a kernel.
    Kernel,
    /// With the same bits, and not at all if it is NULL.
    UnlessNull,
}

/// One parameter.
#[derive(Debug, Clone)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type, as Rust source.
    pub ty: String,
    /// How it goes on.
    pub passed: Passed,
}

/// One declared function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name of its method.
    pub name: String,
    /// First line of its documentation.
    pub doc: String,
    /// File it stands in, without folder and ending.
    pub group: String,
    /// Who answers it.
    pub answer: Answer,
    /// The only major version that has it.
    pub only: Option<u32>,
    /// Its symbol where that is not its name.
    pub symbol: Option<String>,
    /// Its symbol in version 12 where that is another still.
    pub symbol_12: Option<String>,
    /// The ending of its form with the thread's own default stream.
    pub per_thread: Option<&'static str>,
    /// Its result is no error that `cudaGetLastError` tells.
    pub unrecorded: bool,
    /// Its parameters.
    pub params: Vec<Param>,
    /// What it returns, as Rust source; empty for nothing.
    pub ret: String,
}

impl Function {
    /// Whether it is declared and answered with an error.
    pub fn is_refused(&self) -> bool {
        matches!(self.answer, Answer::Refused | Answer::RefusedWith(_))
    }

    /// The symbol by which a major version exports it.
    pub fn symbol(&self, major: u32) -> Option<&str> {
        if self.only.is_some_and(|only| only != major) {
            return None;
        }
        let special = self.symbol_12.as_deref().filter(|_| major == 12);
        Some(special.or(self.symbol.as_deref()).unwrap_or(&self.name))
    }

    /// Every symbol of a major version, and whether its default stream is the thread's own.
    pub fn symbols(&self, major: u32) -> Vec<(String, bool)> {
        let Some(symbol) = self.symbol(major) else {
            return Vec::new();
        };
        let own = self.per_thread.map(|ending| format!("{symbol}{ending}"));
        std::iter::once((symbol.to_owned(), false))
            .chain(own.map(|own| (own, true)))
            .collect()
    }
}

/// Reads and checks the declarations below `root/name`.
pub fn load(root: &Path, name: &str) -> Result<Runtime> {
    let special = STATUS_TYPES.iter().find(|(of, _)| *of == name);
    let status = special.map_or("cudaError_t", |(_, status)| status);
    parse(&crate::sources(root, name)?, status)
}

/// As [`load`], for a build script: tells cargo what to watch, and panics with the error's text, which cargo shows.
#[allow(
    clippy::panic,
    reason = "a build script reports its failure by panicking"
)]
pub fn load_for_build(name: &str) -> Runtime {
    let root = crate::root();
    println!("cargo::rerun-if-changed={}", root.join(name).display());
    match load(&root, name) {
        Ok(runtime) => runtime,
        Err(error) => panic!("{error}"),
    }
}

fn fault(file: &str, span: Span, what: impl Into<String>) -> ApiError {
    ApiError::Declaration {
        file: file.into(),
        line: span.start().line,
        what: what.into(),
    }
}

fn parse(sources: &[(String, String)], status: &'static str) -> Result<Runtime> {
    let mut runtime = Runtime {
        status,
        ..Runtime::default()
    };
    for (file, text) in sources {
        let parsed =
            syn::parse_file(text).map_err(|error| fault(file, error.span(), error.to_string()))?;
        for item in &parsed.items {
            match item {
                Item::ForeignMod(block) => {
                    for foreign in &block.items {
                        let ForeignItem::Fn(item) = foreign else {
                            return Err(fault(file, foreign.span(), "only functions stand here"));
                        };
                        runtime.functions.push(function(file, item, status)?);
                    }
                }
                Item::Const(constant) => {
                    runtime.errors.extend(error(constant, status));
                    let item = syn::ItemConst {
                        vis: syn::parse_quote!(pub),
                        ..constant.clone()
                    };
                    runtime.items.push(item.to_token_stream().to_string());
                }
                Item::Type(alias) => {
                    let item = syn::ItemType {
                        vis: syn::parse_quote!(pub),
                        ..alias.clone()
                    };
                    runtime.items.push(item.to_token_stream().to_string());
                }
                Item::Struct(_) | Item::Union(_) => {
                    let item = item.to_token_stream();
                    runtime
                        .items
                        .push(format!("#[repr(C)]\n#[derive(Clone, Copy)]\n{item}"));
                }
                other => {
                    return Err(fault(
                        file,
                        other.span(),
                        "declare types, constants and functions here",
                    ));
                }
            }
        }
    }
    unique(&runtime)?;
    Ok(runtime)
}

/// A symbol means one function.
fn unique(runtime: &Runtime) -> Result<()> {
    for major in MAJORS {
        let mut known = std::collections::BTreeSet::new();
        for function in &runtime.functions {
            for (symbol, _) in function.symbols(major) {
                if !known.insert(symbol.clone()) {
                    return Err(fault(
                        &format!("{}.rs", function.group),
                        Span::call_site(),
                        format!("{symbol} is declared twice for version {major}"),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// A constant of the status's type, with its documentation as what it says to people.
fn error(constant: &syn::ItemConst, status: &str) -> Option<(String, i32, String)> {
    if constant.ty.to_token_stream().to_string() != status {
        return None;
    }
    let number = constant.expr.to_token_stream().to_string().parse().ok()?;
    Some((
        constant.ident.to_string(),
        number,
        documentation(&constant.attrs),
    ))
}

pub(crate) fn documentation(attributes: &[syn::Attribute]) -> String {
    let line = attributes.iter().find_map(|attribute| {
        let value = attribute.meta.require_name_value().ok()?;
        if !value.path.is_ident("doc") {
            return None;
        }
        let text: LitStr = syn::parse2(value.value.to_token_stream()).ok()?;
        Some(text.value().trim().to_owned())
    });
    line.unwrap_or_default()
}

/// What stands in `#[call(..)]`.
#[derive(Default)]
struct Words {
    driver: Option<String>,
    bare: Option<String>,
    by: Option<String>,
    refused: bool,
    refused_with: Option<String>,
    only: Option<u32>,
    symbol: Option<String>,
    symbol_12: Option<String>,
    per_thread: Option<&'static str>,
    unrecorded: bool,
}

/// `word` or `word = value`.
struct Word {
    name: Ident,
    value: Option<syn::Expr>,
}

impl Parse for Word {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            Some(input.parse()?)
        } else {
            None
        };
        Ok(Self { name, value })
    }
}

/// The expression of `by = self.method(..)`.
fn shared_method(word: &Word) -> syn::Result<String> {
    match &word.value {
        Some(syn::Expr::MethodCall(call))
            if call.receiver.to_token_stream().to_string() == "self" =>
        {
            let tokens = || call.to_token_stream().to_string();
            Ok(call.span().source_text().unwrap_or_else(tokens))
        }
        _ => Err(syn::Error::new(
            word.name.span(),
            "say which method answers: by = self.method(..)",
        )),
    }
}

impl Words {
    fn take(&mut self, word: &Word) -> syn::Result<()> {
        let text = || -> syn::Result<String> {
            let literal: LitStr = syn::parse2(word.value.to_token_stream())?;
            Ok(literal.value())
        };
        match word.name.to_string().as_str() {
            "driver" => self.driver = Some(text()?),
            "bare" => self.bare = Some(text()?),
            "by" => self.by = Some(shared_method(word)?),
            "refused" => match &word.value {
                Some(value) => self.refused_with = Some(value.to_token_stream().to_string()),
                None => self.refused = true,
            },
            "only" => {
                let literal: LitInt = syn::parse2(word.value.to_token_stream())?;
                let major = literal.base10_parse()?;
                if !MAJORS.contains(&major) {
                    return Err(syn::Error::new(literal.span(), "there is no such version"));
                }
                self.only = Some(major);
            }
            "symbol" => self.symbol = Some(text()?),
            "symbol_12" => self.symbol_12 = Some(text()?),
            "ptds" => self.per_thread = Some("_ptds"),
            "ptsz" => self.per_thread = Some("_ptsz"),
            "unrecorded" => self.unrecorded = true,
            _ => {
                return Err(syn::Error::new(
                    word.name.span(),
                    "this word is not known here; crates/towline-api/src/runtime.rs lists them",
                ));
            }
        }
        Ok(())
    }
}

fn function(file: &str, item: &syn::ForeignItemFn, status: &str) -> Result<Function> {
    let name = item.sig.ident.to_string();
    let attribute = item
        .attrs
        .iter()
        .find(|attribute| attribute.path().is_ident("call"));
    let attribute =
        attribute.ok_or_else(|| fault(file, item.span(), format!("{name} needs #[call]")))?;
    let mut words = Words::default();
    if !matches!(attribute.meta, syn::Meta::Path(_)) {
        let parsed = attribute
            .parse_args_with(Punctuated::<Word, Token![,]>::parse_terminated)
            .map_err(|error| fault(file, error.span(), error.to_string()))?;
        for word in &parsed {
            words
                .take(word)
                .map_err(|error| fault(file, error.span(), error.to_string()))?;
        }
    }
    let doc = documentation(&item.attrs);
    if doc.is_empty() {
        return Err(fault(
            file,
            item.span(),
            format!("say in a line what {name} does"),
        ));
    }
    let answers = [
        words.driver.map(Answer::Driver),
        words.bare.map(Answer::Bare),
        words.by.map(Answer::Shared),
        words.refused.then_some(Answer::Refused),
        words.refused_with.map(Answer::RefusedWith),
    ];
    let mut answers = answers.into_iter().flatten();
    let answer = answers.next().unwrap_or(Answer::Manual);
    if answers.next().is_some() {
        return Err(fault(
            file,
            item.span(),
            format!("{name} is either passed on, answered by a method, or refused"),
        ));
    }
    let mut params = Vec::new();
    for input in &item.sig.inputs {
        let syn::FnArg::Typed(typed) = input else {
            return Err(fault(file, input.span(), "a parameter needs a name"));
        };
        let passed = passed(file, &answer, typed)?;
        params.push(Param {
            name: typed.pat.to_token_stream().to_string(),
            ty: typed.ty.to_token_stream().to_string(),
            passed,
        });
    }
    let ret = match &item.sig.output {
        syn::ReturnType::Default => String::new(),
        syn::ReturnType::Type(_, ty) => ty.to_token_stream().to_string(),
    };
    let by_value = matches!(answer, Answer::RefusedWith(_));
    if answer != Answer::Manual && by_value == (ret == status) {
        return Err(fault(
            file,
            item.sig.output.span(),
            if by_value {
                format!("{name} returns a status: refuse it without a value")
            } else {
                format!("{name} returns no status, so that it must be written by hand")
            },
        ));
    }
    let group = file.rsplit('/').next().unwrap_or(file);
    Ok(Function {
        name,
        doc,
        group: group.trim_end_matches(".rs").to_owned(),
        answer,
        only: words.only,
        symbol: words.symbol,
        symbol_12: words.symbol_12,
        per_thread: words.per_thread,
        unrecorded: words.unrecorded,
        params,
        ret,
    })
}

/// What a parameter's attribute says.
fn passed(file: &str, answer: &Answer, param: &syn::PatType) -> Result<Passed> {
    let Some(attribute) = param.attrs.first() else {
        return Ok(Passed::AsItIs);
    };
    let passed = match attribute.path().require_ident().map(Ident::to_string) {
        Ok(name) if name == "kernel" => Passed::Kernel,
        Ok(name) if name == "unless_null" => Passed::UnlessNull,
        _ => {
            return Err(fault(
                file,
                attribute.span(),
                "this attribute is not known here",
            ));
        }
    };
    // A kernel's function belongs to the current device, so that a call with one needs a device to be current.
    let has_device = matches!(answer, Answer::Driver(_));
    if !has_device || param.attrs.len() > 1 {
        return Err(fault(
            file,
            attribute.span(),
            "one attribute says how a parameter goes on to a function of the driver on the thread's device",
        ));
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(text: &str) -> Result<Runtime> {
        parse(
            &[("cudart/test.rs".to_owned(), text.to_owned())],
            "cudaError_t",
        )
    }

    #[test]
    fn a_function_is_exported_by_the_versions_and_names_that_it_says() {
        let runtime = declared(
            "extern \"C\" {
                /// Waits.
                #[call(symbol_12 = \"cudaWait_v2\", ptsz)]
                fn cudaWait(stream: cudaStream_t) -> cudaError_t;
                /// As it was.
                #[call(only = 12, symbol = \"cudaWait\", refused)]
                fn cudaWait_v1() -> cudaError_t;
            }",
        )
        .unwrap();
        let symbols = |index: usize, major| runtime.functions[index].symbols(major);
        let both = |name: &str| vec![(name.to_owned(), false), (format!("{name}_ptsz"), true)];
        assert_eq!(symbols(0, 12), both("cudaWait_v2"));
        assert_eq!(symbols(0, 13), both("cudaWait"));
        assert_eq!(symbols(1, 12), [("cudaWait".to_owned(), false)]);
        assert!(symbols(1, 13).is_empty());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let cases = [
            ("extern \"C\" {\n fn f();\n}", "test.rs:2: f needs #[call]"),
            (
                "extern \"C\" {\n #[call]\n fn f();\n}",
                "say in a line what f does",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(speedy)]\n fn f();\n}",
                "test.rs:3: this word is not known here",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(only = 7)]\n fn f();\n}",
                "there is no such version",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(refused)]\n fn f() -> u32;\n}",
                "f returns no status",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(refused = 1)]\n fn f() -> cudaError_t;\n}",
                "f returns a status: refuse it without a value",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(refused, driver = \"cuX\")]\n fn f() -> cudaError_t;\n}",
                "either passed on, answered by a method, or refused",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(by = other.m())]\n fn f() -> cudaError_t;\n}",
                "test.rs:3: say which method answers",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(driver = \"cuX\")]\n fn f(#[speedy] p: u32) -> cudaError_t;\n}",
                "test.rs:4: this attribute is not known here",
            ),
            (
                "extern \"C\" {\n /// X.\n #[call(bare = \"cuX\")]\n fn f(#[kernel] p: u32) -> cudaError_t;\n}",
                "test.rs:4: one attribute says how a parameter goes on",
            ),
            ("fn f() {}", "declare types, constants and functions here"),
        ];
        for (text, expected) in cases {
            let error = declared(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_symbol_that_means_two_functions_is_refused() {
        let error = declared(
            "extern \"C\" {
                /// One.
                #[call]
                fn f() -> cudaError_t;
                /// Another.
                #[call(symbol_12 = \"f\")]
                fn g() -> cudaError_t;
            }",
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("f is declared twice for version 12"),
            "{error}"
        );
    }

    #[test]
    fn an_error_says_what_its_documentation_says() {
        let runtime =
            declared("/// out of memory\nconst cudaErrorMemoryAllocation: cudaError_t = 2;")
                .unwrap();
        let expected = (
            "cudaErrorMemoryAllocation".to_owned(),
            2,
            "out of memory".to_owned(),
        );
        assert_eq!(runtime.errors, [expected]);
    }
}
