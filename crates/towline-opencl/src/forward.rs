//! Calls that are declared `forward`: they go to the provider of their objects as they are, and nothing is written for them.
//!
//! A queue or a device decides which provider that is; else the context does that the objects belong to, if it has only one. Where a
//! context spans providers and no argument says which of them is meant, the call is refused: that is for a method written by hand to
//! know.

use std::sync::Arc;

use towline_backend::opencl::*;

use crate::arena::{Ref, get};
use crate::context::Context;
use crate::device::Device;
use crate::event::Event;
use crate::kernel::Kernel;
use crate::memory::Mem;
use crate::program::Program;
use crate::providers::Provider;
use crate::queue::Queue;
use crate::sampler::Sampler;

/// Where a call goes, as its objects tell one after the other.
#[derive(Default)]
pub(crate) struct Route {
    context: Option<Ref<Context>>,
    device: Option<Ref<Device>>,
}

impl Route {
    fn through(&mut self, context: &Ref<Context>) -> Result<(), cl_int> {
        match &self.context {
            Some(known) if !known.is(context) => Err(CL_INVALID_CONTEXT),
            Some(_) => Ok(()),
            None => {
                self.context = Some(context.clone());
                Ok(())
            }
        }
    }

    fn to(&mut self, device: &Ref<Device>) {
        self.device.get_or_insert_with(|| device.clone());
    }

    /// The provider, once every object has told.
    pub(crate) fn settle(self) -> Result<Settled, cl_int> {
        match (self.context, self.device) {
            (Some(context), Some(device)) => {
                let part = context.part_of(&device).ok_or(CL_INVALID_DEVICE)?;
                Ok(Settled::Part(context, part))
            }
            (Some(context), None) if context.single() => Ok(Settled::Part(context, 0)),
            (None, Some(device)) => Ok(Settled::Device(device)),
            _ => Err(CL_INVALID_OPERATION),
        }
    }
}

/// A provider that a call goes to.
pub(crate) enum Settled {
    /// That of a context's part.
    Part(Ref<Context>, usize),
    /// That of a device; nothing belongs to a context.
    Device(Ref<Device>),
}

impl Settled {
    fn provider(&self) -> &Arc<Provider> {
        match self {
            Self::Part(context, part) => &context.parts[*part].provider,
            Self::Device(device) => &device.provider,
        }
    }

    /// Its calls.
    pub(crate) fn api(&self) -> &dyn OpenClApi {
        &*self.provider().api
    }

    /// The part of the context; objects of contexts are only asked where there is one.
    fn part(&self) -> Result<usize, cl_int> {
        match self {
            Self::Part(_, part) => Ok(*part),
            Self::Device(_) => Err(CL_INVALID_CONTEXT),
        }
    }
}

/// A handle of the application, on its way to a provider.
pub(crate) trait Forwarded: Sized {
    /// Tells where the object lives.
    fn note(self, route: &mut Route) -> Result<(), cl_int>;
    /// What the provider calls it.
    fn on(self, settled: &Settled) -> Result<Self, cl_int>;
}

impl Forwarded for cl_device_id {
    fn note(self, route: &mut Route) -> Result<(), cl_int> {
        route.to(&get::<Device>(self)?);
        Ok(())
    }

    fn on(self, settled: &Settled) -> Result<Self, cl_int> {
        let device = get::<Device>(self)?;
        if Arc::ptr_eq(&device.provider, settled.provider()) {
            Ok(device.raw.0)
        } else {
            Err(CL_INVALID_DEVICE)
        }
    }
}

impl Forwarded for cl_command_queue {
    fn note(self, route: &mut Route) -> Result<(), cl_int> {
        let queue = get::<Queue>(self)?;
        route.to(&queue.device);
        route.through(&queue.context)
    }

    fn on(self, settled: &Settled) -> Result<Self, cl_int> {
        let queue = get::<Queue>(self)?;
        if queue.part == settled.part()? {
            Ok(queue.raw.0)
        } else {
            Err(CL_INVALID_COMMAND_QUEUE)
        }
    }
}

impl Forwarded for cl_context {
    fn note(self, route: &mut Route) -> Result<(), cl_int> {
        route.through(&get::<Context>(self)?)
    }

    fn on(self, settled: &Settled) -> Result<Self, cl_int> {
        Ok(get::<Context>(self)?.parts[settled.part()?].raw.0)
    }
}

/// The objects of a context that each provider has under a handle of its own.
macro_rules! of_context {
    ($($handle:ty: $object:ty, |$it:ident, $part:ident| $raw:expr;)*) => {$(
        impl Forwarded for $handle {
            fn note(self, route: &mut Route) -> Result<(), cl_int> {
                route.through(&get::<$object>(self)?.context)
            }

            fn on(self, settled: &Settled) -> Result<Self, cl_int> {
                let ($it, $part) = (get::<$object>(self)?, settled.part()?);
                $raw
            }
        }
    )*};
}

