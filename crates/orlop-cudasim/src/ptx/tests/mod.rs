//! The instructions, by small programs that store into memory of the test.

use super::instruction::Scope;
use super::run::{Fault, GlobalMemory};
use super::{EntryPoint, Program, Shape, entry_points};
use crate::codes::Outcome;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Words at addresses.
#[derive(Debug, Default)]
struct Words(BTreeMap<u64, u64>);

impl GlobalMemory for Words {
    fn load(&mut self, address: u64, _: usize) -> Outcome<Option<u64>> {
        Ok(Some(self.0.get(&address).copied().unwrap_or(0)))
    }

    fn store(&mut self, address: u64, _: usize, value: u64) -> Outcome {
        self.0.insert(address, value);
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        _: usize,
        _: Scope,
        change: &dyn Fn(u64) -> u64,
    ) -> Outcome<Option<u64>> {
        let word = self.0.entry(address).or_default();
        let old = *word;
        *word = change(old);
        Ok(Some(old))
    }
}

mod arithmetic;
mod functions;
mod races;
mod refusals;
mod warps;

const ONE: Shape = Shape { grid: [1; 3], block: [1; 3] };

/// Reads an entry point with these functions before it.
fn module(functions: &str, body: &str) -> Result<Arc<Program>, String> {
    let registers = ".reg .pred %p, %q; .reg .b16 %h; .reg .b32 %a, %b, %c; .reg .f32 %f, %g; \
                     .reg .b64 %x, %y, %to; .reg .f64 %d;";
    let text = format!(
        ".version 8.0 .target sm_80 .address_size 64 {functions} \
         .entry main(.param .u32 number, .param .align 8 .b8 list[16]) {{ {registers} {body} }}"
    );
    let entry = entry_points(&text)?.pop().map(|EntryPoint { program, .. }| program);
    entry.unwrap_or(Err(Arc::from("no entry"))).map_err(|refusal| (*refusal).to_owned())
}

fn program(body: &str) -> Result<Arc<Program>, String> {
    module("", body)
}

fn failure(result: Result<(), Fault>) -> Outcome {
    result.map_err(|fault| fault.failure)
}

fn arguments() -> Vec<Vec<u8>> {
    vec![7_u32.to_le_bytes().to_vec(), [0x10_u64.to_le_bytes(), 0xfedc_u64.to_le_bytes()].concat()]
}

/// Runs code that computes `%x`, and returns it.
fn value(code: &str) -> u64 {
    let body = format!("mov.u64 %to, 64; {code} st.global.u64 [%to], %x; ret;");
    let mut words = Words::default();
    let parsed = program(&body).unwrap_or_else(|error| panic!("{error}"));
    parsed.execute(ONE, 0, &arguments(), &mut words).unwrap_or_else(|failure| panic!("{code}: {failure:?}"));
    words.0[&64]
}
