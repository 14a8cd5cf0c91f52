//! What native code of a client reaches: a kernel makes system calls that an attacker would try, and the answers are a golden table.
//!
//! Most attacks run in a child that the kernel forks, since some are answered with death. `UPDATE_GOLDENS=1` writes the tables anew.

use std::ffi::CString;

use towline_backend::opencl::*;

/// Most system calls of an attack.
const STEPS: usize = 3;
/// Room for what a call reads or writes, behind the texts.
const SCRATCH_BYTES: usize = 16 << 10;
const SCRATCHES: usize = 10;

/// An argument of a call.
#[derive(Clone)]
enum Arg {
    Value(i64),
    Text(String),
    /// A buffer, by number.
    Scratch(usize),
    /// What the call before answered.
    Answer,
}

/// Which process carries it out.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    /// The worker itself: the last call's answer shows.
    Here,
    /// A child: only its end shows.
    InChild,
    /// A child that does not end.
    LeftBehind,
}

struct Attack {
    name: String,
    place: Where,
    calls: Vec<(i64, Vec<Arg>)>,
}

fn text(text: &str) -> Arg {
    Arg::Text(text.into())
}

fn value(value: i64) -> Arg {
    Arg::Value(value)
}

fn attack(name: &str, call: i64, args: Vec<Arg>) -> Attack {
    Attack {
        name: name.into(),
        place: Where::InChild,
        calls: vec![(call, args)],
    }
}

fn open(path: &str, flags: i32) -> (i64, Vec<Arg>) {
    let args = vec![
        value(libc::AT_FDCWD.into()),
        text(path),
        value(flags.into()),
        value(0o600),
    ];
    (libc::SYS_openat, args)
}

fn opening(path: &str, flags: i32) -> Attack {
    let what = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "read",
        _ => "write",
    };
    Attack {
        name: format!("{what} {path}"),
        place: Where::InChild,
        calls: vec![open(path, flags)],
    }
}

