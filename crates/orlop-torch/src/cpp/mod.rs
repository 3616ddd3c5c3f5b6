//! The C++ objects that PyTorch passes and expects. There is no C++ here, and no compiler of it is needed.
//!
//! | module | what it holds |
//! |---|---|
//! | `exception` | PyTorch's exceptions, which are made and thrown |
//! | `std_function` | functions that PyTorch passes |

mod exception;
mod std_function;

pub(crate) use self::exception::{CppException, ExceptionClass, throw_bad_alloc};
pub use self::std_function::StdFunction;
