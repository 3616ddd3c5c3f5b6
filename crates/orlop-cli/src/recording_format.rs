//! The file formats that `orlop convert` writes.

use clap::ValueEnum;
use std::fmt;
use std::path::Path;

/// A file format of recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordingFormat {
    /// PyTorch's memory snapshot, which opens in memory_viz
    Pickle,
    /// The snapshot as JSON
    Json,
    /// A timeline with counters by kind, for Perfetto and chrome://tracing
    Perfetto,
    /// A profile of the live memory by call site, for pprof
    Pprof,
    /// A table of events
    Csv,
    /// A table of events for databases and data frames
    #[cfg(feature = "parquet")]
    Parquet,
    /// The same table as an SQLite database
    #[cfg(feature = "sqlite")]
    Sqlite,
    /// orlop's own format, which is lossless
    Orlop,
}

impl RecordingFormat {
    /// Returns the format for this file name; `None` if the extension is unknown.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let endings = [
            (".pickle", Self::Pickle),
            (".pkl", Self::Pickle),
            (".trace.json", Self::Perfetto),
            (".json", Self::Json),
            (".pb.gz", Self::Pprof),
            (".pprof", Self::Pprof),
            (".csv", Self::Csv),
            #[cfg(feature = "parquet")]
            (".parquet", Self::Parquet),
            #[cfg(feature = "sqlite")]
            (".sqlite", Self::Sqlite),
            #[cfg(feature = "sqlite")]
            (".db", Self::Sqlite),
            (".orlop", Self::Orlop),
        ];
        endings.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| format)
    }

    /// Returns `true` if several recordings can be written as one table.
    pub(crate) fn has_partitions(self) -> bool {
        match self {
            #[cfg(feature = "parquet")]
            Self::Parquet => true,
            _ => false,
        }
    }

    /// Returns the name in arguments.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl fmt::Display for RecordingFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pickle => "a PyTorch snapshot (pickle)",
            Self::Json => "a PyTorch snapshot (JSON)",
            Self::Perfetto => "a timeline for Perfetto",
            Self::Pprof => "a profile for pprof",
            Self::Csv => "a table",
            #[cfg(feature = "parquet")]
            Self::Parquet => "a Parquet table",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => "an SQLite database",
            Self::Orlop => "an orlop recording",
        })
    }
}
