//! Devices that reach each other's memory. All of them are in one address space, so that nothing has to be done for it; who asked twice,
//! or gives back what it never asked for, is told so as by a GPU's driver.

use std::sync::Arc;

use towline_backend::cuda::*;

use super::{Context, SoftCuda, lock};

impl SoftCuda {
    /// The current context, and another one of another device.
    fn pair(&self, peer: CUcontext) -> Result<(Arc<Context>, Arc<Context>), CUresult> {
        let own = self.context()?;
        let peer = self.find_context(peer.addr())?;
        if own.device == peer.device {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        Ok((own, peer))
    }

    /// A context by its handle.
    pub(super) fn find_context(&self, handle: usize) -> Result<Arc<Context>, CUresult> {
        let state = self.lock();
        let mut primaries = state.primaries.values().map(|(_, context)| context);
        let found = state
            .contexts
            .get(&handle)
            .or_else(|| primaries.find(|context| context.handle == handle));
        found.cloned().ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    pub(super) fn enable_peer(&self, peer: CUcontext, flags: u32) -> Result<(), CUresult> {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (own, peer) = self.pair(peer)?;
        if lock(&own.peers).insert(peer.handle) {
            Ok(())
        } else {
            Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        }
    }

    pub(super) fn disable_peer(&self, peer: CUcontext) -> Result<(), CUresult> {
        let (own, peer) = self.pair(peer)?;
        if lock(&own.peers).remove(&peer.handle) {
            Ok(())
        } else {
            Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
        }
    }
}
