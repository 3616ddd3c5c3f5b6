//! The arguments of `orlop fit`.

use crate::arguments;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct FitArguments {
    /// Recordings of the same program at two or more sizes
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The size to predict, with the name of what it counts: batch=32
    #[arg(long, value_name = "NAME=SIZE", value_parser = named_size)]
    pub(crate) at: NamedSize,

    /// The sizes of the recordings, in the order of the files [default: the number after NAME in each file's
    /// name, as in run-batch8.pickle]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    pub(crate) sizes: Vec<u64>,

    /// Memory of the device, like 80GiB: also finds the largest size that fits it
    #[arg(long, value_name = "BYTES", value_parser = arguments::bytes)]
    pub(crate) memory: Option<u64>,

    /// The device [default: the one with the most events]
    #[arg(long, value_name = "DEVICE", value_parser = arguments::device)]
    pub(crate) device: Option<u32>,

    /// Prints JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A size with the name of what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedSize {
    pub(crate) name: String,
    pub(crate) size: u64,
}

fn named_size(text: &str) -> Result<NamedSize, String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let parsed =
        parts.and_then(|(name, size)| Some(NamedSize { name: name.to_owned(), size: size.parse().ok()? }));
    parsed.filter(|named| named.size > 0).ok_or_else(|| "write a name and a number: batch=32".to_owned())
}

impl NamedSize {
    /// Returns the number after the name in the name of a file: 8 of `run-batch8.pickle`.
    pub(crate) fn size_in(&self, file: &str) -> Option<u64> {
        let behind = file.match_indices(&self.name).map(|(at, name)| &file[at + name.len()..]);
        let mut numbers = behind.filter_map(|text| {
            let digits = text.trim_start_matches(['=', '-', '_', ' ']);
            let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().ok()
        });
        numbers.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_the_names_of_files() {
        let named = named_size("batch=32").expect("a name and a number");
        assert_eq!((&*named.name, named.size), ("batch", 32));
        for (file, size) in [
            ("run-batch8.pickle", Some(8)),
            ("batch=16_len=4.pickle.gz", Some(16)),
            ("batches-batch_4", Some(4)),
            ("run8.pickle", None),
        ] {
            assert_eq!(named.size_in(file), size, "{file}");
        }
        for text in ["32", "=32", "batch=", "batch=x", "batch=0"] {
            assert!(named_size(text).is_err(), "{text}");
        }
    }
}
