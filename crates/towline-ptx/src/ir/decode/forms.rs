//! Which modifiers and types an instruction may have together, as the PTX ISA lists them for each instruction under "Syntax".
//!
//! The other modules here take modifiers one by one and say what they mean; that `add.rn` is for floating point and `add.cc` for some
//! integers is told here, once. ptxas is the judge of this table: `tests/ptxas` holds the two against each other. As with ptxas, the
//! order of modifiers does not matter; that of types does.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::ptx::Type;

/// One line per form: opcodes and a colon; `[a b]` one of these or none; `(a b)` one of these; `{a b}` a type, one of these, in order.
/// `$name` stands for a list of [`LISTS`].
const FORMS: &str = "
    add: {$integer u16x2 s16x2}
    sub: {$integer}
    add sub: [sat] {s32}
    add sub mul: [$round] [ftz] [sat] {f32}
    add sub mul: [$round] [ftz] {f32x2}
    add sub mul: [$round] {f64}
    add sub mul: [rn] [ftz] [sat] {f16 f16x2}
    add sub mul: [rn] {bf16 bf16x2}
    add sub: (cc) {$wide_integer}
    addc subc: [cc] {$wide_integer}
    mul mad: (lo hi) {$integer}
    mul mad: (wide) {u16 u32 s16 s32}
    mad mad24: (hi) (sat) {s32}
    mad fma: ($round) [ftz] [sat] {f32}
    mad fma: ($round) {f64}
    mad: (lo hi) (cc) {$wide_integer}
    madc: (lo hi) [cc] {$wide_integer}
    mul24 mad24: (lo hi) {u32 s32}
    fma: ($round) [ftz] {f32x2}
    fma: (rn) [ftz] [sat] {f16 f16x2}
    fma: (rn) [ftz] (relu) {f16 f16x2}
    fma: (rn) [relu] {bf16 bf16x2}
    div rem sad: {$integer}
    div: (approx full $round) [ftz] {f32}
    div: ($round) {f64}
    min max: {$integer u16x2 s16x2 f64}
    min max: [relu] {s32 s16x2}
    min max: [ftz] [NaN] {f32 f16 f16x2}
    min max: [ftz] [NaN] (xorsign) (abs) {f32 f16 f16x2}
    min max: [NaN] {bf16 bf16x2}
    min max: [NaN] (xorsign) (abs) {bf16 bf16x2}
    copysign: {f32 f64}
    abs neg: {s16 s32 s64 f64 bf16 bf16x2}
    abs neg: [ftz] {f32 f16 f16x2}
    rcp sqrt: (approx $round) [ftz] {f32}
    rcp sqrt: ($round) {f64}
    rcp: (approx) (ftz) {f64}
    rsqrt: (approx) [ftz] {f32 f64}
    sin cos lg2 ex2: (approx) [ftz] {f32}
    ex2: (approx) {f16 f16x2}
    ex2: (approx) (ftz) {bf16 bf16x2}
    tanh: (approx) {f32 f16 f16x2 bf16 bf16x2}

    and or xor not: {pred $bits}
    cnot shl: {$bits}
    shr: {$bits $integer}
    shf: (l r) (wrap clamp) {b32}
    popc clz brev bfi: {b32 b64}
    bfind: [shiftamt] {$wide_integer}
    bfe: {$wide_integer}
    bmsk: (clamp wrap) {b32}
    szext: (clamp wrap) {u32 s32}
    fns: {b32}
    lop3: [and or] {b32}
    prmt: [f4e b4e rc8 ecl ecr rc16] {b32}
    dp4a: {u32 s32} {u32 s32}
    dp2a: (lo hi) {u32 s32} {u32 s32}

    setp: (eq ne) [$logic] {$bits}
    setp: (eq ne lt le gt ge) [$logic] {$integer}
    setp: (lo ls hi hs) [$logic] {u16 u32 u64}
    setp: ($float_compare) [$logic] [ftz] {f32 f16}
    setp: ($float_compare) [$logic] {f64 bf16}
    setp: ($float_compare) [$logic] [ftz] {f16x2}
    setp: ($float_compare) [$logic] {bf16x2}
    set: (eq ne) [$logic] {$truth} {$bits}
    set: (eq ne lt le gt ge) [$logic] {$truth} {$integer}
    set: (lo ls hi hs) [$logic] {$truth} {u16 u32 u64}
    set: ($float_compare) [$logic] [ftz] {u32 s32 f16 f32} {f32}
    set: ($float_compare) [$logic] {bf16} {f32}
    set: ($float_compare) [$logic] {$truth} {f64}
    set: ($float_compare) [$logic] [ftz] {u16 s16 u32 s32 f16} {f16}
    set: ($float_compare) [$logic] {bf16} {f16}
    set: ($float_compare) [$logic] {u16 s16 u32 s32 bf16} {bf16}
    set: ($float_compare) [$logic] [ftz] {f16x2} {f16x2}
    set: ($float_compare) [$logic] {bf16x2} {bf16x2}
    selp: {$value}
    slct: {$value} {s32}
    slct: [ftz] {$value} {f32}
    testp: (finite infinite number notanumber normal subnormal) {f32 f64}

    mov: {pred $value}
    cvt: [sat] {$any_integer} {$any_integer}
    cvt: (rni rzi rmi rpi) [ftz] [sat] {$any_integer} {f32}
    cvt: (rni rzi rmi rpi) [sat] {$any_integer} {f16 f64}
    cvt: (rni rzi rmi rpi) {$any_integer} {bf16}
    cvt: ($round) [sat] {f16 f64} {$any_integer}
    cvt: ($round) [ftz] [sat] {f32} {$any_integer}
    cvt: ($round) {bf16} {$any_integer}
    cvt: [ftz] [sat] {f64} {f32}
    cvt: [ftz] [sat] {f32 f64} {f16}
    cvt: {f32 f64} {bf16}
    cvt: [ftz] {f32} {bf16}
    cvt: ($round) [ftz] [sat] {f32} {f64}
    cvt: ($round) [ftz] [sat] {f16} {f32}
    cvt: ($round) [sat] {f16} {f64}
    cvt: ($round) [ftz] {bf16} {f32}
    cvt: ($round) {bf16} {f16 f64}
    cvt: ($round) {f16} {bf16}
    cvt: (rn rz) [relu] [satfinite] {f16 bf16} {f32}
    cvt: (rn rz) [relu] [satfinite] {f16x2 bf16x2} {f32}
    cvt: [rni rzi rmi rpi] [ftz] [sat] {f32} {f32}
    cvt: [rni rzi rmi rpi] [sat] {f64} {f64}
    cvt: [rni rzi rmi rpi] [ftz] [sat] {f16} {f16}
    cvt: [rni rzi rmi rpi] {bf16} {bf16}
    cvt: (rn) (satfinite) [relu] {e4m3x2 e5m2x2} {f32 f16x2}
    cvt: (rn) [relu] {f16x2} {e4m3x2 e5m2x2}
    cvt: (rn rz) [relu] {tf32} {f32}
    cvt: (rna) {tf32} {f32}
    cvt: (pack) (sat) {u16 s16} {s32}
    cvt: (pack) (sat) {u8 s8} {s32} {b32}
    cvta: [to] (const global local param param::entry shared shared::cta shared::cluster) {u32 u64}
    isspacep: (const global local param param::entry shared shared::cta shared::cluster)

    bra call ret: [uni]
    brx: (idx) [uni]
    brkpt exit trap:
    bar: (warp) (sync)
    bar: [cta] (sync arrive)
    bar: [cta] (red) (popc) {u32}
    bar: [cta] (red) (and or) {pred}
    barrier: [cta] (sync arrive) [aligned]
    barrier: [cta] (red) (popc) [aligned] {u32}
    barrier: [cta] (red) (and or) [aligned] {pred}
    barrier: (cluster) (arrive) [release relaxed] [aligned]
    barrier: (cluster) (wait) [acquire] [aligned]
    mbarrier: (init inval) [shared shared::cta] {b64}
    mbarrier: (expect_tx complete_tx) [$shared] {b64}
    mbarrier: (expect_tx complete_tx) (relaxed) (cta cluster) [$shared] {b64}
    mbarrier: (arrive arrive_drop) [expect_tx] [$shared] {b64}
    mbarrier: (arrive arrive_drop) [expect_tx] (release relaxed) (cta cluster) [$shared] {b64}
    mbarrier: (arrive arrive_drop) (noComplete) [shared shared::cta] {b64}
    mbarrier: (arrive arrive_drop) (noComplete) (release) (cta) [shared shared::cta] {b64}
    mbarrier: (test_wait try_wait) [parity] [shared shared::cta] {b64}
    mbarrier: (test_wait try_wait) [parity] (acquire relaxed) (cta cluster) [shared shared::cta] {b64}
    mbarrier: (pending_count) {b64}
    mapa getctarank: [shared::cluster] {u32 u64 s32 s64}
    nanosleep: {u32}
    prefetch: [local global] (L1 L2)
    prefetch: [global] (L2::evict_last L2::evict_normal)
    prefetchu: (L1)
    discard: [global] (L2)
    applypriority: [global] (L2::evict_normal)
    pmevent: [mask]
    griddepcontrol: (launch_dependents wait)
    setmaxnreg: (inc dec) (sync) (aligned) {u32}

    activemask: {b32}
    elect: (sync)
    match: (any all) (sync) {b32 b64}
    redux: (sync) (add min max) {u32 s32}
    redux: (sync) (and or xor) {b32}
    shfl: (sync) (up down bfly idx) {b32}
    vote: (sync) (all any uni) {pred}
    vote: (sync) (ballot) {b32}

    ld: [weak] (local $shared const $param) [ca cg cs lu cv] [$vector] {$memory}
    ld: [weak] [global] [ca cg cs lu cv] [$l1] [L2::cache_hint] [$l2_size] [$vector] {$memory}
    ld: [weak] [global] [$l1] ($l2) [L2::cache_hint] [$l2_size] (v4 v8) {$memory}
    ld: (volatile) (local $shared $param) [$vector] {$memory}
    ld: (volatile) [global] [$l2_size] [$vector] {$memory}
    ld: (relaxed acquire) ($scope) ($shared) [$vector] {$memory}
    ld: (relaxed acquire) ($scope) [global] [$l1] [L2::cache_hint] [$l2_size] [$vector] {$memory}
    ld: (mmio) (relaxed) (sys) [global] {$memory}
    ld: (global) [ca cg cs] (nc) [$l1] [L2::cache_hint] [$l2_size] [$vector] {$memory}
    ld: (global) (nc) [$l1] ($l2) [L2::cache_hint] [$l2_size] (v4 v8) {$memory}
    ldu: [global] [$vector] {$memory}
    st: [weak] (local $shared $param) [wb cg cs wt] [$vector] {$memory}
    st: [weak] [global] [wb cg cs wt] [$l1] [L2::cache_hint] [$vector] {$memory}
    st: [weak] [global] [$l1] ($l2) [L2::cache_hint] (v4 v8) {$memory}
    st: (volatile) [global local $shared $param] [$vector] {$memory}
    st: (relaxed release) ($scope) ($shared) [$vector] {$memory}
    st: (relaxed release) ($scope) [global] [$l1] [L2::cache_hint] [$vector] {$memory}
    st: (mmio) (relaxed) (sys) [global] {$memory}
    atom: [$order] [$scope] [$atomic_space] (and or xor exch) [L2::cache_hint] {b32 b64}
    atom: [$order] [$scope] [$atomic_space] (cas) [L2::cache_hint] {b16 b32 b64}
    atom: [$order] [$scope] [$atomic_space] (inc dec) [L2::cache_hint] {u32}
    atom: [$order] [$scope] [$atomic_space] (add) [L2::cache_hint] {u32 s32 u64 f32 f64}
    atom: [$order] [$scope] [$atomic_space] (add) (noftz) [L2::cache_hint] {f16 f16x2 bf16 bf16x2}
    atom: [$order] [$scope] [$atomic_space] (min max) [L2::cache_hint] {u32 s32 u64 s64}
    red: [relaxed release] [$scope] [$atomic_space] (and or xor) [L2::cache_hint] {b32 b64}
    red: [relaxed release] [$scope] [$atomic_space] (inc dec) [L2::cache_hint] {u32}
    red: [relaxed release] [$scope] [$atomic_space] (add) [L2::cache_hint] {u32 s32 u64 f32 f64}
    red: [relaxed release] [$scope] [$atomic_space] (add) (noftz) [L2::cache_hint] {f16 f16x2 bf16 bf16x2}
    red: [relaxed release] [$scope] [$atomic_space] (min max) [L2::cache_hint] {u32 s32 u64 s64}
    tex: [base level] ($geometry) (v4) {u32 s32 f16 f32} {s32 f32}
    tex: [base level] ($geometry) (v2) {f16x2} {s32 f32}
    tex: [base level] (cube acube) (v4) {u32 s32 f16 f32} {f32}
    tex: [base level] (cube acube) (v2) {f16x2} {f32}
    tex: (grad) ($geometry cube acube) (v4) {u32 s32 f16 f32} {f32}
    tex: (grad) ($geometry cube acube) (v2) {f16x2} {f32}
    tld4: (r g b a) (2d a2d cube acube) (v4) {u32 s32 f16 f32} {f32}
    tld4: (r g b a) (2d a2d cube acube) (v2) {f16x2} {f32}
    txq: (width height depth channel_data_type channel_order normalized_coords array_size num_mipmap_levels num_samples) {b32}
    txq: (memory_layout force_unnormalized_coords filter_mode addr_mode_0 addr_mode_1 addr_mode_2) {b32}
    txq: (level) (width height depth) {b32}
    suq: (width height depth channel_data_type channel_order array_size memory_layout) {b32}
    suld: (b) ($geometry) [ca cg cs cv] [v2 v4] {b8 b16 b32} (trap clamp zero)
    suld: (b) ($geometry) [ca cg cs cv] [v2] {b64} (trap clamp zero)
    sust: (b) ($geometry) [wb cg cs wt] [v2 v4] {b8 b16 b32} (trap clamp zero)
    sust: (b) ($geometry) [wb cg cs wt] [v2] {b64} (trap clamp zero)
    sust: (p) ($geometry) [wb cg cs wt] [v2 v4] {b32} (trap clamp zero)
    sured: (b) (add) (1d 2d 3d) {u32 s32 u64} (trap clamp zero)
    sured: (b) (min max) (1d 2d 3d) {u32 s32 u64 s64} (trap clamp zero)
    sured: (b) (and or) (1d 2d 3d) {b32} (trap clamp zero)
    sured: (p) (add min max and or) (1d 2d 3d) {b32} (trap clamp zero)
    fence: [sc acq_rel acquire release] ($scope)
    fence: (proxy) (alias)
    fence: (proxy) (async) [global shared::cta shared::cluster]
    fence: (mbarrier_init) (release) (cluster)
    membar: (cta gl sys)
