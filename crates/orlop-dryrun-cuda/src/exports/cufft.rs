//! cuFFT: plans whose transforms do nothing, and whose workspaces follow rules
//! ([`transforms`](crate::transforms)). The plans are counted.

use crate::abi::{In, Out};
use crate::call::library_calls;
use crate::code::Failure;
use crate::transforms::Transform;

/// `CUFFT_INVALID_VALUE`.
const INVALID_VALUE: Failure = Failure(4);

/// Types of `cudaDataType`: half, single and double precision, real ones and complex ones.
const REAL_TYPES: [i32; 3] = [2, 0, 1];
const C_16F: i32 = 6;
const C_64F: i32 = 5;

/// A plan has at most so many dimensions.
const MAX_RANK: i32 = 3;

library_calls! {
    fn cufftCreate(plan: Out<i32>) |machine| { plan.set(i32::try_from(machine.handle()).unwrap_or(i32::MAX)) }

    fn cufftXtMakePlanMany(
        _plan: i32,
        rank: i32,
        sizes: In<i64>,
        _input_embed: usize,
        _input_stride: i64,
        _input_distance: i64,
        input_type: i32,
        _output_embed: usize,
        _output_stride: i64,
        _output_distance: i64,
        output_type: i32,
        batch: i64,
        workspace: Out<usize>,
        execution_type: i32,
    ) |machine| {
        machine.counters.transforms += 1;
        if !(1..=MAX_RANK).contains(&rank) {
            return Err(INVALID_VALUE);
        }
        let lengths = sizes.list(rank.unsigned_abs() as usize).into_iter().map(u64::try_from);
        let lengths: Vec<u64> = lengths.collect::<Result<_, _>>().map_err(|_| INVALID_VALUE)?;
        let transform = Transform {
            element: match execution_type {
                C_16F => 4,
                C_64F => 16,
                _ => 8,
            },
            is_real: REAL_TYPES.contains(&input_type) || REAL_TYPES.contains(&output_type),
            batch: u64::try_from(batch).map_err(|_| INVALID_VALUE)?,
        };
        let bytes = transform.workspace(&lengths);
        workspace.set(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    fn cufftSetAutoAllocation(_plan: i32, _is_automatic: i32) |_machine| { Ok(()) }

    fn cufftSetWorkArea(_plan: i32, _area: usize) |_machine| { Ok(()) }

    fn cufftSetStream(_plan: i32, _stream: usize) |_machine| { Ok(()) }

    fn cufftXtExec(_plan: i32, _from: usize, _to: usize, _direction: i32) |_machine| { Ok(()) }

    fn cufftDestroy(_plan: i32) |_machine| { Ok(()) }
}
