//! The vocabulary of snapshots: keys of records, and enumerated values.

/// Defines [`Word`] from the table of words.
macro_rules! words {
    ($($variant:ident = $text:literal $(| $other:literal)*,)+) => {
        /// A known word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Word {
            $($variant,)+
            /// Any other text.
            Other,
        }

        impl Word {
            /// Returns the word with this text.
            pub(super) fn of(text: &str) -> Self {
                match text {
                    $($text $(| $other)* => Self::$variant,)+
                    _ => Self::Other,
                }
            }

            /// Returns the text of the word.
            pub(super) const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other => "",
                }
            }
        }
    };
}

words! {
    // Keys of the snapshot.
    Segments = "segments",
    DeviceTraces = "device_traces",
    AllocatorSettings = "allocator_settings",
    Configuration = "PYTORCH_CUDA_ALLOC_CONF",
    AnyConfiguration = "PYTORCH_ALLOC_CONF",
    CudaHostRegister = "pinned_use_cuda_host_register",
    RecordStreamReuse = "graph_capture_record_stream_reuse",
    MaxRoundThreshold = "max_round_threshold",
    MaxCachedSize = "max_cached_size",
    ExternalAnnotations = "external_annotations",
    HostSegments = "host_segments",
    HostTraces = "host_traces",
    // Of segments and blocks.
    Device = "device",
    Address = "address",
    TotalSize = "total_size",
    AllocatedSize = "allocated_size",
    ActiveSize = "active_size",
    RequestedSize = "requested_size",
    Stream = "stream",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Blocks = "blocks",
    State = "state",
    Small = "small",
    Large = "large",
    ActiveAllocated = "active_allocated",
    // The alternative is from early versions.
    ActivePendingFree = "active_pending_free" | "active_awaiting_free",
    Inactive = "inactive",
    // Of events.
    Action = "action",
    Addr = "addr",
    DeviceFree = "device_free",
    Size = "size",
    TimeUs = "time_us",
    CompileContext = "compile_context",
    UserMetadata = "user_metadata",
    PoolId = "pool_id",
    Alloc = "alloc",
    FreeRequested = "free_requested",
    FreeCompleted = "free_completed",
    SegmentAlloc = "segment_alloc",
    SegmentFree = "segment_free",
    SegmentMap = "segment_map",
    SegmentUnmap = "segment_unmap",
    Snapshot = "snapshot",
    Oom = "oom",
    UserDefined = "user_defined" | "annotate",
    NotAvailable = "N/A",
    // Of frames.
    Frames = "frames",
    Name = "name",
    Filename = "filename",
    Line = "line",
    // Of annotations.
    Stage = "stage",
    Start = "START",
    End = "END",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for word in [Word::Segments, Word::Configuration, Word::UserDefined, Word::End, Word::NotAvailable] {
            assert_eq!(Word::of(word.text()), word);
        }
        assert_eq!(Word::of("active_awaiting_free"), Word::ActivePendingFree);
        assert_eq!(Word::of("frame"), Word::Other);
        assert_eq!(Word::of(""), Word::Other);
    }
}
