//! The bytes of a request as a function of the size.

use orlop_core::ByteSize;
use serde::Serialize;
use std::fmt;

/// A difference below this is rounding: kernels round their workspaces up.
const ROUNDING: f64 = 512.0;

/// A difference below this fraction of the bytes is rounding, too.
const TOLERANCE: f64 = 0.001;

/// The bytes of a request at a size `x`: `constant + slope · x + square · x²`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SizeLaw {
    /// Bytes that do not depend on the size.
    pub constant: f64,
    /// Bytes for each unit of the size.
    pub slope: f64,
    /// Bytes for each square of a unit.
    pub square: f64,
    /// The bytes beyond which it does not grow, if there is a limit: a kernel's workspace has one.
    pub limit: Option<f64>,
    /// The largest difference between the law and the recordings, in bytes, as a fraction of the bytes.
    pub residual: f64,
    /// The coefficients of the steepest law that the recordings allow; the law's own if they allow no other.
    #[serde(skip)]
    steepest: (f64, f64, f64),
    /// The least bytes at larger sizes than those recorded, if they may grow no more.
    #[serde(skip)]
    flat: Option<f64>,
}

impl SizeLaw {
    /// No bytes at any size.
    pub(super) const NOTHING: Self = Self::new(0.0, 0.0, 0.0);

    const fn new(constant: f64, slope: f64, square: f64) -> Self {
        Self {
            constant,
            slope,
            square,
            limit: None,
            residual: 0.0,
            steepest: (constant, slope, square),
            flat: None,
        }
    }

    /// Fits the simplest law to the bytes at two or more sizes, in order of size: constant, proportional,
    /// linear, proportional to the square, quadratic.
    pub(super) fn fit(points: &[(f64, f64)]) -> Self {
        let (Some(&first), Some(&last)) = (points.first(), points.last()) else { return Self::NOTHING };
        let square = |(x, _): (f64, f64)| x * x;
        let mean_slope = last.1 / last.0;
        let linear = {
            let slope = (last.1 - first.1) / (last.0 - first.0);
            Self::new(first.1 - slope * first.0, slope, 0.0)
        };
        let with_square = {
            let factor = (last.1 - first.1) / (square(last) - square(first));
            Self::new(first.1 - factor * square(first), 0.0, factor)
        };
        let mut laws = vec![Self::new(last.1, 0.0, 0.0), Self::new(0.0, mean_slope, 0.0)];
        laws.push(Self::new(0.0, 0.0, last.1 / square(last)));
        // Less than nothing at size 0 is no law of a program.
        laws.extend([linear, with_square].into_iter().filter(|law| law.constant >= 0.0));
        laws.extend([through_zero(first, last)].into_iter().filter(|law| law.slope.min(law.square) >= 0.0));
        if let [_, middle, ..] = points
            && points.len() > 2
        {
            laws.push(Self { limit: Some(last.1), ..Self::new(0.0, first.1 / first.0, 0.0) });
            // Three points are always on a parabola; a program's has no negative part.
            let law = quadratic(first, *middle, last);
            laws.extend([law].into_iter().filter(|law| law.constant.min(law.slope).min(law.square) >= 0.0));
        }
        let fits = |law: &&Self| points.iter().all(|&(x, bytes)| law.is_close(x, bytes));
        let Some(simplest) = laws.iter().find(fits) else { return Self::closest(&laws, points) };
        let mut law = *simplest;
        if points.len() == 2 && law.constant > 0.0 && law.slope > 0.0 {
            // Two sizes do not tell a line from a parabola.
            law.steepest = (with_square.constant, 0.0, with_square.square);
        }
        law.with_residual(points)
    }

    /// Returns the law with the smallest largest difference; that difference is its residual.
    fn closest(laws: &[Self], points: &[(f64, f64)]) -> Self {
        let laws = laws.iter().map(|law| law.with_residual(points));
        laws.min_by(|one, other| one.residual.total_cmp(&other.residual)).unwrap_or(Self::NOTHING)
    }

    /// Allows the bytes to grow no more beyond those recorded: a library limits its workspaces.
    pub(super) fn may_end(self, bytes: f64) -> Self {
        Self { flat: Some(bytes), ..self }
    }

    fn is_close(&self, x: f64, bytes: f64) -> bool {
        (self.at(x) - bytes).abs() <= ROUNDING.max(bytes * TOLERANCE)
    }

    fn with_residual(self, points: &[(f64, f64)]) -> Self {
        let off = points.iter().map(|&(x, bytes)| (self.at(x) - bytes).abs() / bytes.max(1.0));
        Self { residual: off.fold(0.0, f64::max), ..self }
    }

    /// Adds the bytes of another law.
    pub(super) fn add(&mut self, other: &Self) {
        self.constant += other.constant;
        self.slope += other.slope;
        self.square += other.square;
        self.residual = self.residual.max(other.residual);
        self.limit = None;
        let (constant, slope, square) = other.steepest;
        self.steepest.0 += constant;
        self.steepest.1 += slope;
        self.steepest.2 += square;
    }

