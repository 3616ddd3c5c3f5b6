//! cuSPARSE: descriptors, products and solutions without workspaces. cuSPARSE's rules are not public: the
//! workspaces are counted. What else returns nothing succeeds (`unanswered`).

use crate::abi::Out;
use crate::call::library_calls;
use crate::caller::{Guess, note};
use crate::code::{Failure, Outcome};
use crate::machine::Machine;

/// Counts a workspace, and writes that it has no bytes.
fn no_workspace(machine: &mut Machine, bytes: &Out<usize>) -> Outcome {
    machine.counters.solver_workspaces += 1;
    bytes.set(0)
}

/// The number of elements of a matrix in rows: of one that was created, or of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SparseMatrix {
    rows: i64,
    columns: i64,
    elements: i64,
}

impl SparseMatrix {
    /// Returns the elements of the product with another matrix: as many as there are products of elements, if
    /// those of a row are spread evenly over the columns, and no two products meet.
    fn product(self, other: Self) -> i64 {
        let products = i128::from(self.elements) * i128::from(other.elements);
        let all = i128::from(self.rows) * i128::from(other.columns);
        let columns = i128::from(self.columns.max(1));
        let elements = (products + columns - 1) / columns;
        i64::try_from(elements.min(all)).unwrap_or(i64::MAX)
    }
}

/// Returns the elements of the sum of two matrices of this many rows and columns, if no two elements meet.
fn elements_of_sum(rows: i32, columns: i32, a: i32, b: i32) -> i32 {
    let all = i64::from(rows.max(0)) * i64::from(columns.max(0));
    i32::try_from((i64::from(a) + i64::from(b)).min(all)).unwrap_or(i32::MAX)
}

library_calls! {
    fn cusparseCreateCsr(
        object: Out<usize>,
        rows: i64,
        columns: i64,
        elements: i64,
        _offsets: usize,
        _indices: usize,
        _values: usize,
        _offset_type: i32,
        _index_type: i32,
        _base: i32,
        _value_type: i32,
    ) |machine| {
        let handle = machine.handle();
        machine.sparse_matrices.insert(handle, SparseMatrix { rows, columns, elements });
        object.set(handle)
    }

    fn cusparseDestroySpMat(object: usize) |machine| {
        machine.sparse_matrices.remove(&object);
        Ok(())
    }

    fn cusparseSpMatGetSize(
        object: usize,
        rows: Out<i64>,
        columns: Out<i64>,
        elements: Out<i64>,
    ) |machine| {
        let matrix = machine.sparse_matrices.get(&object).ok_or(NOT_CREATED)?;
        rows.set(matrix.rows)?;
        columns.set(matrix.columns)?;
        elements.set(matrix.elements)
    }
}

/// `CUSPARSE_STATUS_INVALID_VALUE`.
const NOT_CREATED: Failure = Failure(3);

/// Defines the steps of a product of two sparse matrices, which tell a workspace.
macro_rules! product_steps {
    ($($name:ident)*) => {$(
        library_calls! {
            fn $name(
                _handle: usize,
                _transposed_a: i32,
                _transposed_b: i32,
                _alpha: usize,
                a: usize,
                b: usize,
                _beta: usize,
                c: usize,
                _compute: i32,
                _algorithm: i32,
                _product: usize,
                bytes: Out<usize>,
                _workspace: usize,
            ) |machine| {
                let matrix = |handle| machine.sparse_matrices.get(handle).copied().ok_or(NOT_CREATED);
                let elements = matrix(&a)?.product(matrix(&b)?);
                let product = SparseMatrix { elements, ..matrix(&c)? };
                machine.sparse_matrices.insert(c, product);
                note(Guess::Products);
                no_workspace(machine, &bytes)
            }
        }
    )*};
}

product_steps! { cusparseSpGEMM_workEstimation cusparseSpGEMM_compute }

library_calls! {
    fn cusparseXcsrgeam2Nnz(
        _handle: usize,
        rows: i32,
        columns: i32,
        _describes_a: usize,
        a: i32,
        _rows_a: usize,
        _columns_a: usize,
        _describes_b: usize,
        b: i32,
        _rows_b: usize,
        _columns_b: usize,
        _describes_c: usize,
        _rows_c: usize,
        elements: Out<i32>,
        _workspace: usize,
    ) |_machine| {
        note(Guess::Products);
        elements.set(elements_of_sum(rows, columns, a, b))
    }
}

