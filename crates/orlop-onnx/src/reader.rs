//! [`OnnxReader`]: from a file and numbers for its sizes to a model.

use crate::bindings::Bindings;
use crate::infer::{Inference, Range};
use crate::model::OnnxModel;
use crate::{OnnxError, OnnxFile, assemble};
use std::ops::RangeInclusive;

/// Gives numbers to the sizes that a model leaves open, and infers all others from them.
///
/// | what a file leaves open | with |
/// |---|---|
/// | a size with a name | [`bind`](Self::bind) |
/// | the sizes of an input | [`input`](Self::input), [`next_input`](Self::next_input) |
/// | one size of an input, without a name | [`bind`](Self::bind) with the input and the position: `x:0` |
/// | a size that is one of several | [`bind_range`](Self::bind_range): a plan for all of them |
/// | elements of an input that sizes are computed from | [`value`](Self::value) |
/// | a size that depends on data, and has no bound | [`bound`](Self::bound) |
#[derive(Debug, Clone, Default)]
pub struct OnnxReader {
    bindings: Bindings,
}

impl OnnxReader {
    /// Creates a reader.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg(feature = "plan-file")]
    pub(crate) fn with_bindings(bindings: Bindings) -> Self {
        Self { bindings }
    }

    /// Gives a size to a name in shapes, such as `batch`, or to a dimension of an input: `x:0`.
    #[must_use]
    pub fn bind(self, symbol: &str, size: u64) -> Self {
        self.bind_range(symbol, size..=size)
    }

    /// Gives a name in shapes any size of a range: the memory is enough for each of them.
    #[must_use]
    pub fn bind_range(mut self, symbol: &str, sizes: RangeInclusive<u64>) -> Self {
        self.bindings.symbols.insert(symbol.to_owned(), range_of(&sizes));
        self
    }

    /// Gives sizes to an input.
    #[must_use]
    pub fn input(mut self, name: &str, sizes: &[u64]) -> Self {
        self.bindings.inputs.insert(name.to_owned(), exact(sizes));
        self
    }

    /// Gives sizes to the next input that has no others, in the order of the file.
    #[must_use]
    pub fn next_input(mut self, sizes: &[u64]) -> Self {
        self.bindings.unnamed.push(exact(sizes));
        self
    }

    /// Gives elements to an input, in row-major order, because sizes are computed from them. Integers are
    /// rounded towards zero.
    #[must_use]
    pub fn value(mut self, input: &str, elements: &[f64]) -> Self {
        self.bindings.values.insert(input.to_owned(), elements.to_vec());
        self
    }

    /// Says which sizes a value has at most, or how often the loop of a node is executed at most. It cannot
    /// make a size smaller that follows from the inputs.
    #[must_use]
    pub fn bound(mut self, value: &str, sizes: &[u64]) -> Self {
        self.bindings.bounds.insert(value.to_owned(), sizes.to_vec());
        self
    }

    /// Reads a model from the bytes of its file. Files with the weights, if there are any, are not read.
    ///
    /// # Errors
    ///
    /// [`OnnxError`]
    pub fn read(&self, bytes: &[u8]) -> Result<OnnxModel, OnnxError> {
        self.resolve(&OnnxFile::decode(bytes)?)
    }

    /// Returns the names that have a number or a bound, and that a file does not have: misspelled, perhaps.
    #[must_use]
    pub fn unused_bindings(&self, file: &OnnxFile) -> Vec<String> {
        self.bindings.unused(file)
    }

    /// Infers all sizes of a model, and derives its graph.
    ///
    /// # Errors
    ///
    /// [`OnnxError`]: of sizes that are missing, all at once.
    pub fn resolve(&self, file: &OnnxFile) -> Result<OnnxModel, OnnxError> {
        let (bindings, unknowns, inputs) = self.bindings.for_file(file)?;
        let facts = Inference::new(&bindings, unknowns).scope(&file.scope, inputs, Vec::new())?;
        let mut model = assemble::model(&file.scope, &facts)?;
        model.bindings = bindings;
        model.unused_bindings = self.unused_bindings(file);
        Ok(model)
    }
}

fn range_of(sizes: &RangeInclusive<u64>) -> Range {
    let [start, end] = [*sizes.start(), *sizes.end()].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    Range::between(start, end.max(start))
}

fn exact(sizes: &[u64]) -> Vec<Range> {
    sizes.iter().map(|&size| range_of(&(size..=size))).collect()
}
