//! The command line of `orlop dry-run`.

use crate::arguments::bytes;
use crate::dry_run::{Search, Sweep};
use clap::{Args, ValueEnum};
use orlop_dryrun::assumptions::Assumptions;
use orlop_dryrun::gpu::GpuModel;
use orlop_dryrun::settings::{MAX_DEVICES, WorkspaceRule};
use std::ffi::OsString;
use std::path::PathBuf;

/// The GPU if none is named.
const DEFAULT_GPU: &str = "h100";

/// [`WorkspaceRule`], as it is named on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Workspaces {
    None,
    Learned,
    Most,
}

impl From<Workspaces> for WorkspaceRule {
    fn from(named: Workspaces) -> Self {
        match named {
            Workspaces::None => Self::None,
            Workspaces::Learned => Self::Learned,
            Workspaces::Most => Self::Most,
        }
    }
}

/// A number of GPUs, and their model where it is given with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Devices {
    gpu: Option<GpuModel>,
    pub(crate) count: u32,
}

impl Devices {
    fn parse(text: &str) -> Result<Self, String> {
        let (gpu, count) = match text.rsplit_once('x') {
            Some((gpu, count)) => (Some(GpuModel::named(gpu).map_err(|error| error.to_string())?), count),
            None => (None, text),
        };
        let count = count.parse().ok().filter(|count| (1..=MAX_DEVICES).contains(count));
        let count = count.ok_or_else(|| format!("the number of GPUs is from 1 to {MAX_DEVICES}"))?;
        Ok(Self { gpu, count })
    }
}

impl DryRunArguments {
    /// Returns the assumptions; of two with the same name, the last one counts.
    pub(crate) fn assumptions(&self) -> Assumptions {
        self.assume.iter().fold(Assumptions::default(), |all, one| all.with(one).unwrap_or(all))
    }

    /// Returns the model of the GPUs.
    pub(crate) fn gpu(&self) -> Result<GpuModel, String> {
        match (&self.device, &self.devices.gpu) {
            (Some(one), Some(other)) if one != other => {
                Err(format!("--device is {}, and --devices is {}", one.key, other.key))
            }
            (Some(gpu), _) | (None, Some(gpu)) => Ok(gpu.clone()),
            (None, None) => GpuModel::named(DEFAULT_GPU).map_err(|error| error.to_string()),
        }
    }
}

/// Checks an assumption, which is kept as it is written.
fn assumption(text: &str) -> Result<String, String> {
    let checked = Assumptions::default().with(text);
    checked.map(|_| text.to_owned()).ok_or_else(|| {
        "an assumption is like mask=0.5 (a number from 0 to 1), unique=20 (from 1 on) or max=9".to_owned()
    })
}

#[derive(Debug, Args)]
pub(crate) struct DryRunArguments {
    /// The GPU [default: h100]
    #[arg(long, value_name = "GPU", value_parser = GpuModel::named)]
    pub(crate) device: Option<GpuModel>,

    /// Total memory of the GPU, like 24GiB [default: as the GPU has]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,

    /// The number of GPUs of each process, like 8 or h100x8
    #[arg(long, value_name = "[GPUx]N", default_value = "1", value_parser = Devices::parse)]
    pub(crate) devices: Devices,

    /// Work completes only when the program waits for it, instead of at once: a real run of a program with
    /// several streams is between the two
    #[arg(long)]
    pub(crate) late: bool,

    /// The workspaces of cuDNN's convolutions that are not in the table: none, learned (estimated), or most
    /// (an upper bound)
    #[arg(long, value_enum, value_name = "RULE", default_value = "learned")]
    pub(crate) workspaces: Workspaces,

    /// A table of the workspaces of cuDNN's convolutions: lines of a convolution and its bytes
    #[arg(long, value_name = "FILE")]
    pub(crate) convolutions: Option<PathBuf>,

    /// What is assumed of values that kernels compute and that decide sizes. mask=0.5: half of a mask's
    /// elements are true, and x[mask] has half of the size of x. unique=20: unique and coalesce find 20
    /// distinct values. max=9: the maximum of integers is 9, and one_hot makes 10 classes
    /// [default: mask=0,unique=1,max=0]
    #[arg(long, value_name = "NAME=VALUE,..", value_parser = assumption, value_delimiter = ',')]
    pub(crate) assume: Vec<String>,

    /// Writes checkpoints of the program, although their values are noise [default: torch.save and
    /// safetensors write no files]
    #[arg(long)]
    pub(crate) allow_checkpoints: bool,

    /// Runs once for each value of a number: {NAME} in the arguments of the program, NAME in its environment
    #[arg(long, value_name = "NAME=N,N,..", value_parser = Sweep::parse, conflicts_with = "find")]
    pub(crate) sweep: Option<Sweep>,

    /// Searches the largest value of a number in a range that fits, like batch=1..256
    #[arg(long, value_name = "NAME=N..N", value_parser = Search::parse)]
    pub(crate) find: Option<Search>,

    /// The JSON of an earlier dry run (--json): the peaks of both runs are compared
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "find"])]
    pub(crate) baseline: Option<PathBuf>,

    /// The folder for the snapshot and what else the run writes
    #[arg(long, short, value_name = "FOLDER", default_value = "orlop-dry-run")]
    pub(crate) output: PathBuf,

    /// The Python whose PyTorch is used [default: PROGRAM, if that is a Python, or else python3; in
    /// the package for Python, its interpreter]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,

    /// Faster: tries no other settings
    #[arg(long)]
    pub(crate) quick: bool,

    /// liborlop_dryrun_cuda.so [default: beside this program, or in ../lib]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,

    /// Prints JSON, an object, instead of text; what the program prints goes to the standard error
    #[arg(long)]
    pub(crate) json: bool,

    /// The program and its arguments, like python train.py; a file that ends in .py is run by --python
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_gpus_can_name_them() {
        let count =
            |text| Devices::parse(text).map(|devices| (devices.gpu.map(|gpu| gpu.key), devices.count));
        assert_eq!(count("8"), Ok((None, 8)));
        assert_eq!(count("h100x8"), Ok((Some("h100"), 8)));
        assert_eq!(count("rtx4090x2"), Ok((Some("rtx4090"), 2)));
        for wrong in ["", "0", "17", "x8", "h101x8", "rtx4090", "h100x"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