/// Defines functions that create an object, the first argument.
macro_rules! created {
    ($($name:ident)*) => {
        library_calls! { $(fn $name(object: Out<usize>) |machine| { object.set(machine.handle()) })* }
    };
}

created! {
    cusparseCreate
    cusparseCreateMatDescr
    cusparseCreateCoo
    cusparseCreateDnMat
    cusparseCreateDnVec
    cusparseSpGEMM_createDescr
    cusparseSpSV_createDescr
    cusparseSpSM_createDescr
}

/// Defines functions that tell a workspace: each with the other arguments before its bytes.
macro_rules! without_workspace {
    ($($($name:ident)+ ($($argument:ident: $kind:ty),* $(,)?);)*) => {
        $(without_workspace! { @each [$($name)+] ($($argument: $kind),*) })*
    };
    (@each [$($name:ident)+] $arguments:tt) => { $(without_workspace! { @one $name $arguments })+ };
    (@one $name:ident ($($argument:ident: $kind:ty),*)) => {
        library_calls! {
            fn $name($($argument: $kind,)* bytes: Out<usize>) |machine| { no_workspace(machine, &bytes) }
        }
    };
}

without_workspace! {
    cusparseSpMV_bufferSize
    (
        _handle: usize, _transposed: i32, _alpha: usize, _a: usize, _x: usize, _beta: usize, _y: usize,
        _compute: i32, _algorithm: i32,
    );

    cusparseSpMM_bufferSize cusparseSDDMM_bufferSize
    (
        _handle: usize, _transposed_a: i32, _transposed_b: i32, _alpha: usize, _a: usize, _b: usize,
        _beta: usize, _c: usize, _compute: i32, _algorithm: i32,
    );

    cusparseSpSV_bufferSize
    (
        _handle: usize, _transposed: i32, _alpha: usize, _a: usize, _x: usize, _y: usize, _compute: i32,
        _algorithm: i32, _solution: usize,
    );

    cusparseSpSM_bufferSize
    (
        _handle: usize, _transposed_a: i32, _transposed_b: i32, _alpha: usize, _a: usize, _b: usize,
        _c: usize, _compute: i32, _algorithm: i32, _solution: usize,
    );

    cusparseScsrgeam2_bufferSizeExt cusparseDcsrgeam2_bufferSizeExt
    cusparseCcsrgeam2_bufferSizeExt cusparseZcsrgeam2_bufferSizeExt
    (
        _handle: usize, _m: i32, _n: i32, _alpha: usize, _describes_a: usize, _elements_a: i32,
        _values_a: usize, _rows_a: usize, _columns_a: usize, _beta: usize, _describes_b: usize,
        _elements_b: i32, _values_b: usize, _rows_b: usize, _columns_b: usize, _describes_c: usize,
        _values_c: usize, _rows_c: usize, _columns_c: usize,
    );

    cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt
    (_handle: usize, _m: i32, _n: i32, _elements: i32, _rows: usize, _columns: usize);
}

#[cfg(test)]
mod tests {
    use super::{SparseMatrix, elements_of_sum};

    #[test]
    fn a_sum_has_the_elements_of_both() {
        assert_eq!(elements_of_sum(10, 10, 20, 30), 50);
        assert_eq!(elements_of_sum(5, 4, 15, 15), 20);
        assert_eq!(elements_of_sum(i32::MAX, i32::MAX, i32::MAX, 1), i32::MAX);
    }

    #[test]
    fn a_product_has_the_elements_of_even_rows() {
        let matrix = |rows, columns, elements| SparseMatrix { rows, columns, elements };
        assert_eq!(matrix(10, 10, 10).product(matrix(10, 10, 10)), 10);
        assert_eq!(matrix(4, 100, 200).product(matrix(100, 5, 50)), 20);
        assert_eq!(matrix(4, 0, 0).product(matrix(0, 5, 0)), 0);
    }
}
