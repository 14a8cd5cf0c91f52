//! No argument of an application crashes its process, ends its session or leaves a queue stuck: every function that the library exports,
//! hands out by name or has in its dispatch table is called with arguments that mean nothing, that mean something else, or that are as large
//! as can be. The calls come from the declarations, so that none is left out. A few at a time have a process of their own.
//!
//! A pointer leads to memory or is NULL, lists of properties end, and a count is true where memory goes with it: natively too, other ones
//! would end the process. `TOWLINE_HOSTILE_ONLY` names the calls to look at, `TOWLINE_HOSTILE_DRAWS` how often each is made.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::Write;
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towline_api::model::{Api, Call, Extent, Param, Shape, Type};
use towline_backend::opencl::*;
use towline_opencl::{Platform, Provider};
use towline_test::pair::Pair;
use towline_test::tamper::Random;

/// Which calls a child makes.
const CALLS: &str = "TOWLINE_HOSTILE_CALLS";
/// Nothing that a child does takes longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Children at once: most of one is waiting for threads to wake.
const AT_ONCE: usize = 3;
/// Draws of arguments for a function.
const DRAWS: usize = 60;
/// Calls of a child: PoCL takes longer to begin than a call takes.
const OF_ONE: usize = 3;
/// Bytes behind each pointer: more than the largest image that small counts can name.
const AREA: usize = 8 << 20;
/// Words of an area that are filled anew for each call.
const FRESH: usize = 1024;

/// A function with more parameters than any of OpenCL's: those that it does not have are not looked at.
type Function = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> usize;

/// Objects by the names of their types.
type Objects = BTreeMap<&'static str, Vec<usize>>;

/// Kinds of objects that are counted, in the order in which they can be given up.
const COUNTED: [&str; 7] = [
    "Kernel",
    "Program",
    "Event",
    "Sampler",
    "MemObject",
    "CommandQueue",
    "Context",
];

/// The platform of a process, over a session with the device in host memory and one with PoCL.
struct Machine {
    platform: &'static Platform,
    /// Of the check alone: a queue and a buffer for each session.
    checked: Vec<(cl_command_queue, cl_mem)>,
    /// For each session, those that live and those that do not.
    live: Vec<Objects>,
    dead: Vec<Objects>,
}

impl Machine {
    /// Calls that no provider sees do without PoCL, which takes long to begin.
    fn new(with_pocl: bool) -> Self {
        let null = Pair::new(Arc::new(NullOpenCl::discrete(1)));
        let mut providers = Provider::of_session(&null.remote);
        if with_pocl {
            providers.extend(Provider::of_session(&support::session()));
        }
        // The worker lives as long as the process.
        std::mem::forget(null);
        let platform = Platform::of_process(providers).expect("the process has no devices yet");
        let (mut handle, mut devices, mut count) = (null_mut(), [null_mut(); 2], 0);
        // SAFETY: room for one platform, and for two devices.
        unsafe {
            platform.clGetPlatformIDs(1, &raw mut handle, null_mut());
            let (all, place) = (CL_DEVICE_TYPE_ALL, devices.as_mut_ptr());
            platform.clGetDeviceIDs(handle, all, 2, place, &raw mut count);
        }
        let mut this = Self {
            platform,
            checked: Vec::new(),
            live: Vec::new(),
            dead: Vec::new(),
        };
        for device in &devices[..count as usize] {
            let context = this.context(*device);
            let queue = make!(this, clCreateCommandQueue(context, *device, 0)).expect("a queue");
            this.checked.push((queue, this.buffer(context)));
            let (dead, mut live) = (this.objects(*device), this.objects(*device));
            for kind in COUNTED {
                this.each(&dead, &format!("clRelease{kind}"), 1);
                // No call of a test drops the last.
                this.each(&live, &format!("clRetain{kind}"), 64 * DRAWS);
            }
            live.insert("cl_platform_id", vec![handle.addr()]);
            live.insert("cl_device_id", vec![device.addr()]);
            this.dead.push(dead);
            this.live.push(live);
        }
        this
    }

    fn context(&self, device: cl_device_id) -> cl_context {
        let devices = &raw const device;
        make!(self, clCreateContext(null(), 1, devices, None, null_mut())).expect("a context")
    }

