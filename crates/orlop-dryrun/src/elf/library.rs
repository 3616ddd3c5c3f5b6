//! [`StandIn`]: a shared library that is written without a compiler.
//!
//! A stand-in has the name and the symbol versions of a library, so that the loader accepts it where the
//! library is needed, and it may define functions. Each function passes its own name and its caller to one
//! function of another library, the *answer*, and returns what that returns. A stand-in without functions is
//! only a name: the loader then finds the symbols in libraries that were loaded before it.
//!
//! The file has two loadable segments: tables and code, which are read and executed, and the dynamic section
//! with the address of the answer, which the loader writes.

use std::collections::BTreeSet;

const PAGE: usize = 4096;

/// Bytes of the code of a function, with its padding.
const FUNCTION: usize = 24;

const NEEDED: u64 = 1;
const HASH: u64 = 4;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const RELOCATIONS: u64 = 7;
const RELOCATION_BYTES: u64 = 8;
const RELOCATION_ENTRY: u64 = 9;
const STRING_BYTES: u64 = 10;
const SYMBOL_ENTRY: u64 = 11;
const SONAME: u64 = 14;
const VERSION_OF_SYMBOL: u64 = 0x6fff_fff0;
const VERSIONS: u64 = 0x6fff_fffc;
const VERSION_COUNT: u64 = 0x6fff_fffd;

/// A shared library to be written.
#[derive(Debug, Clone, Default)]
pub struct StandIn {
    soname: String,
    needed: Vec<String>,
    versions: BTreeSet<String>,
    answer: String,
    functions: Vec<String>,
}

impl StandIn {
    /// Creates a library of this name, which defines nothing.
    #[must_use]
    pub fn new(soname: &str) -> Self {
        Self { soname: soname.to_owned(), ..Self::default() }
    }

    /// Adds a library that is loaded with this one.
    #[must_use]
    pub fn needs(mut self, soname: &str) -> Self {
        self.needed.push(soname.to_owned());
        self
    }

    /// Adds versions that other libraries need of this one.
    #[must_use]
    pub fn versions(mut self, versions: impl IntoIterator<Item = String>) -> Self {
        self.versions.extend(versions);
        self
    }

    /// Defines functions. Each calls `answer`, a function of another library, with its own name as a C string
    /// and with the address to which it returns.
    #[must_use]
    pub fn functions(mut self, answer: &str, names: impl IntoIterator<Item = String>) -> Self {
        answer.clone_into(&mut self.answer);
        self.functions.extend(names);
        self
    }

    /// Returns the bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut strings = Strings::default();
        let soname = strings.add(&self.soname);
        let needed: Vec<usize> = self.needed.iter().map(|name| strings.add(name)).collect();
        let versions: Vec<usize> = self.versions.iter().map(|name| strings.add(name)).collect();
        let answer = strings.add(&self.answer);
        let names: Vec<usize> = self.functions.iter().map(|name| strings.add(name)).collect();

        // Symbols: none, the answer, the functions.
        let symbols = 2 + names.len();
        let mut layout = Layout { end: 64 + 3 * 56 };
        let strings_at = layout.place(strings.0.len(), 1);
        let symbols_at = layout.place(24 * symbols, 8);
        let hash_at = layout.place(4 * (2 + 2 * symbols), 8);
        let version_of_at = layout.place(2 * symbols, 2);
        let versions_at = layout.place(28 * (versions.len() + 1), 4);
        let relocation_at = layout.place(24, 8);
        let code_at = layout.place(FUNCTION * names.len(), 16);
        let read_only = layout.end;
        layout.end = layout.end.next_multiple_of(PAGE);
        let answer_at = layout.place(8, 8);
        let dynamic_at = layout.place(16 * (16 + needed.len()), 8);

        let mut image = Image(vec![0; layout.end]);
        image.header(read_only, answer_at, dynamic_at);
        image.put(strings_at, &strings.0);
        image.symbol(symbols_at + 24, answer, 0);
        for (index, &name) in names.iter().enumerate() {
            image.symbol(symbols_at + 24 * (2 + index), name, code_at + FUNCTION * index);
            image.function(code_at + FUNCTION * index, strings_at + name, answer_at);
        }
        image.hash(hash_at, &self.functions);
        image.versions(version_of_at, versions_at, symbols, soname, &self.soname, &self.versions, &versions);
        image.u64s(relocation_at, &[answer_at as u64, (1 << 32) | 6, 0]);

        let mut dynamic: Vec<(u64, usize)> = needed.into_iter().map(|name| (NEEDED, name)).collect();
        dynamic.extend([
            (SONAME, soname),
            (HASH, hash_at),
            (STRINGS, strings_at),
            (STRING_BYTES, strings.0.len()),
            (SYMBOLS, symbols_at),
            (SYMBOL_ENTRY, 24),
        ]);
        if !self.functions.is_empty() {
            dynamic.extend([(RELOCATIONS, relocation_at), (RELOCATION_BYTES, 24), (RELOCATION_ENTRY, 24)]);
        }
        if !self.versions.is_empty() {
            dynamic.extend([
                (VERSION_OF_SYMBOL, version_of_at),
                (VERSIONS, versions_at),
                (VERSION_COUNT, self.versions.len() + 1),
            ]);
        }
        for (index, (tag, value)) in dynamic.into_iter().enumerate() {
            image.u64s(dynamic_at + 16 * index, &[tag, value as u64]);
        }
        image.0
    }
}

