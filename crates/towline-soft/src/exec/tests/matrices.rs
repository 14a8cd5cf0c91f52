//! Kernels that multiply matrices, against plain loops.

use super::*;

also_compiled! {
    a_called_function_leaves_its_callers_memory_alone,
    a_row_that_is_misaligned_is_told_of_its_lane,
    four_products_of_eight_lanes_each_stay_apart,
    matrices_multiply_in_every_shape_and_layout,
    operations_on_matrices_wait_for_lanes_that_have_parted,
    tiles_are_loaded_multiplied_and_stored,
    tiles_change_rows_for_columns,
}

/// A type of elements, and its bits of a small number.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    bits: usize,
    write: fn(i32) -> u64,
}

fn half(value: i32) -> u64 {
    // Small integers are exact in both.
    let bits = (value as f32).to_bits();
    match bits << 1 {
        0 => 0,
        _ => {
            u64::from(bits >> 16 & 0x8000 | ((bits >> 23 & 0xff) - 112) << 10 | bits >> 13 & 0x3ff)
        }
    }
}

fn single(value: i32) -> u64 {
    (value as f32).to_bits().into()
}

const F16: Kind = Kind {
    name: "f16",
    bits: 16,
    write: half,
};
const BF16: Kind = Kind {
    name: "bf16",
    bits: 16,
    write: |value| single(value) >> 16,
};
const TF32: Kind = Kind {
    name: "tf32",
    bits: 32,
    write: single,
};
const F32: Kind = Kind {
    name: "f32",
    bits: 32,
    write: single,
};
const F64: Kind = Kind {
    name: "f64",
    bits: 64,
    write: |value| f64::from(value).to_bits(),
};
const S32: Kind = Kind {
    name: "s32",
    bits: 32,
    write: |value| value as u32 as u64,
};
const S8: Kind = Kind {
    name: "s8",
    bits: 8,
    write: |value| value as u8 as u64,
};
const U8: Kind = Kind {
    name: "u8",
    bits: 8,
    write: |value| value.unsigned_abs().into(),
};
const S4: Kind = Kind {
    name: "s4",
    bits: 4,
    write: |value| value as u64 & 0xf,
};
const B1: Kind = Kind {
    name: "b1",
    bits: 1,
    write: |value| value as u64 & 1,
};

/// A matrix of small numbers.
#[derive(Debug, Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    elements: Vec<i32>,
}

impl Matrix {
    fn new(rows: usize, columns: usize, element: impl Fn(usize, usize) -> i32) -> Self {
        let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Self {
            rows,
            columns,
            elements: all.map(|(row, column)| element(row, column)).collect(),
        }
    }

    fn at(&self, row: usize, column: usize) -> i32 {
        self.elements[row * self.columns + column]
    }

    /// Its bits in memory: rows in one piece, or columns; so many elements from one to the next.
    fn words(&self, kind: Kind, by_rows: bool, stride: usize) -> Vec<u32> {
        let lines = if by_rows { self.rows } else { self.columns };
        let mut words = vec![0; (lines * stride * kind.bits).div_ceil(32)];
        for row in 0..self.rows {
            for column in 0..self.columns {
                let index = if by_rows {
                    row * stride + column
                } else {
                    column * stride + row
                };
                let bits = (kind.write)(self.at(row, column));
                let at = index * kind.bits;
                words[at / 32] |= (bits << (at % 32)) as u32;
                if kind.bits == 64 {
                    words[at / 32 + 1] = (bits >> 32) as u32;
                }
            }
        }
        words
    }

    fn times(&self, other: &Self, more: &Self, product: fn(i32, i32) -> i32) -> Self {
        Self::new(self.rows, other.columns, |row, column| {
            let products = (0..self.columns).map(|k| product(self.at(row, k), other.at(k, column)));
            more.at(row, column) + products.sum::<i32>()
        })
    }
}

fn small(row: usize, column: usize, by: usize) -> i32 {
    ((row * 5 + column * 3 + row * column * by) % 7) as i32 - 3
}

fn registers(letter: char, count: usize) -> String {
    let names: Vec<_> = (0..count)
        .map(|number| format!("{letter}{number}"))
        .collect();
    names.join(", ")
}

