//! Which system calls a worker may make once its device runtime is warm.
//!
//! Written for what OpenCL and CUDA runtimes do, which is a lot: they map, poll and ioctl device nodes and start threads. Only
//! OpenCL's start other programs: PoCL runs a linker and loads its output. A call in no list fails with ENOSYS, so that C libraries
//! fall back when they try something newer than this list.

use libc::*;

/// Always allowed.
#[rustfmt::skip]
pub(super) const ALLOWED: &[i64] = &[
    // Files: reading libraries and bit code, writing kernel caches in our own folder.
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_openat, SYS_openat2, SYS_close, SYS_close_range, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_fstatfs, SYS_faccessat, SYS_faccessat2, SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_chdir,
    SYS_fchdir, SYS_mkdirat, SYS_unlinkat, SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_ftruncate, SYS_truncate,
    SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_fchmod, SYS_fchmodat, SYS_utimensat, SYS_umask,
    SYS_flock, SYS_dup, SYS_dup3, SYS_fadvise64, SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_tee,
    SYS_vmsplice, SYS_readahead, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_inotify_init1, SYS_inotify_add_watch,
    SYS_inotify_rm_watch, SYS_memfd_create, SYS_pipe2,
    // Memory. Devices in software write code and then make it executable (mprotect), as PoCL's loader does.
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_mincore, SYS_msync, SYS_mlock, SYS_mlock2,
    SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_membarrier, SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect,
    // NUMA placement: CUDA and PoCL put pinned memory and threads near their device.
    SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy, SYS_getcpu,
    // System V shared memory: in our own IPC namespace it reaches nobody; NVIDIA's runtime tries it.
    SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl,
    // Threads and scheduling.
    SYS_futex, SYS_set_robust_list, SYS_get_robust_list, SYS_set_tid_address, SYS_rseq, SYS_gettid, SYS_exit,
    SYS_exit_group, SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam,
    SYS_sched_setparam, SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_getattr, SYS_sched_setattr,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_getpriority,
    // Signals; sending is below.
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigsuspend, SYS_rt_sigtimedwait,
    SYS_sigaltstack, SYS_signalfd4, SYS_restart_syscall, SYS_wait4, SYS_waitid,
    // Waiting and timers.
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2,
    SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime,
    SYS_timer_getoverrun, SYS_timer_delete, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres,
    SYS_gettimeofday, SYS_getitimer, SYS_setitimer,
    // Lanes arrive as open sockets and descriptors; `socket` itself is below.
    SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_shutdown, SYS_getsockopt,
    SYS_getsockname, SYS_getpeername,
    // Who and where am I.
    SYS_getpid, SYS_getppid, SYS_getpgid, SYS_getsid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getgroups,
    SYS_getresuid, SYS_getresgid, SYS_uname, SYS_sysinfo, SYS_getrusage, SYS_times,
    SYS_getrandom, SYS_capget,
    #[cfg(target_arch = "x86_64")] SYS_arch_prctl,
    // The forms without a directory descriptor, which only older architectures have.
    #[cfg(target_arch = "x86_64")] SYS_open,
    #[cfg(target_arch = "x86_64")] SYS_creat,
    #[cfg(target_arch = "x86_64")] SYS_stat,
    #[cfg(target_arch = "x86_64")] SYS_lstat,
    #[cfg(target_arch = "x86_64")] SYS_access,
    #[cfg(target_arch = "x86_64")] SYS_readlink,
    #[cfg(target_arch = "x86_64")] SYS_getdents,
    #[cfg(target_arch = "x86_64")] SYS_mkdir,
    #[cfg(target_arch = "x86_64")] SYS_rmdir,
    #[cfg(target_arch = "x86_64")] SYS_unlink,
    #[cfg(target_arch = "x86_64")] SYS_rename,
    #[cfg(target_arch = "x86_64")] SYS_renameat,
    #[cfg(target_arch = "x86_64")] SYS_link,
    #[cfg(target_arch = "x86_64")] SYS_symlink,
    #[cfg(target_arch = "x86_64")] SYS_chmod,
    #[cfg(target_arch = "x86_64")] SYS_utime,
    #[cfg(target_arch = "x86_64")] SYS_utimes,
    #[cfg(target_arch = "x86_64")] SYS_dup2,
    #[cfg(target_arch = "x86_64")] SYS_pipe,
    #[cfg(target_arch = "x86_64")] SYS_poll,
    #[cfg(target_arch = "x86_64")] SYS_select,
    #[cfg(target_arch = "x86_64")] SYS_epoll_create,
    #[cfg(target_arch = "x86_64")] SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")] SYS_eventfd,
    #[cfg(target_arch = "x86_64")] SYS_signalfd,
    #[cfg(target_arch = "x86_64")] SYS_inotify_init,
    #[cfg(target_arch = "x86_64")] SYS_alarm,
    #[cfg(target_arch = "x86_64")] SYS_pause,
    #[cfg(target_arch = "x86_64")] SYS_time,
    #[cfg(target_arch = "x86_64")] SYS_getpgrp,
];

