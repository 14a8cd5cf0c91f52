//! The parameters of a launch in one block, laid out as the function wants them.

use std::ffi::c_void;

use smallvec::SmallVec;
use towline_backend::cuda::*;
use towline_wire::cuda::facts::Parameter;

/// Room without allocation; few kernels have more.
pub(crate) type Block = SmallVec<[u8; 512]>;

/// Most pairs of the `extra` form.
const EXTRA_LIMIT: usize = 16;

/// Packs what `params` points to, or what `extra` names. Where parameters lie is only asked where that matters.
///
/// # Safety
/// The contract of cuLaunchKernel for a function with these parameters, which do not overlap and come in their order.
pub(crate) unsafe fn pack<'a>(
    parameters: impl FnOnce() -> Result<&'a [Parameter], CUresult>,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Block, CUresult> {
    if !extra.is_null() {
        if !params.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's contract.
        return unsafe { packed_by_caller(extra) };
    }
    let parameters = parameters()?;
    if params.is_null() && !parameters.is_empty() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut block = Block::new();
    block.resize(parameters.last().map_or(0, Parameter::end), 0);
    for (index, parameter) in parameters.iter().enumerate() {
        // SAFETY: the caller's contract: there is a pointer for each parameter.
        let slot = unsafe { params.add(index) };
        // SAFETY: as above.
        let source = unsafe { slot.read() };
        if source.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (start, size) = (parameter.offset as usize, parameter.size as usize);
        let Some(target) = block.get_mut(start..parameter.end()) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the caller's contract: what it points to has the parameter's size.
        target.copy_from_slice(unsafe { std::slice::from_raw_parts(source.cast::<u8>(), size) });
    }
    Ok(block)
}

/// # Safety
/// `extra` is a list of names and values that ends as the API says.
unsafe fn packed_by_caller(extra: *mut *mut c_void) -> Result<Block, CUresult> {
    let (mut start, mut size) = (std::ptr::null::<u8>(), 0_usize);
    let mut at = extra;
    for _ in 0..EXTRA_LIMIT {
        // SAFETY: the caller's contract: the list has not ended yet.
        let name = unsafe { at.read() }.addr();
        if name == CU_LAUNCH_PARAM_END {
            if start.is_null() && size > 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let mut block = Block::new();
            if size > 0 {
                // SAFETY: the caller's contract.
                block.extend_from_slice(unsafe { std::slice::from_raw_parts(start, size) });
            }
            return Ok(block);
        }
        // SAFETY: as above: a value follows the name.
        let place = unsafe { at.add(1) };
        // SAFETY: as above.
        let value = unsafe { place.read() };
        match name {
            CU_LAUNCH_PARAM_BUFFER_POINTER => start = value.cast_const().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE if !value.is_null() => {
                // SAFETY: the caller's contract: the value points to the size.
                size = unsafe { value.cast::<usize>().read() };
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: as above: the list goes on.
        at = unsafe { at.add(2) };
    }
    Err(CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towline_wire::cuda::facts::Parameter;

    use super::*;

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
            // SAFETY: there is a value of its size for each parameter.
            let block = unsafe { pack(|| Ok(&parameters), pointers.as_mut_ptr(), std::ptr::null_mut()) }.unwrap();
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
            let mut extra = [
                std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
                bytes.as_ptr().cast_mut().cast(),
                std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
                (&raw mut size).cast::<c_void>(),
                std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
            ];
            // SAFETY: the list is well formed.
            let block = unsafe { pack(|| Err(CUDA_ERROR_UNKNOWN), std::ptr::null_mut(), extra.as_mut_ptr()) }.unwrap();
            prop_assert_eq!(block.as_slice(), bytes.as_slice());
        }
    }

    #[test]
    fn a_function_with_parameters_is_refused_without() {
        let parameters = [Parameter { offset: 0, size: 8 }];
        // SAFETY: nothing is read.
        let refused = unsafe {
            pack(
                || Ok(&parameters),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        assert_eq!(refused.err(), Some(CUDA_ERROR_INVALID_VALUE));
    }
}
