//! Samplers.

use std::sync::{Mutex, OnceLock, PoisonError};

use towline_backend::opencl::*;

use crate::arena::{Kind, Object, Ref, get};
use crate::context::Context;
use crate::platform::{Platform, SamplerCalls};
use crate::raw::{Answer, Shared, create, pairs, provider};

/// A sampler.
pub(crate) struct Sampler {
    pub(crate) context: Ref<Context>,
    normalized: cl_bool,
    addressing: cl_addressing_mode,
    filter: cl_filter_mode,
    properties: Vec<cl_sampler_properties>,
    raws: Box<[OnceLock<Shared<_cl_sampler>>]>,
    creating: Mutex<()>,
}

impl Object for Sampler {
    type Raw = _cl_sampler;
    const KIND: Kind = Kind::Sampler;
    const INVALID: cl_int = CL_INVALID_SAMPLER;
}

impl Sampler {
    /// The provider's sampler, created now if it is not there yet.
    pub(crate) fn raw_on(&self, part: usize) -> Result<cl_sampler, cl_int> {
        if let Some(raw) = self.raws[part].get() {
            return Ok(raw.0);
        }
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(raw) = self.raws[part].get() {
            return Ok(raw.0);
        }
        let owner = &self.context.parts[part];
        // The older function exists on every device, and its three values are all there is.
        let raw = create!(
            owner.provider.api,
            clCreateSampler(owner.raw.0, self.normalized, self.addressing, self.filter)
        )?;
        // Set once: creation is under the lock.
        let _ = self.raws[part].set(Shared(raw));
        Ok(raw)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        for (part, raw) in self.raws.iter().enumerate() {
            if let Some(raw) = raw.get() {
                provider!(
                    self.context.parts[part].provider.api,
                    clReleaseSampler(raw.0)
                );
            }
        }
    }
}

fn open(
    context: Ref<Context>,
    normalized: cl_bool,
    addressing: cl_addressing_mode,
    filter: cl_filter_mode,
    properties: Vec<cl_sampler_properties>,
) -> Result<cl_sampler, cl_int> {
    let normalised_only = matches!(addressing, CL_ADDRESS_REPEAT | CL_ADDRESS_MIRRORED_REPEAT);
    if !matches!(normalized, CL_FALSE | CL_TRUE)
        || !(CL_ADDRESS_NONE..=CL_ADDRESS_MIRRORED_REPEAT).contains(&addressing)
        || !matches!(filter, CL_FILTER_NEAREST | CL_FILTER_LINEAR)
        || (normalised_only && normalized == CL_FALSE)
    {
        return Err(CL_INVALID_VALUE);
    }
    if context
        .devices
        .iter()
        .all(|device| device.limits.images.is_none())
    {
        return Err(CL_INVALID_OPERATION);
    }
    let parts = context.parts.len();
    let single = context.single();
    let sampler = Ref::new(Sampler {
        context,
        normalized,
        addressing,
        filter,
        properties,
        raws: (0..parts).map(|_| OnceLock::new()).collect(),
        creating: Mutex::new(()),
    })?;
    if single {
        sampler.raw_on(0)?;
    }
    Ok(sampler.publish())
}

impl SamplerCalls for Platform {
    unsafe fn clCreateSampler(
        &self,
        context: cl_context,
        normalized_coords: cl_bool,
        addressing_mode: cl_addressing_mode,
        filter_mode: cl_filter_mode,
    ) -> Result<cl_sampler, cl_int> {
        open(
            get(context)?,
            normalized_coords,
            addressing_mode,
            filter_mode,
            Vec::new(),
        )
    }

    unsafe fn clCreateSamplerWithProperties(
        &self,
        context: cl_context,
        sampler_properties: Option<&[cl_sampler_properties]>,
    ) -> Result<cl_sampler, cl_int> {
        let mut normalized = CL_TRUE;
        let mut addressing = CL_ADDRESS_CLAMP;
        let mut filter = CL_FILTER_NEAREST;
        let mut seen = Vec::new();
        for (name, value) in pairs(sampler_properties) {
            if seen.contains(&name) {
                return Err(CL_INVALID_VALUE);
            }
            seen.push(name);
            let Ok(value) = cl_uint::try_from(value) else {
                return Err(CL_INVALID_VALUE);
            };
            match cl_sampler_info::try_from(name) {
                Ok(CL_SAMPLER_NORMALIZED_COORDS) => normalized = value,
                Ok(CL_SAMPLER_ADDRESSING_MODE) => addressing = value,
                Ok(CL_SAMPLER_FILTER_MODE) => filter = value,
                _ => return Err(CL_INVALID_VALUE),
            }
        }
        let context = get(context)?;
        open(
            context,
            normalized,
            addressing,
            filter,
            sampler_properties.unwrap_or(&[]).to_vec(),
        )
    }

    unsafe fn clRetainSampler(&self, sampler: cl_sampler) -> Result<(), cl_int> {
        get::<Sampler>(sampler)?.retain();
        Ok(())
    }

    unsafe fn clReleaseSampler(&self, sampler: cl_sampler) -> Result<(), cl_int> {
        get::<Sampler>(sampler)?.release().map(|_| ())
    }

    unsafe fn clGetSamplerInfo(
        &self,
        sampler: cl_sampler,
        param_name: cl_sampler_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let sampler = get::<Sampler>(sampler)?;
        match param_name {
            CL_SAMPLER_REFERENCE_COUNT => answer.value(sampler.count()),
            CL_SAMPLER_CONTEXT => answer.value(sampler.context.handle()),
            CL_SAMPLER_NORMALIZED_COORDS => answer.value(sampler.normalized),
            CL_SAMPLER_ADDRESSING_MODE => answer.value(sampler.addressing),
            CL_SAMPLER_FILTER_MODE => answer.value(sampler.filter),
            CL_SAMPLER_PROPERTIES => answer.slice(&sampler.properties),
            _ => Err(CL_INVALID_VALUE),
        }
    }
}
