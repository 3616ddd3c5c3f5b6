//! Libraries with tables that no linker writes end in an error or are read within bounds.

use orlop_dryrun::DryRunError;
use orlop_dryrun::elf::{LibraryFile, StandIn};
use std::fs;

const HASH: u64 = 4;
const STRINGS: u64 = 5;
const STRING_BYTES: u64 = 10;
const GNU_HASH: u64 = 0x6fff_fef5;
const VERSIONS_NEEDED: u64 = 0x6fff_fffe;
const VERSIONS_NEEDED_COUNT: u64 = 0x6fff_ffff;

/// The place in the file of the description of the first segment, which has the tables.
const SEGMENT: usize = 64;
/// The place of the offset of the dynamic section, which the third describes.
const DYNAMIC: usize = 64 + 2 * 56 + 8;

/// A library with bytes after its end that the first segment loads too.
struct Hostile {
    bytes: Vec<u8>,
    /// The address of the added bytes.
    added: u64,
}

impl Hostile {
    fn with(added: &[u8]) -> Self {
        let library = StandIn::new("a.so").functions("cudaMalloc", ["one".to_owned(), "two".to_owned()]);
        let mut bytes = library.to_bytes();
        let at = bytes.len() as u64;
        bytes.extend_from_slice(added);
        let mut hostile = Self { bytes, added: at };
        hostile.put(SEGMENT + 32, u64::MAX);
        hostile
    }

    fn put(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn number(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Replaces the entry of the dynamic section with the tag `old`; 0 is the end, after which there is room.
    fn tag(mut self, old: u64, tag: u64, value: u64) -> Self {
        let start = usize::try_from(self.number(DYNAMIC)).expect("an offset");
        let entry = (start..).step_by(16).find(|&at| self.number(at) == old).expect("the tag");
        self.put(entry, tag);
        self.put(entry + 8, value);
        self
    }

    fn read(&self) -> Result<LibraryFile, DryRunError> {
        let folder = tempfile::tempdir().expect("folders can be made");
        let path = folder.path().join("hostile.so");
        fs::write(&path, &self.bytes).expect("files can be written");
        LibraryFile::read(&path)
    }

    fn fault(&self) -> &'static str {
        match self.read() {
            Err(DryRunError::NotALibrary { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    }

    fn needs_versions(self, count: u64) -> Self {
        let at = self.added;
        self.tag(0, VERSIONS_NEEDED, at).tag(0, VERSIONS_NEEDED_COUNT, count)
    }
}

/// An entry of needed versions: a library, or a version of it.
fn entry(second: u16, third: u32, next: u32) -> Vec<u8> {
    let mut entry = vec![1, 0];
    entry.extend_from_slice(&second.to_le_bytes());
    for field in [0, third, next] {
        entry.extend_from_slice(&field.to_le_bytes());
    }
    entry
}

#[test]
fn entries_without_a_next_one_end_the_needed_versions() {
    let library = [entry(u16::MAX, 16, 0), entry(0, 0, 0)].concat();
    let read = Hostile::with(&library).needs_versions(u64::MAX).read().unwrap();
    assert_eq!(read.exports, ["one", "two"]);
}

#[test]
fn needed_versions_that_overlap_are_refused() {
    let library = entry(u16::MAX, 16, 16).repeat(1 << 14);
    assert_eq!(Hostile::with(&library).needs_versions(u64::MAX).fault(), "it needs too many versions");
}

#[test]
fn names_without_an_end_are_cut_off() {
    let hostile = Hostile::with(&[b'a'; 1 << 16]);
    let (at, bytes) = (hostile.added, 1 << 16);
    let read = hostile.tag(STRINGS, STRINGS, at).tag(STRING_BYTES, STRING_BYTES, bytes).read().unwrap();
    assert!(read.exports.iter().all(|name| name.len() == 4096), "{:?}", read.exports);
    assert_eq!(read.exports.len(), 2);
}

#[test]
fn a_chain_without_an_end_is_refused() {
    let header: Vec<u8> = [1_u32, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    let hostile = Hostile::with(&[header, vec![0; 2 << 20]].concat());
    let at = hostile.added;
    assert_eq!(hostile.tag(HASH, GNU_HASH, at).fault(), "a chain of its hash table has no end");
}

#[test]
fn segments_at_the_end_of_the_addresses_have_no_tables() {
    for (field, value) in [(8, u64::MAX), (16, u64::MAX - 64)] {
        let mut hostile = Hostile::with(&[]);
        hostile.put(SEGMENT + field, value);
        assert_eq!(hostile.fault(), "it has no names");
    }
}