/// Places parts of the file one after the other.
struct Layout {
    end: usize,
}

impl Layout {
    fn place(&mut self, bytes: usize, alignment: usize) -> usize {
        let start = self.end.next_multiple_of(alignment);
        self.end = start + bytes;
        start
    }
}

/// Names, each ended by a zero; the first is empty.
struct Strings(Vec<u8>);

impl Default for Strings {
    fn default() -> Self {
        Self(vec![0])
    }
}

impl Strings {
    fn add(&mut self, name: &str) -> usize {
        let at = self.0.len();
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        at
    }
}

/// The bytes of the file. Offsets in the file are the addresses relative to where it is loaded.
struct Image(Vec<u8>);

impl Image {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u16s(&mut self, at: usize, values: &[u16]) {
        for (index, value) in values.iter().enumerate() {
            self.put(at + 2 * index, &value.to_le_bytes());
        }
    }

    fn u32s(&mut self, at: usize, values: &[u32]) {
        for (index, value) in values.iter().enumerate() {
            self.put(at + 4 * index, &value.to_le_bytes());
        }
    }

    fn u64s(&mut self, at: usize, values: &[u64]) {
        for (index, value) in values.iter().enumerate() {
            self.put(at + 8 * index, &value.to_le_bytes());
        }
    }

    fn header(&mut self, read_only: usize, writable_at: usize, dynamic_at: usize) {
        self.put(0, b"\x7fELF\x02\x01\x01");
        // A shared library for x86-64.
        self.u16s(16, &[3, 62]);
        self.u32s(20, &[1]);
        self.u64s(32, &[64]);
        self.u16s(52, &[64, 56, 3, 64]);
        let end = self.0.len();
        let segments = [
            (1, 5, 0, read_only, PAGE),
            (1, 6, writable_at, end - writable_at, PAGE),
            (2, 6, dynamic_at, end - dynamic_at, 8),
        ];
        for (index, (kind, flags, at, bytes, alignment)) in segments.into_iter().enumerate() {
            let (entry, at, bytes) = (64 + 56 * index, at as u64, bytes as u64);
            self.u32s(entry, &[kind, flags]);
            self.u64s(entry + 8, &[at, at, at, bytes, bytes, alignment as u64]);
        }
    }

    /// Writes a symbol for a function; one at 0 is imported.
    fn symbol(&mut self, entry: usize, name: usize, at: usize) {
        self.u32s(entry, &[offset(name)]);
        self.put(entry + 4, &[0x12, 0]);
        // Any section but the one of undefined symbols: nothing reads its number.
        self.u16s(entry + 6, &[u16::from(at != 0)]);
        self.u64s(entry + 8, &[at as u64]);
    }

    /// Writes `lea rdi, [name]; mov rsi, [rsp]; jmp [answer]`.
    fn function(&mut self, at: usize, name_at: usize, answer_at: usize) {
        let relative = |target: usize, from: usize| offset(target).wrapping_sub(offset(from)).to_le_bytes();
        self.put(at, &[0x48, 0x8d, 0x3d]);
        self.put(at + 3, &relative(name_at, at + 7));
        self.put(at + 7, &[0x48, 0x8b, 0x34, 0x24, 0xff, 0x25]);
        self.put(at + 13, &relative(answer_at, at + 17));
    }

    /// Writes a hash table of the functions, which are the symbols from 2 on, with a bucket for each.
    fn hash(&mut self, at: usize, functions: &[String]) {
        let buckets = functions.len().max(1);
        let (first_bucket, first_chain) = (at + 8, at + 8 + 4 * buckets);
        self.u32s(at, &[offset(buckets), offset(functions.len() + 2)]);
        let mut last = vec![0; buckets];
        for (symbol, function) in (2..).zip(functions) {
            let before = &mut last[hash_of(function) as usize % buckets];
            self.u32s(first_chain + 4 * symbol, &[*before]);
            *before = offset(symbol);
        }
        self.u32s(first_bucket, &last);
    }

    #[allow(clippy::too_many_arguments)] // All are positions of one table.
    fn versions(
        &mut self,
        version_of_at: usize,
        versions_at: usize,
        symbols: usize,
        soname_at: usize,
        soname: &str,
        names: &BTreeSet<String>,
        names_at: &[usize],
    ) {
        for index in 1..symbols {
            self.u16s(version_of_at + 2 * index, &[1]);
        }
        let all = std::iter::once((soname, soname_at))
            .chain(names.iter().map(|name| &**name).zip(names_at.iter().copied()));
        let last = names.len();
        for (index, (name, name_at)) in all.enumerate() {
            let entry = versions_at + 28 * index;
            // The first is the version of the file itself.
            self.u16s(entry, &[1, u16::from(index == 0), u16::try_from(index + 1).unwrap_or(u16::MAX), 1]);
            self.u32s(entry + 8, &[hash_of(name), 20, if index == last { 0 } else { 28 }]);
            self.u32s(entry + 20, &[offset(name_at), 0]);
        }
    }
}

/// Returns an offset in a file, which is far smaller than 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The hash of the System V ABI.
fn hash_of(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}
