//! Statements about matrices to ask about: all shapes with all types, most of which do not go together.

/// Bits of an element, and the type of registers that hold it.
fn kind(ty: &str) -> (usize, &'static str) {
    match ty {
        "b1" => (1, "b32"),
        "s4" | "u4" => (4, "b32"),
        "s8" | "u8" => (8, "b32"),
        "f16" | "bf16" => (16, "b32"),
        "f32" => (32, "f32"),
        "f64" => (64, "f64"),
        _ => (32, "b32"),
    }
}

/// So many registers in braces.
fn registers(ty: &str, count: usize) -> String {
    let names = (0..count.max(1)).map(|number| format!("{ty}_{}", number % 6));
    format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
}

/// Registers for a matrix of so many elements, each held by one lane.
fn held(elements: usize, ty: &str) -> String {
    let (bits, register) = kind(ty);
    registers(register, elements * bits / 32 / bits.max(32))
}

const FACTORS: &[[&str; 2]] = &[
    ["f16", "f16"],
    ["bf16", "bf16"],
    ["tf32", "tf32"],
    ["f64", "f64"],
    ["s8", "s8"],
    ["u8", "s8"],
    ["s4", "u4"],
    ["b1", "b1"],
    ["f16", "bf16"],
    ["s8", "s4"],
    ["f32", "f32"],
];

const SUMS: &[[&str; 2]] = &[
    ["f32", "f32"],
    ["f16", "f16"],
    ["f32", "f16"],
    ["f16", "f32"],
    ["s32", "s32"],
    ["f64", "f64"],
];

const MODIFIERS: &[[&str; 2]] = &[
    ["", ""],
    [".satfinite", ""],
    ["", ".xor.popc"],
    ["", ".and.popc"],
    [".satfinite", ".xor.popc"],
];

fn mma(all: &mut Vec<String>) {
    for (m, k) in [
        (8, 4),
        (8, 16),
        (8, 32),
        (8, 128),
        (16, 4),
        (16, 8),
        (16, 16),
        (16, 32),
        (16, 64),
        (16, 128),
        (16, 256),
    ] {
        for [a, b] in FACTORS {
            for [d, c] in SUMS {
                for (layout, [saturate, product]) in ["row.col", "row.row", "col.row"]
                    .iter()
                    .flat_map(|layout| MODIFIERS.iter().map(move |rest| (layout, rest)))
                {
                    // Of what differs in more than one way a part is asked about.
                    let odd = usize::from(*layout != "row.col")
                        + usize::from(saturate.len() + product.len() > 0);
                    if odd > 1 && !(m == 8 && k == 4) {
                        continue;
                    }
                    let lanes = if m == 8 && k == 4 && *a != "f64" {
                        4
                    } else {
                        1
                    };
                    let [left, right] = [held(lanes * m * k, a), held(lanes * 8 * k, b)];
                    let [from, to] = [c, d].map(|ty| held(lanes * m * 8, ty));
                    all.push(format!(
                        "mma.sync.aligned.m{m}n8k{k}.{layout}{saturate}.{d}.{a}.{b}.{c}{product} {to}, {left}, {right}, {from};"
                    ));
                }
            }
        }
    }
}

const SHAPES: &[[usize; 3]] = &[
    [16, 16, 16],
    [8, 32, 16],
    [32, 8, 16],
    [16, 16, 8],
    [8, 8, 4],
    [8, 8, 32],
    [8, 8, 128],
    [16, 8, 16],
];

/// Registers that `wmma` holds a factor in.
fn factor(elements: usize, ty: &str) -> String {
    match ty {
        "f16" => registers("b32", 8),
        ty => held(elements, ty),
    }
}

