//! The call sites of the page: only those that are used, numbered from 0.

use super::columns::{ColumnPayload, Columns};
use crate::analyze::SiteName;
use foldhash::HashMap;
use orlop_trace::history::{Frame, SiteId, Sites, TextId};
use serde::Serialize;
use std::borrow::Cow;

/// The texts, frames and stacks that are used.
#[derive(Debug)]
pub(super) struct Stacks<'a> {
    sites: &'a Sites,
    texts: Vec<Cow<'a, str>>,
    text_ids: HashMap<Cow<'a, str>, u64>,
    frames: Vec<[u64; 3]>,
    frame_ids: HashMap<Frame, u64>,
    stacks: Vec<SiteStack>,
    stack_ids: HashMap<SiteId, u64>,
}

#[derive(Debug)]
struct SiteStack {
    name: u64,
    frames: Vec<u64>,
}

/// The data of the stacks besides the columns.
#[derive(Debug, Serialize)]
pub(super) struct StackTable<'a> {
    texts: Vec<Cow<'a, str>>,
    columns: Columns,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(sites: &'a Sites) -> Self {
        let mut stacks = Self {
            sites,
            texts: Vec::new(),
            text_ids: HashMap::default(),
            frames: Vec::new(),
            frame_ids: HashMap::default(),
            stacks: Vec::new(),
            stack_ids: HashMap::default(),
        };
        stacks.text(Cow::Borrowed(""));
        stacks.number(SiteId::UNKNOWN);
        stacks
    }

    /// Returns the page's number for a call site.
    pub(super) fn number(&mut self, site: SiteId) -> u64 {
        if let Some(&number) = self.stack_ids.get(&site) {
            return number;
        }
        let frames = self.sites.frames(site).map(|frame| self.frame(frame)).collect();
        let summary = SiteName::of(self.sites, site);
        // The page has better names for an unknown site: it knows whether the block was live at the start.
        let name = if summary.is_empty() { String::new() } else { summary.display(self.sites).to_string() };
        let name = self.text(Cow::Owned(name));
        let number = length(&self.stacks);
        self.stacks.push(SiteStack { name, frames });
        self.stack_ids.insert(site, number);
        number
    }

    /// Returns the page's number for a text of the history; 0 for none.
    pub(super) fn text_id(&mut self, text: TextId) -> u64 {
        self.text(Cow::Borrowed(self.sites.name(text)))
    }

    fn text(&mut self, text: Cow<'a, str>) -> u64 {
        if let Some(&number) = self.text_ids.get(&text) {
            return number;
        }
        let number = length(&self.texts);
        self.texts.push(text.clone());
        self.text_ids.insert(text, number);
        number
    }

    fn frame(&mut self, frame: Frame) -> u64 {
        if let Some(&number) = self.frame_ids.get(&frame) {
            return number;
        }
        let texts = [frame.function, frame.file].map(|text| self.text_id(text));
        let number = length(&self.frames);
        self.frames.push([texts[0], texts[1], u64::from(frame.line)]);
        self.frame_ids.insert(frame, number);
        number
    }

    /// Packs everything.
    pub(super) fn finish(self, payload: &mut ColumnPayload) -> StackTable<'a> {
        let mut columns = Columns::default();
        let frame = |part: usize| self.frames.iter().map(move |frame| frame[part]);
        payload.deltas(&mut columns, "frame_function", frame(0));
        payload.deltas(&mut columns, "frame_file", frame(1));
        payload.plain(&mut columns, "frame_line", frame(2));
        payload.plain(&mut columns, "stack_name", self.stacks.iter().map(|stack| stack.name));
        payload.plain(&mut columns, "stack_depth", self.stacks.iter().map(|stack| length(&stack.frames)));
        let frames = self.stacks.iter().flat_map(|stack| stack.frames.iter().copied());
        payload.deltas(&mut columns, "stack_frames", frames);
        StackTable { texts: self.texts, columns }
    }
}

fn length<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}
