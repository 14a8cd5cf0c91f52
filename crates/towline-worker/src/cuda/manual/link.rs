//! Links of device code: each is the driver's own, and its calls run on the session's linker, since they compile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::{CloseCode, ProtocolError};

use super::jit::Jit;
use super::module::receive;
use crate::code::Coded;
use crate::cuda::context::Context;
use crate::cuda::session::{Session, failure, unknown};
use crate::cuda::shared::{Shared, lock};
use crate::link::Raw;
use crate::waiters::Job;

/// Most bytes of a linked image: what a message holds, with its logs.
const IMAGE_ROOM: u64 = towline_wire::frame::MESSAGE_LIMIT as u64 - (4 << 20);
/// Most links of a session.
const LINK_LIMIT: usize = 4096;

/// The thread that all links of a session run on; it starts with the first. NVIDIA's compiler (driver 580.159) keeps what it was given
/// with the thread that gave it: `cuLinkComplete` on another one crashes the process. It ends with the session.
#[derive(Default)]
pub(crate) struct Linker(Option<Sender<Job>>);

impl Linker {
    /// Has the thread do `job` when those before it are done. The session waits for it at its end.
    fn run(
        &mut self,
        shared: &Arc<Shared>,
        job: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> std::io::Result<()> {
        let jobs = match self.0.take() {
            Some(jobs) => jobs,
            None => start()?,
        };
        let jobs = self.0.insert(jobs);
        shared.streams.job();
        let shared = Arc::clone(shared);
        let job: Job = Box::new(move || {
            job(&shared);
            shared.flush();
            shared.streams.job_over();
        });
        jobs.send(job)
            .expect("the thread takes jobs as long as there may be any");
        Ok(())
    }
}

fn start() -> std::io::Result<Sender<Job>> {
    let (jobs, queue): (_, Receiver<Job>) = channel();
    std::thread::Builder::new()
        .name("towline-linker".into())
        .spawn(move || queue.into_iter().for_each(|job| job()))?;
    Ok(jobs)
}

/// A link under way.
pub(crate) struct Link {
    context: Arc<Context>,
    /// The driver's; none before the linker has begun it, nor when the driver refused.
    native: Mutex<Option<Native>>,
    refused: AtomicBool,
}

struct Native {
    state: Raw,
    /// What the driver was given stays where it is until the link ends.
    jit: Jit,
}

impl Link {
    /// The number of its context.
    pub(crate) fn home(&self) -> u64 {
        self.context.id
    }

    /// Runs a call of the link's, on the linker.
    fn call(&self, api: &dyn CudaApi, call: impl FnOnce(&mut Native) -> CUresult) -> CUresult {
        match (self.context.enter(api), &mut *lock(&self.native)) {
            (CUDA_SUCCESS, Some(native)) => call(native),
            (CUDA_SUCCESS, None) => CUDA_ERROR_INVALID_HANDLE,
            (status, _) => status,
        }
    }

    /// Begins it, on the linker.
    fn begin(&self, api: &dyn CudaApi, mut jit: Jit) -> CUresult {
        let mut state: CUlinkState = std::ptr::null_mut();
        let mut status = self.context.enter(api);
        if status == CUDA_SUCCESS {
            let (count, names, values) = (jit.count(), jit.names(), jit.values());
            // SAFETY: the options are as many as said, and stay where they are as long as the link; one place for it.
            status = unsafe { api.cuLinkCreate_v2(count, names, values, &raw mut state) };
        }
        if status != CUDA_SUCCESS || state.is_null() {
            self.refused.store(true, Ordering::Release);
            return failure(status);
        }
        let state = Raw(state.cast());
        *lock(&self.native) = Some(Native { state, jit });
        CUDA_SUCCESS
    }

    /// Gives it back, on the linker.
    fn end(&self, api: &dyn CudaApi) {
        self.call(api, |native| {
            // SAFETY: the link is live, and nobody uses it any more.
            unsafe { api.cuLinkDestroy(native.state.0.cast()) }
        });
        *lock(&self.native) = None;
    }

    /// What the compiler has said: its log, what it remarks, and how long it took.
    fn said<T>(&self, tell: impl FnOnce(&[u8], &[u8], u32) -> T) -> T {
        match &*lock(&self.native) {
            Some(Native { jit, .. }) => tell(jit.error(), jit.info(), jit.wall()),
            None => tell(&[], &[], 0),
        }
    }
}

impl Session {
    /// Ends the links of a context; of all without one.
    pub(crate) fn end_links(&mut self, context: Option<u64>) {
        let ends = |link: &Arc<Link>| context.is_none_or(|context| link.home() == context);
        for (id, link) in self.links.extract_if(|_, link| ends(link)) {
            let run = self.linker.run(&self.shared, move |shared| {
                link.end(&*shared.api);
                shared.credit_code(Coded::Link(id));
            });
            // Without its thread there is no link.
            drop(run);
        }
    }

