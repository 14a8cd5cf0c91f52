//! Contexts. A context of the application may span providers; it has one [`Part`] for each set of devices that can share a context
//! of their provider.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use towline_backend::opencl::*;

use crate::arena::{Kind, Object, Ref, get};
use crate::callback::CALLBACKS;
use crate::device::{self, Device};
use crate::fence::Fences;
use crate::platform::{ContextCalls, Platform};
use crate::providers::Provider;
use crate::raw::{Answer, Shared, create, pairs, provider};
use crate::svm::Allocation;

type NotifyFn = unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);
type DestructorFn = unsafe extern "C" fn(cl_context, *mut c_void);

/// The context's share of one provider.
pub(crate) struct Part {
    pub(crate) provider: Arc<Provider>,
    pub(crate) raw: Shared<_cl_context>,
    pub(crate) devices: Vec<Ref<Device>>,
    /// Queues of the library's own, for moving data between providers: by [`Direction`].
    transfers: [OnceLock<Result<Shared<_cl_command_queue>, cl_int>>; 2],
    pub(crate) fences: Fences,
}

/// Which way the library moves data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the provider into this process.
    Read,
    /// From this process to the provider.
    Write,
}

impl Part {
    /// The provider's calls.
    pub(crate) fn api(&self) -> &dyn OpenClApi {
        &*self.provider.api
    }

    /// Has `enqueue` use a queue for the library's own transfers. They keep their order, so none may wait for anything: what a
    /// transfer depends on is over when it is enqueued.
    pub(crate) fn transfer<T>(
        &self,
        direction: Direction,
        enqueue: impl FnOnce(cl_command_queue) -> Result<T, cl_int>,
    ) -> Result<T, cl_int> {
        let device = self.devices.first().ok_or(CL_INVALID_DEVICE)?;
        let queue = self.transfers[direction as usize].get_or_init(|| {
            create!(
                self.provider.api,
                clCreateCommandQueue(self.raw.0, device.raw.0, 0)
            )
            .map(Shared)
        });
        let queue = (*queue)?;
        let done = enqueue(queue.0);
        provider!(self.provider.api, clFlush(queue.0));
        done
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.fences.clear();
        for queue in &self.transfers {
            if let Some(Ok(queue)) = queue.get() {
                provider!(self.provider.api, clReleaseCommandQueue(queue.0));
            }
        }
        provider!(self.provider.api, clReleaseContext(self.raw.0));
    }
}

/// What the application wants to be told about errors in the context.
struct Notify {
    function: NotifyFn,
    user_data: Shared<c_void>,
}

/// A context.
pub(crate) struct Context {
    pub(crate) parts: Vec<Part>,
    pub(crate) devices: Vec<Ref<Device>>,
    properties: Vec<cl_context_properties>,
    /// Kept as long as providers may call it.
    _notify: Option<Arc<Notify>>,
    destructors: Mutex<Vec<(DestructorFn, Shared<c_void>)>>,
    handle: OnceLock<Shared<_cl_context>>,
    /// Formats by flags and image type: they never change.
    pub(crate) formats: Mutex<HashMap<(cl_mem_flags, cl_mem_object_type), Vec<cl_image_format>>>,
    /// Default device-side queues, by device.
    pub(crate) default_queues: Mutex<Vec<(Shared<_cl_device_id>, Shared<_cl_command_queue>)>>,
    /// Images whose first contents are still on their way to a provider.
    pub(crate) filling: AtomicUsize,
    /// User events of the application that are not set.
    pub(crate) open_user_events: AtomicUsize,
    /// Shared virtual memory by address.
    pub(crate) svm: Mutex<BTreeMap<usize, Arc<Allocation>>>,
}

impl Object for Context {
    type Raw = _cl_context;
    const KIND: Kind = Kind::Context;
    const INVALID: cl_int = CL_INVALID_CONTEXT;
}

impl Context {
    /// Whether the application has user events that it has not set.
    pub(crate) fn awaits_user(&self) -> bool {
        self.open_user_events.load(Ordering::Acquire) > 0
    }

    /// Whether all devices are behind one provider, so that nothing ever has to move.
    #[inline]
    pub(crate) fn single(&self) -> bool {
        self.parts.len() == 1
    }

