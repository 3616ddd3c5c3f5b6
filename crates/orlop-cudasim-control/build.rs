//! Tells the crate where cargo put the libraries of this build: documentation tests run from elsewhere.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    // `<target>/<profile>/build/<package>/out`.
    let profile = std::path::Path::new(&out).ancestors().nth(3).unwrap_or(std::path::Path::new(""));
    println!("cargo::rustc-env=ORLOP_CUDASIM_PROFILE={}", profile.display());
}
