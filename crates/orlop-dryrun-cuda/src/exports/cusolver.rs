//! cuSOLVER: workspaces by a model. The functions that compute succeed (`unanswered`).
//!
//! cuSOLVER's rules are not public. A workspace is what LAPACK documents for the routine of the same name,
//! with panels of [`PANEL`] columns; Jacobi's methods have a copy of the matrix and of its vectors. A
//! workspace on the host has no bytes.

use crate::abi::Out;
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::machine::Machine;

/// The columns that a blocked factorization updates at once.
const PANEL: i64 = 64;

/// `CUSOLVER_STATUS_INVALID_VALUE`.
const INVALID_VALUE: Failure = Failure(3);

/// Returns the bytes of an element of the functions for any type (`cudaDataType`). An unknown type has those
/// of the largest, a complex number of two `f64`.
fn element_bytes(data_type: i32) -> i64 {
    const R_32F: i32 = 0;
    const R_64F: i32 = 1;
    const C_32F: i32 = 4;
    match data_type {
        R_32F => 4,
        R_64F | C_32F => 8,
        _ => 16,
    }
}

/// Counts a workspace of `elements`, and returns them; fails if their number is negative or overflows.
fn workspace(machine: &mut Machine, elements: Option<i64>) -> Outcome<i64> {
    machine.counters.solver_workspaces += 1;
    elements.filter(|&elements| elements >= 0).ok_or(INVALID_VALUE)
}

/// Writes a result.
fn write<T>(written: &Out<T>, value: T) -> Outcome {
    written.set(value).map_err(|_| INVALID_VALUE)
}

/// Writes a workspace in elements.
fn set_elements(machine: &mut Machine, elements: Option<i64>, written: &Out<i32>) -> Outcome {
    let elements = workspace(machine, elements)?;
    write(written, i32::try_from(elements).map_err(|_| INVALID_VALUE)?)
}

/// Writes the bytes of a workspace of elements of a type, and those on the host.
fn set_bytes(
    machine: &mut Machine,
    elements: Option<i64>,
    data_type: i32,
    device: &Out<usize>,
    host: &Out<usize>,
) -> Outcome {
    let bytes = elements.and_then(|elements| elements.checked_mul(element_bytes(data_type)));
    let bytes = workspace(machine, bytes)?;
    write(device, usize::try_from(bytes).map_err(|_| INVALID_VALUE)?)?;
    write(host, 0)
}

/// Returns the elements of panels of this many rows.
fn panels(rows: i64) -> Option<i64> {
    rows.max(1).checked_mul(PANEL)
}

/// Returns the elements of the eigenvectors of a symmetric matrix: `dsyevd`, 1 + 6 n + 2 n².
fn eigenvectors(size: i64) -> Option<i64> {
    size.checked_mul(size)?.checked_mul(2)?.checked_add(size.checked_mul(6)?)?.checked_add(1)
}

/// Returns the elements of a decomposition into singular values: `dgesvd`, with panels for the bidiagonal
/// form.
fn singular_values(rows: i64, columns: i64) -> Option<i64> {
    panels(rows.checked_add(columns)?)?.checked_add(rows.min(columns).checked_mul(3)?)
}

/// The singular vectors that a decomposition of a matrix has.
#[derive(Debug, Clone, Copy)]
enum Vectors {
    /// As many on each side as the matrix has rows or columns.
    Full,
    /// As many on both sides as the matrix has singular values.
    Thin,
}

/// Returns the elements of Jacobi's method for a number of matrices: of each a copy, and its vectors.
fn jacobi(rows: i64, columns: i64, vectors: Vectors, matrices: i64) -> Option<i64> {
    let (left, right) = match vectors {
        Vectors::Full => (rows, columns),
        Vectors::Thin => (rows.min(columns), rows.min(columns)),
    };
    let sides = rows.checked_mul(left)?.checked_add(columns.checked_mul(right)?)?;
    rows.checked_mul(columns)?.checked_add(sides)?.checked_mul(matrices)
}

library_calls! {
    fn cusolverDnCreate(handle: Out<usize>) |machine| { handle.set(machine.handle()) }

    fn cusolverDnCreateParams(parameters: Out<usize>) |machine| { parameters.set(machine.handle()) }

    fn cusolverDnCreateGesvdjInfo(info: Out<usize>) |machine| { info.set(machine.handle()) }

    fn cusolverDnCreateSyevjInfo(info: Out<usize>) |machine| { info.set(machine.handle()) }
}

