//! Machine code, and the cache of it.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{
    AbiParam, FuncRef, Function, InstBuilder, MemFlags, Signature, Type, UserFuncName, types,
};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};
use towline_ptx::ir::FunctionId;

use super::emit::{Emitter, Helpers, Outline, signature};
use super::flat::{Flat, flatten};
use super::head::{Head, offset};
use super::{Refusal, helpers};
use crate::image::Kernel;

/// What compiled kernels look like: the block, and which lanes of a warp are to go on, of which there must be one.
type Entry = unsafe extern "C" fn(*mut Head, u32);

/// Kernels that are kept compiled.
const KEPT: usize = 256;

/// A compiled kernel.
pub(crate) struct Compiled {
    pub(super) flat: Flat,
    pub(super) outline: Outline,
    entry: Entry,
    /// Bytes of machine code, and how long it took to make.
    pub(crate) code_bytes: usize,
    pub(crate) took: Duration,
    /// Holds the memory of the code.
    module: ManuallyDrop<Mutex<JITModule>>,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: it is taken here only, where nobody can use it any more.
        let module = unsafe { ManuallyDrop::take(&mut self.module) };
        let module = module.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: launches hold the kernel that they run, so no thread is in its code, and nothing else points there.
        unsafe { module.free_memory() };
    }
}

fn compiler(error: impl std::fmt::Display) -> Refusal {
    Refusal::Compiler(error.to_string())
}

/// What the host's processor can do.
fn isa() -> Result<OwnedTargetIsa, Refusal> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        (
            "enable_verifier",
            if cfg!(debug_assertions) {
                "true"
            } else {
                "false"
            },
        ),
        ("unwind_info", "false"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
    ] {
        flags.set(name, value).map_err(compiler)?;
    }
    let isa = cranelift_native::builder().map_err(compiler)?;
    isa.finish(settings::Flags::new(flags)).map_err(compiler)
}

/// Whether the host's processor has something that is a choice there.
fn has(isa: &OwnedTargetIsa, name: &str) -> bool {
    let flags = isa.isa_flags();
    let mut found = flags.iter().filter(|flag| flag.name == name);
    match found.next() {
        Some(flag) => flag.as_bool() == Some(true),
        // Where that is not a choice it is always there.
        None => true,
    }
}

fn import(
    module: &mut JITModule,
    function: &mut Function,
    name: &str,
    params: &[Type],
    returns: &[Type],
) -> Result<FuncRef, Refusal> {
    let mut signature = Signature::new(module.isa().default_call_conv());
    signature
        .params
        .extend(params.iter().map(|ty| AbiParam::new(*ty)));
    signature
        .returns
        .extend(returns.iter().map(|ty| AbiParam::new(*ty)));
    let id = module
        .declare_function(name, Linkage::Import, &signature)
        .map_err(compiler)?;
    Ok(module.declare_func_in_func(id, function))
}

/// A function around a helper that leaves all registers as they were, so that kernels need not keep values in memory for calls that
/// hardly ever happen. No register is left for its result: that is the head's answer.
fn sparing(
    module: &mut JITModule,
    function: &mut Function,
    name: &str,
    params: &[Type],
) -> Result<FuncRef, Refusal> {
    let mut context = module.make_context();
    let mut signature = Signature::new(CallConv::PreserveAll);
    signature
        .params
        .extend(params.iter().map(|ty| AbiParam::new(*ty)));
    context.func = Function::with_name_signature(UserFuncName::default(), signature.clone());
    let helper = import(module, &mut context.func, name, params, &[types::I64])?;
    let mut shared = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut shared);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let inputs = builder.block_params(entry).to_vec();
    let call = builder.ins().call(helper, &inputs);
    let result = builder.inst_results(call)[0];
    let (head, flags) = (inputs[0], MemFlags::trusted());
    builder.ins().store(flags, result, head, offset!(answer));
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize();
    let id = define(module, &mut context, &signature)?;
    Ok(module.declare_func_in_func(id, function))
}

