//! cuSOLVER: workspaces by what was measured ([`solver`](crate::solver)). The functions that compute succeed
//! (`unanswered`). A workspace on the host has no bytes.

use crate::abi::Out;
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::machine::Machine;
use crate::solver::{of_matrix, of_qr, of_size};

/// `CUSOLVER_STATUS_INVALID_VALUE`.
const INVALID_VALUE: Failure = Failure(3);

/// The number of the type f32.
const R_32F: i32 = 0;

/// Returns the bytes of an element of the functions for any type (`cudaDataType`). An unknown type has those
/// of the largest, a complex number of two `f64`.
fn element_bytes(data_type: i32) -> i64 {
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

/// Returns the elements for a number of matrices.
fn of_batch(elements: Option<i64>, matrices: impl Into<i64>) -> Option<i64> {
    elements?.checked_mul(matrices.into())
}

/// The elements of Jacobi's method for matrices that a block of threads computes, whatever their size.
const JACOBI_OF_SMALL: i64 = 992;

/// Elements of f32, and what they are of other types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// As many elements.
    Elements(Option<i64>),
    /// As many bytes.
    Bytes(Option<i64>),
    /// As many bytes if they are real, and twice as many if they are complex.
    RealBytes(Option<i64>),
}

impl From<Option<i64>> for Size {
    fn from(elements: Option<i64>) -> Self {
        Self::Elements(elements)
    }
}

impl Size {
    /// Returns the elements of a function, which has the letter of its type in its name.
    fn of(self, function: &str) -> Option<i64> {
        let letter = function.as_bytes().get("cusolverDn".len());
        match (self, letter) {
            (Self::Elements(elements), _)
            | (Self::Bytes(elements) | Self::RealBytes(elements), Some(b'S'))
            | (Self::RealBytes(elements), Some(b'C')) => elements,
            (Self::Bytes(elements), Some(b'Z')) => Some((elements? + 3) / 4),
            (Self::Bytes(elements) | Self::RealBytes(elements), _) => Some((elements? + 1) / 2),
        }
    }
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
            fn $name($($argument: $kind),*) |machine| {
                set_elements(machine, Size::from($elements).of(stringify!($name)), &$written)
            }
        }
    };
}

