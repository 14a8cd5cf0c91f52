//! Samplers.

use std::ptr;

use super::call::*;
use super::fixture::Fixture;
use super::rules;
use towline_backend::opencl::*;

rules![sampler:
    sampler_answers_what_it_was_made_with,
    sampler_echoes_its_property_list,
    sampler_info_sizes_hold,
    sampler_null_context_is_invalid_context,
    sampler_reference_count_follows_retain_and_release,
    sampler_with_an_unknown_addressing_mode_is_invalid_value,
];

const IMAGES: &str = "the device has no images, so no samplers";

fn sampler(cl: &Fixture, context: &Owned<cl_context>) -> Result<Owned<cl_sampler>, Stop> {
    cl.requires(cl.caps.images, IMAGES)?;
    let (address, filter) = (CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
    Ok(create!(
        cl,
        clCreateSampler(context.raw(), CL_FALSE, address, filter)
    )?)
}

fn sampler_answers_what_it_was_made_with(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let sampler = sampler(cl, &context)?;
    let number =
        |query| info!(cl, clGetSamplerInfo(sampler.raw(), query)).map(|answer| answer.number());
    assert_eq!(number(CL_SAMPLER_NORMALIZED_COORDS)?, u64::from(CL_FALSE));
    assert_eq!(
        number(CL_SAMPLER_ADDRESSING_MODE)?,
        u64::from(CL_ADDRESS_CLAMP)
    );
    assert_eq!(
        number(CL_SAMPLER_FILTER_MODE)?,
        u64::from(CL_FILTER_NEAREST)
    );
    assert_eq!(number(CL_SAMPLER_CONTEXT)?, context.raw().addr() as u64);
    Ok(())
}

fn sampler_echoes_its_property_list(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, IMAGES)?;
    cl.requires(
        cl.caps.version >= (3, 0),
        "the device is older than OpenCL 3.0",
    )?;
    let context = cl.context()?;
    let name = |name: cl_sampler_info| cl_sampler_properties::from(name);
    let list = [
        name(CL_SAMPLER_FILTER_MODE),
        CL_FILTER_LINEAR.into(),
        name(CL_SAMPLER_NORMALIZED_COORDS),
        CL_TRUE.into(),
        0,
    ];
    let sampler = create!(
        cl,
        clCreateSamplerWithProperties(context.raw(), list.as_ptr())
    )?;
    let echoed = info!(cl, clGetSamplerInfo(sampler.raw(), CL_SAMPLER_PROPERTIES))?;
    let filter = info!(cl, clGetSamplerInfo(sampler.raw(), CL_SAMPLER_FILTER_MODE))?;
    assert_eq!(
        (echoed.words().as_slice(), filter.number()),
        (&list[..], u64::from(CL_FILTER_LINEAR))
    );
    Ok(())
}

fn sampler_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let sampler = sampler(cl, &context)?;
    let filter = sizes!(cl, clGetSamplerInfo(sampler.raw(), CL_SAMPLER_FILTER_MODE));
    let owner = sizes!(cl, clGetSamplerInfo(sampler.raw(), CL_SAMPLER_CONTEXT));
    assert_eq!((filter, owner), (Sizes::of(4), Sizes::of(8)));
    Ok(())
}

fn sampler_null_context_is_invalid_context(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, IMAGES)?;
    let (address, filter) = (CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
    let made = create!(
        cl,
        clCreateSampler(ptr::null_mut(), CL_FALSE, address, filter)
    );
    assert_eq!(made.code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn sampler_reference_count_follows_retain_and_release(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let sampler = sampler(cl, &context)?;
    let count = || {
        info!(
            cl,
            clGetSamplerInfo(sampler.raw(), CL_SAMPLER_REFERENCE_COUNT)
        )
        .map(|answer| answer.number())
    };
    let first = count()?;
    call!(cl, clRetainSampler(sampler.raw()))?;
    let more = count()?;
    call!(cl, clReleaseSampler(sampler.raw()))?;
    assert_eq!((first, more, count()?), (1, 2, 1));
    Ok(())
}

fn sampler_with_an_unknown_addressing_mode_is_invalid_value(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, IMAGES)?;
    let context = cl.context()?;
    let made = create!(
        cl,
        clCreateSampler(context.raw(), CL_FALSE, 0x7777, CL_FILTER_NEAREST)
    );
    assert_eq!(made.code(), CL_INVALID_VALUE);
    Ok(())
}