#[test]
fn matrices_multiply_in_every_shape_and_layout() {
    let mut tried = 0;
    // Shape, factors, sum, registers of a, b and sums.
    for (shape, a, b, c, counts) in [
        ([16, 16, 16], F16, F16, F32, [8, 8, 8]),
        ([16, 16, 16], F16, F16, F16, [8, 8, 4]),
        ([8, 32, 16], F16, F16, F32, [8, 8, 8]),
        ([32, 8, 16], F16, F16, F16, [8, 8, 4]),
        ([16, 16, 16], BF16, BF16, F32, [4, 4, 8]),
        ([8, 32, 16], BF16, BF16, F32, [2, 8, 8]),
        ([32, 8, 16], BF16, BF16, F32, [8, 2, 8]),
        ([16, 16, 8], TF32, TF32, F32, [4, 4, 8]),
        ([8, 8, 4], F64, F64, F64, [1, 1, 2]),
        ([16, 16, 16], S8, S8, S32, [2, 2, 8]),
        ([8, 32, 16], U8, U8, S32, [1, 4, 8]),
        ([32, 8, 16], S8, S8, S32, [4, 1, 8]),
        ([8, 8, 32], S4, S4, S32, [1, 1, 2]),
        ([8, 8, 128], B1, B1, S32, [1, 1, 2]),
    ] {
        let [m, n, k] = shape;
        let name = format!("m{m}n{n}k{k}");
        for layouts in 0..8_usize {
            let [a_rows, b_rows, c_rows] = [0, 1, 2].map(|bit| layouts >> bit & 1 == 0);
            if a.bits < 8 && (!a_rows || b_rows) {
                continue;
            }
            tried += 1;
            let by = |rows: bool| if rows { "row" } else { "col" };
            let left = Matrix::new(m, k, |row, column| small(row, column, 1));
            let right = Matrix::new(k, n, |row, column| small(row, column, 2));
            let more = Matrix::new(m, n, |row, column| small(row, column, 3));
            let product: fn(i32, i32) -> i32 = match a.name {
                "b1" => |a, b| (a & 1) ^ (b & 1),
                "u8" => |a, b| a.abs() * b.abs(),
                _ => |a, b| a * b,
            };
            // Lines are further apart than they are long.
            let stride = |rows: bool, matrix: &Matrix, kind: Kind| {
                let len = if rows { matrix.columns } else { matrix.rows };
                len + 128 / kind.bits
            };
            let [a_stride, b_stride] = [stride(a_rows, &left, a), stride(b_rows, &right, b)];
            let c_stride = stride(c_rows, &more, c);
            let d_stride = stride(!c_rows, &more, c);
            let types = match a.name {
                "f16" => format!("{0}.{0}", c.name),
                _ => format!("{}.{}.{}.{}", c.name, a.name, b.name, c.name),
            };
            let ty = |kind: Kind| match kind.name {
                "f16" => "b32",
                "f32" | "f64" => kind.name,
                _ => "b32",
            };
            let [a_regs, b_regs, c_regs] = [
                registers('a', counts[0]),
                registers('b', counts[1]),
                registers('c', counts[2]),
            ];
            let bits = if a.name == "b1" { ".xor.popc" } else { "" };
            let body = format!(
                ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{ .reg .b64 p<4>;\n\
                 .reg .{} a<8>, b<8>; .reg .{} c<8>; .reg .b32 s;\n\
                 ld.param.u64 p0, [a]; ld.param.u64 p1, [b]; ld.param.u64 p2, [c]; ld.param.u64 p3, [d];\n\
                 mov.b32 s, {a_stride}; wmma.load.a.sync.aligned.{}.{name}.global.{} {{{a_regs}}}, [p0], s;\n\
                 wmma.load.b.sync.aligned.{}.{name}.{} {{{b_regs}}}, [p1], {b_stride};\n\
                 wmma.load.c.sync.aligned.{}.{name}.global.{} {{{c_regs}}}, [p2+16], {c_stride};\n\
                 wmma.mma{bits}.sync.aligned.{}.{}.{name}.{types} {{{c_regs}}}, {{{a_regs}}}, {{{b_regs}}}, {{{c_regs}}};\n\
                 wmma.store.d.sync.aligned.{}.{name}.global.{} [p3], {{{c_regs}}}, {d_stride}; ret; }}",
                ty(a),
                ty(c),
                by(a_rows),
                a.name,
                by(b_rows),
                b.name,
                by(c_rows),
                c.name,
                by(a_rows),
                by(b_rows),
                by(!c_rows),
                c.name,
            );
            let bench = Bench::new(&body);
            let p0 = bench.words(&left.words(a, a_rows, a_stride));
            let p1 = bench.words(&right.words(b, b_rows, b_stride));
            let shifted = [vec![0; 4], more.words(c, c_rows, c_stride)].concat();
            let p2 = bench.words(&shifted);
            let expected = left
                .times(&right, &more, product)
                .words(c, !c_rows, d_stride);
            let p3 = bench.words(&vec![0; expected.len()]);
            bench.launch(ONE_WARP, &[p0, p1, p2, p3]).expect("no fault");
            assert_eq!(
                bench.read(p3, expected.len()),
                expected,
                "{name} {types} {layouts}"
            );
        }
    }
    assert_eq!(tried, 12 * 8 + 2 * 2);
}

