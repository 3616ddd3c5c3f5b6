//! The command line of `orlop dry-run`.

use crate::arguments::bytes;
use clap::Args;
use orlop_dryrun::gpu::GpuModel;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DryRunArguments {
    /// The GPU, like h100
    #[arg(long, value_name = "GPU", default_value = "h100", value_parser = GpuModel::named)]
    pub(crate) device: GpuModel,

    /// Total memory of the GPU, like 24GiB [default: as the GPU has]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,

    /// The number of GPUs
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) devices: u32,

    /// Work completes only when the program waits for it, instead of at once: a real run of a program with
    /// several streams is between the two
    #[arg(long)]
    pub(crate) late: bool,

    /// A table of the workspaces of cuDNN's convolutions: lines of a convolution and its bytes [default: none
    /// has a workspace]
    #[arg(long, value_name = "FILE")]
    pub(crate) convolutions: Option<PathBuf>,

    /// The folder for the snapshot and what else the run writes
    #[arg(long, short, value_name = "FOLDER", default_value = "orlop-dry-run")]
    pub(crate) output: PathBuf,

    /// The Python whose PyTorch is used [default: PROGRAM, if that is a Python, or else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,

    /// Faster: tries no other settings
    #[arg(long)]
    pub(crate) quick: bool,

    /// liborlop_dryrun_cuda.so [default: beside this program, or in ../lib]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,

    /// Prints JSON, an object, instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// The program and its arguments, like python train.py
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
