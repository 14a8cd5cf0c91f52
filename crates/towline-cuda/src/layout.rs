//! Where the parameters of functions lie, by the image that the application brought.
//!
//! A launch copies from the application's memory what its parameters take up, so a server's word is not enough for it: a server that says
//! 4,100 for 4 would be sent what lies behind. What the server states of an image must be what the image says; otherwise the server does
//! not tell the truth, and its session ends.
//!
//! A program of a container is read when a launch or a question first needs a parameter of it, and once; a large one ahead of that, on a
//! thread of its own, while the server loads it. Where the application's image can be read by nobody but NVIDIA's compiler (intermediate
//! code for link time), what the server states is used, within what CUDA permits.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};

use towline_backend::cuda::*;
use towline_ptx::parameters::{self, Kernels, Place};
use towline_wire::cuda::facts::{Function, ModuleFacts, Parameter};

use crate::driver::{Driver, lock};
use crate::image::{Known, Target, Travelling};

/// A stored program from this size on is read ahead: it takes milliseconds.
const READ_AHEAD: usize = 128 << 10;

/// The kernels of an image, and how what a server states of them compares.
pub(crate) struct Layout {
    target: Target,
    /// The bytes that have not been read yet.
    unread: Mutex<Option<Arc<Vec<u8>>>>,
    /// The kernels, and the variables that are the host's as well; `None` where the image cannot be read.
    contents: OnceLock<Option<(Kernels, HashSet<Vec<u8>>)>>,
    /// For each function whether its parameters are known; or which are not as stated.
    verdict: OnceLock<Result<Box<[bool]>, String>>,
}

impl Layout {
    /// Of what is sent to a device like `target`. Nothing of `image` is kept but a copy that was made for sending.
    pub(crate) fn of(image: &Travelling<'_>, target: Target) -> Arc<Self> {
        let unread = match image {
            Travelling::Whole(_) => None,
            Travelling::Chosen(bytes) => Some(Arc::clone(bytes)),
        };
        let layout = Arc::new(Self {
            target,
            unread: Mutex::new(unread),
            contents: OnceLock::new(),
            verdict: OnceLock::new(),
        });
        match image {
            Travelling::Whole(bytes) => {
                layout.contents.get_or_init(|| read(bytes, target));
            }
            Travelling::Chosen(bytes) if bytes.len() >= READ_AHEAD => {
                let ahead = Arc::clone(&layout);
                let thread = towline_client::threads::named("towline-image");
                // Without a thread it is read when it is needed.
                let _ = thread.spawn(move || {
                    ahead.contents();
                });
            }
            Travelling::Chosen(_) => {}
        }
        layout
    }

    fn contents(&self) -> Option<&(Kernels, HashSet<Vec<u8>>)> {
        let contents = self.contents.get_or_init(|| {
            let unread = lock(&self.unread).take();
            unread.and_then(|bytes| read(&bytes, self.target))
        });
        contents.as_ref()
    }

    /// Whether a variable is the host's as well.
    pub(crate) fn is_managed(&self, name: &[u8]) -> bool {
        self.contents()
            .is_some_and(|(_, managed)| managed.contains(name))
    }

    /// Whether nothing has to be decompressed to compare.
    fn is_read(&self) -> bool {
        self.contents.get().is_some()
    }

    #[inline]
    fn verdict(&self, facts: &ModuleFacts) -> &Result<Box<[bool]>, String> {
        self.verdict.get_or_init(|| {
            let functions = &facts.functions;
            match self.contents() {
                Some((kernels, _)) => compare(functions, kernels),
                None => Ok(vec![true; functions.len()].into()),
            }
        })
    }
}

/// Contents of an image, if its format is known.
fn read(bytes: &[u8], target: Target) -> Option<(Kernels, HashSet<Vec<u8>>)> {
    let (capability, machine_code) = (target.capability, target.machine_code);
    let found = parameters::read_image(bytes, capability, machine_code, |code| {
        Ok((code.kernels()?, code.managed()?))
    });
    let reason = match found {
        Ok(Some(contents)) => return Some(contents),
        Ok(None) => "it holds neither machine code nor PTX for the device".to_owned(),
        Err(error) => error.to_string(),
    };
    log::warn!(
        "cannot read the parameters of an image's kernels, so the server is believed about them: {reason}"
    );
    None
}

/// Holds what a server states of functions against the image.
fn compare(functions: &[Function], kernels: &Kernels) -> Result<Box<[bool]>, String> {
    let known = functions.iter().map(|function| {
        let stated = &function.parameters;
        match kernels.get(&function.name) {
            // Of a function that the image lacks, one of the driver's own, nothing is known but that it takes nothing.
            None => Ok(stated.is_empty()),
            Some(None) => Ok(true),
            Some(Some(places)) if same(stated, places) => Ok(true),
            Some(Some(places)) => Err(format!(
                "the server states other parameters of {} than its image has: {} for {}",
                String::from_utf8_lossy(&function.name),
                described(stated.iter().map(|one| (one.offset, one.size))),
                described(places.iter().map(|one| (one.offset, one.len))),
            )),
        }
    });
    known.collect()
}

