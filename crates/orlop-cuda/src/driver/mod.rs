//! The CUDA driver: loaded at run time, once, however cudarc finds it.
//!
//! | module | what it holds |
//! |---|---|
//! | `library` | the library that is the driver |
//! | `symbols` | the driver's functions, all resolved at the start |
//! | `abi` | structures and numbers of its interface |

pub(crate) mod abi;
mod library;
mod symbols;

use crate::error::{CudaError, failure};
use orlop_device::DriverFailure;
use std::ffi::CStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use symbols::Symbols;

/// Calls a function of the driver and checks its result.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let driver: &$crate::Driver = $driver;
        let function = driver.symbols.$name;
        let code = function($($argument),*);
        driver.check(stringify!($name), code)
    }};
}
pub(crate) use call;

/// The loaded CUDA driver.
///
/// ```
/// use orlop_cuda::{CudaError, Driver};
///
/// match Driver::load() {
///     Ok(driver) => println!("CUDA {}, devices: {}", driver.version(), driver.device_count()),
///     Err(CudaError::DriverNotFound) => println!("no CUDA driver"),
///     Err(error) => println!("no device: {error}"),
/// }
/// ```
#[derive(Debug)]
pub struct Driver {
    pub(crate) symbols: Symbols,
    version: u32,
}

impl Driver {
    /// Loads the driver, resolves its functions, and initialises it: once per process; later calls return the
    /// same one. A failure is not kept: the next call tries again.
    ///
    /// # Errors
    ///
    /// [`CudaError::DriverNotFound`], [`CudaError::DriverTooOld`], [`CudaError::NoDevice`], and failures of
    /// the driver.
    pub fn load() -> Result<&'static Self, CudaError> {
        static LOADED: OnceLock<Driver> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        if let Some(driver) = LOADED.get() {
            return Ok(driver);
        }
        let loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = LOADED.get() {
            return Ok(driver);
        }
        let driver = Self::load_now()?;
        let driver = LOADED.get_or_init(|| driver);
        drop(loading);
        Ok(driver)
    }

    fn load_now() -> Result<Self, CudaError> {
        let library = library::open().ok_or(CudaError::DriverNotFound)?;
        // SAFETY: it is open for good, and by its name it is a CUDA driver.
        let symbols = unsafe { Symbols::resolve(library) }?;
        let mut driver = Self { symbols, version: 0 };
        driver.initialise()?;
        let mut version = 0;
        // SAFETY: it writes one number.
        unsafe { call!(&driver, cuDriverGetVersion(&raw mut version)) }?;
        driver.version = u32::try_from(version).unwrap_or(0);
        Ok(driver)
    }

    /// Initialises the driver, and checks that there is a device. Returns the number of devices. Later calls
    /// do no harm.
    pub(crate) fn initialise(&self) -> Result<u16, CudaError> {
        // SAFETY: the only flag is 0.
        match unsafe { call!(self, cuInit(0)) } {
            Err(DriverFailure { code: abi::NO_DEVICE, .. }) => return Err(CudaError::NoDevice),
            result => result?,
        }
        let count = self.count()?;
        if count == 0 { Err(CudaError::NoDevice) } else { Ok(count) }
    }

    fn count(&self) -> Result<u16, CudaError> {
        let mut count = 0;
        // SAFETY: it writes one number.
        unsafe { call!(self, cuDeviceGetCount(&raw mut count)) }?;
        Ok(u16::try_from(count).unwrap_or(0))
    }

    /// Returns the version of CUDA that the driver supports: 1000 times the major version and 10 times the
    /// minor one.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the number of devices; 0 if the driver does not say.
    #[must_use]
    pub fn device_count(&self) -> u16 {
        self.count().unwrap_or(0)
    }

    /// Turns a result code into a result.
    pub(crate) fn check(&self, call: &'static str, code: i32) -> Result<(), DriverFailure> {
        if code == abi::SUCCESS { Ok(()) } else { Err(failure(call, code, self.error_name(code))) }
    }

    /// Describes an error of cudarc.
    pub(crate) fn failure_of(&self, call: &'static str, error: cudarc::driver::DriverError) -> CudaError {
        let code = error.0 as u32;
        let code = i32::try_from(code).unwrap_or(i32::MAX);
        failure(call, code, self.error_name(code)).into()
    }

    #[cold]
    fn error_name(&self, code: i32) -> &'static str {
        let mut name = std::ptr::null();
        // SAFETY: it writes one pointer.
        let result = unsafe { (self.symbols.cuGetErrorName)(code, &raw mut name) };
        if result != abi::SUCCESS || name.is_null() {
            return "CUDA_ERROR_UNKNOWN";
        }
        // SAFETY: the driver's names are constants of a library that is never unloaded.
        let name: &'static CStr = unsafe { CStr::from_ptr(name) };
        name.to_str().unwrap_or("CUDA_ERROR_UNKNOWN")
    }
}