/// Two matrices in memory, as rows: copied to shared memory, where each lane has the addresses of its rows.
const TILES: &str = ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 d) {\n\
    .shared .align 16 .b8 left[512]; .shared .align 16 .b8 right[256];\n\
    .reg .b64 p<4>, at; .reg .b32 t, x, y, l, r, a<4>, b<2>, group, within; .reg .f32 c<4>; .reg .pred q;\n\
    ld.param.u64 p0, [a]; ld.param.u64 p1, [b]; ld.param.u64 p2, [d]; mov.u32 t, %tid.x;\n\
    mov.u32 l, left; mov.u32 r, right; shl.b32 x, t, 4; cvt.u64.u32 at, x; add.u32 y, l, x;\n\
    add.u64 p3, p0, at; ld.global.v4.b32 {a0, a1, a2, a3}, [p3]; st.shared.v4.b32 [y], {a0, a1, a2, a3};\n\
    shl.b32 x, t, 3; cvt.u64.u32 at, x; add.u32 y, r, x;\n\
    add.u64 p3, p1, at; ld.global.v2.b32 {a0, a1}, [p3]; st.shared.v2.b32 [y], {a0, a1}; bar.warp.sync -1;\n\
    and.b32 x, t, 15; shl.b32 x, x, 5; and.b32 y, t, 16; add.u32 x, x, y; add.u32 l, l, x;\n\
    and.b32 x, t, 15; shl.b32 x, x, 4; add.u32 r, r, x;\n";

#[test]
fn tiles_are_loaded_multiplied_and_stored() {
    let body = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a0, a1, a2, a3}, [l];\n\
         ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {b0, b1}, [r];\n\
         mov.f32 c0, 0f3F800000; mov.f32 c1, c0; mov.f32 c2, c0; mov.f32 c3, c0;\n\
         mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3};\n\
         shl.b32 x, t, 3; cvt.u64.u32 at, x; add.u64 p3, p2, at; st.global.v2.f32 [p3], {c0, c1}; st.global.v2.f32 [p3+256], {c2, c3};\n\
         ret; }";
    let bench = Bench::new(&format!("{TILES}{body}"));
    let left = Matrix::new(16, 16, |row, column| small(row, column, 1));
    let right = Matrix::new(16, 8, |row, column| small(row, column, 2));
    let ones = Matrix::new(16, 8, |_, _| 1);
    let expected = left.times(&right, &ones, |a, b| a * b);
    let a = bench.words(&left.words(F16, true, 16));
    let b = bench.words(&right.words(F16, true, 8));
    let d = bench.words(&[0; 128]);
    bench.launch(ONE_WARP, &[a, b, d]).expect("no fault");
    assert_eq!(bench.read(d, 128), expected.words(F32, true, 8));
}

#[test]
fn tiles_change_rows_for_columns() {
    // Through registers and back: transposed by a move, by a load, and by a store.
    let body = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a0}, [r]; movmatrix.sync.aligned.m8n8.trans.b16 a1, a0;\n\
         ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {a2}, [r]; setp.eq.b32 q, a1, a2; selp.b32 a3, 1, 0, q; bar.warp.sync -1;\n\
         stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [r+128], {a0}; bar.warp.sync -1;\n\
         shl.b32 x, t, 2; cvt.u64.u32 at, x; add.u64 p3, p2, at; st.global.b32 [p3], a3; mov.u32 y, right; add.u32 y, y, x;\n\
         ld.shared.b32 a0, [y+128]; st.global.b32 [p3+128], a0; ret; }";
    let bench = Bench::new(&format!("{TILES}{body}"));
    let tile = Matrix::new(16, 8, |row, column| (row * 8 + column) as i32);
    let a = bench.words(&[0; 128]);
    let b = bench.words(&tile.words(F16, true, 8));
    let d = bench.words(&[0; 64]);
    bench.launch(ONE_WARP, &[a, b, d]).expect("no fault");
    let turned = Matrix::new(8, 8, |row, column| (column * 8 + row) as i32);
    let expected = [vec![1; 32], turned.words(F16, true, 8)].concat();
    assert_eq!(bench.read(d, 64), expected);
}