";

/// What stands often.
const LISTS: &[(&str, &str)] = &[
    ("any_integer", "u8 u16 u32 u64 s8 s16 s32 s64"),
    ("atomic_space", "global shared shared::cta shared::cluster"),
    ("bits", "b16 b32 b64"),
    (
        "float_compare",
        "eq ne lt le gt ge equ neu ltu leu gtu geu num nan",
    ),
    ("geometry", "1d 2d 3d a1d a2d"),
    ("integer", "u16 u32 u64 s16 s32 s64"),
    (
        "l1",
        "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate",
    ),
    ("l2", "L2::evict_normal L2::evict_first L2::evict_last"),
    ("l2_size", "L2::64B L2::128B L2::256B"),
    ("logic", "and or xor"),
    (
        "memory",
        "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
    ),
    ("order", "relaxed acquire release acq_rel"),
    ("param", "param param::entry param::func"),
    ("round", "rn rz rm rp"),
    ("scope", "cta cluster gpu sys"),
    ("shared", "shared shared::cta shared::cluster"),
    ("truth", "u32 s32 f16 bf16 f32"),
    ("value", "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"),
    ("vector", "v2 v4 v8"),
    ("wide_integer", "u32 s32 u64 s64"),
];

/// A form of an instruction.
#[derive(Debug, Default)]
struct Form {
    groups: Vec<Group>,
    /// Those that each type is one of.
    types: Vec<Vec<Type>>,
}

