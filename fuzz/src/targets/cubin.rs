//! Machine code.

use towline_ptx::cubin::Cubin;
use towline_ptx::fatbin::EntryKind;
use towline_ptx::image::{self, Extent};
use towline_ptx::parameters;

use crate::Seed;
use crate::memory::{bounded, proportional};

/// Kernels have their parameters in order, the parameters alone are those of the whole, and what is read does not depend on what is behind
/// the end of the file.
pub fn target(bytes: &[u8]) {
    let places = bounded(proportional(bytes), || parameters::of_cubin(bytes));
    bounded(2 * proportional(bytes), || parameters::Inputs::default().add(bytes));
    let Ok(cubin) = bounded(proportional(bytes), || Cubin::parse(bytes)) else {
        return;
    };
    for kernel in &cubin.kernels {
        for (ordinal, parameter) in kernel.parameters.iter().enumerate() {
            assert_eq!(usize::from(parameter.ordinal), ordinal);
        }
        // Of two sections with one name either is taken.
        if let Some(Some(places)) = places.as_ref().ok().and_then(|places| places.get(kernel.name))
            && cubin.kernels.iter().filter(|other| other.name == kernel.name).count() == 1
            && places.len() == kernel.parameters.len()
        {
            let places = places.iter().map(|one| (one.offset, one.len));
            assert!(places.eq(kernel.parameters.iter().map(|one| (one.offset, one.len))));
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
