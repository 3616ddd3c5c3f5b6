//! [`LibraryFile`]: the names that a library needs, imports and exports.
//!
//! They are read from the tables that the loader uses: sections can be missing or wrong in a file that loads.

use crate::error::{DryRunError, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const LOADED_SEGMENT: u32 = 1;
const DYNAMIC_SEGMENT: u32 = 2;

const NEEDED: u64 = 1;
const HASH: u64 = 4;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const STRING_BYTES: u64 = 10;
const GNU_HASH: u64 = 0x6fff_fef5;
const VERSION_OF_SYMBOL: u64 = 0x6fff_fff0;
const VERSIONS_NEEDED: u64 = 0x6fff_fffe;
const VERSIONS_NEEDED_COUNT: u64 = 0x6fff_ffff;

/// The maximum number of bytes of a table: larger ones are refused.
const MAX_TABLE: u64 = 1 << 30;

/// The maximum number of bytes that are read of a table whose size is stored nowhere.
const MAX_UNSIZED: u64 = 1 << 20;

/// The maximum number of entries of needed versions, of 16 bytes each.
const MAX_VERSIONS: usize = 1 << 16;

/// The maximum number of bytes of a name. Longer ones, which templates of C++ have, are cut off: those of
/// NVIDIA's functions are short.
const MAX_NAME: usize = 4096;

/// A symbol that a library imports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportedSymbol {
    /// Its name.
    pub name: String,
    /// The library and the version of it that must define the symbol, if the import names them.
    pub version: Option<(String, String)>,
}

/// What a shared library needs, imports and exports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LibraryFile {
    /// The libraries that it needs.
    pub needed: Vec<String>,
    /// The symbols that it imports.
    pub imports: Vec<ImportedSymbol>,
    /// The names of the symbols that it exports.
    pub exports: Vec<String>,
}

impl LibraryFile {
    /// Reads a library. Only its tables of names are read, not its code.
    ///
    /// # Errors
    ///
    /// [`DryRunError::Read`], and [`DryRunError::NotALibrary`] if it is another kind of file.
    pub fn read(path: &Path) -> Result<Self> {
        let mut reader = Reader::open(path)?;
        let names = reader.names()?;
        let mut library = Self { needed: reader.needed(&names), ..Self::default() };
        reader.symbols(&names, &mut library)?;
        Ok(library)
    }
}

/// A part of the file that is loaded: its address, its place in the file, its bytes there.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

struct Reader {
    file: File,
    path: PathBuf,
    segments: Vec<Segment>,
    /// Tags and values of the dynamic section.
    dynamic: Vec<(u64, u64)>,
}

