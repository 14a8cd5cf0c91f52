//! Pinned host memory that is shared with its server, where that is on this host: its driver copies from and to it by itself, when the
//! stream comes to it. Nothing of such a copy passes a lane.
//!
//! What goes another way (a box, a copy to another server) is read by this process, which must not come before what the device is still
//! to write there. So the copies that write it are remembered until their stream is known to have done them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use towline_backend::cuda::*;
use towline_client::cuda::SharedHost;

use crate::context::Context;
use crate::driver::{Acting, Driver, lock, read, write};

/// Shared memory by where it begins.
pub(crate) type Pins = BTreeMap<usize, Arc<Pin>>;

/// One allocation.
pub(crate) struct Pin {
    host: SharedHost,
    /// The session whose worker maps it.
    session: u8,
    written: Mutex<Vec<Written>>,
}

/// The last copy of a stream that writes here.
struct Written {
    context: Arc<Context>,
    stream: u64,
    /// What had been posted to the stream with it.
    posted: u64,
}

impl Pin {
    /// Whether every copy that writes here is known to be done.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut written = lock(&self.written);
        written.retain(|copy| !copy.context.has_done(copy.stream, copy.posted));
        written.is_empty()
    }

    fn note_written(&self, context: &Arc<Context>, stream: u64, posted: u64) {
        let mut written = lock(&self.written);
        let same =
            |copy: &&mut Written| copy.stream == stream && copy.context.number == context.number;
        match written.iter_mut().find(same) {
            Some(copy) => copy.posted = posted,
            None => written.push(Written {
                context: Arc::clone(context),
                stream,
                posted,
            }),
        }
    }
}

impl Driver {
    /// Pinned memory that the context's server shares; `None` where it is elsewhere, or can share none.
    pub(crate) fn share_host(
        &self,
        context: &Arc<Context>,
        size: usize,
    ) -> Result<Option<*mut u8>, CUresult> {
        let acting = self.acting_in(Arc::clone(context))?;
        if !acting.session.shares_memory() {
            return Ok(None);
        }
        let host = match acting.session.share(acting.actor, "cuMemHostAlloc", size) {
            // A driver that registers no memory is one that copies from any.
            Err(CUDA_ERROR_NOT_SUPPORTED) => return Ok(None),
            shared => shared?,
        };
        let start = host.start();
        let pin = Pin {
            host,
            session: context.session,
            written: Mutex::default(),
        };
        write(&self.pins).insert(start.addr(), Arc::new(pin));
        Ok(Some(start))
    }

    /// Gives shared memory back; whether some begins here. What uses it on the server still has it.
    pub(crate) fn unshare_host(&self, start: usize) -> Result<bool, CUresult> {
        let Some(pin) = write(&self.pins).remove(&start) else {
            return Ok(false);
        };
        let sessions = &self.started()?.sessions;
        let session = sessions.get(usize::from(pin.session));
        if let Some(session) = session.filter(|session| session.lost().is_none()) {
            session.unshare(&pin.host)?;
        }
        Ok(true)
    }

    /// The shared memory that all of a range is in, and where in it that begins.
    fn pin(&self, start: usize, size: usize) -> Option<(Arc<Pin>, u64)> {
        let pins = read(&self.pins);
        let (_, pin) = pins.range(..=start).next_back()?;
        let offset = pin.host.offset(start, size)?;
        Some((Arc::clone(pin), offset))
    }

    /// As [`Self::pin`], where it is shared with the server that acts.
    pub(crate) fn pin_for(
        &self,
        acting: &Acting<'_>,
        start: usize,
        size: usize,
    ) -> Option<(Arc<Pin>, u64)> {
        self.pin(start, size)
            .filter(|(pin, _)| pin.session == acting.context.session)
    }

    /// Waits until no device is to write to this memory any more, where it is shared: this process is about to read it.
    pub(crate) fn settle_pin(&self, start: usize, size: usize) -> Result<(), CUresult> {
        let Some((pin, _)) = self.pin(start, size) else {
            return Ok(());
        };
        if pin.is_quiet() {
            return Ok(());
        }
        let contexts: Vec<Arc<Context>> = {
            let written = lock(&pin.written);
            written
                .iter()
                .map(|copy| Arc::clone(&copy.context))
                .collect()
        };
        for context in contexts {
            self.acting_in(context)?.synchronise_all()?;
        }
        lock(&pin.written).clear();
        Ok(())
    }
}

impl Acting<'_> {
    /// Has the device read shared memory when the stream comes to it.
    pub(crate) fn write_from(
        &self,
        stream: towline_backend::cuda::StreamHandle,
        address: u64,
        (pin, offset): &(Arc<Pin>, u64),
        size: usize,
    ) -> Result<(), CUresult> {
        self.session
            .write_shared(self.actor, stream.0, address, &pin.host, *offset, size)?;
        self.touch(stream);
        Ok(())
    }

    /// Has the device write shared memory when the stream comes to it.
    pub(crate) fn read_into(
        &self,
        stream: towline_backend::cuda::StreamHandle,
        address: u64,
        (pin, offset): &(Arc<Pin>, u64),
        size: usize,
    ) -> Result<(), CUresult> {
        self.session
            .read_shared(self.actor, stream.0, address, &pin.host, *offset, size)?;
        self.touch(stream);
        pin.note_written(&self.context, stream.0, self.posted(stream));
        Ok(())
    }
}
