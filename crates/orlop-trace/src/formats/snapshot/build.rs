//! From records to a [`History`]: what readers hand over, put in order and checked.
//!
//! A history promises that a segment's blocks follow each other without gaps, that segments do not overlap,
//! and that no range passes the last address. Files promise nothing: what does not fit is mended and told
//! ([`HistoryWarning::BrokenSegment`]).

use super::records::SegmentFields;
use crate::history::{
    Annotation, BlockState, DeviceHistory, EventDetail, History, HistoryEvent, HistoryWarning, Segment,
    SegmentBlock, SiteId, Sites, TextId, warn,
};
use orlop_core::StreamId;
use std::collections::BTreeMap;

/// Devices are numbered below this: a list of events is written for each number.
pub(super) use crate::formats::MAX_DEVICES;

/// Why a record of a snapshot is refused, in any format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordFault {
    #[error("{record} has no {field}, or one that is no whole number from 0 or no known word")]
    Missing { record: &'static str, field: &'static str },
    #[error("a time passes 2^64 nanoseconds")]
    Time,
    #[error("device {device}: devices are numbered below {MAX_DEVICES}")]
    Device { device: u64 },
    #[error("more than 2^32 events on a device")]
    Events,
    #[error("neither segments nor device_traces: this is no memory snapshot")]
    NoSnapshot,
}

/// A block that was read; early versions did not write where.
pub(super) struct ReadBlock {
    pub(super) block: SegmentBlock,
    pub(super) known: bool,
}

/// A history in the making.
#[derive(Default)]
pub(super) struct Build {
    pub(super) sites: Sites,
    pub(super) settings: Option<String>,
    pub(super) annotations: Vec<Annotation>,
    /// Whether segments or events were there, if only empty ones.
    pub(super) found: bool,
    /// Frames of the stack that is being read.
    pub(super) stack: Vec<u32>,
    /// Blocks of the segment that is being read.
    pub(super) blocks: Vec<ReadBlock>,
    /// Of the device that is being read.
    trace: DeviceHistory,
    /// The place of the next event in the file's list.
    place: usize,
    devices: BTreeMap<u32, DeviceHistory>,
    warnings: Vec<HistoryWarning>,
}

impl Build {
    /// The site of the frames in `stack`, which is empty again.
    pub(super) fn take_stack(&mut self) -> SiteId {
        let site = self.sites.stack(&self.stack);
        self.stack.clear();
        site
    }

    pub(super) fn event(&mut self, event: HistoryEvent, detail: EventDetail) -> Result<(), RecordFault> {
        let number = u32::try_from(self.trace.events.len()).map_err(|_| RecordFault::Events)?;
        if detail.context != TextId::NONE || detail.pool != (0, 0) {
            self.trace.details.push(EventDetail { event: number, ..detail });
        }
        self.trace.events.push(event);
        self.place += 1;
        Ok(())
    }

    /// An event of a kind that this reader does not know is left out.
    pub(super) fn unknown_action(&mut self) {
        let unknown = HistoryWarning::UnknownAction { device: self.trace.device, event: self.place };
        warn(&mut self.warnings, unknown);
        self.place += 1;
    }

    /// What follows happened on `device`.
    pub(super) fn begin_trace(&mut self, device: usize) {
        self.trace.device = u32::try_from(device).unwrap_or(u32::MAX);
        self.place = 0;
    }

    pub(super) fn end_trace(&mut self) -> Result<(), RecordFault> {
        let trace = std::mem::take(&mut self.trace);
        if trace.events.is_empty() {
            return Ok(());
        }
        if trace.device >= MAX_DEVICES {
            return Err(RecordFault::Device { device: trace.device.into() });
        }
        let device = self.device(trace.device);
        device.events = trace.events;
        device.details = trace.details;
        Ok(())
    }

    fn device(&mut self, device: u32) -> &mut DeviceHistory {
        self.devices.entry(device).or_insert_with(|| DeviceHistory { device, ..DeviceHistory::default() })
    }

    /// A segment whose blocks are in `blocks`, which is empty again.
    pub(super) fn segment(&mut self, fields: SegmentFields) -> Result<(), RecordFault> {
        let address = fields
            .address
            .ok_or(RecordFault::Missing { record: "a segment", field: "address or a number in it" })?;
        let number = fields.device.unwrap_or(0);
        let device = u32::try_from(number).ok().filter(|&device| device < MAX_DEVICES);
        let device = device.ok_or(RecordFault::Device { device: number })?;
        let mut mended = false;
        let mut next = Some(address);
        for ReadBlock { block, known } in &mut self.blocks {
            if !*known {
                // Blocks follow each other.
                block.address = next.unwrap_or(u64::MAX);
            }
            next = block.address.checked_add(block.bytes);
        }
        let bytes = fields.bytes.or_else(|| next?.checked_sub(address)).unwrap_or(0);
        let Some(end) = address.checked_add(bytes).filter(|_| bytes > 0) else {
            self.blocks.clear();
            warn(&mut self.warnings, HistoryWarning::BrokenSegment { device, address });
            return Ok(());
        };
        self.blocks.sort_by_key(|block| block.block.address);
        let mut blocks = Vec::with_capacity(self.blocks.len());
        let mut at = address;
        let gap = |from: u64, to: u64| SegmentBlock {
            address: from,
            bytes: to - from,
            requested: 0,
            state: BlockState::Free,
            site: SiteId::UNKNOWN,
        };
        for ReadBlock { block, .. } in self.blocks.drain(..) {
            let fits = block.address.checked_add(block.bytes).is_some_and(|block_end| block_end <= end);
            if block.address < at || !fits || block.bytes == 0 {
                mended = true;
                continue;
            }
            if block.address > at {
                mended = true;
                blocks.push(gap(at, block.address));
            }
            at = block.address + block.bytes;
            blocks.push(block);
        }
        if at < end {
            mended = true;
            blocks.push(gap(at, end));
        }
        if mended {
            warn(&mut self.warnings, HistoryWarning::BrokenSegment { device, address });
        }
        self.device(device).end.push(Segment {
            address,
            bytes,
            stream: StreamId::new(fields.stream),
            small: fields.small,
            expandable: fields.expandable,
            pool: fields.pool,
            site: fields.site,
            blocks,
        });
        Ok(())
    }

    /// Segments in order, and what was there at the start.
    pub(super) fn finish(self) -> History {
        let Self { mut devices, mut warnings, .. } = self;
        for device in devices.values_mut() {
            device.end.sort_by_key(|segment| segment.address);
            let mut next = 0;
            let number = device.device;
            device.end.retain(|segment| {
                let apart = segment.address >= next;
                if apart {
                    next = segment.address + segment.bytes;
                } else {
                    warn(
                        &mut warnings,
                        HistoryWarning::BrokenSegment { device: number, address: segment.address },
                    );
                }
                apart
            });
        }
        let mut history = History {
            devices: devices.into_values().collect(),
            sites: self.sites,
            settings: self.settings,
            annotations: self.annotations,
            warnings,
        };
        history.find_start();
        history
    }
}
