//! Programs: given, built and linked again as they were.

use super::super::program::ROOM;
use super::super::recipe::{Making, Step};
use super::*;

impl Remote {
    /// Makes programs: first all that were given, since others include them, then what was done to them, then what was linked.
    pub(super) fn make_programs(&self, fresh: &Self) -> Result<(), RebuildError> {
        let mut live: Vec<(u64, Arc<Program>, Making)> = {
            let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
            let copy = |(id, program): (&u64, &Arc<Program>)| {
                (*id, Arc::clone(program), lock(&program.making).clone())
            };
            programs.iter().map(copy).collect()
        };
        live.sort_unstable_by_key(|(id, ..)| *id);
        let mut shop = Workshop {
            fresh,
            live: live
                .iter()
                .map(|(id, _, making)| (*id, making.clone()))
                .collect(),
            borrowed: Vec::new(),
        };
        let given = |making: &Making| matches!(&*making.origin, Origin::Given { .. });
        for (id, _, making) in live.iter().filter(|(.., making)| given(making)) {
            shop.begin(*id, making)?;
        }
        let (given, linked): (Vec<_>, Vec<_>) = live.iter().partition(|(.., making)| given(making));
        for (id, program, making) in given {
            let facts = shop.steps(*id, making)?;
            fresh.same_kernels(program, facts)?;
        }
        for (id, program, making) in linked {
            let first = shop.begin(*id, making)?;
            let facts = shop.steps(*id, making)?.or(first);
            fresh.same_kernels(program, facts)?;
        }
        shop.clean_up()
    }

    /// Kernels keep what is known of their arguments, so a build that gave others is refused.
    fn same_kernels(&self, program: &Program, made: Option<Facts>) -> Result<(), RebuildError> {
        let known = lock(&program.facts).clone();
        let shape = |facts: &Facts| {
            let kernel =
                |kernel: &towline_wire::facts::Kernel| (kernel.name.clone(), kernel.num_args);
            let mut list: Vec<_> = facts.kernels.iter().map(kernel).collect();
            list.sort_unstable();
            list
        };
        match (known, made) {
            (Some(known), Some(made)) if shape(&known) != shape(&made) => Err(self.refused(
                "a program with the same kernels",
                CL_INVALID_KERNEL_DEFINITION,
            )),
            _ => Ok(()),
        }
    }
}

/// Makes programs on the other server, with those that they were made from.
struct Workshop<'a> {
    fresh: &'a Remote,
    live: Vec<(u64, Making)>,
    /// Programs that were only needed to make others.
    borrowed: Vec<u64>,
}

