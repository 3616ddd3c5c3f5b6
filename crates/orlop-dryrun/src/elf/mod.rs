//! Shared libraries: what they import and export, and stand-ins for them.
//!
//! The format is ELF for x86-64, as the System V ABI and its AMD64 supplement describe it; symbol versions
//! are those of the GNU tools (Linux Standard Base, "Symbol Versioning").

mod library;
mod reader;

pub use library::StandIn;
pub use reader::{ImportedSymbol, LibraryFile};
