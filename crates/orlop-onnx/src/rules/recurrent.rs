//! Recurrent layers.

use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, Tensor};

pub(super) const OPERATORS: &[Operator] =
    &[own("RNN", recurrent), own("GRU", recurrent), own("LSTM", recurrent)];

/// All states, the last state, and LSTM's last cell.
pub(super) fn recurrent(call: &Call<'_>) -> Outcome {
    let &[first, second, _] = call.shape(0)? else {
        return Err(Fault::Invalid("its input has not three dimensions"));
    };
    let directions = call.size(1, 0)?;
    let hidden = match call.int("hidden_size") {
        Some(size) => Range::exactly(size),
        None => call.size(2, 2)?,
    };
    let data_type = call.data_type(0);
    // The layout: [length, batch, …], or batch first.
    let (all, last) = match call.int_or("layout", 0) {
        0 => ([first, directions, second, hidden], [directions, second, hidden]),
        _ => ([first, second, directions, hidden], [first, directions, hidden]),
    };
    for initial in [5, 6].iter().filter_map(|&index| call.shape(index).ok()) {
        let fits = |(size, state): (&Range, &Range)| size.intersection(*state).is_some();
        if initial.len() != last.len() || !initial.iter().zip(&last).all(fits) {
            return Err(Fault::Invalid("its initial state has other sizes"));
        }
    }
    let last = Tensor::new(data_type, last.to_vec());
    Ok(vec![Tensor::new(data_type, all.to_vec()).into(), last.clone().into(), last.into()])
}
