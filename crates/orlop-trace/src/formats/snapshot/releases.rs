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
