//! Gives the library the name under which the dynamic loader knows a CUDA driver: once it is loaded by
//! path, a request for `libcuda.so` finds it. Its file has another name, so that it never shadows a real
//! driver.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    }
}
