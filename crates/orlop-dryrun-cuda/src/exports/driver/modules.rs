//! Modules and kernels that are loaded at run time, as Triton's are. They load, and do nothing.

use crate::abi::Out;
use crate::call::library_calls;

library_calls! {
    fn cuModuleLoad(module: Out<usize>, _path: usize) |machine| { module.set(machine.handle()) }

    fn cuModuleLoadData(module: Out<usize>, _image: usize) |machine| { module.set(machine.handle()) }

    fn cuModuleLoadDataEx(
        module: Out<usize>,
        _image: usize,
        _count: u32,
        _options: usize,
        _values: usize,
    ) |machine| { module.set(machine.handle()) }

    fn cuModuleUnload(_module: usize) |_machine| { Ok(()) }

    fn cuModuleGetFunction(function: Out<usize>, _module: usize, _name: usize) |machine| {
        function.set(machine.handle())
    }

    fn cuFuncGetAttribute(value: Out<i32>, attribute: i32, _function: usize) |machine| {
        let (major, minor) = machine.gpu().capability;
        let version = i32::from(major) * 10 + i32::from(minor);
        // Threads, registers, versions.
        value.set(match attribute { 0 => 1024, 4 => 32, 5 | 6 => version, _ => 0 })
    }

    fn cuFuncSetAttribute(_function: usize, _attribute: i32, _value: i32) |_machine| { Ok(()) }

    fn cuFuncSetCacheConfig(_function: usize, _configuration: i32) |_machine| { Ok(()) }

    fn cuLaunchKernel(function: usize) |machine| {
        machine.begin_kernel(function);
        Ok(())
    }

    fn cuLaunchKernelEx(_configuration: usize, function: usize) |machine| {
        machine.begin_kernel(function);
        Ok(())
    }

    fn cuLaunchCooperativeKernel(function: usize) |machine| {
        machine.begin_kernel(function);
        Ok(())
    }

    fn cuOccupancyMaxActiveClusters(clusters: Out<i32>, _function: usize, _configuration: usize) |_machine| {
        clusters.set(16)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>,
        _function: usize,
        _threads: i32,
        _shared: usize,
    ) |_machine| { blocks.set(2) }

    fn cuTensorMapEncodeTiled(_map: usize) |_machine| { Ok(()) }
}
