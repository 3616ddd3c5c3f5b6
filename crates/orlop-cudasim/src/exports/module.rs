//! Modules and kernel launches. To load or to unload a module counts as a call that may wait, or does wait if
//! `modules_wait` says so, and captures allow it then, as driver 580 does.

use crate::abi::{In, LaunchConfig, Out, Text, write_text};
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::guard::DriverGuard;
use crate::ptx::{MAX_DYNAMIC_SHARED, Shape};
use crate::state::kernel::Launch;

/// The end of a list of launch options, and its entries.
const PARAM_END: usize = 0;
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;

/// Options of a load.
const JIT_ERROR_LOG_BUFFER: i32 = 5;
const JIT_ERROR_LOG_BUFFER_SIZE: i32 = 6;

/// Waits for the device, or counts as a call that may.
fn before_change(driver: &mut DriverGuard) -> Outcome {
    if driver.config.modules_wait {
        let device = driver.current_device()?;
        return driver.synchronize_device(device);
    }
    driver.refuse_in_capture()
}

fn load(driver: &mut DriverGuard, module: &Out<u64>, text: &str) -> Outcome {
    let (handle, device) = (driver.handle(), driver.current_device()?);
    driver.modules.load(handle, device, text)?;
    module.set(handle)
}

/// Writes why a module was refused into the buffer that the options of a load have for errors.
fn write_log(driver: &Driver, count: usize, options: &In<i32>, values: &In<usize>) -> Outcome {
    let (options, values) = (options.list(count)?, values.list(count)?);
    let value = |wanted| options.iter().position(|&option| option == wanted).map(|at| values[at]);
    let Some((buffer, length)) = value(JIT_ERROR_LOG_BUFFER).zip(value(JIT_ERROR_LOG_BUFFER_SIZE)) else {
        return Ok(());
    };
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    let refusal = driver.modules.refusal.as_deref().unwrap_or_default();
    write_text(&Out::from_address(buffer), length, refusal)
}

/// Returns a copy of the arguments, which the caller can change after the call.
fn copy_arguments(sizes: &[usize], pointers: &In<In<u8>>, options: &In<usize>) -> Outcome<Vec<Vec<u8>>> {
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    if !pointers.is_null() {
        return sizes.iter().enumerate().map(|(index, &size)| pointers.at(index)?.list(size)).collect();
    }
    let (mut buffer, mut length, mut index) = (None, None, 0);
    loop {
        match options.at(index)? {
            PARAM_END => break,
            PARAM_BUFFER_POINTER => buffer = Some(options.at(index + 1)?),
            // The size is passed by its address.
            PARAM_BUFFER_SIZE => length = Some(In::<usize>::from_address(options.at(index + 1)?).get()?),
            _ => return Err(Failure::INVALID_VALUE),
        }
        index += 2;
    }
    let (Some(buffer), Some(length)) = (buffer, length) else { return Err(Failure::INVALID_VALUE) };
    let mut at = 0;
    let mut arguments = Vec::new();
    for &size in sizes {
        // Each argument is aligned to its size, structures to 8 bytes.
        let start = usize::next_multiple_of(at, size.next_power_of_two().min(8));
        at = start + size;
        if at > length {
            return Err(Failure::INVALID_VALUE);
        }
        arguments.push(In::<u8>::from_address(buffer + start).list(size)?);
    }
    Ok(arguments)
}

fn launch(
    driver: &mut DriverGuard,
    function: u64,
    config: LaunchConfig,
    pointers: &In<In<u8>>,
    options: &In<usize>,
) -> Outcome {
    let entry = driver.modules.function(function)?.clone();
    let threads = config.block.iter().try_fold(1_u32, |product, &side| product.checked_mul(side));
    let threads = threads.ok_or(Failure::INVALID_VALUE)?;
    let is_large = threads > 1024 || config.shared > MAX_DYNAMIC_SHARED;
    if config.grid.contains(&0) || threads == 0 || is_large {
        return Err(Failure::INVALID_VALUE);
    }
    let id = driver.stream_of(config.stream)?;
    if driver.stream(id)?.device != driver.current_device()? {
        return Err(Failure::INVALID_HANDLE);
    }
    let arguments = copy_arguments(&entry.sizes, pointers, options)?;
    let code = driver.modules.code(&entry).ok_or(Failure::NOT_SUPPORTED)?;
    let LaunchConfig { grid, block, shared, .. } = config;
    driver.launch(id, Launch::new(entry.name, code, Shape { grid, block }, shared, arguments))
}

calls! {
    fn cuModuleLoad(module: Out<u64>, path: Text) Context |driver| {
        before_change(driver)?;
        let text = std::fs::read(path.get()?).map_err(|_| Failure::FILE_NOT_FOUND)?;
        load(driver, &module, &String::from_utf8_lossy(&text))
    }

    fn cuModuleLoadData(module: Out<u64>, image: Text) Context |driver| {
        before_change(driver)?;
        let text = image.get()?;
        if text.starts_with("\u{7f}ELF") {
            return Err(Failure::INVALID_IMAGE);
        }
        load(driver, &module, &text)
    }

    fn cuModuleLoadDataEx(
        module: Out<u64>,
        image: Text,
        count: u32,
        options: In<i32>,
        values: In<usize>,
    ) Context |driver| {
        before_change(driver)?;
        let loaded = load(driver, &module, &image.get()?);
        if loaded == Err(Failure::INVALID_PTX) && count > 0 {
            write_log(driver, count as usize, &options, &values)?;
        }
        loaded
    }

    fn cuModuleUnload(module: u64) Context |driver| {
        before_change(driver)?;
        driver.modules.unload(module)
    }

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: Text) Context |driver| {
        let entry = driver.modules.find(module, &name.get()?)?;
        let handle = driver.handle();
        driver.modules.add_function(handle, entry);
        function.set(handle)
    }

    fn cuModuleGetGlobal_v2(
        _address: Out<usize>,
        _bytes: Out<usize>,
        _module: u64,
        _name: Text,
    ) Context |_driver| {
        Err(Failure::NOT_FOUND)
    }

    fn cuFuncGetAttribute(value: Out<i32>, attribute: i32, function: u64) Context |driver| {
        driver.modules.function(function)?;
        value.set(match attribute {
            0 => 1024,
            1..=4 | 7..=15 => 0,
            5 | 6 => 90,
            _ => return Err(Failure::INVALID_VALUE),
        })
    }

    fn cuFuncSetAttribute(function: u64, _attribute: i32, _value: i32) Context |driver| {
        driver.modules.function(function).map(|_| ())
    }

    fn cuFuncSetCacheConfig(function: u64, _config: i32) Context |driver| {
        driver.modules.function(function).map(|_| ())
    }

    fn cuLaunchKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: u64,
        arguments: In<In<u8>>,
        options: In<usize>,
    ) Context |driver| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let config = LaunchConfig { grid, block, shared, stream, attributes: 0, attribute_count: 0 };
        launch(driver, function, config, &arguments, &options)
    }

    // All blocks of a simulated kernel run at once.
    fn cuLaunchCooperativeKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: u64,
        arguments: In<In<u8>>,
    ) Context |driver| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let config = LaunchConfig { grid, block, shared, stream, attributes: 0, attribute_count: 0 };
        launch(driver, function, config, &arguments, &In::from_address(0))
    }

    fn cuLaunchKernelEx(
        config: In<LaunchConfig>,
        function: u64,
        arguments: In<In<u8>>,
        options: In<usize>,
    ) Context |driver| {
        launch(driver, function, config.get()?, &arguments, &options)
    }
}
