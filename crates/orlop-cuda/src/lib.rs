//! CUDA for orlop.

mod device;
mod driver;
mod error;

pub use self::device::{CudaDevice, DeviceStream};
pub use self::driver::Driver;
pub use self::error::CudaError;