    fn buffer(&self, context: cl_context) -> cl_mem {
        let flags = CL_MEM_READ_WRITE;
        make!(self, clCreateBuffer(context, flags, 4096, null_mut())).expect("a buffer")
    }

    /// Objects of each kind that the device has, which no command waits for.
    fn objects(&self, device: cl_device_id) -> Objects {
        let (context, none) = (self.context(device), null_mut());
        let queue = make!(self, clCreateCommandQueue(context, device, 0)).expect("a queue");
        let buffers = [self.buffer(context), self.buffer(context)];
        let user = make!(self, clCreateUserEvent(context)).expect("an event");
        ok!(self, clSetUserEventStatus(user, CL_COMPLETE));
        let (mut filled, factor) = (null_mut(), 3_u32);
        let pattern = (&raw const factor).cast();
        let (buffer, event) = (buffers[0], &raw mut filled);
        ok!(
            self,
            clEnqueueFillBuffer(queue, buffer, pattern, 4, 0, 16, 0, null(), event)
        );
        ok!(self, clFinish(queue));
        let mut text = c"kernel void k(global uint *a, uint b) { a[0] = b; }".as_ptr();
        let strings = &raw mut text;
        let source = make!(self, clCreateProgramWithSource(context, 1, strings, null()));
        let source = source.expect("a program");
        let (devices, names) = (&raw const device, c"add_one;scale".as_ptr());
        let built_in = make!(
            self,
            clCreateProgramWithBuiltInKernels(context, 1, devices, names)
        );
        let mut objects = vec![
            ("cl_context", context.cast()),
            ("cl_command_queue", queue.cast()),
            ("cl_mem", buffers[0].cast()),
            ("cl_mem", buffers[1].cast()),
            ("cl_event", user.cast()),
            ("cl_event", filled.cast()),
            ("cl_program", source.cast()),
        ];
        // PoCL compiles, and has images; the other device has kernels already. PoCL's kernel has no arguments: a large launch takes its time
        // there, natively too.
        match built_in {
            Ok(built_in) => {
                let kernel = make!(self, clCreateKernel(built_in, c"scale".as_ptr()));
                let kernel = kernel.expect("a kernel");
                ok!(
                    self,
                    clSetKernelArg(kernel, 0, 8, (&raw const buffer).cast())
                );
                ok!(self, clSetKernelArg(kernel, 1, 4, pattern));
                objects.extend([
                    ("cl_program", built_in.cast()),
                    ("cl_kernel", kernel.cast()),
                ]);
            }
            Err(_) => {
                ok!(self, clBuildProgram(source, 0, null(), null(), None, none));
                let kernel = make!(self, clCreateKernel(source, c"k".as_ptr()));
                let format = cl_image_format {
                    image_channel_order: CL_RGBA,
                    image_channel_data_type: CL_UNSIGNED_INT8,
                };
                let (format, flags) = (&raw const format, CL_MEM_READ_WRITE);
                let image = make!(
                    self,
                    clCreateImage2D(context, flags, format, 16, 16, 0, none)
                );
                let (clamp, nearest) = (CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
                let sampler = make!(self, clCreateSampler(context, CL_FALSE, clamp, nearest));
                objects.extend([
                    ("cl_kernel", kernel.expect("a kernel").cast()),
                    ("cl_mem", image.expect("an image").cast()),
                    ("cl_sampler", sampler.expect("a sampler").cast()),
                ]);
            }
        }
        // SAFETY: the context lives.
        let shared = unsafe {
            self.platform
                .clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0)
        };
        if !shared.is_null() {
            objects.push(("shared memory", shared));
        }
        let mut by_kind = Objects::new();
        for (kind, object) in objects {
            let object: *mut c_void = object;
            by_kind.entry(kind).or_default().push(object.addr());
        }
        by_kind
    }