/// Makes machine code of a function.
fn define(
    module: &mut JITModule,
    context: &mut Context,
    signature: &Signature,
) -> Result<FuncId, Refusal> {
    let id = module
        .declare_anonymous_function(signature)
        .map_err(compiler)?;
    module
        .define_function_with_control_plane(id, context, &mut ControlPlane::default())
        .map_err(|error| Refusal::Compiler(format!("{error:?}")))?;
    Ok(id)
}

impl Compiled {
    /// Translates a kernel.
    pub(crate) fn new(kernel: &Kernel) -> Result<Self, Refusal> {
        let started = Instant::now();
        let mut flat = flatten(kernel)?;
        let isa = isa()?;
        // Products and sums that are fused, and vectors that need not be aligned where they are read.
        let (has_fma, has_vectors) = (has(&isa, "has_fma"), has(&isa, "has_avx"));
        let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
        builder.symbols(helpers::table());
        let mut module = JITModule::new(builder);
        let mut context = module.make_context();
        let convention: CallConv = module.isa().default_call_conv();
        context.func =
            Function::with_name_signature(UserFuncName::default(), signature(convention));
        const I64: Type = types::I64;
        let function = &mut context.func;
        let imported = Helpers {
            access: sparing(&mut module, function, "access", &[I64; 4])?,
            atomic: import(&mut module, function, "atomic", &[I64; 6], &[I64])?,
            evaluate: import(&mut module, function, "evaluate", &[I64; 7], &[I64])?,
            evaluate_rarely: sparing(&mut module, function, "evaluate", &[I64; 7])?,
            fail: import(&mut module, function, "fail", &[I64; 3], &[])?,
            special: import(&mut module, function, "special", &[I64; 2], &[I64])?,
            texture: import(&mut module, function, "texture", &[I64; 3], &[I64])?,
        };
        let mut shared = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut context.func, &mut shared);
        let outline = Emitter::emit(&mut builder, &mut flat, imported, has_fma, has_vectors)?;
        builder.finalize();
        let signature = context.func.signature.clone();
        let id = define(&mut module, &mut context, &signature)?;
        let code_bytes = context
            .compiled_code()
            .map_or(0, |code| code.code_buffer().len());
        // From here on the code can be executed, and not be written any more.
        module.finalize_definitions().map_err(compiler)?;
        let entry = module.get_finalized_function(id);
        // SAFETY: the function was made with this signature, for this convention.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(entry) };
        Ok(Self {
            flat,
            outline,
            entry,
            code_bytes,
            took: started.elapsed(),
            module: ManuallyDrop::new(Mutex::new(module)),
        })
    }

    /// Runs lanes of a warp that have the head's state until each has stopped, or one has failed.
    pub(super) fn run(&self, head: *mut Head, mask: u32) {
        if mask == 0 {
            return;
        }
        // SAFETY: `head` is that of a block of this kernel, whose fields are set for the warp (see `run::Threads`); everything that the code
        // reaches from there is as large as the outline says, and accesses of the program are checked.
        unsafe { (self.entry)(head, mask) };
    }

    /// Whether some access looks at memory that others may change.
    pub(super) fn is_polling(&self) -> bool {
        self.outline.polls
    }
}

/// What is known of a kernel.
type Known = Result<Arc<Compiled>, Refusal>;

/// Kernels that were compiled, by the hash of their module's text and their number in it.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    kernels: Mutex<HashMap<([u8; 32], FunctionId), Known>>,
}

impl Cache {
    /// A kernel's code, made if it is not there yet; or why there is none.
    pub(crate) fn get(&self, kernel: &Kernel) -> Known {
        let key = (kernel.image.hash, kernel.entry());
        let lock = || self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let made = Compiled::new(kernel).map(Arc::new);
        match &made {
            Ok(code) => log::debug!(
                "compiled the kernel `{}`: {} bytes of code in {:?}",
                kernel.name(),
                code.code_bytes,
                code.took
            ),
            Err(why) => {
                log::debug!(
                    "the kernel `{}` stays with the interpreter: {why}",
                    kernel.name()
                );
            }
        }
        let mut kernels = lock();
        if kernels.len() >= KEPT {
            kernels.clear();
        }
        kernels.insert(key, made.clone());
        made
    }
}