impl Workshop<'_> {
    /// Makes a program up to where its steps begin.
    fn begin(&mut self, id: u64, making: &Making) -> Result<Option<Facts>, RebuildError> {
        let created = wire::ProgramHandle(id);
        match &*making.origin {
            Origin::Given { request, body } => self.give(*request, body, created).map(|()| None),
            Origin::Linked {
                context,
                devices,
                options,
                inputs,
                status,
                ..
            } => {
                let mut programs = Vec::new();
                for (number, input) in inputs {
                    programs.push(wire::ProgramHandle(self.find(*number, input)?));
                }
                let request = wire::Link {
                    context: wire::ContextHandle(*context),
                    num_devices: devices.count(),
                    devices: devices.list(),
                    options: options.as_deref(),
                    num_programs: programs.len() as u32,
                    programs: (!programs.is_empty()).then_some(wire::List::Values(&programs)),
                    room: ROOM,
                    created,
                };
                let reply = self.fresh.link().ask("clLinkProgram", &request);
                let reply = reply.map_err(|status| self.fresh.refused("a link", status))?;
                if reply.status != *status {
                    return Err(self.fresh.refused("a link", reply.status));
                }
                let reply = wire::LinkReply::decode(&reply.body).ok();
                Ok(reply.and_then(|reply| Facts::decode(reply.facts?).ok()))
            }
            Origin::Forgotten => {
                let why = "a program was linked through more generations than are kept";
                Err(RebuildError::Unmovable(why))
            }
        }
    }

    /// Gives source, binaries, intermediate language or built-in kernels under the number `created`.
    fn give(
        &self,
        request: u16,
        body: &[u8],
        created: wire::ProgramHandle,
    ) -> Result<(), RebuildError> {
        let fresh = self.fresh;
        let what = "a program";
        if request == <wire::CreateProgramSource<'_> as Request<'_>>::ID
            && let Ok(given) = wire::CreateProgramSource::decode(body)
        {
            return fresh.send(what, &wire::CreateProgramSource { created, ..given });
        }
        if request == <wire::CreateProgramWithIL<'_> as Request<'_>>::ID
            && let Ok(given) = wire::CreateProgramWithIL::decode(body)
        {
            return fresh.send(what, &wire::CreateProgramWithIL { created, ..given });
        }
        if request == <wire::CreateProgramWithBuiltInKernels<'_> as Request<'_>>::ID
            && let Ok(given) = wire::CreateProgramWithBuiltInKernels::decode(body)
        {
            let again = wire::CreateProgramWithBuiltInKernels { created, ..given };
            return fresh.send(what, &again);
        }
        let Ok(given) = wire::CreateProgramBinary::decode(body) else {
            return Ok(());
        };
        let again = wire::CreateProgramBinary { created, ..given };
        let made = fresh.call_for("clCreateProgramWithBinary", &again);
        made.map(drop).map_err(|status| fresh.refused(what, status))
    }

    /// Does again what was done to a program; gives what the last build told of its kernels.
    fn steps(&mut self, id: u64, making: &Making) -> Result<Option<Facts>, RebuildError> {
        let fresh = self.fresh;
        let program = wire::ProgramHandle(id);
        let mut facts = None;
        for step in &making.steps {
            match &**step {
                Step::Constant { id, value } => {
                    let request = wire::SetProgramSpecializationConstant {
                        program,
                        spec_id: *id,
                        spec_size: value.len() as u64,
                        spec_value: value,
                    };
                    fresh.send("a specialization constant", &request)?;
                }
                Step::Build {
                    devices,
                    options,
                    files,
                    status,
                } => {
                    self.files(program, files.as_deref())?;
                    let request = wire::Build {
                        program,
                        num_devices: devices.count(),
                        devices: devices.list(),
                        options: options.as_deref(),
                        room: ROOM,
                    };
                    let body = self.judged("a build", "clBuildProgram", &request, *status)?;
                    let reply = wire::BuildReply::decode(&body).ok();
                    facts = reply.and_then(|reply| Facts::decode(reply.facts?).ok());
                }
                Step::Compile {
                    devices,
                    options,
                    headers,
                    files,
                    status,
                } => {
                    self.files(program, files.as_deref())?;
                    let (mut programs, mut names) = (Vec::new(), Vec::new());
                    for (number, header, name) in headers {
                        programs.push(wire::ProgramHandle(self.find_text(*number, header)?));
                        names.extend(name.iter().copied().chain([0]));
                    }
                    let request = wire::Compile {
                        program,
                        num_devices: devices.count(),
                        devices: devices.list(),
                        options: options.as_deref(),
                        num_headers: programs.len() as u32,
                        headers: (!programs.is_empty()).then_some(wire::List::Values(&programs)),
                        names_size: names.len() as u64,
                        names: &names,
                    };
                    self.judged("a compilation", "clCompileProgram", &request, *status)?;
                }
            }
        }
        Ok(facts)
    }

    /// Gives a program the files that a step took along.
    fn files(
        &self,
        program: wire::ProgramHandle,
        files: Option<&[u8]>,
    ) -> Result<(), RebuildError> {
        let Some(files) = files else { return Ok(()) };
        let request = wire::IncludeFiles {
            program,
            size: files.len() as u64,
            files,
        };
        self.fresh.send("files that a program includes", &request)
    }

    /// Asks for something whose outcome is known from the first time.
    fn judged<'a, R: Request<'a>>(
        &self,
        what: &'static str,
        call: &'static str,
        request: &R,
        expected: cl_int,
    ) -> Result<Vec<u8>, RebuildError> {
        let reply = self.fresh.link().ask(call, request);
        let reply = reply.map_err(|status| self.fresh.refused(what, status))?;
        match reply.status == expected {
            true => Ok(reply.body),
            false => Err(self.fresh.refused(what, reply.status)),
        }
    }

    /// The number of a program that was made in this way: the one that lives, or one made for the purpose.
    fn find(&mut self, number: u64, making: &Making) -> Result<u64, RebuildError> {
        if (self.live.iter()).any(|(id, live)| *id == number && live.is(making)) {
            return Ok(number);
        }
        let id = self.fresh.mint(wire::ProgramHandle::TAG);
        self.borrowed.push(id);
        self.begin(id, making)?;
        self.steps(id, making)?;
        Ok(id)
    }

    /// As [`Self::find`] for a header, of which only the text counts.
    fn find_text(&mut self, number: u64, making: &Making) -> Result<u64, RebuildError> {
        if (self.live.iter())
            .any(|(id, live)| *id == number && Arc::ptr_eq(&live.origin, &making.origin))
        {
            return Ok(number);
        }
        self.find(number, making)
    }

    fn clean_up(self) -> Result<(), RebuildError> {
        for id in self.borrowed {
            let program = wire::ProgramHandle(id);
            self.fresh
                .send("a program", &wire::ReleaseProgram { program })?;
        }
        Ok(())
    }
}
