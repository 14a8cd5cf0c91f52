//! Programs: source, binaries, intermediate language or built-in kernels, and what is built from them.
//!
//! A program of a context that spans providers is one program on each of them; building builds on every provider that the call's
//! devices are behind, at the same time.

mod build;

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use towline_backend::opencl::*;

use crate::arena::{Kind, Object, Ref, get};
use crate::callback::CALLBACKS;
use crate::context::Context;
use crate::device::{self, Device};
use crate::info::{Cache, Key};
use crate::platform::{Platform, ProgramCalls};
use crate::raw::{self, Answer, OutList, Shared, check, create, provider};

use self::build::{Building, Job, Step, callback, link};

type ProgramFn = unsafe extern "C" fn(cl_program, *mut c_void);

/// What a program was made from.
enum Origin {
    Source(Vec<u8>),
    Il(Vec<u8>),
    Binaries,
    BuiltIn,
    Linked,
}

/// What is known of the last build.
#[derive(Default)]
struct Build {
    /// Options by device handle; devices without an entry were never built for.
    options: Vec<(Shared<_cl_device_id>, CString)>,
    /// Parts that hold an executable.
    executable: Vec<usize>,
}

/// A program.
pub(crate) struct Program {
    pub(crate) context: Ref<Context>,
    pub(crate) devices: Vec<Ref<Device>>,
    origin: Origin,
    raws: Box<[OnceLock<Shared<_cl_program>>]>,
    /// The devices that each part's program was made for, in that order.
    part_devices: Vec<Vec<Ref<Device>>>,
    build: Mutex<Build>,
    building: AtomicBool,
    /// Kernels made from it that still live.
    kernels: AtomicU32,
    answers: Cache,
    releases: Mutex<Vec<(ProgramFn, Shared<c_void>)>>,
    handle: OnceLock<Shared<_cl_program>>,
}

impl Object for Program {
    type Raw = _cl_program;
    const KIND: Kind = Kind::Program;
    const INVALID: cl_int = CL_INVALID_PROGRAM;
}

impl Program {
    /// A program that no provider has yet.
    fn empty(
        context: Ref<Context>,
        devices: Vec<Ref<Device>>,
        origin: Origin,
    ) -> Result<Ref<Self>, cl_int> {
        let program = Ref::new(Self {
            part_devices: by_part(&context, &devices),
            raws: context.parts.iter().map(|_| OnceLock::new()).collect(),
            devices,
            origin,
            build: Mutex::default(),
            building: AtomicBool::new(false),
            kernels: AtomicU32::new(0),
            answers: Cache::default(),
            releases: Mutex::default(),
            handle: OnceLock::new(),
            context,
        })?;
        // The handle is new: it was not set before.
        let _ = program.handle.set(Shared(program.handle()));
        Ok(program)
    }

    fn build(&self) -> MutexGuard<'_, Build> {
        self.build.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The provider's program, if there is one.
    pub(crate) fn raw_on(&self, part: usize) -> Option<cl_program> {
        self.raws[part].get().map(|raw| raw.0)
    }

