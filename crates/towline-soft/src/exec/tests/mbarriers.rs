//! Barriers in memory, copies in bulk, and clusters of one block.

use super::*;

also_compiled! {
    a_block_meets_at_an_mbarrier_as_often_as_it_likes,
    a_cluster_of_one_block_knows_its_place,
    a_producer_is_not_overtaken,
    bulk_copies_complete_the_bytes_that_are_expected,
    threads_wait_only_for_arrivals_at_the_cluster,
}

fn block_of(threads: u32) -> Shape {
    Shape {
        block: threads,
        ..ONE_WARP
    }
}

#[test]
fn a_block_meets_at_an_mbarrier_as_often_as_it_likes() {
    // By state and by parity in turns: each thread reads its neighbour's value of the same round.
    let bench = Bench::new(&kernel(
        ".shared .b64 gate; .shared .b32 s[96]; setp.eq.u32 p0, t, 0; @p0 mbarrier.init.shared::cta.b64 [gate], 96; bar.sync 0;\n\
         mov.u32 r, 0; mov.u32 a0, 0; mov.u32 a1, s; shl.b32 a2, t, 2; add.u32 a1, a1, a2;\n\
         add.u32 a3, t, 33; rem.u32 a3, a3, 96; shl.b32 a3, a3, 2; mov.u32 a4, s; add.u32 a4, a4, a3;\n\
         again: mad.lo.u32 a5, a0, 1000, t; st.shared.u32 [a1], a5; mbarrier.arrive.release.cta.shared::cta.b64 d0, [gate];\n\
         even: mbarrier.test_wait.acquire.cta.shared::cta.b64 p1, [gate], d0; @!p1 bra even; ld.shared.u32 a5, [a4]; add.u32 r, r, a5;\n\
         mbarrier.arrive.shared.b64 _, [gate], 1;\n\
         odd: mbarrier.try_wait.parity.shared.b64 p1, [gate], 1, 100; @!p1 bra odd;\n\
         add.u32 a0, a0, 1; setp.lt.u32 p2, a0, 9; @p2 bra again; mbarrier.pending_count.b64 a6, d0; setp.gt.u32 p3, a6, 96;\n\
         @p3 mov.u32 r, 0; bar.sync 0; @p0 mbarrier.inval.shared.b64 [gate];",
    ));
    let out = bench.words(&[0; 96]);
    bench.launch(block_of(96), &[out]).expect("no fault");
    let expected: Vec<u32> = (0..96)
        .map(|t| (0..9).map(|round| round * 1000 + (t + 33) % 96).sum())
        .collect();
    assert_eq!(bench.read(out, 96), expected);
}

#[test]
fn a_producer_is_not_overtaken() {
    // The first warp fills one word for each lane of the second; each waits for the other by parity.
    let bench = Bench::new(&kernel(
        ".shared .b64 full, empty; .shared .b32 s[32]; setp.eq.u32 p0, t, 0;\n\
         mov.u32 a7, full; @p0 mbarrier.init.shared.b64 [a7], 32; @p0 mbarrier.init.shared.b64 [empty], 32; bar.sync 0;\n\
         and.b32 a1, t, 31; shl.b32 a1, a1, 2; mov.u32 a2, s; add.u32 a1, a1, a2; mov.u32 r, 0; mov.u32 a0, 0;\n\
         setp.ge.u32 p1, t, 32; @p1 bra consume;\n\
         produce: and.b32 a3, a0, 1; xor.b32 a3, a3, 1; wait0: mbarrier.try_wait.parity.shared::cta.b64 p2, [empty], a3; @!p2 bra wait0;\n\
         mad.lo.u32 a4, a0, 7, t; st.shared.u32 [a1], a4; mbarrier.arrive.shared.b64 d1, [full]; add.u32 r, r, 1;\n\
         add.u32 a0, a0, 1; setp.lt.u32 p3, a0, 20; @p3 bra produce; bra done;\n\
         consume: and.b32 a3, a0, 1; wait1: mbarrier.try_wait.parity.shared::cta.b64 p2, [full], a3; @!p2 bra wait1;\n\
         ld.shared.u32 a4, [a1]; add.u32 r, r, a4; mbarrier.arrive.shared.b64 d1, [empty];\n\
         add.u32 a0, a0, 1; setp.lt.u32 p3, a0, 20; @p3 bra consume; done:",
    ));
    let out = bench.words(&[0; 64]);
    bench.launch(block_of(64), &[out]).expect("no fault");
    let expected: Vec<u32> = (0..64)
        .map(|t| {
            if t < 32 {
                20
            } else {
                (0..20).map(|round| round * 7 + t - 32).sum()
            }
        })
        .collect();
    assert_eq!(bench.read(out, 64), expected);
}