/// Modifiers that exclude each other.
#[derive(Debug)]
struct Group {
    required: bool,
    names: Vec<&'static str>,
}

impl Form {
    /// Whether these modifiers are this form's, types among them.
    fn is(&self, modifiers: &[&str]) -> bool {
        let mut types = self.types.iter();
        // A form has at most ten groups.
        let mut used = 0_u32;
        for name in modifiers {
            if let Some(ty) = Type::from_name(name) {
                if !types.next().is_some_and(|known| known.contains(&ty)) {
                    return false;
                }
                continue;
            }
            let free = |(index, group): &(usize, &Group)| {
                used & 1 << index == 0 && group.names.contains(name)
            };
            match self.groups.iter().enumerate().find(free) {
                Some((index, _)) => used |= 1 << index,
                None => return false,
            }
        }
        let all = |(index, group): (usize, &Group)| !group.required || used & 1 << index != 0;
        types.next().is_none() && self.groups.iter().enumerate().all(all)
    }
}

/// Whether an instruction may have these modifiers together. `None` where this table does not know the opcode.
pub(super) fn go_together(opcode: &str, modifiers: &[&str]) -> Option<bool> {
    static TABLE: OnceLock<HashMap<&str, Vec<Form>>> = OnceLock::new();
    let forms = TABLE.get_or_init(table).get(opcode)?;
    Some(forms.iter().any(|form| form.is(modifiers)))
}

