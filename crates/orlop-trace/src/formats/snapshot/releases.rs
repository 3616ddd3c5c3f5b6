//! The releases of PyTorch that write a snapshot, by the keys that it has.
//!
//! Source: the snapshots of the published releases 2.1 to 2.15.

use super::words::Word;
use orlop_core::torch::{TorchReleases, TorchVersion};

/// The keys that not all releases write, and the first minor release of PyTorch 2 that does.
const SINCE: [(Word, u16); 9] = [
    (Word::ExternalAnnotations, 5),
    (Word::CompileContext, 5),
    (Word::AnyConfiguration, 9),
    (Word::RecordStreamReuse, 9),
    (Word::UserMetadata, 10),
    (Word::MaxRoundThreshold, 13),
    (Word::MaxCachedSize, 13),
    (Word::HostSegments, 14),
    (Word::HostTraces, 14),
];

/// The keys of a snapshot, a bit for each word: they tell releases apart.
#[derive(Debug, Default)]
pub(super) struct ReleaseEvidence(u128);

const _: () = assert!((Word::Other as u32) < u128::BITS);

impl ReleaseEvidence {
    /// Notes a key.
    #[inline]
    pub(super) fn key(&mut self, key: Word) {
        self.0 |= 1 << key as u32;
    }

    fn has(&self, key: Word) -> bool {
        self.0 & (1 << key as u32) != 0
    }

    /// Returns the releases that write these keys and no others.
    pub(super) fn releases(&self) -> TorchReleases {
        let version = |&(_, minor): &(Word, u16)| TorchVersion::new(2, minor);
        let present = SINCE.iter().filter(|(key, _)| self.has(*key));
        let since = present.map(version).max().unwrap_or(TorchVersion::OLDEST);
        // Only the absent keys of settings as PyTorch writes them tell that a release is older: other
        // programs copy the settings whole, and leave out other parts.
        let is_absent = |key: Word| {
            matches!(key, Word::RecordStreamReuse | Word::MaxRoundThreshold)
                && self.has(Word::CudaHostRegister)
                && !self.has(key)
        };
        let before = SINCE.iter().find(|(key, _)| is_absent(*key)).map(version);
        // Keys that contradict each other were put together by another program.
        TorchReleases { since, before: before.filter(|&before| before > since) }
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::binary::{read_binary, write_binary};
    use crate::history::History;

    fn history(settings: &str, event: &str, more: &str) -> History {
        let json = format!(
            r#"{{"segments": [], "device_traces": [[{{"action": "alloc", "addr": 512, "size": 100{event}}}]],
                "allocator_settings": {{{settings}}}{more}}}"#
        );
        History::parse(json.as_bytes()).expect("a snapshot")
    }

    #[test]
    fn releases_follow_from_keys() {
        let old = r#""pinned_use_cuda_host_register": false"#;
        let reuse = r#""pinned_use_cuda_host_register": false, "graph_capture_record_stream_reuse": false"#;
        let newest = format!(r#"{reuse}, "max_round_threshold": -1, "max_cached_size": -1"#);
        let (metadata, context) = (r#", "user_metadata": """#, r#", "compile_context": "N/A""#);
        for (settings, event, more, releases) in [
            ("", "", "", "2.1 or newer"),
            ("", context, "", "2.5 or newer"),
            (old, "", "", "2.1 to 2.8"),
            (old, context, "", "2.5 to 2.8"),
            (r#""PYTORCH_ALLOC_CONF": """#, "", "", "2.9 or newer"),
            (reuse, "", "", "2.9 to 2.12"),
            (reuse, metadata, r#", "external_annotations": []"#, "2.10 to 2.12"),
            (&newest, metadata, "", "2.13 or newer"),
            (&newest, metadata, r#", "host_traces": []"#, "2.14 or newer"),
            // Put together by another program.
            (old, metadata, "", "2.10 or newer"),
        ] {
            let history = history(settings, event, more);
            assert_eq!(history.releases.to_string(), releases, "{settings} {event} {more}");
            let mut file = Vec::new();
            write_binary(&history, &mut file).expect("it is written");
            assert_eq!(read_binary(&file[..]).expect("it is read").releases, history.releases);
        }
    }
}