    pub(crate) fn Link(
        &mut self,
        number: u64,
        request: wire::Link<'_>,
    ) -> Result<(), ProtocolError> {
        if self.links.contains_key(&request.link) {
            let detail = format!("link {:#x} is there already", request.link);
            return Err(ProtocolError::new(CloseCode::DuplicateHandle, detail));
        }
        // The client knows that these are none.
        self.links
            .retain(|_, link| !link.refused.load(Ordering::Acquire));
        let options: Vec<_> = request.options.iter().zip(request.values.iter()).collect();
        let jit = Jit::new(&options, request.log_room, request.info_room);
        let refused = match &self.acting {
            None => CUDA_ERROR_INVALID_CONTEXT,
            Some(_) if self.links.len() >= LINK_LIMIT => CUDA_ERROR_OUT_OF_MEMORY,
            Some(context) => {
                let link = Arc::new(Link {
                    context: Arc::clone(context),
                    native: Mutex::default(),
                    refused: AtomicBool::new(false),
                });
                self.links.insert(request.link, Arc::clone(&link));
                let begun = self.linker.run(&self.shared, move |shared| {
                    let status = link.begin(&*shared.api, jit);
                    // Before the client knows: what it ends is to end then.
                    drop(link);
                    shared.reply(number, status, &wire::LinkReply {});
                });
                match begun {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        log::warn!("no thread for links: {error}");
                        self.links.remove(&request.link);
                        CUDA_ERROR_OUT_OF_MEMORY
                    }
                }
            }
        };
        self.reply(number, refused, &wire::LinkReply {});
        Ok(())
    }

    /// Has the linker do something with a link.
    fn with_link(
        &mut self,
        id: u64,
        job: impl FnOnce(&Arc<Shared>, Arc<Link>) + Send + 'static,
    ) -> Result<(), ProtocolError> {
        let found = self.links.get(&id).cloned();
        let link = found.ok_or_else(|| unknown("link", id))?;
        let run = self
            .linker
            .run(&self.shared, move |shared| job(shared, link));
        run.map_err(|_| unknown("link", id))
    }

    pub(crate) fn LinkAdd(
        &mut self,
        number: u64,
        request: wire::LinkAdd<'_>,
    ) -> Result<(), ProtocolError> {
        if request.size > towline_wire::cuda::IMAGE_LIMIT {
            let detail = format!("device code of a link has {} bytes", request.size);
            return Err(ProtocolError::new(CloseCode::LimitExceeded, detail));
        }
        let options: Vec<_> = request.options.iter().zip(request.values.iter()).collect();
        let mut own = Jit::new(&options, 0, 0);
        let name = crate::decode::c_string(request.name);
        let data = request.data.map(<[u8]>::to_vec);
        let wire::LinkAdd {
            link,
            kind,
            size,
            payload,
            ..
        } = request;
        let id = link;
        self.with_link(link, move |shared, link| {
            let bytes = data.as_ref().map_or(size, |data| data.len() as u64);
            // Before it is received: that takes memory, too.
            if !shared.charge_code(Coded::Link(id), link.home(), bytes) {
                let body = encoded(&wire::LinkAddReply {
                    log: Some(&[]),
                    info: Some(&[]),
                    wall: Some(0),
                });
                drop(link);
                return shared.answer(number, CUDA_ERROR_OUT_OF_MEMORY, &body);
            }
            let mut code = match data {
                None if payload != 0 => match receive(shared, payload, size) {
                    Some(code) => code,
                    // The session is over.
                    None => return,
                },
                data => data.unwrap_or_default(),
            };
            let length = code.len();
            // The driver may look for the end of text.
            code.push(0);
            let (count, names, values) = (own.count(), own.names(), own.values());
            let add = |native: &mut Native| {
                let (state, data) = (native.state.0.cast(), code.as_mut_ptr().cast());
                // SAFETY: the link is live, and this its thread; the code and the options are as long as said.
                unsafe {
                    shared.api.cuLinkAddData_v2(
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
            };
            let status = link.call(&*shared.api, add);
            let body = link.said(|log, info, wall| {
                encoded(&wire::LinkAddReply {
                    log: Some(log),
                    info: Some(info),
                    wall: Some(wall),
                })
            });
            drop(link);
            shared.answer(number, status, &body);
        })
    }

    pub(crate) fn LinkComplete(
        &mut self,
        number: u64,
        request: wire::LinkComplete,
    ) -> Result<(), ProtocolError> {
        let room = request.room.min(IMAGE_ROOM);
        self.with_link(request.link, move |shared, link| {
            let (mut image, mut size) = (std::ptr::null_mut(), 0);
            let mut status = link.call(&*shared.api, |native| {
                let state = native.state.0.cast();
                // SAFETY: the link is live, and this its thread; two places for the answers.
                unsafe {
                    shared
                        .api
                        .cuLinkComplete(state, &raw mut image, &raw mut size)
                }
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
            let body = link.said(|log, info, wall| {
                encoded(&wire::LinkCompleteReply {
                    image: Some(linked),
                    log: Some(log),
                    info: Some(info),
                    wall: Some(wall),
                })
            });
            drop(link);
            shared.answer(number, status, &body);
        })
    }

    pub(crate) fn LinkEnd(
        &mut self,
        _number: u64,
        request: wire::LinkEnd,
    ) -> Result<(), ProtocolError> {
        let id = request.link;
        self.with_link(id, move |shared, link| {
            link.end(&*shared.api);
            shared.credit_code(Coded::Link(id));
        })?;
        self.links.remove(&id);
        Ok(())
    }
}

/// The body of an answer, which a refusal has too: what the compiler says.
fn encoded<'a>(reply: &impl Message<'a>) -> Vec<u8> {
    let mut body = Vec::new();
    reply.encode(&mut body);
    body
}
