//! Tests of the whole engine.

mod golden;
mod programs;
mod promises;
mod rounds;
