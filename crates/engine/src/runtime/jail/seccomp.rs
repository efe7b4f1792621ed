//! Which system calls an instance may make: those of a Docker container by default.
//!
//! The table has the facts of Docker's default profile (`seccomp/default.json` of github.com/moby/profiles,
//! May 2026) for the capabilities that an instance has, see [`super::privileges`]. As there, a call that is
//! newer than the profile does not exist (ENOSYS), so that a C library falls back to an older one; all others
//! that are not listed are refused (EPERM).

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

use super::{SetupError, step};

/// Calls that every processor has and that may be made with any arguments.
const ALLOWED: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_adjtimex,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fanotify_mark,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getitimer,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
    libc::SYS_io_getevents,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_ioctl,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lseek,
    libc::SYS_lsetxattr,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_mincore,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_unlink,
    libc::SYS_mremap,
    libc::SYS_mseal,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_munmap,
    libc::SYS_name_to_handle_at,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pipe2,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_prlimit64,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pselect6,
    libc::SYS_ptrace,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_remap_file_pages,
    libc::SYS_removexattr,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setitimer,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setrlimit,
    libc::SYS_setsid,
    libc::SYS_setsockopt,
    libc::SYS_setuid,
    libc::SYS_setxattr,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_socketpair,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sysinfo,
    libc::SYS_tee,
    libc::SYS_tgkill,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_tkill,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
    // As numbers, which are the same on every processor, where the library does not have the names:
    // cachestat, fchmodat2, map_shadow_stack, futex_wake, futex_wait, futex_requeue, statmount, listmount,
    // mseal, and setxattrat to removexattrat.
    451,
    452,
    453,
    454,
    455,
    456,
    457,
    458,
    462,
    463,
    464,
    465,
    466,
];

/// The newest call that the profile knows: removexattrat.
const NEWEST: u32 = 466;

/// Old calls that newer processors never had, `io_pgetevents` (333) and `uretprobe` (335).
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_ctl_old,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_wait_old,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_futimesat,
    libc::SYS_get_thread_area,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_inotify_init,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_modify_ldt,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_set_thread_area,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_vfork,
    333,
    335,
];

/// `io_pgetevents`, for which the library has no name.
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[i64] = &[292];

#[cfg(target_arch = "x86_64")]
const PROCESSOR: (TargetArch, u32) = (TargetArch::x86_64, 0xC000_003E);
#[cfg(target_arch = "aarch64")]
const PROCESSOR: (TargetArch, u32) = (TargetArch::aarch64, 0xC000_00B7);

/// Address families of sockets. Left out are among others the kernel's cryptography (38) and the way out of
/// a virtual machine (40).
const FAMILIES: &[u64] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 21, 22, 24, 26, 27, 28, 29, 30, 31, 32, 33,
    35, 36, 39, 41, 42, 43, 44, 45,
];

/// Ways of execution: Linux, the same for 32-bit programs, both with an old version number, and "which is it".
const PERSONALITIES: &[u64] = &[0x0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF];

/// The flags of clone(2) that ask for new namespaces.
const NEW_NAMESPACES: u64 = 0x7E02_0000;

// Instructions of the kernel's filters, see `linux/bpf_common.h`.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_NOT_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

// Where the kernel has what it is asked about, see `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// Refuses, for this process and all that come from it, what an instance may not call.
pub(super) fn restrict_calls() -> Result<(), SetupError> {
    let program = program().map_err(step("put together which system calls are allowed"))?;
    apply_filter(&program).map_err(io::Error::other).map_err(step("restrict the system calls"))
}

/// What most calls need comes first and as ranges, because a kernel takes a filter of 1,500 instructions,
/// one comparison for each call, eight times as long as this one of 150.
fn program() -> io::Result<BpfProgram> {
    let mut program = vec![
        instruction(LOAD, ARCHITECTURE),
        jump(JUMP_IF_EQUAL, PROCESSOR.1, 1, 0),
        give(SeccompAction::KillProcess),
        instruction(LOAD, NUMBER),
    ];
    for (first, last) in ranges(&[ALLOWED, ALLOWED_HERE].concat()) {
        program.push(jump(JUMP_IF_NOT_LESS, first, 0, 2));
        program.push(jump(JUMP_IF_GREATER, last, 1, 0));
        program.push(give(SeccompAction::Allow));
    }
    let does_not_exist = || give(SeccompAction::Errno(Errno::NOSYS.raw_os_error().unsigned_abs()));
    program.push(jump(JUMP_IF_GREATER, NEWEST, 0, 1));
    program.push(does_not_exist());
    // Its flags lie in memory, where a filter can't look.
    program.push(jump(JUMP_IF_EQUAL, u32::try_from(libc::SYS_clone3).map_err(io::Error::other)?, 0, 1));
    program.push(does_not_exist());
    program.extend(with_arguments()?);
    Ok(program)
}