    /// The source text, if it was made from source.
    pub(crate) fn source(&self) -> Option<Cow<'_, str>> {
        match &self.origin {
            Origin::Source(source) => Some(String::from_utf8_lossy(source)),
            _ => None,
        }
    }

    /// Whether its kernels may ask for a work-group size: not those that devices bring along, nor where source cannot say so.
    pub(crate) fn may_name_group(&self) -> bool {
        let names = |text: Cow<'_, str>| {
            let mut words = ["reqd_work_group_size", "include"].iter();
            words.any(|word| text.contains(word))
        };
        !matches!(self.origin, Origin::BuiltIn) && self.source().is_none_or(names)
    }

    /// Whether the application may see what arguments of kernels are: workers record it for their own use also where the options of a
    /// source program did not ask for it, and vendors then have nothing to tell.
    pub(crate) fn shows_arguments(&self) -> bool {
        let asks = |options: &CString| {
            let mut words = options.to_bytes().split(u8::is_ascii_whitespace);
            words.any(|word| word == b"-cl-kernel-arg-info")
        };
        !matches!(self.origin, Origin::Source(_))
            || self
                .build()
                .options
                .iter()
                .any(|(_, options)| asks(options))
    }

    /// The parts that hold an executable; built-in kernels are executable from the start.
    pub(crate) fn executable_parts(&self) -> Vec<usize> {
        match self.origin {
            Origin::BuiltIn => (0..self.raws.len())
                .filter(|&part| self.raw_on(part).is_some())
                .collect(),
            _ => self.build().executable.clone(),
        }
    }

    /// A kernel of this program begins its life.
    pub(crate) fn adopt_kernel(&self) {
        self.kernels.fetch_add(1, Ordering::AcqRel);
    }

    /// A kernel of this program has ended.
    pub(crate) fn lose_kernel(&self) {
        self.kernels.fetch_sub(1, Ordering::AcqRel);
    }

    /// The names of its kernels.
    pub(crate) fn kernel_names(&self) -> Result<Vec<String>, cl_int> {
        let part = *self
            .executable_parts()
            .first()
            .ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
        let bytes = self.ask(part, CL_PROGRAM_KERNEL_NAMES)?;
        Ok(String::from_utf8_lossy(&bytes)
            .trim_end_matches('\0')
            .split(';')
            .filter(|name| !name.is_empty())
            .map(str::to_string)
            .collect())
    }

    /// A query that the provider answers, remembered until the next build.
    fn ask(&self, part: usize, name: cl_program_info) -> Result<Vec<u8>, cl_int> {
        let raw = self.raw_on(part).ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
        self.answers.get(Key(0, name, part), |room, value, needed| {
            provider!(
                self.context.parts[part].provider.api,
                clGetProgramInfo(raw, name, room, value, needed)
            )
        })
    }

    /// The devices that a build is for.
    fn chosen(
        &self,
        count: cl_uint,
        list: Option<&[cl_device_id]>,
    ) -> Result<Vec<Ref<Device>>, cl_int> {
        let list = match list {
            None if count == 0 => return Ok(self.devices.clone()),
            Some(list) if count > 0 => list,
            _ => return Err(CL_INVALID_VALUE),
        };
        let devices = device::list(list)?;
        let known = |device: &Ref<Device>| self.devices.iter().any(|own| own.is(device));
        if devices.iter().all(known) {
            Ok(devices)
        } else {
            Err(CL_INVALID_DEVICE)
        }
    }

    /// Whether it was never compiled for a device, nor for one that this is a part of.
    fn was_never_built(&self, device: &Ref<Device>) -> bool {
        let build = self.build();
        let mut wholes = std::iter::successors(Some(device), |device| device.parent.as_ref());
        let has_options = |device: &Ref<Device>| {
            let mut built = build.options.iter();
            built.any(|(of, _)| of.0 == device.handle())
        };
        !wholes.any(has_options)
    }

    /// Whether there is nothing but its source on a part.
    fn is_source_only(&self, part: usize) -> bool {
        matches!(self.origin, Origin::Source(_) | Origin::Il(_))
            && self.part_devices[part]
                .iter()
                .all(|device| self.was_never_built(device))
    }

    fn forget_build(&self, devices: &[Ref<Device>], options: &CStr) {
        self.answers.clear();
        let mut build = self.build();
        for device in devices {
            build.options.retain(|(of, _)| of.0 != device.handle());
            build
                .options
                .push((Shared(device.handle()), options.into()));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let handle = self
            .handle
            .get()
            .copied()
            .unwrap_or(Shared(std::ptr::null_mut()));
        for (part, raw) in self.raws.iter().enumerate() {
            if let Some(raw) = raw.get() {
                provider!(
                    self.context.parts[part].provider.api,
                    clReleaseProgram(raw.0)
                );
            }
        }
        let releases = std::mem::take(
            self.releases
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for (function, user_data) in releases.into_iter().rev() {
            notify(function, handle, user_data, None);
        }
    }
}

/// Calls the function back; `kept` lives until then.
fn notify(
    function: ProgramFn,
    program: Shared<_cl_program>,
    user_data: Shared<c_void>,
    kept: Option<Ref<Program>>,
) {
    CALLBACKS.run(move || {
        let _kept = kept;
        let (program, user_data) = (program, user_data);
        // SAFETY: the application registered the function with this data for this program.
        unsafe { function(program.0, user_data.0) };
    });
}

/// The devices of each part, in the order given.
fn by_part(context: &Context, devices: &[Ref<Device>]) -> Vec<Vec<Ref<Device>>> {
    context
        .parts
        .iter()
        .map(|part| {
            devices
                .iter()
                .filter(|device| part.devices.iter().any(|own| own.is(device)))
                .cloned()
                .collect()
        })
        .collect()
}

fn raw_devices(devices: &[Ref<Device>]) -> Vec<cl_device_id> {
    devices.iter().map(|device| device.raw.0).collect()
}

/// Makes a program: `make` creates it on each part that has devices for it.
fn open(
    context: Ref<Context>,
    devices: Vec<Ref<Device>>,
    origin: Origin,
    mut make: impl FnMut(usize, &[Ref<Device>]) -> Result<cl_program, cl_int>,
) -> Result<Ref<Program>, cl_int> {
    let program = Program::empty(context, devices, origin)?;
    for part in 0..program.raws.len() {
        if program.part_devices[part].is_empty() {
            continue;
        }
        let raw = make(part, &program.part_devices[part])?;
        // Each part's place is set once, here.
        let _ = program.raws[part].set(Shared(raw));
    }
    Ok(program)
}

/// Whether each of the names, separated by semicolons, is a kernel that some of the devices has built in. A session would tell only
/// later.
fn built_in(devices: &[Ref<Device>], names: &CStr) -> bool {
    let lists: Vec<Vec<u8>> = devices
        .iter()
        .map(|device| {
            let list = device
                .provider
                .device_bytes(device.raw, CL_DEVICE_BUILT_IN_KERNELS);
            let end = list.iter().position(|byte| *byte == 0);
            list[..end.unwrap_or(list.len())].to_vec()
        })
        .collect();
    let separator = |byte: &u8| *byte == b';';
    let known = |name: &[u8]| {
        let mut lists = lists.iter();
        !name.is_empty() && lists.any(|list| list.split(separator).any(|other| other == name))
    };
    names.to_bytes().split(separator).all(known)
}

/// Devices given for a program: checked against the context.
fn devices_of(
    context: &Context,
    count: cl_uint,
    list: Option<&[cl_device_id]>,
) -> Result<Vec<Ref<Device>>, cl_int> {
    let Some(list) = list.filter(|_| count > 0) else {
        return Err(CL_INVALID_VALUE);
    };
    let devices = device::list(list)?;
    if devices.iter().all(|device| context.has(device)) {
        Ok(devices)
    } else {
        Err(CL_INVALID_DEVICE)
    }
}

/// Whether the bytes begin as a SPIR-V module does, in either order.
fn is_spirv(bytes: &[u8]) -> bool {
    const MAGIC: u32 = 0x0723_0203;
    bytes.starts_with(&MAGIC.to_le_bytes()) || bytes.starts_with(&MAGIC.to_be_bytes())
}

fn options_of(options: Option<&CStr>) -> CString {
    options.unwrap_or(c"").into()
}

impl ProgramCalls for Platform {
    unsafe fn clCreateProgramWithSource(
        &self,
        context: cl_context,
        count: cl_uint,
        strings: *mut *const c_char,
        lengths: Option<&[usize]>,
    ) -> Result<cl_program, cl_int> {
        let context = get::<Context>(context)?;
        // SAFETY: the application's contract: NULL or `count` strings.
        let strings = unsafe { raw::slice(strings.cast_const(), count as usize) }
            .filter(|strings| !strings.is_empty())
            .ok_or(CL_INVALID_VALUE)?;
        let mut source = Vec::new();
        for (index, &string) in strings.iter().enumerate() {
            let length = lengths.map_or(0, |lengths| lengths[index]);
            let piece = if length == 0 {
                // SAFETY: the application's contract: without a length the string ends with a NUL.
                unsafe { raw::text(string) }.map(CStr::to_bytes)
            } else {
                // SAFETY: the application's contract: the string has this length.
                unsafe { raw::slice(string.cast::<u8>(), length) }
            };
            source.extend_from_slice(piece.ok_or(CL_INVALID_VALUE)?);
        }
        let devices = context.devices.clone();
        let origin = Origin::Source(source.clone());
        open(context.clone(), devices, origin, |part, _| {
            let owner = &context.parts[part];
            let mut string: *const c_char = source.as_ptr().cast();
            // An empty text still needs an address, and a length of zero would mean "up to the NUL".
            let (mut blank, mut length) = (c"".as_ptr(), source.len());
            let (strings, lengths) = if source.is_empty() {
                (&raw mut blank, std::ptr::null())
            } else {
                (&raw mut string, &raw const length)
            };
            let made = create!(
                owner.provider.api,
                clCreateProgramWithSource(owner.raw.0, 1, strings, lengths)
            );
            let _ = (&mut string, &mut blank, &mut length);
            made
        })
        .map(Ref::publish)
    }

    unsafe fn clCreateProgramWithBinary(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: Option<&[cl_device_id]>,
        lengths: Option<&[usize]>,
        binaries: *mut *const u8,
        binary_status: OutList<cl_int>,
    ) -> Result<cl_program, cl_int> {
        let context = get::<Context>(context)?;
        let devices = devices_of(&context, num_devices, device_list)?;
        // SAFETY: the application's contract: NULL or one pointer per device.
        let binaries = unsafe { raw::slice(binaries.cast_const(), num_devices as usize) };
        let (Some(lengths), Some(binaries)) = (lengths, binaries) else {
            return Err(CL_INVALID_VALUE);
        };
        let missing = |(length, binary): (&usize, &*const u8)| *length == 0 || binary.is_null();
        if lengths.iter().zip(binaries).any(missing) {
            return Err(CL_INVALID_VALUE);
        }
        open(
            context.clone(),
            devices.clone(),
            Origin::Binaries,
            |part, own| {
                let owner = &context.parts[part];
                let places: Vec<usize> = own
                    .iter()
                    .filter_map(|device| devices.iter().position(|known| known.is(device)))
                    .collect();
                let raws = raw_devices(own);
                let lengths: Vec<usize> = places.iter().map(|&place| lengths[place]).collect();
                let mut pointers: Vec<*const u8> =
                    places.iter().map(|&place| binaries[place]).collect();
                let mut statuses = vec![CL_SUCCESS; own.len()];
                let made = create!(
                    owner.provider.api,
                    clCreateProgramWithBinary(
                        owner.raw.0,
                        raws.len() as cl_uint,
                        raws.as_ptr(),
                        lengths.as_ptr(),
                        pointers.as_mut_ptr(),
                        statuses.as_mut_ptr()
                    )
                );
                for (&place, &status) in places.iter().zip(&statuses) {
                    binary_status.set(place, status);
                }
                made
            },
        )
        .map(Ref::publish)
    }

    unsafe fn clCreateProgramWithBuiltInKernels(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: Option<&[cl_device_id]>,
        kernel_names: Option<&CStr>,
    ) -> Result<cl_program, cl_int> {
        let context = get::<Context>(context)?;
        let names = kernel_names.ok_or(CL_INVALID_VALUE)?;
        let devices = devices_of(&context, num_devices, device_list)?;
        if !built_in(&devices, names) {
            return Err(CL_INVALID_VALUE);
        }
        open(context.clone(), devices, Origin::BuiltIn, |part, own| {
            let owner = &context.parts[part];
            let raws = raw_devices(own);
            create!(
                owner.provider.api,
                clCreateProgramWithBuiltInKernels(
                    owner.raw.0,
                    raws.len() as cl_uint,
                    raws.as_ptr(),
                    names.as_ptr()
                )
            )
        })
        .map(Ref::publish)
    }

    unsafe fn clCreateProgramWithIL(
        &self,
        context: cl_context,
        il: *const c_void,
        length: usize,
    ) -> Result<cl_program, cl_int> {
        let context = get::<Context>(context)?;
        // SAFETY: the application's contract: NULL or readable for the length.
        let bytes = unsafe { raw::slice(il.cast::<u8>(), length) }
            .filter(|bytes| !bytes.is_empty())
            .ok_or(CL_INVALID_VALUE)?;
        if !context.devices.iter().any(|device| device.limits.takes_il) {
            return Err(if is_spirv(bytes) {
                CL_INVALID_OPERATION
            } else {
                CL_INVALID_VALUE
            });
        }
        let devices = context.devices.clone();
        open(
            context.clone(),
            devices,
            Origin::Il(bytes.to_vec()),
            |part, _| {
                let owner = &context.parts[part];
                create!(
                    owner.provider.api,
                    clCreateProgramWithIL(owner.raw.0, il, length)
                )
            },
        )
        .map(Ref::publish)
    }

    unsafe fn clRetainProgram(&self, program: cl_program) -> Result<(), cl_int> {
        get::<Program>(program)?.retain();
        Ok(())
    }

    unsafe fn clReleaseProgram(&self, program: cl_program) -> Result<(), cl_int> {
        get::<Program>(program)?.release().map(|_| ())
    }

    unsafe fn clBuildProgram(
        &self,
        program: cl_program,
        num_devices: cl_uint,
        device_list: Option<&[cl_device_id]>,
        options: Option<&CStr>,
        pfn_notify: Option<ProgramFn>,
        user_data: *mut c_void,
    ) -> Result<(), cl_int> {
        let program = get::<Program>(program)?;
        let callback = callback(pfn_notify, user_data)?;
        let devices = program.chosen(num_devices, device_list)?;
        Job {
            devices,
            program,
            options: options_of(options),
            step: Step::Build,
        }
        .start(callback)
    }

    unsafe fn clCompileProgram(
        &self,
        program: cl_program,
        num_devices: cl_uint,
        device_list: Option<&[cl_device_id]>,
        options: Option<&CStr>,
        num_input_headers: cl_uint,
        input_headers: Option<&[cl_program]>,
        header_include_names: *mut *const c_char,
        pfn_notify: Option<ProgramFn>,
        user_data: *mut c_void,
    ) -> Result<(), cl_int> {
        let program = get::<Program>(program)?;
        let callback = callback(pfn_notify, user_data)?;
        let devices = program.chosen(num_devices, device_list)?;
        // SAFETY: the application's contract: NULL or one name per header.
        let names = unsafe {
            raw::slice(
                header_include_names.cast_const(),
                num_input_headers as usize,
            )
        };
        let mut headers = Vec::new();
        match (input_headers, names) {
            (None, None) if num_input_headers == 0 => {}
            (Some(programs), Some(names)) if num_input_headers > 0 => {
                for (&header, &name) in programs.iter().zip(names) {
                    let header = get::<Program>(header)?;
                    if !header.context.is(&program.context) {
                        return Err(CL_INVALID_CONTEXT);
                    }
                    // SAFETY: the application's contract: names end with a NUL.
                    let name = unsafe { raw::text(name) }.ok_or(CL_INVALID_VALUE)?;
                    headers.push((header, name.into()));
                }
            }
            _ => return Err(CL_INVALID_VALUE),
        }
        if matches!(
            program.origin,
            Origin::Binaries | Origin::BuiltIn | Origin::Linked
        ) {
            return Err(CL_INVALID_OPERATION);
        }
        Job {
            devices,
            program,
            options: options_of(options),
            step: Step::Compile(headers),
        }
        .start(callback)
    }

    unsafe fn clLinkProgram(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: Option<&[cl_device_id]>,
        options: Option<&CStr>,
        num_input_programs: cl_uint,
        input_programs: Option<&[cl_program]>,
        pfn_notify: Option<ProgramFn>,
        user_data: *mut c_void,
    ) -> Result<cl_program, cl_int> {
        let context = get::<Context>(context)?;
        let callback = callback(pfn_notify, user_data)?;
        let devices = match device_list {
            None if num_devices == 0 => context.devices.clone(),
            _ => devices_of(&context, num_devices, device_list)?,
        };
        let inputs = input_programs
            .filter(|_| num_input_programs > 0)
            .ok_or(CL_INVALID_VALUE)?
            .iter()
            .map(|&input| get::<Program>(input))
            .collect::<Result<Vec<_>, _>>()?;
        if inputs.iter().any(|input| !input.context.is(&context)) {
            return Err(CL_INVALID_PROGRAM);
        }
        let options = options_of(options);
        let program = Program::empty(context, devices, Origin::Linked)?;
        let building = Building::begin(&program)?;
        let Some((function, user_data)) = callback else {
            match link(&program, &inputs, &options) {
                // The program that has begun tells why in its log.
                Err(CL_LINK_PROGRAM_FAILURE)
                    if program.raws.iter().any(|raw| raw.get().is_some()) =>
                {
                    raw::tell_beside(CL_LINK_PROGRAM_FAILURE);
                }
                linked => linked?,
            }
            drop(building);
            return Ok(program.publish());
        };
        let handle = program.clone().publish();
        let started = towline_client::threads::named("towline-link").spawn(move || {
            // The outcome is found in the build's status.
            let _ = link(&program, &inputs, &options);
            drop(building);
            let handle = Shared(program.handle());
            notify(function, handle, user_data, Some(program));
        });
        if started.is_err() {
            // The application never learns of the handle.
            let _ = get::<Program>(handle).and_then(|program| program.release());
            return Err(CL_OUT_OF_HOST_MEMORY);
        }
        Ok(handle)
    }

    unsafe fn clUnloadCompiler(&self) -> Result<(), cl_int> {
        Ok(())
    }

    unsafe fn clUnloadPlatformCompiler(&self, platform: cl_platform_id) -> Result<(), cl_int> {
        if platform.is_null() {
            return Err(CL_INVALID_PLATFORM);
        }
        self.expect(platform)
    }

    unsafe fn clSetProgramSpecializationConstant(
        &self,
        program: cl_program,
        spec_id: cl_uint,
        spec_size: usize,
        spec_value: *const c_void,
    ) -> Result<(), cl_int> {
        let program = get::<Program>(program)?;
        if !program.devices.iter().any(|device| device.limits.takes_il) {
            return Err(CL_INVALID_OPERATION);
        }
        if !matches!(program.origin, Origin::Il(_)) {
            return Err(CL_INVALID_PROGRAM);
        }
        if spec_value.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        for (part, owner) in program.context.parts.iter().enumerate() {
            if let Some(raw) = program.raw_on(part) {
                check(provider!(
                    owner.provider.api,
                    clSetProgramSpecializationConstant(raw, spec_id, spec_size, spec_value)
                ))?;
            }
        }
        Ok(())
    }

    unsafe fn clSetProgramReleaseCallback(
        &self,
        program: cl_program,
        pfn_notify: Option<ProgramFn>,
        user_data: *mut c_void,
    ) -> Result<(), cl_int> {
        // Destructors of program-scope variables, which this waits for, came with OpenCL 2.2 and went with 3.0.
        let has_destructors = |device: &Ref<Device>| device.limits.version == (2, 2);
        if !self.devices().iter().any(has_destructors) {
            return Err(CL_INVALID_OPERATION);
        }
        let program = get::<Program>(program)?;
        let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
        program
            .releases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((function, Shared(user_data)));
        Ok(())
    }

    unsafe fn clGetProgramInfo(
        &self,
        program: cl_program,
        param_name: cl_program_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let program = get::<Program>(program)?;
        match param_name {
            CL_PROGRAM_REFERENCE_COUNT => answer.value(program.count()),
            CL_PROGRAM_CONTEXT => answer.value(program.context.handle()),
            CL_PROGRAM_NUM_DEVICES => answer.value(program.devices.len() as cl_uint),
            CL_PROGRAM_DEVICES => {
                answer.slice(&program.devices.iter().map(Ref::handle).collect::<Vec<_>>())
            }
            CL_PROGRAM_SOURCE => match &program.origin {
                Origin::Source(source) => answer.bytes(&[source, &b"\0"[..]].concat()),
                _ => answer.text(""),
            },
            CL_PROGRAM_IL => match &program.origin {
                Origin::Il(bytes) => answer.bytes(bytes),
                _ => answer.bytes(&[]),
            },
            CL_PROGRAM_BINARY_SIZES => answer.slice(&binary_sizes(&program)?),
            CL_PROGRAM_BINARIES => binaries(&program, &answer),
            CL_PROGRAM_NUM_KERNELS | CL_PROGRAM_KERNEL_NAMES => {
                let part = *program
                    .executable_parts()
                    .first()
                    .ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
                answer.bytes(&program.ask(part, param_name)?)
            }
            CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT | CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT => {
                let part = *program
                    .executable_parts()
                    .first()
                    .ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
                answer.bytes(&program.ask(part, param_name)?)
            }
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clGetProgramBuildInfo(
        &self,
        program: cl_program,
        device: cl_device_id,
        param_name: cl_program_build_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let program = get::<Program>(program)?;
        let device = get::<Device>(device)?;
        if !program.devices.iter().any(|own| own.is(&device)) {
            return Err(CL_INVALID_DEVICE);
        }
        let part = program.context.part_of(&device).ok_or(CL_INVALID_DEVICE)?;
        let building = program.building.load(Ordering::Acquire);
        match param_name {
            CL_PROGRAM_BUILD_STATUS if building => {
                return answer.value::<cl_build_status>(CL_BUILD_IN_PROGRESS);
            }
            CL_PROGRAM_BUILD_LOG if building => return answer.text(""),
            CL_PROGRAM_BINARY_TYPE if building => {
                return answer.value::<cl_program_binary_type>(CL_PROGRAM_BINARY_TYPE_NONE);
            }
            CL_PROGRAM_BUILD_OPTIONS => {
                let build = program.build();
                let options = build
                    .options
                    .iter()
                    .find(|(of, _)| of.0 == device.handle())
                    .map_or(c"", |(_, options)| options);
                return answer.bytes(options.to_bytes_with_nul());
            }
            CL_PROGRAM_BUILD_STATUS
            | CL_PROGRAM_BUILD_LOG
            | CL_PROGRAM_BINARY_TYPE
            | CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => {}
            _ => return Err(CL_INVALID_VALUE),
        }
        let never = program.was_never_built(&device);
        let plain = matches!(program.origin, Origin::Source(_) | Origin::Il(_));
        let raw = match program.raw_on(part) {
            Some(raw) if !(never && plain) => raw,
            missing => {
                // Never built or linked, or linking failed before the provider had a program.
                let status = if missing.is_some() || never {
                    CL_BUILD_NONE
                } else {
                    CL_BUILD_ERROR
                };
                return match param_name {
                    CL_PROGRAM_BUILD_STATUS => answer.value::<cl_build_status>(status),
                    CL_PROGRAM_BUILD_LOG => answer.text(""),
                    CL_PROGRAM_BINARY_TYPE => {
                        answer.value::<cl_program_binary_type>(CL_PROGRAM_BINARY_TYPE_NONE)
                    }
                    _ => answer.value::<usize>(0),
                };
            }
        };
        let key = Key(1, param_name, device.handle().addr());
        let bytes = program.answers.get(key, |room, value, needed| {
            provider!(
                program.context.parts[part].provider.api,
                clGetProgramBuildInfo(raw, device.raw.0, param_name, room, value, needed)
            )
        })?;
        answer.bytes(&bytes)
    }
}

/// The sizes of a program's binaries, in the order of its devices.
fn binary_sizes(program: &Program) -> Result<Vec<usize>, cl_int> {
    let mut sizes = vec![0; program.devices.len()];
    for (part, devices) in program.part_devices.iter().enumerate() {
        let Some(raw) = program.raw_on(part) else {
            continue;
        };
        let mut own = vec![0_usize; devices.len()];
        check(provider!(
            program.context.parts[part].provider.api,
            clGetProgramInfo(
                raw,
                CL_PROGRAM_BINARY_SIZES,
                size_of_val(own.as_slice()),
                own.as_mut_ptr().cast(),
                std::ptr::null_mut()
            )
        ))?;
        for (device, size) in devices.iter().zip(own) {
            if let Some(place) = program.devices.iter().position(|known| known.is(device)) {
                sizes[place] = size;
            }
        }
    }
    Ok(sizes)
}

/// Writes a program's binaries where the application's pointers lead.
fn binaries(program: &Program, answer: &Answer) -> Result<(), cl_int> {
    let count = program.devices.len();
    if !answer.announce(count * size_of::<*mut u8>())? {
        return Ok(());
    }
    let mut wanted = vec![std::ptr::null_mut::<u8>(); count];
    // SAFETY: `announce` says that the application gave room for one pointer per device, aligned or not.
    unsafe {
        std::ptr::copy_nonoverlapping(
            answer.value_pointer().cast::<u8>().cast_const(),
            wanted.as_mut_ptr().cast(),
            size_of_val(wanted.as_slice()),
        )
    };
    for (part, devices) in program.part_devices.iter().enumerate() {
        let Some(raw) = program.raw_on(part) else {
            continue;
        };
        let mut pointers: Vec<*mut u8> = devices
            .iter()
            .map(|device| {
                program
                    .devices
                    .iter()
                    .position(|known| known.is(device))
                    .map_or(std::ptr::null_mut(), |place| wanted[place])
            })
            .collect();
        check(provider!(
            program.context.parts[part].provider.api,
            clGetProgramInfo(
                raw,
                CL_PROGRAM_BINARIES,
                size_of_val(pointers.as_slice()),
                pointers.as_mut_ptr().cast(),
                std::ptr::null_mut()
            )
        ))?;
    }
    Ok(())
}
