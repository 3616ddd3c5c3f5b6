//! Modules and kernels: what a kernel does is a function that the program registered under its name, or else
//! its PTX.

use crate::call::as_callback;
use crate::codes::{CUresult, Failure, Outcome};
use crate::control::{SimAccess, SimKernel, SimLaunch};
use crate::driver::Driver;
use crate::memory::MemoryAccess;
use crate::ptx::{AccessedMemory, Parameter, Program, Recorder, Shape};
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

/// What a kernel does.
#[derive(Debug, Clone)]
pub(crate) enum KernelCode {
    /// A function of the program.
    Registered(Arc<Kernel>),
    Ptx(Arc<Program>),
}

/// A launch, with a copy of its arguments.
#[derive(Debug)]
pub(crate) struct Launch {
    name: Arc<str>,
    code: KernelCode,
    shape: Shape,
    shared: u32,
    arguments: Vec<Vec<u8>>,
    /// For PTX, what it accesses, or how it fails.
    traced: Outcome<Vec<MemoryAccess>>,
}

impl Launch {
    pub(crate) fn new(
        name: Arc<str>,
        code: KernelCode,
        shape: Shape,
        shared: u32,
        arguments: Vec<Vec<u8>>,
    ) -> Self {
        Self { name, code, shape, shared, arguments, traced: Ok(Vec::new()) }
    }

    /// Returns the memory that the kernel accesses. A launch that fails accesses none.
    ///
    /// # Errors
    ///
    /// `NOT_SUPPORTED` if PTX accesses what only its data decides.
    pub(crate) fn trace(&mut self, driver: &mut Driver, stream: u64) -> Outcome<Vec<MemoryAccess>> {
        let program = match &self.code {
            KernelCode::Registered(kernel) => return Ok(self.declared(kernel)),
            KernelCode::Ptx(program) => program,
        };
        let mut recorder = Recorder::default();
        let traced = program.execute(self.shape, &self.arguments, &mut recorder);
        if let Some(write) = recorder.written_twice() {
            driver.report_race_within(&self.name, stream, write);
        }
        self.traced = traced.map(|()| {
            let found = recorder.finish();
            found.into_iter().flat_map(|access| driver.by_allocation(access)).collect()
        });
        match &self.traced {
            Err(Failure::NOT_SUPPORTED) => Err(Failure::NOT_SUPPORTED),
            traced => Ok(traced.clone().unwrap_or_default()),
        }
    }

    fn with_record<R>(&self, function: impl FnOnce(&SimLaunch) -> R) -> R {
        let pointers: Vec<*const u8> = self.arguments.iter().map(|argument| argument.as_ptr()).collect();
        let sizes: Vec<usize> = self.arguments.iter().map(Vec::len).collect();
        function(&SimLaunch {
            name: self.name.as_ptr(),
            name_length: self.name.len(),
            grid: self.shape.grid,
            block: self.shape.block,
            shared: self.shared,
            arguments: pointers.as_ptr(),
            argument_sizes: sizes.as_ptr(),
            argument_count: sizes.len(),
        })
    }

    /// Returns the memory that a registered kernel says it accesses.
    fn declared(&self, kernel: &Kernel) -> Vec<MemoryAccess> {
        extern "C" fn sink(accesses: *mut c_void, access: SimAccess) {
            // SAFETY: the pointer is the one that `accesses` passes along with this function, to a vector
            // that nothing else uses until the call returns.
            let accesses = unsafe { &mut *accesses.cast::<Vec<MemoryAccess>>() };
            accesses.push(MemoryAccess::from(access));
        }
        let mut accesses: Vec<MemoryAccess> = Vec::new();
        let pointer: *mut Vec<MemoryAccess> = &raw mut accesses;
        as_callback(|| {
            self.with_record(|record| {
                let SimKernel { context, accesses, .. } = kernel.0;
                // SAFETY: the context is the kernel's own, and the record is valid during the call.
                unsafe { accesses(context, record, pointer.cast(), sink) };
            });
        });
        accesses
    }

    /// Runs the kernel.
    pub(crate) fn run(&self) -> Outcome {
        let kernel = match &self.code {
            KernelCode::Registered(kernel) => kernel,
            KernelCode::Ptx(program) => {
                let accesses = self.traced.as_ref().map_err(|failure| *failure)?;
                let memory = &mut AccessedMemory::new(accesses);
                return program.execute(self.shape, &self.arguments, memory);
            }
        };
        let code: CUresult = self.with_record(|record| {
            let SimKernel { context, run, .. } = kernel.0;
            // SAFETY: the context is the kernel's own, and the record is valid during the call.
            unsafe { run(context, record) }
        });
        if code == 0 { Ok(()) } else { Err(Failure(code)) }
    }
}

