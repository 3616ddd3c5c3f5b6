//! Events as a recorder is told them, made records; and records, when they are read, made events with their names.

use super::names::Lookup;
use super::record::Record;
use super::thread::{self, Busy};
use super::{Backtraces, Inner, backtraces, locked};
use crate::formats::device_number;
use crate::history::{Action, Event};
use orlop_alloc::{Event as Told, Found, OutOfMemory, RawBlock, Refusal, RegionAction, RegionEvent};
use orlop_core::{Device, MemoryKind};
use std::sync::atomic::Ordering;

impl Inner {
    #[inline]
    pub(super) fn block(&self, block: &RawBlock, action: Action) {
        let Some(thread) = thread::number() else { return self.unseen() };
        let mut record = Record {
            ticks: self.clock.raw(),
            address: block.ptr.addr().get() as u64,
            bytes: block.requested as u64,
            stream: block.stream.get(),
            text: block.tag.number(),
            site: 0,
            thread,
            device: device_number(block.device),
            action,
            kind: block.kind,
        };
        if action == Action::Allocate {
            if self.backtraces != Backtraces::NONE {
                record.site = self.site(record.bytes);
            }
        } else if !block.uses.is_empty() {
            self.uses(block, record);
        }
        self.rings.push(&record);
    }

    /// The streams that used a block, told when it is given back.
    #[cold]
    fn uses(&self, block: &RawBlock, record: Record) {
        for stream in block.uses.iter() {
            self.rings.push(&Record { action: Action::Use, stream: stream.get(), ..record });
        }
    }

    /// The number of a call site, if this allocation's is asked for.
    #[cold]
    fn site(&self, bytes: u64) -> u32 {
        let Backtraces { every, at_least } = self.backtraces;
        let number = self.allocations.fetch_add(1, Ordering::Relaxed);
        if bytes < at_least && number.checked_rem(every).is_none_or(|rest| rest != 0) {
            return 0;
        }
        let _busy = Busy::begin();
        backtraces::walk(|addresses| locked(&self.names).stack(addresses))
    }

    #[cold]
    pub(super) fn raw_freed(&self, address: usize, found: &Found) {
        let Some(thread) = thread::number() else { return self.unseen() };
        // An address alone is the host's.
        let record = Record::mark(self.clock.raw(), Action::FreeRequested, Device::CPU, thread);
        let (address, bytes) = (address as u64, found.requested as u64);
        self.rings.push(&Record { address, bytes, kind: found.kind, ..record });
    }

    #[cold]
    pub(super) fn rare(&self, event: &Told<'_>) {
        match event {
            Told::OutOfMemory { report } => {
                let Some(thread) = thread::number() else { return self.unseen() };
                let record = Record::mark(self.clock.raw(), Action::OutOfMemory, report.device, thread);
                self.rings.push(&Record {
                    address: left(report),
                    bytes: report.requested as u64,
                    text: report.tag.number(),
                    kind: report.kind,
                    ..record
                });
            }
            Told::Region { event, .. } => self.region(event),
            Told::Reclaimed { step, kind, bytes } => {
                self.mark(&format!("reclaimed: {step}"), Device::CPU, *bytes, *kind);
            }
            Told::FreeRefused { error, .. } => {
                self.mark(&format!("free refused: {error}"), Device::CPU, 0, MemoryKind::Default);
            }
            _ => {}
        }
    }

    fn region(&self, event: &RegionEvent) {
        let Some(thread) = thread::number() else { return self.unseen() };
        let action = match event.action {
            RegionAction::Gained => Action::RegionGained,
            RegionAction::Lost => Action::RegionLost,
            RegionAction::Mapped => Action::Mapped,
            RegionAction::Unmapped => Action::Unmapped,
            _ => return,
        };
        let _busy = Busy::begin();
        let ticks = event.at.unwrap_or_else(|| self.clock.raw());
        let (address, bytes, stream) = (event.address as u64, event.bytes as u64, event.stream.get());
        let record = Record::mark(ticks, action, event.device, thread);
        self.regions.note(Record { address, bytes, stream, ..record });
    }

    #[cold]
    pub(super) fn mark(&self, text: &str, device: Device, bytes: u64, kind: MemoryKind) {
        let Some(thread) = thread::number() else { return self.unseen() };
        let _busy = Busy::begin();
        let record = Record::mark(self.clock.raw(), Action::Annotation, device, thread);
        let text = locked(&self.names).text(text);
        self.rings.push(&Record { text, bytes, kind, ..record });
    }

    #[cold]
    fn unseen(&self) {
        self.unseen.fetch_add(1, Ordering::Relaxed);
    }

    /// Records as events with their devices, in order of time.
    pub(super) fn named(&self, records: &mut [Record], lookup: &mut Lookup) -> Vec<(u32, Event)> {
        records.sort_by_key(|record| record.ticks);
        let names = locked(&self.names);
        let name = |record: &Record| {
            let time = self.clock.delta_as_nanos(self.zero, record.ticks.max(self.zero));
            let text = match record.action {
                Action::Annotation => lookup.text(record.text, &names),
                _ => lookup.tag(record.text),
            };
            (record.device, record.event(time, text, lookup.site(record.site, &names)))
        };
        records.iter().map(name).collect()
    }
}

/// What could still have been gained when a request failed; nothing where no limit is known.
fn left(report: &OutOfMemory) -> u64 {
    let held = if report.refusal == Refusal::Budget { report.live } else { report.reserved };
    report.limit.map_or(0, |limit| limit.saturating_sub(held))
}
