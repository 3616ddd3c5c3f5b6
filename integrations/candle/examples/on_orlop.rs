//! The program with orlop's caching engine as the global allocator, measured: `cargo xtask integrations
//! candle`.

#[global_allocator]
static GLOBAL: orlop_candle::GlobalAllocator = orlop_candle::GlobalAllocator;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    orlop_candle::measure("orlop")
}
