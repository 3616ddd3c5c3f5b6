//! Building a [`History`] from records: sorted and checked.
//!
//! In a history, the blocks of a segment follow each other without gaps, segments do not overlap, and no
//! range exceeds the address space. Files may violate all of that: inconsistent segments are repaired and
//! reported as [`HistoryWarning::BrokenSegment`].

use super::pools;
use super::releases::ReleaseEvidence;
use crate::history::{
    Annotation, DeviceHistory, EventDetail, History, HistoryEvent, HistoryWarning, Segment, SegmentBlock,
    SiteId, Sites, TextId,
};
use crate::{Result, TraceError};
use orlop_core::StreamId;
use std::collections::BTreeMap;

/// Devices are numbered below this limit: snapshots have a list of events for each number.
pub(super) use crate::formats::MAX_DEVICES;

/// A block that was read. Early versions did not write addresses.
pub(super) struct ReadBlock {
    pub(super) block: SegmentBlock,
    pub(super) known: bool,
}

/// A segment that was read, without its blocks, which are in the [`SnapshotBuilder`].
#[derive(Default)]
pub(super) struct ReadSegment {
    pub(super) device: Option<u64>,
    pub(super) address: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) stream: u64,
    pub(super) small: bool,
    pub(super) expandable: bool,
    pub(super) pool: (u64, u64),
    pub(super) site: SiteId,
}

/// A history that is being built.
#[derive(Default)]
pub(super) struct SnapshotBuilder {
    pub(super) sites: Sites,
    pub(super) settings: Option<String>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) releases: ReleaseEvidence,
    /// Whether there were lists of segments or events, even empty ones.
    pub(super) found: bool,
    /// The frames of the stack that is being read.
    pub(super) stack: Vec<u32>,
    /// The blocks of the segment that is being read.
    pub(super) blocks: Vec<ReadBlock>,
    /// The events of the device that is being read.
    trace: DeviceHistory,
    /// The index of the next event in the list of the file.
    next_event: usize,
    devices: BTreeMap<u32, DeviceHistory>,
    warnings: Vec<HistoryWarning>,
}

impl SnapshotBuilder {
    /// Returns the site of the frames in `stack` and clears it.
    pub(super) fn take_stack(&mut self) -> SiteId {
        let site = self.sites.stack(&self.stack);
        self.stack.clear();
        site
    }

    pub(super) fn event(&mut self, event: HistoryEvent, detail: EventDetail) -> Result<()> {
        let number = u32::try_from(self.trace.events.len())
            .map_err(|_| TraceError::TooManyEvents { limit: u32::MAX.into() })?;
        if detail.context != TextId::NONE || detail.pool != (0, 0) {
            self.trace.details.push(EventDetail { event: number, ..detail });
        }
        self.trace.events.push(event);
        self.next_event += 1;
        Ok(())
    }

    /// Takes all events of a device that has none yet, with their details.
    pub(super) fn events(&mut self, events: Vec<HistoryEvent>, details: Vec<EventDetail>) {
        self.next_event = events.len();
        (self.trace.events, self.trace.details) = (events, details);
    }

    /// Skips an event of an unknown kind.
    pub(super) fn unknown_action(&mut self) {
        let unknown = HistoryWarning::UnknownAction { device: self.trace.device, event: self.next_event };
        unknown.add_to(&mut self.warnings);
        self.next_event += 1;
    }

    /// Begins the events of `device`.
    pub(super) fn begin_trace(&mut self, device: usize) {
        self.trace.device = u32::try_from(device).unwrap_or(u32::MAX);
        self.next_event = 0;
    }

    pub(super) fn end_trace(&mut self) -> Result<()> {
        let trace = std::mem::take(&mut self.trace);
        if trace.events.is_empty() {
            return Ok(());
        }
        if trace.device >= MAX_DEVICES {
            return Err(TraceError::DeviceNumber { device: trace.device.into(), limit: MAX_DEVICES });
        }
        let device = self.device(trace.device);
        device.events = trace.events;
        device.details = trace.details;
        Ok(())
    }

    fn device(&mut self, device: u32) -> &mut DeviceHistory {
        self.devices.entry(device).or_insert_with(|| DeviceHistory { device, ..DeviceHistory::default() })
    }

    /// Adds a segment with the blocks in `blocks`, which is cleared.
    pub(super) fn segment(&mut self, fields: ReadSegment) -> Result<()> {
        let address = fields
            .address
            .ok_or(TraceError::MissingField { record: "a segment", field: "address or a number in it" })?;
        let number = fields.device.unwrap_or(0);
        let device = u32::try_from(number).ok().filter(|&device| device < MAX_DEVICES);
        let device = device.ok_or(TraceError::DeviceNumber { device: number, limit: MAX_DEVICES })?;
        let mut repaired = false;
        let mut next = Some(address);
        for ReadBlock { block, known } in &mut self.blocks {
            if !*known {
                // Without addresses, blocks follow each other.
                block.address = next.unwrap_or(u64::MAX);
            }
            next = block.address.checked_add(block.bytes);
        }
        let bytes = fields.bytes.or_else(|| next?.checked_sub(address)).unwrap_or(0);
        let Some(end) = address.checked_add(bytes).filter(|_| bytes > 0) else {
            self.blocks.clear();
            HistoryWarning::BrokenSegment { device, address }.add_to(&mut self.warnings);
            return Ok(());
        };
        self.blocks.sort_by_key(|block| block.block.address);
        let mut blocks = Vec::with_capacity(self.blocks.len());
        let mut at = address;
        for ReadBlock { block, .. } in self.blocks.drain(..) {
            let fits = block.address.checked_add(block.bytes).is_some_and(|block_end| block_end <= end);
            if block.address < at || !fits || block.bytes == 0 {
                repaired = true;
                continue;
            }
            if block.address > at {
                repaired = true;
                blocks.push(SegmentBlock::free(at, block.address - at));
            }
            at = block.address + block.bytes;
            blocks.push(block);
        }
        if at < end {
            repaired = true;
            blocks.push(SegmentBlock::free(at, end - at));
        }
        if repaired {
            HistoryWarning::BrokenSegment { device, address }.add_to(&mut self.warnings);
        }
        self.device(device).end.push(Segment {
            address,
            bytes,
            stream: StreamId::from_raw(fields.stream),
            small: fields.small,
            expandable: fields.expandable,
            pool: fields.pool,
            site: fields.site,
            blocks,
        });
        Ok(())
    }

    /// Sorts the segments and computes the state at the start.
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
                    let address = segment.address;
                    HistoryWarning::BrokenSegment { device: number, address }.add_to(&mut warnings);
                }
                apart
            });
            pools::infer(device);
        }
        let mut history = History {
            devices: devices.into_values().collect(),
            sites: self.sites,
            settings: self.settings,
            annotations: self.annotations,
            releases: self.releases.releases(),
            warnings,
        };
        history.find_start();
        history
    }
}
