//! [`PrintOptions`]: how a tensor prints.

/// Options for printing a tensor: see [`Tensor::display`](crate::Tensor::display). The defaults are
/// PyTorch's.
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

/// More fractional digits than any float has, and fewer than `format!` rejects.
const MAX_PRECISION: usize = 1100;

impl Default for PrintOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PrintOptions {
    /// Creates the default options: four fractional digits; all elements up to 1000, above that 3 at each end
    /// of a dimension; lines of 80 characters; scientific notation if the range of values needs it.
    pub const fn new() -> Self {
        Self { precision: 4, threshold: 1000, edge_items: 3, line_width: 80, scientific: None }
    }

    /// Sets the number of fractional digits, at most 1100.
    pub const fn precision(mut self, digits: usize) -> Self {
        self.precision = if digits < MAX_PRECISION { digits } else { MAX_PRECISION };
        self
    }

    /// Sets the number of elements above which only the edges are printed.
    pub const fn threshold(mut self, elements: usize) -> Self {
        self.threshold = elements;
        self
    }

    /// Sets the number of elements at each end of a dimension if only the edges are printed. With 0, only the
    /// sizes are.
    pub const fn edge_items(mut self, elements: usize) -> Self {
        self.edge_items = elements;
        self
    }

    /// Sets the line width in characters. As in PyTorch, it counts the widths of elements, and a line of
    /// zeros is longer.
    pub const fn line_width(mut self, characters: usize) -> Self {
        self.line_width = characters;
        self
    }

    /// Selects scientific notation for floats; `None` decides by their range.
    pub const fn scientific(mut self, scientific: Option<bool>) -> Self {
        self.scientific = scientific;
        self
    }
}
