//! Links the program statically, so that it can be put into any image. Why in this way is explained in
//! `docs/design/static.md`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared libraries that rustc names to the linker for a program of the gnu target.
const SHARED: [&str; 7] = ["c", "dl", "gcc_s", "m", "pthread", "rt", "util"];

/// What they are made of, as archives.
const ARCHIVES: [&str; 4] = ["libc.a", "libm.a", "libgcc_eh.a", "libgcc.a"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(linked_statically)");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("FEATURE").split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-cfg=linked_statically");
    } else if target("OS") == "linux" && target("ENV") == "gnu" {
        link_statically()?;
    }
    Ok(())
}

/// Puts archives in the place of the shared libraries, by linker scripts of their names.
#[expect(clippy::disallowed_methods, reason = "the folder of a build script needs no better errors")]
fn link_statically() -> io::Result<()> {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| OsString::from("cc"));
    let mut script = String::from("GROUP(");
    for archive in ARCHIVES {
        let Some(path) = find(&linker, archive)? else {
            println!("cargo::warning=linked dynamically, as there is no {archive} (Fedora: glibc-static)");
            return Ok(());
        };
        script.extend([" \"", &path, "\""]);
    }
    script.push_str(" )\n");
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    for name in SHARED {
        fs::write(folder.join(format!("lib{name}.so")), &script)?;
    }
    println!("cargo::rustc-link-arg-bins=-L{}", folder.display());
    println!("cargo::rustc-link-arg-bins=-static-pie");
    println!("cargo::rustc-cfg=linked_statically");
    Ok(())
}

/// Where the linker finds a library; a name that it does not know comes back as it is.
fn find(linker: &OsString, library: &str) -> io::Result<Option<String>> {
    let output = Command::new(linker).arg(format!("-print-file-name={library}")).output()?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(Path::new(&path).is_absolute().then_some(path))
}
