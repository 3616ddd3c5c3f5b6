//! The functions of CUDA, by library.

mod cublas;
mod cudnn;
mod cudnn_recurrent;
mod cufft;
mod driver;
pub(crate) mod nccl;
mod nvml;
mod report;
mod runtime;
mod unanswered;
