//! Every allocator of the workspace against the suite, and the central engine against its references.

mod bfc;
mod matrix;
mod stamps;
