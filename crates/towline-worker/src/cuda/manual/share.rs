//! Memory that the client shares, and copies between it and the device.

use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::{CloseCode, ProtocolError};

use crate::cuda::areas::Refusal;
use crate::cuda::region::{Region, Way};
use crate::cuda::session::{Session, unknown};
use crate::cuda::shared::{Shared, lock};
use crate::cuda::streams::{Places, Target};

/// A copy between the device and shared memory.
struct SharedCopy {
    way: Way,
    stream: wire::StreamHandle,
    address: CUdeviceptr,
    area: u64,
    offset: u64,
    size: u64,
    done: u64,
}

impl Session {
    pub(crate) fn ShareHost(
        &mut self,
        number: u64,
        request: wire::ShareHost,
    ) -> Result<(), ProtocolError> {
        let wire::ShareHost {
            area,
            size,
            address,
        } = request;
        let file = self.shared.lane.take_descriptor().ok().flatten();
        let file = file.ok_or_else(|| {
            ProtocolError::new(
                CloseCode::Malformed,
                "no memory came with ShareHost".to_owned(),
            )
        })?;
        let reserved = lock(&self.shared.areas).reserve(area, size);
        match reserved {
            Ok(()) => {}
            Err(Refusal::InUse) => {
                let detail = format!("area {area:#x} is in use");
                return Err(ProtocolError::new(CloseCode::DuplicateHandle, detail));
            }
            Err(Refusal::TooMuch) => {
                let none = wire::ShareHostReply { device: None };
                self.reply(number, CUDA_ERROR_OUT_OF_MEMORY, &none);
                return Ok(());
            }
        }
        let context = self.acting.clone();
        // The driver takes a moment for every megabyte.
        self.wait(move |shared| {
            let (status, device) = shared.take_area(area, (address, size), file, context.as_ref());
            let device = (status == CUDA_SUCCESS).then_some(device);
            shared.reply(number, status, &wire::ShareHostReply { device });
        });
        Ok(())
    }

    pub(crate) fn UnshareHost(
        &mut self,
        number: u64,
        request: wire::UnshareHost,
    ) -> Result<(), ProtocolError> {
        let call = <wire::UnshareHost as Request<'_>>::ID;
        let area = lock(&self.shared.areas).take(request.area);
        let area = area.ok_or_else(|| unknown("area", request.area))?;
        let places = self.shared.streams.all(None);
        self.shared.start(move |shared| {
            shared.streams.wait(&places);
            let status = area.release(&*shared.api);
            // Where its context has ended the driver has let go of it already.
            if status != CUDA_ERROR_INVALID_CONTEXT {
                shared.settle(number, call, 0, status);
                shared.flush();
            }
        });
        Ok(())
    }

    pub(crate) fn WriteShared(
        &mut self,
        number: u64,
        request: wire::WriteShared,
    ) -> Result<(), ProtocolError> {
        let call = <wire::WriteShared as Request<'_>>::ID;
        let wire::WriteShared {
            stream,
            address,
            area,
            offset,
            size,
            done,
        } = request;
        let way = Way::ToDevice;
        self.copy_shared(
            number,
            call,
            SharedCopy {
                way,
                stream,
                address,
                area,
                offset,
                size,
                done,
            },
        )
    }

    pub(crate) fn ReadShared(
        &mut self,
        number: u64,
        request: wire::ReadShared,
    ) -> Result<(), ProtocolError> {
        let call = <wire::ReadShared as Request<'_>>::ID;
        let wire::ReadShared {
            stream,
            address,
            area,
            offset,
            size,
            done,
        } = request;
        let way = Way::ToHost;
        self.copy_shared(
            number,
            call,
            SharedCopy {
                way,
                stream,
                address,
                area,
                offset,
                size,
                done,
            },
        )
    }

    fn copy_shared(
        &mut self,
        number: u64,
        call: u16,
        copy: SharedCopy,
    ) -> Result<(), ProtocolError> {
        let area = lock(&self.shared.areas).get(copy.area);
        let area = area.ok_or_else(|| unknown("area", copy.area))?;
        let memory = area.part(copy.offset, copy.size).ok_or_else(|| {
            let detail = format!("a copy beyond area {:#x}", copy.area);
            ProtocolError::new(CloseCode::Malformed, detail)
        })?;
        let target = match self.target(copy.stream)? {
            Ok(target) => target,
            Err(status) => {
                if copy.way == Way::ToDevice || copy.done == 0 {
                    self.shared.settle(number, call, copy.stream.0, status);
                }
                if copy.done != 0 {
                    self.shared.tell(copy.done, status);
                }
                return Ok(());
            }
        };
        let SharedCopy {
            way,
            address,
            size,
            done,
            ..
        } = copy;
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let (api, stream) = (&*shared.api, target.stream());
            area.used_in(&target.context);
            let part = (0, size as usize);
            let enqueued = || shared.enqueued(target);
            // SAFETY: the area is given back when what was enqueued before is done; the stream is live.
            let copied =
                unsafe { Region::Linear(address).copy(api, stream, way, part, memory, enqueued) };
            if done == 0 {
                return copied;
            }
            let marked = match copied {
                CUDA_SUCCESS => shared.mark(target),
                status => Err(status),
            };
            match marked {
                Err(status) => {
                    shared.tell(done, status);
                    shared.flush();
                    match way {
                        Way::ToDevice => status,
                        // Whoever waits for the data has been told.
                        Way::ToHost => CUDA_SUCCESS,
                    }
                }
                Ok(mark) => {
                    shared.when_done(target, mark, move |shared, status| {
                        shared.tell(done, status)
                    });
                    CUDA_SUCCESS
                }
            }
        };
        self.issue(number, call, &target, Places::new(), go);
        Ok(())
    }
}