    fn each(&self, objects: &Objects, name: &str, times: usize) {
        let api = declared();
        let call = api.call(name).expect("it is declared");
        let Some(Type::Handle(kind)) = call.params.first().map(|param| &param.ty) else {
            panic!("{name} takes no handle");
        };
        let function = function(name);
        for object in objects.get(kind.as_str()).into_iter().flatten() {
            for _ in 0..times {
                // SAFETY: the object lives, and the function takes its handle alone.
                let status = unsafe { call_with(function, &[*object]) };
                assert_eq!(status as cl_int, CL_SUCCESS, "{name}");
            }
        }
    }

    /// Fails unless each session takes data and gives it back.
    fn use_devices(&self) -> Result<(), String> {
        for &(queue, buffer) in &self.checked {
            let (from, mut to) = ([7_u8; 64], [0_u8; 64]);
            let (source, target) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
            let (list, event) = (null(), null_mut());
            // SAFETY: queue and buffer are the check's own, and both calls wait.
            let statuses = unsafe {
                let platform = self.platform;
                [
                    platform.clEnqueueWriteBuffer(queue, buffer, 1, 0, 64, source, 0, list, event),
                    platform.clEnqueueReadBuffer(queue, buffer, 1, 0, 64, target, 0, list, event),
                ]
            };
            if statuses != [CL_SUCCESS; 2] || from != to {
                return Err(format!("a device is of no use: {statuses:?}"));
            }
        }
        Ok(())
    }
}

fn declared() -> Api {
    towline_api::load(&towline_api::root(), "opencl").expect("the declarations are sound")
}

fn function(name: &str) -> Function {
    let address = towline_opencl::exported(name).unwrap_or_else(|| panic!("no {name}"));
    // SAFETY: every function takes words, and fewer of them.
    unsafe { std::mem::transmute::<*const c_void, Function>(address) }
}

/// # Safety
/// The contract of the function, as far as it holds natively.
unsafe fn call_with(function: Function, given: &[usize]) -> usize {
    let mut words = [0; 16];
    words[..given.len()].copy_from_slice(given);
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = words;
    // SAFETY: the caller's contract.
    unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) }
}

/// A function of the application that takes what it is given.
extern "C" fn called_back(_: usize, _: usize, _: usize, _: usize) {}

/// Whether a parameter says how far a pointer points.
fn counts(call: &Call, param: &Param) -> bool {
    let said = call.params.iter().any(|other| match &other.shape {
        Shape::Input { extent, .. }
        | Shape::Output { extent, .. }
        | Shape::InOut { extent, .. } => match extent {
            Extent::Len(expr) | Extent::Bytes(expr) => expr.param.as_ref() == Some(&param.name),
            _ => false,
        },
        _ => false,
    });
    let words = [
        "num", "count", "len", "size", "bytes", "pitch", "height", "width", "depth", "cb_",
    ];
    said || words.iter().any(|word| param.name.contains(word))
}

/// One choice of arguments for a call.
struct Draw<'a> {
    api: &'a Api,
    call: &'a Call,
    machine: &'a Machine,
    areas: &'a mut [Vec<u64>],
    random: Random,
    /// The session whose objects are taken.
    home: usize,
    /// All objects live and belong together.
    calm: bool,
    /// Counts are true, so that pointers may lead to memory.
    sized: bool,
    /// The contents of lists of sizes: places and regions of one call belong together.
    sizes: usize,
}