/// All that is tried. `token` is the path of the server's secret, `server` its process id.
fn attacks(token: &str, server: i64) -> Vec<Attack> {
    let server_process = || value(server);
    let mut all = vec![
        opening("/etc/passwd", libc::O_RDONLY),
        opening("/etc/shadow", libc::O_RDONLY),
        opening("/etc/passwd", libc::O_WRONLY),
        opening("/usr/bin/planted", libc::O_WRONLY | libc::O_CREAT),
        opening("/tmp/planted", libc::O_WRONLY | libc::O_CREAT),
        opening("/tmp/home/kernels/planted", libc::O_WRONLY | libc::O_CREAT),
        opening("/dev/shm/planted", libc::O_WRONLY | libc::O_CREAT),
        opening("/dev/planted", libc::O_WRONLY | libc::O_CREAT),
        opening("/run/planted", libc::O_WRONLY | libc::O_CREAT),
        opening("/proc/1/root/etc/shadow", libc::O_RDONLY),
        opening("/proc/1/environ", libc::O_RDONLY),
        opening("/proc/1/mem", libc::O_RDWR),
        opening("/proc/sys/kernel/core_pattern", libc::O_WRONLY),
        opening("/sys/module/kernel/parameters/panic", libc::O_WRONLY),
        opening("/dev/mem", libc::O_RDONLY),
        opening("/dev/kvm", libc::O_RDWR),
        opening("/dev/vda", libc::O_RDONLY),
        opening("/dev/tty", libc::O_RDWR),
        opening("/dev/ptmx", libc::O_RDWR),
        opening("/run/dbus/system_bus_socket", libc::O_RDONLY),
    ];
    for file in ["environ", "cmdline", "mem", "fd/2", "root"] {
        let mut attack = opening(&format!("/proc/{server}/{file}"), libc::O_RDONLY);
        attack.name = format!("read /proc/SERVER/{file}");
        all.push(attack);
    }
    all.push(Attack {
        name: "bytes of the token".into(),
        place: Where::Here,
        calls: vec![
            open(token, libc::O_RDONLY),
            (
                libc::SYS_read,
                vec![Arg::Answer, Arg::Scratch(0), value(100)],
            ),
        ],
    });
    let signal = libc::SIGKILL.into();
    let of_server: [(&str, i64, Vec<Arg>); 15] = [
        (
            "kill the server",
            libc::SYS_kill,
            vec![server_process(), value(signal)],
        ),
        (
            "tgkill the server",
            libc::SYS_tgkill,
            vec![server_process(), server_process(), value(signal)],
        ),
        (
            "tkill the server",
            libc::SYS_tkill,
            vec![server_process(), value(signal)],
        ),
        (
            "queue a signal to the server",
            libc::SYS_rt_sigqueueinfo,
            vec![server_process(), value(signal), Arg::Scratch(0)],
        ),
        (
            "kill everything",
            libc::SYS_kill,
            vec![value(-1), value(signal)],
        ),
        (
            "pidfd_open the server",
            libc::SYS_pidfd_open,
            vec![server_process(), value(0)],
        ),
        (
            "pidfd_getfd",
            libc::SYS_pidfd_getfd,
            vec![value(0), value(0), value(0)],
        ),
        (
            "ptrace the server",
            libc::SYS_ptrace,
            vec![value(16), server_process()],
        ),
        (
            "process_vm_readv",
            libc::SYS_process_vm_readv,
            vec![server_process()],
        ),
        (
            "process_vm_writev",
            libc::SYS_process_vm_writev,
            vec![server_process()],
        ),
        (
            "kcmp",
            libc::SYS_kcmp,
            vec![server_process(), server_process()],
        ),
        (
            "limit the server's files",
            libc::SYS_prlimit64,
            vec![server_process(), value(7), Arg::Scratch(0)],
        ),
        (
            "slow the server down",
            libc::SYS_setpriority,
            vec![value(0), server_process(), value(19)],
        ),
        (
            "have a file signal the server",
            libc::SYS_fcntl,
            vec![value(2), value(8), server_process()],
        ),
        (
            "move the server's memory",
            libc::SYS_move_pages,
            vec![server_process()],
        ),
    ];
    all.extend(of_server.map(|(name, call, args)| attack(name, call, args)));
    let families: [(&str, i32); 6] = [
        ("INET", libc::AF_INET),
        ("INET6", libc::AF_INET6),
        ("NETLINK", libc::AF_NETLINK),
        ("PACKET", libc::AF_PACKET),
        ("ALG", libc::AF_ALG),
        ("VSOCK", libc::AF_VSOCK),
    ];
    all.extend(families.map(|(name, family)| {
        let args = vec![value(family.into()), value(libc::SOCK_DGRAM.into())];
        attack(&format!("socket AF_{name}"), libc::SYS_socket, args)
    }));
    let unix = (libc::SYS_socket, vec![value(1), value(1)]);
    // The family, 1, and a path.
    let address = || text("\u{1}/run/dbus/system_bus_socket");
    for (name, call) in [("connect", libc::SYS_connect), ("bind", libc::SYS_bind)] {
        let second = (call, vec![Arg::Answer, address(), value(30)]);
        all.push(Attack {
            name: format!("{name} a local socket"),
            place: Where::InChild,
            calls: vec![unix.clone(), second],
        });
    }
    let options = [
        ("have a close wait", libc::SOL_SOCKET, libc::SO_LINGER),
        ("put a protocol over TCP", libc::IPPROTO_TCP, libc::TCP_ULP),
    ];
    for (name, level, option) in options {
        let args = vec![
            Arg::Answer,
            value(level.into()),
            value(option.into()),
            text("tls"),
            value(3),
        ];
        all.push(Attack {
            name: name.into(),
            place: Where::InChild,
            calls: vec![unix.clone(), (libc::SYS_setsockopt, args)],
        });
    }
    all.push(Attack {
        name: "run a file of memory".into(),
        place: Where::InChild,
        calls: vec![
            (libc::SYS_memfd_create, vec![text("planted"), value(0)]),
            (
                libc::SYS_execveat,
                vec![Arg::Answer, text(""), value(0), value(0), value(0x1000)],
            ),
        ],
    });
    let new_user = i64::from(libc::CLONE_NEWUSER);
    let others: [(&str, i64, Vec<Arg>); 45] = [
        (
            "run /bin/true",
            libc::SYS_execve,
            vec![text("/bin/true"), value(0), value(0)],
        ),
        ("setuid(0)", libc::SYS_setuid, vec![value(0)]),
        ("setgid(0)", libc::SYS_setgid, vec![value(0)]),
        (
            "setresuid(0)",
            libc::SYS_setresuid,
            vec![value(0), value(0), value(0)],
        ),
        ("setgroups", libc::SYS_setgroups, vec![value(0), value(0)]),
        (
            "capset",
            libc::SYS_capset,
            vec![Arg::Scratch(0), Arg::Scratch(1)],
        ),
        ("setsid", libc::SYS_setsid, vec![]),
        ("setpgid", libc::SYS_setpgid, vec![value(0), value(0)]),
        (
            "clear the death signal",
            libc::SYS_prctl,
            vec![value(1), value(0)],
        ),
        ("become dumpable", libc::SYS_prctl, vec![value(4), value(1)]),
        (
            "add a seccomp filter",
            libc::SYS_seccomp,
            vec![value(1), value(0), Arg::Scratch(0)],
        ),
        (
            "type into the terminal",
            libc::SYS_ioctl,
            vec![value(2), value(0x5412), text("x")],
        ),
        (
            "truncate the log",
            libc::SYS_ftruncate,
            vec![value(2), value(0)],
        ),
        (
            "seek in the log",
            libc::SYS_lseek,
            vec![value(2), value(0), value(0)],
        ),
        (
            "write a line into the log",
            libc::SYS_write,
            vec![value(2), text("\u{1b}[2Jforged\n"), value(11)],
        ),
        (
            "mount",
            libc::SYS_mount,
            vec![
                text("none"),
                text("/mnt"),
                text("tmpfs"),
                value(0),
                value(0),
            ],
        ),
        ("umount2", libc::SYS_umount2, vec![text("/proc"), value(2)]),
        (
            "pivot_root",
            libc::SYS_pivot_root,
            vec![text("/tmp"), text("/tmp")],
        ),
        ("chroot", libc::SYS_chroot, vec![text("/tmp")]),
        (
            "open_tree",
            libc::SYS_open_tree,
            vec![value(-100), text("/"), value(1)],
        ),
        ("fsopen", libc::SYS_fsopen, vec![text("tmpfs"), value(0)]),
        (
            "unshare a user namespace",
            libc::SYS_unshare,
            vec![value(new_user)],
        ),
        ("setns", libc::SYS_setns, vec![value(0), value(0)]),
        (
            "clone a user namespace",
            libc::SYS_clone,
            vec![value(new_user | 17), value(0)],
        ),
        ("clone3", libc::SYS_clone3, vec![Arg::Scratch(0), value(64)]),
        (
            "mknod a disk",
            libc::SYS_mknod,
            vec![text("/tmp/disk"), value(0o60600), value(0xfe00)],
        ),
        (
            "io_uring_setup",
            libc::SYS_io_uring_setup,
            vec![value(1), Arg::Scratch(0)],
        ),
        (
            "perf_event_open",
            libc::SYS_perf_event_open,
            vec![Arg::Scratch(0)],
        ),
        (
            "bpf",
            libc::SYS_bpf,
            vec![value(0), Arg::Scratch(0), value(48)],
        ),
        ("userfaultfd", libc::SYS_userfaultfd, vec![value(0)]),
        ("keyctl", libc::SYS_keyctl, vec![value(0)]),
        ("add_key", libc::SYS_add_key, vec![text("user"), text("x")]),
        (
            "personality",
            libc::SYS_personality,
            vec![value(0x0040_0000)],
        ),
        (
            "modify_ldt",
            libc::SYS_modify_ldt,
            vec![value(1), Arg::Scratch(0), value(16)],
        ),
        ("iopl", libc::SYS_iopl, vec![value(3)]),
        (
            "init_module",
            libc::SYS_init_module,
            vec![Arg::Scratch(0), value(1), text("")],
        ),
        ("kexec_load", libc::SYS_kexec_load, vec![value(0)]),
        ("reboot", libc::SYS_reboot, vec![value(0)]),
        (
            "syslog",
            libc::SYS_syslog,
            vec![value(3), Arg::Scratch(0), value(100)],
        ),
        (
            "sethostname",
            libc::SYS_sethostname,
            vec![text("x"), value(1)],
        ),
        (
            "settimeofday",
            libc::SYS_settimeofday,
            vec![Arg::Scratch(0), value(0)],
        ),
        (
            "open_by_handle_at",
            libc::SYS_open_by_handle_at,
            vec![value(-100), Arg::Scratch(0)],
        ),
        (
            "fanotify_init",
            libc::SYS_fanotify_init,
            vec![value(0), value(0)],
        ),
        ("quotactl", libc::SYS_quotactl, vec![value(0)]),
        ("a system call that is too new", 1000, vec![]),
    ];
    all.extend(others.map(|(name, call, args)| attack(name, call, args)));
    // The folder of the tenant's compiled kernels, which later sessions and the server look at.
    let planted = |name: &str| text(&format!("/tmp/home/kernels/{name}"));
    let fifo = (libc::S_IFIFO | 0o600).into();
    let of_kernels: [(&str, i64, Vec<Arg>); 5] = [
        (
            "link the token among kernels",
            libc::SYS_symlink,
            vec![text(token), planted("link")],
        ),
        (
            "make a pipe among kernels",
            libc::SYS_mknod,
            vec![planted("pipe"), value(fifo), value(0)],
        ),
        (
            "make a disk among kernels",
            libc::SYS_mknod,
            vec![planted("disk"), value(0o60600), value(0xfe00)],
        ),
        (
            "give kernels to root",
            libc::SYS_chown,
            vec![planted("planted"), value(0), value(0)],
        ),
        (
            "have kernels grow",
            libc::SYS_fspick,
            vec![value(-100), planted(""), value(0)],
        ),
    ];
    all.extend(of_kernels.map(|(name, call, args)| attack(name, call, args)));
    for (number, folder) in LISTED.iter().enumerate() {
        let args = vec![
            Arg::Answer,
            Arg::Scratch(number + 1),
            value(SCRATCH_BYTES as i64),
        ];
        all.push(Attack {
            name: format!("list {folder}"),
            place: Where::Here,
            calls: vec![
                open(folder, libc::O_RDONLY | libc::O_DIRECTORY),
                (libc::SYS_getdents64, args),
            ],
        });
    }
    // It stays when the session ends.
    all.push(Attack {
        name: "leave a process".into(),
        place: Where::LeftBehind,
        calls: Vec::new(),
    });
    all
}

