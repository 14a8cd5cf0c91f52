//! Copies and fills. Host memory never travels as a pointer: what a copy is made of is the session's transfers.

mod batch;
mod boxes;
mod calls;
mod capture;
mod legacy;
mod relay;
mod structures;

use std::sync::atomic::Ordering;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{DeviceBox, Source};
use towline_client::raw::HostPtr;

use crate::driver::{Driver, lock, read};
use crate::memory::Kind;
use crate::thread::default_stream;
pub(crate) use batch::cover;
use boxes::{BoxCopy, Memory};
use relay::End;

/// Bytes up to which a copy out of pinned memory, whose call waits for it, is rather captured at once.
const CAPTURED: usize = 64 << 10;

/// How a call relates to its stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The data is where it belongs when the call returns, as far as the application can see.
    Sync,
    /// The data moves when the stream comes to it; what is pageable has been captured when the call returns.
    Async,
    /// As `Async`, and the source may change as soon as the call returns, whatever memory it is in.
    Captured,
}

impl Driver {
    fn to_device(
        &self,
        call: &'static str,
        address: u64,
        source: HostPtr,
        size: usize,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        let place = self.enqueue_on(stream)?;
        if size == 0 {
            return Ok(());
        }
        if source.is_null() || address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.expect_within(address, size)?;
        let from = source.addr() as u64;
        if let Some(there) = self.on_device_too(from, size, address)? {
            return self.between(address, there, size, stream, mode);
        }
        let (acting, stream, captured) = place;
        if let Some(captured) = captured {
            let host = Memory::Host(source);
            let copy = BoxCopy::run((Memory::Device(address), 0), (host, 0), size);
            return self.capture_copy(&acting, &captured, &copy, mode);
        }
        if let Some(there) = self.beyond(&acting, stream, address)? {
            self.settle_pin(source.addr(), size)?;
            return there.write(call, address, source, size);
        }
        let posting = acting.context.mirrored.posting();
        self.before_use(&acting, stream, address, size)?;
        self.before_pointers(&acting, source, size)?;
        if mode != Mode::Captured
            && let Some(pin) = self.pin_for(&acting, source.addr(), size)
            && (mode == Mode::Async || size > CAPTURED || !pin.0.is_quiet())
        {
            acting.write_from(stream, address, &pin, size)?;
            drop(posting);
            return match mode {
                Mode::Sync => acting.synchronise(stream),
                _ => Ok(()),
            };
        }
        self.settle_pin(source.addr(), size)?;
        let captured =
            mode != Mode::Async || !read(&self.memory).is_pinned(source.addr() as u64, size);
        let state = self.state_of_source(captured);
        let (session, actor) = (acting.session, acting.actor);
        session.write(actor, call, stream.0, address, source, size, state)?;
        let is_noticed = self.is_noticed(Some(address), None);
        match mode {
            // The driver tells at once of memory that there is not.
            Mode::Sync if is_noticed || read(&self.memory).find(address).is_none() => {
                acting.touch(stream);
                drop(posting);
                return acting.synchronise(stream);
            }
            Mode::Sync => return self.note_written(&acting, stream),
            _ if captured && !is_noticed => acting.touch_written(stream),
            _ => acting.touch(stream),
        };
        Ok(())
    }

    /// Pageable memory may change as soon as the call returns, pinned memory only once the stream has been there, but for what functions
    /// before the copy write.
    fn state_of_source(&self, fleeting: bool) -> Source {
        match (fleeting, self.functions_due.load(Ordering::Acquire)) {
            (true, _) => Source::Fleeting,
            (false, 0) => Source::Still,
            (false, _) => Source::Awaited,
        }
    }