fn table() -> HashMap<&'static str, Vec<Form>> {
    let mut table: HashMap<&str, Vec<Form>> = HashMap::new();
    for line in FORMS.lines() {
        let Some((opcodes, form)) = line.split_once(": ").or_else(|| line.split_once(':')) else {
            continue;
        };
        for opcode in opcodes.split_ascii_whitespace() {
            table.entry(opcode).or_default().push(parse(form));
        }
    }
    table
}

fn parse(text: &'static str) -> Form {
    let mut form = Form::default();
    let mut rest = text;
    while let Some(start) = rest.find(['[', '(', '{']) {
        let kind = rest.as_bytes()[start];
        let end = rest
            .find([']', ')', '}'])
            .expect("what is opened is closed");
        let names = rest[start + 1..end].split_ascii_whitespace();
        let names = names.flat_map(expand).collect();
        rest = &rest[end + 1..];
        match kind {
            b'{' => form.types.push(types(&names)),
            kind => form.groups.push(Group {
                required: kind == b'(',
                names,
            }),
        }
    }
    form
}

fn expand(name: &'static str) -> Vec<&'static str> {
    let Some(list) = name.strip_prefix('$') else {
        return vec![name];
    };
    let (_, names) = LISTS
        .iter()
        .find(|(known, _)| *known == list)
        .expect("lists that forms name are there");
    names.split_ascii_whitespace().collect()
}

fn types(names: &Vec<&'static str>) -> Vec<Type> {
    let types = names.iter().map(|name| Type::from_name(name));
    types.map(|ty| ty.expect("a type's name")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_go_together_as_the_table_says_in_any_order() {
        for (opcode, modifiers, expected) in [
            ("add", &["f32"][..], true),
            ("add", &["rn", "ftz", "sat", "f32"], true),
            ("add", &["f32", "sat", "ftz"], true),
            ("add", &["rn", "rz", "f32"], false),
            ("add", &["ftz", "ftz", "f32"], false),
            ("add", &["rn", "s32"], false),
            ("add", &["f32", "f32"], false),
            ("add", &[], false),
            ("add", &["cc", "u32"], true),
            ("add", &["cc", "sat", "s32"], false),
            ("cvt", &["rn", "f32", "s32"], true),
            ("cvt", &["rn", "s32", "f32"], false),
            ("exit", &[], true),
            ("exit", &["uni"], false),
        ] {
            let together = go_together(opcode, modifiers);
            assert_eq!(together, Some(expected), "{opcode} {modifiers:?}");
        }
        assert_eq!(go_together("wgmma", &[]), None);
    }
}
