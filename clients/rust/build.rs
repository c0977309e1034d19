//! Compiles the client in C beside this crate, and links it and libzmq.

use std::path::Path;

fn main() {
    let client = Path::new("../c");
    println!("cargo:rerun-if-changed={}", client.display());
    let sources: Vec<_> = std::fs::read_dir(client)
        .expect("the client in C is in ../c")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "c"))
        .collect();
    cc::Build::new().files(sources).include(client).flag("-std=c11").opt_level(3).compile("vedette_c");
    for library in ["zmq", "pthread", "m"] {
        println!("cargo:rustc-link-lib={library}");
    }
}
