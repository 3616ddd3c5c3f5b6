//! Tensors as text.
//!
//! [`Display`](fmt::Display) prints values as PyTorch's `print` does: nested brackets, aligned columns, four
//! digits, large tensors reduced to their edges, followed by non-default properties (dtype, device, sizes
//! that the brackets do not show). [`Debug`](fmt::Debug) prints one line of metadata and never reads the
//! data.
//!
//! Printing never fails, because it is used when something is wrong: if the values cannot be read (a write is
//! in progress, the storage is unbound, the device fails), the reason is printed instead.

mod gather;
mod number;
mod options;

pub use self::options::PrintOptions;

use self::gather::{ShownDim, gather, shown};
use self::number::NumberFormat;
use super::Tensor;
use orlop_core::{ByteSize, DType, Scalar};
use std::fmt::{self, Write as _};
use std::slice;

/// A tensor with print options: see [`Tensor::display`].
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct DisplayTensor<'a> {
    tensor: &'a Tensor,
    options: PrintOptions,
}

impl Tensor {
    /// Returns a value that prints the tensor with these [`PrintOptions`].
    pub const fn display(&self, options: PrintOptions) -> DisplayTensor<'_> {
        DisplayTensor { tensor: self, options }
    }
}

/// Prints as PyTorch does.
///
/// `{:.2}` prints two digits after the point, `{:#}` a line of metadata before the values.
///
/// ```
/// use orlop_core::DType;
/// use orlop_tensor::Tensor;
///
/// let tensor = Tensor::from_nested(&[[1.0f32, -2.5], [30.0, f32::NAN]])?;
/// assert_eq!(tensor.to_string(), "tensor([[ 1.0000, -2.5000],\n        [30.0000,     nan]])");
/// assert_eq!(format!("{:.1}", tensor.select(0, 0)?), "tensor([ 1.0, -2.5])");
///
/// let tensor = Tensor::zeros([2, 501], DType::I32)?;
/// assert_eq!(
///     format!("{tensor:#}"),
///     "int32 [2, 501] on cpu, 3.91 KiB\n\
///      tensor([[0, 0, 0,  ..., 0, 0, 0],\n        \
///              [0, 0, 0,  ..., 0, 0, 0]], dtype=int32)",
/// );
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(PrintOptions::new()).fmt(f)
    }
}

impl fmt::Display for DisplayTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tensor, mut options) = (self.tensor, self.options);
        if !tensor.is_defined() {
            return f.write_str("Tensor::undefined()");
        }
        if let Some(digits) = f.precision() {
            options = options.precision(digits);
        }
        if f.alternate() {
            writeln!(f, "{}", MetadataLine(tensor))?;
        }
        write(tensor, &options, f)
    }
}

/// Prints one line of metadata.
///
/// ```
/// use orlop_core::DType;
/// use orlop_tensor::Tensor;
///
/// let tensor = Tensor::zeros([2, 3], DType::F32)?;
/// assert_eq!(
///     format!("{tensor:?}"),
///     "Tensor { shape: [2, 3], dtype: float32, device: cpu, strides: [3, 1], offset: 0, .. }",
/// );
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_defined() {
            return f.write_str("Tensor::undefined()");
        }
        let strides: &[usize] = self.strides();
        f.debug_struct("Tensor")
            .field("shape", &self.sizes())
            .field("dtype", &format_args!("{}", self.dtype()))
            .field("device", &format_args!("{}", self.device()))
            .field("strides", &strides)
            .field("offset", &self.storage_offset())
            .finish_non_exhaustive()
    }
}

const PREFIX: &str = "tensor(";

