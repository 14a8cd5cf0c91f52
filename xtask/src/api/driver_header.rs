//! Compares declarations with an installed `cuda.h`: functions, layouts, constants, and the versions of `cudaTypedefs.h` beside it.
//!
//! The C compiler reads the header; it is neither copied nor kept. It compiles a program that compares each declaration with what the
//! header says, and prints what differs. Of a header older than the declarations only functions and versions are compared.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use towline_api::Api;
use towline_api::emit::symbols::{self, Symbol};
use towline_api::model::{Call, Prim, Struct, Type};

/// Whether the header is the driver's.
pub(super) fn is_driver(text: &str) -> bool {
    text.contains("CUDA_VERSION")
}

/// Compares and says how much was compared.
pub(super) fn compare(api: &Api, path: &Path) -> Result<String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let folder = folder.canonicalize().context("the header has no folder")?;
    let text = preprocessed(&folder, "cuda.h")?;
    let typedefs = if folder.join("cudaTypedefs.h").is_file() {
        preprocessed(&folder, "cudaTypedefs.h")?
    } else {
        String::new()
    };
    let found = Header::read(&text, &typedefs);
    ensure!(
        !found.functions.is_empty(),
        "no function is declared there that returns a CUresult"
    );
    let mut program = Program::new(api, &found, typedefs.is_empty());
    program.functions();
    program.versions();
    // Structures grow into their reserved room and enumerations get longer: an older header has less of both, and is right all the same.
    let older = version(path)? < program.newest();
    if !older {
        program.structures();
        program.constants();
    }
    let mut faults = program.faults.clone();
    faults.extend(differences(&folder, &program.source())?);
    ensure!(faults.is_empty(), "{}", faults.join("\n        "));
    Ok(program.said())
}

