//! The loaded library: its control functions.

use crate::config::DriverOptions;
use crate::error::{Error, Result};
use crate::{built, loader};
use orlop_cudasim::control::{SimAccess, SimAllocation, SimConfiguration, SimCounts, SimKernel, SimRace};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

type NameSink = extern "C" fn(*mut c_void, *const u8, usize, u64);

macro_rules! functions {
    ($($field:ident $symbol:literal: $kind:ty;)*) => {
        /// The control functions of the loaded library.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(crate) $field: $kind,)*
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Self> {
                Ok(Self {
                    $($field: {
                        let address = loader::symbol(library, $symbol)?;
                        // SAFETY: the function of this name has this type: both are of one version of the
                        // workspace, and `orlop-cudasim` defines the types.
                        unsafe { std::mem::transmute::<*mut c_void, $kind>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    reset c"orlopsim_reset": unsafe extern "C" fn(*const SimConfiguration) -> i32;
    advance c"orlopsim_advance": unsafe extern "C" fn(u64);
    register c"orlopsim_register": unsafe extern "C" fn(*const u8, usize, SimKernel) -> i32;
    launch c"orlopsim_launch":
        unsafe extern "C" fn(*const u8, usize, u64, *const SimAccess, usize, u64, SimKernel) -> i32;
    host_access c"orlopsim_host_access": unsafe extern "C" fn(*const u8, usize, SimAccess) -> i32;
    races c"orlopsim_races":
        unsafe extern "C" fn(*mut c_void, extern "C" fn(*mut c_void, *const SimRace), bool);
    calls c"orlopsim_calls": unsafe extern "C" fn(*mut c_void, NameSink, bool);
    refusal c"orlopsim_refusal":
        unsafe extern "C" fn(*mut c_void, extern "C" fn(*mut c_void, *const u8, usize));
    fail c"orlopsim_fail": unsafe extern "C" fn(*const u8, usize, u64, u64, i32) -> i32;
    clear_faults c"orlopsim_clear_faults": unsafe extern "C" fn();
    poison c"orlopsim_poison": unsafe extern "C" fn(usize, i32) -> i32;
    used c"orlopsim_used": unsafe extern "C" fn(usize) -> u64;
    allocations c"orlopsim_allocations":
        unsafe extern "C" fn(*mut c_void, extern "C" fn(*mut c_void, SimAllocation));
    counts c"orlopsim_counts": unsafe extern "C" fn(*mut SimCounts);
    read c"orlopsim_read": unsafe extern "C" fn(usize, *mut u8, usize) -> i32;
    write c"orlopsim_write": unsafe extern "C" fn(usize, *const u8, usize) -> i32;
}

/// The library of this process with the options that it was loaded with.
static LOADED: Mutex<Option<(DriverOptions, Functions)>> = Mutex::new(None);

/// Loads the library once; later calls return the same functions.
pub(crate) fn load(options: &DriverOptions) -> Result<Functions> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, functions)) = loaded.as_ref() {
        return if known == options { Ok(*functions) } else { Err(Error::OtherOptions) };
    }
    let library = loader::open(&built::path()?, options)?;
    let functions = Functions::find(library)?;
    *loaded = Some((options.clone(), functions));
    Ok(functions)
}
