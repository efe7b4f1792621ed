//! Memory for many numbers.

use memmap2::{Advice, MmapMut};
use std::io;
use std::ops::{Deref, DerefMut};

/// Zeros that begin at a page and lie in large pages if the system has them: they are sooner there, and a disk that
/// reads them has fewer to look up.
pub(super) struct Room(MmapMut);

impl Room {
    /// Room for so many numbers, which takes no memory until it is written to.
    ///
    /// # Errors
    /// The system has no room for them.
    pub(super) fn new(numbers: usize) -> io::Result<Self> {
        let map = MmapMut::map_anon((size_of::<f32>() * numbers).max(1))?;
        // It is about time alone.
        let _ = map.advise(Advice::HugePage);
        Ok(Self(map))
    }
}

impl Deref for Room {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0[..self.0.len() / size_of::<f32>() * size_of::<f32>()])
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [f32] {
        let length = self.0.len() / size_of::<f32>() * size_of::<f32>();
        bytemuck::cast_slice_mut(&mut self.0[..length])
    }
}
