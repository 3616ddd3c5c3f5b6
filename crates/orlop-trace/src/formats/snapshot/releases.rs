//! The releases of PyTorch that write a snapshot, by the keys that it has.
//!
//! Source: the snapshots of the published releases 2.1 to 2.15.

use super::words::Word;
use orlop_core::torch::{TorchReleases, TorchVersion};

/// Returns the first release whose snapshots have this key; `None` if all have it.
fn first_with(key: Word) -> Option<TorchVersion> {
    let minor = match key {
        Word::ExternalAnnotations | Word::CompileContext => 5,
        Word::AnyConfiguration | Word::RecordStreamReuse => 9,
        Word::UserMetadata => 10,
        Word::MaxRoundThreshold | Word::MaxCachedSize => 13,
        Word::HostSegments | Word::HostTraces => 14,
        _ => return None,
    };
    Some(TorchVersion::new(2, minor))
}

/// The keys of a snapshot that tell releases apart.
#[derive(Debug, Default)]
pub(super) struct ReleaseEvidence {
    since: Option<TorchVersion>,
    /// Whether there are settings as PyTorch writes them. Only their absent keys tell that a release is
    /// older: other programs copy the settings whole, and leave out other parts.
    has_settings: bool,
    has_stream_reuse: bool,
    has_round_threshold: bool,
}

impl ReleaseEvidence {
    /// Notes a key.
    pub(super) fn key(&mut self, key: Word) {
        self.since = self.since.max(first_with(key));
        match key {
            Word::CudaHostRegister => self.has_settings = true,
            Word::RecordStreamReuse => self.has_stream_reuse = true,
            Word::MaxRoundThreshold => self.has_round_threshold = true,
            _ => {}
        }
    }

    /// Returns the releases that write these keys and no others.
    pub(super) fn releases(&self) -> TorchReleases {
        let since = self.since.unwrap_or(TorchVersion::OLDEST);
        let absent = [
            (self.has_stream_reuse, Word::RecordStreamReuse),
            (self.has_round_threshold, Word::MaxRoundThreshold),
        ];
        let first_absent = absent.into_iter().find(|(is_present, _)| self.has_settings && !is_present);
        let before = first_absent.and_then(|(_, key)| first_with(key));
        // Keys that contradict each other were put together by another program.
        TorchReleases { since, before: before.filter(|&before| before > since) }
    }
}
