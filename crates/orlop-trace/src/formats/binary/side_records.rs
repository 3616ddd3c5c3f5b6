//! Records beside segments and events: annotations, details of events, unplaced blocks, warnings.

use super::super::BlockFault;
use super::payload::{PayloadCursor, PayloadResult, put};
use super::record::BinaryRecord;
use super::tables::RecordTables;
use super::writer::BinaryWriter;
use super::{ANNOTATION, COUNTED_RESERVED, DETAIL, REFUSAL, RELEASES, UNPLACED, WARNING};
use crate::Result;
use crate::history::{
    Annotation, AnnotationStage, BlockState, DeviceHistory, EventDetail, HistoryWarning, RefusalDetail,
    RefusalOutcome, SegmentBlock, Sites,
};
use orlop_alloc::RefusalCause;
use orlop_core::torch::{TorchReleases, TorchVersion};
use std::io::Write;

/// Stands for no release.
const NO_RELEASE: TorchVersion = TorchVersion::new(0, 0);

impl<W: Write> BinaryWriter<W> {
    pub(crate) fn warning(&mut self, warning: HistoryWarning) -> Result<()> {
        let (code, numbers) = code(warning);
        let payload = self.payload();
        payload.extend([WARNING, code]);
        for number in numbers {
            put(payload, number);
        }
        self.end_of_record()
    }

    pub(super) fn releases(&mut self, releases: TorchReleases) -> Result<()> {
        let before = releases.before.unwrap_or(NO_RELEASE);
        let payload = self.payload();
        payload.push(RELEASES);
        for version in [releases.since, before] {
            put(payload, version.major().into());
            put(payload, version.minor().into());
        }
        self.end_of_record()
    }

    pub(super) fn annotation(&mut self, annotation: &Annotation, sites: &Sites) -> Result<()> {
        let name = self.text(annotation.name, sites)?;
        let payload = self.payload();
        payload.push(ANNOTATION);
        put(payload, annotation.time);
        put(payload, annotation.device.map_or(0, |device| u64::from(device) + 1));
        put(payload, name.into());
        payload.push(match annotation.stage {
            AnnotationStage::Begin => 0,
            AnnotationStage::End => 1,
            AnnotationStage::Instant => 2,
        });
        self.end_of_record()
    }

    /// Writes the detail of an event.
    pub(super) fn detail(&mut self, device: u32, detail: &EventDetail, sites: &Sites) -> Result<()> {
        let context = self.text(detail.context, sites)?;
        self.begin_device(device);
        let payload = self.payload();
        payload.push(DETAIL);
        for number in [detail.event.into(), context.into(), detail.pool.0, detail.pool.1] {
            put(payload, number);
        }
        self.end_of_record()
    }

    /// Writes what is known about the refusal that was the last event of the device.
    pub(crate) fn refusal(&mut self, device: u32, refusal: &RefusalDetail, sites: &Sites) -> Result<()> {
        let refuser = self.text(refusal.refuser, sites)?;
        self.begin_device(device);
        let cause = place(&RefusalCause::ALL, refusal.cause);
        let outcome = place(&RefusalOutcome::ALL, refusal.outcome);
        let payload = self.payload();
        payload.extend([REFUSAL, cause, outcome]);
        put(payload, refuser.into());
        self.end_of_record()
    }

    /// Writes a block of the start in no known segment.
    pub(super) fn unplaced(&mut self, device: u32, block: &SegmentBlock, sites: &Sites) -> Result<()> {
        let site = self.site(block.site, sites)?;
        self.begin_device(device);
        let payload = self.payload();
        payload.push(UNPLACED);
        for number in [block.address, block.bytes, block.requested, site.into()] {
            put(payload, number);
        }
        self.end_of_record()
    }

    /// Writes the peak of reserved bytes, if the source counted it.
    pub(super) fn counted_reserved(&mut self, device: &DeviceHistory) -> Result<()> {
        let Some(bytes) = device.counted_reserved else { return Ok(()) };
        self.begin_device(device.device);
        let payload = self.payload();
        payload.push(COUNTED_RESERVED);
        put(payload, bytes);
        self.end_of_record()
    }
}