/// Folders that are listed, each into a buffer of its own.
const LISTED: [&str; 9] = [
    "/dev",
    "/home",
    "/proc",
    "/root",
    "/run",
    "/tmp",
    "/tmp/home/kernels/",
    "/tmp/home/kernels/../..",
    "/var/tmp",
];

/// Carries out all attacks and gives the table.
///
/// # Safety
/// `api` is a working OpenCL runtime whose first device is this processor.
pub(crate) unsafe fn report(api: &dyn OpenClApi, token: &str, server: i64) -> String {
    let attacks = attacks(token, server);
    let mut data = Vec::new();
    let mut words = Vec::new();
    // Texts first, so that scratch lies behind them.
    let texts = attacks.iter().flat_map(|attack| &attack.calls);
    let texts = texts
        .flat_map(|(_, args)| args)
        .filter_map(|arg| match arg {
            Arg::Text(text) => Some(text.len() + 2),
            _ => None,
        });
    let scratch = texts.sum::<usize>();
    for attack in &attacks {
        for step in 0..STEPS {
            let Some((call, args)) = attack.calls.get(step) else {
                words.extend([-1; 8]);
                continue;
            };
            let mut line = [0; 8];
            line[0] = *call;
            for (place, arg) in args.iter().enumerate() {
                let (kind, value) = match arg {
                    Arg::Value(value) => (0, *value),
                    Arg::Text(text) => {
                        let at = data.len();
                        data.extend_from_slice(text.as_bytes());
                        // The family of an address is two bytes.
                        if text.starts_with('\u{1}') {
                            data.insert(at + 1, 0);
                        }
                        data.push(0);
                        (IN_DATA, at as i64)
                    }
                    Arg::Scratch(number) => (IN_DATA, (scratch + number * SCRATCH_BYTES) as i64),
                    Arg::Answer => (LAST_ANSWER, 0),
                };
                line[1] |= kind << (2 * place);
                line[2 + place] = value;
            }
            words.extend(line);
        }
    }
    data.resize(scratch + SCRATCHES * SCRATCH_BYTES, 0);
    let places: Vec<i32> = attacks.iter().map(|attack| attack.place as i32).collect();
    // SAFETY: the caller's contract.
    let answers = unsafe { run(api, &words, &places, &mut data) };
    let answers = answers.unwrap_or_else(|status| panic!("the kernel does not run: {status}"));
    let lines = attacks.iter().zip(answers).map(|(attack, answer)| {
        let listed = LISTED
            .iter()
            .position(|folder| attack.name == format!("list {folder}"));
        let answer = match listed {
            Some(number) if answer >= 0 => {
                let at = scratch + (number + 1) * SCRATCH_BYTES;
                names(&data[at..at + answer as usize])
            }
            _ if answer < 0 => error(-answer as i32),
            _ if attack.place == Where::Here => answer.to_string(),
            _ => end(answer as i32),
        };
        format!("{}: {answer}\n", attack.name)
    });
    lines.collect()
}