/// Defines the functions for the four types that tell a workspace in elements.
macro_rules! elements {
    ($($($name:ident)+ ($($argument:ident: $kind:ty),* $(,)?; $written:ident) = $elements:expr;)*) => {
        $(elements! { @each [$($name)+] ($($argument: $kind),*; $written) = $elements; })*
    };
    (@each [$($name:ident)+] $arguments:tt = $elements:expr;) => {
        $(elements! { @one $name $arguments = $elements; })+
    };
    (@one $name:ident ($($argument:ident: $kind:ty),*; $written:ident) = $elements:expr;) => {
        library_calls! {
            fn $name($($argument: $kind),*) |machine| { set_elements(machine, $elements, &$written) }
        }
    };
}

elements! {
    cusolverDnSgeqrf_bufferSize cusolverDnDgeqrf_bufferSize
    cusolverDnCgeqrf_bufferSize cusolverDnZgeqrf_bufferSize
    (_handle: usize, _m: i32, n: i32, _a: usize, _lda: i32, count: Out<i32>; count) = panels(n.into());

    cusolverDnSgetrf_bufferSize cusolverDnDgetrf_bufferSize
    cusolverDnCgetrf_bufferSize cusolverDnZgetrf_bufferSize
    (_handle: usize, m: i32, _n: i32, _a: usize, _lda: i32, count: Out<i32>; count) = panels(m.into());

    cusolverDnSpotrf_bufferSize cusolverDnDpotrf_bufferSize
    cusolverDnCpotrf_bufferSize cusolverDnZpotrf_bufferSize
    (_handle: usize, _part: i32, n: i32, _a: usize, _lda: i32, count: Out<i32>; count) = panels(n.into());

    cusolverDnSsytrf_bufferSize cusolverDnDsytrf_bufferSize
    cusolverDnCsytrf_bufferSize cusolverDnZsytrf_bufferSize
    (_handle: usize, n: i32, _a: usize, _lda: i32, count: Out<i32>; count) = panels(n.into());

    cusolverDnSorgqr_bufferSize cusolverDnDorgqr_bufferSize
    cusolverDnCungqr_bufferSize cusolverDnZungqr_bufferSize
    (_handle: usize, _m: i32, n: i32, _k: i32, _a: usize, _lda: i32, _tau: usize, count: Out<i32>; count)
        = panels(n.into());

    cusolverDnSormqr_bufferSize cusolverDnDormqr_bufferSize
    cusolverDnCunmqr_bufferSize cusolverDnZunmqr_bufferSize
    (
        _handle: usize, side: i32, _transposed: i32, m: i32, n: i32, _k: i32, _a: usize, _lda: i32,
        _tau: usize, _c: usize, _ldc: i32, count: Out<i32>; count
    ) = panels(if side == 0 { n } else { m }.into());

    cusolverDnSgesvd_bufferSize cusolverDnDgesvd_bufferSize
    cusolverDnCgesvd_bufferSize cusolverDnZgesvd_bufferSize
    (_handle: usize, m: i32, n: i32, count: Out<i32>; count) = singular_values(m.into(), n.into());

    cusolverDnSsyevd_bufferSize cusolverDnDsyevd_bufferSize
    cusolverDnCheevd_bufferSize cusolverDnZheevd_bufferSize
    (
        _handle: usize, _job: i32, _part: i32, n: i32, _a: usize, _lda: i32, _values: usize, count: Out<i32>;
        count
    ) = eigenvectors(n.into());

    cusolverDnSsyevj_bufferSize cusolverDnDsyevj_bufferSize
    cusolverDnCheevj_bufferSize cusolverDnZheevj_bufferSize
    (
        _handle: usize, _job: i32, _part: i32, n: i32, _a: usize, _lda: i32, _values: usize, count: Out<i32>,
        _info: usize; count
    ) = jacobi(n.into(), n.into(), Vectors::Full, 1);

    cusolverDnSsyevjBatched_bufferSize cusolverDnDsyevjBatched_bufferSize
    cusolverDnCheevjBatched_bufferSize cusolverDnZheevjBatched_bufferSize
    (
        _handle: usize, _job: i32, _part: i32, n: i32, _a: usize, _lda: i32, _values: usize, count: Out<i32>,
        _info: usize, batch: i32; count
    ) = jacobi(n.into(), n.into(), Vectors::Full, batch.into());

    cusolverDnSgesvdj_bufferSize cusolverDnDgesvdj_bufferSize
    cusolverDnCgesvdj_bufferSize cusolverDnZgesvdj_bufferSize
    (
        _handle: usize, _job: i32, economy: i32, m: i32, n: i32, _a: usize, _lda: i32, _values: usize,
        _u: usize, _ldu: i32, _v: usize, _ldv: i32, count: Out<i32>, _info: usize; count
    ) = jacobi(m.into(), n.into(), if economy == 0 { Vectors::Full } else { Vectors::Thin }, 1);

    cusolverDnSgesvdjBatched_bufferSize cusolverDnDgesvdjBatched_bufferSize
    cusolverDnCgesvdjBatched_bufferSize cusolverDnZgesvdjBatched_bufferSize
    (
        _handle: usize, _job: i32, m: i32, n: i32, _a: usize, _lda: i32, _values: usize, _u: usize,
        _ldu: i32, _v: usize, _ldv: i32, count: Out<i32>, _info: usize, batch: i32; count
    ) = jacobi(m.into(), n.into(), Vectors::Full, batch.into());

    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
    cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize
    (
        _handle: usize, _job: i32, _rank: i32, m: i32, n: i32, _a: usize, _lda: i32, _stride_a: i64,
        _values: usize, _stride_values: i64, _u: usize, _ldu: i32, _stride_u: i64, _v: usize, _ldv: i32,
        _stride_v: i64, count: Out<i32>, batch: i32; count
    ) = jacobi(m.into(), n.into(), Vectors::Thin, batch.into());
}