of_context! {
    cl_event: Event, |event, part| event.at_home(part).map(|raw| raw.0).ok_or(CL_INVALID_EVENT);
    cl_kernel: Kernel, |kernel, part| kernel.raw_on(part);
    cl_mem: Mem, |mem, part| mem.raw_on(part);
    cl_program: Program, |program, part| program.raw_on(part).ok_or(CL_INVALID_PROGRAM);
    cl_sampler: Sampler, |sampler, part| sampler.raw_on(part);
}

/// Runs the generated steps of a call; the first refusal is its status.
pub(crate) fn call(steps: impl FnOnce() -> Result<cl_int, cl_int>) -> cl_int {
    steps().unwrap_or_else(|refusal| refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Platform;

    /// A platform over the devices of two providers.
    fn platform() -> (Platform, Vec<cl_device_id>) {
        let provider = |name: &str| {
            let api: Arc<dyn OpenClApi> = Arc::new(NullOpenCl::new(1));
            let mut vendor: cl_platform_id = std::ptr::null_mut();
            // SAFETY: room for one platform.
            unsafe { api.clGetPlatformIDs(1, &raw mut vendor, std::ptr::null_mut()) };
            // SAFETY: the platform is live.
            unsafe { Provider::of_platform(name, api, vendor, true) }.expect("it has a device")
        };
        let platform = Platform::with_providers(vec![provider("one"), provider("two")]);
        let devices = platform.devices().iter().map(Ref::handle).collect();
        (platform, devices)
    }

    fn context(platform: &Platform, devices: &[cl_device_id]) -> cl_context {
        let mut status = 0;
        // SAFETY: the devices are live and as many as the count says.
        let context = unsafe {
            OpenClApi::clCreateContext(
                platform,
                std::ptr::null(),
                devices.len() as cl_uint,
                devices.as_ptr(),
                None,
                std::ptr::null_mut(),
                &raw mut status,
            )
        };
        assert_eq!(status, CL_SUCCESS);
        context
    }

    #[test]
    fn no_object_or_no_place_is_refused() {
        let (platform, devices) = platform();
        let mut time = 0;
        // SAFETY: the time is a local; a device that is none is what the test is about.
        let unknown =
            unsafe { OpenClApi::clGetHostTimer(&platform, std::ptr::null_mut(), &raw mut time) };
        // SAFETY: as above, with no place for the answer.
        let nowhere =
            unsafe { OpenClApi::clGetHostTimer(&platform, devices[0], std::ptr::null_mut()) };
        assert_eq!((unknown, nowhere), (CL_INVALID_DEVICE, CL_INVALID_VALUE));
    }

    #[test]
    fn a_device_says_which_part_of_a_context_is_meant() {
        let (platform, devices) = platform();
        let context = context(&platform, &devices);
        let mut route = Route::default();
        assert_eq!(context.note(&mut route), Ok(()));
        assert_eq!(devices[1].note(&mut route), Ok(()));
        let settled = route.settle().expect("the device decides");
        assert_eq!(settled.provider().name, "two");
        assert_eq!(devices[1].on(&settled), Ok(settled.provider().devices[0]));
        assert_eq!(devices[0].on(&settled), Err(CL_INVALID_DEVICE));
        // SAFETY: the context is live and released once.
        unsafe { OpenClApi::clReleaseContext(&platform, context) };
    }

    #[test]
    fn a_context_decides_only_where_it_has_one_provider() {
        let (platform, devices) = platform();
        for (devices, decides) in [(&devices[..1], true), (&devices[..], false)] {
            let context = context(&platform, devices);
            let mut route = Route::default();
            assert_eq!(context.note(&mut route), Ok(()));
            assert_eq!(route.settle().is_ok(), decides);
            // SAFETY: the context is live and released once.
            unsafe { OpenClApi::clReleaseContext(&platform, context) };
        }
    }

    #[test]
    fn objects_of_two_contexts_do_not_meet() {
        let (platform, devices) = platform();
        let (one, other) = (
            context(&platform, &devices[..1]),
            context(&platform, &devices[..1]),
        );
        let mut route = Route::default();
        assert_eq!(one.note(&mut route), Ok(()));
        assert_eq!(other.note(&mut route), Err(CL_INVALID_CONTEXT));
        for context in [one, other] {
            // SAFETY: the context is live and released once.
            unsafe { OpenClApi::clReleaseContext(&platform, context) };
        }
    }
}
