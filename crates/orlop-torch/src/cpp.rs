//! The C++ objects that PyTorch passes and expects: `std::function`, and its exceptions.
//!
//! PyTorch takes a null result for a tensor at address 0. So a failed request throws, as its own allocator
//! does. There is no C++ here: the exception is made by the functions that PyTorch's libraries export, as a
//! compiler of C++ does it (Itanium C++ ABI, section 2.4; libstdc++'s strings and functions).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// A `std::function<bool(cudaStream_t)>` of libstdc++.
#[repr(C)]
#[derive(Debug)]
pub struct StdFunction {
    functor: [usize; 2],
    manager: Option<unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool>,
    invoker: Option<unsafe extern "C-unwind" fn(*const [usize; 2], *const *mut c_void) -> bool>,
}

const CLONE: c_int = 2;
const DESTROY: c_int = 3;

impl StdFunction {
    /// Creates an empty function.
    #[must_use]
    pub fn empty() -> Self {
        Self { functor: [0; 2], manager: None, invoker: None }
    }

    /// Returns a copy.
    ///
    /// # Safety
    ///
    /// It is a function of libstdc++, of this signature.
    pub(crate) unsafe fn copy(&self) -> Self {
        let mut copy = Self::empty();
        if let Some(manager) = self.manager {
            // SAFETY: the manager of a function copies it into memory for one.
            unsafe { manager(&raw mut copy.functor, &raw const self.functor, CLONE) };
            (copy.manager, copy.invoker) = (self.manager, self.invoker);
        }
        copy
    }

    /// Calls the function. An exception of it passes through. An empty function returns `true`.
    pub(crate) fn call(&self, stream: *mut c_void) -> bool {
        let Some(invoker) = self.invoker else { return true };
        // SAFETY: copies are functions of libstdc++ (the obligation of `copy`), which take arguments by
        // reference.
        unsafe { invoker(&raw const self.functor, &raw const stream) }
    }
}

/// Only copies are dropped: what PyTorch passes is behind a pointer.
impl Drop for StdFunction {
    fn drop(&mut self) {
        if let Some(manager) = self.manager {
            // SAFETY: the copy is destroyed once, by the manager that made it.
            unsafe { manager(&raw mut self.functor, &raw const self.functor, DESTROY) };
        }
    }
}

// SAFETY: PyTorch calls the function from all threads that allocate.
unsafe impl Send for StdFunction {}

/// A `std::string` of libstdc++, whose characters are on the heap of C++.
#[repr(C)]
struct StdString {
    characters: *mut c_char,
    length: usize,
    capacity: usize,
    unused: usize,
}

/// A `c10::SourceLocation`.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// More than the size of a `c10::Error`, which its constructor fills.
const EXCEPTION_BYTES: usize = 1024;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// The exceptions of PyTorch that are thrown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExceptionClass {
    /// `c10::OutOfMemoryError`, in Python `torch.OutOfMemoryError`.
    OutOfMemory,
    /// `c10::Error`, in Python `RuntimeError`.
    Error,
}

impl ExceptionClass {
    /// Returns the symbol of its virtual table, and libraries that may have it.
    fn virtual_table(self) -> (&'static CStr, &'static [&'static CStr]) {
        match self {
            Self::OutOfMemory => (
                c"_ZTVN3c1016OutOfMemoryErrorE",
                &[c"libc10_cuda.so", c"libtorch_cuda.so", c"libtorch_python.so"],
            ),
            Self::Error => (c"_ZTVN3c105ErrorE", &[c"libc10.so"]),
        }
    }
}

/// A C++ exception that is ready to be thrown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CppException {
    object: *mut c_void,
    type_info: *const c_void,
    destructor: Option<Destructor>,
    throw: unsafe extern "C-unwind" fn(*mut c_void, *const c_void, Option<Destructor>) -> !,
}