impl Draw<'_> {
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.below(values.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.random.below(of) == 0
    }

    fn handle(&mut self, kind: &str) -> usize {
        let of = |sessions: &[Objects], home: usize, kind: &str| {
            let objects = sessions[home].get(kind).cloned();
            objects.unwrap_or(vec![0])
        };
        let machine = self.machine;
        let ours = of(&machine.live, self.home, kind);
        let other = match kind {
            "cl_mem" => "cl_command_queue",
            _ => "cl_mem",
        };
        let choice = match self.calm {
            true => usize::MAX,
            false => self.random.below(12),
        };
        match choice {
            0 => 0,
            1 => self.one_of(&ours).wrapping_add(8),
            2 => self.one_of(&[usize::MAX, 64, 1 << 47, ours[0].wrapping_add(64 << 20)]),
            3 => self.one_of(&of(&machine.live, self.home, other)),
            4 => self.one_of(&of(&machine.dead, self.home, kind)),
            5 => self.one_of(&of(&machine.live, machine.live.len() - 1 - self.home, kind)),
            _ => self.one_of(&ours),
        }
    }

    /// A parameter's own object. Memory that is an image's is the last of its kind.
    fn named(&mut self, kind: &str, param: &Param) -> usize {
        let image = kind == "cl_mem" && param.name.contains("image");
        let memory = self.machine.live[self.home].get(kind);
        match memory.and_then(|memory| memory.last()) {
            Some(last) if image && self.calm => *last,
            _ => self.handle(kind),
        }
    }

    fn constant(&mut self, name: &str) -> Option<usize> {
        let number = |text: &str| -> Option<usize> {
            let text = text.trim();
            if let Some((one, shift)) = text.split_once("<<") {
                let shift: u32 = shift.trim().parse().ok()?;
                return one.trim().parse::<usize>().ok()?.checked_shl(shift);
            }
            match text.strip_prefix("0x") {
                Some(digits) => usize::from_str_radix(digits, 16).ok(),
                None => text.parse::<isize>().ok().map(isize::cast_unsigned),
            }
        };
        let of_type = self.api.constants.iter().filter(|(_, ty, _)| ty == name);
        let values: Vec<usize> = of_type.filter_map(|(_, _, value)| number(value)).collect();
        (!values.is_empty()).then(|| self.one_of(&values))
    }

    fn scalar(&mut self, name: &str, param: &Param) -> usize {
        if counts(self.call, param) {
            let top = 1 << 63;
            return match self.sized {
                true => self.one_of(&[0, 1, 2, 3, 4, 8, 16, 64]),
                false => self.one_of(&[
                    0,
                    1,
                    4,
                    1 << 32,
                    (1 << 61) + 1,
                    top,
                    usize::MAX - 3,
                    usize::MAX,
                ]),
            };
        }
        let constant = self.constant(name);
        match (constant, self.random.below(3)) {
            (Some(value), 1..) => value,
            _ => self.one_of(&[
                0,
                1,
                2,
                60,
                4095,
                1 << 31,
                1 << 32,
                1 << 63,
                usize::MAX - 63,
                usize::MAX,
            ]),
        }
    }

    /// A list of properties that ends: of known names or others, with values that may be handles.
    fn properties(&mut self, area: usize, of: &str) {
        let pairs = self.one_of(&[0, 1, 2, 3, 400]);
        for pair in 0..pairs {
            let name = match (self.constant(of), self.chance(4)) {
                (Some(name), false) => name,
                _ => 1 + self.random.below(1 << 20),
            };
            let value = match self.random.below(4) {
                0 => usize::MAX,
                1 => self.random.below(8),
                2 => self.handle("cl_platform_id"),
                _ => self.handle("cl_context"),
            };
            // A name of zero would end the list, which is right too.
            self.areas[area][2 * pair..2 * pair + 2].copy_from_slice(&[name as u64, value as u64]);
        }
        self.areas[area][2 * pairs] = 0;
    }

    fn structure(&mut self, area: usize, name: &str) {
        let mem = self.handle("cl_mem") as u64;
        let kinds = [
            CL_MEM_OBJECT_IMAGE2D,
            CL_MEM_OBJECT_IMAGE3D,
            CL_MEM_OBJECT_IMAGE1D,
            0x10f5,
            CL_MEM_OBJECT_IMAGE1D_BUFFER,
        ];
        let kind = u64::from(self.one_of(&kinds));
        let side = self.one_of(&[0, 1, 16, 16, 16, 1 << 32, 1 << 63, u64::MAX]);
        let sides = [
            side,
            self.one_of(&[0, 1, 16, side]),
            self.one_of(&[0, 1, side]),
        ];
        let words = match name {
            "cl_image_format" => {
                let (order, kind) = (
                    self.one_of(&[CL_RGBA, CL_R, 0, u32::MAX]),
                    self.one_of(&[CL_UNSIGNED_INT8, CL_FLOAT, u32::MAX]),
                );
                vec![u64::from(order) | u64::from(kind) << 32]
            }
            "cl_image_desc" => {
                let mem = self.one_of(&[0, 0, mem]);
                vec![
                    kind,
                    sides[0],
                    sides[1],
                    sides[2],
                    self.one_of(&[0, 1, side]),
                    0,
                    0,
                    0,
                    mem,
                ]
            }
            _ => vec![
                self.one_of(&[0, 1, 128, side]),
                self.one_of(&[0, 16, 4096, side]),
            ],
        };
        self.areas[area][..words.len()].copy_from_slice(&words);
    }

    /// The target of a pointer.
    fn pointer(&mut self, index: usize, param: &Param, to: &Type) -> usize {
        let once = matches!(
            param.shape,
            Shape::ErrCode
                | Shape::SizeOf
                | Shape::Output {
                    extent: Extent::One,
                    ..
                }
        );
        if (!self.sized && !once) || self.chance(if self.calm { 12 } else { 4 }) {
            return 0;
        }
        let start = self.areas[index].as_ptr().expose_provenance();
        let small = self.sizes <= 64;
        match to {
            Type::Handle(kind) => {
                for at in 0..64 {
                    self.areas[index][at] = self.handle(kind) as u64;
                }
            }
            Type::Scalar(name, _)
                if matches!(
                    param.shape,
                    Shape::Input {
                        extent: Extent::List,
                        ..
                    }
                ) =>
            {
                self.properties(index, name);
            }
            Type::Scalar(name, _) if name == "usize" => {
                let sizes = self.sizes as u64;
                self.areas[index][..64].fill(sizes);
            }
            // Lengths go with the lists of pointers that they are for.
            Type::Pointer { .. } if small && !self.chance(3) => {
                let target = self.areas[15].as_ptr().expose_provenance();
                self.areas[index][..64].fill(target as u64);
            }
            Type::Pointer { .. } => {}
            Type::Struct(name) => self.structure(index, name),
            Type::Char => {
                let text: &[u8] =
                    self.one_of(&[b"", b"scale", b"-I . -D", b"add_one;;scale", &[0xff; 3000]]);
                let words = text.chunks(8).map(|bytes| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_ne_bytes(word)
                });
                let place = &mut self.areas[index];
                words.zip(place).for_each(|(word, place)| *place = word);
            }
            _ => {
                // Pointers among it, for a program's binaries, lead nowhere.
                let is_answer = matches!(param.shape, Shape::Output { .. });
                let word = match self.random.below(4) {
                    _ if is_answer => 0,
                    0 => 0,
                    1 => u64::MAX,
                    2 => self.handle("cl_mem") as u64,
                    _ => 3,
                };
                self.areas[index][..64].fill(word);
                let shared = self.machine.live[self.home].get("shared memory");
                let of_shared = self.call.name.contains("SVM") && !self.call.name.contains("Free");
                if let Some(shared) = shared.filter(|_| of_shared).map(|shared| shared[0])
                    && self.chance(2)
                {
                    return shared + self.one_of(&[0, 0, 1, 2048]);
                }
                if matches!(to, Type::Void) {
                    return start + self.one_of(&[0, 0, 1, 4]);
                }
            }
        }
        start
    }

    fn words(&mut self) -> Vec<usize> {
        let call = self.call;
        let each = call.params.iter().enumerate();
        each.map(|(index, param)| match &param.ty {
            Type::Pointer { to, .. } => self.pointer(index, param, to),
            Type::Handle(kind) => self.named(kind, param),
            Type::Scalar(name, _) => self.scalar(name, param),
            Type::Function(_) => match self.chance(2) {
                true => called_back as *const () as usize,
                false => 0,
            },
            _ => 0,
        })
        .collect()
    }
}

