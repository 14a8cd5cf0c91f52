//! Kernels that NCCL runs between several ranks. While they run they wait for what other processes write to host memory, which reaches
//! them only when the program waits: one would never end. They are refused, and a job of several ranks fails at its first collective.
//! One rank alone needs none of them, unless it sends to itself. Where servers offer collectives the program's own NCCL is not used
//! ([`crate::nccl`]).

use std::sync::Once;

use towline_backend::cuda::*;

use crate::image::Known;

/// Whether it is such a kernel, by its name, which C++ may have decorated: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`,
/// `ncclSymkDevKernel_...` over windows; `ncclKernel_...` before NCCL 2.19.
fn is_between_ranks(name: &[u8]) -> bool {
    let has = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    has(b"nccl") && (has(b"DevKernel_") || has(b"ncclKernel_"))
}

/// Refuses such a kernel, and says once why.
pub(crate) fn refuse_between_ranks(known: &Known) -> Result<(), CUresult> {
    if !is_between_ranks(&known.facts().name) {
        return Ok(());
    }
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::error!(
            "the program's own NCCL cannot join several ranks: have the servers run it beside the devices (`towline serve --collectives`, \
             and start the program by `towline run`), or use another backend, such as gloo or MPI"
        );
    });
    Err(CUDA_ERROR_NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_between_ranks_are_known_by_name() {
        let between = [
            "ncclDevKernel_Generic",
            "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
            "_Z36ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f3221ncclSymkDevWorkArgs4K",
            "_Z30ncclKernel_AllReduce_RING_LL_Sum_floatP11ncclDevComm",
        ];
        let others = [
            "_ZN57_oneRankReduceI12FuncPreMulSumIfEEEvPvS2_mmb",
            "_Z9my_kernelP16ncclDevComm",
            "DevKernel_of_somebody",
            "",
        ];
        assert!(between.iter().all(|name| is_between_ranks(name.as_bytes())));
        assert!(!others.iter().any(|name| is_between_ranks(name.as_bytes())));
    }
}
