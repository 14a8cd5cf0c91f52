//! Builds, compilations and links: on every provider that their devices are behind, at the same time.

use super::*;

/// Runs `work` for every part of the list, the first on this thread and each further one on a thread of its own.
fn on_parts(
    parts: &[usize],
    work: impl Fn(usize) -> Result<(), cl_int> + Sync,
) -> Vec<(usize, Result<(), cl_int>)> {
    let Some((&first, rest)) = parts.split_first() else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = rest
            .iter()
            .map(|&part| {
                let work = &work;
                let thread = towline_client::threads::named("towline-build");
                (part, thread.spawn_scoped(scope, move || work(part)))
            })
            .collect();
        let mut results = vec![(first, work(first))];
        for (part, other) in others {
            let outcome = match other {
                Ok(thread) => thread.join().unwrap_or(Err(CL_OUT_OF_HOST_MEMORY)),
                // Without a thread it goes one after the other.
                Err(_) => work(part),
            };
            results.push((part, outcome));
        }
        results
    })
}

/// What a build does.
pub(super) enum Step {
    Build,
    Compile(Vec<(Ref<Program>, CString)>),
}

/// A build, ready to run.
pub(super) struct Job {
    pub(super) program: Ref<Program>,
    pub(super) devices: Vec<Ref<Device>>,
    pub(super) options: CString,
    pub(super) step: Step,
}

impl Job {
    fn run(&self) -> Result<(), cl_int> {
        let program = &self.program;
        program.forget_build(&self.devices, &self.options);
        let groups = by_part(&program.context, &self.devices);
        let parts: Vec<usize> = (0..groups.len())
            .filter(|&part| !groups[part].is_empty())
            .collect();
        let results = on_parts(&parts, |part| self.on_part(part, &groups[part]));
        let mut build = program.build();
        build.executable.retain(|part| !parts.contains(part));
        let mut outcome = Ok(());
        for (part, result) in results {
            match result {
                Ok(()) if matches!(self.step, Step::Build) => build.executable.push(part),
                Ok(()) => {}
                Err(status) => outcome = outcome.and(Err(status)),
            }
        }
        build.executable.sort_unstable();
        outcome
    }

    fn on_part(&self, part: usize, devices: &[Ref<Device>]) -> Result<(), cl_int> {
        let program = &self.program;
        let raw = program.raw_on(part).ok_or(CL_INVALID_DEVICE)?;
        let api = &program.context.parts[part].provider.api;
        let raws = raw_devices(devices);
        let count = raws.len() as cl_uint;
        check(match &self.step {
            Step::Build => provider!(
                api,
                clBuildProgram(
                    raw,
                    count,
                    raws.as_ptr(),
                    self.options.as_ptr(),
                    None,
                    std::ptr::null_mut()
                )
            ),
            Step::Compile(headers) => {
                let programs = headers
                    .iter()
                    .map(|(header, _)| header.raw_on(part).ok_or(CL_INVALID_PROGRAM))
                    .collect::<Result<Vec<_>, _>>()?;
                let mut names: Vec<*const c_char> =
                    headers.iter().map(|(_, name)| name.as_ptr()).collect();
                let (list, name_list) = if headers.is_empty() {
                    (std::ptr::null(), std::ptr::null_mut())
                } else {
                    (programs.as_ptr(), names.as_mut_ptr())
                };
                provider!(
                    api,
                    clCompileProgram(
                        raw,
                        count,
                        raws.as_ptr(),
                        self.options.as_ptr(),
                        programs.len() as cl_uint,
                        list,
                        name_list,
                        None,
                        std::ptr::null_mut()
                    )
                )
            }
        })
    }

    /// Runs now, or with a callback on a thread of its own.
    pub(super) fn start(self, callback: Option<(ProgramFn, Shared<c_void>)>) -> Result<(), cl_int> {
        if self.program.kernels.load(Ordering::Acquire) > 0 {
            return Err(CL_INVALID_OPERATION);
        }
        let building = Building::begin(&self.program)?;
        let Some((function, user_data)) = callback else {
            return self.run();
        };
        let thread = towline_client::threads::named("towline-build");
        let started = thread.spawn(move || {
            // The outcome is found in the build's status.
            let _ = self.run();
            drop(building);
            let handle = Shared(self.program.handle());
            notify(function, handle, user_data, Some(self.program));
        });
        started.map(drop).map_err(|_| CL_OUT_OF_HOST_MEMORY)
    }
}

/// The build of a program that is under way, of which there is one at most. It is over when this is dropped, however it went.
pub(super) struct Building(Ref<Program>);

impl Building {
    pub(super) fn begin(program: &Ref<Program>) -> Result<Self, cl_int> {
        match program.building.swap(true, Ordering::AcqRel) {
            true => Err(CL_INVALID_OPERATION),
            false => Ok(Self(program.clone())),
        }
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        self.0.building.store(false, Ordering::Release);
    }
}

/// The function that a build is to call at its end.
pub(super) fn callback(
    function: Option<ProgramFn>,
    user_data: *mut c_void,
) -> Result<Option<(ProgramFn, Shared<c_void>)>, cl_int> {
    match function {
        Some(function) => Ok(Some((function, Shared(user_data)))),
        None if user_data.is_null() => Ok(None),
        None => Err(CL_INVALID_VALUE),
    }
}

/// Links compiled programs on the parts of their devices into `program`.
pub(super) fn link(
    program: &Ref<Program>,
    inputs: &[Ref<Program>],
    options: &CStr,
) -> Result<(), cl_int> {
    let mut parts: Vec<usize> = (0..program.part_devices.len())
        .filter(|&part| !program.part_devices[part].is_empty())
        .collect();
    // Devices that no input was compiled for get no executable, and that is no error.
    let is_compiled = |part: &usize| inputs.iter().any(|input| !input.is_source_only(*part));
    if parts.iter().any(is_compiled) {
        parts.retain(is_compiled);
    }
    for &part in &parts {
        program.forget_build(&program.part_devices[part], options);
    }
    let results = on_parts(&parts, |part| {
        let raws = raw_devices(&program.part_devices[part]);
        let inputs = inputs
            .iter()
            .map(|input| input.raw_on(part).ok_or(CL_INVALID_PROGRAM))
            .collect::<Result<Vec<_>, _>>()?;
        let owner = &program.context.parts[part];
        let mut status = CL_SUCCESS;
        let raw = provider!(
            owner.provider.api,
            clLinkProgram(
                owner.raw.0,
                raws.len() as cl_uint,
                raws.as_ptr(),
                options.as_ptr(),
                inputs.len() as cl_uint,
                inputs.as_ptr(),
                None,
                std::ptr::null_mut(),
                &raw mut status
            )
        );
        // A failed link may still give a program, which holds the log.
        if !raw.is_null() {
            let _ = program.raws[part].set(Shared(raw));
        }
        check(status)
    });
    let mut build = program.build();
    let mut outcome = Ok(());
    for (part, result) in results {
        match result {
            Ok(()) => build.executable.push(part),
            Err(status) => outcome = outcome.and(Err(status)),
        }
    }
    build.executable.sort_unstable();
    outcome
}
