//! Tests of the whole engine.

mod golden;
mod learning;
mod programs;
mod promises;
mod rounds;
