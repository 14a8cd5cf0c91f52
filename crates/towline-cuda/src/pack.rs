//! The parameters of a launch in one block, laid out as the function wants them.

use std::ffi::c_void;

use smallvec::SmallVec;
use towline_backend::cuda::*;
use towline_client::raw::Vouched;
use towline_wire::cuda::facts::Parameter;

/// Room without allocation; few kernels have more.
pub(crate) type Block = SmallVec<[u8; 512]>;

/// Most pairs of the `extra` form.
const EXTRA_LIMIT: usize = 16;

/// Pointers to arguments, one for each parameter; or names and values, up to the name that ends them.
type List<'a> = Vouched<'a, *mut *mut c_void>;

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub(crate) enum Arguments<'a> {
    /// As the application gives them: a pointer to each, and a list of names and values. One may be NULL, or both.
    Given(List<'a>, List<'a>),
    /// In one block already.
    Packed(&'a [u8]),
}

impl Arguments<'_> {
    /// Whether there are none.
    pub(crate) fn are_missing(&self) -> bool {
        matches!(self, Self::Given(params, extra) if params.is_null() && extra.is_null())
    }

    /// Packs them for a function with these parameters, which do not overlap and come in their order. Where parameters lie is only asked
    /// where that matters.
    pub(crate) fn pack<'p>(
        self,
        parameters: impl FnOnce() -> Result<&'p [Parameter], CUresult>,
    ) -> Result<Block, CUresult> {
        let (params, extra) = match self {
            Self::Given(params, extra) => (params, extra),
            Self::Packed(bytes) => return Ok(Block::from_slice(bytes)),
        };
        match (params.is_null(), extra.is_null()) {
            (false, false) => return Err(CUDA_ERROR_INVALID_VALUE),
            (true, false) => return within(named(extra)?, parameters()),
            (_, true) => {}
        }
        let parameters = parameters()?;
        // SAFETY: the list is vouched for: there is a pointer for each parameter.
        let sources = unsafe { crate::raw::slice(params.cast_const(), parameters.len()) };
        let sources = sources.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut block = Block::new();
        block.resize(parameters.last().map_or(0, Parameter::end), 0);
        for (parameter, source) in parameters.iter().zip(sources) {
            let target = block.get_mut(parameter.offset as usize..parameter.end());
            let target = target.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            // SAFETY: the argument is vouched for: it has the parameter's size.
            let bytes = unsafe { crate::raw::slice(source.cast(), parameter.size as usize) };
            target.copy_from_slice(bytes.ok_or(CUDA_ERROR_INVALID_VALUE)?);
        }
        Ok(block)
    }
}

/// The greatest alignment that parameters with these places can have, to which a structure of them may have been rounded up.
fn alignment(parameters: &[Parameter]) -> usize {
    let of =
        |parameter: &Parameter| 1 << (parameter.offset | parameter.size).trailing_zeros().min(16);
    parameters.iter().map(of).max().unwrap_or(1)
}