fn same(stated: &[Parameter], places: &[Place]) -> bool {
    let stated = stated.iter().map(|one| (one.offset, one.size));
    stated.eq(places.iter().map(|one| (one.offset, one.len)))
}

fn described(places: impl Iterator<Item = (u32, u32)>) -> String {
    let places: Vec<String> = places
        .map(|(offset, size)| format!("{size} bytes at {offset}"))
        .collect();
    match places.is_empty() {
        true => "none".into(),
        false => places.join(", "),
    }
}

impl Driver {
    /// The parameters of a function, in order and apart from each other.
    #[inline]
    pub(crate) fn parameters<'a>(&self, known: &'a Known) -> Result<&'a [Parameter], CUresult> {
        let image = &known.image;
        match image.layout.verdict(&image.facts) {
            Ok(of) if of.get(known.index as usize) == Some(&true) => Ok(&known.facts().parameters),
            Ok(_) => {
                log::warn!(
                    "the image has no kernel {}: its parameters are unknown",
                    String::from_utf8_lossy(&known.facts().name)
                );
                Err(CUDA_ERROR_NOT_SUPPORTED)
            }
            Err(reason) => Err(self.session(image.session)?.disbelieve(reason.clone())),
        }
    }

    /// Compares what a server states of an image that it has loaded, where that takes no decompression.
    pub(crate) fn check_stated(
        &self,
        layout: &Layout,
        facts: &ModuleFacts,
        session: u8,
    ) -> Result<(), CUresult> {
        if !layout.is_read() {
            return Ok(());
        }
        match layout.verdict(facts) {
            Ok(_) => Ok(()),
            Err(reason) => Err(self.session(session)?.disbelieve(reason.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b".version 8.0 .target sm_75 .entry k(.param .u64 a, .param .u32 b) { ret; } .entry none() { ret; }\0";
    const DEVICE: Target = Target {
        capability: towline_ptx::ComputeCapability::new(9, 0),
        machine_code: true,
    };

    fn stated(functions: &[(&str, &[(u32, u32)])]) -> ModuleFacts {
        let functions = functions.iter().map(|(name, places)| Function {
            name: name.as_bytes().to_vec(),
            parameters: places
                .iter()
                .map(|&(offset, size)| Parameter { offset, size })
                .collect(),
            attributes: Vec::new(),
        });
        ModuleFacts {
            functions: functions.collect(),
        }
    }

    #[test]
    fn what_the_image_says_is_known_and_anything_else_a_lie() {
        let check = |functions: &[(&str, &[(u32, u32)])]| {
            let layout = Layout::of(&Travelling::Whole(TEXT), DEVICE);
            assert!(layout.is_read());
            layout.verdict(&stated(functions)).clone()
        };
        let known: &[bool] = &[true, true];
        assert_eq!(
            check(&[("none", &[]), ("k", &[(0, 8), (8, 4)])]).as_deref(),
            Ok(known)
        );
        let lies: [&[(u32, u32)]; 5] = [
            &[(0, 8), (8, 4100)],
            &[(0, 8), (12, 4)],
            &[(0, 8)],
            &[],
            &[(0, 8), (8, 4), (12, 4)],
        ];
        for lie in lies {
            let reason = check(&[("none", &[]), ("k", lie)]).unwrap_err();
            assert!(reason.contains("parameters of k than"), "{reason}");
        }
    }

    #[test]
    fn a_function_that_the_image_lacks_takes_nothing() {
        let layout = Layout::of(&Travelling::Whole(TEXT), DEVICE);
        let facts = stated(&[("own", &[]), ("other", &[(0, 4)]), ("k", &[(0, 8), (8, 4)])]);
        assert_eq!(
            layout.verdict(&facts).as_deref(),
            Ok(&[true, false, true][..])
        );
    }

    #[test]
    fn an_image_that_cannot_be_read_leaves_the_servers_word() {
        let layout = Layout::of(&Travelling::Whole(b"BC\xc0\xde"), DEVICE);
        let facts = stated(&[("k", &[(0, 4100)])]);
        assert_eq!(layout.verdict(&facts).as_deref(), Ok(&[true][..]));
    }

    #[test]
    fn a_container_is_read_once_and_when_it_is_needed() {
        let container = include_bytes!("../../towline-ptx/tests/data/tiny-size.fatbin");
        let chosen = towline_ptx::fatbin::select(container, DEVICE.capability);
        let chosen = Travelling::Chosen(Arc::new(chosen.unwrap().unwrap()));
        let layout = Layout::of(&chosen, DEVICE);
        assert!(!layout.is_read());
        let kernels = layout.contents().unwrap().0.clone();
        assert_eq!(kernels.len(), 1);
        assert!(layout.is_read() && lock(&layout.unread).is_none());
        let (name, places) = kernels.into_iter().next().unwrap();
        let name = String::from_utf8(name).unwrap();
        let places = places.unwrap();
        let honest: Vec<_> = places.iter().map(|one| (one.offset, one.len)).collect();
        assert!(layout.verdict(&stated(&[(name.as_str(), &honest)])).is_ok());
        let layout = Layout::of(&chosen, DEVICE);
        assert!(
            layout
                .verdict(&stated(&[(name.as_str(), &[(0, 4100)])]))
                .is_err()
        );
    }
}