impl Driver {
    /// Returns an access as one for each allocation that it touches.
    fn by_allocation(&self, access: MemoryAccess) -> Vec<MemoryAccess> {
        let (mut parts, mut address) = (Vec::new(), access.address);
        let end = access.address + access.bytes;
        while address < end {
            let of_allocation = self.memory.around(address).map(|found| found.start + found.bytes);
            let part = of_allocation.map_or(end, |allocation| allocation.min(end));
            parts.push(MemoryAccess { address, bytes: part - address, kind: access.kind });
            address = part;
        }
        parts
    }
}

/// An entry point of a module: its name, its parameters, and its code if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    pub(crate) name: Arc<str>,
    pub(crate) sizes: Vec<usize>,
    program: Option<Arc<Program>>,
    module: u64,
}

/// A loaded module.
#[derive(Debug)]
struct Module {
    /// The device whose context it is loaded in.
    device: usize,
    entries: Vec<EntryPoint>,
}

#[derive(Debug, Default)]
pub(crate) struct Modules {
    loaded: HashMap<u64, Module>,
    functions: HashMap<u64, EntryPoint>,
    kernels: HashMap<String, Arc<Kernel>>,
}

impl Modules {
    pub(crate) fn register(&mut self, name: String, kernel: Kernel) {
        self.kernels.insert(name, Arc::new(kernel));
    }

    /// Returns what an entry point does: what was registered under its name, or its PTX.
    pub(crate) fn code(&self, entry: &EntryPoint) -> Option<KernelCode> {
        let registered = self.kernels.get(&*entry.name).cloned().map(KernelCode::Registered);
        registered.or_else(|| entry.program.clone().map(KernelCode::Ptx))
    }

    pub(crate) fn unload_all(&mut self) {
        self.loaded.clear();
        self.functions.clear();
    }

    /// Returns the number of loaded modules.
    pub(crate) fn count(&self) -> usize {
        self.loaded.len()
    }

    /// Unloads the modules of a context that ends.
    pub(crate) fn unload_of(&mut self, device: usize) {
        self.loaded.retain(|_, module| module.device != device);
        self.functions.retain(|_, entry| self.loaded.contains_key(&entry.module));
    }

    /// Reads a module. Code that is not known is accepted only for a registered kernel, which stands for it.
    pub(crate) fn load(&mut self, module: u64, device: usize, ptx: &str) -> Outcome {
        let entries = entry_points(ptx, module).ok_or(Failure::INVALID_PTX)?;
        if entries.iter().any(|entry| self.code(entry).is_none()) {
            return Err(Failure::INVALID_PTX);
        }
        self.loaded.insert(module, Module { device, entries });
        Ok(())
    }

    pub(crate) fn unload(&mut self, module: u64) -> Outcome {
        self.loaded.remove(&module).ok_or(Failure::INVALID_HANDLE)?;
        self.functions.retain(|_, entry| entry.module != module);
        Ok(())
    }

    pub(crate) fn find(&self, module: u64, name: &str) -> Outcome<EntryPoint> {
        let module = self.loaded.get(&module).ok_or(Failure::INVALID_HANDLE)?;
        module.entries.iter().find(|entry| &*entry.name == name).cloned().ok_or(Failure::NOT_FOUND)
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
        let (head, rest) = entry.split_once('{')?;
        let (name, parameters) = match head.split_once('(') {
            Some((name, rest)) => (name, rest.split(')').next()?),
            None => (head, ""),
        };
        let parameters = parameters.split(',').filter(|parameter| !parameter.trim().is_empty());
        let parameters = parameters.map(parameter).collect::<Option<Vec<Parameter>>>()?;
        let sizes = parameters.iter().map(|parameter| parameter.bytes).collect();
        let program = Program::parse(body(rest)?, parameters).ok().map(Arc::new);
        entries.push(EntryPoint { name: Arc::from(name.trim()), sizes, program, module });
    }
    Some(entries)
}

/// Returns the text up to the brace that closes it.
fn body(text: &str) -> Option<&str> {
    let mut depth = 1;
    let end = text.char_indices().find(|&(_, letter)| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth == 0
    });
    Some(&text[..end?.0])
}

/// Reads a parameter such as `.param .u64 a` or `.param .align 8 .b8 b[24]`.
fn parameter(parameter: &str) -> Option<Parameter> {
    let (mut size, mut alignment, mut words) = (None, None, parameter.split_whitespace());
    let mut name = "";
    while let Some(word) = words.next() {
        name = word;
        if word == ".align" {
            alignment = Some(words.next()?.parse().ok()?);
        }
        size = size.or_else(|| {
            let bits = word.strip_prefix(['.']).and_then(|word| word.strip_prefix(['u', 's', 'b', 'f']));
            bits.and_then(|bits| bits.parse::<usize>().ok()).map(|bits| bits / 8)
        });
    }
    let (name, count) = match name.split_once('[') {
        Some((name, rest)) => (name, rest.split(']').next()?.trim().parse().ok()?),
        None => (name, 1),
    };
    let bytes = size?.checked_mul(count)?;
    Some(Parameter { name: name.to_owned(), bytes, alignment: alignment.or(size)? })
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
