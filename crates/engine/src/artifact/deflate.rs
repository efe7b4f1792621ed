//! Raw deflate, or zstd, on several threads, with one stream as the result.
//!
//! The input is cut into blocks. Each is compressed on its own, with the 32 KiB before it as a preset
//! dictionary (the decompressor has just written them, so the ratio hardly suffers), and ends in a full
//! flush at a byte boundary; noise is stored as it is. The first block of a part has no dictionary: nothing reaches back over the
//! seam between parts. Memory is bounded by the blocks under way, about two per thread. With zstd each block, which is
//! larger, becomes a frame of its own.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use flate2::{Compress, CompressError, Compression, FlushCompress};

use super::codec::{Codec, zstd_frames};
use super::noise;

/// As far back as a deflate distance reaches.
pub(super) const WINDOW: usize = 32 * 1024;
/// Input bytes of a block: large enough that a flush (5 bytes) and a cold start do not matter.
const BLOCK_INPUT: usize = 256 * 1024;
/// The same with zstd, where a block knows nothing of the one before.
const FRAME_INPUT: usize = 2 * 1024 * 1024;

/// How hard, and on how many threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) codec: Codec,
    /// 0 to 9; what is above counts as 9.
    pub(super) level: u32,
    /// At least one, whatever is said.
    pub(super) threads: usize,
}

/// What went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deflated {
    pub(super) input_bytes: u64,
    pub(super) output_bytes: u64,
    /// CRC-32 of the input, as gzip has it.
    pub(super) crc32: u32,
}

/// Why compressed bytes could not be written.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum DeflateError {
    Write(#[from] io::Error),
    Deflate(#[from] CompressError),
    Zstd(io::Error),
}

/// The other threads have given up; [`deflate`] returns the reason.
#[derive(Debug)]
pub(super) struct Closed;

/// Compresses what `fill` puts in and writes it to `output`. `fill` runs on the calling thread.
/// `progress` is told the input bytes of each block as it is handed on.
pub(super) fn deflate<T>(
    effort: Effort,
    output: &mut (dyn Write + Send),
    progress: &dyn Fn(u64),
    fill: impl FnOnce(&mut Input<'_>) -> T,
) -> Result<(T, Deflated), DeflateError> {
    let threads = effort.threads.max(1);
    let (jobs, waiting) = channel();
    let (order, results) = sync_channel(2 * threads);
    let (returned, spare) = channel();
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        for _ in 0..threads {
            let returned = returned.clone();
            let waiting = &waiting;
            scope.spawn(move || compress_blocks(effort, waiting, &returned));
        }
        let writer = scope.spawn(move || write_in_order(&results, output));
        let (window, most) = match effort.codec {
            Codec::Gzip => (WINDOW, BLOCK_INPUT),
            Codec::Zstd => (0, FRAME_INPUT),
        };
        let mut input = Input { jobs, order, spare, progress, window, most, block: Vec::new(), new_from: 0 };
        input.start_block(&[]);
        let filled = fill(&mut input);
        // When this fails, the writer has the reason.
        let _ = input.hand_on();
        drop(input);
        let deflated = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((filled, deflated))
    })
}

type Compressed = Result<(Vec<u8>, crc32fast::Hasher), DeflateError>;

struct Job {
    /// The dictionary and then the input.
    block: Vec<u8>,
    new_from: usize,
    answer: SyncSender<Compressed>,
}

/// Where the stream to be compressed is put in.
pub(super) struct Input<'a> {
    jobs: Sender<Job>,
    /// One receiver per block, in the order of the blocks; its bound is what bounds the memory.
    order: SyncSender<Receiver<Compressed>>,
    /// Blocks that the compressing threads are done with.
    spare: Receiver<Vec<u8>>,
    progress: &'a dyn Fn(u64),
    /// So much of a block is the dictionary of the next.
    window: usize,
    /// Input bytes of a block.
    most: usize,
    /// The dictionary, the input so far.
    block: Vec<u8>,
    new_from: usize,
}

