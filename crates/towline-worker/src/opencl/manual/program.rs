//! Programs: from source and binaries, built off the lane, with what is learnt of their kernels.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::facts::{Argument, Facts, Kernel};

use crate::decode::aligned;
use crate::opencl::may_print::may_print;
use crate::opencl::session::Session;
use crate::opencl::shared::{Raw, Shared};

/// Asks the compiler to record what kernel arguments are. The client shows the options that the application gave, and arguments only
/// where those asked for them.
const ARGUMENT_RECORDS: &str = "-cl-kernel-arg-info";

impl Session {
    /// Charges a program's text or binaries; whether the session may have them.
    fn charge_program(&self, id: u64, bytes: usize) -> bool {
        self.shared.charge_code(id, 0, bytes as u64)
    }

    pub(crate) fn CreateProgramSource(
        &mut self,
        number: u64,
        request: wire::CreateProgramSource<'_>,
    ) -> Result<(), ProtocolError> {
        let mut status = CL_SUCCESS;
        let mut native: cl_program = std::ptr::null_mut();
        match self.native(request.context.0, wire::ContextHandle::TAG)? {
            Err(failed) => status = failed,
            Ok(_) if !self.charge_program(request.created.0, request.source.len()) => {
                status = CL_OUT_OF_RESOURCES;
            }
            Ok(context) => {
                let length = request.source.len();
                // A length of zero means "up to the NUL".
                let text: *const c_char = match length {
                    0 => c"".as_ptr(),
                    _ => request.source.as_ptr().cast(),
                };
                // SAFETY: the context is live; one text of `length` bytes, or an empty one with its NUL.
                native = unsafe {
                    self.api.clCreateProgramWithSource(
                        context.cast(),
                        1,
                        (&raw const text).cast_mut(),
                        &raw const length,
                        &raw mut status,
                    )
                };
            }
        }
        let prints = may_print(request.source);
        self.born_program(request.created.0, native, status, prints)?;
        self.settle(
            number,
            <wire::CreateProgramSource<'_> as Request<'_>>::ID,
            status,
        );
        Ok(())
    }