fn wmma(all: &mut Vec<String>) {
    for [m, n, k] in SHAPES {
        let name = format!("m{m}n{n}k{k}");
        for ty in [
            "f16", "bf16", "tf32", "f64", "s8", "u8", "s4", "b1", "f32", "s32",
        ] {
            for layout in ["row", "col"] {
                for (role, elements) in [("a", m * k), ("b", n * k)] {
                    let to = factor(elements, ty);
                    all.push(format!(
                        "wmma.load.{role}.sync.aligned.{layout}.{name}.{ty} {to}, [b64_0];"
                    ));
                }
                let sums = held(m * n, ty);
                all.push(format!(
                    "wmma.load.c.sync.aligned.{layout}.{name}.global.{ty} {sums}, [b64_0], b32_1;"
                ));
                all.push(format!(
                    "wmma.store.d.sync.aligned.{layout}.{name}.shared.{ty} [b64_0+16], {sums}, 32;"
                ));
            }
        }
        for [a, b] in FACTORS {
            for [d, c] in SUMS {
                for layout in ["row.col", "col.row"] {
                    let types = match (*a, *b) {
                        ("f16", "f16") => format!("{d}.{c}"),
                        _ => format!("{d}.{a}.{b}.{c}"),
                    };
                    let [left, right] = [factor(m * k, a), factor(n * k, b)];
                    let [from, to] = [c, d].map(|ty| held(m * n, ty));
                    for [saturate, product] in MODIFIERS {
                        all.push(format!(
                            "wmma.mma{product}.sync.aligned.{layout}.{name}{saturate}.{types} {to}, {left}, {right}, {from};"
                        ));
                        // It stands at the end.
                        if !saturate.is_empty() {
                            all.push(format!(
                                "wmma.mma{product}.sync.aligned.{layout}.{name}.{types}{saturate} {to}, {left}, {right}, {from};"
                            ));
                        }
                    }
                    all.push(format!("wmma.mma.sync.aligned.{layout}.{name}.rz.{types} {to}, {left}, {right}, {from};"));
                }
            }
        }
    }
}

fn tiles(all: &mut Vec<String>) {
    for (count, number) in [(".x1", 1), (".x2", 2), (".x4", 4), (".x3", 3), ("", 1)] {
        for trans in ["", ".trans"] {
            for space in ["", ".shared", ".shared::cta", ".global", ".shared::cluster"] {
                let held = registers("b32", number);
                for ty in ["b16", "b8"] {
                    all.push(format!(
                        "ldmatrix.sync.aligned.m8n8{count}{trans}{space}.{ty} {held}, [b64_0];"
                    ));
                    all.push(format!(
                        "stmatrix.sync.aligned.m8n8{count}{trans}{space}.{ty} [b64_0], {held};"
                    ));
                }
            }
        }
    }
}

/// All of them.
pub(crate) fn all() -> Vec<String> {
    let mut all: Vec<_> = [
        "movmatrix.sync.aligned.m8n8.trans.b16 b32_0, b32_1;",
        "movmatrix.sync.aligned.m8n8.b16 b32_0, b32_1;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 b32_0, [b32_1];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {f32_0, f32_1}, [b32_1];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {b32_0, b32_1, b32_2}, [b32_1];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {b64_0, b64_1}, [b32_1];",
        "ldmatrix.sync.m8n8.x1.shared.b16 {b32_0}, [b32_1];",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {f32_0, f32_1, f32_2, f32_3}, {f16x2_0, f16x2_1}, {f16x2_0}, {f32_0, f32_1, f32_2, f32_3};",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {b32_0, b32_1, b32_2, b32_3}, {b32_0, b32_1}, {b32_0}, {b32_0, b32_1, b32_2, b32_3};",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {f32_0, f32_1, f32_2, f32_3}, {f32_0, f32_1}, {f32_0}, {f32_0, f32_1, f32_2, f32_3};",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {f32_0, f32_1, f32_2, f32_3}, {u32_0, u32_1}, {s32_0}, {f32_0, f32_1, f32_2, f32_3};",
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {f32_0, f32_1, f32_2, f32_3}, {f16x2_0, f16x2_1}, {u32_0}, {f32_0, f32_1, f32_2, f32_3};",
        "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {f32_0, f32_1, f32_2, f32_3}, {f32_0, f32_1}, {f32_0}, {f32_0, f32_1, f32_2, f32_3};",
        "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {f32_0, f32_1, f32_2, f32_3}, {u32_0, s32_1}, {b32_0}, {f32_0, f32_1, f32_2, f32_3};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {s32_0, u32_1}, {u32_0}, {s32_0}, {b32_0, s32_1};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {f32_0, f32_1}, {b32_0}, {b32_0}, {b32_0, b32_1};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {b32_0, b32_1}, {f32_0}, {b32_0}, {b32_0, b32_1};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {b32_0, b32_1}, {b32_0}, {b32_0}, {0, 0};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {b32_0, b32_1}, b32_0, b32_0, {b32_0, b32_1};",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {f64_0, f64_1}, {f64_0}, {f64_0}, {f64_0, b64_1};",
        "mma.sync.m8n8k4.row.col.f64.f64.f64.f64 {f64_0, f64_1}, {f64_0}, {f64_0}, {f64_0, f64_1};",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64 {f64_0, f64_1}, {f64_0}, {f64_0}, {f64_0, f64_1};",
        "mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64 {f64_0, f64_1}, {f64_0}, {f64_0}, {f64_0, f64_1};",
    ]
    .map(str::to_owned)
    .into();
    mma(&mut all);
    wmma(&mut all);
    tiles(&mut all);
    all
}
