//! The program with mimalloc as the global allocator, measured: `cargo xtask integrations candle`.

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    orlop_candle::measure("mimalloc")
}
