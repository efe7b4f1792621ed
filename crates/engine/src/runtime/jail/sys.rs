//! The system calls for which there is no safe interface; the only `unsafe` of the engine.

#![expect(unsafe_code, reason = "fork, unshare, mount_setattr, kill and close_range have no safe interface")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which side of a fork this is.
pub(super) enum Fork {
    /// The new process.
    Child,
    /// The process that forked.
    Parent(Pid),
}

/// Splits a process that has a single thread.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: `instance_init` is called before any thread is started, so that no lock is held by a
    // thread that the child does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid).map_or(Fork::Child, Fork::Parent)),
    }
}

/// Leaves the namespaces that are named for new ones.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the file descriptor table is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Makes a mount and all below it read-only; other attributes stay as they are.
pub(super) fn make_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attributes =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is an empty C string and `attributes` lives during the call, which reads as
    // many bytes as its size says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to every process of this PID namespace but its first.
///
/// No process to send it to is no error.
pub(super) fn signal_all(signal: libc::c_int) {
    // SAFETY: sending a signal touches no memory of this process.
    unsafe { libc::kill(-1, signal) };
}

/// Closes what was inherited beyond standard input, output and error.
pub(super) fn close_inherited() {
    // SAFETY: called first, before this process has opened anything of its own.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}
