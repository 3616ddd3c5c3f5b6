//! The allocator that is registered with an environment, and its handle.

use crate::bad_alloc::BadAlloc;
use crate::blocks::{HeldBlocks, OrtCounts};
use crate::{Error, Result};
use orlop::memory::bare::BlockSource;
use orlop::prelude::*;
use ort::AsPointer;
use ort::environment::Environment;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::sys;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

/// The CPU allocator of an environment, over an allocator or a context of orlop.
///
/// Sessions use it if they are built with [`with_env_allocators`]. ONNX Runtime puts no arena of its own over
/// it. What it allocates for a run has the kind [`MemoryKind::Workspace`], what it reserves for the lifetime
/// of a session [`MemoryKind::Persistent`]; both have the tag `onnxruntime`.
///
/// The registration lasts until [`OrtMemory::unregister`], or until the environment ends. Sessions and values
/// keep the allocator: its record of a few hundred bytes is never freed, and the blocks are freed by ONNX
/// Runtime, whichever is dropped first.
///
/// [`with_env_allocators`]: ort::session::builder::SessionBuilder::with_env_allocators
#[derive(Debug, Clone)]
pub struct OrtMemory {
    allocator: &'static RegisteredAllocator,
    environment: Environment,
}

/// What ONNX Runtime has a pointer to.
#[derive(Debug)]
#[repr(C)]
struct RegisteredAllocator {
    /// The functions. First, because they get the address of this field.
    functions: sys::OrtAllocator,
    info: MemoryInfo<'static>,
    blocks: HeldBlocks,
    bad_alloc: BadAlloc,
}

// SAFETY: `functions` is read only, by ONNX Runtime, from any thread; the other fields are `Sync`.
unsafe impl Sync for RegisteredAllocator {}

impl OrtMemory {
    /// Registers an allocator over `source`: a context, whose budgets and reclaim ladder apply, or the handle
    /// of an allocator.
    ///
    /// # Errors
    ///
    /// [`Error::CannotRefuse`] in a program with `panic = "abort"`, and [`Error::NoBadAlloc`] on other systems
    /// where requests cannot be refused; [`Error::Runtime`] if the environment has a CPU allocator already.
    pub fn register(
        environment: &Environment,
        source: impl BlockSource + Send + Sync + 'static,
    ) -> Result<Self> {
        if cfg!(panic = "abort") {
            return Err(Error::CannotRefuse);
        }
        // "Device" is the type of an allocator that ONNX Runtime uses as it is.
        let info = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default)?;
        let allocator = Box::new(RegisteredAllocator {
            functions: functions(),
            info,
            blocks: HeldBlocks::new(Box::new(source)),
            bad_alloc: BadAlloc::find()?,
        });
        // Sessions and values refer to the allocator for as long as they like.
        let allocator: &'static RegisteredAllocator = Box::leak(allocator);
        let registered = ptr::from_ref(allocator).cast::<sys::OrtAllocator>().cast_mut();
        let register = ort::api().RegisterAllocator;
        // SAFETY: the environment is live, and the allocator is never freed. ONNX Runtime only reads the
        // functions, and passes the pointer to them.
        let status = unsafe { register(environment.ptr().cast_mut(), registered) };
        check(status)?;
        Ok(Self { allocator, environment: environment.clone() })
    }

    /// Ends the registration: sessions that are created later do not get this allocator.
    ///
    /// # Errors
    ///
    /// [`Error::Runtime`] if it has ended already.
    pub fn unregister(&self) -> Result<()> {
        let unregister = ort::api().UnregisterAllocator;
        // SAFETY: the environment is live, and so is the description of the memory.
        check(unsafe { unregister(self.environment.ptr().cast_mut(), self.allocator.info.ptr()) })
    }

    /// Returns the numbers of calls by ONNX Runtime.
    #[must_use]
    pub fn counts(&self) -> OrtCounts {
        self.blocks().counts()
    }

    /// Returns why the last request on this thread was refused, with the report, once. The error of ONNX
    /// Runtime's call says only `std::bad_alloc`.
    #[must_use]
    pub fn take_refusal(&self) -> Option<orlop::memory::Error> {
        self.blocks().take_refusal()
    }

    pub(crate) fn blocks(&self) -> &'static HeldBlocks {
        &self.allocator.blocks
    }
}

