//! Tables of the texts and call sites that records refer to.

use crate::history::{Interner, SiteId, Sites, TextId};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// The maximum number of different annotations, and of call sites; later ones have no name.
const MAX_NAMES: usize = 1 << 20;

/// Texts and stacks, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct NameTables {
    texts: Interner<Box<str>>,
    /// Return addresses, innermost first.
    stacks: Interner<Box<[usize]>>,
}

impl NameTables {
    pub(super) fn text(&mut self, text: &str) -> u32 {
        number(&mut self.texts, text)
    }

    pub(super) fn stack(&mut self, addresses: &[usize]) -> u32 {
        number(&mut self.stacks, addresses)
    }
}

/// Returns the number of a name, or 0 if it is new and the table is full.
fn number<T, Q: Eq + Hash + ToOwned + ?Sized>(names: &mut Interner<T>, name: &Q) -> u32
where
    T: Eq + Hash + Borrow<Q> + From<Q::Owned> + Clone,
{
    let is_full = names.len() >= MAX_NAMES;
    let id = if is_full { names.find(name) } else { Some(names.id(name)) };
    id.map_or(0, |id| id + 1)
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
            .or_insert_with(|| names.texts.get(index).map_or(TextId::NONE, |text| sites.text(text)))
    }

    pub(super) fn site(&mut self, number: u32, names: &NameTables) -> SiteId {
        let Some(index) = number.checked_sub(1) else { return SiteId::UNKNOWN };
        let sites = &mut self.sites;
        *self.stacks.entry(number).or_insert_with(|| match names.stacks.get(index) {
            Some(addresses) => super::backtraces::resolve(addresses, sites),
            None => SiteId::UNKNOWN,
        })
    }
}