    /// Returns the bytes at a size.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        let bytes = value((self.constant, self.slope, self.square), x);
        self.limit.map_or(bytes, |limit| bytes.min(limit))
    }

    /// Returns the least and the most bytes at a size that the recordings allow.
    pub(super) fn bounds(&self, x: f64) -> (f64, f64) {
        let (law, steepest) = (self.at(x), value(self.steepest, x));
        let off = law * self.residual;
        let least = self.flat.map_or(law, |flat| law.min(flat));
        (least.min(steepest) - off, law.max(steepest) + off)
    }
}

fn value((constant, slope, square): (f64, f64, f64), x: f64) -> f64 {
    (constant + slope * x + square * x * x).max(0.0)
}

/// Rounds to whole bytes; 0 if negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(super) fn whole_bytes(bytes: f64) -> u64 {
    bytes.round() as u64
}

/// Returns the law `slope · x + square · x²` through two points.
fn through_zero(first: (f64, f64), last: (f64, f64)) -> SizeLaw {
    let square = (last.1 / last.0 - first.1 / first.0) / (last.0 - first.0);
    SizeLaw::new(0.0, first.1 / first.0 - square * first.0, square)
}

/// Returns the parabola through three points.
fn quadratic(one: (f64, f64), two: (f64, f64), three: (f64, f64)) -> SizeLaw {
    let slopes = [(one, two), (two, three)].map(|(from, to)| (to.1 - from.1) / (to.0 - from.0));
    let square = (slopes[1] - slopes[0]) / (three.0 - one.0);
    let slope = slopes[0] - square * (one.0 + two.0);
    SizeLaw::new(one.1 - slope * one.0 - square * one.0 * one.0, slope, square)
}

impl fmt::Display for SizeLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: f64| ByteSize(whole_bytes(bytes.abs()));
        let parts = [(self.constant, ""), (self.slope, "·x"), (self.square, "·x²")];
        let mut is_first = true;
        for (bytes, power) in parts.into_iter().filter(|(bytes, _)| bytes.abs() >= 0.5) {
            match (is_first, bytes < 0.0) {
                (true, false) => {}
                (true, true) => f.write_str("−")?,
                (false, false) => f.write_str(" + ")?,
                (false, true) => f.write_str(" − ")?,
            }
            write!(f, "{}{power}", size(bytes))?;
            is_first = false;
        }
        if let Some(limit) = self.limit {
            write!(f, ", at most {}", size(limit))?;
        }
        if is_first { f.write_str("0 B") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(points: &[(f64, f64)]) -> SizeLaw {
        SizeLaw::fit(points)
    }

    #[test]
    fn the_simplest_law_is_found() {
        assert_eq!(law(&[(2.0, 4096.0), (8.0, 4096.0)]).to_string(), "4.00 KiB");
        assert_eq!(law(&[(2.0, 8192.0), (8.0, 32768.0)]).to_string(), "4.00 KiB·x");
        assert_eq!(law(&[(2.0, 16384.0), (8.0, 262_144.0)]).to_string(), "4.00 KiB·x²");
        let linear = law(&[(2.0, 12_288.0), (8.0, 36_864.0)]);
        assert_eq!(linear.to_string(), "4.00 KiB + 4.00 KiB·x");
        assert_eq!(
            (linear.at(16.0), law(&[(2.0, 4096.0), (8.0, 4096.0)]).bounds(99.0)),
            (69_632.0, (4096.0, 4096.0))
        );
        let three = [(1.0, 7168.0), (2.0, 16_384.0), (4.0, 47_104.0)];
        assert_eq!(law(&three).at(8.0), 1024.0 * (3.0 * 8.0 + 2.0 * 64.0 + 2.0));
    }

    /// A line and a parabola through the same two points.
    #[test]
    fn two_sizes_leave_a_range() {
        let (low, high) = law(&[(2.0, 12_288.0), (8.0, 36_864.0)]).bounds(16.0);
        assert!(low == 69_632.0 && high > 100_000.0, "{low} {high}");
        let proportional = law(&[(2.0, 8192.0), (8.0, 32_768.0)]).bounds(16.0);
        assert_eq!(proportional, (65_536.0, 65_536.0));
    }

    #[test]
    fn workspaces_have_a_limit() {
        let points = [(8.0, 65_536e3), (16.0, 131_072e3), (24.0, 139_264e3)];
        let limited = law(&points);
        assert_eq!((limited.at(12.0), limited.at(64.0), limited.residual), (98_304e3, 139_264e3, 0.0));
        let (low, high) = law(&points[..2]).may_end(131_072e3).bounds(24.0);
        assert_eq!((low, high), (131_072e3, 196_608e3));
    }

    #[test]
    fn what_follows_no_law_has_a_residual() {
        let odd = law(&[(1.0, 1e6), (2.0, 5e6), (3.0, 1e6), (4.0, 5e6)]);
        assert!(odd.residual > 0.1, "{odd:?}");
        let (low, high) = odd.bounds(4.0);
        assert!(low <= 5e6 && high >= 5e6, "{low} {high}");
    }
}