fn write(tensor: &Tensor, options: &PrintOptions, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (dtype, device) = (tensor.dtype(), tensor.device());
    let mut suffixes = Vec::new();
    if !device.is_cpu() {
        suffixes.push(format!("device='{device}'"));
    }
    let size = format!("size={}", PythonTuple(tensor.sizes()));
    let unusual = !matches!(dtype, DType::F32 | DType::C64 | DType::I64 | DType::Bool);
    let body = if tensor.is_empty() {
        // `[]` shows neither the sizes nor the type.
        if tensor.ndim() != 1 {
            suffixes.push(size);
        }
        if dtype != DType::F32 {
            suffixes.push(format!("dtype={dtype}"));
        }
        "[]".to_owned()
    } else {
        let shown = shown(tensor.sizes(), tensor.numel(), options);
        let read = shown.map(|shown| gather(tensor, &shown).map(|elements| body(&elements, &shown, options)));
        let (body, unreadable) = match read {
            Some(Ok(body)) => (Some(body), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        if body.is_none() {
            suffixes.push(size);
        }
        if unusual {
            suffixes.push(format!("dtype={dtype}"));
        }
        suffixes.extend(unreadable.map(|error| format!("unreadable: {error}")));
        body.unwrap_or_else(|| "...".to_owned())
    };
    f.write_str(PREFIX)?;
    f.write_str(&body)?;
    // If the last line is full, the suffix goes on a new line. The count, including a comma and a space, is
    // PyTorch's.
    let mut line = match body.rsplit_once('\n') {
        Some((_, last)) => last.len(),
        None => PREFIX.len() + body.len(),
    } + 2;
    for suffix in suffixes {
        if line + suffix.len() + 2 > options.line_width {
            write!(f, ",\n{}{suffix}", " ".repeat(PREFIX.len()))?;
            line = PREFIX.len() + suffix.len();
        } else {
            write!(f, ", {suffix}")?;
            line += suffix.len() + 2;
        }
    }
    f.write_str(")")
}

/// Returns the brackets with their contents.
fn body(elements: &[Scalar], shown: &[ShownDim], options: &PrintOptions) -> String {
    let format = NumberFormat::of(elements, options);
    let mut body = BodyWriter { elements: elements.iter(), format, options, text: String::new() };
    body.nested(shown, PREFIX.len());
    body.text
}

struct BodyWriter<'a> {
    elements: slice::Iter<'a, Scalar>,
    format: NumberFormat,
    options: &'a PrintOptions,
    text: String,
}

impl BodyWriter<'_> {
    /// Appends the next elements, those of a part that begins at this column.
    fn nested(&mut self, shown: &[ShownDim], column: usize) {
        match shown {
            [] => {
                let text = self.next();
                self.text.push_str(&text);
            }
            [dim] => self.row(*dim, column),
            [dim, rest @ ..] => {
                self.text.push('[');
                for index in 0..dim.count() {
                    if index > 0 {
                        self.lines(rest.len(), column);
                    }
                    if Some(index) == dim.edge {
                        self.text.push_str("...");
                        self.lines(rest.len(), column);
                    }
                    self.nested(rest, column + 1);
                }
                self.text.push(']');
            }
        }
    }

    fn row(&mut self, dim: ShownDim, column: usize) {
        // Each element takes a comma and a space.
        let per_line = (self.options.line_width.saturating_sub(column) / (self.format.width() + 2)).max(1);
        let mut cells: Vec<String> = (0..dim.count()).map(|_| self.next()).collect();
        if let Some(edge) = dim.edge {
            cells.insert(edge, " ...".to_owned());
        }
        self.text.push('[');
        for (index, line) in cells.chunks(per_line).enumerate() {
            if index > 0 {
                self.lines(1, column);
            }
            self.text.push_str(&line.join(", "));
        }
        self.text.push(']');
    }

    fn next(&mut self) -> String {
        self.elements.next().map(|&element| self.format.text(element)).unwrap_or_default()
    }

    /// Appends a comma, `count` line ends, and the indentation of the parts within the bracket.
    fn lines(&mut self, count: usize, column: usize) {
        let (ends, indent) = ("\n".repeat(count), " ".repeat(column + 1));
        // Writing to a `String` cannot fail.
        let _ = write!(self.text, ",{ends}{indent}");
    }
}

/// The line before the values.
struct MetadataLine<'a>(&'a Tensor);

impl fmt::Display for MetadataLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = self.0;
        let bytes = ByteSize(u64::try_from(tensor.nbytes()).unwrap_or(u64::MAX));
        write!(f, "{} {:?} on {}, {bytes}", tensor.dtype(), tensor.sizes(), tensor.device())?;
        if !tensor.is_contiguous() || tensor.storage_offset() > 0 {
            let strides: &[usize] = tensor.strides();
            write!(f, ", strides {strides:?}, offset {}", tensor.storage_offset())?;
        }
        Ok(())
    }
}

/// Sizes, as Python prints a tuple.
struct PythonTuple<'a>(&'a [usize]);

impl fmt::Display for PythonTuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [size] => write!(f, "({size},)"),
            sizes => {
                f.write_char('(')?;
                for (index, size) in sizes.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{size}")?;
                }
                f.write_char(')')
            }
        }
    }
}
