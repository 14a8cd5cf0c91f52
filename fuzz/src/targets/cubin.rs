//! Machine code.

use towline_ptx::cubin::Cubin;
use towline_ptx::fatbin::EntryKind;
use towline_ptx::image::{self, Extent};

use crate::Seed;
use crate::memory::{bounded, proportional};

/// Kernels have their parameters in order, and what is read does not depend on what is behind the end of the file.
pub fn target(bytes: &[u8]) {
    let Ok(cubin) = bounded(proportional(bytes), || Cubin::parse(bytes)) else {
        return;
    };
    for kernel in &cubin.kernels {
        for (ordinal, parameter) in kernel.parameters.iter().enumerate() {
            assert_eq!(usize::from(parameter.ordinal), ordinal);
        }
    }
    if let Ok(Extent::Known(_, len)) = image::extent(bytes)
        && let Some(whole) = usize::try_from(len).ok().and_then(|len| bytes.get(..len))
    {
        assert_eq!(Cubin::parse(whole).as_ref(), Ok(&cubin));
    }
}

/// What nvcc writes, for several architectures.
pub fn seeds() -> Vec<Seed> {
    let small = super::programs(super::SIZE, EntryKind::Elf);
    let unlike = super::programs(super::CONCATENATED, EntryKind::Elf);
    small
        .into_iter()
        .chain(unlike)
        .enumerate()
        .map(|(index, image)| Seed::new(format!("{index}"), image))
        .collect()
}