impl CppException {
    /// Makes an exception of PyTorch. `None` if its libraries are not loaded, or lack what is needed.
    pub(crate) fn of_torch(class: ExceptionClass, message: &str) -> Option<Self> {
        type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
        type Construct = unsafe extern "C" fn(*mut c_void, SourceLocation, *mut StdString);
        let (name, libraries) = class.virtual_table();
        let table = libraries.iter().find_map(|library| symbol(library, name))?;
        let construct = symbol(
            c"libc10.so",
            c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
        )?;
        let runtime = |name| symbol(c"libstdc++.so.6", name);
        let (allocate, new) = (runtime(c"__cxa_allocate_exception")?, runtime(c"_Znwm")?);
        let throw = runtime(c"__cxa_throw")?;
        // SAFETY: the symbol is the function of this name in the Itanium C++ ABI.
        let allocate = unsafe { std::mem::transmute::<*mut c_void, Allocate>(allocate) };
        // SAFETY: `operator new(size_t)`.
        let new = unsafe { std::mem::transmute::<*mut c_void, Allocate>(new) };
        // SAFETY: by its mangled name it takes `this`, a location by value and a string by value, which is
        // passed by its address, because it has a destructor.
        let construct = unsafe { std::mem::transmute::<*mut c_void, Construct>(construct) };
        // SAFETY: the function of this name in the Itanium C++ ABI.
        let throw = unsafe { std::mem::transmute::<*mut c_void, _>(throw) };

        // SAFETY: `operator new` returns memory of this size, or throws, which ends the process.
        let characters = unsafe { new(message.len() + 1) }.cast::<c_char>();
        // SAFETY: the new memory has the length of the message and one byte.
        unsafe { ptr::copy_nonoverlapping(message.as_ptr().cast(), characters, message.len()) };
        // SAFETY: as above.
        unsafe { characters.add(message.len()).write(0) };
        // The constructor moves from the string. Its characters are the exception's from then on.
        let mut text = MaybeUninit::new(StdString {
            characters,
            length: message.len(),
            capacity: message.len(),
            unused: 0,
        });
        let location = SourceLocation { function: c"allocate".as_ptr(), file: c"orlop".as_ptr(), line: 0 };
        // SAFETY: it returns memory, or ends the process.
        let object = unsafe { allocate(EXCEPTION_BYTES) };
        // SAFETY: the memory is larger than the object, and the string is one of libstdc++.
        unsafe { construct(object, location, text.as_mut_ptr()) };

        let table = table.cast::<*const c_void>();
        // SAFETY: a virtual table begins with an offset and the type, and its functions follow.
        let type_info = unsafe { table.add(1).read() };
        // SAFETY: of a class with a virtual destructor the first function is that.
        let destructor = unsafe { table.add(2).cast::<Option<Destructor>>().read() };
        // SAFETY: `c10::OutOfMemoryError` adds no field to `c10::Error`: it is one with this virtual table.
        unsafe { object.cast::<*const c_void>().write(table.add(2).cast()) };
        Some(Self { object, type_info, destructor, throw })
    }

    /// Throws the exception.
    ///
    /// # Safety
    ///
    /// 1. It was not thrown before.
    /// 2. The frames up to C++ are of functions with the ABI `C-unwind`.
    pub(crate) unsafe fn throw(self) -> ! {
        // SAFETY: guaranteed by the caller; the object has this type and destructor.
        unsafe { (self.throw)(self.object, self.type_info, self.destructor) }
    }
}

/// Throws `std::bad_alloc`, if the C++ library is loaded.
///
/// # Safety
///
/// The frames up to C++ are of functions with the ABI `C-unwind`.
pub(crate) unsafe fn throw_bad_alloc() {
    if let Some(throw) = symbol(c"libstdc++.so.6", c"_ZSt17__throw_bad_allocv") {
        // SAFETY: `std::__throw_bad_alloc()`.
        let throw = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn()>(throw) };
        // SAFETY: it has no precondition but that of this function.
        unsafe { throw() };
    }
}

/// Returns the address of a symbol of a loaded library.
fn symbol(library: &CStr, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a string; nothing is loaded.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the library is open, and stays so: the handle is not closed.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}
