//! The program with jemalloc as the global allocator, measured: `cargo xtask integrations candle`.

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    orlop_candle::measure("jemalloc")
}