#[test]
fn bulk_copies_complete_the_bytes_that_are_expected() {
    let bench = Bench::new(&kernel(
        ".shared .align 128 .b8 s[512]; .shared .b64 gate; setp.eq.u32 p0, t, 0; mov.u32 a0, s; mov.u32 a2, 256;\n\
         @p0 mbarrier.init.shared::cta.b64 [gate], 1; @p0 fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0;\n\
         @p0 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [gate], 384;\n\
         @p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a0], [out+256], a2, [gate];\n\
         @p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [a0+256], [out+512], 128, [gate], d7;\n\
         wait: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p1, [gate], 0; @!p1 bra wait;\n\
         shl.b32 a1, t, 2; add.u32 a1, a1, a0; ld.shared.u32 r, [a1]; ld.shared.u32 a3, [a1+256]; bar.sync 0; add.u32 a3, a3, 1;\n\
         st.shared.u32 [a1], a3; fence.proxy.async; bar.sync 0; @p0 cp.async.bulk.global.shared::cta.bulk_group [out+640], [a0], 128;\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.mbarrier.arrive.noinc.shared.b64 [gate];",
    ));
    let words: Vec<u32> = (0..192).map(|word| word * 3 + 1).collect();
    let out = bench.words(&words);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    let found = bench.read(out, 192);
    assert_eq!(found[..32], words[64..96]);
    let expected: Vec<u32> = words[128..160].iter().map(|word| word + 1).collect();
    assert_eq!(found[160..], expected);
}

#[test]
fn threads_wait_only_for_arrivals_at_the_cluster() {
    // The second warp has come, and looks for what the first writes once all have come, before it waits itself.
    let bench = Bench::new(&kernel(
        ".shared .b32 flag; setp.lt.u32 p0, t, 32; setp.eq.u32 p1, t, 0; mov.u32 a0, 0; @p1 st.shared.u32 [flag], a0; bar.sync 0;\n\
         barrier.cluster.arrive.relaxed.aligned; mov.u32 r, 1; @!p0 bra look;\n\
         barrier.cluster.wait.acquire.aligned; mov.u32 a0, 7; st.shared.u32 [flag], a0; bra both;\n\
         look: atom.shared.or.b32 r, [flag], 0; setp.eq.u32 p2, r, 0; @p2 bra look; barrier.cluster.wait.aligned;\n\
         both: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    ));
    let out = bench.words(&[0; 64]);
    bench.launch(block_of(64), &[out]).expect("no fault");
    let expected: Vec<u32> = (0..64).map(|t| if t < 32 { 1 } else { 7 }).collect();
    assert_eq!(bench.read(out, 64), expected);
}

#[test]
fn a_cluster_of_one_block_knows_its_place() {
    let bench = Bench::new(&kernel(
        ".shared .b32 s[4]; mov.u32 a0, %clusterid.x; mov.u32 a1, %nclusterid.x; mov.u32 a2, %cluster_ctaid.x; mov.u32 a3, %cluster_nctaid.y;\n\
         mov.u32 a4, %cluster_ctarank; mov.u32 a5, %cluster_nctarank; shl.b32 a1, a1, 4; or.b32 r, a0, a1; shl.b32 a2, a2, 8; or.b32 r, r, a2;\n\
         shl.b32 a3, a3, 12; or.b32 r, r, a3; shl.b32 a4, a4, 16; or.b32 r, r, a4; shl.b32 a5, a5, 20; or.b32 r, r, a5;\n\
         mov.u32 a6, s; mapa.shared::cluster.u32 a7, a6, 0; getctarank.shared::cluster.u32 a8, a7; st.shared.u32 [a6+4], a8;\n\
         ld.shared::cluster.u32 a0, [a7+4]; add.u32 r, r, a0; mov.u32 a0, %ctaid.x; mul.wide.u32 d0, a0, 128; add.u64 at, at, d0;\n\
         griddepcontrol.wait; setmaxnreg.inc.sync.aligned.u32 64;",
    ));
    let out = bench.words(&[0; 96]);
    let shape = Shape {
        grid: 3,
        ..ONE_WARP
    };
    bench.launch(shape, &[out]).expect("no fault");
    let expected: Vec<u32> = (0..96).map(|word| 0x0010_1030 + word / 32).collect();
    assert_eq!(bench.read(out, 96), expected);
}
