//! Counts the public items of each layer: what a user can name, or has to skip.
//!
//! The lint `unreachable_pub` is on, so that `pub` means what it says: a count of the source suffices.
//! Fields, variants, methods of traits, modules and re-exports are not counted.

use super::layers;
use crate::source::SourceText;
use crate::workspace::Member;
use std::collections::BTreeMap;

/// The words that begin an item.
const ITEMS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];

/// The words between `pub` and that word.
const QUALIFIERS: [&str; 4] = ["unsafe", "async", "extern", "const"];

/// The number of public items by crate.
#[derive(Debug, Default)]
pub(super) struct PublicItems(BTreeMap<String, usize>);

impl PublicItems {
    /// Counts the items of a file of this member, unless the member is not a layer's library.
    pub(super) fn add(&mut self, member: &Member, source: &SourceText) {
        if member.is_library() && layers::is_layer(&member.name) {
            *self.0.entry(member.name.clone()).or_default() += count(source);
        }
    }

    /// Returns the counts in one line, the largest first.
    pub(super) fn line(&self) -> String {
        let mut counts: Vec<(&str, usize)> =
            self.0.iter().map(|(name, &count)| (name.trim_start_matches("orlop-"), count)).collect();
        counts.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("public items: {}", counts.join(", "))
    }
}

fn count(source: &SourceText) -> usize {
    source.words("pub").filter(|&at| is_item(&source.code[at..])).count()
}

/// Returns `true` if a public item begins here with `pub`.
fn is_item(code: &str) -> bool {
    let mut words = code.split_whitespace();
    // `pub(crate)` is a single, different word.
    if words.next() != Some("pub") {
        return false;
    }
    // `const fn` is a function, `const NAME` a constant: one item either way.
    words
        .find(|word| !QUALIFIERS.contains(word) || *word == "const")
        .is_some_and(|word| ITEMS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_once() {
        let text = "pub struct A { pub field: u8 }\nimpl A {\npub const fn b() {}\npub const C: u8 = 0;\n\
                    pub unsafe fn d() {}\npub(crate) fn e() {}\n}\npub use f::G;\npub mod h {}\n\
                    // pub fn i()\npub unsafe trait J {}\nfn k() {}\n";
        assert_eq!(count(&SourceText::new(text.to_owned())), 5);
    }

    #[test]
    fn the_largest_crate_is_first() {
        let counts = [("orlop-a".to_owned(), 3), ("orlop-b".to_owned(), 7)];
        assert_eq!(PublicItems(counts.into()).line(), "public items: b 7, a 3");
    }
}
