//! Modules and kernels: PTX is read for the names and parameters of its entry points; what a kernel does is a
//! function that the program registered under that name.

use crate::call::as_callback;
use crate::codes::{CUresult, Failure, Outcome};
use crate::control::{SimAccess, SimKernel, SimLaunch};
use crate::work::MemoryAccess;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

/// A registered kernel. It is called from whichever thread completes the operation.
#[derive(Debug)]
pub(crate) struct Kernel(SimKernel);

// SAFETY: the caller that registers a kernel guarantees that its functions can be called from any thread, one
// call at a time (`SimKernel`).
unsafe impl Send for Kernel {}
// SAFETY: as above; all calls are made with the driver locked.
unsafe impl Sync for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The driver may be locked: code of the program that runs now must not call it.
        as_callback(|| {
            // SAFETY: the kernel owns its context, and this is its last use.
            unsafe { (self.0.drop)(self.0.context) };
        });
    }
}

impl Kernel {
    pub(crate) fn new(kernel: SimKernel) -> Self {
        Self(kernel)
    }
}

/// A launch, with a copy of its arguments.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) name: Arc<str>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<Vec<u8>>,
}

impl Launch {
    fn with_record<R>(&self, function: impl FnOnce(&SimLaunch) -> R) -> R {
        let pointers: Vec<*const u8> = self.arguments.iter().map(|argument| argument.as_ptr()).collect();
        let sizes: Vec<usize> = self.arguments.iter().map(Vec::len).collect();
        function(&SimLaunch {
            name: self.name.as_ptr(),
            name_length: self.name.len(),
            grid: self.grid,
            block: self.block,
            shared: self.shared,
            arguments: pointers.as_ptr(),
            argument_sizes: sizes.as_ptr(),
            argument_count: sizes.len(),
        })
    }

    /// Returns the memory that the kernel says it accesses.
    pub(crate) fn accesses(&self) -> Vec<MemoryAccess> {
        extern "C" fn sink(accesses: *mut c_void, access: SimAccess) {
            // SAFETY: the pointer is the one that `accesses` passes along with this function, to a vector
            // that nothing else uses until the call returns.
            let accesses = unsafe { &mut *accesses.cast::<Vec<MemoryAccess>>() };
            accesses.push(MemoryAccess::from(access));
        }
        let mut accesses: Vec<MemoryAccess> = Vec::new();
        let pointer: *mut Vec<MemoryAccess> = &raw mut accesses;
        self.with_record(|record| {
            let SimKernel { context, accesses, .. } = self.kernel.0;
            // SAFETY: the context is the kernel's own, and the record is valid during the call.
            unsafe { accesses(context, record, pointer.cast(), sink) };
        });
        accesses
    }

    /// Runs the kernel's function.
    pub(crate) fn run(&self) -> Outcome {
        let code: CUresult = self.with_record(|record| {
            let SimKernel { context, run, .. } = self.kernel.0;
            // SAFETY: the context is the kernel's own, and the record is valid during the call.
            unsafe { run(context, record) }
        });
        if code == 0 { Ok(()) } else { Err(Failure(code)) }
    }
}

/// An entry point of a module: its name and the sizes of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    pub(crate) name: Arc<str>,
    pub(crate) sizes: Vec<usize>,
    module: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// Entry points by module.
    loaded: HashMap<u64, Vec<EntryPoint>>,
    functions: HashMap<u64, EntryPoint>,
    kernels: HashMap<String, Arc<Kernel>>,
}

impl Modules {
    pub(crate) fn register(&mut self, name: String, kernel: Kernel) {
        self.kernels.insert(name, Arc::new(kernel));
    }

    pub(crate) fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels.get(name).cloned()
    }

    pub(crate) fn unload_all(&mut self) {
        self.loaded.clear();
        self.functions.clear();
    }

    pub(crate) fn load(&mut self, module: u64, ptx: &str) -> Outcome {
        let entries = entry_points(ptx, module).ok_or(Failure::INVALID_PTX)?;
        self.loaded.insert(module, entries);
        Ok(())
    }

    pub(crate) fn unload(&mut self, module: u64) -> Outcome {
        self.loaded.remove(&module).ok_or(Failure::INVALID_HANDLE)?;
        self.functions.retain(|_, entry| entry.module != module);
        Ok(())
    }

    pub(crate) fn find(&self, module: u64, name: &str) -> Outcome<EntryPoint> {
        let entries = self.loaded.get(&module).ok_or(Failure::INVALID_HANDLE)?;
        entries.iter().find(|entry| &*entry.name == name).cloned().ok_or(Failure::NOT_FOUND)
    }

    pub(crate) fn add_function(&mut self, function: u64, entry: EntryPoint) {
        self.functions.insert(function, entry);
    }

    pub(crate) fn function(&self, function: u64) -> Outcome<&EntryPoint> {
        self.functions.get(&function).ok_or(Failure::INVALID_HANDLE)
    }
}

/// Returns the entry points of PTX text, or `None` if it is not PTX.
fn entry_points(ptx: &str, module: u64) -> Option<Vec<EntryPoint>> {
    let text: String =
        ptx.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join(" ");
    if !text.contains(".version") || !text.contains(".target") {
        return None;
    }
    let mut entries = Vec::new();
    for entry in text.split(".entry").skip(1) {
        let head = entry.split('{').next()?;
        let (name, parameters) = match head.split_once('(') {
            Some((name, rest)) => (name, rest.split(')').next()?),
            None => (head, ""),
        };
        let parameters = parameters.split(',').filter(|parameter| !parameter.trim().is_empty());
        let sizes = parameters.map(parameter_size).collect::<Option<Vec<usize>>>()?;
        entries.push(EntryPoint { name: Arc::from(name.trim()), sizes, module });
    }
    Some(entries)
}

/// Returns the size of a parameter such as `.param .u64 a` or `.param .align 8 .b8 b[24]`.
fn parameter_size(parameter: &str) -> Option<usize> {
    let mut size = None;
    for word in parameter.split_whitespace() {
        size = size.or_else(|| {
            let bits = word.strip_prefix(['.']).and_then(|word| word.strip_prefix(['u', 's', 'b', 'f']));
            bits.and_then(|bits| bits.parse::<usize>().ok()).map(|bits| bits / 8)
        });
    }
    let count = parameter.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.trim().parse().ok());
    size.map(|size| size * count.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_and_their_parameters_are_read() {
        let ptx = ".version 7.0\n.target sm_52\n.address_size 64\n// .entry no(\n.visible .entry fill(\n \
                   .param .u64 fill_0,\n .param .align 8 .b8 fill_1[24], // (a shape)\n \
                   .param .f32 fill_2\n)\n{\n ret;\n}\n.entry none\n{ ret; }";
        let entries = entry_points(ptx, 1).unwrap_or_default();
        let found: Vec<(&str, &[usize])> =
            entries.iter().map(|entry| (&*entry.name, entry.sizes.as_slice())).collect();
        assert_eq!(found, [("fill", &[8, 24, 4][..]), ("none", &[])]);
        assert_eq!(entry_points("\u{7f}ELF", 1), None);
    }
}
