//! cuBLAS and cuBLASLt: what returns something. All other functions succeed (`unanswered`).

use crate::abi::Out;
use crate::call::library_calls;

/// The version of both: of the release that comes with PyTorch 2.11.
const VERSION: i32 = 130_002;

/// Bytes of `cublasLtMatmulHeuristicResult_t`, in numbers of eight bytes: the algorithm, its workspace, its
/// status.
const HEURISTIC: usize = 12;

library_calls! {
    fn cublasCreate_v2(handle: Out<usize>) |machine| { handle.set(machine.handle()) }

    fn cublasLtCreate(handle: Out<usize>) |machine| { handle.set(machine.handle()) }

    fn cublasLtMatmulDescCreate(description: Out<usize>, _compute: i32, _scale: i32) |machine| {
        description.set(machine.handle())
    }

    fn cublasLtMatrixLayoutCreate(
        layout: Out<usize>,
        _kind: i32,
        _rows: u64,
        _columns: u64,
        _leading: i64,
    ) |machine| { layout.set(machine.handle()) }

    fn cublasLtMatmulPreferenceCreate(preference: Out<usize>) |machine| { preference.set(machine.handle()) }

    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: usize,
        _description: usize,
        _a: usize,
        _b: usize,
        _c: usize,
        _d: usize,
        _preference: usize,
        wanted: i32,
        results: Out<u64>,
        found: Out<i32>,
    ) |_machine| {
        if wanted > 0 {
            (0..HEURISTIC).try_for_each(|index| results.set_at(index, 0))?;
        }
        found.set(wanted.min(1))
    }

    fn cublasSetStream_v2(handle: usize, stream: usize) |machine| {
        machine.streams_of_handles.insert(handle, stream);
        Ok(())
    }

    fn cublasGetStream_v2(handle: usize, stream: Out<usize>) |machine| {
        stream.set(machine.streams_of_handles.get(&handle).copied().unwrap_or(0))
    }

    fn cublasGetMathMode(_handle: usize, mode: Out<i32>) |_machine| { mode.set(0) }

    fn cublasGetPointerMode_v2(_handle: usize, mode: Out<i32>) |_machine| { mode.set(0) }

    fn cublasGetVersion_v2(_handle: usize, version: Out<i32>) |_machine| { version.set(VERSION) }
}

/// Defines the functions of batches that write to the host which argument is wrong: none.
macro_rules! batches {
    ($($($name:ident)+ ($($argument:ident: $kind:ty),*; $info:ident);)*) => {
        $(batches! { @each [$($name)+] ($($argument: $kind),*; $info) })*
    };
    (@each [$($name:ident)+] $arguments:tt) => { $(batches! { @one $name $arguments })+ };
    (@one $name:ident ($($argument:ident: $kind:ty),*; $info:ident)) => {
        library_calls! {
            fn $name($($argument: $kind,)* $info: Out<i32>) |_machine| {
                $info.set_optional(0);
                Ok(())
            }
        }
    };
}

batches! {
    cublasSgeqrfBatched cublasDgeqrfBatched cublasCgeqrfBatched cublasZgeqrfBatched
    (_handle: usize, _m: i32, _n: i32, _a: usize, _lda: i32, _tau: usize; info);

    cublasSgelsBatched cublasDgelsBatched cublasCgelsBatched cublasZgelsBatched
    (
        _handle: usize, _transposed: i32, _m: i32, _n: i32, _columns: i32, _a: usize, _lda: i32, _c: usize,
        _ldc: i32; info
    );

    cublasSgetrsBatched cublasDgetrsBatched cublasCgetrsBatched cublasZgetrsBatched
    (
        _handle: usize, _transposed: i32, _n: i32, _columns: i32, _a: usize, _lda: i32, _pivots: usize,
        _b: usize, _ldb: i32; info
    );
}

/// Returns the version.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtGetVersion() -> usize {
    VERSION as usize
}

/// Returns the version of the runtime that it was built for.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtGetCudartVersion() -> usize {
    super::driver::DRIVER_VERSION as usize
}