library_calls! {
    fn cusolverDnXgeqrf_bufferSize(
        _handle: usize,
        _parameters: usize,
        _m: i64,
        n: i64,
        type_a: i32,
        _a: usize,
        _lda: i64,
        _type_tau: i32,
        _tau: usize,
        _compute: i32,
        device: Out<usize>,
        host: Out<usize>,
    ) |machine| { set_bytes(machine, panels(n), type_a, &device, &host) }

    fn cusolverDnXpotrf_bufferSize(
        _handle: usize,
        _parameters: usize,
        _part: i32,
        n: i64,
        type_a: i32,
        _a: usize,
        _lda: i64,
        _compute: i32,
        device: Out<usize>,
        host: Out<usize>,
    ) |machine| { set_bytes(machine, panels(n), type_a, &device, &host) }

    fn cusolverDnXsyevd_bufferSize(
        _handle: usize,
        _parameters: usize,
        _job: i32,
        _part: i32,
        n: i64,
        type_a: i32,
        _a: usize,
        _lda: i64,
        _type_values: i32,
        _values: usize,
        _compute: i32,
        device: Out<usize>,
        host: Out<usize>,
    ) |machine| { set_bytes(machine, eigenvectors(n), type_a, &device, &host) }

    fn cusolverDnXsyevBatched_bufferSize(
        _handle: usize,
        _parameters: usize,
        _job: i32,
        _part: i32,
        n: i64,
        type_a: i32,
        _a: usize,
        _lda: i64,
        _type_values: i32,
        _values: usize,
        _compute: i32,
        device: Out<usize>,
        host: Out<usize>,
        batch: i64,
    ) |machine| { set_bytes(machine, jacobi(n, n, Vectors::Full, batch), type_a, &device, &host) }

    fn cusolverDnXgeev_bufferSize(
        _handle: usize,
        _parameters: usize,
        _job_left: i32,
        _job_right: i32,
        n: i64,
        type_a: i32,
        _a: usize,
        _lda: i64,
        _type_values: i32,
        _values: usize,
        _type_left: i32,
        _left: usize,
        _ld_left: i64,
        _type_right: i32,
        _right: usize,
        _ld_right: i64,
        _compute: i32,
        device: Out<usize>,
        host: Out<usize>,
    ) |machine| { set_bytes(machine, panels(n.saturating_mul(2)), type_a, &device, &host) }

    fn cusolverDnXsytrs_bufferSize(
        _handle: usize,
        _part: i32,
        n: i64,
        columns: i64,
        type_a: i32,
        _a: usize,
        _lda: i64,
        _pivots: usize,
        _type_b: i32,
        _b: usize,
        _ldb: i64,
        device: Out<usize>,
        host: Out<usize>,
    ) |machine| { set_bytes(machine, n.checked_mul(columns), type_a, &device, &host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_follow_the_sizes_of_lapack() {
        assert_eq!((panels(512), eigenvectors(100)), (Some(512 * 64), Some(20_601)));
        assert_eq!(singular_values(100, 10), Some(110 * 64 + 30));
        assert_eq!(jacobi(4, 3, Vectors::Full, 2), Some(2 * (12 + 16 + 9)));
        assert_eq!(jacobi(4, 3, Vectors::Thin, 2), Some(2 * (12 + 12 + 9)));
        assert_eq!(jacobi(3, 4, Vectors::Thin, 1), Some(12 + 9 + 12));
        assert_eq!((eigenvectors(i64::MAX), jacobi(1 << 32, 1 << 32, Vectors::Full, 2)), (None, None));
    }

    #[test]
    fn elements_have_the_bytes_of_their_type() {
        // `float`, `double`, `cuComplex`, `cuDoubleComplex`, and `__half`, which no function takes.
        assert_eq!([0, 1, 4, 5, 2].map(element_bytes), [4, 8, 8, 16, 16]);
    }
}
