//! PTX.

use towline_ptx::fatbin::EntryKind;
use towline_ptx::ir::Program;
use towline_ptx::ptx::{self, Module, layout};

use crate::Seed;
use crate::memory::bounded;

/// What a tree may cost: a statement of two bytes (`a:`) makes a node, in a list that doubles as it grows.
fn tree(text: &str) -> usize {
    4096 + 1024 * text.len()
}

/// A module prints as one that reads the same, and parameters do not overlap.
pub fn target(bytes: &[u8]) {
    let Ok(text) = ptx::text(bytes) else {
        return;
    };
    let module = match bounded(tree(text), || Module::parse(text)) {
        Ok(module) => module,
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.at.line as usize <= lines, "{error}");
            return;
        }
    };
    // Linking takes what the tree takes, and what initializers reach, which has a limit of its own.
    let _ = Program::link(std::slice::from_ref(&module));
    let printed = module.to_string();
    assert_eq!(Module::parse(&printed).as_ref(), Ok(&module), "{printed}");
    let heads = ptx::heads(text).map(|mut heads| heads.pop());
    if let Ok(Some(heads)) = heads {
        let kernels = heads.kernels().map(|kernel| (kernel.name, &kernel.parameters));
        assert!(kernels.eq(module.kernels().map(|kernel| (kernel.name, &kernel.parameters))));
    }
    for kernel in module.kernels() {
        let mut end = 0;
        for one in layout::parameters(kernel).unwrap_or_default() {
            assert!(one.offset >= end && one.offset.is_multiple_of(one.align));
            end = one.offset + one.len;
        }
    }
}

/// What nvcc writes, and what it seldom does.
pub fn seeds() -> Vec<Seed> {
    let rare = "\
.version 8.0
.target sm_90a, debug
.address_size 64
.file 1 \"a.cu\", 1, 2
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 8 .u64 pointers[2][] = {{generic(x) + 4, 0xff(y)}, {-1, ~(2 << 3) ? 1 : 0}};
.weak .func (.reg .b32 r) f (.reg .b32 a) .noreturn { }
.visible .entry k(.param .u64 .ptr .global .align 16 x, .param .align 8 .b8 s[24])
.maxntid 128, 1 .pragma \"nounroll\"; {
  .loc 1 5 3, function_name $L__info + 4, inlined_at 1 2 3
  .reg .pred %p<3>; .reg .v4 .f32 v, w;
  top: @!%p1 bra.uni top;
  proto: .callprototype (.param .b32 _) _ (.param .b64 _);
  table: .branchtargets top, top;
  { call (r), %rd1, ([param0 + 0], {%r1, _}, (.s64) 1), proto; }
  setp.lt.and.s32 %p1|%p2, %tid.x, -1, !%p0;
}
.section .debug_str { .b8 1, 2 }
.alias g, f;
";
    let matrices = "\
.version 8.2
.target sm_90
.address_size 64
.visible .entry k() .reqnctapercluster 1, 1, 1 {
  .reg .b32 r<9>; .reg .b64 d<3>; .reg .pred p; .shared .b64 gate;
  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {r0, r1, r2, r3}, [r4+16];
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {r5, r6, r7, r8}, {r0, r1, r2, r3}, {r0, r1}, {r5, r6, r7, r8};
  wmma.load.c.sync.aligned.row.m8n8k32.global.s32 {r0, r1}, [d0], r2;
  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [gate], 64;
  @p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r0], [d1], r1, [gate];
  mbarrier.try_wait.parity.shared.b64 p, [gate], 1, 100;
  barrier.cluster.wait.acquire.aligned;
}
";
    let mut seeds: Vec<_> = super::programs(super::SIZE, EntryKind::Ptx)
        .into_iter()
        .chain(super::programs(super::LARGE, EntryKind::Ptx))
        .enumerate()
        .map(|(index, image)| Seed::new(format!("{index}"), image))
        .collect();
    seeds.push(Seed::new("rare", rare));
    seeds.push(Seed::new("matrices", matrices));
    seeds
}