const IN_DATA: i64 = 1;
const LAST_ANSWER: i64 = 2;

/// How a child ended, by its wait status.
fn end(status: i32) -> String {
    match (status & 0x7f, status >> 8) {
        (0, 0) => "done".into(),
        (0, code) => error(code),
        (libc::SIGSYS, _) => "killed".into(),
        (signal, _) => format!("signal {signal}"),
    }
}

fn error(code: i32) -> String {
    let name = match code {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EBADF => "EBADF",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EINVAL => "EINVAL",
        libc::ESPIPE => "ESPIPE",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        other => return format!("error {other}"),
    };
    name.into()
}

/// The names in what `getdents64` gave; of processes only, in /proc, and without GPUs, which not every machine has.
fn names(mut entries: &[u8]) -> String {
    let mut names = Vec::new();
    while let Some(length) = entries.get(16..18) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let name = entries[19..length].split(|byte| *byte == 0).next();
        names.push(String::from_utf8_lossy(name.unwrap_or_default()).into_owned());
        entries = &entries[length..];
    }
    let in_proc = names.iter().any(|name| name == "self");
    let gpu = ["nvidia", "dri", "kfd", "accel", "mali", "dxg"];
    names.retain(|name| match in_proc {
        true => name.parse::<u32>().is_ok(),
        false => {
            ![".", ".."].contains(&name.as_str()) && !gpu.iter().any(|gpu| name.starts_with(gpu))
        }
    });
    names.sort();
    names.join(" ")
}