    fn to_host(
        &self,
        call: &'static str,
        target: HostPtr,
        address: u64,
        size: usize,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        let place = self.enqueue_on(stream)?;
        if size == 0 {
            return Ok(());
        }
        if target.is_null() || address == 0 || self.is_only_read(target.addr() as u64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.expect_within(address, size)?;
        let to = target.addr() as u64;
        if let Some(there) = self.on_device_too(to, size, address)? {
            return self.between(there, address, size, stream, mode);
        }
        let (acting, stream, captured) = place;
        if let Some(captured) = captured {
            let host = Memory::Host(target);
            let copy = BoxCopy::run((host, 0), (Memory::Device(address), 0), size);
            return self.capture_copy(&acting, &captured, &copy, mode);
        }
        if let Some(there) = self.beyond(&acting, stream, address)? {
            return there.read(call, target, address, size);
        }
        self.before_use(&acting, stream, address, size)?;
        if let Some(pin) = self.pin_for(&acting, target.addr(), size) {
            acting.read_into(stream, address, &pin, size)?;
            return match mode {
                Mode::Sync => acting.synchronise(stream),
                _ => Ok(()),
            };
        }
        // As the driver: a copy into pageable memory returns when it is done.
        let wait = mode == Mode::Sync || !read(&self.memory).is_pinned(target.addr() as u64, size);
        if wait {
            acting.show_kernels()?;
        }
        let posted = acting.posted(stream);
        let (session, actor) = (acting.session, acting.actor);
        session.read(actor, call, stream.0, address, target, size, wait)?;
        if wait {
            acting.note_done(stream.0, posted);
            acting.show_twins()?;
            acting.healthy(stream)?;
        } else {
            acting.touch(stream);
        }
        Ok(())
    }

    /// Whether the application has registered memory for devices to read alone, which no copy is to either (seen with driver 580.159).
    fn is_only_read(&self, address: u64) -> bool {
        let ranges = read(&self.memory);
        let found = ranges.find(address).map(|(_, range)| range.kind);
        matches!(found, Some(Kind::Registered(flags)) if flags & CU_MEMHOSTREGISTER_READ_ONLY != 0)
    }

    /// Whether any address that a call takes for the device's is of pinned or registered memory that only the host has so far. To the
    /// driver it is the device's too.
    fn are_hosts(&self, addresses: &[u64]) -> bool {
        let is_pinned = {
            let ranges = read(&self.memory);
            addresses
                .iter()
                .any(|address| ranges.is_pinned(*address, 1))
        };
        is_pinned && addresses.iter().any(|address| self.is_host(*address))
    }

    pub(crate) fn is_host(&self, address: u64) -> bool {
        read(&self.memory).is_pinned(address, 1) && !self.is_both(address)
    }

    /// Refuses a copy that leaves its memory, which would have as much of the host's side be read or written, and one of memory that has been
    /// freed, which the server may still have.
    fn expect_within(&self, address: u64, size: usize) -> Result<(), CUresult> {
        let ranges = read(&self.memory);
        let is_known = ranges.find(address).is_some();
        let may_be = match is_known {
            true => ranges.may_hold(address, size as u64),
            false => !lock(&self.kept_memory).has(address),
        };
        match may_be && address.checked_add(size as u64).is_some() {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// A copy of which one side, or both, host and device have: on the device.
    fn between(
        &self,
        target: u64,
        source: u64,
        size: usize,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        self.on_device(target, source, size, stream)?;
        if mode == Mode::Async {
            return Ok(());
        }
        let (acting, stream) = self.on(stream)?;
        acting.synchronise(stream)
    }

    fn on_device(
        &self,
        target: u64,
        source: u64,
        size: usize,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        let (acting, stream, captured) = self.enqueue_on(stream)?;
        if size == 0 {
            return Ok(());
        }
        if target == 0 || source == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.expect_within(target, size)?;
        self.expect_within(source, size)?;
        self.expect_on_device(target)?;
        self.expect_on_device(source)?;
        if let Some(captured) = captured {
            let (to, from) = (Memory::Device(target), Memory::Device(source));
            let copy = BoxCopy::run((to, 0), (from, 0), size);
            return self.capture_copy(&acting, &captured, &copy, Mode::Async);
        }
        let _posting = acting.context.mirrored.posting();
        self.before_use(&acting, stream, target, size)?;
        self.before_use(&acting, stream, source, size)?;
        let homes = (self.home(&acting, target), self.home(&acting, source));
        if homes != (acting.context.number, acting.context.number) {
            let [to, from] = [(homes.0, target), (homes.1, source)].map(|(context, address)| End {
                context,
                place: DeviceBox::bytes(address, size),
            });
            if self.apart(&acting, &[to.context, from.context])? {
                return self.relay(&acting, stream, to, from, [size, 1, 1]);
            }
        }
        acting.post(&wire::Copy {
            stream,
            destination: target,
            destination_context: wire::ContextHandle(0),
            source,
            source_context: wire::ContextHandle(0),
            size: size as u64,
        })?;
        acting.touch(stream);
        Ok(())
    }

    /// A copy whose direction the addresses tell.
    fn anywhere(
        &self,
        call: &'static str,
        target: u64,
        source: u64,
        size: usize,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        let (acting, handle, captured) = self.enqueue_on(stream)?;
        if size == 0 {
            return Ok(());
        }
        self.expect_within(target, size)?;
        self.expect_within(source, size)?;
        let (to_device, from_device) = {
            let ranges = read(&self.memory);
            let both = |address| ranges.is_device(address) || self.is_both(address);
            (both(target), both(source))
        };
        // Memory of the device that has been freed is none of the host's.
        let is_none = |address: u64| address == 0 || self.addresses.is_held(address);
        if !to_device && is_none(target) || !from_device && is_none(source) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the application's contract of the copy: an address that is not the device's is valid for it.
        let [to, from] = [target, source].map(|address| unsafe { HostPtr::at(address as usize) });
        match (to_device, from_device) {
            (true, true) => {
                self.on_device(target, source, size, stream)?;
                let is_noticed = match mode {
                    Mode::Sync => self.is_noticed(Some(target), Some(source)),
                    Mode::Captured => self.is_noticed(None, Some(source)),
                    Mode::Async => false,
                };
                match is_noticed {
                    true => acting.synchronise(handle),
                    false => Ok(()),
                }
            }
            (true, false) => self.to_device(call, target, from, size, stream, mode),
            (false, true) => self.to_host(call, to, source, size, stream, mode),
            (false, false) if self.is_only_read(target) => Err(CUDA_ERROR_INVALID_VALUE),
            (false, false) => {
                if let Some(captured) = captured {
                    let (to, from) = (Memory::Host(to), Memory::Host(from));
                    let copy = BoxCopy::run((to, 0), (from, 0), size);
                    return self.capture_copy(&acting, &captured, &copy, mode);
                }
                acting.synchronise(handle)?;
                to.copy_from(from, size);
                Ok(())
            }
        }
    }

    /// The device's address of what was passed as host memory beside `other`, which must be the device's. Addresses are unified: the device's
    /// own memory is taken for the host's too (seen with driver 580.159), and where freed device memory was lies nothing of this process.
    fn on_device_too(
        &self,
        address: u64,
        size: usize,
        other: u64,
    ) -> Result<Option<u64>, CUresult> {
        if let Some(there) = self.device_side(address, size)? {
            return Ok(Some(there));
        }
        let ranges = read(&self.memory);
        match ranges.is_device(address) {
            true if ranges.is_device(other) => Ok(Some(address)),
            false if !self.addresses.is_held(address) => Ok(None),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether the host notices, behind a copy on the device, that it is still to be done: it may look at what is written, and change what is
    /// read where it is.
    fn is_noticed(&self, target: Option<u64>, source: Option<u64>) -> bool {
        let is_twin = |address| {
            let ranges = read(&self.memory);
            ranges
                .find(address)
                .is_some_and(|(_, range)| range.kind == Kind::Twin)
        };
        let is_written =
            |address| self.is_both(address) || is_twin(address) || self.are_hosts(&[address]);
        target.is_some_and(is_written) || source.is_some_and(|address| self.is_reached(address))
    }

    /// Behind a call that the host need not wait after otherwise.
    fn settle_both(&self, target: u64, source: Option<u64>) -> Result<(), CUresult> {
        if !self.is_noticed(Some(target), source) {
            return Ok(());
        }
        let (acting, stream) = self.on(default_stream())?;
        acting.synchronise(stream)
    }

    /// As [`Self::fill`] on the default stream, for a call that waits where the host has the memory too.
    fn fill_now(
        &self,
        address: u64,
        pitch: usize,
        value: u32,
        element_size: u32,
        width: usize,
        height: usize,
    ) -> Result<(), CUresult> {
        let stream = default_stream();
        self.fill(address, pitch, value, element_size, width, height, stream)?;
        self.settle_both(address, None)
    }

    fn fill(
        &self,
        address: u64,
        pitch: usize,
        value: u32,
        element_size: u32,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        let (acting, stream, captured) = self.enqueue_on(stream)?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        let row = width.saturating_mul(element_size as usize);
        if address == 0 && captured.is_none()
            || !address.is_multiple_of(u64::from(element_size))
            || height > 1 && pitch < row
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(captured) = captured {
            let fill = CUDA_MEMSET_NODE_PARAMS {
                dst: address,
                pitch,
                value,
                elementSize: element_size,
                width,
                height,
            };
            return captured.add(self.captured_fill(&fill, acting.context.number)?);
        }
        let rows = pitch.saturating_mul(height.saturating_sub(1));
        let bytes = rows.saturating_add(row);
        let address = match self.is_host(address) {
            true => self.device_pointer(address)?,
            false => address,
        };
        self.expect_within(address, bytes)?;
        self.expect_on_device(address)?;
        let _posting = acting.context.mirrored.posting();
        self.before_use(&acting, stream, address, bytes)?;
        let mut request = wire::Memset {
            stream,
            address,
            pitch: pitch as u64,
            value,
            element_size,
            width: width as u64,
            height: height as u64,
        };
        if let Some(there) = self.beyond(&acting, stream, address)? {
            request.stream = there.stream();
            return there.run(&request);
        }
        acting.post(&request)?;
        acting.touch(stream);
        Ok(())
    }
}