/// Allowed to workers that start programs, and refused to others. A program that is started gains nothing: no-new-privileges and
/// these filters are inherited.
#[rustfmt::skip]
pub(super) const PROGRAMS: &[i64] = &[
    SYS_execve,
    // A fork by the C library on x86-64 before clone3, and posix_spawn's.
    #[cfg(target_arch = "x86_64")] SYS_fork,
    #[cfg(target_arch = "x86_64")] SYS_vfork,
];

/// A call that is refused where all of these hold of its arguments, of which the low 32 bits count.
pub(super) struct Refusal {
    pub(super) call: i64,
    /// Indices of arguments, with what each is.
    pub(super) when: &'static [(u8, Is)],
}

pub(super) enum Is {
    Equal(u32),
    Unequal(u32),
}

/// In all workers. The last of those that have a socket waits where closing it waits, and that may be the supervisor, which workers send
/// descriptors.
pub(super) const REFUSED_IF: &[Refusal] = &[
    Refusal {
        call: SYS_setsockopt,
        when: &[
            (1, Is::Equal(SOL_SOCKET as u32)),
            (2, Is::Equal(SO_LINGER as u32)),
        ],
    },
    // Protocols that the kernel puts over TCP have their own ways to close.
    Refusal {
        call: SYS_setsockopt,
        when: &[
            (1, Is::Equal(IPPROTO_TCP as u32)),
            (2, Is::Equal(TCP_ULP as u32)),
        ],
    },
    // Of NETLINK only that of routes and addresses, by which NCCL finds interfaces.
    Refusal {
        call: SYS_socket,
        when: &[(0, Is::Equal(AF_NETLINK as u32)), (2, Is::Unequal(0))],
    },
];

/// A call that is allowed by one of its arguments, and otherwise refused.
pub(super) struct ArgumentRule {
    pub(super) call: i64,
    /// Index of the argument; its low 32 bits count.
    pub(super) argument: u8,
    pub(super) allowed: Allowed,
}

