//! The program with the system's allocator as the global allocator, measured: `cargo xtask integrations
//! candle`.

#[global_allocator]
static GLOBAL: std::alloc::System = std::alloc::System;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    orlop_candle::measure("glibc")
}
