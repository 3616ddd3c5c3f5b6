//! [`LibraryFile`]: the names that a library needs, imports and exports.

use crate::error::{DryRunError, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const SECTION_DYNAMIC: u32 = 6;
const SECTION_SYMBOLS: u32 = 11;
const SECTION_VERSIONS_NEEDED: u32 = 0x6fff_fffe;
const SECTION_VERSION_OF_SYMBOL: u32 = 0x6fff_ffff;

/// The maximum number of bytes of a section of names: larger ones are refused.
const MAX_SECTION: u64 = 1 << 30;

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
        let sections = reader.sections()?;
        let mut library = Self::default();
        if let Some(dynamic) = sections.iter().find(|section| section.kind == SECTION_DYNAMIC) {
            library.needed = reader.needed(dynamic, &sections)?;
        }
        if let Some(symbols) = sections.iter().find(|section| section.kind == SECTION_SYMBOLS) {
            reader.symbols(symbols, &sections, &mut library)?;
        }
        Ok(library)
    }
}

#[derive(Debug, Clone, Copy)]
struct Section {
    kind: u32,
    offset: u64,
    bytes: u64,
    link: usize,
    info: u32,
}

struct Reader {
    file: File,
    path: PathBuf,
}

impl Reader {
    fn open(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(DryRunError::Read { path, error }),
        }
    }

    fn fault(&self, fault: &'static str) -> DryRunError {
        DryRunError::NotALibrary { path: self.path.clone(), fault }
    }

    fn bytes(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        if bytes > MAX_SECTION {
            return Err(self.fault("a table of names is too large"));
        }
        let mut read = Vec::new();
        let done = self
            .file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| (&mut self.file).take(bytes).read_to_end(&mut read));
        match done {
            Ok(found) if found as u64 == bytes => Ok(read),
            Ok(_) => Err(self.fault("it is cut off")),
            Err(error) => Err(DryRunError::Read { path: self.path.clone(), error }),
        }
    }

    fn sections(&mut self) -> Result<Vec<Section>> {
        let header = self.bytes(0, 64)?;
        if header[..6] != *b"\x7fELF\x02\x01" {
            return Err(self.fault("its first bytes are others"));
        }
        let (offset, each, count) = (u64_at(&header, 40), u16_at(&header, 58), u16_at(&header, 60));
        if count > 0 && each != 64 {
            return Err(self.fault("its sections have another size"));
        }
        let table = self.bytes(offset, u64::from(each) * u64::from(count))?;
        let section = |entry: &[u8]| Section {
            kind: u32_at(entry, 4),
            offset: u64_at(entry, 24),
            bytes: u64_at(entry, 32),
            link: u32_at(entry, 40) as usize,
            info: u32_at(entry, 44),
        };
        Ok(table.chunks_exact(64).map(section).collect())
    }

    /// Returns the names that a section refers to.
    fn names(&mut self, section: &Section, sections: &[Section]) -> Result<Names> {
        let names = sections.get(section.link).ok_or_else(|| self.fault("a table has no names"))?;
        self.bytes(names.offset, names.bytes).map(Names)
    }

    fn needed(&mut self, dynamic: &Section, sections: &[Section]) -> Result<Vec<String>> {
        let names = self.names(dynamic, sections)?;
        let entries = self.bytes(dynamic.offset, dynamic.bytes)?;
        let needed = entries.chunks_exact(16).filter(|entry| u64_at(entry, 0) == 1);
        Ok(needed.map(|entry| names.at(u64_at(entry, 8))).collect())
    }

    fn symbols(&mut self, symbols: &Section, sections: &[Section], library: &mut LibraryFile) -> Result<()> {
        let names = self.names(symbols, sections)?;
        let table = self.bytes(symbols.offset, symbols.bytes)?;
        let version_of = match sections.iter().find(|section| section.kind == SECTION_VERSION_OF_SYMBOL) {
            Some(section) => self.bytes(section.offset, section.bytes)?,
            None => Vec::new(),
        };
        let versions = match sections.iter().find(|section| section.kind == SECTION_VERSIONS_NEEDED) {
            Some(section) => self.versions(section, sections)?,
            None => BTreeMap::new(),
        };
        for (index, entry) in table.chunks_exact(24).enumerate().skip(1) {
            let name = names.at(u32_at(entry, 0).into());
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

    /// Returns the versions that the library needs, by the number that its symbols use.
    fn versions(
        &mut self,
        section: &Section,
        sections: &[Section],
    ) -> Result<BTreeMap<u16, (String, String)>> {
        let names = self.names(section, sections)?;
        let table = self.bytes(section.offset, section.bytes)?;
        let entry = |at: usize| table.get(at..).filter(|rest| rest.len() >= 16);
        let mut versions = BTreeMap::new();
        let mut file_at = 0;
        for _ in 0..section.info {
            let Some(file) = entry(file_at) else { break };
            let mut at = file_at + u32_at(file, 8) as usize;
            for _ in 0..u16_at(file, 2) {
                let Some(version) = entry(at) else { break };
                let pair = (names.at(u32_at(file, 4).into()), names.at(u32_at(version, 8).into()));
                versions.insert(u16_at(version, 6) & 0x7fff, pair);
                at += u32_at(version, 12) as usize;
            }
            file_at += u32_at(file, 12) as usize;
        }
        Ok(versions)
    }
}

/// A table of names, each ended by a zero.
struct Names(Vec<u8>);

impl Names {
    /// Returns the name at an offset; empty if there is none.
    fn at(&self, offset: u64) -> String {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
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