pub(super) enum Allowed {
    WithoutBits(u32),
    WithBits(u32),
    OneOf(&'static [u32]),
    NotOneOf(&'static [u32]),
    /// This process, by its number or as 0.
    ThisProcess,
}

/// In workers that start no programs: threads, but no processes.
pub(super) const ONLY_THREADS: ArgumentRule = ArgumentRule {
    call: SYS_clone,
    argument: 0,
    allowed: Allowed::WithBits(CLONE_THREAD as u32),
};

/// In workers that reach no network: pairs of local sockets serve as pipes; `connect` is refused.
pub(super) const ONLY_LOCAL_SOCKETS: &[ArgumentRule] = &[ArgumentRule {
    call: SYS_socket,
    argument: 0,
    allowed: Allowed::OneOf(&[AF_UNIX as u32]),
}];

/// In workers that talk to others of their job. NCCL asks for addresses of interfaces over NETLINK, and passes descriptors of memory over
/// local sockets.
pub(super) const NETWORK_SOCKETS: &[ArgumentRule] = &[
    ArgumentRule {
        call: SYS_socket,
        argument: 0,
        allowed: Allowed::OneOf(&[
            AF_UNIX as u32,
            AF_INET as u32,
            AF_INET6 as u32,
            AF_NETLINK as u32,
        ]),
    },
    // TCP, UDP and, as 0, the usual one of a family.
    ArgumentRule {
        call: SYS_socket,
        argument: 2,
        allowed: Allowed::OneOf(&[0, IPPROTO_TCP as u32, IPPROTO_UDP as u32]),
    },
];

/// Allowed to those workers, and refused to others.
pub(super) const CONNECTIONS: &[i64] =
    &[SYS_accept, SYS_accept4, SYS_bind, SYS_connect, SYS_listen];

pub(super) const ALLOWED_IF: &[ArgumentRule] = &[
    // Threads and child processes, but no namespaces: they open kernel code that only root reaches otherwise.
    ArgumentRule {
        call: SYS_clone,
        argument: 0,
        allowed: Allowed::WithoutBits(
            (CLONE_NEWUSER
                | CLONE_NEWNS
                | CLONE_NEWNET
                | CLONE_NEWIPC
                | CLONE_NEWPID
                | CLONE_NEWUTS
                | CLONE_NEWCGROUP) as u32,
        ),
    },
    // Signals to ourselves. Without a PID namespace, or within a user's, the number of another process may be a stranger's. A
    // process that was forked cannot signal itself either: an abort ends it all the same.
    ArgumentRule {
        call: SYS_kill,
        argument: 0,
        allowed: Allowed::ThisProcess,
    },
    ArgumentRule {
        call: SYS_tgkill,
        argument: 0,
        allowed: Allowed::ThisProcess,
    },
    ArgumentRule {
        call: SYS_rt_sigqueueinfo,
        argument: 0,
        allowed: Allowed::ThisProcess,
    },
    ArgumentRule {
        call: SYS_prlimit64,
        argument: 0,
        allowed: Allowed::ThisProcess,
    },
    ArgumentRule {
        call: SYS_setpriority,
        argument: 1,
        allowed: Allowed::ThisProcess,
    },
    // A file can be told to send signals, to any process.
    ArgumentRule {
        call: SYS_fcntl,
        argument: 1,
        allowed: Allowed::NotOneOf(&[
            F_SETOWN as u32,
            10, /* F_SETSIG */
            15, /* F_SETOWN_EX */
        ]),
    },
    // What the jail has settled stays: death with the supervisor, and that nobody inspects this process.
    ArgumentRule {
        call: SYS_prctl,
        argument: 0,
        allowed: Allowed::NotOneOf(&[
            PR_SET_PDEATHSIG as u32,
            PR_SET_DUMPABLE as u32,
            PR_SET_SECCOMP as u32,
            PR_SET_MM as u32,
            PR_SET_CHILD_SUBREAPER as u32,
            PR_SET_PTRACER as u32,
        ]),
    },
    ArgumentRule {
        call: SYS_socketpair,
        argument: 0,
        allowed: Allowed::OneOf(&[AF_UNIX as u32]),
    },
    // Every device driver has its own numbers. The first two type into the terminal from which the server was started, the others
    // have a socket send signals.
    ArgumentRule {
        call: SYS_ioctl,
        argument: 1,
        allowed: Allowed::NotOneOf(&[
            TIOCSTI as u32,
            0x541c, /* TIOCLINUX */
            0x8901, /* FIOSETOWN */
            0x8902, /* SIOCSPGRP */
        ]),
    },
];

/// Known, not needed, and often a way into less tested kernel code: EPERM. `clone3` is not here but unknown (ENOSYS): its
/// flags lie in memory, where a filter cannot see them, and C libraries then fall back to `clone`.
#[rustfmt::skip]
pub(super) const REFUSED: &[i64] = &[
    SYS_acct, SYS_adjtimex, SYS_capset, SYS_chroot, SYS_clock_adjtime,
    SYS_clock_settime, SYS_execveat, SYS_fanotify_init, SYS_fanotify_mark, SYS_fchown, SYS_fchownat, SYS_fremovexattr,
    SYS_fsetxattr, SYS_io_cancel, SYS_io_destroy, SYS_io_getevents, SYS_io_setup, SYS_io_submit, SYS_io_uring_enter,
    SYS_io_uring_register, SYS_io_uring_setup, SYS_ioprio_set, SYS_kcmp, SYS_landlock_add_rule,
    SYS_landlock_create_ruleset, SYS_landlock_restrict_self, SYS_lremovexattr, SYS_lsetxattr,
    SYS_migrate_pages, SYS_mknodat, SYS_move_pages, SYS_mq_notify, SYS_mq_open, SYS_mq_unlink, SYS_msgctl, SYS_msgget,
    SYS_msgrcv, SYS_msgsnd, SYS_name_to_handle_at, SYS_perf_event_open, SYS_personality, SYS_pidfd_getfd,
    SYS_pidfd_open, SYS_pidfd_send_signal, SYS_quotactl, SYS_removexattr, SYS_remap_file_pages, SYS_seccomp, SYS_semctl,
    SYS_semget, SYS_semop, SYS_semtimedop, SYS_setdomainname, SYS_setfsgid, SYS_setfsuid, SYS_setgid, SYS_setgroups,
    SYS_sethostname, SYS_setpgid, SYS_setregid, SYS_setresgid, SYS_setresuid, SYS_setreuid, SYS_setsid,
    SYS_settimeofday, SYS_setuid, SYS_setxattr, SYS_sync, SYS_syncfs, SYS_syslog, SYS_tkill, SYS_vhangup,
    #[cfg(target_arch = "x86_64")] SYS_chown,
    #[cfg(target_arch = "x86_64")] SYS_iopl,
    #[cfg(target_arch = "x86_64")] SYS_ioperm,
    #[cfg(target_arch = "x86_64")] SYS_lchown,
    #[cfg(target_arch = "x86_64")] SYS_mknod,
    #[cfg(target_arch = "x86_64")] SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")] SYS_ustat,
];

/// Only an attack makes these: the process dies at once.
#[rustfmt::skip]
pub(super) const KILLED: &[i64] = &[
    // Other processes' memory.
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise,
    // Rebuilding the view of the system.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_fsopen, SYS_fsmount, SYS_fsconfig, SYS_fspick, SYS_move_mount,
    SYS_open_tree, SYS_mount_setattr, SYS_setns, SYS_unshare, SYS_open_by_handle_at,
    // The kernel itself.
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_bpf, SYS_swapon, SYS_swapoff,
    // Keys of the kernel, shared by all processes of a user.
    SYS_add_key, SYS_request_key, SYS_keyctl,
    // Stops kernel code half-way at a page fault: a tool of exploits.
    SYS_userfaultfd,
];