/// A block for a function with these parameters, where they are known: a shorter one is taken, and a longer one has no room (seen with
/// driver 580.159).
fn within(mut block: Block, parameters: Result<&[Parameter], CUresult>) -> Result<Block, CUresult> {
    let Ok(parameters) = parameters else {
        return Ok(block);
    };
    let wanted = parameters.last().map_or(0, Parameter::end);
    if block.len() > wanted.next_multiple_of(alignment(parameters)) {
        return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    block.resize(block.len().max(wanted), 0);
    Ok(block)
}

/// The block that a list of names and values leads to.
fn named(list: List<'_>) -> Result<Block, CUresult> {
    let (mut start, mut size) = (std::ptr::null::<u8>(), 0_usize);
    for pair in 0..EXTRA_LIMIT {
        let at = list.wrapping_add(2 * pair);
        // SAFETY: the list is vouched for, and has not ended yet.
        let name = unsafe { at.read() }.addr();
        if name == CU_LAUNCH_PARAM_END {
            // SAFETY: as above: the list says so.
            let bytes = unsafe { crate::raw::slice(start, size) };
            return bytes.map(Block::from_slice).ok_or(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: as above: a value follows the name.
        let value = unsafe { at.wrapping_add(1).read() };
        match name {
            CU_LAUNCH_PARAM_BUFFER_POINTER => start = value.cast_const().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE if !value.is_null() => {
                // SAFETY: as above: the value points to the size.
                size = unsafe { value.cast::<usize>().read() };
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    Err(CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towline_wire::cuda::facts::Parameter;

    use super::*;

    fn given<'a>(params: *mut *mut c_void, extra: *mut *mut c_void) -> Arguments<'a> {
        // SAFETY: the tests' lists are well formed, and have a value of its size for each parameter.
        let [params, extra] = [params, extra].map(|list| unsafe { Vouched::new(list) });
        Arguments::Given(params, extra)
    }

    fn list_of(bytes: &[u8], size: &mut usize) -> [*mut c_void; 5] {
        [
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
            bytes.as_ptr().cast_mut().cast(),
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
            std::ptr::from_mut(size).cast(),
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
        ]
    }

    proptest! {
        #[test]
        fn parameters_lie_where_the_function_wants_them(sizes in proptest::collection::vec((1_usize..40, 0_u32..12), 0..12)) {
            let mut parameters: Vec<Parameter> = Vec::new();
            let mut values: Vec<Vec<u8>> = Vec::new();
            let mut offset = 0;
            for (index, (size, gap)) in sizes.iter().enumerate() {
                offset += gap;
                parameters.push(Parameter { offset, size: *size as u32 });
                offset += *size as u32;
                values.push(vec![index as u8 + 1; *size]);
            }
            let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
            let given = given(pointers.as_mut_ptr(), std::ptr::null_mut());
            let block = given.pack(|| Ok(&parameters)).unwrap();
            prop_assert_eq!(block.len(), parameters.last().map_or(0, Parameter::end));
            let mut covered = vec![0_u8; block.len()];
            for (parameter, value) in parameters.iter().zip(&values) {
                let (start, size) = (parameter.offset as usize, parameter.size as usize);
                prop_assert_eq!(&block[start..start + size], value.as_slice());
                covered[start..start + size].fill(1);
            }
            let gaps_are_zero = block.iter().zip(&covered).all(|(byte, covered)| *covered == 1 || *byte == 0);
            prop_assert!(gaps_are_zero);
        }

        #[test]
        fn a_block_that_the_caller_packed_goes_as_it_is(bytes in proptest::collection::vec(any::<u8>(), 1..600)) {
            let mut size = bytes.len();
            let mut extra = list_of(&bytes, &mut size);
            let given = given(std::ptr::null_mut(), extra.as_mut_ptr());
            let block = given.pack(|| Err(CUDA_ERROR_UNKNOWN)).unwrap();
            prop_assert_eq!(block.as_slice(), bytes.as_slice());
        }
    }

    /// The statuses are a GPU's, with driver 580.159.
    #[test]
    fn packed_block_is_held_against_parameters() {
        let parameters = [
            Parameter { offset: 0, size: 8 },
            Parameter { offset: 8, size: 4 },
        ];
        let bytes: Vec<u8> = (1..=17).collect();
        let packed = |mut size: usize| {
            let mut extra = list_of(&bytes, &mut size);
            given(std::ptr::null_mut(), extra.as_mut_ptr()).pack(|| Ok(&parameters))
        };
        let short = packed(10).unwrap();
        assert_eq!((short.len(), &short[..10]), (12, &bytes[..10]));
        assert_eq!([12, 16].map(|size| packed(size).unwrap().len()), [12, 16]);
        assert_eq!(packed(17).err(), Some(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES));
        // A structure that begins with a wide member is as wide at its end.
        let wide = [
            Parameter {
                offset: 0,
                size: 128,
            },
            Parameter {
                offset: 128,
                size: 4,
            },
        ];
        assert_eq!(alignment(&wide), 128);
        assert_eq!(alignment(&[]), 1);
    }

    #[test]
    fn a_function_with_parameters_is_refused_without() {
        let parameters = [Parameter { offset: 0, size: 8 }];
        let none = given(std::ptr::null_mut(), std::ptr::null_mut());
        assert!(none.are_missing());
        let refused = none.pack(|| Ok(&parameters));
        assert_eq!(refused.err(), Some(CUDA_ERROR_INVALID_VALUE));
    }
}
