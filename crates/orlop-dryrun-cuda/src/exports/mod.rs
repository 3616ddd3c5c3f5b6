//! The functions of CUDA, by library.

mod cublas;
mod cudnn;
mod driver;
mod nvml;
mod report;
mod runtime;
mod unanswered;
