//! Where we and ptxas part, and why.

/// A difference.
#[derive(Debug)]
#[allow(dead_code, reason = "the reason is for whoever reads")]
pub(crate) struct Difference {
    /// We accept what ptxas refuses; else the reverse.
    pub(crate) wider: bool,
    /// Statements that begin so,
    pub(crate) starts: &'static str,
    /// and have this in them.
    pub(crate) has: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

const fn narrower(starts: &'static str, has: &'static str, reason: &'static str) -> Difference {
    Difference {
        wider: false,
        starts,
        has,
        reason,
    }
}

const fn wider(starts: &'static str, has: &'static str, reason: &'static str) -> Difference {
    Difference {
        wider: true,
        starts,
        has,
        reason,
    }
}

const KNOWN_FLAG: &str =
    "ptxas takes a number for a predicate but not beside .bf16; the two are alike";
const TABLES: &str = "the ISA's text has tables from 0 to 255";
const UNDOCUMENTED: &str = "the ISA's text does not have it, and no compiler writes it";
const PAIRS: &str =
    "pairs compare into pairs of their kind here; other results are refused by name";

pub(crate) const KNOWN: &[Difference] = &[
    narrower("addc.", "16 ", UNDOCUMENTED),
    narrower("addc.sat", "", UNDOCUMENTED),
    narrower("subc.", "16 ", UNDOCUMENTED),
    narrower("subc.sat", "", UNDOCUMENTED),
    narrower("cvt.f16.bf16", "", UNDOCUMENTED),
    narrower("cvt.r", ".f64.bf16", UNDOCUMENTED),
    narrower("fence.async.", "", UNDOCUMENTED),
    narrower("fma.r", ".bf16", UNDOCUMENTED),
    narrower("madc.", "16 ", UNDOCUMENTED),
    narrower("rcp.r", ".ftz.f64", UNDOCUMENTED),
    narrower("testp.f", "", UNDOCUMENTED),
    narrower("tex.grad", ".s32 ", UNDOCUMENTED),
    narrower("and.pred", "f16x2_0", UNDOCUMENTED),
    narrower("or.pred", "f16x2_0", UNDOCUMENTED),
    narrower("xor.pred", "f16x2_0", UNDOCUMENTED),
    narrower("not.pred", "f16x2_0", UNDOCUMENTED),
    narrower("mov.pred", "f16x2_0", UNDOCUMENTED),
    narrower("bar.red", " f16x2_0", UNDOCUMENTED),
    narrower("barrier.red", " f16x2_0", UNDOCUMENTED),
    narrower("vote.", " f16x2_0", UNDOCUMENTED),
    narrower("mov.b", "{b32_0}", UNDOCUMENTED),
    narrower("lop3.", ", 256;", TABLES),
    narrower("lop3.", ", -1;", TABLES),
    narrower("lop3.", ", 70000;", TABLES),
    narrower("lop3.", ", 0x1ffffffff;", TABLES),
    narrower("atom.", "b32_3, b32_3;", UNDOCUMENTED),
    narrower("mma.sync.aligned.m8n8k4.", ".bf16.bf16.", UNDOCUMENTED),
    narrower("mma.sync.aligned.m8n8k4.", ".tf32.tf32.", UNDOCUMENTED),
    narrower("mma.sync.", ".s4.u4.s32.xor.popc ", UNDOCUMENTED),
    narrower("mma.sync.", ".s4.u4.s32.and.popc ", UNDOCUMENTED),
    narrower("wmma.mma.sync.", ".f64.f64.f64.f64 ", UNDOCUMENTED),
    narrower("wmma.load.c.", ".f32 {f32_0, f32_1},", UNDOCUMENTED),
    narrower(
        "wmma.store.d.",
        ".f32 [b64_0+16], {f32_0, f32_1},",
        UNDOCUMENTED,
    ),
    narrower("set.", "16x2", PAIRS),
    wider(";", "", "an empty statement does no harm"),
    wider(
        "{ brx.idx",
        "list: .branchtargets",
        "a table behind its use says the same",
    ),
    wider(
        "mov.u32 b32_0, somewhere",
        "",
        "the lower half of an address; ptxas takes it for a sign of 32-bit code",
    ),
    wider("set.", "bf16", KNOWN_FLAG),
    wider("setp.", "bf16", KNOWN_FLAG),
];

/// Which difference a statement belongs to.
pub(crate) fn find(statement: &str, wider: bool) -> Option<usize> {
    KNOWN.iter().position(|known| {
        known.wider == wider && statement.starts_with(known.starts) && statement.contains(known.has)
    })
}
