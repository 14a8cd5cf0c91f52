//! Host memory that this process and the worker both map, where the server is on this host: copies between it and the device pass no
//! lane, and move when the stream comes to them.

use towline_backend::cuda as wire;
use towline_backend::cuda::Message as _;
use towline_transport::shared_memory::SharedMemory;

use super::moving::RebuildError;
use super::{AREA_TAG, Actor, Session};

/// Pages, of which shared memory consists.
const PAGE: usize = 4096;

/// Memory that is shared with one session's worker. [`Session::unshare`] ends that; the memory itself goes with this value.
#[derive(Debug)]
pub struct SharedHost {
    number: u64,
    memory: SharedMemory,
    reached: bool,
}

impl SharedHost {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether kernels of that session reach it, at the address that it has here.
    pub fn is_reached(&self) -> bool {
        self.reached
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.memory.start().as_ptr()
    }

    /// How far into it a range begins that lies in it.
    pub fn offset(&self, start: usize, size: usize) -> Option<u64> {
        let offset = start.checked_sub(self.start().addr())?;
        let end = offset.checked_add(size)?;
        (end <= self.memory.len()).then_some(offset as u64)
    }
}

impl Session {
    /// Whether the server is on this host, and takes memory to share.
    pub fn shares_memory(&self) -> bool {
        self.link().shares_memory()
    }

    /// Makes memory that the server's driver can copy from and to by itself, at the address `wish` where nothing lies there. One round
    /// trip, since the driver may have too much already.
    pub fn share(
        &self,
        actor: Actor,
        call: &'static str,
        size: usize,
        wish: u64,
    ) -> Result<SharedHost, i32> {
        self.healthy()?;
        let size = size
            .checked_next_multiple_of(PAGE)
            .ok_or(wire::CUDA_ERROR_OUT_OF_MEMORY)?;
        let memory = SharedMemory::allocate_near("towline-pinned", size, wish as usize);
        let memory = memory.map_err(|error| {
            log::debug!("no memory to share: {error}");
            wire::CUDA_ERROR_OUT_OF_MEMORY
        })?;
        let number = self.mint(AREA_TAG);
        let request = wire::ShareHost {
            area: number,
            size: size as u64,
            // Elsewhere kernels need not reach it.
            address: match memory.start().addr().get() as u64 {
                start if start == wish => wish,
                _ => 0,
            },
        };
        let started = std::time::Instant::now();
        let asked = {
            let mut posting = self.posting();
            self.post_held(&mut posting)?;
            self.act_as(&mut posting, actor)?;
            // Descriptors and the requests that speak of them have the same order.
            self.link().send_descriptor(memory.descriptor())?;
            self.link().ask_only(&request)?
        };
        self.link().meter.requested();
        let reply = self.link().wait_reply(asked, actor.patience());
        self.link().meter.waited(call, started.elapsed());
        let reply = reply?;
        if reply.status != 0 {
            return Err(reply.status);
        }
        let told = wire::ShareHostReply::decode(&reply.body).map_err(|_| self.malformed())?;
        Ok(SharedHost {
            reached: request.address != 0 && told.device == Some(request.address),
            number,
            memory,
        })
    }

    /// Shares what another worker has with this one too, as it is there.
    pub(super) fn share_again(
        &self,
        actor: Actor,
        shared: &SharedHost,
    ) -> Result<(), RebuildError> {
        let start = shared.start().addr() as u64;
        let request = wire::ShareHost {
            area: shared.number,
            size: shared.memory.len() as u64,
            address: if shared.reached { start } else { 0 },
        };
        let asked = {
            let mut posting = self.posting();
            self.act_as(&mut posting, actor)
                .and_then(|()| self.link().send_descriptor(shared.memory.descriptor()))
                .and_then(|()| self.link().ask_only(&request))
        };
        let what = "memory to share";
        let reply =
            asked.and_then(|asked| self.link().wait_reply(asked, std::time::Duration::ZERO));
        let reply = reply.map_err(|status| self.refused(what, status))?;
        if reply.status != 0 {
            return Err(self.refused(what, reply.status));
        }
        let told = wire::ShareHostReply::decode(&reply.body).ok();
        let device = told.and_then(|told| told.device).unwrap_or(0);
        match shared.reached && device != start {
            true => Err(RebuildError::Taken {
                server: self.server().into(),
                address: start,
            }),
            false => Ok(()),
        }
    }

    /// Has the server let go of it, behind what was posted before. The application's side of it may go at once.
    pub fn unshare(&self, shared: &SharedHost) -> Result<(), i32> {
        self.post_plain(&wire::UnshareHost {
            area: shared.number,
        })
    }

    /// Copies a part of shared memory to the device, when the stream comes to it.
    pub fn write_shared(
        &self,
        actor: Actor,
        stream: u64,
        address: u64,
        from: &SharedHost,
        offset: u64,
        size: usize,
    ) -> Result<(), i32> {
        // Data that is on its way into it by another way comes first, as it would on the device.
        self.settle_reads(from.start().addr() + offset as usize, size)?;
        self.post(
            actor,
            &wire::WriteShared {
                stream: wire::StreamHandle(stream),
                address,
                area: from.number,
                offset,
                size: size as u64,
                done: 0,
            },
        )
    }

    /// Copies from the device to a part of shared memory, when the stream comes to it.
    pub fn read_shared(
        &self,
        actor: Actor,
        stream: u64,
        address: u64,
        to: &SharedHost,
        offset: u64,
        size: usize,
    ) -> Result<(), i32> {
        self.post(
            actor,
            &wire::ReadShared {
                stream: wire::StreamHandle(stream),
                address,
                area: to.number,
                offset,
                size: size as u64,
                done: 0,
            },
        )
    }
}
