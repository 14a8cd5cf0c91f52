//! Programs: sources and binaries travel as they are, a build answers with what is known of the kernels.

use super::event::status_of;
use super::include::{self, Includes};
use super::recipe::{Devices, Origin, Step};
use super::*;

/// Room for what is known of a program's kernels, and for its binaries.
pub(super) const ROOM: u64 = 32 << 20;

/// No folder and no file, encoded.
const NO_FILES: [u8; 8] = [0; 8];

impl Remote {
    pub(super) fn create_program_source(
        &self,
        context: cl_context,
        source: &[u8],
    ) -> Result<cl_program, cl_int> {
        let created = wire::ProgramHandle(self.mint(wire::ProgramHandle::TAG));
        let context = wire::ContextHandle::from_raw(context);
        let request = wire::CreateProgramSource {
            context,
            size: source.len() as u64,
            source,
            created,
        };
        self.post(&request)?;
        self.new_program(created.0, None, Origin::given(&request));
        Ok(created.to_raw())
    }

    /// Creates a program from one binary per device; the verdicts per device come back in either case.
    pub(super) fn create_program_binary(
        &self,
        context: cl_context,
        devices: &[cl_device_id],
        binaries: &[&[u8]],
    ) -> (Vec<cl_int>, Result<cl_program, cl_int>) {
        let devices: Vec<wire::DeviceHandle> = devices
            .iter()
            .map(|device| wire::DeviceHandle::from_raw(*device))
            .collect();
        let sizes: Vec<u64> = binaries.iter().map(|binary| binary.len() as u64).collect();
        let joined = binaries.concat();
        let created = wire::ProgramHandle(self.mint(wire::ProgramHandle::TAG));
        let request = wire::CreateProgramBinary {
            context: wire::ContextHandle::from_raw(context),
            num_devices: devices.len() as u32,
            devices: wire::List::Values(&devices),
            sizes: wire::List::Values(&sizes),
            total: joined.len() as u64,
            binaries: &joined,
            created,
        };
        let reply = match self.link().ask("clCreateProgramWithBinary", &request) {
            Ok(reply) => reply,
            Err(status) => return (Vec::new(), Err(status)),
        };
        let verdicts = match wire::CreateProgramBinaryReply::decode(&reply.body) {
            Ok(reply) => reply
                .binary_status
                .map(|list| list.to_vec())
                .unwrap_or_default(),
            Err(_) => return (Vec::new(), Err(self.malformed())),
        };
        if reply.status < 0 {
            return (verdicts, Err(reply.status));
        }
        self.new_program(created.0, None, Origin::given(&request));
        (verdicts, Ok(created.to_raw()))
    }

    pub(super) fn build(
        &self,
        program: cl_program,
        devices: &[cl_device_id],
        options: Option<&[u8]>,
    ) -> cl_int {
        let Some(known) = self.program(program) else {
            return CL_INVALID_PROGRAM;
        };
        known.forget_sizes();
        let devices: Vec<wire::DeviceHandle> = devices
            .iter()
            .map(|device| wire::DeviceHandle::from_raw(*device))
            .collect();
        let text = lock(&known.making).origin.source().map(<[u8]>::to_vec);
        let includes = match self.send_includes(program, text.as_deref(), options) {
            Ok(includes) => includes,
            Err(status) => return status,
        };
        let options = includes
            .as_ref()
            .map_or(options, |found| Some(&found.options));
        let request = wire::Build {
            program: wire::ProgramHandle::from_raw(program),
            num_devices: devices.len() as u32,
            devices: (!devices.is_empty()).then_some(wire::List::Values(&devices)),
            options,
            room: ROOM,
        };
        let (answer, status) = match self.call_for("clBuildProgram", &request) {
            Ok(body) => (Some(body), CL_SUCCESS),
            Err(status) => (None, status),
        };
        // A build that fails leaves its log behind, so it is made again too. What is refused leaves nothing.
        if matches!(status, CL_SUCCESS | CL_BUILD_PROGRAM_FAILURE) {
            lock(&known.making).step(Step::Build {
                devices: Devices::new(&devices),
                options: options.map(Box::from),
                files: includes.as_ref().map(|found| found.files.as_slice().into()),
                status,
            });
        }
        let Some(body) = answer else {
            return status;
        };
        let facts = wire::BuildReply::decode(&body)
            .ok()
            .and_then(|reply| Facts::decode(reply.facts?).ok());
        let Some(facts) = facts else {
            return self.malformed();
        };
        *lock(&known.facts) = Some(Arc::new(facts));
        CL_SUCCESS
    }

