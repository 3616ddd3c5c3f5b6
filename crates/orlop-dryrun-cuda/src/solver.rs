//! Workspaces of cuSOLVER: what it asked for, for matrices of some sizes, and what lies between.
//!
//! cuSOLVER's rules are not public. `solver_workspaces.txt` has its answers for some sizes; those for other
//! sizes are on the lines between them, by the logarithms of both.

use std::collections::HashMap;
use std::sync::OnceLock;

/// The answers. Its head describes the format.
const MEASURED: &str = include_str!("solver_workspaces.txt");

/// The elements of a factorization into Q and R: a constant, and more for each column from some on.
const QR_ELEMENTS: i64 = 512 << 10;
const QR_ELEMENTS_OF_A_COLUMN: i64 = 1024;
const QR_MIN_COLUMNS: i64 = 256;

/// The answers of a function.
#[derive(Debug, Default)]
struct Answers {
    /// Sizes: of the matrix, or its columns.
    sizes: Vec<f64>,
    /// Elements by number of rows. A function of one size has one row.
    rows: Vec<(f64, Vec<f64>)>,
}

impl Answers {
    fn all() -> &'static HashMap<&'static str, Self> {
        static PARSED: OnceLock<HashMap<&'static str, Answers>> = OnceLock::new();
        PARSED.get_or_init(|| {
            let mut parsed: HashMap<_, Self> = HashMap::new();
            for line in MEASURED.lines().filter(|line| !line.starts_with('#')) {
                let mut words = line.split(' ');
                let Some(answers) = words.next().map(|name| parsed.entry(name).or_default()) else {
                    continue;
                };
                let mut numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
                match answers.sizes.len() {
                    0 => answers.sizes = numbers,
                    columns if columns < numbers.len() => {
                        let rows = numbers.remove(0);
                        answers.rows.push((rows, numbers));
                    }
                    _ => answers.rows.push((1.0, numbers)),
                }
            }
            parsed
        })
    }

    fn of(&self, rows: f64, columns: f64) -> f64 {
        let (sizes, values): (Vec<f64>, Vec<f64>) =
            self.rows.iter().map(|(rows, values)| (*rows, between(&self.sizes, values, columns))).unzip();
        between(&sizes, &values, rows)
    }
}

/// Returns the value at a size, on the line through the two values beside it, or through the last two. Below
/// the first size it is the first value.
fn between(sizes: &[f64], values: &[f64], size: f64) -> f64 {
    let above = sizes.partition_point(|&other| other < size).min(sizes.len().saturating_sub(1));
    match (sizes.get(above), values.get(above)) {
        (Some(&found), Some(&value)) if above == 0 || found == size => value,
        (Some(&found), Some(&value)) => {
            let (before, least) = (sizes[above - 1], values[above - 1].max(1.0));
            let part = (size / before).ln() / (found / before).ln();
            least * (value.max(1.0) / least).powf(part)
        }
        _ => 0.0,
    }
}

/// Returns the elements for a matrix of f32, of one size; `None` for a negative one and an unknown function.
pub(crate) fn of_size(function: &str, size: i64) -> Option<i64> {
    of_matrix(function, 1, size)
}

/// The same for a function of the numbers of rows and columns.
#[allow(clippy::cast_possible_truncation, reason = "it is below the largest number, and rounded")]
pub(crate) fn of_matrix(function: &str, rows: i64, columns: i64) -> Option<i64> {
    if rows < 0 || columns < 0 {
        return None;
    }
    let elements = Answers::all().get(function)?.of(rows.max(1) as f64, columns.max(1) as f64).ceil();
    (elements < i64::MAX as f64).then_some(elements as i64)
}

/// Returns the elements of a factorization into Q and R.
pub(crate) fn of_qr(columns: i64) -> Option<i64> {
    let columns = (columns >= 0).then(|| columns.max(QR_MIN_COLUMNS))?;
    columns.checked_mul(QR_ELEMENTS_OF_A_COLUMN)?.checked_add(QR_ELEMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_sizes_have_what_was_measured_and_others_lie_between() {
        assert_eq!(
            [1, 100, 8192].map(|size| of_size("syevd", size)),
            [66_342, 172_411, 269_508_803].map(Some)
        );
        assert_eq!(of_matrix("gesvd", 1000, 100), Some(1_223_264));
        assert_eq!(of_matrix("gesvdj-thin", 100, 1000), Some(886_592));
        assert_eq!([8, 1000].map(of_qr), [Some(786_432), Some(1_548_288)]);
        let between = of_size("syevd", 110).unwrap();
        assert!((172_411..198_000).contains(&between), "{between}");
        let grid = of_matrix("orgqr", 1500, 700).unwrap();
        assert!((210_176..796_928).contains(&grid), "{grid}");
        // Beyond the last size it grows as it did before.
        let large = of_size("syevd", 16_384).unwrap() as f64;
        assert!((large / 269_508_803.0 - 4.0).abs() < 0.1, "{large}");
        assert!(
            Answers::all()
                .values()
                .all(|answers| answers.rows.iter().all(|row| row.1.len() == answers.sizes.len()))
        );
    }

    #[test]
    fn no_size_is_too_small_or_too_large() {
        assert_eq!([of_size("syevd", -1), of_matrix("gesvd", 3, -1), of_qr(-1)], [None; 3]);
        assert_eq!(of_size("syevd", 0), of_size("syevd", 1));
        assert_eq!([of_size("syevd", i64::MAX), of_qr(i64::MAX), of_size("none", 1)], [None; 3]);
    }
}
