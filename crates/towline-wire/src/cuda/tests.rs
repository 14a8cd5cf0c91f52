//! Every generated message of the API, and the driver's symbols.

use proptest::prelude::*;

use super::{ProcMissing, proc_symbol, status_name};
use crate::sample::Source;

proptest! {
    #[test]
    fn every_message_survives_the_wire(seed in 1..u64::MAX) {
        super::round_trips(&mut Source::new(seed));
    }

    #[test]
    fn no_input_makes_a_decoder_panic(id in proptest::sample::select(super::CALL_IDS), body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = super::describe(id, &body);
        let _ = super::recode_request(id, &body);
        let _ = super::recode_reply(id, &body);
    }
}

fn name(base: &str, version: i32, per_thread: bool) -> &'static str {
    proc_symbol(base, version, per_thread).map_or("none", |symbol| symbol.name)
}

#[test]
fn a_name_means_the_newest_symbol_that_the_program_knows() {
    assert_eq!(name("cuMemAlloc", 2000, false), "cuMemAlloc");
    assert_eq!(name("cuMemAlloc", 3010, false), "cuMemAlloc");
    assert_eq!(name("cuMemAlloc", 3020, false), "cuMemAlloc_v2");
    assert_eq!(name("cuMemAlloc", 13000, false), "cuMemAlloc_v2");
    assert_eq!(
        name("cuStreamGetCaptureInfo", 12000, false),
        "cuStreamGetCaptureInfo_v2"
    );
}

#[test]
fn a_program_with_a_default_stream_per_thread_gets_its_own_symbols() {
    assert_eq!(name("cuLaunchKernel", 12000, true), "cuLaunchKernel_ptsz");
    assert_eq!(name("cuMemcpyHtoD", 12000, true), "cuMemcpyHtoD_v2_ptds");
    // Before version 7.0 there were none.
    assert_eq!(name("cuLaunchKernel", 6050, true), "cuLaunchKernel");
    // This one has no default stream.
    assert_eq!(name("cuMemAlloc", 12000, true), "cuMemAlloc_v2");
}

#[test]
fn what_is_too_new_is_told_from_what_never_was() {
    assert_eq!(
        proc_symbol("cuLibraryLoadData", 11080, false),
        Err(ProcMissing::Version)
    );
    assert_eq!(
        proc_symbol("cuNobodyHasThis", 13000, false),
        Err(ProcMissing::Name)
    );
    assert_eq!(proc_symbol("", 13000, false), Err(ProcMissing::Name));
}

#[test]
fn every_status_has_its_name() {
    assert_eq!(status_name(0), Some("CUDA_SUCCESS"));
    assert_eq!(status_name(999), Some("CUDA_ERROR_UNKNOWN"));
    assert_eq!(status_name(801), Some("CUDA_ERROR_NOT_SUPPORTED"));
    assert_eq!(status_name(-1), None);
}

#[test]
fn structures_have_the_sizes_of_c() {
    assert_eq!(size_of::<super::CUlaunchConfig>(), 56);
    assert_eq!(size_of::<super::CUlaunchAttributeValue>(), 64);
    assert_eq!(size_of::<super::CUDA_MEMCPY3D>(), 200);
    assert_eq!(size_of::<super::CUgraphNodeParams>(), 256);
    assert_eq!(size_of::<super::CUmemPoolProps>(), 88);
    assert_eq!(align_of::<super::CUtensorMap>(), 64);
}

#[test]
fn a_structure_comes_back_as_it_went() {
    let edge = super::CUgraphEdgeData {
        from_port: 1,
        to_port: 2,
        r#type: 3,
        reserved: [4, 5, 6, 7, 8],
    };
    let mut out = Vec::new();
    super::Scalar::put(super::GraphEdgeData::from(edge), &mut out);
    assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8]);
    let back: super::GraphEdgeData = super::Scalar::take(&out);
    assert_eq!(back.to_raw(), edge);
}