    /// Sends the files that a source includes; gives what went along.
    fn send_includes(
        &self,
        program: cl_program,
        source: Option<&[u8]>,
        options: Option<&[u8]>,
    ) -> Result<Option<Includes>, cl_int> {
        let includes = source.and_then(|text| include::collect(text, options.unwrap_or_default()));
        // What an earlier build took along counts no more.
        let files = includes
            .as_ref()
            .map_or(&NO_FILES[..], |found| &found.files);
        if includes.is_some() || source.is_some_and(include::mentioned) {
            self.post(&wire::IncludeFiles {
                program: wire::ProgramHandle::from_raw(program),
                size: files.len() as u64,
                files,
            })?;
        }
        Ok(includes)
    }

    pub(super) fn set_constant(&self, program: cl_program, id: cl_uint, value: &[u8]) -> cl_int {
        let Some(known) = self.program(program) else {
            return CL_INVALID_PROGRAM;
        };
        let request = wire::SetProgramSpecializationConstant {
            program: wire::ProgramHandle::from_raw(program),
            spec_id: id,
            spec_size: value.len() as u64,
            spec_value: value,
        };
        // The device's verdict reaches this call: a failure comes before the answer to what is asked behind it.
        let earlier = self.link().state().failures.remove(&0);
        let answered = self.post(&request).and_then(|()| {
            let behind = wire::Ping { token: 0 };
            self.call_for("clSetProgramSpecializationConstant", &behind)
        });
        let taken = answered.and_then(|_| {
            let mut state = self.link().state();
            let refused = state.failures.remove(&0);
            state.failures.extend(earlier.map(|status| (0, status)));
            refused.map_or(Ok(()), Err)
        });
        if taken.is_ok() {
            lock(&known.making).step(Step::Constant {
                id,
                value: value.into(),
            });
        }
        status_of(taken)
    }

    pub(super) fn compile(
        &self,
        program: cl_program,
        devices: &[cl_device_id],
        options: Option<&[u8]>,
        headers: &[(cl_program, &[u8])],
    ) -> cl_int {
        let Some(known) = self.program(program) else {
            return CL_INVALID_PROGRAM;
        };
        known.forget_sizes();
        let devices: Vec<wire::DeviceHandle> = devices
            .iter()
            .map(|device| wire::DeviceHandle::from_raw(*device))
            .collect();
        let programs: Vec<wire::ProgramHandle> = headers
            .iter()
            .map(|(program, _)| wire::ProgramHandle::from_raw(*program))
            .collect();
        let names: Vec<u8> = headers
            .iter()
            .flat_map(|(_, name)| name.iter().copied().chain([0]))
            .collect();
        let mut text = Vec::new();
        for with in headers.iter().map(|(header, _)| *header).chain([program]) {
            let source = self.program(with);
            let source = source
                .as_ref()
                .map(|known| lock(&known.making).origin.clone());
            text.extend_from_slice(
                source
                    .as_ref()
                    .and_then(|origin| origin.source())
                    .unwrap_or_default(),
            );
            text.push(b'\n');
        }
        let includes = match self.send_includes(program, Some(&text), options) {
            Ok(includes) => includes,
            Err(status) => return status,
        };
        let options = includes
            .as_ref()
            .map_or(options, |found| Some(&found.options));
        let request = wire::Compile {
            program: wire::ProgramHandle::from_raw(program),
            num_devices: devices.len() as u32,
            devices: (!devices.is_empty()).then_some(wire::List::Values(&devices)),
            options,
            num_headers: programs.len() as u32,
            headers: (!programs.is_empty()).then_some(wire::List::Values(&programs)),
            names_size: names.len() as u64,
            names: &names,
        };
        let status = status_of(self.call_for("clCompileProgram", &request).map(drop));
        if matches!(status, CL_SUCCESS | CL_COMPILE_PROGRAM_FAILURE) {
            let headers = programs
                .iter()
                .zip(headers)
                .filter_map(|(id, (header, name))| {
                    let making = lock(&self.program(*header)?.making).text();
                    Some((id.0, making, Box::from(*name)))
                });
            let step = Step::Compile {
                devices: Devices::new(&devices),
                options: options.map(Box::from),
                headers: headers.collect(),
                files: includes.as_ref().map(|found| found.files.as_slice().into()),
                status,
            };
            lock(&known.making).step(step);
        }
        status
    }

