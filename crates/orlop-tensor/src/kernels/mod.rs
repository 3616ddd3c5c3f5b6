//! What the processor does with elements: copy, cast and fill over any strides.