/// A header as the compiler sees it, with the forms of every version.
fn preprocessed(folder: &Path, header: &str) -> Result<String> {
    let output = cc()
        .args(["-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-xc"])
        .arg("-I")
        .arg(folder)
        .arg(folder.join(header))
        .output()
        .context("cannot run the C compiler; name one in CC")?;
    ensure!(
        output.status.success(),
        "the C compiler does not read {header}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cc() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// The version of the header, as `CUDA_VERSION` has it.
fn version(path: &Path) -> Result<u32> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let number = text.split("#define CUDA_VERSION").nth(1);
    number
        .and_then(|rest| words(rest).next())
        .and_then(|number| number.parse().ok())
        .context("the header does not say its CUDA_VERSION")
}

/// Compiles and runs the program; each line that it prints is a difference.
fn differences(folder: &Path, source: &str) -> Result<Vec<String>> {
    let scratch = Scratch::new()?;
    let (code, binary) = (scratch.0.join("compare.c"), scratch.0.join("compare"));
    fs::write(&code, source).context("cannot write the C program")?;
    let output = cc()
        .args(["-w", "-std=gnu11", "-I"])
        .arg(folder)
        .arg(&code)
        .arg("-o")
        .arg(&binary)
        .output()
        .context("cannot run the C compiler")?;
    ensure!(
        output.status.success(),
        "the C compiler does not take the declarations: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = Command::new(&binary)
        .output()
        .context("cannot run the comparison")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(printed.lines().map(str::to_owned).collect())
}

/// A folder that goes when the comparison is done.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("towline-header-{}-{made}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).context("cannot make a temporary folder")?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a header has, by name.
struct Header<'a> {
    words: BTreeSet<&'a str>,
    functions: BTreeSet<&'a str>,
    enumerators: BTreeSet<&'a str>,
    typedefs: BTreeSet<&'a str>,
}

impl<'a> Header<'a> {
    fn read(text: &'a str, typedefs: &'a str) -> Self {
        let mut functions = BTreeSet::new();
        for declaration in text.split("CUresult").skip(1) {
            let declaration = declaration.trim_start();
            let name = words(declaration).next().unwrap_or_default();
            let called = declaration
                .strip_prefix(name)
                .is_some_and(|rest| rest.trim_start().starts_with('('));
            if called && name.starts_with("cu") {
                functions.insert(name);
            }
        }
        let mut enumerators = BTreeSet::new();
        for body in text.split("enum").skip(1) {
            let Some((head, body)) = body.split_once('{') else {
                continue;
            };
            if head.contains([';', ',', ')']) {
                continue;
            }
            let body = body.split('}').next().unwrap_or_default();
            enumerators.extend(body.split(',').filter_map(|item| words(item).next()));
        }
        Self {
            words: words(text).collect(),
            functions,
            enumerators,
            typedefs: words(typedefs)
                .filter(|word| word.starts_with("PFN_cu"))
                .collect(),
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| !word.is_empty())
}

/// The C program, as it grows.
struct Program<'a> {
    api: &'a Api,
    header: &'a Header<'a>,
    include: &'static str,
    body: String,
    faults: Vec<String>,
    counts: [usize; 4],
}

impl<'a> Program<'a> {
    fn new(api: &'a Api, header: &'a Header<'a>, alone: bool) -> Self {
        Self {
            api,
            header,
            include: if alone { "cuda.h" } else { "cudaTypedefs.h" },
            body: String::new(),
            faults: Vec::new(),
            counts: [0; 4],
        }
    }

    fn source(&self) -> String {
        format!(
            "#define __CUDA_API_VERSION_INTERNAL\n#include <stddef.h>\n#include <stdio.h>\n#include <{}>\nint main(void) {{\n{}return 0;\n}}\n",
            self.include, self.body
        )
    }

    fn said(&self) -> String {
        let [functions, structures, constants, versions] = self.counts;
        format!(
            "{functions} functions, {structures} structures, {constants} constants and {versions} versions are as there"
        )
    }

    /// The newest version that anything here is from.
    fn newest(&self) -> u32 {
        let since = self.symbols().into_iter().map(|(_, symbol)| symbol.since);
        since.max().unwrap_or(0)
    }

    fn symbols(&self) -> Vec<(&'a Call, Symbol)> {
        let calls = self.api.calls.iter().filter(|call| call.exported());
        calls
            .flat_map(|call| {
                symbols::of(self.api, call)
                    .into_iter()
                    .map(move |symbol| (call, symbol))
            })
            .collect()
    }

    fn functions(&mut self) {
        let declared = self.symbols();
        for name in &self.header.functions {
            if !declared.iter().any(|(_, symbol)| symbol.name == *name) {
                self.faults.push(format!(
                    "{name} is not declared; declare it, as `unsupported` if need be"
                ));
            }
        }
        for (call, symbol) in declared {
            let name = &symbol.name;
            if !self.header.functions.contains(name.as_str()) {
                continue;
            }
            self.counts[0] += 1;
            let params: Vec<String> = call.params.iter().map(|param| spelled(&param.ty)).collect();
            let params = match params.is_empty() {
                true => "void".to_owned(),
                false => params.join(", "),
            };
            let _ = writeln!(
                self.body,
                "if (!__builtin_types_compatible_p(__typeof__({name}), {} ({params}))) puts(\"{name} is declared otherwise there\");",
                spelled(&call.ret)
            );
        }
    }

    fn structures(&mut self) {
        for structure in &self.api.structs {
            let name = &structure.name;
            if !self.header.words.contains(name.as_str()) {
                continue;
            }
            self.counts[1] += 1;
            let size = Layout::of_struct(self.api, structure).size;
            let _ = writeln!(
                self.body,
                "if (sizeof({name}) != {size}) printf(\"{name} has %zu bytes there, here {size}\\n\", sizeof({name}));"
            );
            self.fields(name, structure, "", 0);
        }
    }

    /// Compares offsets, through structures that C does not name.
    fn fields(&mut self, outer: &str, structure: &Struct, path: &str, start: usize) {
        let mut at = 0;
        for (field, ty) in &structure.fields {
            let layout = Layout::of(self.api, ty);
            let offset = if structure.union {
                0
            } else {
                at = at_multiple(at, layout.align);
                at
            };
            at = offset + layout.size;
            let plain = field.trim_start_matches("r#");
            let unnamed = structure.unnamed.contains(field);
            if !unnamed && self.header.words.contains(plain) {
                let (path, offset) = (format!("{path}{plain}"), start + offset);
                let _ = writeln!(
                    self.body,
                    "if (offsetof({outer}, {path}) != {offset}) printf(\"{outer}.{path} is at %zu there, here {offset}\\n\", offsetof({outer}, {path}));"
                );
            }
            if let Type::Struct(inner) = ty
                && !self.header.words.contains(inner.as_str())
                && let Some(inner) = self.api.structure(inner)
            {
                let path = match unnamed {
                    true => path.to_owned(),
                    false => format!("{path}{plain}."),
                };
                self.fields(outer, inner, &path, start + offset);
            }
        }
    }

    fn constants(&mut self) {
        let api = self.api;
        let declared: BTreeSet<&str> = api
            .constants
            .iter()
            .map(|(name, ..)| name.as_str())
            .collect();
        for name in &self.header.enumerators {
            if name.starts_with("CU") && !declared.contains(name) {
                self.faults
                    .push(format!("the constant {name} is not declared"));
            }
        }
        for (name, ty, value) in &api.constants {
            // A name that stands for another is compared under that other.
            let value = value.replace(' ', "");
            let is_digit = |letter: u8| letter.is_ascii_digit() || letter == b'-';
            if !value.bytes().all(is_digit) {
                continue;
            }
            let unsigned = api.aliases.get(ty).copied().or(Prim::from_name(ty)) == Some(Prim::U32);
            let cast = if unsigned { "(unsigned int)" } else { "" };
            let enumerator = self.header.enumerators.contains(name.as_str());
            self.counts[2] += usize::from(enumerator);
            let (guard, end) = match enumerator {
                true => (String::new(), ""),
                false => (format!("#ifdef {name}\n"), "#endif\n"),
            };
            let _ = write!(
                self.body,
                "{guard}if ((long long){cast}({name}) != {value}LL) printf(\"{name} is %lld there, here {value}\\n\", (long long){cast}({name}));\n{end}"
            );
        }
    }

    /// `PFN_cuFoo_v3020_ptds` says that version 3.2 introduced this form of `cuFoo`, and what its type is.
    fn versions(&mut self) {
        if self.header.typedefs.is_empty() {
            return;
        }
        let declared = self.symbols();
        let mut said = BTreeSet::new();
        for typedef in &self.header.typedefs {
            let name = typedef.trim_start_matches("PFN_");
            let (plain, per_thread) = match ["_ptds", "_ptsz"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
            {
                Some(plain) => (plain, true),
                None => (name, false),
            };
            let Some((base, since)) = plain.rsplit_once("_v") else {
                continue;
            };
            let Ok(since) = since.parse::<u32>() else {
                continue;
            };
            // `PFN_cuFoo_v2` only names what `PFN_cuFoo_v3020` says.
            if since < 1000 {
                continue;
            }
            said.insert((base, since, per_thread));
            let symbol = declared.iter().map(|(_, symbol)| symbol).find(|symbol| {
                symbol.base == base && symbol.since == since && symbol.per_thread == per_thread
            });
            match symbol {
                Some(symbol) if self.header.functions.contains(symbol.name.as_str()) => {
                    self.counts[3] += 1;
                    let _ = writeln!(
                        self.body,
                        "if (!__builtin_types_compatible_p(__typeof__(*({typedef})0), __typeof__({0}))) puts(\"{typedef} is not the type of {0}\");",
                        symbol.name
                    );
                }
                Some(_) => {}
                None => self
                    .faults
                    .push(format!("{typedef} has no symbol of that version here")),
            }
        }
        for (_, symbol) in &declared {
            let key = (symbol.base.as_str(), symbol.since, symbol.per_thread);
            if self.header.functions.contains(symbol.name.as_str()) && !said.contains(&key) {
                self.faults.push(format!(
                    "{} is declared since {}, of which cudaTypedefs.h says nothing",
                    symbol.name, symbol.since
                ));
            }
        }
    }
}

/// A type as C spells it.
fn spelled(ty: &Type) -> String {
    match ty {
        Type::Void => "void".into(),
        Type::Char => "char".into(),
        Type::Scalar(name, prim) if name == prim.rust() => match prim {
            Prim::I8 => "signed char",
            Prim::U8 => "unsigned char",
            Prim::I16 => "short",
            Prim::U16 => "unsigned short",
            Prim::I32 => "int",
            Prim::U32 => "unsigned int",
            Prim::I64 => "long long",
            Prim::U64 => "unsigned long long",
            Prim::F32 => "float",
            Prim::F64 => "double",
            Prim::Usize => "size_t",
        }
        .into(),
        Type::Pointer { mutable, to } => {
            let is_const = if *mutable { "" } else { " const" };
            format!("{}{is_const} *", spelled(to))
        }
        Type::Scalar(name, _) | Type::Handle(name) | Type::Struct(name) | Type::Function(name) => {
            name.clone()
        }
        Type::Array(of, len) => format!("{}[{len}]", spelled(of)),
    }
}

/// Size and alignment of a type where pointers have 64 bits.
#[derive(Clone, Copy)]
struct Layout {
    size: usize,
    align: usize,
}

impl Layout {
    fn even(size: usize) -> Self {
        Self { size, align: size }
    }

    fn of(api: &Api, ty: &Type) -> Self {
        match ty {
            Type::Scalar(_, prim) => Self::even(match prim {
                Prim::I8 | Prim::U8 => 1,
                Prim::I16 | Prim::U16 => 2,
                Prim::I32 | Prim::U32 | Prim::F32 => 4,
                Prim::I64 | Prim::U64 | Prim::F64 | Prim::Usize => 8,
            }),
            Type::Char | Type::Void => Self::even(1),
            Type::Handle(_) | Type::Pointer { .. } | Type::Function(_) => Self::even(8),
            Type::Array(of, len) => {
                let one = Self::of(api, of);
                Self {
                    size: one.size * len,
                    align: one.align,
                }
            }
            Type::Struct(name) => api
                .structure(name)
                .map_or(Self::even(1), |structure| Self::of_struct(api, structure)),
        }
    }

    fn of_struct(api: &Api, structure: &Struct) -> Self {
        let (mut size, mut align) = (0, structure.align.unwrap_or(1));
        for (_, ty) in &structure.fields {
            let field = Self::of(api, ty);
            align = align.max(field.align);
            size = if structure.union {
                size.max(field.size)
            } else {
                at_multiple(size, field.align) + field.size
            };
        }
        Self {
            size: at_multiple(size, align),
            align,
        }
    }
}

/// The next multiple of an alignment.
fn at_multiple(at: usize, align: usize) -> usize {
    at.div_ceil(align.max(1)) * align.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(header: &str, typedefs: &str) -> Result<String> {
        let api = towline_api::load(&towline_api::root(), "cuda").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cuda.h");
        fs::write(&path, header).unwrap();
        if !typedefs.is_empty() {
            let typedefs = format!("#include \"cuda.h\"\n{typedefs}");
            fs::write(folder.path().join("cudaTypedefs.h"), typedefs).unwrap();
        }
        compare(&api, &path)
    }

    const TYPES: &str = "
        typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 } CUresult;
        typedef unsigned long long CUdeviceptr;
        typedef struct CUipcMemHandle_st { char reserved[64]; } CUipcMemHandle;
        #define CU_IPC_HANDLE_SIZE 64
        #define CUDA_VERSION 99000
        ";

    #[test]
    fn what_is_as_in_the_header_passes() {
        let said = compared(
            &format!(
                "{TYPES}CUresult cuMemFree_v2(CUdeviceptr dptr); CUresult cuInit(unsigned int Flags);"
            ),
            "typedef CUresult (*PFN_cuMemFree_v3020)(CUdeviceptr dptr);
             typedef CUresult (*PFN_cuInit_v2000)(unsigned int Flags);",
        );
        let said = said.unwrap();
        assert_eq!(
            said,
            "2 functions, 1 structures, 2 constants and 2 versions are as there"
        );
    }

    #[test]
    fn what_differs_is_named() {
        let header = TYPES.replace("INVALID_VALUE = 1", "INVALID_VALUE = 7");
        let header = header.replace("reserved[64]", "reserved[32]; int more");
        let error = compared(
            &format!(
                "{header}CUresult cuMemFree_v2(CUdeviceptr *dptr); CUresult cuInventedYesterday(void);"
            ),
            "typedef CUresult (*PFN_cuMemFree_v9990)(CUdeviceptr *dptr);",
        )
        .unwrap_err()
        .to_string();
        for part in [
            "cuMemFree_v2 is declared otherwise there",
            "cuInventedYesterday is not declared",
            "CUDA_ERROR_INVALID_VALUE is 7 there, here 1",
            "CUipcMemHandle has 36 bytes there, here 64",
            "PFN_cuMemFree_v9990 has no symbol of that version here",
            "cuMemFree_v2 is declared since 3020, of which cudaTypedefs.h says nothing",
        ] {
            assert!(error.contains(part), "no `{part}` in\n{error}");
        }
    }

    #[test]
    fn an_older_header_may_have_smaller_structures() {
        let header = TYPES.replace("reserved[64]", "reserved[32]");
        let header = format!("{header}CUresult cuInit(unsigned int Flags);");
        assert!(compared(&header, "").is_err());
        let older = header.replace("99000", "12000");
        let said = compared(&older, "").unwrap();
        assert!(said.starts_with("1 functions, 0 structures"), "{said}");
    }

    #[test]
    fn a_structure_ends_where_its_alignment_says() {
        let api = towline_api::load(&towline_api::root(), "cuda").unwrap();
        let size = |name| Layout::of_struct(&api, api.structure(name).unwrap()).size;
        assert_eq!(size("CUlaunchConfig"), 56);
        assert_eq!(size("CUlaunchAttribute"), 72);
        assert_eq!(size("CUtensorMap"), 128);
    }
}