    pub(super) fn link_programs(
        &self,
        context: cl_context,
        devices: &[cl_device_id],
        options: Option<&[u8]>,
        programs: &[cl_program],
    ) -> (cl_program, cl_int) {
        let devices: Vec<wire::DeviceHandle> = devices
            .iter()
            .map(|device| wire::DeviceHandle::from_raw(*device))
            .collect();
        let programs: Vec<wire::ProgramHandle> = programs
            .iter()
            .map(|program| wire::ProgramHandle::from_raw(*program))
            .collect();
        let created = wire::ProgramHandle(self.mint(wire::ProgramHandle::TAG));
        let request = wire::Link {
            context: wire::ContextHandle::from_raw(context),
            num_devices: devices.len() as u32,
            devices: (!devices.is_empty()).then_some(wire::List::Values(&devices)),
            options,
            num_programs: programs.len() as u32,
            programs: (!programs.is_empty()).then_some(wire::List::Values(&programs)),
            room: ROOM,
            created,
        };
        let reply = match self.link().ask("clLinkProgram", &request) {
            Ok(reply) => reply,
            Err(status) => return (std::ptr::null_mut(), status),
        };
        let Ok(decoded) = wire::LinkReply::decode(&reply.body) else {
            return (std::ptr::null_mut(), self.malformed());
        };
        let facts = decoded
            .facts
            .and_then(|bytes| Facts::decode(bytes).ok())
            .map(Arc::new);
        // A failed link may leave a program, whose log says why; other failures leave none.
        let leaves = reply.status == CL_LINK_PROGRAM_FAILURE && decoded.facts.is_some();
        if reply.status < 0 && !leaves {
            let _ = self.post(&wire::ReleaseProgram { program: created });
            return (std::ptr::null_mut(), reply.status);
        }
        let inputs = programs.iter().filter_map(|id| {
            let known = self.program(id.to_raw())?;
            let making = lock(&known.making).clone();
            Some((id.0, making))
        });
        let origin = Origin::linked(
            request.context.0,
            Devices::new(&devices),
            options.map(Box::from),
            inputs.collect(),
            reply.status,
        );
        self.new_program(created.0, facts, origin);
        (created.to_raw(), reply.status)
    }

    pub(super) fn release_program(&self, program: cl_program) -> cl_int {
        let id = program.addr() as u64;
        if self
            .programs
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id)
            .is_none()
        {
            return CL_INVALID_PROGRAM;
        }
        status_of(self.post(&wire::ReleaseProgram {
            program: wire::ProgramHandle(id),
        }))
    }

    /// What is known of a program's kernels; asks for it once where no build of this session told.
    pub(super) fn facts_of(&self, program: cl_program) -> Result<Arc<Facts>, cl_int> {
        let known = self.program(program).ok_or(CL_INVALID_PROGRAM)?;
        if let Some(facts) = lock(&known.facts).clone() {
            return Ok(facts);
        }
        let request = wire::ProgramFacts {
            program: wire::ProgramHandle::from_raw(program),
            room: ROOM,
        };
        let body = self.call_for("clCreateKernel", &request)?;
        let reply = wire::ProgramFactsReply::decode(&body).map_err(|_| self.malformed())?;
        let facts = Facts::decode(reply.facts.unwrap_or_default()).map_err(|_| self.malformed())?;
        if facts.kernels.is_empty() {
            return Err(CL_INVALID_PROGRAM_EXECUTABLE);
        }
        let facts = Arc::new(facts);
        *lock(&known.facts) = Some(Arc::clone(&facts));
        Ok(facts)
    }

    /// The program's binaries, one per device.
    pub(super) fn binaries(&self, program: cl_program) -> Result<Vec<Vec<u8>>, cl_int> {
        let request = wire::ProgramBinaries {
            program: wire::ProgramHandle::from_raw(program),
            num_devices: 0,
            room: ROOM,
        };
        let body = self.call_for("clGetProgramInfo", &request)?;
        let reply = wire::ProgramBinariesReply::decode(&body).map_err(|_| self.malformed())?;
        let mut rest = reply.binaries.unwrap_or_default();
        let mut parts = Vec::new();
        for size in reply.sizes.iter().flat_map(|sizes| sizes.iter()) {
            let (part, tail) = rest
                .split_at_checked(size as usize)
                .ok_or_else(|| self.malformed())?;
            parts.push(part.to_vec());
            rest = tail;
        }
        let known = self.program(program).ok_or(CL_INVALID_PROGRAM)?;
        if !known.fit(&parts) {
            // The application's memory is as large as it was told.
            log::warn!("binaries of a program are larger than CL_PROGRAM_BINARY_SIZES has said");
            return Err(CL_INVALID_VALUE);
        }
        Ok(parts)
    }
}
