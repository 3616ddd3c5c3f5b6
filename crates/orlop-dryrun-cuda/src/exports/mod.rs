//! The functions of CUDA, by library.

mod cublas;
mod cudnn;
mod cudnn_recurrent;
mod cufft;
mod cusolver;
mod cusparse;
mod driver;
mod nccl;
mod nvml;
mod nvrtc;
mod report;
mod runtime;
mod unanswered;
mod values;

pub(crate) use cusparse::SparseMatrix;