impl RecordTables {
    pub(super) fn releases(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<BinaryRecord> {
        let mut version = || {
            let mut number = || u16::try_from(cursor.varint()?).map_err(|_| BlockFault::Number);
            Ok(TorchVersion::new(number()?, number()?))
        };
        let (since, before) = (version()?, version()?);
        let before = (before != NO_RELEASE).then_some(before);
        Ok(BinaryRecord::Releases(TorchReleases { since, before }))
    }

    pub(super) fn unplaced(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<BinaryRecord> {
        let (address, bytes, requested) = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
        let (state, site) = (BlockState::Live, self.site(cursor)?);
        Ok(BinaryRecord::Unplaced(SegmentBlock { address, bytes, requested, state, site }))
    }

    pub(super) fn annotation(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<BinaryRecord> {
        let time = cursor.varint()?;
        let device =
            cursor.varint()?.checked_sub(1).map(u32::try_from).transpose().map_err(|_| BlockFault::Number)?;
        let name = self.text(cursor)?;
        let stage = match cursor.byte()? {
            0 => AnnotationStage::Begin,
            1 => AnnotationStage::End,
            2 => AnnotationStage::Instant,
            _ => return Err(BlockFault::Reference),
        };
        Ok(BinaryRecord::Annotation(Annotation { time, device, name, stage }))
    }

    pub(super) fn refusal(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<BinaryRecord> {
        let cause = RefusalCause::ALL.get(usize::from(cursor.byte()?)).copied();
        let outcome = RefusalOutcome::ALL.get(usize::from(cursor.byte()?)).copied();
        let (Some(cause), Some(outcome)) = (cause, outcome) else { return Err(BlockFault::Reference) };
        let refuser = self.text(cursor)?;
        Ok(BinaryRecord::Refusal(RefusalDetail { event: 0, cause, refuser, outcome }))
    }

    pub(super) fn detail(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<BinaryRecord> {
        let event = cursor.short()?;
        let context = self.text(cursor)?;
        Ok(BinaryRecord::Detail(EventDetail { event, context, pool: (cursor.varint()?, cursor.varint()?) }))
    }
}

/// Returns the place of a value in the list of all.
fn place<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().position(|one| *one == value).and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
}

fn code(warning: HistoryWarning) -> (u8, [u64; 3]) {
    match warning {
        HistoryWarning::FreedUnknown { device, event, address } => {
            (0, [device.into(), event as u64, address])
        }
        HistoryWarning::Overlap { device, event, address } => (1, [device.into(), event as u64, address]),
        HistoryWarning::NotInSegments { device, address, bytes } => (2, [device.into(), bytes, address]),
        HistoryWarning::BrokenSegment { device, address } => (3, [device.into(), 0, address]),
        HistoryWarning::SizeDiffers { device, event, address } => (4, [device.into(), event as u64, address]),
        HistoryWarning::CutOff { at } => (5, [0, 0, at]),
        HistoryWarning::Damaged { at } => (6, [0, 0, at]),
        HistoryWarning::More { count } => (7, [0, 0, count]),
        HistoryWarning::RegionMisfit { device, event, address } => {
            (8, [device.into(), event as u64, address])
        }
        HistoryWarning::UnknownAction { device, event } => (9, [device.into(), event as u64, 0]),
        HistoryWarning::TotalMisfit { device, event } => (10, [device.into(), event as u64, 0]),
        HistoryWarning::EventsLost { count } => (11, [0, 0, count]),
        HistoryWarning::NoAddresses { device } => (12, [device.into(), 0, 0]),
    }
}

pub(super) fn warning(code: u8, [first, second, address]: [u64; 3]) -> PayloadResult<HistoryWarning> {
    let device = u32::try_from(first).map_err(|_| BlockFault::Number)?;
    let event = || usize::try_from(second).map_err(|_| BlockFault::Number);
    Ok(match code {
        0 => HistoryWarning::FreedUnknown { device, event: event()?, address },
        1 => HistoryWarning::Overlap { device, event: event()?, address },
        2 => HistoryWarning::NotInSegments { device, address, bytes: second },
        3 => HistoryWarning::BrokenSegment { device, address },
        4 => HistoryWarning::SizeDiffers { device, event: event()?, address },
        5 => HistoryWarning::CutOff { at: address },
        6 => HistoryWarning::Damaged { at: address },
        7 => HistoryWarning::More { count: address },
        8 => HistoryWarning::RegionMisfit { device, event: event()?, address },
        9 => HistoryWarning::UnknownAction { device, event: event()? },
        10 => HistoryWarning::TotalMisfit { device, event: event()? },
        11 => HistoryWarning::EventsLost { count: address },
        12 => HistoryWarning::NoAddresses { device },
        _ => return Err(BlockFault::Reference),
    })
}
