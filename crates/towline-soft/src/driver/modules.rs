//! Modules, libraries and their kernels.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use towline_backend::cuda::*;
use towline_ptx::ir::{Body, FunctionId, ParameterPlace};

use super::attributes::SHARED_BYTES;
use super::link::Logs;
use super::{SoftCuda, State, fresh, lock};
use crate::image::{Image, LoadError, text_of};

/// The driver's name for PTX that is no part of a link.
const INPUT: &str = "application ptx input";

/// A module, or a library, which is loaded on each device where it is used.
pub(super) struct Module {
    /// The context that it ends with; none for a library.
    context: Option<usize>,
    text: String,
    /// By device.
    images: Mutex<HashMap<u32, Arc<Image>>>,
    /// Handles of its kernels, in its order.
    pub(super) functions: Vec<usize>,
}

impl Module {
    /// Addresses of variables that stand for textures and surfaces, on all devices.
    pub(super) fn objects(&self) -> Vec<u64> {
        let images = lock(&self.images);
        images.values().flat_map(|image| image.objects()).collect()
    }
}

/// A kernel of a module.
pub(super) struct Function {
    pub(super) module: Arc<Module>,
    pub(super) id: FunctionId,
    pub(super) name: CString,
    /// Dynamic shared memory that launches may ask for.
    pub(super) most_dynamic: AtomicI32,
    carveout: AtomicI32,
}

/// What the driver answers for an image that cannot be loaded.
pub(super) fn status(error: &LoadError) -> CUresult {
    match error {
        LoadError::Image(towline_ptx::Error::Syntax(_)) => CUDA_ERROR_INVALID_PTX,
        LoadError::Image(_) => CUDA_ERROR_INVALID_IMAGE,
        LoadError::Kernels { .. } | LoadError::Link(_) | LoadError::Missing { .. } => {
            CUDA_ERROR_INVALID_PTX
        }
        LoadError::MachineCode(_) | LoadError::NoPtx { .. } => CUDA_ERROR_NO_BINARY_FOR_GPU,
        LoadError::NoMemory(_) => CUDA_ERROR_OUT_OF_MEMORY,
        LoadError::Version { .. } => CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    }
}

impl SoftCuda {
    /// Loads an image in the current context, or a library on its device. What is wrong with it is told, and written to the logs.
    ///
    /// A module none of whose kernels can run is refused, as the driver refuses PTX that it cannot compile. Kernels of a library, and some
    /// of a module's, are refused when they are launched.
    fn load(&self, image: &[u8], library: bool, logs: &Logs) -> Result<Arc<Module>, CUresult> {
        let context = self.context()?;
        let device = context.device as u32;
        let loaded = text_of(image, self.capability()).and_then(|text| {
            let image = self.load_image(text.clone(), device)?;
            match image.refusals(self.capability()) {
                Ok(refusals) => {
                    let lines: String = refusals.iter().map(|refusal| refusal.log(INPUT)).collect();
                    logs.remark(&lines);
                }
                Err(error) if !library => return Err(error),
                Err(error) => logs.remark(&error.log(INPUT)),
            }
            Ok((text, Arc::new(image)))
        });
        let (text, image) = loaded.map_err(|error| {
            self.tell_unloadable("load a module", &error.to_string());
            logs.say_wrong(&error.log(INPUT));
            status(&error)
        })?;
        self.enter_samplers(&image);
        let kernels: Vec<_> = (0..)
            .zip(&image.program.functions)
            .filter(|(_, function)| function.entry && !matches!(function.body, Body::Declared))
            .map(|(number, function)| (FunctionId(number), function.name.clone(), fresh()))
            .collect();
        let module = Arc::new(Module {
            context: (!library).then_some(context.handle),
            text,
            images: Mutex::new(HashMap::from([(device, image)])),
            functions: kernels.iter().map(|(_, _, handle)| *handle).collect(),
        });
        let mut state = self.lock();
        for (id, name, handle) in kernels {
            let function = Function {
                module: Arc::clone(&module),
                id,
                // A name of PTX has no NUL.
                name: CString::new(name).unwrap_or_default(),
                most_dynamic: AtomicI32::new(-1),
                carveout: AtomicI32::new(-1),
            };
            state.functions.insert(handle, Arc::new(function));
        }
        Ok(module)
    }

