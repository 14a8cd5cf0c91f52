//! Links of device code, which the server's driver makes: what it refuses is refused at the same call. The image stays here until the
//! link ends.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use towline_ptx::image::{self, Kind};
use towline_ptx::parameters::{self, Inputs};

use crate::driver::{Acting, Driver, lock};
use crate::jit::{Options, Told};

/// Largest image that a link may give.
const IMAGE_ROOM: u64 = 60 << 20;

/// The links of the process, by number.
pub(crate) type Links = Mutex<HashMap<u64, Arc<Link>>>;

/// A link under way.
pub(crate) struct Link {
    context: u64,
    options: Options,
    /// The kernels of what was added.
    inputs: Mutex<Inputs>,
    /// Images that the application may look at.
    images: Mutex<Vec<Box<[u8]>>>,
}

impl Driver {
    fn linking(&self, state: CUlinkState) -> Result<(u64, Arc<Link>, Acting<'_>), CUresult> {
        self.ready()?;
        let number = state.addr() as u64;
        let found = lock(&self.links).get(&number).cloned();
        let link = found.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let acting = self.acting_in(self.context(link.context)?)?;
        Ok((number, link, acting))
    }

    /// Begins a link.
    pub(crate) fn begin_link(&self, options: Options) -> Result<CUlinkState, CUresult> {
        let acting = self.session_for(0)?;
        let number = acting.mint(wire::LinkStateHandle::TAG);
        acting.call_for(
            "cuLinkCreate",
            &wire::Link {
                num_options: options.names.len() as u32,
                options: wire::List::Values(&options.names),
                values: wire::List::Values(&options.values),
                info_room: options.info_room(),
                log_room: options.log_room(),
                link: number,
            },
        )?;
        let link = Link {
            context: acting.context.number,
            options,
            inputs: Mutex::default(),
            images: Mutex::default(),
        };
        lock(&self.links).insert(number, Arc::new(link));
        Ok(wire::LinkStateHandle(number).to_raw())
    }

    /// Adds device code to a link.
    pub(crate) fn add_to_link(
        &self,
        state: CUlinkState,
        kind: CUjitInputType,
        code: &[u8],
        name: &[u8],
        options: &Options,
    ) -> Result<(), CUresult> {
        let (number, link, acting) = self.linking(state)?;
        if kind >= CU_JIT_NUM_INPUT_TYPES || code.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let answer = acting
            .session
            .ask_with_image(code, &[0; 32], |data, payload| {
                acting.ask(
                    "cuLinkAddData",
                    &wire::LinkAdd {
                        link: number,
                        kind,
                        size: code.len() as u64,
                        payload,
                        data_size: data.map_or(0, <[u8]>::len) as u64,
                        data,
                        name,
                        num_options: options.names.len() as u32,
                        options: wire::List::Values(&options.names),
                        values: wire::List::Values(&options.values),
                        log_room: link.options.log_room(),
                        info_room: link.options.info_room(),
                    },
                )
            })?;
        let reply = wire::LinkAddReply::decode(&answer.body).map_err(|_| acting.malformed())?;
        let told = Told {
            error: reply.log,
            info: reply.info,
            wall: reply.wall,
        };
        link.options.tell(&told);
        match answer.status {
            CUDA_SUCCESS => {
                lock(&link.inputs).add(code);
                Ok(())
            }
            status => Err(status),
        }
    }

    /// Links what was added. The image is there until the link ends.
    pub(crate) fn complete_link(
        &self,
        state: CUlinkState,
    ) -> Result<(*mut c_void, usize), CUresult> {
        let (number, link, acting) = self.linking(state)?;
        let request = wire::LinkComplete {
            link: number,
            room: IMAGE_ROOM,
            log_room: link.options.log_room(),
            info_room: link.options.info_room(),
        };
        let answer = acting.ask("cuLinkComplete", &request)?;
        let reply =
            wire::LinkCompleteReply::decode(&answer.body).map_err(|_| acting.malformed())?;
        let told = Told {
            error: reply.log,
            info: reply.info,
            wall: reply.wall,
        };
        link.options.tell(&told);
        if answer.status != CUDA_SUCCESS {
            return Err(answer.status);
        }
        let image: Box<[u8]> = reply.image.ok_or(CUDA_ERROR_UNKNOWN)?.into();
        if let Err(reason) = check(&lock(&link.inputs), &image) {
            return Err(acting.session.disbelieve(reason));
        }
        let place = (image.as_ptr().cast_mut().cast(), image.len());
        lock(&link.images).push(image);
        Ok(place)
    }

    /// Ends a link.
    pub(crate) fn end_link(&self, state: CUlinkState) -> Result<(), CUresult> {
        let number = state.addr() as u64;
        self.ready()?;
        let link = lock(&self.links).remove(&number);
        let link = link.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        // With its context its link has ended on the server.
        match self.context(link.context) {
            Ok(context) => self
                .acting_in(context)?
                .post(&wire::LinkEnd { link: number }),
            Err(_) => Ok(()),
        }
    }
}

/// Holds the image of a link, which comes from the server, against what the application has put in: launches of its kernels will copy
/// what it says of their parameters. A kernel that no input has is the linker's, and nobody's to launch by name.
fn check(inputs: &Inputs, image: &[u8]) -> Result<(), String> {
    let linked = match image::kind(image) {
        Some(Kind::Elf) => parameters::of_cubin(image),
        _ => parameters::of_text(image),
    };
    match linked {
        Ok(linked) => match inputs.contradicted(&linked) {
            None => Ok(()),
            Some(kernel) => Err(format!(
                "the server's link gives {} other parameters than what was linked",
                String::from_utf8_lossy(kernel)
            )),
        },
        // What was linked can be read by NVIDIA's compiler alone, and so perhaps can the outcome.
        Err(_) if !inputs.is_readable() => Ok(()),
        Err(error) => Err(format!("the server's link gave no device code: {error}")),
    }
}
