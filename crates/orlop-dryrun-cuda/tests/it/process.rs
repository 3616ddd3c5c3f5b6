//! [`Process`]: the functions of CUDA in this process, found by name as a library finds them.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;

/// This process, which is a dry run.
pub(crate) struct Process;

/// A function with up to 20 arguments: numbers and pointers are passed in the same registers, and on the
/// stack from the seventh on.
#[rustfmt::skip]
type Function = unsafe extern "C" fn(
    usize, usize, usize, usize, usize, usize, usize, usize, usize, usize,
    usize, usize, usize, usize, usize, usize, usize, usize, usize, usize,
) -> i32;

impl Process {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn call<const COUNT: usize>(&self, name: &str, arguments: [usize; COUNT]) -> i32 {
        let mut padded = [0; 20];
        padded[..COUNT].copy_from_slice(&arguments);
        let text = CString::new(name).expect("a name");
        // SAFETY: the name is a terminated string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) };
        assert!(!found.is_null(), "{name} is not in this process");
        // SAFETY: the function has this calling convention and takes up to 20 numbers or pointers;
        // those that it does not have are in registers and on the caller's stack, where it does not read.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(found) };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = padded;
        // SAFETY: the tests pass what the function takes.
        unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t) }
    }

    pub(crate) fn call0(&self, name: &str) -> i32 {
        self.call(name, [])
    }

    pub(crate) fn call1(&self, name: &str, argument: usize) -> i32 {
        self.call(name, [argument])
    }

    pub(crate) fn call2(&self, name: &str, first: usize, second: usize) -> i32 {
        self.call(name, [first, second])
    }

    pub(crate) fn call4(&self, name: &str, a: usize, b: usize, c: usize, d: usize) -> i32 {
        self.call(name, [a, b, c, d])
    }

    /// Returns the handle that a function creates.
    pub(crate) fn created(&self, name: &str) -> usize {
        let mut handle = 0_usize;
        assert_eq!(self.call1(name, (&raw mut handle).expose_provenance()), 0);
        handle
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<usize, i32> {
        let mut address = 0_usize;
        match self.call2("cudaMalloc", (&raw mut address).expose_provenance(), bytes) {
            0 => Ok(address),
            code => Err(code),
        }
    }

    /// Returns free and total bytes.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let mut sizes = [0_usize; 2];
        let at = sizes.as_mut_ptr().expose_provenance();
        assert_eq!(self.call2("cudaMemGetInfo", at, at + 8), 0);
        (sizes[0], sizes[1])
    }

    pub(crate) fn copy(&self, to: usize, bytes: &mut [u8]) {
        let from = bytes.as_mut_ptr().expose_provenance();
        assert_eq!(self.call4("cudaMemcpy", to, from, bytes.len(), 1), 0);
    }

    pub(crate) fn read(&self, bytes: &mut [u8], from: usize) {
        let to = bytes.as_mut_ptr().expose_provenance();
        assert_eq!(self.call4("cudaMemcpy", to, from, bytes.len(), 2), 0);
    }

    /// Launches a kernel without arguments.
    pub(crate) fn launch(&self, stub: usize) {
        self.launch_with(stub, &[]);
    }

    /// Launches a kernel with the addresses of its arguments on the default stream: grid and block take two
    /// registers each, and the rest is on the stack.
    pub(crate) fn launch_with(&self, stub: usize, arguments: &[usize]) {
        #[repr(C)]
        struct Dimensions(u32, u32, u32);
        type Launch = unsafe extern "C" fn(usize, Dimensions, Dimensions, usize, usize, usize) -> i32;
        // SAFETY: the name is a terminated string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cudaLaunchKernel".as_ptr()) };
        assert!(!found.is_null());
        // SAFETY: the function has this type.
        let launch = unsafe { std::mem::transmute::<*mut c_void, Launch>(found) };
        let arguments = arguments.as_ptr().expose_provenance();
        // SAFETY: a launch of a dry run reads only the arguments of kernels that sizes follow from, which the
        // tests pass.
        let code = unsafe { launch(stub, Dimensions(1, 1, 1), Dimensions(32, 1, 1), arguments, 0, 0) };
        assert_eq!(code, 0);
    }

    /// Returns whether a library that is opened by name has a function.
    pub(crate) fn has(&self, library: &CStr, function: &CStr) -> bool {
        // SAFETY: the library is a stand-in, whose loading runs no code.
        let opened = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
        // SAFETY: the handle was opened, or is null, for which the name is searched everywhere.
        !opened.is_null() && !unsafe { libc::dlsym(opened, function.as_ptr()) }.is_null()
    }

    /// Registers a kernel under this name, which ends with a zero.
    pub(crate) fn register(&self, stub: usize, name: &CStr) {
        self.call4("__cudaRegisterFunction", 0, stub, stub, name.as_ptr().expose_provenance());
    }

    pub(crate) fn report(&self, path: &Path) {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        assert_eq!(self.call1("orlop_dry_run_report", path.as_ptr().expose_provenance()), 0);
    }
}
