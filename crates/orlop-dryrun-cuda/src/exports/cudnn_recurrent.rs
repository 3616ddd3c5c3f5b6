//! cuDNN's recurrent layers.

use crate::abi::Out;
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::cudnn::{Cell, Mode, RecurrentLayer, Sequences};
use crate::machine::Machine;

/// Data types of cuDNN with two and eight bytes; the others of recurrent layers have four.
const TWO_BYTES: [i32; 2] = [2, 9];
const EIGHT_BYTES: i32 = 1;

fn element_bytes(data_type: i32) -> u64 {
    match data_type {
        EIGHT_BYTES => 8,
        two if TWO_BYTES.contains(&two) => 2,
        _ => 4,
    }
}

fn size(value: i32) -> Outcome<u64> {
    u64::try_from(value).map_err(|_| Failure::CUDNN_BAD_PARAMETER)
}

fn layer(machine: &Machine, handle: usize) -> Outcome<RecurrentLayer> {
    machine.recurrent.layers.get(&handle).copied().ok_or(Failure::CUDNN_BAD_PARAMETER)
}

fn bytes(bytes: u64) -> Outcome<usize> {
    usize::try_from(bytes).map_err(|_| Failure::CUDNN_BAD_PARAMETER)
}

library_calls! {
    fn cudnnSetRNNDescriptor_v8(
        handle: usize,
        _algorithm: i32,
        mode: i32,
        bias: i32,
        direction: i32,
        _input_mode: i32,
        data_type: i32,
        _precision: i32,
        _math: i32,
        input: i32,
        hidden: i32,
        projected: i32,
        layers: i32,
        dropout: usize,
        _flags: u32,
    ) |machine| {
        let described = RecurrentLayer {
            cell: Cell::of(mode),
            has_bias: bias != 0,
            is_bidirectional: direction != 0,
            has_dropout: machine.recurrent.dropouts.contains(&dropout),
            element: element_bytes(data_type),
            input: size(input)?,
            hidden: size(hidden)?,
            projected: size(projected)?,
            layers: size(layers)?,
        };
        machine.recurrent.layers.insert(handle, described);
        Ok(())
    }

    fn cudnnSetDropoutDescriptor(
        handle: usize,
        _cudnn: usize,
        probability: f32,
        _states: usize,
        _bytes: usize,
        _seed: u64,
    ) |machine| {
        machine.recurrent.set_dropout(handle, probability);
        Ok(())
    }

    fn cudnnRestoreDropoutDescriptor(
        handle: usize,
        _cudnn: usize,
        probability: f32,
        _states: usize,
        _bytes: usize,
        _seed: u64,
    ) |machine| {
        machine.recurrent.set_dropout(handle, probability);
        Ok(())
    }

    fn cudnnSetRNNDataDescriptor(
        handle: usize,
        _data_type: i32,
        _layout: i32,
        length: i32,
        batch: i32,
        _width: i32,
        _lengths: usize,
        _padding: usize,
    ) |machine| {
        let sequences = Sequences { length: size(length)?, batch: size(batch)? };
        machine.recurrent.sequences.insert(handle, sequences);
        Ok(())
    }

    fn cudnnGetRNNWeightSpaceSize(_cudnn: usize, handle: usize, space: Out<usize>) |machine| {
        space.set(bytes(layer(machine, handle)?.weight_bytes())?)
    }

    fn cudnnGetRNNTempSpaceSizes(
        _cudnn: usize,
        handle: usize,
        mode: i32,
        data: usize,
        workspace: Out<usize>,
        reserve: Out<usize>,
    ) |machine| {
        let layer = layer(machine, handle)?;
        let sequences = machine.recurrent.sequences.get(&data).ok_or(Failure::CUDNN_BAD_PARAMETER)?;
        let mode = if mode == 0 { Mode::Inference } else { Mode::Training };
        workspace.set_optional(bytes(layer.workspace(*sequences, mode))?);
        reserve.set_optional(bytes(layer.reserve(*sequences, mode))?);
        Ok(())
    }

    fn cudnnGetRNNWeightParams(
        _cudnn: usize,
        handle: usize,
        pseudo_layer: i32,
        _bytes: usize,
        space: usize,
        number: i32,
        matrix_descriptor: usize,
        matrix: Out<usize>,
        bias_descriptor: usize,
        bias: Out<usize>,
    ) |machine| {
        let layer = layer(machine, handle)?;
        let (pseudo_layer, number) = (size(pseudo_layer)?, size(number)?);
        let data_type = match layer.element { 2 => TWO_BYTES[0], 8 => EIGHT_BYTES, _ => 0 };
        for (found, descriptor, address) in [
            (layer.matrix(pseudo_layer, number), matrix_descriptor, matrix),
            (layer.bias(pseudo_layer, number), bias_descriptor, bias),
        ] {
            let Some(found) = found else {
                address.set_optional(0);
                continue;
            };
            let sizes = [1, found.rows, found.columns].map(|size| i32::try_from(size).unwrap_or(i32::MAX));
            machine.recurrent.weights.insert(descriptor, (data_type, sizes));
            address.set_optional(space + bytes(found.offset * layer.element)?);
        }
        Ok(())
    }

    fn cudnnGetTensorNdDescriptor(
        handle: usize,
        wanted: i32,
        data_type: Out<i32>,
        count: Out<i32>,
        sizes: Out<i32>,
        strides: Out<i32>,
    ) |machine| {
        let found = machine.recurrent.weights.get(&handle).ok_or(Failure::NOT_SUPPORTED)?;
        let (kind, [first, rows, columns]) = *found;
        data_type.set_optional(kind);
        count.set_optional(3);
        let wanted = usize::try_from(wanted).unwrap_or(0).min(3);
        let all_strides = [rows.saturating_mul(columns), columns, 1];
        let all_sizes = [first, rows, columns];
        for (index, (size, stride)) in all_sizes.into_iter().zip(all_strides).take(wanted).enumerate() {
            sizes.set_at(index, size)?;
            strides.set_at(index, stride)?;
        }
        Ok(())
    }

    fn cudnnRNNForward(_cudnn: usize) |_machine| { Ok(()) }

    fn cudnnRNNBackwardData_v8(_cudnn: usize) |_machine| { Ok(()) }

    fn cudnnRNNBackwardWeights_v8(_cudnn: usize) |_machine| { Ok(()) }

    fn cudnnBuildRNNDynamic(_cudnn: usize, _layer: usize, _batch: i32) |_machine| { Ok(()) }
}