    pub(crate) fn clCreateProgramWithIL(
        &mut self,
        number: u64,
        request: wire::CreateProgramWithIL<'_>,
    ) -> Result<(), ProtocolError> {
        let mut status = CL_SUCCESS;
        let mut native: cl_program = std::ptr::null_mut();
        match self.native(request.context.0, wire::ContextHandle::TAG)? {
            Err(failed) => status = failed,
            Ok(_) if !self.charge_program(request.created.0, request.il.len()) => {
                status = CL_OUT_OF_RESOURCES;
            }
            Ok(context) => {
                let code = aligned(request.il);
                // SAFETY: the context is live; the code has the length of the request's.
                native = unsafe {
                    self.api.clCreateProgramWithIL(
                        context.cast(),
                        code.as_ptr().cast(),
                        request.il.len(),
                        &raw mut status,
                    )
                };
            }
        }
        let created = request.created.0;
        self.born(created, wire::ProgramHandle::TAG, native.cast(), status)?;
        let call = <wire::CreateProgramWithIL<'_> as Request<'_>>::ID;
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn CreateProgramBinary(
        &mut self,
        number: u64,
        request: wire::CreateProgramBinary<'_>,
    ) -> Result<(), ProtocolError> {
        let mut binaries = Vec::new();
        let mut rest = request.binaries;
        for size in request.sizes.iter() {
            let cut = usize::try_from(size)
                .ok()
                .and_then(|size| rest.split_at_checked(size));
            let Some((binary, tail)) = cut else {
                return Err(ProtocolError::new(
                    CloseCode::Malformed,
                    "binaries are shorter than their sizes say",
                ));
            };
            binaries.push(binary);
            rest = tail;
        }
        let mut verdicts: Vec<cl_int> = vec![CL_SUCCESS; binaries.len()];
        let mut status = CL_SUCCESS;
        let mut native: cl_program = std::ptr::null_mut();
        let devices = self.natives(
            request.devices.iter().map(|device| device.0),
            wire::DeviceHandle::TAG,
        )?;
        match (
            self.native(request.context.0, wire::ContextHandle::TAG)?,
            devices,
        ) {
            (Err(failed), _) | (_, Err(failed)) => status = failed,
            (Ok(_), Ok(_)) if !self.charge_program(request.created.0, request.binaries.len()) => {
                status = CL_OUT_OF_RESOURCES;
            }
            (Ok(context), Ok(devices)) => {
                let lengths: Vec<usize> = binaries.iter().map(|binary| binary.len()).collect();
                let pointers: Vec<*const u8> =
                    binaries.iter().map(|binary| binary.as_ptr()).collect();
                // SAFETY: the context is live; there are as many devices, lengths, binaries and verdicts as the count says.
                native = unsafe {
                    self.api.clCreateProgramWithBinary(
                        context.cast(),
                        devices.len() as cl_uint,
                        devices.as_ptr(),
                        lengths.as_ptr(),
                        pointers.as_ptr().cast_mut().cast(),
                        verdicts.as_mut_ptr(),
                        &raw mut status,
                    )
                };
            }
        }
        self.born(
            request.created.0,
            wire::ProgramHandle::TAG,
            native.cast(),
            status,
        )?;
        // The verdicts matter most when the call fails, so they travel in either case, and the status beside them.
        let mut body = Vec::new();
        wire::CreateProgramBinaryReply {
            binary_status: Some(List::Values(&verdicts)),
        }
        .encode(&mut body);
        self.shared.answer(number, status, &body);
        Ok(())
    }

    pub(crate) fn Build(
        &mut self,
        number: u64,
        request: wire::Build<'_>,
    ) -> Result<(), ProtocolError> {
        let devices = request
            .devices
            .iter()
            .flat_map(|list| list.iter())
            .map(|device| device.0);
        let devices = self.natives(devices, wire::DeviceHandle::TAG)?;
        let (program, devices) = match (
            self.native(request.program.0, wire::ProgramHandle::TAG)?,
            devices,
        ) {
            (Err(status), _) | (_, Err(status)) => {
                self.reply(number, status, &wire::BuildReply { facts: None });
                return Ok(());
            }
            (Ok(program), Ok(devices)) => (Raw(program), devices),
        };
        let devices: Vec<Raw> = devices
            .into_iter()
            .map(|device: cl_device_id| Raw(device.cast()))
            .collect();
        if request.options.is_some_and(may_print) {
            self.shared.printing.expect();
        }
        let options = request
            .options
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .unwrap_or_default();
        // Kept until the build is over.
        let includes = self.includes.get(&request.program.0).cloned();
        let options = match &includes {
            Some(tree) => tree.added_to(&options),
            None => options,
        };
        retain_devices(&*self.api, &devices);
        // SAFETY: the program is live; the reference keeps it so until the build is over.
        unsafe { self.api.clRetainProgram(program.0.cast()) };
        let shared = Arc::clone(&self.shared);
        self.shared.waiters.run(move || {
            let program = program;
            let build = |options: &str| {
                let options = CString::new(options).unwrap_or_default();
                let list = if devices.is_empty() {
                    std::ptr::null()
                } else {
                    devices.as_ptr().cast()
                };
                // SAFETY: program and devices are live; without a callback the call returns when the build is over.
                unsafe {
                    shared.api.clBuildProgram(
                        program.0.cast(),
                        devices.len() as cl_uint,
                        list,
                        options.as_ptr(),
                        None,
                        std::ptr::null_mut(),
                    )
                }
            };
            let recorded = format!("{options} {ARGUMENT_RECORDS}");
            let mut status = build(recorded.trim_start());
            if status != CL_SUCCESS {
                // Not every compiler takes the option everywhere (NVIDIA's, driver 580.159, then writes PTX that it cannot read);
                // and the log of a program that is wrong must be that of the build as it was asked for.
                status = build(&options);
            }
            let facts = if status == CL_SUCCESS {
                facts(&*shared.api, program.0.cast()).encode()
            } else {
                Vec::new()
            };
            // SAFETY: the reference above is ours.
            unsafe { shared.api.clReleaseProgram(program.0.cast()) };
            release_devices(&*shared.api, &devices);
            drop(includes);
            tell(
                &shared,
                number,
                status,
                &wire::BuildReply {
                    facts: Some(&facts),
                },
            );
        });
        Ok(())
    }

    pub(crate) fn Compile(
        &mut self,
        number: u64,
        request: wire::Compile<'_>,
    ) -> Result<(), ProtocolError> {
        let devices = request
            .devices
            .iter()
            .flat_map(|list| list.iter())
            .map(|device| device.0);
        let devices = self.natives(devices, wire::DeviceHandle::TAG)?;
        let headers = request
            .headers
            .iter()
            .flat_map(|list| list.iter())
            .map(|header| header.0);
        let headers = self.natives(headers, wire::ProgramHandle::TAG)?;
        let program = self.native(request.program.0, wire::ProgramHandle::TAG)?;
        let (program, devices, headers) = match (program, devices, headers) {
            (Err(status), _, _) | (_, Err(status), _) | (_, _, Err(status)) => {
                self.reply(number, status, &wire::CompileReply {});
                return Ok(());
            }
            (Ok(program), Ok(devices), Ok(headers)) => (Raw(program), devices, headers),
        };
        let names: Vec<CString> = request
            .names
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|name| CString::from_vec_with_nul(name.to_vec()).ok())
            .collect();
        if names.len() != headers.len() {
            return Err(ProtocolError::new(
                CloseCode::Malformed,
                "headers and their names differ in number",
            ));
        }
        let devices: Vec<Raw> = devices
            .into_iter()
            .map(|device: cl_device_id| Raw(device.cast()))
            .collect();
        let headers: Vec<Raw> = headers
            .into_iter()
            .map(|header: cl_program| Raw(header.cast()))
            .collect();
        if request.options.is_some_and(may_print) {
            self.shared.printing.expect();
        }
        let options = request
            .options
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .unwrap_or_default();
        let includes = self.includes.get(&request.program.0).cloned();
        let options = match &includes {
            Some(tree) => tree.added_to(&options),
            None => options,
        };
        retain_devices(&*self.api, &devices);
        for raw in headers.iter().chain([&program]) {
            // SAFETY: the program is live; the reference keeps it so until the compilation is over.
            unsafe { self.api.clRetainProgram(raw.0.cast()) };
        }
        let shared = Arc::clone(&self.shared);
        self.shared.waiters.run(move || {
            let program = program;
            let options = CString::new(options).unwrap_or_default();
            let pointers: Vec<usize> = names
                .iter()
                .map(|name| name.as_ptr().expose_provenance())
                .collect();
            let none = headers.is_empty();
            // SAFETY: all programs and devices are live, lists are as long as their counts.
            let status = unsafe {
                shared.api.clCompileProgram(
                    program.0.cast(),
                    devices.len() as cl_uint,
                    if devices.is_empty() {
                        std::ptr::null()
                    } else {
                        devices.as_ptr().cast()
                    },
                    options.as_ptr(),
                    headers.len() as cl_uint,
                    if none {
                        std::ptr::null()
                    } else {
                        headers.as_ptr().cast()
                    },
                    if none {
                        std::ptr::null_mut()
                    } else {
                        pointers.as_ptr().cast_mut().cast()
                    },
                    None,
                    std::ptr::null_mut(),
                )
            };
            for raw in headers.iter().chain([&program]) {
                // SAFETY: the reference above is ours.
                unsafe { shared.api.clReleaseProgram(raw.0.cast()) };
            }
            release_devices(&*shared.api, &devices);
            drop(includes);
            tell(&shared, number, status, &wire::CompileReply {});
        });
        Ok(())
    }