    /// Gives code its memory on a device, which has no more than it is said to have.
    fn load_image(&self, text: String, device: u32) -> Result<Image, LoadError> {
        Image::load_within(text, (&self.arena, device), self.free_bytes(device))
    }

    /// Tells that device code is of no use; the same fault of it once.
    pub(super) fn tell_unloadable(&self, what: &str, why: &str) {
        let text = || format!("could not {what}: {why}");
        self.messages
            .tell(why, "device code that cannot be used", text);
    }

    pub(super) fn load_module(&self, image: &[u8], logs: &Logs) -> Result<usize, CUresult> {
        let module = self.load(image, false, logs)?;
        let handle = fresh();
        self.lock().modules.insert(handle, module);
        Ok(handle)
    }

    pub(super) fn load_library(&self, image: &[u8], logs: &Logs) -> Result<usize, CUresult> {
        let module = self.load(image, true, logs)?;
        let handle = fresh();
        self.lock().libraries.insert(handle, module);
        Ok(handle)
    }

    pub(super) fn unload_module(&self, handle: usize) -> Result<(), CUresult> {
        let module = self.lock().modules.remove(&handle);
        self.forget(module.ok_or(CUDA_ERROR_INVALID_HANDLE)?)
    }

    pub(super) fn unload_library(&self, handle: usize) -> Result<(), CUresult> {
        let module = self.lock().libraries.remove(&handle);
        self.forget(module.ok_or(CUDA_ERROR_INVALID_HANDLE)?)
    }

    /// Its memory stays as long as kernels run that were launched before.
    fn forget(&self, module: Arc<Module>) -> Result<(), CUresult> {
        self.forget_references(&module);
        let mut state = self.lock();
        for handle in &module.functions {
            state.functions.remove(handle);
        }
        Ok(())
    }

    /// Modules end with the context that they were loaded in. Libraries stay; on a device without contexts they have no memory, and are
    /// loaded anew when a context comes to use them.
    pub(super) fn end_modules(state: &mut State, context: usize, device_is_left: Option<u32>) {
        let mut gone = Vec::new();
        state.modules.retain(|_, module| {
            let stays = module.context != Some(context);
            if !stays {
                gone.extend_from_slice(&module.functions);
            }
            stays
        });
        for function in gone {
            state.functions.remove(&function);
        }
        if let Some(device) = device_is_left {
            for library in state.libraries.values() {
                lock(&library.images).remove(&device);
            }
        }
    }

