//! cuDNN: the graph interface, descriptors of the older one, sizes of workspaces.

use crate::abi::{In, Out};
use crate::call::library_calls;
use crate::code::Failure;
use crate::cudnn::{Attribute, Descriptors, VERSION};
use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bytes of the state of dropout's random numbers on a device.
const DROPOUT_STATE: usize = 1 << 20;

library_calls! {
    fn cudnnBackendCreateDescriptor(kind: i32, descriptor: Out<usize>) |machine| {
        let handle = machine.handle();
        machine.descriptors.create(handle, kind);
        descriptor.set(handle)
    }

    fn cudnnBackendDestroyDescriptor(_descriptor: usize) |_machine| { Ok(()) }

    fn cudnnBackendFinalize(_descriptor: usize) |_machine| { Ok(()) }

    fn cudnnBackendExecute(_handle: usize, _plan: usize, _pack: usize) |_machine| { Ok(()) }

    fn cudnnBackendSetAttribute(
        descriptor: usize,
        attribute: i32,
        kind: i32,
        count: i64,
        values: In<u8>,
    ) |machine| {
        let count = usize::try_from(count).map_err(|_| Failure::INVALID_VALUE)?;
        let bytes = values.list(Descriptors::bytes_of(kind, count)?);
        machine.descriptors.set(descriptor, attribute, Attribute { kind, bytes })
    }

    fn cudnnBackendGetAttribute(
        descriptor: usize,
        attribute: i32,
        kind: i32,
        wanted: i64,
        count: Out<i64>,
        values: Out<usize>,
    ) |machine| {
        let wanted = usize::try_from(wanted).unwrap_or(0);
        let is_descriptor = kind == Attribute::DESCRIPTOR && !values.is_null();
        let filled: Vec<usize> = if is_descriptor {
            (0..wanted).map(|index| values.get_at(index)).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let (found, value) =
            machine.descriptors.read(descriptor, attribute, kind, &filled, &mut machine.workspaces)?;
        count.set_optional(i64::try_from(found).unwrap_or(i64::MAX));
        if let Some(value) = value {
            let bytes = value.bytes.len().min(Descriptors::bytes_of(kind, wanted)?);
            values.cast::<u8>().write(&value.bytes[..bytes]);
        }
        Ok(())
    }

    fn cudnnSetStream(handle: usize, stream: usize) |machine| {
        machine.streams_of_handles.insert(handle, stream);
        Ok(())
    }

    fn cudnnGetStream(handle: usize, stream: Out<usize>) |machine| {
        stream.set(machine.streams_of_handles.get(&handle).copied().unwrap_or(0))
    }

    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        _handle: usize,
        _mode: i32,
        _operation: i32,
        _x: usize,
        _z: usize,
        _y: usize,
        _scale: usize,
        _activation: usize,
        bytes: Out<usize>,
    ) |_machine| { bytes.set(0) }

    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        _handle: usize,
        _mode: i32,
        _operation: i32,
        _x: usize,
        _y: usize,
        _dy: usize,
        _dz: usize,
        _dx: usize,
        _scale: usize,
        _activation: usize,
        bytes: Out<usize>,
    ) |_machine| { bytes.set(0) }

    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        _handle: usize,
        _mode: i32,
        _operation: i32,
        _activation: usize,
        _x: usize,
        bytes: Out<usize>,
    ) |_machine| { bytes.set(0) }

    fn cudnnDropoutGetStatesSize(_handle: usize, bytes: Out<usize>) |_machine| { bytes.set(DROPOUT_STATE) }
}

macro_rules! creates {
    ($($name:ident)*) => {
        library_calls! { $(fn $name(handle: Out<usize>) |machine| { handle.set(machine.handle()) })* }
    };
}

creates! {
    cudnnCreate
    cudnnCreateActivationDescriptor
    cudnnCreateCTCLossDescriptor
    cudnnCreateConvolutionDescriptor
    cudnnCreateDropoutDescriptor
    cudnnCreateFilterDescriptor
    cudnnCreatePoolingDescriptor
    cudnnCreateRNNDataDescriptor
    cudnnCreateRNNDescriptor
    cudnnCreateSpatialTransformerDescriptor
    cudnnCreateTensorDescriptor
}

/// The version. Relaxed: it is set once, before the program runs.
static RUNTIME_VERSION: AtomicUsize = AtomicUsize::new(VERSION);

/// Returns the version.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudnnGetVersion() -> usize {
    RUNTIME_VERSION.load(Relaxed)
}

/// Sets the version: PyTorch refuses one that is older than that for which it was built.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlop_dry_run_set_cudnn_version(version: usize) {
    RUNTIME_VERSION.store(version, Relaxed);
}

/// Returns the version of the runtime that it was built for.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudnnGetCudartVersion() -> usize {
    super::driver::DRIVER_VERSION as usize
}

/// Returns the text of an error.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudnnGetErrorString(_code: i32) -> *const c_char {
    c"not simulated in a dry run".as_ptr()
}

/// Writes the text of the last error: none.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudnnGetLastErrorString(text: Out<u8>, capacity: usize) {
    text.write_text("", capacity);
}
