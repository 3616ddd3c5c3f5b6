//! The simulated driver through cudarc's own loading path.

mod support;

mod basics;