    /// A module, or the module that a library is.
    pub(super) fn module(&self, handle: usize) -> Result<Arc<Module>, CUresult> {
        let state = self.lock();
        let found = state
            .modules
            .get(&handle)
            .or_else(|| state.libraries.get(&handle));
        found.cloned().ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    pub(super) fn function(&self, handle: usize) -> Result<Arc<Function>, CUresult> {
        let found = self.lock().functions.get(&handle).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// A module on the current device.
    pub(super) fn image(&self, module: &Module) -> Result<Arc<Image>, CUresult> {
        let device = self.context()?.device as u32;
        let mut images = lock(&module.images);
        if let Some(image) = images.get(&device) {
            return Ok(Arc::clone(image));
        }
        let loaded = self.load_image(module.text.clone(), device);
        let image = Arc::new(loaded.map_err(|error| status(&error))?);
        self.enter_samplers(&image);
        images.insert(device, Arc::clone(&image));
        Ok(image)
    }

    pub(super) fn find_function(&self, module: usize, name: &str) -> Result<usize, CUresult> {
        let module = self.module(module)?;
        let state = self.lock();
        let named = module.functions.iter().find(|handle| {
            let function = state.functions.get(handle);
            function.is_some_and(|function| function.name.as_bytes() == name.as_bytes())
        });
        named.copied().ok_or(CUDA_ERROR_NOT_FOUND)
    }

    pub(super) fn global(
        &self,
        module: usize,
        name: &str,
    ) -> Result<(CUdeviceptr, usize), CUresult> {
        let module = self.module(module)?;
        let found = self.image(&module)?.global(name);
        let (address, len) = found.ok_or(CUDA_ERROR_NOT_FOUND)?;
        Ok((address, len as usize))
    }

    /// Address and size of a variable that the host sees as well.
    pub(super) fn managed(
        &self,
        library: usize,
        name: &str,
    ) -> Result<(CUdeviceptr, usize), CUresult> {
        let module = self.module(library)?;
        let variables = &self.image(&module)?.program.variables;
        let known = variables.iter().find(|variable| variable.name == name);
        match known.is_some_and(|variable| variable.managed) {
            true => self.global(library, name),
            false => Err(CUDA_ERROR_NOT_FOUND),
        }
    }

    /// Offset and size of a parameter.
    pub(super) fn parameter(
        &self,
        function: usize,
        index: usize,
    ) -> Result<(usize, usize), CUresult> {
        let function = self.function(function)?;
        let image = self.image(&function.module)?;
        let kernel = image.program.function(function.id);
        let parameter = kernel.and_then(|kernel| kernel.parameters.get(index));
        match parameter.map(|parameter| (parameter.place, parameter.len)) {
            Some((ParameterPlace::Memory(offset), len)) => Ok((offset as usize, len as usize)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(super) fn function_attribute(
        &self,
        function: usize,
        which: CUfunction_attribute,
    ) -> Result<i32, CUresult> {
        let function = self.function(function)?;
        let image = self.image(&function.module)?;
        let kernel = image
            .program
            .function(function.id)
            .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let shared = || image.shared_bytes(function.id).min(i32::MAX as u32) as i32;
        let (major, minor) = self.options.capability;
        let version = (major * 10 + minor) as i32;
        Ok(match which {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => {
                let limits = kernel.limits.exact_threads.or(kernel.limits.most_threads);
                let most = limits.map_or(1024, |[x, y, z]| {
                    u64::from(x)
                        .saturating_mul(u64::from(y))
                        .saturating_mul(z.into())
                });
                most.clamp(1, 1024) as i32
            }
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => shared(),
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => match &kernel.body {
                Body::Code(code) => code.local_bytes as i32,
                _ => 0,
            },
            CU_FUNC_ATTRIBUTE_NUM_REGS => match &kernel.body {
                Body::Code(code) => code.registers.clamp(8, 255) as i32,
                _ => 8,
            },
            CU_FUNC_ATTRIBUTE_PTX_VERSION | CU_FUNC_ATTRIBUTE_BINARY_VERSION => version,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                match function.most_dynamic.load(Ordering::Relaxed) {
                    -1 => (SHARED_BYTES - shared()).max(0),
                    set => set,
                }
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                function.carveout.load(Ordering::Relaxed)
            }
            which if which < CU_FUNC_ATTRIBUTE_MAX => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    pub(super) fn set_function_attribute(
        &self,
        function: usize,
        which: CUfunction_attribute,
        value: i32,
    ) -> Result<(), CUresult> {
        let function = self.function(function)?;
        match which {
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let image = self.image(&function.module)?;
                let fixed = image.shared_bytes(function.id).min(i32::MAX as u32) as i32;
                if value < 0 || value > self.most_shared() - fixed {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                function.most_dynamic.store(value, Ordering::Relaxed);
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                if !(-1..=100).contains(&value) {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                function.carveout.store(value, Ordering::Relaxed);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}