    pub(crate) fn Link(
        &mut self,
        number: u64,
        request: wire::Link<'_>,
    ) -> Result<(), ProtocolError> {
        let devices = request
            .devices
            .iter()
            .flat_map(|list| list.iter())
            .map(|device| device.0);
        let devices = self.natives(devices, wire::DeviceHandle::TAG)?;
        let programs = request
            .programs
            .iter()
            .flat_map(|list| list.iter())
            .map(|program| program.0);
        let programs = self.natives(programs, wire::ProgramHandle::TAG)?;
        let mut status = CL_SUCCESS;
        let mut native: cl_program = std::ptr::null_mut();
        let mut known = Vec::new();
        match (
            self.native(request.context.0, wire::ContextHandle::TAG)?,
            devices,
            programs,
        ) {
            (Err(failed), _, _) | (_, Err(failed), _) | (_, _, Err(failed)) => status = failed,
            (Ok(context), Ok(devices), Ok(programs)) => {
                let devices: Vec<cl_device_id> = devices.into_vec();
                let programs: Vec<cl_program> = programs.into_vec();
                let options = CString::new(request.options.unwrap_or_default()).unwrap_or_default();
                // Linking happens on the lane: the new program must be in the table before anything that names it. Vendors
                // link in a fraction of the time of a compilation.
                // SAFETY: all objects are live, lists are as long as their counts; no callback, so the call returns when done.
                native = unsafe {
                    self.api.clLinkProgram(
                        context.cast(),
                        devices.len() as cl_uint,
                        if devices.is_empty() {
                            std::ptr::null()
                        } else {
                            devices.as_ptr()
                        },
                        options.as_ptr(),
                        programs.len() as cl_uint,
                        if programs.is_empty() {
                            std::ptr::null()
                        } else {
                            programs.as_ptr()
                        },
                        None,
                        std::ptr::null_mut(),
                        &raw mut status,
                    )
                };
                if !native.is_null() && status == CL_SUCCESS {
                    known = facts(&*self.api, native).encode();
                }
            }
        }
        // What it is linked from has been looked at.
        self.born_program(request.created.0, native, status, false)?;
        // A failed link may leave a program behind, whose log tells why: the client keeps it then.
        let mut body = Vec::new();
        wire::LinkReply {
            facts: (!native.is_null()).then_some(&known),
        }
        .encode(&mut body);
        let status = if native.is_null() && status == CL_SUCCESS {
            CL_LINK_PROGRAM_FAILURE
        } else {
            status
        };
        self.shared.answer(number, status, &body);
        Ok(())
    }