/// The calls that depend on their arguments, and the refusal of all others.
fn with_arguments() -> io::Result<BpfProgram> {
    let one_of = |values: &[u64]| {
        let equal = |&value| rule(SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        values.iter().map(equal).collect::<io::Result<Vec<_>>>()
    };
    let same_namespaces = rule(SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(NEW_NAMESPACES), 0)?;
    let rules = BTreeMap::from([
        (libc::SYS_clone, vec![same_namespaces]),
        (libc::SYS_personality, one_of(PERSONALITIES)?),
        (libc::SYS_socket, one_of(FAMILIES)?),
    ]);
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, PROCESSOR.0);
    filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
}

/// A rule for the first argument.
fn rule(length: SeccompCmpArgLen, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(0, length, operator, value).map_err(io::Error::other)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

/// The first and last numbers of what follows one another.
fn ranges(numbers: &[i64]) -> Vec<(u32, u32)> {
    let mut numbers: Vec<u32> = numbers.iter().filter_map(|&number| u32::try_from(number).ok()).collect();
    numbers.sort_unstable();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

fn instruction(code: u16, value: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k: value }
}

/// Skips so many instructions if the comparison holds, and so many if it does not.
fn jump(code: u16, value: u32, holds: u8, fails: u8) -> sock_filter {
    sock_filter { code, jt: holds, jf: fails, k: value }
}

fn give(action: SeccompAction) -> sock_filter {
    instruction(RETURN, action.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer: the filter's instructions are few enough to be carried out here.
    fn answer(architecture: u32, number: i64, argument: u64) -> u32 {
        let mut call = [0; 64];
        call[..4].copy_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
        call[4..8].copy_from_slice(&architecture.to_le_bytes());
        call[16..24].copy_from_slice(&argument.to_le_bytes());
        let word = |at: u32| u32::from_le_bytes(call[at as usize..][..4].try_into().unwrap());
        let program = program().unwrap();
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            let holds = match code {
                LOAD => {
                    value = word(k);
                    false
                }
                RETURN => return k,
                // A jump without a condition, and the bits of a mask.
                0x05 => {
                    at += k as usize;
                    false
                }
                0x54 => {
                    value &= k;
                    false
                }
                JUMP_IF_EQUAL => value == k,
                JUMP_IF_GREATER => value > k,
                JUMP_IF_NOT_LESS => value >= k,
                other => panic!("instruction {other:#x}"),
            };
            at += 1 + usize::from(if holds { jt } else { jf });
        }
    }

    fn here(number: i64, argument: u64) -> u32 {
        answer(PROCESSOR.1, number, argument)
    }

    const ALLOW: u32 = 0x7FFF_0000;
    const REFUSE: u32 = 0x0005_0001;
    const NOT_THERE: u32 = 0x0005_0026;
    const KILL: u32 = 0x8000_0000;

    #[test]
    fn each_call_of_the_table_is_allowed_and_each_other_is_not() {
        let conditional = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_personality, libc::SYS_socket];
        for number in (0..=i64::from(NEWEST)).filter(|number| !conditional.contains(number)) {
            let listed = ALLOWED.contains(&number) || ALLOWED_HERE.contains(&number);
            assert_eq!(here(number, u64::MAX), if listed { ALLOW } else { REFUSE }, "call {number}");
        }
    }

    #[test]
    fn calls_that_the_profile_does_not_know_are_not_there() {
        for number in [i64::from(NEWEST) + 1, 1000, 0x4000_0000, i64::from(u32::MAX), libc::SYS_clone3] {
            assert_eq!(here(number, 0), NOT_THERE, "call {number}");
        }
    }

    #[test]
    fn what_makes_namespaces_mounts_keys_or_trouble_is_refused() {
        let refused = [
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_open_by_handle_at,
            libc::SYS_kexec_load,
            libc::SYS_init_module,
            libc::SYS_swapon,
            libc::SYS_io_uring_setup,
            libc::SYS_pidfd_getfd,
            libc::SYS_syslog,
            libc::SYS_reboot,
        ];
        for number in refused {
            assert_eq!(here(number, 0), REFUSE, "call {number}");
        }
    }

    #[test]
    fn arguments_decide_where_the_table_says_so() {
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID] {
            assert_eq!(here(libc::SYS_clone, u64::from(flag.unsigned_abs()) | 17), REFUSE);
        }
        assert_eq!(here(libc::SYS_clone, (libc::CLONE_VM | libc::CLONE_THREAD) as u64), ALLOW);
        for (family, expected) in
            [(1, ALLOW), (2, ALLOW), (10, ALLOW), (16, ALLOW), (38, REFUSE), (40, REFUSE)]
        {
            assert_eq!(here(libc::SYS_socket, family), expected, "family {family}");
        }
        for (personality, expected) in [(0, ALLOW), (0xFFFF_FFFF, ALLOW), (0x4_0000, REFUSE)] {
            assert_eq!(here(libc::SYS_personality, personality), expected);
        }
    }

    #[test]
    fn the_numbers_of_another_processor_mean_nothing() {
        assert_eq!(answer(0x4000_0003, libc::SYS_read, 0), KILL);
    }
}
