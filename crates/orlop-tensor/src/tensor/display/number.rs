//! Elements as text: one format for all elements of a tensor, wide enough for each.
//!
//! The rules are PyTorch's. Floats that are all whole print as `1.`, others with the requested number of
//! digits. The format is scientific if the largest magnitude is more than 1000 times the smallest or above
//! 10⁸, or the smallest is below 10⁻⁴. Zeros, infinities and NaN do not count for that, nor for the width.

use super::options::PrintOptions;
use orlop_core::Scalar;
use std::fmt::Write as _;

/// The format of the elements of one tensor.
#[derive(Debug)]
pub(super) enum NumberFormat {
    /// `bool` and integers, with this width.
    Plain {
        width: usize,
    },
    Float(FloatFormat),
    Complex {
        re: FloatFormat,
        im: FloatFormat,
    },
}

/// The format of floats.
#[derive(Debug)]
pub(super) struct FloatFormat {
    form: FloatNotation,
    precision: usize,
    width: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FloatNotation {
    /// `12.`
    Whole,
    /// `12.5000`
    Fixed,
    /// `1.2500e+01`
    Scientific,
}

impl NumberFormat {
    /// Selects the format for these elements, which have one dtype.
    pub(super) fn of(elements: &[Scalar], options: &PrintOptions) -> Self {
        match elements.first() {
            Some(Scalar::Float(_)) => Self::Float(FloatFormat::of(elements.iter().map(real), options)),
            Some(Scalar::Complex(_)) => Self::Complex {
                re: FloatFormat::of(elements.iter().map(real), options),
                im: FloatFormat::of(elements.iter().map(imaginary), options),
            },
            _ => {
                Self::Plain { width: elements.iter().map(|&element| plain(element).len()).max().unwrap_or(1) }
            }
        }
    }

    /// Returns the characters of an element, for the line width.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Plain { width } => *width,
            Self::Float(format) => format.width,
            // Plus the `j`.
            Self::Complex { re, im } => re.width + im.width + 1,
        }
    }

    pub(super) fn text(&self, element: Scalar) -> String {
        match self {
            Self::Plain { width } => pad(plain(element), *width),
            Self::Float(format) => format.text(real(&element)),
            Self::Complex { re, im } => {
                let (mut text, im) = (re.text(real(&element)), im.text(imaginary(&element)));
                let im = im.trim_start();
                let sign = if im.starts_with(['+', '-']) { "" } else { "+" };
                // Writing to a `String` cannot fail.
                let _ = write!(text, "{sign}{im}j");
                text
            }
        }
    }
}

impl FloatFormat {
    fn of(values: impl Iterator<Item = f64> + Clone, options: &PrintOptions) -> Self {
        let telling = values.filter(|value| value.is_finite() && *value != 0.0);
        let mut format = Self { form: FloatNotation::Whole, precision: options.precision, width: 1 };
        let Some((smallest, largest)) = range(telling.clone()) else { return format };
        let whole = telling.clone().all(|value| value.fract() == 0.0);
        let demanded = largest / smallest > 1e3 || largest > 1e8 || smallest < 1e-4;
        format.form = match options.scientific.unwrap_or(demanded) {
            true => FloatNotation::Scientific,
            false if whole => FloatNotation::Whole,
            false => FloatNotation::Fixed,
        };
        format.width = telling.map(|value| format.unpadded(value).len()).max().unwrap_or(1);
        format
    }

    fn text(&self, value: f64) -> String {
        pad(self.unpadded(value), self.width)
    }

    fn unpadded(&self, value: f64) -> String {
        if value.is_nan() {
            return "nan".into();
        }
        if value.is_infinite() {
            return value.to_string();
        }
        match self.form {
            FloatNotation::Whole => format!("{value:.0}."),
            FloatNotation::Fixed => format!("{value:.*}", self.precision),
            FloatNotation::Scientific => scientific(value, self.precision),
        }
    }
}

/// Returns the smallest and the largest magnitude.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.map(f64::abs).fold(None, |range, value| {
        let (smallest, largest) = range.unwrap_or((value, value));
        Some((smallest.min(value), largest.max(value)))
    })
}

/// Formats with a sign and at least two digits in the exponent, as C and Python do.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn plain(element: Scalar) -> String {
    match element {
        Scalar::Bool(true) => "True".into(),
        Scalar::Bool(false) => "False".into(),
        Scalar::Int(value) => value.to_string(),
        Scalar::UInt(value) => value.to_string(),
        element => real(&element).to_string(),
    }
}

fn real(element: &Scalar) -> f64 {
    match element {
        Scalar::Float(value) => *value,
        Scalar::Complex(value) => value.re,
        _ => 0.0,
    }
}

fn imaginary(element: &Scalar) -> f64 {
    match element {
        Scalar::Complex(value) => value.im,
        _ => 0.0,
    }
}

fn pad(text: String, width: usize) -> String {
    let missing = width.saturating_sub(text.len());
    if missing == 0 { text } else { " ".repeat(missing) + &text }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn exponents_as_c_prints_them() {
        for (value, text) in [
            (1.0, "1.0000e+00"),
            (-12345.678, "-1.2346e+04"),
            (1e-5, "1.0000e-05"),
            (1e100, "1.0000e+100"),
            (5e-324, "4.9407e-324"),
            (1.03125, "1.0312e+00"),
        ] {
            assert_eq!(scientific(value, 4), text);
        }
    }

    #[test]
    fn ties_go_to_the_even_digit() {
        let format = FloatFormat { form: FloatNotation::Fixed, precision: 4, width: 0 };
        assert_eq!((format.text(0.03125), format.text(0.09375)), ("0.0312".into(), "0.0938".into()));
    }
}
