// ---- the C ABI (stub)

/// Reads text.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clInputText(context: cl_context, name: *const c_char) -> cl_int {
    guard("clInputText", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clInputText(library, context, name) }
    })
}

// ---- the contract (backend)

    /// Reads text.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clInputText(&self, context: cl_context, name: *const c_char) -> cl_int {
        let _ = (context, name);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Reads text.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clInputText(&self, context: cl_context, name: Option<&CStr>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clInputText(&self, context: cl_context, name: *const c_char) -> cl_int {
        // SAFETY: the caller's contract: `name` is NULL or points as far as the declaration says.
        let name = unsafe { raw::text(name) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clInputText(self, context, name) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clInputText(&self, context: cl_context, name: *const c_char) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract: `name` is NULL or a NUL-terminated string.
        let name = unsafe { crate::raw::text(name) };
        let Some(name) = name else {
            return wire::CL_INVALID_VALUE;
        };
        let request = wire::InputText { context: wire::ContextHandle::from_raw(context), name };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::InputTextReply::decode(&body) else {
            return self.malformed();
                };
                let _ = &reply;
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clInputText(&self, context: cl_context, name: *const c_char) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clInputText {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, name) };
        }
        let _ = (context, name);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clInputText`: Reads text.
#[derive(Debug, Clone, PartialEq)]
pub struct InputText<'a> {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `name`.
    pub name: &'a [u8],
}
impl<'a> Message<'a> for InputText<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        put_blob(out, self.name);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let name = decoder.blob()?;
        decoder.finish()?;
        let message = Self { context, name };
        Ok(message)
    }
}
impl<'a> Request<'a> for InputText<'a> {
    const ID: u16 = 0x010b;
    const NAME: &'static str = "clInputText";
}
/// Reply to `clInputText`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct InputTextReply {
}
impl<'a> Message<'a> for InputTextReply {
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

            0x010b => self.take_InputText(number, body),
    #[inline(never)]
    fn take_InputText(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clInputText(number, wire::InputText::decode(body)?)
    }
    fn on_clInputText(&mut self, number: u64, request: wire::InputText<'_>) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            let name = Some(request.name).map(c_string);
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clInputText(context, (name.as_ref().map_or(std::ptr::null(), |text| text.as_ptr()))) }
        };
        self.reply(number, status, &wire::InputTextReply {  });
        Ok(())
    }