    /// Whether commands have to look after the contents of memory objects.
    #[inline]
    pub(crate) fn tends_contents(&self) -> bool {
        self.parts.len() > 1 || self.filling.load(Ordering::Acquire) > 0
    }

    /// Whether memory can be mapped where it lies.
    pub(crate) fn maps_natively(&self) -> bool {
        self.parts.len() == 1 && self.parts[0].provider.local
    }

    /// The part that holds the device.
    pub(crate) fn part_of(&self, device: &Ref<Device>) -> Option<usize> {
        self.parts
            .iter()
            .position(|part| part.devices.iter().any(|own| own.is(device)))
    }

    /// The part whose device it is, or is cut from: queues go to parts of devices too.
    pub(crate) fn part_of_whole(&self, device: &Ref<Device>) -> Option<usize> {
        std::iter::successors(Some(device), |device| device.parent.as_ref())
            .find_map(|device| self.part_of(device))
    }

    /// Whether the context has the device.
    pub(crate) fn has(&self, device: &Ref<Device>) -> bool {
        self.devices.iter().any(|own| own.is(device))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // The providers' contexts end first, so that none of them calls back any more.
        self.parts.clear();
        let handle = self
            .handle
            .get()
            .copied()
            .unwrap_or(Shared(std::ptr::null_mut()));
        let destructors = std::mem::take(
            self.destructors
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for (function, user_data) in destructors.into_iter().rev() {
            CALLBACKS.run(move || {
                let (handle, user_data) = (handle, user_data);
                // SAFETY: the application registered the function with this data; the handle is only a name by now.
                unsafe { function(handle.0, user_data.0) };
            });
        }
    }
}

/// Called by providers, on their threads, with an error in a context of theirs.
unsafe extern "C" fn notified(
    message: *const c_char,
    details: *const c_void,
    details_len: usize,
    user_data: *mut c_void,
) {
    if message.is_null() || user_data.is_null() {
        return;
    }
    // SAFETY: the provider's contract: a NUL-terminated text.
    let message: CString = unsafe { CStr::from_ptr(message) }.into();
    // SAFETY: the provider's contract: readable for its length, or NULL.
    let details =
        unsafe { crate::raw::slice(details.cast::<u8>(), details_len) }.map(<[u8]>::to_vec);
    // SAFETY: the context keeps what it registered until the provider's context has ended.
    let notify = unsafe { &*user_data.cast::<Notify>() };
    let (function, user_data) = (notify.function, notify.user_data);
    CALLBACKS.run(move || {
        let user_data = user_data;
        let (at, len) = match &details {
            Some(bytes) => (bytes.as_ptr().cast(), bytes.len()),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the application registered the function with this data; text and details live until it returns.
        unsafe { function(message.as_ptr(), at, len, user_data.0) };
    });
}

/// Checks the properties of a new context.
fn check_properties(
    platform: &Platform,
    properties: Option<&[cl_context_properties]>,
) -> Result<(), cl_int> {
    let mut seen = Vec::new();
    for (name, value) in pairs(properties) {
        if seen.contains(&name) {
            return Err(CL_INVALID_PROPERTY);
        }
        seen.push(name);
        if name == CL_CONTEXT_PLATFORM as cl_context_properties {
            if value as usize != platform.own_handle().addr() {
                return Err(CL_INVALID_PLATFORM);
            }
        } else if name == CL_CONTEXT_INTEROP_USER_SYNC as cl_context_properties {
            if value != CL_FALSE as cl_context_properties
                && value != CL_TRUE as cl_context_properties
            {
                return Err(CL_INVALID_PROPERTY);
            }
        } else {
            return Err(CL_INVALID_PROPERTY);
        }
    }
    Ok(())
}

/// Creates a context over checked devices.
fn open(
    devices: Vec<Ref<Device>>,
    properties: Option<&[cl_context_properties]>,
    notify: Option<Arc<Notify>>,
) -> Result<cl_context, cl_int> {
    let mut groups: Vec<Vec<Ref<Device>>> = Vec::new();
    for device in &devices {
        match groups
            .iter_mut()
            .find(|group| group[0].shares_context_with(device))
        {
            Some(group) => group.push(device.clone()),
            None => groups.push(vec![device.clone()]),
        }
    }
    let (function, user_data): (Option<NotifyFn>, *mut c_void) = match &notify {
        Some(notify) => (Some(notified), Arc::as_ptr(notify).cast_mut().cast()),
        None => (None, std::ptr::null_mut()),
    };
    let mut parts = Vec::with_capacity(groups.len());
    for group in groups {
        let raws: Vec<cl_device_id> = group.iter().map(|device| device.raw.0).collect();
        let api = Arc::clone(&group[0].provider);
        let raw = create!(
            api.api,
            clCreateContext(
                std::ptr::null(),
                raws.len() as cl_uint,
                raws.as_ptr(),
                function,
                user_data
            )
        )?;
        parts.push(Part {
            provider: api,
            raw: Shared(raw),
            devices: group,
            transfers: Default::default(),
            fences: Fences::default(),
        });
    }
    let context = Ref::new(Context {
        parts,
        devices,
        properties: properties.unwrap_or(&[]).to_vec(),
        _notify: notify,
        destructors: Mutex::new(Vec::new()),
        handle: OnceLock::new(),
        formats: Mutex::new(HashMap::new()),
        default_queues: Mutex::new(Vec::new()),
        filling: AtomicUsize::new(0),
        open_user_events: AtomicUsize::new(0),
        svm: Mutex::new(BTreeMap::new()),
    })?;
    // The handle is new: it was not set before.
    let _ = context.handle.set(Shared(context.handle()));
    Ok(context.publish())
}

fn notify(
    function: Option<NotifyFn>,
    user_data: *mut c_void,
) -> Result<Option<Arc<Notify>>, cl_int> {
    match function {
        Some(function) => Ok(Some(Arc::new(Notify {
            function,
            user_data: Shared(user_data),
        }))),
        None if user_data.is_null() => Ok(None),
        None => Err(CL_INVALID_VALUE),
    }
}

impl ContextCalls for Platform {
    unsafe fn clCreateContext(
        &self,
        properties: Option<&[cl_context_properties]>,
        num_devices: cl_uint,
        devices: Option<&[cl_device_id]>,
        pfn_notify: Option<NotifyFn>,
        user_data: *mut c_void,
    ) -> Result<cl_context, cl_int> {
        check_properties(self, properties)?;
        let Some(devices) = devices.filter(|_| num_devices > 0) else {
            return Err(CL_INVALID_VALUE);
        };
        let notify = notify(pfn_notify, user_data)?;
        let mut distinct: Vec<Ref<Device>> = Vec::new();
        for device in device::list(devices)? {
            if !distinct.iter().any(|known| known.is(&device)) {
                distinct.push(device);
            }
        }
        open(distinct, properties, notify)
    }

    unsafe fn clCreateContextFromType(
        &self,
        properties: Option<&[cl_context_properties]>,
        device_type: cl_device_type,
        pfn_notify: Option<NotifyFn>,
        user_data: *mut c_void,
    ) -> Result<cl_context, cl_int> {
        check_properties(self, properties)?;
        let notify = notify(pfn_notify, user_data)?;
        open(
            device::select(self.devices(), device_type)?,
            properties,
            notify,
        )
    }

    unsafe fn clRetainContext(&self, context: cl_context) -> Result<(), cl_int> {
        get::<Context>(context)?.retain();
        Ok(())
    }

    unsafe fn clReleaseContext(&self, context: cl_context) -> Result<(), cl_int> {
        get::<Context>(context)?.release().map(|_| ())
    }

    unsafe fn clGetContextInfo(
        &self,
        context: cl_context,
        param_name: cl_context_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let context = get::<Context>(context)?;
        match param_name {
            CL_CONTEXT_REFERENCE_COUNT => answer.value(context.count()),
            CL_CONTEXT_NUM_DEVICES => answer.value(context.devices.len() as cl_uint),
            CL_CONTEXT_DEVICES => {
                answer.slice(&context.devices.iter().map(Ref::handle).collect::<Vec<_>>())
            }
            CL_CONTEXT_PROPERTIES => answer.slice(&context.properties),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clSetContextDestructorCallback(
        &self,
        context: cl_context,
        pfn_notify: Option<DestructorFn>,
        user_data: *mut c_void,
    ) -> Result<(), cl_int> {
        let context = get::<Context>(context)?;
        let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
        context
            .destructors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((function, Shared(user_data)));
        Ok(())
    }
}
