//! The only place with `unsafe` code: what the machine offers and the language can not check.
#![expect(unsafe_code, reason = "memory maps and vector instructions; each use gives its reason")]

pub(crate) mod bytes;
mod exact;
mod float;
mod lanes;
mod look;
mod pack;
mod scores;
mod sift;
mod tile;
mod vectors;
mod words;

pub(crate) use exact::prefetch;
pub(crate) use float::FloatKernel;
pub(crate) use lanes::Limits;
pub(crate) use pack::lost_by_rounding;
pub(crate) use scores::{BINS, COUNTED_TOGETHER, PAIR_SHIFT, Pairs, bin};
pub(crate) use sift::{
    LONG as LONG_SIGNATURE, ShortRows, TOGETHER as SIGNATURES_TOGETHER, WIDTH as SIGNATURE,
};
pub(crate) use tile::{Kernel, Tile};
pub(crate) use vectors::Vectors;
pub(crate) use words::{FOUR, SHIFT, Sign};

use std::io;
use std::ops::Range;
use std::path::Path;

/// Maps a whole file into memory, to be read only.
///
/// # Errors
/// The file can not be opened or mapped; the error names the path.
pub(crate) fn map_file(path: &Path) -> io::Result<memmap2::Mmap> {
    let file = fs_err::File::open(path)?;
    // SAFETY: a channel's files are the instance's own and nobody writes to them while it runs (rule of the
    // contract); the bytes are only ever read as plain integers and floats, for which every value is valid.
    unsafe { memmap2::Mmap::map(file.file()) }
}

/// Lets go of the memory that a mapped file takes; what is needed again is read from the file again.
///
/// # Errors
/// What the system says.
pub(crate) fn let_go(map: &memmap2::Mmap) -> io::Result<()> {
    // SAFETY: the map is of a file and was never written to, so that nothing is lost.
    unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) }
}

/// The same for a part of it, its bytes from one to another one.
///
/// # Errors
/// What the system says.
pub(crate) fn let_go_part(map: &memmap2::Mmap, part: Range<usize>) -> io::Result<()> {
    // SAFETY: as for the whole map.
    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, part.start, part.len()) }
}

/// Asks for large pages for numbers that are all written and read soon: the system fills fewer of them, and looks at
/// places anywhere find them sooner.
pub(crate) fn prefer_large_pages(numbers: &mut [i16]) {
    #[cfg(target_os = "linux")]
    {
        /// Bytes that addresses of pages are a multiple of, or less, on every machine.
        const PAGE: usize = 64 << 10;
        let skipped = numbers.as_ptr().align_offset(PAGE).min(numbers.len());
        let bytes = size_of_val(&numbers[skipped..]) / PAGE * PAGE;
        // SAFETY: the pages lie within the numbers, and what they hold stays as it is.
        unsafe {
            libc::madvise(numbers[skipped..].as_mut_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = numbers;
}

/// Has the allocator return large buffers to the system as soon as they are free, in the whole process. It would learn
/// from each that is freed to keep what is as large for later, and what comparing took would add to what writing takes.
pub(crate) fn return_large_buffers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Bytes from which on a buffer is large: what the allocator begins with.
        const LARGE: libc::c_int = 128 << 10;
        // SAFETY: it sets a number within the allocator and may be called at any time.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        }
    }
}