    pub(crate) fn ProgramBinaries(
        &mut self,
        number: u64,
        request: wire::ProgramBinaries,
    ) -> Result<(), ProtocolError> {
        let (mut sizes, mut joined) = (Vec::new(), Vec::new());
        let status = match self.native(request.program.0, wire::ProgramHandle::TAG)? {
            Err(status) => status,
            Ok(program) => binaries(
                &*self.api,
                program.cast(),
                request.room,
                &mut sizes,
                &mut joined,
            ),
        };
        let reply = wire::ProgramBinariesReply {
            sizes: Some(List::Values(&sizes)),
            binaries: Some(&joined),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn ProgramFacts(
        &mut self,
        number: u64,
        request: wire::ProgramFacts,
    ) -> Result<(), ProtocolError> {
        let (status, known) = match self.native(request.program.0, wire::ProgramHandle::TAG)? {
            Err(status) => (status, Vec::new()),
            Ok(program) => (CL_SUCCESS, facts(&*self.api, program.cast()).encode()),
        };
        self.reply(
            number,
            status,
            &wire::ProgramFactsReply {
                facts: Some(&known),
            },
        );
        Ok(())
    }
}

/// Keeps sub-devices alive while they are compiled for; a root device has no references to count.
fn retain_devices(api: &dyn OpenClApi, devices: &[Raw]) {
    for device in devices {
        // SAFETY: the device is live: it is in the session's table.
        unsafe { api.clRetainDevice(device.0.cast()) };
    }
}

/// Gives back what [`retain_devices`] took.
fn release_devices(api: &dyn OpenClApi, devices: &[Raw]) {
    for device in devices {
        // SAFETY: the reference is ours.
        unsafe { api.clReleaseDevice(device.0.cast()) };
    }
}

fn tell<'a>(shared: &Shared, number: u64, status: i32, body: &impl Message<'a>) {
    shared.reply(number, status, body);
    shared.flush();
}

fn binaries(
    api: &dyn OpenClApi,
    program: cl_program,
    room: u64,
    sizes: &mut Vec<u64>,
    joined: &mut Vec<u8>,
) -> cl_int {
    let mut bytes = 0;
    let null = std::ptr::null_mut();
    // SAFETY: the program is live; with no room given, only the size is written.
    let status =
        unsafe { api.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, 0, null, &raw mut bytes) };
    if status != CL_SUCCESS {
        return status;
    }
    let mut lengths = vec![0_usize; bytes / size_of::<usize>()];
    // SAFETY: the room given is the vector's.
    let status = unsafe {
        api.clGetProgramInfo(
            program,
            CL_PROGRAM_BINARY_SIZES,
            bytes,
            lengths.as_mut_ptr().cast(),
            std::ptr::null_mut(),
        )
    };
    if status != CL_SUCCESS {
        return status;
    }
    let total = lengths
        .iter()
        .fold(0_u64, |sum, length| sum.saturating_add(*length as u64));
    if total > room || total > towline_wire::frame::MESSAGE_LIMIT as u64 / 2 {
        return CL_OUT_OF_RESOURCES;
    }
    let mut parts: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
    let mut pointers: Vec<*mut u8> = parts.iter_mut().map(|part| part.as_mut_ptr()).collect();
    let size = size_of_val(pointers.as_slice());
    // SAFETY: as many pointers as sizes, each to that many bytes.
    let status = unsafe {
        api.clGetProgramInfo(
            program,
            CL_PROGRAM_BINARIES,
            size,
            pointers.as_mut_ptr().cast(),
            std::ptr::null_mut(),
        )
    };
    sizes.extend(lengths.iter().map(|length| *length as u64));
    joined.extend(parts.concat());
    status
}

