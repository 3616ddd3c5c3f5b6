//! [`Modules`]: the loaded modules with their functions, and the registered kernels.

use super::kernel::{Kernel, KernelCode};
use crate::codes::{Failure, Outcome};
use crate::ptx::{EntryPoint, entry_points};
use std::collections::HashMap;
use std::sync::Arc;

/// A loaded module.
#[derive(Debug)]
struct Module {
    /// The device whose context it is loaded in.
    device: usize,
    entries: Vec<EntryPoint>,
}

/// An entry point that the program looked up.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    module: u64,
    entry: EntryPoint,
}

/// The modules of all contexts.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    loaded: HashMap<u64, Module>,
    functions: HashMap<u64, Function>,
    kernels: HashMap<String, Arc<Kernel>>,
    /// Why the last module or launch of PTX was refused.
    pub(crate) refusal: Option<String>,
}

impl Modules {
    pub(crate) fn register(&mut self, name: String, kernel: Kernel) {
        self.kernels.insert(name, Arc::new(kernel));
    }

    /// Returns what an entry point does: what was registered under its name, or its PTX.
    pub(crate) fn code(&self, entry: &EntryPoint) -> Option<KernelCode> {
        let registered = self.kernels.get(&*entry.name).cloned().map(KernelCode::Registered);
        registered.or_else(|| entry.program.clone().ok().map(KernelCode::Ptx))
    }

    pub(crate) fn unload_all(&mut self) {
        self.loaded.clear();
        self.functions.clear();
        self.refusal = None;
    }

    /// Returns the number of loaded modules.
    pub(crate) fn count(&self) -> usize {
        self.loaded.len()
    }

    /// Unloads the modules of a context that ends.
    pub(crate) fn unload_of(&mut self, device: usize) {
        self.loaded.retain(|_, module| module.device != device);
        self.functions.retain(|_, function| self.loaded.contains_key(&function.module));
    }

    /// Reads a module. Code that is not known is accepted only for a registered kernel, which stands for it.
    pub(crate) fn load(&mut self, module: u64, device: usize, ptx: &str) -> Outcome {
        let entries = entry_points(ptx).map_err(|refusal| self.refuse(refusal))?;
        let unknown = entries.iter().find(|entry| self.code(entry).is_none());
        if let Some(Err(refusal)) = unknown.map(|entry| entry.program.as_ref()) {
            let refusal = (**refusal).to_owned();
            return Err(self.refuse(refusal));
        }
        self.loaded.insert(module, Module { device, entries });
        Ok(())
    }

    fn refuse(&mut self, refusal: String) -> Failure {
        self.refusal = Some(refusal);
        Failure::INVALID_PTX
    }

    pub(crate) fn unload(&mut self, module: u64) -> Outcome {
        self.loaded.remove(&module).ok_or(Failure::INVALID_HANDLE)?;
        self.functions.retain(|_, function| function.module != module);
        Ok(())
    }

    /// Looks an entry point up in a module.
    pub(crate) fn find(&self, module: u64, name: &str) -> Outcome<Function> {
        let loaded = self.loaded.get(&module).ok_or(Failure::INVALID_HANDLE)?;
        let entry = loaded.entries.iter().find(|entry| &*entry.name == name).ok_or(Failure::NOT_FOUND)?;
        Ok(Function { module, entry: entry.clone() })
    }

    /// Gives a function the handle that the program knows it by.
    pub(crate) fn add_function(&mut self, handle: u64, function: Function) {
        self.functions.insert(handle, function);
    }

    pub(crate) fn function(&self, handle: u64) -> Outcome<&EntryPoint> {
        self.functions.get(&handle).map(|function| &function.entry).ok_or(Failure::INVALID_HANDLE)
    }
}
