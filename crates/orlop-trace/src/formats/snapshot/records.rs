//! The records of a snapshot, and which field means what.

use super::build::{Build, ReadBlock, RecordFault};
use super::value::{RecordValue, SnapshotRecord};
use super::words::Word;
use crate::history::{
    Annotation, BlockState, EventAction, EventDetail, Frame, HistoryEvent, SegmentBlock, SiteId, Stage,
    TextId,
};
use orlop_core::{MemoryKind, StreamId};

/// Microseconds are written, nanoseconds are kept.
const NANOSECONDS: u64 = 1000;

/// The whole.
#[derive(Default)]
pub(super) struct Whole;

impl SnapshotRecord for Whole {
    const NAME: &'static str = "a snapshot";

    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error> {
        match key {
            Word::Segments => {
                build.found = true;
                value.records::<SegmentFields>(build)
            }
            Word::DeviceTraces => {
                build.found = true;
                value.traces::<EventFields>(build)
            }
            Word::AllocatorSettings => value.record::<Settings>(build),
            Word::ExternalAnnotations => value.records::<AnnotationFields>(build),
            _ => value.skip(),
        }
    }

    fn done(self, build: &mut Build) -> Result<(), RecordFault> {
        if build.found { Ok(()) } else { Err(RecordFault::NoSnapshot) }
    }
}

#[derive(Default)]
struct Settings;

impl SnapshotRecord for Settings {
    const NAME: &'static str = "settings";

    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error> {
        match key {
            // Once: a text that many keys share would be copied for each of them.
            Word::Configuration if build.settings.is_none() => {
                build.settings = value.string()?.map(Into::into);
                Ok(())
            }
            _ => value.skip(),
        }
    }

    fn done(self, _: &mut Build) -> Result<(), RecordFault> {
        Ok(())
    }
}

/// A segment without its blocks, which wait in the [`Build`].
#[derive(Default)]
pub(super) struct SegmentFields {
    pub(super) device: Option<u64>,
    pub(super) address: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) stream: u64,
    pub(super) small: bool,
    pub(super) expandable: bool,
    pub(super) pool: (u64, u64),
    pub(super) site: SiteId,
}

impl SnapshotRecord for SegmentFields {
    const NAME: &'static str = "a segment";

    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error> {
        match key {
            Word::Device => self.device = value.scalar()?.number(),
            Word::Address => self.address = value.scalar()?.number(),
            Word::TotalSize => self.bytes = value.scalar()?.number(),
            Word::Stream => self.stream = value.scalar()?.number().unwrap_or(0),
            Word::SegmentType => self.small = value.scalar()?.word() == Word::Small,
            Word::SegmentPoolId => self.pool = value.scalar()?.pair(),
            Word::IsExpandable => self.expandable = value.scalar()?.flag(),
            Word::Frames => self.site = value.site(build)?,
            Word::Blocks => value.records::<BlockFields>(build)?,
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, build: &mut Build) -> Result<(), RecordFault> {
        build.segment(self)
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

    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error> {
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
            Word::Frames => self.site = value.site(build)?,
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, build: &mut Build) -> Result<(), RecordFault> {
        let bytes =
            self.bytes.ok_or(RecordFault::Missing { record: Self::NAME, field: Word::Size.text() })?;
        let state =
            self.state.ok_or(RecordFault::Missing { record: Self::NAME, field: Word::State.text() })?;
        let requested = self.requested.unwrap_or(bytes);
        let known = self.address.is_some();
        let address = self.address.unwrap_or(0);
        let block = SegmentBlock { address, bytes, requested, state, site: self.site };
        build.blocks.push(ReadBlock { block, known });
        Ok(())
    }
}

#[derive(Default)]
struct EventFields {
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

    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error> {
        match key {
            Word::Action => self.action = Some(value.scalar()?.word()),
            Word::Addr => self.address = value.scalar()?.number(),
            Word::DeviceFree => self.free = value.scalar()?.number(),
            Word::Size => self.bytes = value.scalar()?.number(),
            Word::Stream => self.stream = value.scalar()?.number().unwrap_or(0),
            Word::TimeUs => self.microseconds = value.scalar()?.number().unwrap_or(0),
            Word::Frames => self.site = value.site(build)?,
            Word::UserMetadata => self.text = value.text(build)?,
            Word::CompileContext => {
                let context = value.text(build)?;
                let none = Word::of(build.sites.name(context)) == Word::NotAvailable;
                self.context = if none { TextId::NONE } else { context };
            }
            Word::PoolId | Word::SegmentPoolId => self.pool = value.scalar()?.pair(),
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, build: &mut Build) -> Result<(), RecordFault> {
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
            _ => {
                build.unknown_action();
                return Ok(());
            }
        };
        let quiet = matches!(action, EventAction::Snapshot | EventAction::Annotation);
        let required = |value: Option<u64>, field: Word| match value {
            Some(value) => Ok(value),
            None if quiet => Ok(0),
            None => Err(RecordFault::Missing { record: Self::NAME, field: field.text() }),
        };
        let address = if action == EventAction::OutOfMemory {
            self.free.or(self.address).unwrap_or(0)
        } else {
            required(self.address, Word::Addr)?
        };
        let event = HistoryEvent {
            time: self.microseconds.checked_mul(NANOSECONDS).ok_or(RecordFault::Time)?,
            address,
            bytes: required(self.bytes, Word::Size)?,
            stream: StreamId::new(self.stream),
            site: self.site,
            text: self.text,
            thread: 0,
            action,
            kind: MemoryKind::Default,
        };
        build.event(event, EventDetail { event: 0, context: self.context, pool: self.pool })
    }
}

/// A frame of a backtrace. Its number goes to the stack that is being read.
#[derive(Default)]
pub(super) struct FrameFields {
    name: TextId,
    file: TextId,
    line: u64,
}

impl SnapshotRecord for FrameFields {
    const NAME: &'static str = "a frame";

    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error> {
        match key {
            Word::Name => self.name = value.text(build)?,
            Word::Filename => self.file = value.text(build)?,
            Word::Line => self.line = value.scalar()?.number().unwrap_or(0),
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, build: &mut Build) -> Result<(), RecordFault> {
        let line = u32::try_from(self.line).unwrap_or(0);
        let frame = build.sites.frame_of(Frame { function: self.name, file: self.file, line });
        build.stack.push(frame);
        Ok(())
    }
}

#[derive(Default)]
struct AnnotationFields {
    stage: Option<Stage>,
    name: TextId,
    device: Option<u64>,
    microseconds: u64,
}

impl SnapshotRecord for AnnotationFields {
    const NAME: &'static str = "an annotation";

    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error> {
        match key {
            Word::Stage => {
                self.stage = match value.scalar()?.word() {
                    Word::Start => Some(Stage::Begin),
                    Word::End => Some(Stage::End),
                    _ => None,
                };
            }
            Word::Name => self.name = value.text(build)?,
            Word::Device => self.device = value.scalar()?.number(),
            Word::TimeUs => self.microseconds = value.scalar()?.number().unwrap_or(0),
            _ => value.skip()?,
        }
        Ok(())
    }

    fn done(self, build: &mut Build) -> Result<(), RecordFault> {
        build.annotations.push(Annotation {
            time: self.microseconds.checked_mul(NANOSECONDS).ok_or(RecordFault::Time)?,
            device: self.device.and_then(|device| u32::try_from(device).ok()),
            name: self.name,
            stage: self.stage.unwrap_or(Stage::Moment),
        });
        Ok(())
    }
}