impl Input<'_> {
    /// Appends `bytes`.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Closed> {
        while !bytes.is_empty() {
            let taken = self.room()?.min(bytes.len());
            self.block.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Appends `count` zeros.
    pub(super) fn write_zeros(&mut self, mut count: u64) -> Result<(), Closed> {
        while count > 0 {
            let taken = self.room()?.min(usize::try_from(count).unwrap_or(usize::MAX));
            self.block.resize(self.block.len() + taken, 0);
            count -= taken as u64;
        }
        Ok(())
    }

    /// Appends what one call of `read` gives, at most `limit` bytes, without a copy; gives the bytes read.
    pub(super) fn write_from(
        &mut self,
        limit: u64,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Result<io::Result<&[u8]>, Closed> {
        let room = self.room()?.min(usize::try_from(limit).unwrap_or(usize::MAX));
        let start = self.block.len();
        self.block.resize(start + room, 0);
        let count = read(&mut self.block[start..]);
        self.block.truncate(start + *count.as_ref().unwrap_or(&0));
        Ok(count.map(|_| &self.block[start..]))
    }

    /// How many bytes the block still takes; always some.
    fn room(&mut self) -> Result<usize, Closed> {
        if self.block.len() == self.new_from + self.most {
            self.hand_on()?;
        }
        Ok(self.new_from + self.most - self.block.len())
    }

    fn hand_on(&mut self) -> Result<(), Closed> {
        let new_from = self.new_from;
        let count = self.block.len() - new_from;
        if count == 0 {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        self.start_block(&block[block.len().saturating_sub(self.window)..]);
        let (answer, result) = sync_channel(1);
        self.order.send(result).map_err(|_| Closed)?;
        self.jobs.send(Job { block, new_from, answer }).map_err(|_| Closed)?;
        (self.progress)(count as u64);
        Ok(())
    }

    fn start_block(&mut self, dictionary: &[u8]) {
        let mut block = self.spare.try_recv().unwrap_or_else(|_| Vec::with_capacity(self.window + self.most));
        block.clear();
        block.extend_from_slice(dictionary);
        self.new_from = block.len();
        self.block = block;
    }
}

fn compress_blocks(effort: Effort, waiting: &Mutex<Receiver<Job>>, returned: &Sender<Vec<u8>>) {
    let mut compressor = Compressor::new(effort);
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { block, new_from, answer }) = next else { return };
        let result = compressor.block(&block, new_from);
        // Nobody waits when another thread has failed.
        let _ = answer.send(result);
        let _ = returned.send(block);
    }
}

/// What one thread compresses with.
enum Compressor {
    Deflate(Compress),
    /// It need not come to be.
    Zstd(io::Result<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    fn new(Effort { codec, level, .. }: Effort) -> Self {
        match codec {
            Codec::Gzip => Self::Deflate(Compress::new(compression(level), false)),
            Codec::Zstd => Self::Zstd(zstd_frames(level)),
        }
    }

    /// Compresses `block` from `from` on; what is before is the dictionary.
    fn block(&mut self, block: &[u8], from: usize) -> Compressed {
        match self {
            Self::Deflate(compress) => compress_block(compress, block, from),
            Self::Zstd(Ok(compressor)) => {
                let mut crc = crc32fast::Hasher::new();
                crc.update(&block[from..]);
                Ok((compressor.compress(&block[from..]).map_err(DeflateError::Zstd)?, crc))
            }
            Self::Zstd(Err(error)) => {
                Err(DeflateError::Zstd(io::Error::new(error.kind(), error.to_string())))
            }
        }
    }
}

/// Level 1 of zlib-rs knows only the fixed code: text comes out a fourth larger than from zlib's level 1,
/// floats larger than they were. Level 2 is faster than zlib's level 1 and better than both.
fn compression(level: u32) -> Compression {
    Compression::new(if level == 1 { 2 } else { level.min(9) })
}

/// Compresses `block` from `from` on; what is before is the dictionary.
fn compress_block(compress: &mut Compress, block: &[u8], from: usize) -> Compressed {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&block[from..]);
    let mut output = Vec::with_capacity((block.len() - from) / 2);
    let mut start = from;
    for run in noise::runs(block, from) {
        let input = &block[start..run.end];
        if run.noise {
            store(input, &mut output);
        } else {
            compress_run(compress, &block[start.saturating_sub(WINDOW)..start], input, &mut output)?;
        }
        start = run.end;
    }
    Ok((output, crc))
}

