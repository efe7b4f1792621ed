//! Many rows in one buffer.

/// Rows, each a key and a body, without an allocation of their own.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    rows: Vec<Span>,
}

/// Where a row lies: its key from `start` to `body`, its body up to `end`.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    body: usize,
    end: usize,
}

/// A source stops filling a block at this many bytes.
const FULL: usize = 64 << 10;

impl Block {
    /// Adds a row.
    pub(crate) fn push(&mut self, key: &[u8], body: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(body);
        self.rows.push(Span { start, body: start + key.len(), end: self.bytes.len() });
    }

    /// Whether a source should hand it over now.
    pub(crate) fn is_full(&self) -> bool {
        self.size() >= FULL
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of memory in use.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<Span>()
    }

    pub(super) fn key(&self, i: usize) -> &[u8] {
        let Span { start, body, .. } = self.rows[i];
        &self.bytes[start..body]
    }

    pub(super) fn body(&self, i: usize) -> &[u8] {
        let Span { body, end, .. } = self.rows[i];
        &self.bytes[body..end]
    }

    /// Adds all rows of another block.
    pub(super) fn append(&mut self, other: &Self) {
        for i in 0..other.len() {
            self.push(other.key(i), other.body(i));
        }
    }

    /// Sorts by key; rows of equal key stay in sequence.
    pub(super) fn sort(&mut self) {
        let Self { bytes, rows } = self;
        rows.sort_by(|a, b| bytes[a.start..a.body].cmp(&bytes[b.start..b.body]));
    }
}
