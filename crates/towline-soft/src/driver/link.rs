//! Links of device code. PTX is kept as it came and put together when the image is loaded; what a link gives is its modules in one text,
//! checked.
#![allow(
    unsafe_code,
    reason = "logs are written to where the caller wants them"
)]

use std::ffi::{c_char, c_void};
use std::time::Instant;

use towline_backend::cuda::*;
use towline_ptx::ptx::{self, Module};

use super::modules::status;
use super::{SoftCuda, fresh};
use crate::image::{LoadError, check_text, text_of};
use crate::messages::shown;

/// Most bytes of the images of a link.
const TEXT_LIMIT: usize = 1 << 30;

/// Where a caller wants to know what is wrong, or remarkable. What lies there is the caller's, as long as what it was given for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Logs {
    error: Log,
    info: Log,
    /// Where the milliseconds go that it took.
    wall: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Log {
    buffer: usize,
    room: usize,
    /// Where it is told how much of it is filled.
    filled: usize,
}

/// A link under way.
#[derive(Debug, Default)]
pub(super) struct Link {
    logs: Logs,
    /// Names and texts of what was added.
    parts: Vec<(String, String)>,
    /// Names of libraries. Nothing is taken from them: what programs need of CUDA's own the device has.
    libraries: Vec<String>,
    /// What it gave; the caller may look at it until the link ends.
    linked: Vec<Box<[u8]>>,
}

fn place<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

impl Log {
    fn tell(&self, text: &str) {
        if self.buffer == 0 || self.room == 0 {
            return;
        }
        let mut end = text.len().min(self.room - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let buffer: *mut u8 = place(self.buffer);
        for (index, byte) in text.bytes().take(end).chain([0]).enumerate() {
            // SAFETY: the contract of the options: the buffer has so much room.
            unsafe { buffer.wrapping_add(index).write(byte) };
        }
        if self.filled != 0 {
            // SAFETY: the contract of the options: the value of the size is told how much of it is filled.
            unsafe { place::<usize>(self.filled).write(end) };
        }
    }
}

impl Logs {
    /// # Safety
    ///
    /// As many options and values as `count` says; the values stay as long as what the logs are for.
    pub(super) unsafe fn of(
        count: u32,
        options: *const CUjit_option,
        values: *mut *mut c_void,
    ) -> Self {
        let mut logs = Self::default();
        for index in 0..count as usize {
            let value_at = values.wrapping_add(index);
            // SAFETY: there are so many.
            let option = unsafe { options.wrapping_add(index).read() };
            // SAFETY: as above.
            let value = unsafe { value_at.read() }.expose_provenance();
            let filled = value_at.expose_provenance();
            match option {
                CU_JIT_ERROR_LOG_BUFFER => logs.error.buffer = value,
                CU_JIT_INFO_LOG_BUFFER => logs.info.buffer = value,
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (logs.error.room, logs.error.filled) = (value, filled);
                }
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    (logs.info.room, logs.info.filled) = (value, filled);
                }
                CU_JIT_WALL_TIME => logs.wall = filled,
                _ => {}
            }
        }
        logs
    }

    pub(super) fn say_wrong(&self, text: &str) {
        self.error.tell(text);
    }

    pub(super) fn remark(&self, text: &str) {
        self.info.tell(text);
    }

    /// How long it has taken since then.
    pub(super) fn took(&self, since: Instant) {
        if self.wall != 0 {
            let milliseconds = since.elapsed().as_secs_f32() * 1000.0;
            // SAFETY: the contract of the option: its value has room for a pointer, and is told the time.
            unsafe { place::<f32>(self.wall).write(milliseconds) };
        }
    }
}

/// Why a link fails: the status, and what the program is told, in a line and as the compiler's log.
struct Wrong {
    status: CUresult,
    message: String,
    log: String,
}

impl Wrong {
    fn new(status: CUresult, message: String) -> Self {
        let log = format!("error   : {message}\n");
        Self {
            status,
            message,
            log,
        }
    }
}

impl Link {
    fn text(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().map(|(_, text)| text.as_str()).collect();
        ptx::join(&texts)
    }
}

impl SoftCuda {
    pub(super) fn begin_link(&self, logs: Logs) -> Result<usize, CUresult> {
        self.context()?;
        let number = fresh();
        let link = Link {
            logs,
            ..Link::default()
        };
        self.lock().links.insert(number, link);
        Ok(number)
    }

    /// Does something with a link. What goes wrong is logged, and told to whom the link belongs.
    fn in_link<T>(
        &self,
        number: usize,
        go: impl FnOnce(&mut Link) -> Result<T, Wrong>,
    ) -> Result<T, CUresult> {
        let began = Instant::now();
        // Taken out, so that reading a long text holds up nobody else. The caller lets the calls of a link take turns.
        let taken = self.lock().links.remove(&number);
        let mut link = taken.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let outcome = go(&mut link);
        let logs = link.logs;
        self.lock().links.insert(number, link);
        logs.took(began);
        outcome.map_err(|wrong| {
            self.tell_unloadable("link device code", &wrong.message);
            logs.say_wrong(&wrong.log);
            wrong.status
        })
    }

