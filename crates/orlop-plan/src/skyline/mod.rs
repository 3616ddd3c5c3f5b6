//! The skyline heuristic: low valleys first.
//!
//! A buffer is a box: its width is its lifetime, its height its size. Boxes are placed one after the other;
//! the skyline is their height at each time. The lowest valley of the skyline is filled with the best buffer
//! whose lifetime lies inside it. If there is none, the valley cannot be used at this level and is raised to
//! its lower neighbour. So buffers are never compared with each other: there is no conflict graph, which is
//! most of the cost of other planners for large problems. Each step is a query of a tree. (Burke, Kendall and
//! Whitwell, 2004, pack stock sheets by the same principle.)
//!
//! Reversing time would add nothing: two valleys do not share buffers, so their order in time does not
//! matter.

mod contour;
mod decode;
mod unplaced;

pub(crate) use self::decode::{Candidates, Decoder};