/// Everything that the vendor tells of a built program's kernels.
fn facts(api: &dyn OpenClApi, program: cl_program) -> Facts {
    // A program that is not built for all of its devices has no list for some vendors.
    let kernels = all_kernels(api, program).unwrap_or_else(|| kernels_by_name(api, program));
    let mut facts = Facts::default();
    for kernel in kernels {
        facts.kernels.push(describe(api, kernel));
        // SAFETY: the kernel was created above and is used by nobody else.
        unsafe { api.clReleaseKernel(kernel) };
    }
    facts
}

fn all_kernels(api: &dyn OpenClApi, program: cl_program) -> Option<Vec<cl_kernel>> {
    let mut count = 0;
    // SAFETY: the program is live; with no room given, only the count is written.
    let status =
        unsafe { api.clCreateKernelsInProgram(program, 0, std::ptr::null_mut(), &raw mut count) };
    if status != CL_SUCCESS {
        return None;
    }
    let mut kernels: Vec<cl_kernel> = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: room for `count` kernels.
    let status = unsafe {
        api.clCreateKernelsInProgram(program, count, kernels.as_mut_ptr(), std::ptr::null_mut())
    };
    (status == CL_SUCCESS).then_some(kernels)
}

fn kernels_by_name(api: &dyn OpenClApi, program: cl_program) -> Vec<cl_kernel> {
    let names = text(|value, actual| {
        let room = match value.is_empty() {
            true => std::ptr::null_mut(),
            false => value.as_mut_ptr().cast(),
        };
        let (name, size) = (CL_PROGRAM_KERNEL_NAMES, value.len());
        // SAFETY: the program is live, the room given is the slice's.
        unsafe { api.clGetProgramInfo(program, name, size, room, actual) }
    });
    let names = names.unwrap_or_default();
    let names = names.split(|byte| *byte == b';');
    names
        .filter_map(|name| CString::new(name).ok())
        .filter_map(|name| {
            let mut status = CL_SUCCESS;
            // SAFETY: the program is live, the name ends with NUL, the status is a local.
            let kernel = unsafe { api.clCreateKernel(program, name.as_ptr(), &raw mut status) };
            (status == CL_SUCCESS && !kernel.is_null()).then_some(kernel)
        })
        .collect()
}