/// Appends `input` in stored blocks (RFC 1951, 3.2.4), which begin and end at byte boundaries.
fn store(input: &[u8], output: &mut Vec<u8>) {
    for stored in input.chunks(usize::from(u16::MAX)) {
        // Never more than the chunks' size.
        let length = u16::try_from(stored.len()).unwrap_or(u16::MAX);
        output.push(0);
        output.extend_from_slice(&length.to_le_bytes());
        output.extend_from_slice(&(!length).to_le_bytes());
        output.extend_from_slice(stored);
    }
}

/// Appends `input` compressed, up to a byte boundary.
fn compress_run(
    compress: &mut Compress,
    dictionary: &[u8],
    input: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), CompressError> {
    compress.reset();
    if !dictionary.is_empty() {
        compress.set_dictionary(dictionary)?;
    }
    let mut rest = input;
    // Full output means that something is left, if only the flush.
    while !rest.is_empty() || output.len() == output.capacity() {
        output.reserve(rest.len() / 2 + 64);
        let before = compress.total_in();
        compress.compress_vec(rest, output, FlushCompress::Full)?;
        let taken = compress.total_in() - before;
        rest = rest.get(usize::try_from(taken).unwrap_or(usize::MAX)..).unwrap_or_default();
    }
    Ok(())
}

fn write_in_order(
    results: &Receiver<Receiver<Compressed>>,
    output: &mut (dyn Write + Send),
) -> Result<Deflated, DeflateError> {
    let mut crc = crc32fast::Hasher::new();
    let mut output_bytes = 0;
    let mut input_bytes = 0;
    for result in results {
        // A compressing thread that ends without an answer has panicked, which the scope passes on.
        let Ok(result) = result.recv() else { break };
        let (bytes, block_crc) = result?;
        output.write_all(&bytes)?;
        output_bytes += bytes.len() as u64;
        input_bytes += block_crc.total_len();
        crc.combine(&block_crc);
    }
    output.flush()?;
    Ok(Deflated { input_bytes, output_bytes, crc32: crc.finalize() })
}

/// The bytes that close a stream made of parts: `tail`, compressed as the last block.
pub(super) fn closing_block(tail: &[u8]) -> Result<Vec<u8>, CompressError> {
    let mut output = Vec::with_capacity(tail.len() + 64);
    Compress::new(Compression::default(), false).compress_vec(tail, &mut output, FlushCompress::Finish)?;
    Ok(output)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    /// A stretch of input: one byte again and again, a short text, or noise.
    fn stretch() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![0..2000_usize, 30_000..70_000_usize, 250_000..270_000_usize];
        (0..3_u8, any::<u64>(), length).prop_map(|(kind, seed, length)| match kind {
            0 => vec![b'z'; length],
            1 => b"once upon a time ".iter().copied().cycle().take(length).collect(),
            _ => (0..length as u64)
                .map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1])
                .collect(),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_stream_inflates_to_itself_also_behind_another(
            stretches in proptest::collection::vec(stretch(), 0..8),
            level in 0..11_u32,
            threads in 0..4_usize,
        ) {
            let input = stretches.concat();
            let mut part = Vec::new();
            let (closed, deflated) = deflate(Effort { codec: Codec::Gzip, level, threads }, &mut part, &|_| {}, |sink| {
                stretches.iter().try_for_each(|stretch| sink.write(stretch))
            })?;
            prop_assert!(closed.is_ok());
            let expected =
                Deflated { input_bytes: input.len() as u64, output_bytes: part.len() as u64, crc32: crc32fast::hash(&input) };
            prop_assert_eq!(deflated, expected);
            // Twice the same part: the second may not reach back into the first.
            let joined = [part.as_slice(), &part, &closing_block(b"end")?].concat();
            let mut inflated = Vec::new();
            flate2::read::DeflateDecoder::new(joined.as_slice()).read_to_end(&mut inflated)?;
            prop_assert!(inflated == [input.as_slice(), &input, b"end"].concat());
        }
    }

    #[test]
    fn noise_costs_next_to_nothing() {
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..1_000_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect();
        let mut part = Vec::new();
        deflate(Effort { codec: Codec::Gzip, level: 6, threads: 1 }, &mut part, &|_| {}, |sink| {
            sink.write(&noise)
        })
        .unwrap()
        .0
        .unwrap();
        assert!(part.len() < noise.len() + 1000, "{} bytes", part.len());
    }
}
