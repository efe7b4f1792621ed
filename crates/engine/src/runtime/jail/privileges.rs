//! What a process of an instance may do: as much as in a Docker container by default.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::{SetupError, seccomp, step};

/// The default of Docker, see "Runtime privilege and Linux capabilities" in its manual.
const KEPT: [CapabilitySet; 14] = [
    CapabilitySet::AUDIT_WRITE,
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::FOWNER,
    CapabilitySet::FSETID,
    CapabilitySet::KILL,
    CapabilitySet::MKNOD,
    CapabilitySet::NET_BIND_SERVICE,
    CapabilitySet::NET_RAW,
    CapabilitySet::SETFCAP,
    CapabilitySet::SETGID,
    CapabilitySet::SETPCAP,
    CapabilitySet::SETUID,
    CapabilitySet::SYS_CHROOT,
];

/// Gives up, for this process and all that come from it, what an instance may not do.
pub(super) fn drop_privileges() -> Result<(), SetupError> {
    let kept = KEPT.into_iter().fold(CapabilitySet::empty(), CapabilitySet::union);
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        let known = capability_is_in_bounding_set(capability).unwrap_or(false);
        if known && !kept.contains(capability) {
            remove_capability_from_bounding_set(capability).map_err(step("give up a capability"))?;
        }
    }
    clear_ambient_capability_set().map_err(step("give up the ambient capabilities"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(step("give up capabilities"))?;
    set_no_new_privs(true).map_err(step("give up new privileges"))?;
    seccomp::restrict_calls()
}