impl Reader {
    fn open(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) => return Err(DryRunError::Read { path, error }),
        };
        let mut reader = Self { file, path, segments: Vec::new(), dynamic: Vec::new() };
        reader.headers()?;
        Ok(reader)
    }

    fn fault(&self, fault: &'static str) -> DryRunError {
        DryRunError::NotALibrary { path: self.path.clone(), fault }
    }

    /// Reads bytes of the file; fewer if it ends before.
    fn up_to(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut read = Vec::new();
        let done = self
            .file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| (&mut self.file).take(bytes).read_to_end(&mut read));
        done.map_err(|error| DryRunError::Read { path: self.path.clone(), error })?;
        Ok(read)
    }

    fn bytes(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        if bytes > MAX_TABLE {
            return Err(self.fault("a table of names is too large"));
        }
        let read = self.up_to(offset, bytes)?;
        if read.len() as u64 == bytes { Ok(read) } else { Err(self.fault("it is cut off")) }
    }

    fn headers(&mut self) -> Result<()> {
        let header = self.up_to(0, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") || header.len() < 64 {
            return Err(self.fault("its first bytes are others"));
        }
        let (offset, each, count) = (u64_at(&header, 32), u16_at(&header, 54), u16_at(&header, 56));
        if each != 56 {
            return Err(self.fault("its segments are described in another form"));
        }
        let table = self.bytes(offset, 56 * u64::from(count))?;
        let mut dynamic = None;
        for entry in table.chunks_exact(56) {
            let segment =
                Segment { address: u64_at(entry, 16), offset: u64_at(entry, 8), bytes: u64_at(entry, 32) };
            match u32_at(entry, 0) {
                LOADED_SEGMENT => self.segments.push(segment),
                DYNAMIC_SEGMENT => dynamic = Some(segment),
                _ => {}
            }
        }
        let dynamic = dynamic.ok_or_else(|| self.fault("it is not loaded dynamically"))?;
        let table = self.bytes(dynamic.offset, dynamic.bytes)?;
        let entries = table.chunks_exact(16).map(|entry| (u64_at(entry, 0), u64_at(entry, 8)));
        self.dynamic = entries.take_while(|&(tag, _)| tag != 0).collect();
        Ok(())
    }

    fn value(&self, wanted: u64) -> Option<u64> {
        self.dynamic.iter().find(|(tag, _)| *tag == wanted).map(|&(_, value)| value)
    }

    /// Returns the place in the file of the table with this tag.
    fn place(&self, tag: u64) -> Option<u64> {
        let address = self.value(tag)?;
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address).filter(|&inside| inside < segment.bytes)?;
            inside.checked_add(segment.offset)
        })
    }

    fn names(&mut self) -> Result<Names> {
        let (Some(at), Some(bytes)) = (self.place(STRINGS), self.value(STRING_BYTES)) else {
            return Err(self.fault("it has no names"));
        };
        self.bytes(at, bytes).map(Names)
    }

    fn needed(&self, names: &Names) -> Vec<String> {
        self.dynamic.iter().filter(|(tag, _)| *tag == NEEDED).map(|&(_, name)| names.at(name)).collect()
    }

    fn symbols(&mut self, names: &Names, library: &mut LibraryFile) -> Result<()> {
        let Some(symbols_at) = self.place(SYMBOLS) else { return Ok(()) };
        let count = self.symbol_count()?;
        let table = self.bytes(symbols_at, 24 * count)?;
        let version_of = match self.place(VERSION_OF_SYMBOL) {
            Some(at) => self.bytes(at, 2 * count)?,
            None => Vec::new(),
        };
        let versions = self.versions(names)?;
        let mut named = 0;
        for (index, entry) in table.chunks_exact(24).enumerate().skip(1) {
            let name = names.at(u32_at(entry, 0).into());
            named += name.len() as u64;
            if named > MAX_TABLE {
                return Err(self.fault("its symbols share names that are too long"));
            }
            if u16_at(entry, 6) == 0 {
                let version = version_of.get(2 * index..2 * index + 2).map(|bytes| u16_at(bytes, 0) & 0x7fff);
                let version = version.and_then(|version| versions.get(&version).cloned());
                library.imports.push(ImportedSymbol { name, version });
            } else {
                library.exports.push(name);
            }
        }
        Ok(())
    }

    /// Returns the number of symbols, which only the hash tables know.
    fn symbol_count(&mut self) -> Result<u64> {
        if let Some(at) = self.place(HASH) {
            return Ok(u32_at(&self.bytes(at, 8)?, 4).into());
        }
        let Some(at) = self.place(GNU_HASH) else { return Ok(0) };
        let header = self.bytes(at, 16)?;
        let [buckets, first, filters] = [0, 4, 8].map(|field| u64::from(u32_at(&header, field)));
        let buckets_at = at + 16 + 8 * filters;
        let table = self.bytes(buckets_at, 4 * buckets)?;
        let last = table.chunks_exact(4).map(|bucket| u64::from(u32_at(bucket, 0))).max().unwrap_or(0);
        if last < first {
            return Ok(first);
        }
        // The chain of the last bucket ends with the last symbol, whose lowest bit is set.
        let chain = self.up_to(buckets_at + 4 * (buckets + last - first), MAX_UNSIZED)?;
        let end = (last..).zip(chain.chunks_exact(4)).find(|(_, entry)| u32_at(entry, 0) & 1 == 1);
        end.map(|(symbol, _)| symbol + 1).ok_or_else(|| self.fault("a chain of its hash table has no end"))
    }

    /// Returns the versions that the library needs, by the number that its symbols use.
    fn versions(&mut self, names: &Names) -> Result<BTreeMap<u16, (String, String)>> {
        let mut versions = BTreeMap::new();
        let Some(at) = self.place(VERSIONS_NEEDED) else { return Ok(versions) };
        let files = self.value(VERSIONS_NEEDED_COUNT).unwrap_or(0);
        let table = self.up_to(at, MAX_UNSIZED)?;
        let entry = |at: usize| table.get(at..).filter(|rest| rest.len() >= 16);
        let (mut file_at, mut entries) = (0, 0);
        // The distance to the last entry's successor is 0, as the count says too in a valid file.
        for _ in 0..files {
            let Some(file) = entry(file_at) else { break };
            let mut at = file_at + u32_at(file, 8) as usize;
            for _ in 0..u16_at(file, 2) {
                let Some(version) = entry(at) else { break };
                entries += 1;
                if entries > MAX_VERSIONS {
                    return Err(self.fault("it needs too many versions"));
                }
                let pair = (names.at(u32_at(file, 4).into()), names.at(u32_at(version, 8).into()));
                versions.insert(u16_at(version, 6) & 0x7fff, pair);
                match u32_at(version, 12) {
                    0 => break,
                    next => at += next as usize,
                }
            }
            match u32_at(file, 12) {
                0 => break,
                next => file_at += next as usize,
            }
        }
        Ok(versions)
    }
}

/// A table of names, each ended by a zero.
struct Names(Vec<u8>);

impl Names {
    /// Returns the name at an offset, up to its [`MAX_NAME`]th byte; empty if there is none.
    fn at(&self, offset: u64) -> String {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let rest = &rest[..rest.len().min(MAX_NAME)];
        let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }
}

/// Returns the bytes at `offset`, which the callers' sizes guarantee to exist; zeros otherwise.
fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let found = bytes.get(offset..offset + N).and_then(|bytes| bytes.try_into().ok());
    found.unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, offset))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}
