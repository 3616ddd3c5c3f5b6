//! Gives the library the name under which the stand-ins of `orlop-dryrun` need it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liborlop_dryrun_cuda.so");
    }
}