/// The child: each of its functions again and again.
#[test]
fn some_calls() {
    let Ok(names) = std::env::var(CALLS) else {
        return;
    };
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        println!("because a thread panicked: {info}");
        std::process::exit(1);
    }));
    let draws = std::env::var("TOWLINE_HOSTILE_DRAWS").ok();
    let draws = draws.map_or(DRAWS, |draws| draws.parse().expect("it must be a number"));
    let api = declared();
    let calls: Vec<&Call> = names
        .split(',')
        .map(|name| api.call(name).unwrap())
        .collect();
    let machine = Machine::new(calls.iter().any(|call| call.served()));
    let mut areas = vec![vec![0_u64; AREA / 8]; 16];
    for call in calls {
        for seed in 1..=draws {
            draw(&api, call, &machine, &mut areas, seed);
        }
    }
    println!("done");
    // All else ends with the process.
    std::process::exit(0);
}

/// Calls a function with the arguments of a seed.
fn draw(api: &Api, call: &Call, machine: &Machine, areas: &mut [Vec<u64>], seed: usize) {
    areas.iter_mut().for_each(|area| area[..FRESH].fill(0));
    let mut random = Random::new(seed as u64);
    let (home, calm) = (random.below(machine.live.len()), random.below(2) == 0);
    let sized = random.below(4) > 0;
    let sizes = [
        0,
        1,
        1,
        2,
        3,
        3,
        1 << 32,
        1 << 63,
        (1 << 63) + 1,
        usize::MAX,
    ];
    let sizes = sizes[random.below(sizes.len())];
    let mut draw = Draw {
        api,
        call,
        machine,
        areas,
        home,
        calm,
        random,
        sized,
        sizes,
    };
    let words = draw.words();
    println!("{}: draw {seed}: {words:x?}", call.name);
    std::io::stdout().flush().unwrap();
    // SAFETY: pointers lead to memory or nowhere, and counts are true where they do.
    unsafe { call_with(function(&call.name), &words) };
    if let Err(why) = machine.use_devices() {
        println!("because {why}");
        std::process::exit(1);
    }
}

