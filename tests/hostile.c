/* What a hostile program tries: each argument is one attempt, answered by one line on standard output. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

static void tell(const char *what, long result)
{
    printf("%s %s\n", what, result >= 0 ? "works" : strerrorname_np(errno));
    fflush(stdout);
}

/* Calls with arguments that do no harm where the call is allowed. */
static void calls(void)
{
    static const struct { const char *name; long number; } refused[] = {
        {"mount", SYS_mount}, {"umount2", SYS_umount2}, {"pivot_root", SYS_pivot_root}, {"setns", SYS_setns},
        {"move_mount", SYS_move_mount}, {"open_tree", SYS_open_tree}, {"fsopen", SYS_fsopen},
        {"keyctl", SYS_keyctl}, {"add_key", SYS_add_key}, {"request_key", SYS_request_key}, {"bpf", SYS_bpf},
        {"perf_event_open", SYS_perf_event_open}, {"userfaultfd", SYS_userfaultfd}, {"swapon", SYS_swapon},
        {"init_module", SYS_init_module}, {"kexec_load", SYS_kexec_load}, {"acct", SYS_acct},
        {"open_by_handle_at", SYS_open_by_handle_at}, {"syslog", SYS_syslog}, {"quotactl", SYS_quotactl},
        {"settimeofday", SYS_settimeofday}, {"sethostname", SYS_sethostname}, {"vhangup", SYS_vhangup},
        {"getpid", SYS_getpid}, {"ptrace", SYS_ptrace}, {"clone3", 435}, {"newest", 1000},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        tell(refused[i].name, syscall(refused[i].number, -1L, -1L, -1L, -1L, -1L, -1L));
    tell("unshare user", syscall(SYS_unshare, CLONE_NEWUSER));
    tell("unshare mounts", syscall(SYS_unshare, CLONE_NEWNS));
    tell("clone user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD | CLONE_THREAD, 0, 0, 0, 0));
    tell("personality", personality(0xffffffff));
    tell("strange personality", personality(ADDR_NO_RANDOMIZE));
    tell("socket", socket(AF_INET, SOCK_DGRAM, 0));
    tell("socket to the virtual machine's owner", socket(AF_VSOCK, SOCK_STREAM, 0));
}

/* The first process of the instance, which watches this one for the supervisor. */
static void first_process(void)
{
    char buffer[8];
    struct iovec here = {buffer, sizeof buffer}, there = {(void *)0x400000, sizeof buffer};
    tell("trace", ptrace(PTRACE_SEIZE, 1, 0, 0));
    tell("read", process_vm_readv(1, &here, 1, &there, 1, 0));
    tell("memory", open("/proc/1/mem", O_RDWR));
    tell("files", open("/proc/1/fd/0", O_RDWR));
    tell("root", open("/proc/1/root/etc", O_RDONLY));
    tell("environment", open("/proc/1/environ", O_RDONLY));
    tell("namespace", open("/proc/1/ns/mnt", O_RDONLY));
    /* The kernel lets nobody inside end the first process, and says that it worked. */
    kill(1, SIGKILL);
    kill(1, SIGSEGV);
    kill(1, SIGTERM);
}

static void devices(void)
{
    /* The first disk, the kernel's memory, and the loop control device. */
    mknod("/tmp/disk", S_IFBLK | 0600, makedev(254, 0));
    tell("disk", open("/tmp/disk", O_RDONLY));
    mknod("/tmp/memory", S_IFCHR | 0600, makedev(1, 1));
    tell("memory", open("/tmp/memory", O_RDONLY));
    mknod("/dev/loop-control", S_IFCHR | 0600, makedev(10, 237));
    tell("loop", open("/dev/loop-control", O_RDONLY));
}

/* Typing into the terminal of whoever has started the job. */
static void terminal(void)
{
    int tty = open("/dev/tty", O_RDWR);
    tell("own terminal", tty);
    tell("type", ioctl(tty >= 0 ? tty : 0, TIOCSTI, "x"));
}

/* A file of the machine by a handle, past all mounts: the trick of "shocker". */
static void handle(void)
{
    struct { struct file_handle head; unsigned char bytes[128]; } handle = {.head = {.handle_bytes = 128}};
    int mount, folder = open("/", O_RDONLY);
    long named = syscall(SYS_name_to_handle_at, AT_FDCWD, "/etc", &handle, &mount, 0);
    if (named < 0) {
        handle.head.handle_bytes = 8;
        handle.head.handle_type = 1;
        memcpy(handle.head.f_handle, "\2\0\0\0\0\0\0\0", 8);
    }
    tell("handle", syscall(SYS_open_by_handle_at, folder, &handle, O_RDONLY));
}

int main(int count, char **names)
{
    static const struct { const char *name; void (*attempt)(void); } attempts[] = {
        {"calls", calls}, {"first-process", first_process}, {"devices", devices}, {"terminal", terminal},
        {"handle", handle},
    };
    for (int i = 1; i < count; i++)
        for (size_t k = 0; k < sizeof attempts / sizeof *attempts; k++)
            if (strcmp(names[i], attempts[k].name) == 0)
                attempts[k].attempt();
    return 0;
}
