//! Tables of the texts and call sites that records refer to.

use crate::history::{SiteId, Sites, TextId};
use std::collections::HashMap;

/// The maximum number of different annotations, and of call sites; later ones have no name.
const MAX_NAMES: usize = 1 << 20;

/// Texts and stacks, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct NameTables {
    texts: Vec<Box<str>>,
    text_numbers: HashMap<Box<str>, u32>,
    /// Return addresses, innermost first.
    stacks: Vec<Box<[usize]>>,
    stack_numbers: HashMap<Box<[usize]>, u32>,
}

impl NameTables {
    pub(super) fn text(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.text_numbers.get(text) {
            return number;
        }
        let Some(number) = next(self.texts.len()) else { return 0 };
        self.texts.push(text.into());
        self.text_numbers.insert(text.into(), number);
        number
    }

    pub(super) fn stack(&mut self, addresses: &[usize]) -> u32 {
        if let Some(&number) = self.stack_numbers.get(addresses) {
            return number;
        }
        let Some(number) = next(self.stacks.len()) else { return 0 };
        self.stacks.push(addresses.into());
        self.stack_numbers.insert(addresses.into(), number);
        number
    }
}

fn next(length: usize) -> Option<u32> {
    u32::try_from(length + 1).ok().filter(|_| length < MAX_NAMES)
}

/// Converts the names of records to ids of a table of sites, each once.
#[derive(Debug, Default)]
pub(super) struct NameLookup {
    pub(super) sites: Sites,
    tags: HashMap<u32, TextId>,
    texts: HashMap<u32, TextId>,
    stacks: HashMap<u32, SiteId>,
}

impl NameLookup {
    pub(super) fn tag(&mut self, number: u32) -> TextId {
        if number == 0 {
            return TextId::NONE;
        }
        let sites = &mut self.sites;
        *self.tags.entry(number).or_insert_with(|| sites.text(orlop_alloc::Tag::from_number(number).name()))
    }

    pub(super) fn text(&mut self, number: u32, names: &NameTables) -> TextId {
        let Some(index) = number.checked_sub(1) else { return TextId::NONE };
        let sites = &mut self.sites;
        *self
            .texts
            .entry(number)
            .or_insert_with(|| names.texts.get(index as usize).map_or(TextId::NONE, |text| sites.text(text)))
    }

    pub(super) fn site(&mut self, number: u32, names: &NameTables) -> SiteId {
        let Some(index) = number.checked_sub(1) else { return SiteId::UNKNOWN };
        let sites = &mut self.sites;
        *self.stacks.entry(number).or_insert_with(|| match names.stacks.get(index as usize) {
            Some(addresses) => super::backtraces::resolve(addresses, sites),
            None => SiteId::UNKNOWN,
        })
    }
}
