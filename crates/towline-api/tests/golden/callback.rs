// ---- the C ABI (stub)

/// Takes a callback, so that both halves are written by hand.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clCallback(buffer: cl_mem, notify: Option < unsafe extern "C" fn (cl_mem , * mut c_void) >, user_data: *mut c_void) -> cl_int {
    guard("clCallback", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clCallback(library, buffer, notify, user_data) }
    })
}

// ---- the contract (backend)

    /// Takes a callback, so that both halves are written by hand.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clCallback(&self, buffer: cl_mem, notify: Option < unsafe extern "C" fn (cl_mem , * mut c_void) >, user_data: *mut c_void) -> cl_int {
        let _ = (buffer, notify, user_data);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Takes a callback, so that both halves are written by hand.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clCallback(&self, buffer: cl_mem, notify: Option < unsafe extern "C" fn (cl_mem , * mut c_void) >, user_data: *mut c_void) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clCallback(&self, buffer: cl_mem, notify: Option < unsafe extern "C" fn (cl_mem , * mut c_void) >, user_data: *mut c_void) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clCallback(self, buffer, notify, user_data) };
        raw::status(result)
    }

// ---- the session's method to write (remote)

    /// # Safety
    /// The contract of the C function.
    unsafe fn clCallback(&self, buffer: cl_mem, notify: Option < unsafe extern "C" fn (cl_mem , * mut c_void) >, user_data: *mut c_void) -> cl_int;

// ---- the session's half (remote)

    unsafe fn clCallback(&self, buffer: cl_mem, notify: Option < unsafe extern "C" fn (cl_mem , * mut c_void) >, user_data: *mut c_void) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract, passed on.
        unsafe { CallsCalls::clCallback(self, buffer, notify, user_data) }
    }

// ---- the vendors' half (backend)

    unsafe fn clCallback(&self, buffer: cl_mem, notify: Option < unsafe extern "C" fn (cl_mem , * mut c_void) >, user_data: *mut c_void) -> cl_int {
        if let Some(function) = self.vendor(buffer.cast()).functions.clCallback {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(buffer, notify, user_data) };
        }
        let _ = (buffer, notify, user_data);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clCallback`: Takes a callback, so that both halves are written by hand.
#[derive(Debug, Clone, PartialEq)]
pub struct Callback {
    /// Parameter `buffer`.
    pub buffer: MemHandle,
    /// Whether the application gave a callback.
    pub notify: bool,
}
impl<'a> Message<'a> for Callback {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.buffer.put(out);
        put_flag(out, self.notify);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let buffer = decoder.scalar::<MemHandle>()?;
        let notify = decoder.flag()?;
        decoder.finish()?;
        let message = Self { buffer, notify };
        Ok(message)
    }
}
impl<'a> Request<'a> for Callback {
    const ID: u16 = 0x0110;
    const NAME: &'static str = "clCallback";
}
/// Reply to `clCallback`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct CallbackReply {
}
impl<'a> Message<'a> for CallbackReply {
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

            0x0110 => self.take_Callback(number, body),
    #[inline(never)]
    fn take_Callback(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.clCallback(number, wire::Callback::decode(body)?)
    }
