//! What devices can do with each other's memory. Between servers nothing: copies go through this process.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Actor;

use crate::driver::{Driver, lock};

/// What is known of pairs of devices, and which contexts reach another's memory.
#[derive(Default)]
pub(crate) struct Peers {
    /// Whether the first reaches the second, and the attributes of the path from 1 on.
    paths: Mutex<HashMap<(CUdevice, CUdevice), Vec<i32>>>,
    enabled: Mutex<HashSet<(u64, u64)>>,
}

impl Peers {
    pub(crate) fn drop_context(&self, context: u64) {
        lock(&self.enabled).retain(|(from, to)| *from != context && *to != context);
    }
}

/// What a server that tells less than this is not.
const VALUES: usize = 6;

impl Driver {
    /// What there is between two devices; `None` where they are not of one server.
    fn path(&self, device: CUdevice, peer: CUdevice) -> Result<Option<Vec<i32>>, CUresult> {
        let (from, to) = (self.device(device)?, self.device(peer)?);
        if from.session != to.session {
            return Ok(None);
        }
        if let Some(known) = lock(&self.peers.paths).get(&(device, peer)) {
            return Ok(Some(known.clone()));
        }
        let sessions = &self.started()?.sessions;
        let session = sessions
            .get(usize::from(from.session))
            .ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        let request = wire::DevicePath {
            device: from.ordinal,
            peer: to.ordinal,
        };
        let body = session.call(Actor::default(), "cuDeviceCanAccessPeer", &request)?;
        let reply = wire::DevicePathReply::decode(&body).map_err(|_| session.malformed())?;
        let values: Vec<i32> = reply.values.iter().flat_map(|list| list.iter()).collect();
        if values.len() != VALUES {
            return Err(session.malformed());
        }
        lock(&self.peers.paths).insert((device, peer), values.clone());
        Ok(Some(values))
    }

    pub(crate) fn can_access(&self, device: CUdevice, peer: CUdevice) -> Result<i32, CUresult> {
        if self.device(device).and(self.device(peer)).is_ok() && device == peer {
            return Ok(0);
        }
        let values = self.path(device, peer)?;
        Ok(values
            .and_then(|values| values.first().copied())
            .unwrap_or(0))
    }

    pub(crate) fn path_attribute(
        &self,
        attribute: CUdevice_P2PAttribute,
        device: CUdevice,
        peer: CUdevice,
    ) -> Result<i32, CUresult> {
        if device == peer {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let index = attribute as usize;
        if !(1..VALUES).contains(&index) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match self.path(device, peer)? {
            // Nothing is supported, and no path is better than another.
            None => Ok(0),
            Some(values) => match values.get(index) {
                Some(value @ 0..) => Ok(*value),
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            },
        }
    }

    pub(crate) fn enable_access(&self, peer: CUcontext, flags: u32) -> Result<(), CUresult> {
        let here = self.current()?;
        let there = self.context(peer.addr() as u64)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // No device is its own peer (seen with driver 580.159).
        if here.device == there.device || here.session != there.session {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        self.safe_in_captures()?;
        let pair = (here.number, there.number);
        if lock(&self.peers.enabled).contains(&pair) {
            return Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        // The server must have the other context.
        self.acting_in(there)?;
        let request = wire::CtxEnablePeerAccess {
            peerContext: wire::ContextHandle(pair.1),
            Flags: flags,
        };
        self.acting_in(here)?
            .call_for("cuCtxEnablePeerAccess", &request)?;
        lock(&self.peers.enabled).insert(pair);
        Ok(())
    }

    pub(crate) fn disable_access(&self, peer: CUcontext) -> Result<(), CUresult> {
        let here = self.current()?;
        self.safe_in_captures()?;
        let there = self.context(peer.addr() as u64)?;
        let pair = (here.number, there.number);
        if !lock(&self.peers.enabled).remove(&pair) {
            return Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        }
        let request = wire::CtxDisablePeerAccess {
            peerContext: wire::ContextHandle(pair.1),
        };
        self.acting_in(here)?
            .call_for("cuCtxDisablePeerAccess", &request)
            .map(|_| ())
    }
}
