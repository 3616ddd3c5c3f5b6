//! cuSPARSE: descriptors, products and solutions without workspaces. cuSPARSE's rules are not public: the
//! workspaces are counted. What else returns nothing succeeds (`unanswered`).

use crate::abi::Out;
use crate::call::library_calls;
use crate::code::Outcome;
use crate::machine::Machine;

/// Counts a workspace, and writes that it has no bytes.
fn no_workspace(machine: &mut Machine, bytes: &Out<usize>) -> Outcome {
    machine.counters.solver_workspaces += 1;
    bytes.set(0)
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
    cusparseCreateCsr
    cusparseCreateDnMat
    cusparseCreateDnVec
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

    cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt
    (_handle: usize, _m: i32, _n: i32, _elements: i32, _rows: usize, _columns: usize);
}