    pub(super) fn add_to_link(
        &self,
        number: usize,
        kind: CUjitInputType,
        code: &[u8],
        name: &str,
    ) -> Result<(), CUresult> {
        let device = self.capability();
        self.in_link(number, |link| {
            let wrong = |error: LoadError| Wrong {
                status: status(&error),
                message: format!("{}: {error}", shown(name)),
                log: error.log(&shown(name)),
            };
            let text = match kind {
                CU_JIT_INPUT_PTX | CU_JIT_INPUT_FATBINARY => text_of(code, device).map_err(wrong)?,
                CU_JIT_INPUT_CUBIN => return Err(wrong(LoadError::MachineCode(device))),
                CU_JIT_INPUT_LIBRARY => {
                    // CUDA's device runtime, most likely. Whether something is missing turns out in the end.
                    link.libraries.push(name.to_owned());
                    return Ok(());
                }
                _ => {
                    let message = "is no PTX and no fat binary, and nothing else is linked for devices in software";
                    return Err(Wrong::new(CUDA_ERROR_NOT_SUPPORTED, format!("{} {message}", shown(name))));
                }
            };
            Module::parse(&text).map_err(|error| wrong(LoadError::Image(error.into())))?;
            let held: usize = link.parts.iter().map(|(_, text)| text.len()).sum();
            if held.saturating_add(text.len()) > TEXT_LIMIT {
                let message = format!("the link has more than {TEXT_LIMIT} bytes of PTX");
                return Err(Wrong::new(CUDA_ERROR_OUT_OF_MEMORY, message));
            }
            link.parts.push((name.to_owned(), text));
            Ok(())
        })
    }

    /// Gives the image: where it is, and how many bytes it has, a NUL included.
    pub(super) fn complete_link(&self, number: usize) -> Result<(*mut c_void, usize), CUresult> {
        self.in_link(number, |link| {
            if link.parts.is_empty() {
                return Err(Wrong::new(CUDA_ERROR_INVALID_IMAGE, "there is nothing to link".into()));
            }
            let text = link.text();
            check_text(text.clone()).map_err(|error| {
                let (mut message, mut log) = (error.to_string(), error.log("linked ptx"));
                if !link.libraries.is_empty() {
                    let names = shown(&link.libraries.join(", "));
                    let hint = format!("nothing was taken from {names}, since devices in software read no libraries");
                    message += &format!("; {hint}");
                    log += &format!("info    : {hint}\n");
                }
                Wrong {
                    status: status(&error),
                    message,
                    log,
                }
            })?;
            let names: Vec<&str> = link.parts.iter().map(|(name, _)| name.as_str()).collect();
            link.logs.remark(&format!("linked {}", names.join(", ")));
            let mut bytes = text.into_bytes();
            bytes.push(0);
            link.linked.push(bytes.into());
            let image = link.linked.last_mut().map_or(&mut [][..], |image| image);
            Ok((image.as_mut_ptr().cast(), image.len()))
        })
    }

    pub(super) fn end_link(&self, number: usize) -> Result<(), CUresult> {
        let ended = self.lock().links.remove(&number);
        ended.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}

/// A name for messages.
pub(super) fn name_of_part(name: *const c_char) -> String {
    if name.is_null() {
        return "device code".into();
    }
    // SAFETY: the contract of the call: the name ends with a NUL.
    let name = unsafe { std::ffi::CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

/// The methods of the contract: an `impl` cannot be in two files.
macro_rules! link_calls {
    () => {
        unsafe fn cuLinkCreate_v2(
            &self,
            count: u32,
            options: *mut CUjit_option,
            values: *mut *mut c_void,
            state: *mut CUlinkState,
        ) -> CUresult {
            // SAFETY: the contract of the call: as many as it says, and there as long as the link.
            let logs = unsafe { link::Logs::of(count, options, values) };
            answer(state, self.begin_link(logs).map(handle))
        }
        unsafe fn cuLinkAddData_v2(
            &self,
            state: CUlinkState,
            kind: CUjitInputType,
            data: *mut c_void,
            size: usize,
            name: *const c_char,
            _count: u32,
            _options: *mut CUjit_option,
            _values: *mut *mut c_void,
        ) -> CUresult {
            if data.is_null() || size == 0 {
                return CUDA_ERROR_INVALID_VALUE;
            }
            let code = bytes_of(data.cast(), size);
            let name = link::name_of_part(name);
            status(self.add_to_link(state.addr(), kind, code, &name))
        }
        unsafe fn cuLinkComplete(
            &self,
            state: CUlinkState,
            image: *mut *mut c_void,
            size: *mut usize,
        ) -> CUresult {
            status(self.complete_link(state.addr()).map(|(at, len)| {
                put(image, at);
                put(size, len);
            }))
        }
        unsafe fn cuLinkDestroy(&self, state: CUlinkState) -> CUresult {
            status(self.end_link(state.addr()))
        }
    };
}
pub(super) use link_calls;
