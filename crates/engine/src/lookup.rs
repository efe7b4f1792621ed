//! Looking up names in a program that is linked statically.

use std::io;

#[cfg(target_env = "gnu")]
use crate::sys::configure_lookup;

/// Looks up machines in `/etc/hosts` and by DNS, users and groups in `/etc/passwd` and `/etc/group`, and
/// nowhere else, for the rest of this process.
///
/// A statically linked program must call this first. Services of other names in `/etc/nsswitch.conf` are
/// shared libraries of the machine, made for the machine's C library; loaded into a program with another
/// one they crash it (seen with `mymachines` of Debian 13).
///
/// # Errors
///
/// Fails if the C library does not take it.
#[cfg(target_env = "gnu")]
pub fn use_built_in_services() -> io::Result<()> {
    let databases = [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")];
    databases.into_iter().try_for_each(|(database, services)| configure_lookup(database, services))
}

/// Other C libraries have no services to be loaded.
#[cfg(not(target_env = "gnu"))]
pub fn use_built_in_services() -> io::Result<()> {
    Ok(())
}
