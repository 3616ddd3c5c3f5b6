//! The records of a snapshot and the meaning of their fields.

use super::build::{ReadBlock, ReadSegment, SnapshotBuilder};
use super::value::{RecordValue, SnapshotRecord};
use super::words::Word;
use crate::history::{
    Annotation, AnnotationStage, BlockState, EventAction, EventDetail, Frame, HistoryEvent, SegmentBlock,
    SiteId, TextId,
};
use crate::{Result, TraceError};
use orlop_core::{MemoryKind, StreamId};

/// Nanoseconds in a microsecond: files have microseconds, histories nanoseconds.
const NANOSECONDS: u64 = 1000;

/// The outermost record.
#[derive(Default)]
pub(super) struct SnapshotFields;

impl SnapshotRecord for SnapshotFields {
    const NAME: &'static str = "a snapshot";

    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error> {
        builder.releases.key(key);
        match key {
            Word::Segments => {
                builder.found = true;
                value.records::<ReadSegment>(builder)
            }
            Word::DeviceTraces => {
                builder.found = true;
                value.traces::<EventFields>(builder)
            }
            Word::AllocatorSettings => value.record::<SettingsFields>(builder),
            Word::ExternalAnnotations => value.records::<AnnotationFields>(builder),
            _ => value.skip(),
        }
    }

    fn done(self, builder: &mut SnapshotBuilder) -> Result<()> {
        if builder.found { Ok(()) } else { Err(TraceError::NotASnapshot) }
    }
}

/// The settings of the allocator.
#[derive(Default)]
struct SettingsFields;

impl SnapshotRecord for SettingsFields {
    const NAME: &'static str = "settings";

    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error> {
        builder.releases.key(key);
        match key {
            // Read once: a text that many keys share would be copied for each of them.
            Word::Configuration | Word::AnyConfiguration if builder.settings.is_none() => {
                builder.settings = value.string()?.map(Into::into);
                Ok(())
            }
            _ => value.skip(),
        }
    }

    fn done(self, _: &mut SnapshotBuilder) -> Result<()> {
        Ok(())
    }
}

impl SnapshotRecord for ReadSegment {
    const NAME: &'static str = "a segment";

    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error> {
        match key {
            Word::Device => self.device = value.scalar()?.number(),
            Word::Address => self.address = value.scalar()?.number(),
            Word::TotalSize => self.bytes = value.scalar()?.number(),
            Word::Stream => self.stream = value.scalar()?.number().unwrap_or(0),
            Word::SegmentType => self.small = value.scalar()?.word() == Word::Small,
            Word::SegmentPoolId => self.pool = value.scalar()?.pair(),
            Word::IsExpandable => self.expandable = value.scalar()?.flag(),
            Word::Frames => self.site = value.site(builder)?,
            Word::Blocks => value.records::<BlockFields>(builder)?,
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, builder: &mut SnapshotBuilder) -> Result<()> {
        builder.segment(self)
    }
}

#[derive(Default)]
struct BlockFields {
    address: Option<u64>,
    bytes: Option<u64>,
    requested: Option<u64>,
    state: Option<BlockState>,
    site: SiteId,
}

impl SnapshotRecord for BlockFields {
    const NAME: &'static str = "a block";

    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error> {
        match key {
            Word::Address => self.address = value.scalar()?.number(),
            Word::Size => self.bytes = value.scalar()?.number(),
            Word::RequestedSize => self.requested = value.scalar()?.number(),
            Word::State => {
                self.state = match value.scalar()?.word() {
                    Word::ActiveAllocated => Some(BlockState::Live),
                    Word::ActivePendingFree => Some(BlockState::Pending),
                    Word::Inactive => Some(BlockState::Free),
                    _ => None,
                };
            }
            Word::Frames => self.site = value.site(builder)?,
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, builder: &mut SnapshotBuilder) -> Result<()> {
        let bytes =
            self.bytes.ok_or(TraceError::MissingField { record: Self::NAME, field: Word::Size.text() })?;
        let state =
            self.state.ok_or(TraceError::MissingField { record: Self::NAME, field: Word::State.text() })?;
        let requested = self.requested.unwrap_or(bytes);
        let known = self.address.is_some();
        let address = self.address.unwrap_or(0);
        let block = SegmentBlock { address, bytes, requested, state, site: self.site };
        builder.blocks.push(ReadBlock { block, known });
        Ok(())
    }
}

#[derive(Default, Clone, Copy)]
pub(super) struct EventFields {
    action: Option<Word>,
    address: Option<u64>,
    free: Option<u64>,
    bytes: Option<u64>,
    stream: u64,
    microseconds: u64,
    site: SiteId,
    text: TextId,
    context: TextId,
    pool: (u64, u64),
}

impl SnapshotRecord for EventFields {
    const NAME: &'static str = "an event";

    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error> {
        builder.releases.key(key);
        match key {
            Word::Action => self.set_action(value.scalar()?.word()),
            Word::Addr | Word::DeviceFree | Word::Size | Word::Stream | Word::TimeUs => {
                self.set_number(key, value.scalar()?.number());
            }
            Word::Frames => self.set_site(value.site(builder)?),
            Word::UserMetadata => self.text = value.text(builder)?,
            Word::CompileContext => {
                let context = value.text(builder)?;
                let none = builder.sites.name(context) == Word::NotAvailable.text();
                self.context = if none { TextId::NONE } else { context };
            }
            Word::PoolId | Word::SegmentPoolId => self.pool = value.scalar()?.pair(),
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, builder: &mut SnapshotBuilder) -> Result<()> {
        match self.finish()? {
            Some((event, detail)) => builder.event(event, detail),
            None => {
                builder.unknown_action();
                Ok(())
            }
        }
    }
}

impl EventFields {
    pub(super) fn set_action(&mut self, action: Word) {
        self.action = Some(action);
    }

