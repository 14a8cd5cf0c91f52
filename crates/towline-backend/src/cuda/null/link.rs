//! Links of images, and what is said about images that are none.

use std::thread::ThreadId;

use super::*;

/// Where a caller wants to know what is wrong, or remarkable; what lies there is the caller's.
#[derive(Default, Clone, Copy)]
pub(super) struct Logs {
    error: Log,
    info: Log,
}

#[derive(Default, Clone, Copy)]
struct Log {
    buffer: usize,
    room: usize,
    /// Where it is told how much of it is filled.
    size: usize,
}

/// A link under way.
pub(super) struct Link {
    logs: Logs,
    lines: Vec<u8>,
    inputs: usize,
    /// Where its input came from: NVIDIA's linker (driver 580.159) crashes when another thread completes a link.
    thread: Option<ThreadId>,
    linked: Option<Box<[u8]>>,
}

impl Log {
    fn write(&self, text: &str) {
        if self.buffer == 0 || self.room == 0 {
            return;
        }
        let text = text.as_bytes();
        let text = text.get(..text.len().min(self.room - 1)).unwrap_or(text);
        let buffer = std::ptr::with_exposed_provenance_mut::<u8>(self.buffer);
        for (at, byte) in text.iter().chain(&[0]).enumerate() {
            put(buffer.wrapping_add(at), *byte);
        }
        let size = std::ptr::with_exposed_provenance_mut::<usize>(self.size);
        put(size, text.len());
    }
}

impl Logs {
    /// # Safety
    /// The contract of calls with options: as many as said.
    pub(super) unsafe fn of(
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> Self {
        let mut logs = Self::default();
        for at in 0..count as usize {
            let place = values.wrapping_add(at);
            // SAFETY: the caller's contract.
            let option = unsafe { options.wrapping_add(at).read() };
            // SAFETY: as above.
            let value = unsafe { place.read() }.expose_provenance();
            match option {
                CU_JIT_ERROR_LOG_BUFFER => logs.error.buffer = value,
                CU_JIT_INFO_LOG_BUFFER => logs.info.buffer = value,
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (logs.error.room, logs.error.size) = (value, place.expose_provenance());
                }
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    (logs.info.room, logs.info.size) = (value, place.expose_provenance());
                }
                CU_JIT_WALL_TIME => put(place.cast::<f32>(), 0.5),
                _ => {}
            }
        }
        logs
    }

    pub(super) fn say_wrong(&self, text: &str) {
        self.error.write(text);
    }

    pub(super) fn remark(&self, text: &str) {
        self.info.write(text);
    }
}

impl NullCuda {
    pub(super) fn begin_link(&self, place: *mut CUlinkState, logs: Logs) -> CUresult {
        let handle = self.fresh();
        let link = Link {
            logs,
            lines: MAGIC.to_vec(),
            inputs: 0,
            thread: None,
            linked: None,
        };
        self.lock().links.insert(handle, link);
        put(place, std::ptr::without_provenance_mut(handle));
        CUDA_SUCCESS
    }

    pub(super) fn add_to_link(&self, state: CUlinkState, code: &[u8], name: &[u8]) -> CUresult {
        let mut all = self.lock();
        let Some(link) = all.links.get_mut(&state.addr()) else {
            return CUDA_ERROR_INVALID_HANDLE;
        };
        let Some(lines) = code.strip_prefix(MAGIC) else {
            let name = String::from_utf8_lossy(name);
            link.logs.say_wrong(&format!("{name} is no null image"));
            return CUDA_ERROR_INVALID_PTX;
        };
        let end = lines.iter().position(|byte| *byte == 0);
        let lines = lines.get(..end.unwrap_or(lines.len())).unwrap_or(lines);
        link.lines.extend_from_slice(lines);
        link.inputs += 1;
        link.thread = Some(std::thread::current().id());
        CUDA_SUCCESS
    }

    pub(super) fn complete_link(
        &self,
        state: CUlinkState,
        image: *mut *mut c_void,
        size: *mut usize,
    ) -> CUresult {
        let mut all = self.lock();
        let Some(link) = all.links.get_mut(&state.addr()) else {
            return CUDA_ERROR_INVALID_HANDLE;
        };
        if link.inputs == 0 {
            link.logs.say_wrong("there is nothing to link");
            return CUDA_ERROR_INVALID_IMAGE;
        }
        if link.thread != Some(std::thread::current().id()) {
            return CUDA_ERROR_UNKNOWN;
        }
        link.logs.remark(&format!("linked {} images", link.inputs));
        let mut linked = link.lines.clone();
        linked.push(0);
        let linked = link.linked.insert(linked.into());
        put(image, linked.as_mut_ptr().cast());
        put(size, linked.len());
        CUDA_SUCCESS
    }
}

macro_rules! link_calls {
    () => {
        unsafe fn cuLinkCreate_v2(
            &self,
            count: u32,
            options: *mut CUjit_option,
            values: *mut *mut c_void,
            state: *mut CUlinkState,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            self.begin_link(state, unsafe { link::Logs::of(count, options, values) })
        }
        unsafe fn cuLinkAddData_v2(
            &self,
            state: CUlinkState,
            _type: CUjitInputType,
            data: *mut c_void,
            size: usize,
            name: *const c_char,
            _count: u32,
            _options: *mut CUjit_option,
            _values: *mut *mut c_void,
        ) -> CUresult {
            // SAFETY: the contract of the call: so many bytes.
            let code = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
            // SAFETY: as above: the name ends with a NUL.
            let name = unsafe { std::ffi::CStr::from_ptr(name) };
            self.add_to_link(state, code, name.to_bytes())
        }
        unsafe fn cuLinkComplete(
            &self,
            state: CUlinkState,
            image: *mut *mut c_void,
            size: *mut usize,
        ) -> CUresult {
            self.complete_link(state, image, size)
        }
        unsafe fn cuLinkDestroy(&self, state: CUlinkState) -> CUresult {
            match self.lock().links.remove(&state.addr()) {
                Some(_) => CUDA_SUCCESS,
                None => CUDA_ERROR_INVALID_HANDLE,
            }
        }
    };
}
pub(super) use link_calls;
