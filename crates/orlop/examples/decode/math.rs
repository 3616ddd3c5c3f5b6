//! The arithmetic, on slices. Each row is computed in one order, whatever other rows are computed with it: so
//! results can be compared bit for bit.

use super::model::{ENTRY, HEAD_WIDTH, HEADS, WIDTH};

/// `output += input × weightsᵀ`, for rows of `columns` elements of the input.
pub(crate) fn add_product(input: &[f32], weights: &[f32], columns: usize, output: &mut [f32]) {
    let rows = weights.len() / columns;
    for (input, output) in input.chunks(columns).zip(output.chunks_mut(rows)) {
        for (weights, output) in weights.chunks(columns).zip(output) {
            *output += dot(input, weights);
        }
    }
}

/// Scales each row to a mean square of 1.
pub(crate) fn normalize(input: &[f32], output: &mut [f32]) {
    for (input, output) in input.chunks(WIDTH).zip(output.chunks_mut(WIDTH)) {
        let scale = (dot(input, input) / WIDTH as f32 + 1e-6).sqrt().recip();
        output.iter_mut().zip(input).for_each(|(output, input)| *output = scale * input);
    }
}

/// Attends from a query to all entries, each of which has a key and a value.
pub(crate) fn attend(query: &[f32], entries: &[f32], output: &mut [f32]) {
    for head in 0..HEADS {
        let part = head * HEAD_WIDTH..(head + 1) * HEAD_WIDTH;
        let (query, output) = (&query[part.clone()], &mut output[part.clone()]);
        let weight = |entry: &[f32]| (dot(query, &entry[part.clone()]) / (HEAD_WIDTH as f32).sqrt()).exp();
        let sum: f32 = entries.chunks(ENTRY).map(weight).sum();
        output.fill(0.0);
        for entry in entries.chunks(ENTRY) {
            let share = weight(entry) / sum;
            let value = &entry[WIDTH..][part.clone()];
            output.iter_mut().zip(value).for_each(|(output, value)| *output += share * value);
        }
    }
}

/// Adds a key and a value to the state of a linear attention, and reads it with the query: the row has all
/// three.
pub(crate) fn scan(state: &mut [f32], row: &[f32], output: &mut [f32]) {
    let (query, rest) = row.split_at(WIDTH);
    let (key, value) = rest.split_at(WIDTH);
    output.fill(0.0);
    for (index, state) in state.chunks_mut(HEAD_WIDTH).enumerate() {
        // The rows of a state are those of its heads, one after the other.
        let head = index / HEAD_WIDTH * HEAD_WIDTH..(index / HEAD_WIDTH + 1) * HEAD_WIDTH;
        let (value, output) = (&value[head.clone()], &mut output[head]);
        for ((state, value), output) in state.iter_mut().zip(value).zip(output) {
            *state = 0.9 * *state + key[index] * value;
            *output += query[index] * *state;
        }
    }
}

/// Returns the index of the element with this rank: 0 for the largest.
pub(crate) fn ranked(elements: &[f32], rank: usize) -> u32 {
    let mut best = None;
    for _ in 0..=rank {
        let rest = (0..elements.len()).filter(|at| best.is_none_or(|best| precedes(elements, best, *at)));
        best = rest.reduce(|a, b| if precedes(elements, a, b) { a } else { b });
    }
    best.and_then(|index| u32::try_from(index).ok()).unwrap_or_default()
}

fn precedes(elements: &[f32], a: usize, b: usize) -> bool {
    elements[a].total_cmp(&elements[b]).then(b.cmp(&a)).is_gt()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
