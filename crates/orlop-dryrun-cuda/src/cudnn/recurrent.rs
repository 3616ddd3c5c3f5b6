//! [`RecurrentLayers`]: the descriptors of cuDNN's recurrent layers, where their weights are, and the memory
//! that they take.

use std::collections::{HashMap, HashSet};

/// The part of a workspace that each direction of a layer takes, in bytes.
const WORKSPACE_OF_PSEUDO_LAYER: u64 = 8 << 20;

/// Bytes at the end of a reserve.
const RESERVE_END: u64 = 256;

/// The kind of a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Plain,
    Lstm,
    Gru,
}

impl Cell {
    pub(crate) fn of(mode: i32) -> Self {
        match mode {
            2 => Self::Lstm,
            3 => Self::Gru,
            _ => Self::Plain,
        }
    }

    /// Returns the number of matrices for the input, which is also that for the state.
    fn gates(self) -> u64 {
        match self {
            Self::Plain => 1,
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// Returns how many values of the size of its output a layer reserves for the backward pass.
    fn reserved(self) -> u64 {
        match self {
            Self::Plain => 1,
            Self::Lstm => 5,
            Self::Gru => 6,
        }
    }

    /// Returns how many values of that size a workspace has.
    fn temporary(self) -> u64 {
        match self {
            Self::Plain => 4,
            Self::Lstm => 6,
            Self::Gru => 5,
        }
    }
}

/// Whether gradients are computed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Inference,
    Training,
}

/// The shape of a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecurrentLayer {
    pub(crate) cell: Cell,
    pub(crate) has_bias: bool,
    pub(crate) is_bidirectional: bool,
    /// The bytes of an element.
    pub(crate) element: u64,
    pub(crate) input: u64,
    pub(crate) hidden: u64,
    pub(crate) has_dropout: bool,
    /// The size of the state after a projection: `hidden` without one.
    pub(crate) projected: u64,
    pub(crate) layers: u64,
}

/// A batch of sequences: the longest length, and the number of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sequences {
    pub(crate) length: u64,
    pub(crate) batch: u64,
}

/// A matrix or a bias in the buffer of all weights, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weights {
    pub(crate) offset: u64,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
}

impl RecurrentLayer {
    fn directions(&self) -> u64 {
        1 + u64::from(self.is_bidirectional)
    }

    fn has_projection(&self) -> bool {
        self.projected != self.hidden
    }

    /// Returns the columns of the matrices for the input of a pseudo-layer: a direction of a layer.
    fn columns(&self, pseudo_layer: u64) -> u64 {
        if pseudo_layer < self.directions() { self.input } else { self.projected * self.directions() }
    }

    /// Returns the elements of all matrices of a pseudo-layer.
    fn matrices(&self, pseudo_layer: u64) -> u64 {
        let projection = if self.has_projection() { self.projected * self.hidden } else { 0 };
        self.cell.gates() * self.hidden * (self.columns(pseudo_layer) + self.projected) + projection
    }

    /// Returns the matrix of a pseudo-layer with this number: those of the gates for the input, those for the
    /// state, the projection.
    pub(crate) fn matrix(&self, pseudo_layer: u64, number: u64) -> Option<Weights> {
        let (gates, columns) = (self.cell.gates(), self.columns(pseudo_layer));
        let start: u64 = (0..pseudo_layer).map(|before| self.matrices(before)).sum();
        let state = start + gates * self.hidden * columns;
        let end = state + gates * self.hidden * self.projected;
        let (hidden, projected) = (self.hidden, self.projected);
        if number < gates {
            Some(Weights { offset: start + number * hidden * columns, rows: hidden, columns })
        } else if number < 2 * gates {
            let offset = state + (number - gates) * hidden * projected;
            Some(Weights { offset, rows: hidden, columns: projected })
        } else {
            let is_projection = number == 2 * gates && self.has_projection();
            is_projection.then_some(Weights { offset: end, rows: projected, columns: hidden })
        }
    }

    /// Returns the bias of the same number. Biases are behind all matrices.
    pub(crate) fn bias(&self, pseudo_layer: u64, number: u64) -> Option<Weights> {
        let each = 2 * self.cell.gates();
        let offset = self.all_matrices() + (pseudo_layer * each + number) * self.hidden;
        (self.has_bias && number < each).then_some(Weights { offset, rows: self.hidden, columns: 1 })
    }

    fn pseudo_layers(&self) -> u64 {
        self.layers * self.directions()
    }

    fn all_matrices(&self) -> u64 {
        (0..self.pseudo_layers()).map(|layer| self.matrices(layer)).sum()
    }