fn describe(api: &dyn OpenClApi, kernel: cl_kernel) -> Kernel {
    let ask = |query: u32, value: &mut [u8], actual: &mut usize| {
        let room = value.as_mut_ptr().cast();
        // SAFETY: the kernel is live, the room given is the slice's.
        unsafe {
            api.clGetKernelInfo(
                kernel,
                query,
                value.len(),
                if value.is_empty() {
                    std::ptr::null_mut()
                } else {
                    room
                },
                actual,
            )
        }
    };
    let mut number = [0; 4];
    ask(CL_KERNEL_NUM_ARGS, &mut number, &mut 0);
    let name =
        text(|value, actual| ask(CL_KERNEL_FUNCTION_NAME, value, actual)).unwrap_or_default();
    let num_args = u32::from_ne_bytes(number);
    let arguments = (0..num_args)
        .map(|index| argument(api, kernel, index))
        .collect();
    Kernel {
        name,
        num_args,
        arguments,
    }
}

pub(super) fn argument(api: &dyn OpenClApi, kernel: cl_kernel, index: u32) -> Option<Argument> {
    let ask = |query: u32, value: *mut c_void, size: usize, actual: &mut usize| {
        // SAFETY: the kernel is live, `value` has room for `size` bytes or is NULL beside zero.
        unsafe { api.clGetKernelArgInfo(kernel, index, query, size, value, actual) }
    };
    let number = |query: u32| {
        let mut value = 0_u32;
        (ask(query, (&raw mut value).cast(), 4, &mut 0) == CL_SUCCESS).then_some(value)
    };
    let words = |query: u32| {
        text(|value, actual| {
            let room = if value.is_empty() {
                std::ptr::null_mut()
            } else {
                value.as_mut_ptr().cast()
            };
            ask(query, room, value.len(), actual)
        })
    };
    let mut qualifier = 0_u64;
    if ask(
        CL_KERNEL_ARG_TYPE_QUALIFIER,
        (&raw mut qualifier).cast(),
        8,
        &mut 0,
    ) != CL_SUCCESS
    {
        return None;
    }
    Some(Argument {
        address: number(CL_KERNEL_ARG_ADDRESS_QUALIFIER)?,
        access: number(CL_KERNEL_ARG_ACCESS_QUALIFIER)?,
        qualifier,
        type_name: words(CL_KERNEL_ARG_TYPE_NAME)?,
        name: words(CL_KERNEL_ARG_NAME)?,
    })
}

/// A text answer without its NUL.
fn text(ask: impl Fn(&mut [u8], &mut usize) -> cl_int) -> Option<Vec<u8>> {
    let mut size = 0;
    if ask(&mut [], &mut size) != CL_SUCCESS {
        return None;
    }
    let mut value = vec![0; size];
    if ask(&mut value, &mut size) != CL_SUCCESS {
        return None;
    }
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    value.truncate(end);
    Some(value)
}
