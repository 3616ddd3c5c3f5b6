//! What can be chosen about a print-out.

/// How a tensor is printed: see [`Tensor::display`](crate::Tensor::display). The defaults are PyTorch's.
///
/// ```
/// use orlop_tensor::{PrintOptions, Tensor};
///
/// let tensor = Tensor::from_slice(&[0.5f32, 1.25, 2.0, 3.0, 4.0])?;
/// let short = PrintOptions::new().precision(1).threshold(4).edge_items(1);
/// assert_eq!(tensor.display(short).to_string(), "tensor([0.5,  ..., 4.0])");
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PrintOptions {
    pub(super) precision: usize,
    pub(super) threshold: usize,
    pub(super) edge_items: usize,
    pub(super) line_width: usize,
    pub(super) scientific: Option<bool>,
}

/// More digits after the point than any float has to tell, and fewer than `format!` refuses.
const MAX_PRECISION: usize = 1100;

impl Default for PrintOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PrintOptions {
    /// Four digits after the point; the whole up to 1000 elements, above that 3 at each end of a dimension; lines of 80
    /// characters; scientific where the range demands it.
    pub const fn new() -> Self {
        Self { precision: 4, threshold: 1000, edge_items: 3, line_width: 80, scientific: None }
    }

    /// Digits after the point, at most 1100.
    pub const fn precision(mut self, digits: usize) -> Self {
        self.precision = if digits < MAX_PRECISION { digits } else { MAX_PRECISION };
        self
    }

    /// With more elements than this only the edges are shown.
    pub const fn threshold(mut self, elements: usize) -> Self {
        self.threshold = elements;
        self
    }

    /// Elements shown at each end of a dimension where only the edges are. With none only the sizes are shown.
    pub const fn edge_items(mut self, elements: usize) -> Self {
        self.edge_items = elements;
        self
    }

    /// Characters of a line, roughly: as in PyTorch, elements are what is counted, and a line of zeros is longer.
    pub const fn line_width(mut self, characters: usize) -> Self {
        self.line_width = characters;
        self
    }

    /// Whether floats are scientific; `None` looks at their range.
    pub const fn scientific(mut self, scientific: Option<bool>) -> Self {
        self.scientific = scientific;
        self
    }
}