    /// Returns the bytes of all weights.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let biases =
            if self.has_bias { 2 * self.cell.gates() * self.hidden * self.pseudo_layers() } else { 0 };
        (self.all_matrices() + biases) * self.element
    }

    /// Returns the elements of the output of a layer.
    fn output(&self, sequences: Sequences) -> u64 {
        sequences.length * sequences.batch * self.projected * self.directions()
    }

    /// Returns the bytes that are kept for the backward pass: gates and states, the outputs between layers,
    /// and their dropout, a bit each for each direction that reads them.
    ///
    /// Exact for 374 layers that were measured (cuDNN 9.19 on an H100).
    pub(crate) fn reserve(&self, sequences: Sequences, mode: Mode) -> u64 {
        if mode == Mode::Inference {
            return 0;
        }
        let (between, output) = (self.layers.saturating_sub(1), self.output(sequences));
        let dropout = if self.has_dropout { output.div_ceil(8).next_multiple_of(32) } else { 0 };
        (self.cell.reserved() * self.layers + between) * output * self.element
            + between * self.directions() * dropout
            + RESERVE_END
    }

    /// Returns the bytes for temporary use.
    ///
    /// An estimate: off by 3 % on average for the same 374 layers, by at most 9 % for nine in ten of them,
    /// and by -43 % to +28 % for all.
    pub(crate) fn workspace(&self, sequences: Sequences, mode: Mode) -> u64 {
        let copies = if mode == Mode::Training { 3 } else { 1 };
        let input = copies * sequences.length * sequences.batch * self.input * self.directions();
        let values = self.all_matrices() + self.cell.temporary() * self.output(sequences) + input;
        WORKSPACE_OF_PSEUDO_LAYER * self.pseudo_layers() + values * self.element
    }
}

/// The descriptors, by their handles.
#[derive(Debug, Default)]
pub(crate) struct RecurrentLayers {
    pub(crate) layers: HashMap<usize, RecurrentLayer>,
    /// Descriptors of dropout that drops something.
    pub(crate) dropouts: HashSet<usize>,
    pub(crate) sequences: HashMap<usize, Sequences>,
    /// Descriptors of weights: the data type, and three sizes.
    pub(crate) weights: HashMap<usize, (i32, [i32; 3])>,
}

impl RecurrentLayers {
    pub(crate) fn set_dropout(&mut self, handle: usize, probability: f32) {
        if probability > 0.0 {
            self.dropouts.insert(handle);
        } else {
            self.dropouts.remove(&handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GRU and an LSTM that were measured on an H100.
    const GRU: RecurrentLayer = RecurrentLayer {
        cell: Cell::Gru,
        has_bias: true,
        is_bidirectional: true,
        has_dropout: false,
        element: 2,
        input: 200,
        hidden: 64,
        projected: 64,
        layers: 3,
    };
    const LSTM: RecurrentLayer = RecurrentLayer {
        cell: Cell::Lstm,
        is_bidirectional: false,
        input: 64,
        hidden: 256,
        projected: 256,
        layers: 1,
        ..GRU
    };

    #[test]
    fn weights_and_reserves_are_those_of_cudnn() {
        assert_eq!((GRU.weight_bytes(), LSTM.weight_bytes()), (502_272, 659_456));
        let sequences = Sequences { length: 1, batch: 64 };
        assert_eq!(GRU.reserve(sequences, Mode::Training), 327_936);
        assert_eq!(LSTM.reserve(Sequences { length: 35, batch: 1 }, Mode::Training), 89_856);
        assert_eq!(GRU.reserve(sequences, Mode::Inference), 0);
        let dropped = RecurrentLayer { layers: 2, is_bidirectional: false, has_dropout: true, ..GRU };
        assert_eq!(dropped.reserve(Sequences { length: 10, batch: 7 }, Mode::Training), 117_312);
    }

    #[test]
    fn workspaces_are_near_those_of_cudnn() {
        for (layer, length, batch, measured) in [(GRU, 1, 64, 51_393_280), (LSTM, 35, 1, 9_143_456_u64)] {
            let estimate = layer.workspace(Sequences { length, batch }, Mode::Training);
            assert!(estimate.abs_diff(measured) < measured / 20, "{estimate} {measured}");
        }
    }

    #[test]
    fn matrices_and_biases_fill_the_buffer_of_weights() {
        let mut parts: Vec<Weights> = (0..6)
            .flat_map(|pseudo_layer| (0..6).map(move |number| (pseudo_layer, number)))
            .flat_map(|(layer, number)| [GRU.matrix(layer, number), GRU.bias(layer, number)])
            .map(Option::unwrap)
            .collect();
        parts.sort_by_key(|part| part.offset);
        let mut end = 0;
        for part in parts {
            assert_eq!(part.offset, end);
            end += part.rows * part.columns;
        }
        assert_eq!(end * GRU.element, GRU.weight_bytes());
        assert_eq!(GRU.matrix(0, 6), None);
    }
}