    pub(super) fn set_site(&mut self, site: SiteId) {
        self.site = site;
    }

    /// Sets the field of a key whose values are numbers.
    pub(super) fn set_number(&mut self, key: Word, number: Option<u64>) {
        match key {
            Word::Addr => self.address = number,
            Word::DeviceFree => self.free = number,
            Word::Size => self.bytes = number,
            Word::Stream => self.stream = number.unwrap_or(0),
            Word::TimeUs => self.microseconds = number.unwrap_or(0),
            _ => {}
        }
    }

    /// Returns the event with its detail; `None` if its action is unknown.
    pub(super) fn finish(self) -> Result<Option<(HistoryEvent, EventDetail)>> {
        let action = match self.action {
            Some(Word::Alloc) => EventAction::Allocate,
            Some(Word::FreeRequested) => EventAction::FreeRequested,
            Some(Word::FreeCompleted) => EventAction::FreeCompleted,
            Some(Word::SegmentAlloc) => EventAction::RegionReserved,
            Some(Word::SegmentFree) => EventAction::RegionReleased,
            Some(Word::SegmentMap) => EventAction::Mapped,
            Some(Word::SegmentUnmap) => EventAction::Unmapped,
            Some(Word::Snapshot) => EventAction::Snapshot,
            Some(Word::Oom) => EventAction::OutOfMemory,
            Some(Word::UserDefined) => EventAction::Annotation,
            _ => return Ok(None),
        };
        let without_memory = matches!(action, EventAction::Snapshot | EventAction::Annotation);
        let required = |value: Option<u64>, field: Word| match value {
            Some(value) => Ok(value),
            None if without_memory => Ok(0),
            None => {
                let record = <Self as SnapshotRecord>::NAME;
                Err(TraceError::MissingField { record, field: field.text() })
            }
        };
        let address = if action == EventAction::OutOfMemory {
            self.free.or(self.address).unwrap_or(0)
        } else {
            required(self.address, Word::Addr)?
        };
        let event = HistoryEvent {
            time: self.microseconds.checked_mul(NANOSECONDS).ok_or(TraceError::TimeOverflow)?,
            address,
            bytes: required(self.bytes, Word::Size)?,
            stream: StreamId::from_raw(self.stream),
            site: self.site,
            text: self.text,
            thread: 0,
            action,
            kind: MemoryKind::Default,
        };
        Ok(Some((event, EventDetail { event: 0, context: self.context, pool: self.pool })))
    }
}

/// A frame of a backtrace. Its id is added to the stack that is being read.
#[derive(Default)]
pub(super) struct FrameFields {
    name: TextId,
    file: TextId,
    line: u64,
}

impl SnapshotRecord for FrameFields {
    const NAME: &'static str = "a frame";

    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error> {
        match key {
            Word::Name => self.name = value.text(builder)?,
            Word::Filename => self.file = value.text(builder)?,
            Word::Line => self.line = value.scalar()?.number().unwrap_or(0),
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, builder: &mut SnapshotBuilder) -> Result<()> {
        let line = u32::try_from(self.line).unwrap_or(0);
        let frame = builder.sites.frame_of(Frame { function: self.name, file: self.file, line });
        builder.stack.push(frame);
        Ok(())
    }
}

#[derive(Default)]
struct AnnotationFields {
    stage: Option<AnnotationStage>,
    name: TextId,
    device: Option<u64>,
    microseconds: u64,
}

impl SnapshotRecord for AnnotationFields {
    const NAME: &'static str = "an annotation";

    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error> {
        match key {
            Word::Stage => {
                self.stage = match value.scalar()?.word() {
                    Word::Start => Some(AnnotationStage::Begin),
                    Word::End => Some(AnnotationStage::End),
                    _ => None,
                };
            }
            Word::Name => self.name = value.text(builder)?,
            Word::Device => self.device = value.scalar()?.number(),
            Word::TimeUs => self.microseconds = value.scalar()?.number().unwrap_or(0),
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, builder: &mut SnapshotBuilder) -> Result<()> {
        builder.annotations.push(Annotation {
            time: self.microseconds.checked_mul(NANOSECONDS).ok_or(TraceError::TimeOverflow)?,
            device: self.device.and_then(|device| u32::try_from(device).ok()),
            name: self.name,
            stage: self.stage.unwrap_or(AnnotationStage::Instant),
        });
        Ok(())
    }
}
