//! Builds the BPF programs if the feature `bpf` is on: clang alone, no headers, no libraries.

fn main() {
    println!("cargo:rustc-check-cfg=cfg(bpf)");
    // The programs contain the system call numbers and registers of one machine.
    let x86_64 = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    if std::env::var_os("CARGO_FEATURE_BPF").is_some() && x86_64 {
        println!("cargo:rustc-cfg=bpf");
        for name in ["locks", "files", "stretches", "sockets", "answers"] {
            compile(name);
        }
    }
    println!("cargo:rerun-if-changed=src/bpf/common.h");
    println!("cargo:rerun-if-changed=src/bpf/clients.h");
    println!("cargo:rerun-if-changed=build.rs");
}

fn compile(name: &str) {
    let source = format!("src/bpf/{name}.bpf.c");
    println!("cargo:rerun-if-changed={source}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let directory = std::env::var_os("OUT_DIR").expect("cargo says where to build");
    let object = std::path::Path::new(&directory).join(format!("{name}.bpf.o"));
    // Its BTF has the names of the sources: without this, those of this machine.
    let ours = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    let names = format!("-ffile-prefix-map={ours}=record");
    // -g emits the BTF that locates the kernel's fields; v3 has the atomics.
    let status = std::process::Command::new(&clang)
        .args(["-g", "-O2", "-Wall", "-Wextra", "-target", "bpf", "-mcpu=v3", &names])
        .args(["-c", &source, "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{} failed on {source}: {status}", clang.display()),
        Err(error) => panic!(
            "{}: {error}; `./setup.sh build` installs what the build needs, and docs/record.md \
             says how to build without the samplers of locks and files",
            clang.display()
        ),
    }
}
