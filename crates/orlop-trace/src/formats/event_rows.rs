//! The rows of a table of events: a device's blocks at the start, then its events, with what is live after
//! each.

use crate::history::{
    BlockEvent, BlockState, DeviceHistory, EventAction, EventInterpreter, Frame, HistoryEvent, SegmentBlock,
    SiteId, Sites,
};

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// `None` for a block of the start.
    pub(super) event: Option<usize>,
    /// The facts of the event; of a block of the start, those of its allocation.
    pub(super) fact: HistoryEvent,
    pub(super) pool: (u64, u64),
    pub(super) freed: Option<usize>,
    pub(super) live: u64,
    pub(super) reserved: u64,
}

impl Row {
    pub(super) fn action(&self) -> &'static str {
        if self.event.is_some() { self.fact.action.name() } else { "start" }
    }

    /// Returns the private pool, as it is written; `None` for the default pool.
    pub(super) fn pool_name(&self) -> Option<String> {
        let (owner, id) = self.pool;
        (self.pool != (0, 0)).then(|| format!("{owner},{id}"))
    }

    /// Returns `true` if a request was not served: then the address of the event is what was left.
    pub(super) fn fails(&self) -> bool {
        matches!(self.fact.action, EventAction::OutOfMemory | EventAction::Refused)
    }
}

/// Returns a number as a signed one, so that differences do not overflow.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the frames of a call site, a line each, innermost first.
pub(super) fn site_text(site: SiteId, sites: &Sites) -> String {
    let frame = |frame: Frame| {
        let (file, function) = (sites.name(frame.file), sites.name(frame.function));
        match file {
            "" | "??" => function.replace('\n', " "),
            file => format!("{file}:{} {function}", frame.line).replace('\n', " "),
        }
    };
    sites.frames(site).map(frame).collect::<Vec<_>>().join("\n")
}

/// The rows of a device, in order.
#[derive(Debug)]
pub(super) struct DeviceRows<'h> {
    device: &'h DeviceHistory,
    /// The blocks of the start.
    start: Vec<(HistoryEvent, (u64, u64))>,
    lifetimes: BlockLifetimes,
    next: usize,
    live: u64,
    reserved: u64,
}

impl<'h> DeviceRows<'h> {
    pub(super) fn new(device: &'h DeviceHistory) -> Self {
        let mut start = Vec::new();
        let time = device.events.first().map_or(0, |event| event.time);
        let mut add = |block: &SegmentBlock, stream, pool| {
            let mut fact = HistoryEvent::new(EventAction::Allocate, block.address, block.requested);
            (fact.time, fact.stream, fact.site) = (time, stream, block.site);
            start.push((fact, pool));
        };
        for segment in &device.start {
            let live = segment.blocks.iter().filter(|block| block.state == BlockState::Live);
            live.for_each(|block| add(block, segment.stream, segment.pool));
        }
        let unknown = HistoryEvent::new(EventAction::Allocate, 0, 0).stream;
        let live = device.unplaced.iter().filter(|block| block.state == BlockState::Live);
        live.for_each(|block| add(block, unknown, (0, 0)));
        let lifetimes = BlockLifetimes::of(device, &start);
        let reserved = device.start.iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.bytes));
        Self { device, start, lifetimes, next: 0, live: 0, reserved }
    }
}

impl Iterator for DeviceRows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let row = self.next;
        self.next += 1;
        let reserved = self.reserved;
        if let Some(&(fact, pool)) = self.start.get(row) {
            self.live = self.live.saturating_add(fact.bytes);
            let freed = self.lifetimes.freed[row];
            return Some(Row { event: None, fact, pool, freed, live: self.live, reserved });
        }
        let event = row - self.start.len();
        let fact = *self.device.events.get(event)?;
        self.live = self.lifetimes.live[event];
        let bytes = fact.bytes;
        match fact.action {
            EventAction::RegionReserved | EventAction::Mapped => {
                self.reserved = self.reserved.saturating_add(bytes);
            }
            EventAction::RegionReleased | EventAction::Unmapped => {
                self.reserved = self.reserved.saturating_sub(bytes);
            }
            _ => {}
        }
        let (pool, freed) = (self.device.pool(event), self.lifetimes.freed[row]);
        Some(Row { event: Some(event), fact, pool, freed, live: self.live, reserved: self.reserved })
    }
}

/// Which event ends each block.
#[derive(Debug)]
struct BlockLifetimes {
    /// By row: the event that frees the block which the row allocates.
    freed: Vec<Option<usize>>,
    /// By event: the requested bytes of live blocks after it.
    live: Vec<u64>,
}

impl BlockLifetimes {
    fn of(device: &DeviceHistory, start: &[(HistoryEvent, (u64, u64))]) -> Self {
        let mut freed = vec![None; start.len() + device.events.len()];
        let mut live = Vec::with_capacity(device.events.len());
        let mut interpreter = EventInterpreter::new();
        let mut sum = 0_u64;
        for (row, (fact, _)) in start.iter().enumerate() {
            interpreter.insert(fact.address, (row, fact.bytes));
            sum = sum.saturating_add(fact.bytes);
        }
        for (event, fact) in device.events.iter().enumerate() {
            match interpreter.event(fact, device.events.get(event + 1)) {
                Some(BlockEvent::Allocate | BlockEvent::Overlap) => {
                    // The free of a block that another one overlaps is missing: it ended before.
                    let mine = (start.len() + event, fact.bytes);
                    if let Some((row, bytes)) = interpreter.insert(fact.address, mine) {
                        freed[row] = Some(event);
                        sum = sum.saturating_sub(bytes);
                    }
                    sum = sum.saturating_add(fact.bytes);
                }
                Some(BlockEvent::Free { block: (row, bytes), .. }) => {
                    freed[row] = Some(event);
                    sum = sum.saturating_sub(bytes);
                }
                _ => {}
            }
            live.push(sum);
        }
        Self { freed, live }
    }
}
