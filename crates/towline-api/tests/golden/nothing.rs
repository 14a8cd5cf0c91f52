// ---- the C ABI (stub)

/// Returns nothing.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clNothing(context: cl_context) {
    guard("clNothing", (), std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clNothing(library, context) }
    })
}

// ---- the contract (backend)

    /// Returns nothing.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clNothing(&self, context: cl_context) {
        let _ = (context,);
    }

// ---- the platform's method to write (stub)

    /// Returns nothing.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clNothing(&self, context: cl_context);

// ---- the platform's glue (stub)

    unsafe fn clNothing(&self, context: cl_context) {
        // SAFETY: the caller's contract, passed on.
        unsafe { CallsCalls::clNothing(self, context) }
    }

// ---- the session's half (remote)

    unsafe fn clNothing(&self, context: cl_context) {
        let _call = self.enter();
        let request = wire::Nothing { context: wire::ContextHandle::from_raw(context) };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::NothingReply::decode(&body) else {
            return;
                };
                let _ = &reply;
            }
            Err(status) => {
            return;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clNothing(&self, context: cl_context) {
        if let Some(function) = self.vendor(context.cast()).functions.clNothing {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context) };
        }
        let _ = (context,);
    }

// ---- the messages (codec)

/// Request `clNothing`: Returns nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Nothing {
    /// Parameter `context`.
    pub context: ContextHandle,
}
impl<'a> Message<'a> for Nothing {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        decoder.finish()?;
        let message = Self { context };
        Ok(message)
    }
}
impl<'a> Request<'a> for Nothing {
    const ID: u16 = 0x0114;
    const NAME: &'static str = "clNothing";
}
/// Reply to `clNothing`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct NothingReply {
}
impl<'a> Message<'a> for NothingReply {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let _ = out;
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let decoder = Decoder::new(body);
        decoder.finish()?;
        let message = Self {  };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x0114 => self.take_Nothing(number, body),
    #[inline(never)]
    fn take_Nothing(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clNothing(number, wire::Nothing::decode(body)?)
    }
    fn on_clNothing(&mut self, number: u64, request: wire::Nothing) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clNothing(context) };
            wire::CL_SUCCESS
        };
        self.reply(number, status, &wire::NothingReply {  });
        Ok(())
    }
