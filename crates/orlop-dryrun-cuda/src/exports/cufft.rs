//! cuFFT: plans without workspaces, whose transforms do nothing. The workspaces of a GPU are not known: the
//! plans are counted.

use crate::abi::Out;
use crate::call::library_calls;

library_calls! {
    fn cufftCreate(plan: Out<i32>) |machine| { plan.set(i32::try_from(machine.handle()).unwrap_or(i32::MAX)) }

    fn cufftXtMakePlanMany(
        _plan: i32,
        _rank: i32,
        _sizes: usize,
        _input_embed: usize,
        _input_stride: i64,
        _input_distance: i64,
        _input_type: i32,
        _output_embed: usize,
        _output_stride: i64,
        _output_distance: i64,
        _output_type: i32,
        _batch: i64,
        workspace: Out<usize>,
        _execution_type: i32,
    ) |machine| {
        machine.counters.transforms += 1;
        workspace.set(0)
    }

    fn cufftSetAutoAllocation(_plan: i32, _is_automatic: i32) |_machine| { Ok(()) }

    fn cufftSetWorkArea(_plan: i32, _area: usize) |_machine| { Ok(()) }

    fn cufftSetStream(_plan: i32, _stream: usize) |_machine| { Ok(()) }

    fn cufftXtExec(_plan: i32, _from: usize, _to: usize, _direction: i32) |_machine| { Ok(()) }

    fn cufftDestroy(_plan: i32) |_machine| { Ok(()) }
}
