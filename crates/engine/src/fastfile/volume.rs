//! The file system of a channel, as the kernel asks for it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;

use super::Unread;
use super::ahead::Ahead;
use super::blocks::{BLOCK, Blocks, Wanted, of_bytes};
use super::tree::{Node, Tree};
use crate::explain::chain;
use crate::instance::objects::ObjectError;
use crate::plan::{ChannelPlan, ObjectPlan};

/// Nothing ever changes.
const ALWAYS: Duration = Duration::from_secs(24 * 60 * 60);
/// Blocks that are read ahead of one open file at most: 16 MiB.
const FURTHEST: u64 = 128;

/// A channel that is mounted.
pub(super) struct Volume {
    channel: String,
    tree: Tree,
    objects: Vec<Arc<ObjectPlan>>,
    /// The number of its first object among those of all channels.
    first: usize,
    blocks: Arc<Blocks>,
    open: Mutex<HashMap<u64, Ahead>>,
    handles: AtomicU64,
    /// Where the reading is done; the kernel's requests are only taken here.
    runtime: Handle,
    unread: UnboundedSender<Unread>,
    made: SystemTime,
}

/// What all channels of an instance share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) blocks: Arc<Blocks>,
    pub(super) runtime: Handle,
    /// Told of objects that can't be read.
    pub(super) unread: UnboundedSender<Unread>,
}

impl Volume {
    /// `first` is the number of its first object among those of all channels.
    ///
    /// # Errors
    /// The paths of the objects make no tree.
    pub(super) fn of(channel: &ChannelPlan, first: usize, shared: Shared) -> Result<Self, ObjectError> {
        let Shared { blocks, runtime, unread } = shared;
        Ok(Self {
            channel: channel.name.clone(),
            tree: Tree::of(&channel.objects)?,
            objects: channel.objects.iter().cloned().map(Arc::new).collect(),
            first,
            blocks,
            open: Mutex::default(),
            handles: AtomicU64::new(1),
            runtime,
            unread,
            made: SystemTime::now(),
        })
    }

    fn node(&self, ino: INodeNo) -> Option<(usize, &Node)> {
        let number = usize::try_from(ino.0.checked_sub(INodeNo::ROOT.0)?).ok()?;
        Some((number, self.tree.get(number)?))
    }

    /// Modes and owner are those that files have in File mode.
    fn attributes(&self, number: usize, node: &Node) -> FileAttr {
        let (kind, perm, size) = match node {
            Node::Folder { .. } => (FileType::Directory, 0o755, 0),
            Node::File(object) => (FileType::RegularFile, 0o644, self.objects[*object].size),
        };
        FileAttr {
            ino: ino(number),
            size,
            blocks: size.div_ceil(512),
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: u32::try_from(BLOCK).unwrap_or(u32::MAX),
            flags: 0,
        }
    }

    /// Which blocks to ask for beyond those that an open file is read at.
    fn beyond(&self, handle: FileHandle, read: &Range<u64>, size: u64) -> Range<u64> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // All that read at once have room for what is read ahead of them.
        let most = (self.blocks.limit() / BLOCK / 2 / (open.len() as u64).max(1)).min(FURTHEST);
        match open.get_mut(&handle.0) {
            Some(ahead) if !read.is_empty() => ahead.beyond(read, size.div_ceil(BLOCK), most),
            _ => 0..0,
        }
    }
}

fn ino(number: usize) -> INodeNo {
    INodeNo(number as u64 + INodeNo::ROOT.0)
}

impl Filesystem for Volume {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.node(parent).zip(name.to_str()).and_then(|((folder, _), name)| {
            let number = self.tree.find(folder, name)?;
            Some((number, self.tree.get(number)?))
        });
        match found {
            Some((number, node)) => reply.entry(&ALWAYS, &self.attributes(number, node), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Some((number, node)) => reply.attr(&ALWAYS, &self.attributes(number, node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, Ahead::default());
        // What the kernel holds of an object stays right: an object that changes is an error.
        reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some((_, Node::File(number))) = self.node(ino) else { return reply.error(Errno::EISDIR) };
        let object = Arc::clone(&self.objects[*number]);
        let range = offset.min(object.size)..offset.saturating_add(size.into()).min(object.size);
        let further = self.beyond(handle, &of_bytes(&range), object.size);
        let wanted = Wanted { number: self.first + number, object };
        let (blocks, unread, channel) = (Arc::clone(&self.blocks), self.unread.clone(), self.channel.clone());
        // A reply that is dropped is an error to who reads; so is one that is not even begun.
        self.runtime.spawn(async move {
            match blocks.read(&wanted, range, further).await {
                Ok(content) => reply.data(&content),
                Err(error) => {
                    let object = wanted.object.source.name();
                    // Nobody may be there any more to be told.
                    let _ = unread.send(Unread { channel, object, why: chain(&error) });
                    reply.error(Errno::EIO);
                }
            }
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some((number, Node::Folder { parent, entries })) = self.node(ino) else {
            return reply.error(Errno::ENOTDIR);
        };
        let links = [(".", number), ("..", *parent)];
        let all = links.into_iter().chain(entries.iter().map(|(name, number)| (name.as_str(), *number)));
        for (at, (name, number)) in (0_u64..).zip(all).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            let kind = match self.tree.get(number) {
                Some(Node::File(_)) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            if reply.add(self::ino(number), at + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let bytes: u64 = self.objects.iter().map(|object| object.size).fold(0, u64::saturating_add);
        let files = self.tree.len() as u64;
        reply.statfs(bytes.div_ceil(512), 0, 0, files, 0, 512, 255, 512);
    }
}
