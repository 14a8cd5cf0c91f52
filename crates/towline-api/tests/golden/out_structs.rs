// ---- the C ABI (stub)

/// Answers with structures, and says how many there are.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clOutStructs(context: cl_context, count: cl_uint, regions: *mut cl_region, count_ret: *mut cl_uint) -> cl_int {
    guard("clOutStructs", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clOutStructs(library, context, count, regions, count_ret) }
    })
}

// ---- the contract (backend)

    /// Answers with structures, and says how many there are.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clOutStructs(&self, context: cl_context, count: cl_uint, regions: *mut cl_region, count_ret: *mut cl_uint) -> cl_int {
        let _ = (context, count, regions, count_ret);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Answers with structures, and says how many there are.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clOutStructs(&self, context: cl_context, count: cl_uint, regions: OutList<cl_region>, count_ret: Out<cl_uint>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clOutStructs(&self, context: cl_context, count: cl_uint, regions: *mut cl_region, count_ret: *mut cl_uint) -> cl_int {
        // SAFETY: the caller's contract: `regions` is NULL or points as far as the declaration says.
        let regions = unsafe { OutList::new(regions, count as usize) };
        // SAFETY: the caller's contract: `count_ret` is NULL or points as far as the declaration says.
        let count_ret = unsafe { Out::new(count_ret) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clOutStructs(self, context, count, regions, count_ret) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clOutStructs(&self, context: cl_context, count: cl_uint, regions: *mut cl_region, count_ret: *mut cl_uint) -> cl_int {
        let _call = self.enter();
        let request = wire::OutStructs { context: wire::ContextHandle::from_raw(context), count: crate::raw::room(count as u64, size_of::<cl_region>()) as u32, want_regions: !regions.is_null() };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::OutStructsReply::decode(&body) else {
            return self.malformed();
                };
                let _ = &reply;
                if let Some(value) = reply.regions {
                    // SAFETY: the caller's contract: `regions` is NULL or writable for its count, which `fill` does not exceed.
                    unsafe { crate::raw::fill(regions, (count as usize), value.iter().map(|value| value.to_raw())) };
                }
                // SAFETY: the caller's contract: `count_ret` is NULL or writable.
                unsafe { crate::raw::fill(count_ret, 1, [reply.count_ret as cl_uint].into_iter()) };
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clOutStructs(&self, context: cl_context, count: cl_uint, regions: *mut cl_region, count_ret: *mut cl_uint) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clOutStructs {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, count, regions, count_ret) };
        }
        let _ = (context, count, regions, count_ret);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clOutStructs`: Answers with structures, and says how many there are.
#[derive(Debug, Clone, PartialEq)]
pub struct OutStructs {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `count`.
    pub count: u32,
    /// Whether the caller gave room for `regions`.
    pub want_regions: bool,
}
impl<'a> Message<'a> for OutStructs {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.count.put(out);
        put_flag(out, self.want_regions);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let count = decoder.scalar::<u32>()?;
        let want_regions = decoder.flag()?;
        decoder.finish()?;
        let message = Self { context, count, want_regions };
        Ok(message)
    }
}
impl<'a> Request<'a> for OutStructs {
    const ID: u16 = 0x010e;
    const NAME: &'static str = "clOutStructs";
}
/// Reply to `clOutStructs`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct OutStructsReply<'a> {
    /// What `regions` receives.
    pub regions: Option<List<'a, Region>>,
    /// What `count_ret` receives.
    pub count_ret: u64,
}
impl<'a> Message<'a> for OutStructsReply<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_flag(out, self.regions.is_some());
        if let Some(value) = &self.regions { value.put(out); }
        self.count_ret.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let regions = if decoder.flag()? { Some(decoder.list::<Region>()?) } else { None };
        let count_ret = decoder.scalar::<u64>()?;
        decoder.finish()?;
        let message = Self { regions, count_ret };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x010e => self.take_OutStructs(number, body),
    #[inline(never)]
    fn take_OutStructs(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clOutStructs(number, wire::OutStructs::decode(body)?)
    }
    fn on_clOutStructs(&mut self, number: u64, request: wire::OutStructs) -> Result<(), ProtocolError> {
        let mut regions: Vec<cl_region> = Vec::new();
        let mut count_ret: cl_uint = Default::default();
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            regions = if request.want_regions { room::<cl_region>((request.count as u64))? } else { Vec::new() };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clOutStructs(context, request.count as cl_uint, if request.want_regions { regions.as_mut_ptr() } else { std::ptr::null_mut() }, &raw mut count_ret) }
        };
        self.reply(number, status, &wire::OutStructsReply { regions: request.want_regions.then_some(wire::List::Values(&regions.iter().take(reported(regions.len(), count_ret as u64)).map(|&value| wire::Region::from(value)).collect::<Vec<_>>())), count_ret: count_ret as u64 });
        Ok(())
    }