#[test]
fn a_row_that_is_misaligned_is_told_of_its_lane() {
    let body = "setp.eq.u32 q, t, 5; @q add.u32 r, r, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a0}, [r];\n\
         st.global.b32 [p2], a0; ret; }";
    let bench = Bench::new(&format!("{TILES}{body}"));
    let places = [
        bench.words(&[0; 128]),
        bench.words(&[0; 64]),
        bench.words(&[0]),
    ];
    let fault = bench.launch(ONE_WARP, &places).expect_err("misaligned");
    assert!(
        matches!(fault.kind, FaultKind::Misaligned { bytes: 16, .. }),
        "{fault}"
    );
    assert_eq!(fault.thread, [5, 0, 0]);
}

#[test]
fn operations_on_matrices_wait_for_lanes_that_have_parted() {
    // The halves load at places of their own.
    let body = "setp.lt.u32 q, t, 16; mov.b32 a1, 0; @q bra low; add.u32 a1, t, 1; low: mul.lo.u32 a1, a1, 2;\n\
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a0}, [r]; @q add.u32 a0, a0, 0;\n\
         shl.b32 x, t, 2; cvt.u64.u32 at, x; add.u64 p3, p2, at; add.u32 a0, a0, a1; st.global.b32 [p3], a0; ret; }";
    let bench = Bench::new(&format!("{TILES}{body}"));
    let words: Vec<u32> = (0..64).collect();
    let places = [
        bench.words(&[0; 128]),
        bench.words(&words),
        bench.words(&[0; 32]),
    ];
    bench.launch(ONE_WARP, &places).expect("no fault");
    let expected: Vec<u32> = (0..32)
        .map(|lane| lane + if lane < 16 { 0 } else { 2 * (lane + 1) })
        .collect();
    assert_eq!(bench.read(places[2], 32), expected);
}

#[test]
fn four_products_of_eight_lanes_each_stay_apart() {
    // Quad pairs have other numbers in their factors: lanes hold rows of `a`, and columns of `b`.
    let body = "mov.u32 x, 0x3c003c00; shr.u32 y, t, 2; and.b32 y, y, 3; add.u32 y, y, 1; cvt.rn.f32.u32 c0, y; cvt.rn.f16.f32 h, c0;\n\
         mov.b32 a0, {h, h}; mov.b32 b0, x;\n\
         mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {f0, f1, f2, f3, f4, f5, f6, f7}, {a0, a0}, {b0, b0}, {f0, f1, f2, f3, f4, f5, f6, f7};\n\
         add.f32 f0, f0, f7; cvt.rzi.u32.f32 r, f0;";
    let found = per_lane(&format!(
        ".reg .b32 x, y, b0; .reg .f32 c0, f9, f10; .reg .b16 h; mov.f32 f0, 0f00000000; mov.f32 f1, f0; mov.f32 f2, f0;\n\
         mov.f32 f3, f0; mov.f32 f4, f0; mov.f32 f5, f0; mov.f32 f6, f0; mov.f32 f7, f0;\n{body}"
    ));
    let expected: Vec<u32> = (0..32).map(|lane| 2 * 4 * (lane / 4 % 4 + 1)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_called_function_leaves_its_callers_memory_alone() {
    // Caller and callee have local memory of their own beside the scratch of matrices.
    let turn = ".func (.reg .b32 d) turn(.reg .b32 a) { .local .b32 mine[3]; .reg .b32 b; st.local.b32 [mine+8], a;\n\
         movmatrix.sync.aligned.m8n8.trans.b16 d, a; ld.local.b32 b, [mine+8]; add.u32 d, d, b; ret; }\n";
    let body = ".local .b32 own[5]; st.local.b32 [own+16], t; movmatrix.sync.aligned.m8n8.trans.b16 a0, t;\n\
         call (a1), turn, (a0); ld.local.b32 a2, [own+16]; sub.u32 r, a1, a0; setp.eq.u32 p0, a2, t; @!p0 mov.b32 r, 99;";
    let bench = Bench::new(&format!("{turn}{}", kernel(body)));
    let out = bench.words(&[0; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    // Turned twice, each lane has its value again.
    assert_eq!(bench.read(out, 32), (0..32).collect::<Vec<_>>());
}