elements! {
    cusolverDnSgeqrf_bufferSize cusolverDnDgeqrf_bufferSize
    cusolverDnCgeqrf_bufferSize cusolverDnZgeqrf_bufferSize
    (_handle: usize, _m: i32, n: i32, _a: usize, _lda: i32, count: Out<i32>; count) = of_qr(n.into());

    cusolverDnSgetrf_bufferSize cusolverDnDgetrf_bufferSize
    cusolverDnCgetrf_bufferSize cusolverDnZgetrf_bufferSize
    (_handle: usize, m: i32, n: i32, _a: usize, _lda: i32, count: Out<i32>; count)
        = Size::Bytes(of_matrix("getrf", m.into(), n.into()));

    cusolverDnSpotrf_bufferSize cusolverDnDpotrf_bufferSize
    cusolverDnCpotrf_bufferSize cusolverDnZpotrf_bufferSize
    (_handle: usize, _part: i32, n: i32, _a: usize, _lda: i32, count: Out<i32>; count)
        = Size::Bytes(of_size("potrf", n.into()));

    cusolverDnSsytrf_bufferSize cusolverDnDsytrf_bufferSize
    cusolverDnCsytrf_bufferSize cusolverDnZsytrf_bufferSize
    (_handle: usize, n: i32, _a: usize, _lda: i32, count: Out<i32>; count) = of_size("sytrf", n.into());

    cusolverDnSorgqr_bufferSize cusolverDnDorgqr_bufferSize
    cusolverDnCungqr_bufferSize cusolverDnZungqr_bufferSize
    (_handle: usize, m: i32, n: i32, _k: i32, _a: usize, _lda: i32, _tau: usize, count: Out<i32>; count)
        = of_matrix("orgqr", m.into(), n.into());

    cusolverDnSormqr_bufferSize cusolverDnDormqr_bufferSize
    cusolverDnCunmqr_bufferSize cusolverDnZunmqr_bufferSize
    (
        _handle: usize, side: i32, _transposed: i32, m: i32, n: i32, _k: i32, _a: usize, _lda: i32,
        _tau: usize, _c: usize, _ldc: i32, count: Out<i32>; count
    ) = of_matrix(if side == 0 { "ormqr-left" } else { "ormqr-right" }, m.into(), n.into());

    cusolverDnSgesvd_bufferSize cusolverDnDgesvd_bufferSize
    cusolverDnCgesvd_bufferSize cusolverDnZgesvd_bufferSize
    (_handle: usize, m: i32, n: i32, count: Out<i32>; count) = of_matrix("gesvd", m.into(), n.into());

    cusolverDnSsyevd_bufferSize cusolverDnDsyevd_bufferSize
    cusolverDnCheevd_bufferSize cusolverDnZheevd_bufferSize
    (
        _handle: usize, _job: i32, _part: i32, n: i32, _a: usize, _lda: i32, _values: usize, count: Out<i32>;
        count
    ) = of_size("syevd", n.into());

    cusolverDnSsyevj_bufferSize cusolverDnDsyevj_bufferSize
    cusolverDnCheevj_bufferSize cusolverDnZheevj_bufferSize
    (
        _handle: usize, _job: i32, _part: i32, n: i32, _a: usize, _lda: i32, _values: usize, count: Out<i32>,
        _info: usize; count
    ) = of_size("syevj", n.into());

    cusolverDnSsyevjBatched_bufferSize cusolverDnDsyevjBatched_bufferSize
    cusolverDnCheevjBatched_bufferSize cusolverDnZheevjBatched_bufferSize
    (
        _handle: usize, _job: i32, _part: i32, n: i32, _a: usize, _lda: i32, _values: usize, count: Out<i32>,
        _info: usize, batch: i32; count
    ) = of_batch(of_size("syevj", n.into()), batch);

    cusolverDnSgesvdj_bufferSize cusolverDnDgesvdj_bufferSize
    cusolverDnCgesvdj_bufferSize cusolverDnZgesvdj_bufferSize
    (
        _handle: usize, _job: i32, economy: i32, m: i32, n: i32, _a: usize, _lda: i32, _values: usize,
        _u: usize, _ldu: i32, _v: usize, _ldv: i32, count: Out<i32>, _info: usize; count
    ) = of_matrix(if economy == 0 { "gesvdj" } else { "gesvdj-thin" }, m.into(), n.into());

    cusolverDnSgesvdjBatched_bufferSize cusolverDnDgesvdjBatched_bufferSize
    cusolverDnCgesvdjBatched_bufferSize cusolverDnZgesvdjBatched_bufferSize
    (
        _handle: usize, _job: i32, _m: i32, _n: i32, _a: usize, _lda: i32, _values: usize, _u: usize,
        _ldu: i32, _v: usize, _ldv: i32, count: Out<i32>, _info: usize, _batch: i32; count
    ) = Some(JACOBI_OF_SMALL);

    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
    cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize
    (
        _handle: usize, _job: i32, _rank: i32, m: i32, n: i32, _a: usize, _lda: i32, _stride_a: i64,
        _values: usize, _stride_values: i64, _u: usize, _ldu: i32, _stride_u: i64, _v: usize, _ldv: i32,
        _stride_v: i64, count: Out<i32>, batch: i32; count
    ) = Size::RealBytes(of_batch(of_matrix("gesvda", m.into(), n.into()), batch));
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
    ) |machine| { set_bytes(machine, of_qr(n), type_a, &device, &host) }

    fn cusolverDnXpotrf_bufferSize(
        _handle: usize,
        _parameters: usize,
        _part: i32,
        n: i64,
        _type_a: i32,
        _a: usize,
        _lda: i64,
        _compute: i32,
        device: Out<usize>,
        host: Out<usize>,
    ) |machine| {
        // As many bytes for every type.
        set_bytes(machine, of_size("potrf", n), R_32F, &device, &host)
    }

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
    ) |machine| { set_bytes(machine, of_size("syevd", n), type_a, &device, &host) }

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
    ) |machine| {
        let elements = of_batch(of_size("syevd", n), batch);
        set_bytes(machine, elements, type_a, &device, &host)
    }

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
    ) |machine| { set_bytes(machine, of_size("geev", n), type_a, &device, &host) }

    fn cusolverDnXsytrs_bufferSize(
        _handle: usize,
        _part: i32,
        _n: i64,
        _columns: i64,
        type_a: i32,
        _a: usize,
        _lda: i64,
        _pivots: usize,
        _type_b: i32,
        _b: usize,
        _ldb: i64,
        device: Out<usize>,
        host: Out<usize>,
    ) |machine| { set_bytes(machine, Some(0), type_a, &device, &host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_type_in_the_name() {
        let of = |size: Size| ["S", "D", "C", "Z"].map(|letter| size.of(&format!("cusolverDn{letter}getrf")));
        assert_eq!(of(Size::from(Some(40))), [Some(40); 4]);
        assert_eq!(of(Size::Bytes(Some(40))), [40, 20, 20, 10].map(Some));
        assert_eq!(of(Size::RealBytes(Some(40))), [40, 20, 40, 20].map(Some));
        assert_eq!(of(Size::Bytes(None)), [None; 4]);
    }

    #[test]
    fn elements_have_the_bytes_of_their_type() {
        // `float`, `double`, `cuComplex`, `cuDoubleComplex`, and `__half`, which no function takes.
        assert_eq!([0, 1, 4, 5, 2].map(element_bytes), [4, 8, 8, 16, 16]);
    }
}
