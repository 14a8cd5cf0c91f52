//! Where the parameters of a kernel lie.
//!
//! PTX ISA, "Kernel Function Parameters": in order, each at the next multiple of its alignment, which is what `.align` says or else
//! the natural one of its type. The result is what `cuFuncGetParamInfo` answers.

use super::ast::{Function, Variable};

/// A parameter's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
    /// Alignment.
    pub align: u64,
}

/// Bytes of a variable, `None` when a length is left out or the product is absurd.
pub fn len(variable: &Variable<'_>) -> Option<u64> {
    let element = variable.ty.bytes() * u64::from(variable.vector.unwrap_or(1));
    variable
        .dimensions
        .iter()
        .try_fold(element, |len, dimension| len.checked_mul((*dimension)?))
}

/// Alignment of a variable.
pub fn align(variable: &Variable<'_>) -> u64 {
    let natural = variable.ty.bytes() * u64::from(variable.vector.unwrap_or(1));
    variable.align.unwrap_or(natural).max(1)
}

/// Where each parameter of a kernel lies; `None` when one has no length.
pub fn parameters(kernel: &Function<'_>) -> Option<Vec<Placement>> {
    let mut end = 0_u64;
    kernel
        .parameters
        .iter()
        .map(|parameter| {
            let align = align(parameter);
            let placement = Placement {
                offset: end.checked_next_multiple_of(align)?,
                len: len(parameter)?,
                align,
            };
            end = placement.offset.checked_add(placement.len)?;
            Some(placement)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Module;
    use super::*;

    fn placed(parameters_text: &str) -> Option<Vec<(u64, u64)>> {
        let text = format!(".version 8.0 .target sm_90 .entry k({parameters_text}) {{ }}");
        let module = Module::parse(&text).expect("a module");
        let kernel = module.kernels().next().expect("one");
        let placements = parameters(kernel)?;
        Some(placements.iter().map(|one| (one.offset, one.len)).collect())
    }

    #[test]
    fn each_parameter_is_at_a_multiple_of_its_alignment() {
        let text = ".param .u8 a, .param .align 1 .b8 b[3], .param .u8 c, .param .align 8 .b8 d[24], .param .u8 e, \
                    .param .v4 .f32 f, .param .u16 g";
        let expected = [(0, 1), (1, 3), (4, 1), (8, 24), (32, 1), (48, 16), (64, 2)];
        assert_eq!(placed(text), Some(expected.to_vec()));
    }

    #[test]
    fn arrays_multiply_and_absurd_ones_have_no_place() {
        assert_eq!(placed(".param .b32 a[2][3]"), Some(vec![(0, 24)]));
        assert_eq!(placed(".param .b32 a[]"), None);
        assert_eq!(placed(".param .b64 a[0xffffffffffffffff]"), None);
        assert_eq!(
            placed(".param .b8 a[0xffffffffffffffff], .param .b64 b"),
            None
        );
    }
}
