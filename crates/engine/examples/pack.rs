//! Packs a folder as one instance would and joins the part into an archive; prints what it took, as JSON.
//!
//! `pack FOLDER ARCHIVE.tar.gz LEVEL THREADS`

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use trainyard_engine::artifact::{Codec, PackOptions, PartFile, combine, index_path, pack};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, archive, level, threads] = arguments.as_slice() else {
        return Err("usage: pack FOLDER ARCHIVE.tar.gz LEVEL THREADS".into());
    };
    let options = PackOptions {
        container_path: "/opt/ml/model".into(),
        codec: Codec::Gzip,
        level: level.parse()?,
        ignore: Vec::new(),
        threads: threads.parse()?,
    };
    let part = Path::new(archive).with_extension("part");
    let start = Instant::now();
    let packed = pack(Path::new(folder), "algo-1", &part, &options, &|_| {})?;
    let pack_seconds = start.elapsed().as_secs_f64();
    let (entries, tar_bytes) = (packed.entries, packed.tar_bytes);
    let parts = [PartFile { host: "algo-1".into(), path: part.clone(), packed }];
    let combined = combine(&parts, Path::new(archive))?;
    let measured = serde_json::json!({
        "pack_seconds": pack_seconds,
        "total_seconds": start.elapsed().as_secs_f64(),
        "entries": entries,
        "tar_bytes": tar_bytes,
        "archive_bytes": combined.bytes,
        "peak_memory_kib": peak_memory_kib()?,
        "warnings": combined.warnings,
    });
    fs_err::remove_file(index_path(&part))?;
    fs_err::remove_file(part)?;
    println!("{measured}");
    Ok(())
}

/// The largest resident set so far, in KiB, as the kernel counts it.
fn peak_memory_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs_err::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM line")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