fn check(status: sys::OrtStatusPtr) -> Result<()> {
    // SAFETY: the status is the result of a call, and is not used again.
    unsafe { ort::Error::result_from_status(status) }.map_err(Error::Runtime)
}

fn functions() -> sys::OrtAllocator {
    type Alloc = unsafe extern "system" fn(*mut sys::OrtAllocator, usize) -> *mut c_void;
    type Throwing = unsafe extern "C-unwind" fn(*mut sys::OrtAllocator, usize) -> *mut c_void;
    type Reserve = unsafe extern "system" fn(*const sys::OrtAllocator, usize) -> *mut c_void;
    // SAFETY: on the systems where `BadAlloc` is found, "system" is the C ABI. C++ calls the function, where
    // an exception may leave any; in Rust nothing calls it through this type.
    let alloc = unsafe { std::mem::transmute::<Throwing, Alloc>(allocate) };
    // SAFETY: as for `alloc`; the two types of the pointer are one in C++.
    let reserve = unsafe { std::mem::transmute::<Throwing, Reserve>(reserve) };
    // SAFETY: all functions that ONNX Runtime requires are set here.
    let none = unsafe { sys::OrtAllocator::default() };
    sys::OrtAllocator {
        Alloc: Some(alloc),
        Free: Some(free),
        Info: Some(info),
        Reserve: Some(reserve),
        ..none
    }
}

/// Allocates for a run.
unsafe extern "C-unwind" fn allocate(this: *mut sys::OrtAllocator, bytes: usize) -> *mut c_void {
    // SAFETY: ONNX Runtime passes the pointer that was registered; the frames up to its own are this one and
    // `allocate_or_throw`, both "C-unwind".
    unsafe { allocate_or_throw(this, bytes, MemoryKind::Workspace) }
}

/// Allocates for the lifetime of a session.
unsafe extern "C-unwind" fn reserve(this: *mut sys::OrtAllocator, bytes: usize) -> *mut c_void {
    // SAFETY: as in `allocate`.
    unsafe { allocate_or_throw(this, bytes, MemoryKind::Persistent) }
}

/// # Safety
///
/// `this` was registered, and the caller's frames may be unwound by C++, up to the handler.
unsafe extern "C-unwind" fn allocate_or_throw(
    this: *mut sys::OrtAllocator,
    bytes: usize,
    kind: MemoryKind,
) -> *mut c_void {
    // SAFETY: `functions` is the first field of an allocator that is never freed.
    let allocator = unsafe { &*this.cast::<RegisteredAllocator>() };
    if bytes == 0 {
        return ptr::null_mut();
    }
    // A panic of a callback counts as a refusal.
    let allocated = catch_unwind(AssertUnwindSafe(|| allocator.blocks.allocate(bytes, kind)));
    match allocated {
        Ok(Some(address)) => address.as_ptr().cast(),
        // SAFETY: the caller guarantees it for its frames; nothing here is dropped on the way.
        _ => unsafe { allocator.bad_alloc.throw() },
    }
}

/// Frees a block. A panic ends the process.
unsafe extern "system" fn free(this: *mut sys::OrtAllocator, address: *mut c_void) {
    // SAFETY: ONNX Runtime passes the pointer that was registered: see `allocate_or_throw`.
    let allocator = unsafe { &*this.cast::<RegisteredAllocator>() };
    if let Some(address) = NonNull::new(address) {
        allocator.blocks.free(address.addr().get());
    }
}

unsafe extern "system" fn info(this: *const sys::OrtAllocator) -> *const sys::OrtMemoryInfo {
    // SAFETY: ONNX Runtime passes the pointer that was registered: see `allocate_or_throw`.
    unsafe { &*this.cast::<RegisteredAllocator>() }.info.ptr()
}
