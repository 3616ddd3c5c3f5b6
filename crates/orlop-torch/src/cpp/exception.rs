//! [`CppException`]: an exception of PyTorch.
//!
//! PyTorch takes a null result for a tensor at address 0. So a failed request throws, as PyTorch's own
//! allocator does: by the functions that its libraries export, as a compiler of C++ does it (Itanium C++ ABI,
//! section 2.4; strings are libstdc++'s).

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

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

type Destructor = unsafe extern "C" fn(*mut c_void);

/// The first entries of the virtual table of a class whose first virtual function is its destructor. Objects
/// refer to the third.
#[repr(C)]
struct VirtualTable {
    offset_to_top: isize,
    type_info: *const c_void,
    destructor: Destructor,
}

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
/// `this`, a location by value, and a string by value: that has a destructor, and is passed by its address.
type Construct = unsafe extern "C" fn(*mut c_void, SourceLocation, *mut StdString);
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, Option<Destructor>) -> !;

/// `c10::Error::Error(c10::SourceLocation, std::string)`.
const CONSTRUCT: &CStr =
    c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

/// More than the size of a `c10::Error`, which its constructor fills.
const EXCEPTION_BYTES: usize = 1024;

const CPP_RUNTIME: &CStr = c"libstdc++.so.6";

/// The exceptions of PyTorch that are thrown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExceptionClass {
    /// `c10::OutOfMemoryError`, in Python `torch.OutOfMemoryError`.
    OutOfMemory,
    /// `c10::Error`, in Python `RuntimeError`.
    Error,
}

impl ExceptionClass {
    /// Returns the class's virtual table, from the first library that has it.
    fn virtual_table(self) -> Option<&'static VirtualTable> {
        let table = match self {
            Self::OutOfMemory => [c"libc10_cuda.so", c"libtorch_cuda.so", c"libtorch_python.so"]
                .iter()
                .find_map(|library| symbol(library, c"_ZTVN3c1016OutOfMemoryErrorE")),
            Self::Error => symbol(c"libc10.so", c"_ZTVN3c105ErrorE"),
        };
        // SAFETY: by its name it is the table of this class, whose first virtual function is the destructor
        // (`std::exception`). Libraries of PyTorch are never unloaded.
        table.map(|table| unsafe { &*table.cast() })
    }
}

/// A C++ exception that is ready to be thrown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CppException {
    object: *mut c_void,
    type_info: *const c_void,
    destructor: Destructor,
    throw: Throw,
}

impl CppException {
    /// Makes an exception of PyTorch. `None` if its libraries are not loaded, or lack what is needed.
    pub(crate) fn of_torch(class: ExceptionClass, message: &str) -> Option<Self> {
        let table = class.virtual_table()?;
        // SAFETY: by its mangled name.
        let construct: Construct = unsafe { function(c"libc10.so", CONSTRUCT) }?;
        // SAFETY: the function of this name in the Itanium C++ ABI.
        let allocate: Allocate = unsafe { function(CPP_RUNTIME, c"__cxa_allocate_exception") }?;
        // SAFETY: as above.
        let throw: Throw = unsafe { function(CPP_RUNTIME, c"__cxa_throw") }?;
        // The constructor moves from the string: its characters are the exception's from then on.
        let mut text = StdString::new(message)?;
        let location = SourceLocation { function: c"allocate".as_ptr(), file: c"orlop".as_ptr(), line: 0 };
        // SAFETY: it returns memory, or ends the process.
        let object = unsafe { allocate(EXCEPTION_BYTES) };
        // SAFETY: the memory is larger than the object, and the string is one of libstdc++.
        unsafe { construct(object, location, &raw mut text) };
        // SAFETY: an object begins with the address of its class's functions. `c10::OutOfMemoryError` adds no
        // field to `c10::Error`: the object is one with this table.
        unsafe { object.cast::<*const Destructor>().write(&raw const table.destructor) };
        Some(Self { object, type_info: table.type_info, destructor: table.destructor, throw })
    }

    /// Throws the exception.
    ///
    /// # Safety
    ///
    /// 1. It was not thrown before.
    /// 2. The frames up to C++ are of functions with the ABI `C-unwind`.
    pub(crate) unsafe fn throw(self) -> ! {
        // SAFETY: guaranteed by the caller; the object has this type and destructor.
        unsafe { (self.throw)(self.object, self.type_info, Some(self.destructor)) }
    }
}

impl StdString {
    /// Creates a string. `None` if the C++ library is not loaded.
    fn new(text: &str) -> Option<Self> {
        // SAFETY: `operator new(size_t)`.
        let new: Allocate = unsafe { function(CPP_RUNTIME, c"_Znwm") }?;
        let zeroed = std::ffi::CString::new(text.replace('\0', " ")).ok()?;
        let bytes = zeroed.as_bytes_with_nul();
        // SAFETY: it returns memory of this size, or throws for want of host memory, which ends the process.
        let characters = unsafe { new(bytes.len()) }.cast::<c_char>();
        // SAFETY: the new memory has this many bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), characters, bytes.len()) };
        Some(Self { characters, length: bytes.len() - 1, capacity: bytes.len() - 1, unused: 0 })
    }
}

/// Throws `std::bad_alloc`, if the C++ library is loaded.
///
/// # Safety
///
/// The frames up to C++ are of functions with the ABI `C-unwind`.
pub(crate) unsafe fn throw_bad_alloc() {
    // SAFETY: `std::__throw_bad_alloc()`.
    let throw: Option<unsafe extern "C-unwind" fn()> =
        unsafe { function(CPP_RUNTIME, c"_ZSt17__throw_bad_allocv") };
    if let Some(throw) = throw {
        // SAFETY: it has no precondition but that of this function.
        unsafe { throw() };
    }
}

/// Returns a function of a loaded library.
///
/// # Safety
///
/// `F` is a pointer to functions, and the function of this name has its type.
unsafe fn function<F: Copy>(library: &CStr, name: &CStr) -> Option<F> {
    let address = symbol(library, name)?;
    // SAFETY: guaranteed by the caller; pointers to functions have the size of pointers.
    Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
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
