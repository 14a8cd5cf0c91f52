//! The symbols of a library whose functions are found by base name and version: what it exports, and the table behind
//! `cuGetProcAddress`.

use std::fmt::Write;

use crate::model::{Api, Call};

/// One exported symbol.
pub struct Symbol {
    /// The name to ask for: `cuMemAlloc`.
    pub base: String,
    /// Version from which that name means this symbol, as `cuGetProcAddress` counts: 3020 is 3.2.
    pub since: u32,
    /// Whether its default stream is the calling thread's own.
    pub per_thread: bool,
    /// The symbol: `cuMemAlloc_v2`.
    pub name: String,
}

/// `3.2` as `cuGetProcAddress` counts: 3020.
pub fn version_number(version: &str) -> u32 {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    major * 1000 + minor * 10
}

/// `cuMemAlloc_v2` and `cuMemcpy_ptds` without what tells them from their siblings.
fn base(symbol: &str) -> &str {
    let plain = ["_ptds", "_ptsz"]
        .iter()
        .find_map(|suffix| symbol.strip_suffix(suffix))
        .unwrap_or(symbol);
    match plain.rsplit_once("_v") {
        Some((base, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => base,
        _ => plain,
    }
}

/// Every symbol of a call: its own, those of its other names, and those that take the thread's stream.
pub fn of(api: &Api, call: &Call) -> Vec<Symbol> {
    let first = api.dialect().first_version;
    let symbol = |name: &str, since: &str, per_thread| Symbol {
        base: base(name).into(),
        since: version_number(since),
        per_thread,
        name: name.into(),
    };
    let own = call.since.as_deref().unwrap_or(first);
    let mut symbols = vec![symbol(&call.name, own, false)];
    for alias in &call.aliases {
        let since = call.alias_since.get(alias).map_or(own, String::as_str);
        symbols.push(symbol(alias, since, false));
    }
    for (name, since) in &call.per_thread {
        symbols.push(symbol(name, since, true));
    }
    symbols
}

/// The entries of a call in the table.
pub(super) fn entries(api: &Api, call: &Call) -> String {
    let mut out = String::new();
    for symbol in of(api, call) {
        out.push_str(&entry(&symbol));
    }
    out
}

fn entry(symbol: &Symbol) -> String {
    format!(
        "    ProcSymbol {{ base: \"{}\", since: {}, per_thread: {}, name: \"{}\" }},\n",
        symbol.base, symbol.since, symbol.per_thread, symbol.name
    )
}

/// Emits the table, in the order that a search by base name wants.
pub fn emit(api: &Api) -> String {
    let exported = api.calls.iter().filter(|call| call.exported());
    let mut symbols: Vec<Symbol> = exported.flat_map(|call| of(api, call)).collect();
    symbols.sort_by(|one, other| {
        (&one.base, one.per_thread, one.since).cmp(&(&other.base, other.per_thread, other.since))
    });
    let mut out = String::from(
        "/// Every exported symbol, by base name, kind of default stream and version.\npub const PROC_SYMBOLS: &[ProcSymbol] = &[\n",
    );
    for symbol in &symbols {
        let _ = write!(out, "{}", entry(symbol));
    }
    out.push_str("];\n");
    out
}