/// How calls ended their process, and which of them with which arguments; `None` if all went well.
fn fate(calls: &str) -> Option<String> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "some_calls", "--nocapture"])
        .env(CALLS, calls)
        .env("RUST_BACKTRACE", "0")
        .env("TOWLINE_LOG", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    let mut output = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = std::io::Read::read_to_end(&mut output, &mut text);
        read.map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let began = Instant::now();
    let hangs = loop {
        match child.try_wait().unwrap() {
            Some(_) => break false,
            None if began.elapsed() > PATIENCE => {
                child.kill().unwrap();
                break true;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let status = child.wait().unwrap();
    let text = reader.join().unwrap().unwrap();
    if !hangs && status.success() && text.contains("done") {
        return None;
    }
    let last = text.lines().rfind(|line| line.contains(": draw "));
    let why = text.lines().find_map(|line| line.strip_prefix("because "));
    let why = match hangs {
        true => "it hangs",
        false => why.unwrap_or("it crashed"),
    };
    Some(format!("{}: {status} {why}", last.unwrap_or(calls)))
}

#[test]
fn dispatch_table_holds_the_functions_found_by_name() {
    let (api, machine) = (declared(), Machine::new(false));
    let object: *const *const *const c_void = machine.checked[0].0.cast_const().cast();
    for (place, name) in api.dispatch_order.iter().enumerate() {
        // SAFETY: an object begins with the address of the table, which has an entry for each name.
        let entry = unsafe { *(*object).add(place) };
        assert_eq!(Some(entry), towline_opencl::exported(name), "{name}");
    }
}

#[test]
fn hostile_arguments_of_any_call_harm_no_session() {
    let only = std::env::var("TOWLINE_HOSTILE_ONLY").unwrap_or_default();
    let api = declared();
    let exported = api.calls.iter().filter(|call| call.exported());
    let is_wanted = |call: &&Call| only.is_empty() || only.split(',').any(|one| one == call.name);
    let mut wanted: Vec<&Call> = exported.filter(is_wanted).collect();
    assert!(!wanted.is_empty(), "there is no {only}");
    wanted.sort_by_key(|call| !call.served());
    let names: Vec<&str> = wanted.iter().map(|call| call.name.as_str()).collect();
    let children: Vec<String> = names.chunks(OF_ONE).map(|calls| calls.join(",")).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(calls) = children.get(next.fetch_add(1, Ordering::Relaxed)) {
                    found.lock().unwrap().extend(fate(calls));
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    println!("{} calls", wanted.len());
    let all = found.join("\n");
    assert!(found.is_empty(), "{} processes:\n{all}", found.len());
}
