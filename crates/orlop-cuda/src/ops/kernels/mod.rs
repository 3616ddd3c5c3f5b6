//! [`Kernels`]: what the driver has no call for, as kernels: casts, and copies and fills of single elements.
//!
//! | module | what it holds |
//! |---|---|
//! | `text` | the module's PTX |
//! | `module` | the loaded module of a context |
//! | `launch` | launches over strided loops |
//! | `casts` | the kernel of casts: which dtypes, and how |

mod casts;
mod launch;
mod module;
mod text;

pub(super) use self::casts::is_copy;
pub(super) use self::module::{KernelModule, Kernels};
pub(super) use self::text::text;
