//! Tensors without operators: handles, storage, views, copy-on-write, accessors, conversion and interchange.

mod kernels;
