//! Where a running graph needs the client: host nodes of our own, which the driver calls on a thread of its own. That thread waits for one
//! of the session's, since it must not use the driver.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};

use towline_backend::cuda::*;
use towline_wire::push::Push;

use crate::cuda::context::Context;
use crate::cuda::pinned::{Counted, GRAPH_LIMIT, SMALL};
use crate::cuda::shared::{Shared, lock};
use crate::link::Raw;

/// Memory is pinned in pieces of this size.
const PAGE: u64 = 4096;

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It calls a function of the application.
    Function,
    /// It sends the bytes that the copy behind this reads.
    Fetch,
    /// It takes the bytes that the copy before this wrote.
    Send,
}

/// See the module's text.
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Pinned memory that the copy goes through.
    pub(crate) staging: Raw,
    _pinned: Option<Counted>,
    size: u64,
    context: Weak<Context>,
    shared: Weak<Shared>,
    me: Weak<Self>,
    /// The client's numbers for launches that have not come here, 0 for one that needs nothing.
    launches: Mutex<VecDeque<u64>>,
    under_way: AtomicUsize,
}

impl Call {
    /// A node without memory, or with pinned memory of `size` bytes. The context is current.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        context: &Arc<Context>,
        kind: Kind,
        size: u64,
    ) -> Result<Arc<Self>, CUresult> {
        let mut staging = std::ptr::null_mut();
        let mut pinned = None;
        if kind != Kind::Function {
            let bytes = size.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            let counted = shared.pinned.take(bytes, GRAPH_LIMIT);
            pinned = Some(counted.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?);
            let place = &raw mut staging;
            let flags = CU_MEMHOSTALLOC_PORTABLE;
            // SAFETY: one place for the address.
            let status = unsafe { shared.api.cuMemHostAlloc(place, size as usize, flags) };
            if status != CUDA_SUCCESS {
                return Err(status);
            }
        }
        Ok(Arc::new_cyclic(|me| Self {
            kind,
            staging: Raw(staging),
            _pinned: pinned,
            size,
            context: Arc::downgrade(context),
            shared: Arc::downgrade(shared),
            me: Weak::clone(me),
            launches: Mutex::default(),
            under_way: AtomicUsize::new(0),
        }))
    }

    /// What the driver is given: the function, and this.
    pub(crate) fn params(&self) -> CUDA_HOST_NODE_PARAMS {
        CUDA_HOST_NODE_PARAMS {
            r#fn: Some(reached),
            userData: std::ptr::from_ref(self).cast_mut().cast(),
        }
    }

    /// A launch follows.
    pub(crate) fn expect(&self, number: u64) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        lock(&self.launches).push_back(number);
    }

    /// The launch was refused.
    pub(crate) fn unexpect(&self, shared: &Shared, status: CUresult) {
        if let Some(number) = lock(&self.launches).pop_back() {
            self.under_way.fetch_sub(1, Ordering::AcqRel);
            self.fail(shared, number, status);
        }
    }

    /// The client hears that a launch will not come here.
    pub(crate) fn fail(&self, shared: &Shared, number: u64, status: CUresult) {
        if number == 0 {
            return;
        }
        match self.kind {
            Kind::Function => {
                lock(&shared.functions).remove(&number);
                shared.tell(number, status);
            }
            Kind::Send => {
                shared.post(&Push::NoData {
                    payload: number,
                    status,
                });
                shared.read_over(number);
            }
            // Bytes that nobody grants do not come.
            Kind::Fetch => {}
        }
    }

    /// Whether no launch has this before it.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    /// Whether it has memory of the host.
    pub(crate) fn has_memory(&self) -> bool {
        !self.staging.0.is_null()
    }

    /// Gives the memory back. Nothing uses it any more, and the context is current.
    pub(crate) fn release(&self, api: &dyn CudaApi) {
        if !self.staging.0.is_null() {
            // SAFETY: the memory came from the driver, and ends once: the owner of the node calls this.
            unsafe { api.cuMemFreeHost(self.staging.0) };
        }
    }

    /// On the driver's thread: returns when the client is done.
    fn reached(&self) {
        let number = lock(&self.launches).pop_front().unwrap_or(0);
        let shared = self.shared.upgrade();
        if let (Some(shared), Some(call)) = (&shared, self.me.upgrade())
            && number != 0
        {
            let (over, done) = channel::<()>();
            shared.start(move |shared| {
                call.serve(shared, number);
                drop(over);
            });
            // Nothing is sent: it is over when the other end is gone.
            let _ = done.recv();
        }
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        if let Some(shared) = shared {
            shared.streams.wake();
        }
    }

    fn serve(&self, shared: &Arc<Shared>, number: u64) {
        if let Some(context) = self.context.upgrade() {
            context.enter(&*shared.api);
        }
        match self.kind {
            Kind::Function => {
                shared.settle_before_answer();
                shared.tell(number, CUDA_SUCCESS);
                shared.flush();
                shared.wait_returned(number);
            }
            Kind::Fetch => self.fetch(shared, number),
            Kind::Send => self.send(shared, number),
        }
    }

    fn fetch(&self, shared: &Shared, payload: u64) {
        let (sender, landed) = channel();
        let done = Box::new(move |all: bool| {
            // Nobody listens at the session's end.
            let _ = sender.send(all);
        });
        let opened = shared
            .payloads
            .open(payload, 0, self.size, self.staging, done);
        if let Err(error) = opened {
            return shared.close(&error);
        }
        shared.push(&Push::Grant {
            payload,
            offset: 0,
            length: self.size,
        });
        shared.flush();
        // Whether they came or the session has ended: the graph goes on.
        let _ = landed.recv();
    }

    fn send(&self, shared: &Arc<Shared>, payload: u64) {
        shared.read_copied(payload);
        if self.size <= SMALL as u64 {
            let memory = self.staging.0.cast::<u8>().cast_const();
            // SAFETY: the copy is done, and the next launch of the graph stands behind this.
            let bytes = unsafe { std::slice::from_raw_parts(memory, self.size as usize) };
            shared.post(&Push::Data { payload, bytes });
            shared.read_over(payload);
            return shared.flush();
        }
        let (sender, sent) = channel();
        let done = Box::new(move |all: bool| {
            // As above.
            let _ = sender.send(all);
        });
        shared
            .payloads
            .send(payload, 0, self.size, self.staging, done);
        let _ = sent.recv();
        shared.post(&Push::Sent { payload });
        shared.read_over(payload);
        shared.flush();
    }
}

/// What the driver calls.
unsafe extern "C" fn reached(data: *mut c_void) {
    // SAFETY: the node's own: whoever ends it waits until no launch has it before it.
    let call = unsafe { &*data.cast::<Call>() };
    call.reached();
}