/// Runs the kernel of `attacks.cl`.
///
/// # Safety
/// As of [`report`].
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one plain OpenCL program, as in C"
)]
unsafe fn run(
    api: &dyn OpenClApi,
    words: &[i64],
    places: &[i32],
    data: &mut [u8],
) -> Result<Vec<i64>, cl_int> {
    use std::ptr::{null, null_mut};
    let check = |status: cl_int| match status {
        CL_SUCCESS => Ok(()),
        _ => Err(status),
    };
    let source = CString::new(include_str!("attacks.cl")).expect("no NUL");
    let options = format!(
        "-DSTEPS={STEPS} -DIN_DATA={IN_DATA} -DLAST_ANSWER={LAST_ANSWER} -DHERE={} -DLEFT_BEHIND={} -DSYS_FORK={} -DSYS_EXIT_GROUP={} \
         -DSYS_PAUSE={} -DSYS_WAIT4={}",
        Where::Here as i32,
        Where::LeftBehind as i32,
        libc::SYS_fork,
        libc::SYS_exit_group,
        libc::SYS_pause,
        libc::SYS_wait4
    );
    let options = CString::new(options).expect("no NUL");
    let mut answers = vec![0_i64; places.len()];
    let (mut platform, mut device, mut status) = (null_mut(), null_mut(), 0);
    // SAFETY: objects come from the calls before and live to the end; pointers are to memory of the size that is given.
    unsafe {
        check(api.clGetPlatformIDs(1, &raw mut platform, null_mut()))?;
        check(api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &raw mut device, null_mut()))?;
        let context = api.clCreateContext(
            null(),
            1,
            &raw const device,
            None,
            null_mut(),
            &raw mut status,
        );
        check(status)?;
        let queue = api.clCreateCommandQueue(context, device, 0, &raw mut status);
        check(status)?;
        let mut text = source.as_ptr();
        let program = api.clCreateProgramWithSource(
            context,
            1,
            (&raw mut text).cast(),
            null(),
            &raw mut status,
        );
        check(status)?;
        let device_list = &raw const device;
        check(api.clBuildProgram(program, 1, device_list, options.as_ptr(), None, null_mut()))?;
        let kernel = api.clCreateKernel(program, c"attack".as_ptr(), &raw mut status);
        check(status)?;
        let sources: [(*mut std::ffi::c_void, usize); 4] = [
            (words.as_ptr().cast_mut().cast(), size_of_val(words)),
            (places.as_ptr().cast_mut().cast(), size_of_val(places)),
            (data.as_mut_ptr().cast(), data.len()),
            (answers.as_mut_ptr().cast(), size_of_val(&*answers)),
        ];
        let mut buffers = [null_mut(); 4];
        for (index, (from, size)) in sources.into_iter().enumerate() {
            let flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
            buffers[index] = api.clCreateBuffer(context, flags, size, from, &raw mut status);
            check(status)?;
            let place = (&raw const buffers[index]).cast();
            check(api.clSetKernelArg(kernel, index as cl_uint, size_of::<cl_mem>(), place))?;
        }
        let count = places.len() as cl_int;
        check(api.clSetKernelArg(kernel, 4, size_of::<cl_int>(), (&raw const count).cast()))?;
        let one = 1_usize;
        check(api.clEnqueueNDRangeKernel(
            queue,
            kernel,
            1,
            null(),
            &raw const one,
            null(),
            0,
            null(),
            null_mut(),
        ))?;
        for index in [2, 3] {
            let (to, size) = sources[index];
            let buffer = buffers[index];
            check(api.clEnqueueReadBuffer(
                queue,
                buffer,
                CL_TRUE,
                0,
                size,
                to,
                0,
                null(),
                null_mut(),
            ))?;
        }
    }
    Ok(answers)
}
