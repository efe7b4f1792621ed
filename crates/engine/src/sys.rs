//! The only unsafe code of the engine: system calls that no library offers as safe functions.

#![expect(
    unsafe_code,
    reason = "fork, execve, pre_exec, unshare, mount_setattr, kill, close_range and the C library's lookup have no safe interface, and tokio wants its callers to vouch for descriptors"
)]

#[cfg(target_env = "gnu")]
use std::ffi::CStr;
use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Gid, Uid};
use rustix::mount::MountAttrFlags;
use rustix::process::Pid;
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a file descriptor until it is readable.
pub(crate) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open for as long as it lives and always names the same descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The process that forked.
    Parent(Pid),
}

/// Splits a process that has a single thread.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: `instance_init` is called before any thread is started, so that no lock is held by a
    // thread that the child does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid).map_or(Fork::Child, Fork::Parent)),
    }
}

/// Leaves the namespaces that are named for new ones.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the file descriptor table is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Sets attributes of a mount and all below it; other attributes stay as they are.
pub(crate) fn set_mount_attributes(mount: BorrowedFd<'_>, set: MountAttrFlags) -> io::Result<()> {
    let attributes =
        libc::mount_attr { attr_set: set.bits().into(), attr_clr: 0, propagation: 0, userns_fd: 0 };
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

/// Lets a signal do again what it does by default: who was started by `nohup`, or in the background of a shell, ignores
/// some, and what they start would too.
pub(crate) fn restore_default(signal: libc::c_int) {
    // SAFETY: no handler is set, so no code of this process is called by it.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Sends a signal to every process of this PID namespace but its first.
///
/// No process to send it to is no error.
pub(crate) fn signal_all(signal: libc::c_int) {
    // SAFETY: sending a signal touches no memory of this process.
    unsafe { libc::kill(-1, signal) };
}

/// Makes a program run as another user, without what user id 0 may do.
pub(crate) fn run_as(command: &mut Command, uid: Uid, gid: Gid, groups: Vec<Gid>) {
    let change = move || -> io::Result<()> {
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    };
    // SAFETY: after the fork the closure does nothing but three system calls. They change one thread,
    // and the new process has no other.
    unsafe { command.pre_exec(change) };
}

/// A list of C strings as execve(2) wants it.
pub(crate) struct Strings {
    _texts: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

// SAFETY: the pointers lead to memory that only this value owns, and that nobody changes.
unsafe impl Send for Strings {}
// SAFETY: as above; there is nothing to change through a shared reference.
unsafe impl Sync for Strings {}

impl Strings {
    /// Fails for a text that has a NUL in it.
    pub(crate) fn new(texts: impl IntoIterator<Item = Vec<u8>>) -> io::Result<Self> {
        let texts = texts.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { _texts: texts, pointers })
    }

    fn as_ptr(&self) -> *const *const libc::c_char {
        self.pointers.as_ptr()
    }
}

/// Makes the kernel alone decide whether it can execute a program: the C library would give what the kernel does not know
/// to a shell. Whatever else the new process is to do must have been said before.
pub(crate) fn execute_directly(
    command: &mut Command,
    path: CString,
    arguments: Strings,
    environment: Strings,
) {
    let execute = move || -> io::Result<()> {
        // SAFETY: a C string and two lists of C strings that end with a null pointer, all of them kept by this closure.
        unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        Err(io::Error::last_os_error())
    };
    // SAFETY: after the fork the closure makes one system call and reads errno.
    unsafe { command.pre_exec(execute) };
}

/// Closes what was inherited beyond standard input, output and error.
pub(crate) fn close_inherited() {
    // SAFETY: called first, before this process has opened anything of its own.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Says by which services (as in nsswitch.conf(5)) the C library looks up a database of this process.
#[cfg(target_env = "gnu")]
pub(crate) fn configure_lookup(database: &CStr, services: &CStr) -> io::Result<()> {
    unsafe extern "C" {
        // Of <nss.h>; the libc crate does not have it.
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // SAFETY: both are C strings, which the function reads and does not keep.
    match unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
