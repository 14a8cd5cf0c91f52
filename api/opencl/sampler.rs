//! Samplers.

extern "C" {
    /// Creates a sampler.
    #[call(id = 0x0701, async, since = "1.0", deprecated = "2.0")]
    fn clCreateSampler(
        context: cl_context,
        normalized_coords: cl_bool,
        addressing_mode: cl_addressing_mode,
        filter_mode: cl_filter_mode,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_sampler;

    /// Creates a sampler from a list of properties.
    #[call(id = 0x0702, async, since = "2.0")]
    fn clCreateSamplerWithProperties(
        context: cl_context,
        #[input(list, nullable)] sampler_properties: *const cl_sampler_properties,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_sampler;

    /// Adds a reference to a sampler.
    #[call(id = 0x0703, local, since = "1.0")]
    fn clRetainSampler(sampler: cl_sampler) -> cl_int;

    /// Drops a reference to a sampler; the last one ends it.
    #[call(id = 0x0704, async, since = "1.0")]
    fn clReleaseSampler(#[destroys] sampler: cl_sampler) -> cl_int;

    /// Describes a sampler.
    #[call(id = 0x0705, local, since = "1.0")]
    fn clGetSamplerInfo(
        sampler: cl_sampler,
        param_name: cl_sampler_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;
}
