//! Links of device code: each is the driver's own, and its calls run off the lane, since they compile.

use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::{CloseCode, ProtocolError};

use super::jit::Jit;
use super::module::{IMAGE_LIMIT, receive};
use crate::cuda::context::Context;
use crate::cuda::session::{Session, failure, unknown};
use crate::cuda::shared::lock;
use crate::link::Raw;

/// Most bytes of a linked image: what a message holds, with its logs.
const IMAGE_ROOM: u64 = towline_wire::frame::MESSAGE_LIMIT as u64 - (4 << 20);
/// Most links of a session.
const LINK_LIMIT: usize = 4096;

/// Held by a call of any link, so that none ends while another compiles. That was tried against a fault of the driver (580.159) in
/// links where a context had been made ahead; it is not what caused it.
static TURN: Mutex<()> = Mutex::new(());

/// A link under way. Its calls take turns.
pub(crate) struct Link {
    api: Arc<dyn CudaApi>,
    context: Arc<Context>,
    state: Raw,
    jit: Mutex<Jit>,
}

impl Link {
    /// The number of its context.
    pub(crate) fn home(&self) -> u64 {
        self.context.id
    }

    /// Runs a call of the link's.
    fn call(&self, call: impl FnOnce(&dyn CudaApi, CUlinkState) -> CUresult) -> CUresult {
        let _turn = lock(&TURN);
        match self.context.enter(&*self.api) {
            CUDA_SUCCESS => call(&*self.api, self.state.0.cast()),
            status => status,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: nobody uses the link any more.
        self.call(|api, state| unsafe { api.cuLinkDestroy(state) });
    }
}

impl Session {
    pub(crate) fn Link(
        &mut self,
        number: u64,
        request: wire::Link<'_>,
    ) -> Result<(), ProtocolError> {
        if self.links.contains_key(&request.link) {
            let detail = format!("link {:#x} is there already", request.link);
            return Err(ProtocolError::new(CloseCode::DuplicateHandle, detail));
        }
        let options: Vec<_> = request.options.iter().zip(request.values.iter()).collect();
        let mut jit = Jit::new(&options, request.log_room, request.info_room);
        let mut state: CUlinkState = std::ptr::null_mut();
        let status = match &self.acting {
            None => CUDA_ERROR_INVALID_CONTEXT,
            Some(_) if self.links.len() >= LINK_LIMIT => CUDA_ERROR_OUT_OF_MEMORY,
            Some(context) => {
                let (count, names, values) = (jit.count(), jit.names(), jit.values());
                // SAFETY: the options are as many as said, and stay where they are as long as the link; one place for it.
                let status = unsafe {
                    self.api
                        .cuLinkCreate_v2(count, names, values, &raw mut state)
                };
                if status == CUDA_SUCCESS && !state.is_null() {
                    let link = Link {
                        api: Arc::clone(&self.api),
                        context: Arc::clone(context),
                        state: Raw(state.cast()),
                        jit: Mutex::new(jit),
                    };
                    self.links.insert(request.link, Arc::new(link));
                    CUDA_SUCCESS
                } else {
                    failure(status)
                }
            }
        };
        self.reply(number, status, &wire::LinkReply {});
        Ok(())
    }

    fn link(&self, id: u64) -> Result<Arc<Link>, ProtocolError> {
        let found = self.links.get(&id).cloned();
        found.ok_or_else(|| unknown("link", id))
    }

    pub(crate) fn LinkAdd(
        &mut self,
        number: u64,
        request: wire::LinkAdd<'_>,
    ) -> Result<(), ProtocolError> {
        if request.size > IMAGE_LIMIT {
            let detail = format!("device code of a link has {} bytes", request.size);
            return Err(ProtocolError::new(CloseCode::LimitExceeded, detail));
        }
        let link = self.link(request.link)?;
        let options: Vec<_> = request.options.iter().zip(request.values.iter()).collect();
        let name = crate::dispatch::c_string(request.name);
        let data = request.data.map(<[u8]>::to_vec);
        let wire::LinkAdd {
            kind,
            size,
            payload,
            ..
        } = request;
        self.wait(move |shared| {
            let code = match data {
                None if payload != 0 => match receive(shared, payload, size) {
                    Some(code) => code,
                    // The session is over.
                    None => return,
                },
                data => data.unwrap_or_default(),
            };
            let log = lock(&link.jit);
            let mut own = Jit::new(&options, 0, 0);
            let length = code.len();
            // The driver may look for the end of text.
            let mut code = code;
            code.push(0);
            let (count, names, values) = (own.count(), own.names(), own.values());
            let status = link.call(|api, state| {
                let data = code.as_mut_ptr().cast();
                // SAFETY: the link is live and nobody else's turn; the code and the options are as long as said.
                unsafe {
                    api.cuLinkAddData_v2(
                        state,
                        kind,
                        data,
                        length,
                        name.as_ptr(),
                        count,
                        names,
                        values,
                    )
                }
            });
            let reply = wire::LinkAddReply {
                log: Some(log.error()),
                info: Some(log.info()),
                wall: Some(log.wall()),
            };
            let body = encoded(&reply);
            drop(log);
            // Before the client knows: what it ends is to end then.
            drop(link);
            shared.answer(number, status, &body);
        });
        Ok(())
    }

    pub(crate) fn LinkComplete(
        &mut self,
        number: u64,
        request: wire::LinkComplete,
    ) -> Result<(), ProtocolError> {
        let link = self.link(request.link)?;
        let room = request.room.min(IMAGE_ROOM);
        self.wait(move |shared| {
            let log = lock(&link.jit);
            let (mut image, mut size) = (std::ptr::null_mut(), 0);
            let mut status = link.call(|api, state| {
                // SAFETY: the link is live and nobody else's turn; two places for the answers.
                unsafe { api.cuLinkComplete(state, &raw mut image, &raw mut size) }
            });
            let linked: &[u8] = if status != CUDA_SUCCESS || image.is_null() {
                &[]
            } else if size as u64 > room {
                status = CUDA_ERROR_OUT_OF_MEMORY;
                &[]
            } else {
                // SAFETY: the driver gave so many bytes, which are there as long as the link.
                unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }
            };
            let reply = wire::LinkCompleteReply {
                image: Some(linked),
                log: Some(log.error()),
                info: Some(log.info()),
                wall: Some(log.wall()),
            };
            let body = encoded(&reply);
            drop(log);
            drop(link);
            shared.answer(number, status, &body);
        });
        Ok(())
    }

    pub(crate) fn LinkEnd(
        &mut self,
        _number: u64,
        request: wire::LinkEnd,
    ) -> Result<(), ProtocolError> {
        let ended = self.links.remove(&request.link);
        ended.map(drop).ok_or_else(|| unknown("link", request.link))
    }
}

/// The body of an answer, which a refusal has too: what the compiler says.
fn encoded<'a>(reply: &impl Message<'a>) -> Vec<u8> {
    let mut body = Vec::new();
    reply.encode(&mut body);
    body
}
