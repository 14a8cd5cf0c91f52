//! No argument of an application ends its session: every function that the library exports is called with arguments that mean nothing, that
//! mean something else, or that are as large as can be. The calls come from the declarations, so that none is left out. Each runs in a
//! process of its own, because what it leaves is nobody's to clean up.
//!
//! A pointer leads to memory or is NULL, and what says how far it leads is true where it leads to memory: natively too, other ones would
//! end the process. `TOWLINE_HOSTILE_ONLY` names the calls to look at.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

#[allow(unused_macros, reason = "the rules of every device are elsewhere")]
mod support;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::Write;
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::Machine;
use towline_api::emit::symbols;
use towline_api::model::{Api, Call, Extent, Param, Shape, Type};
use towline_backend::cuda::*;
use towline_cuda::Driver;

/// Which calls a child makes.
const CALLS: &str = "TOWLINE_HOSTILE_CALLS";
/// Nothing that a child does takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls of a child. Where one of them harms those behind it, each has a child of its own.
const OF_ONE: usize = 8;
/// Children at once: most of one is waiting for threads to wake.
const AT_ONCE: usize = 3;

/// A function with more parameters than any of the driver's: those that it does not have are not looked at.
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
) -> CUresult;

/// Values that arguments are made of.
struct Pieces {
    /// Live objects by the names of their types.
    objects: BTreeMap<&'static str, usize>,
    /// Memory of the device.
    device: usize,
    /// Memory of the host, all zeros.
    host: Vec<u64>,
}

impl Pieces {
    fn new(machine: &Machine) -> Self {
        let driver = &machine.driver;
        let device = machine.filled(&[0; 4096]) as usize;
        let stream = machine.stream();
        let image = c".version 7.0\n.target sm_70\n.address_size 64\n\
            .visible .global .align 4 .u32 g;\n.visible .entry k() { ret; }\n";
        let (mut event, mut pool, mut module, mut function) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        let (mut graph, mut exec) = (null_mut(), null_mut());
        let (mut library, mut kernel) = (null_mut(), null_mut());
        // SAFETY: the places are locals, and texts are strings. A device may refuse the image.
        unsafe {
            driver.cuEventCreate(&raw mut event, 0);
            driver.cuDeviceGetDefaultMemPool(&raw mut pool, 0);
            driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast());
            driver.cuModuleGetFunction(&raw mut function, module, c"k".as_ptr());
            driver.cuLibraryLoadData(
                &raw mut library,
                image.as_ptr().cast(),
                null_mut(),
                null_mut(),
                0,
                null_mut(),
                null_mut(),
                0,
            );
            driver.cuLibraryGetKernel(&raw mut kernel, library, c"k".as_ptr());
            driver.cuGraphCreate(&raw mut graph, 0);
            driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0);
            // Calls that the device lacks fail at this wait.
            driver.cuCtxSynchronize();
        }
        let objects = [
            ("CUcontext", machine.contexts[0].addr()),
            ("CUstream", stream.addr()),
            ("CUevent", event.addr()),
            ("CUmemoryPool", pool.addr()),
            ("CUmodule", module.addr()),
            ("CUfunction", function.addr()),
            ("CUlibrary", library.addr()),
            ("CUkernel", kernel.addr()),
            ("CUgraph", graph.addr()),
            ("CUgraphExec", exec.addr()),
        ];
        Self {
            objects: objects.into(),
            device,
            host: vec![0; 8192],
        }
    }

    fn object(&self, name: &str) -> usize {
        self.objects.get(name).copied().unwrap_or(0)
    }

    /// An object of another kind.
    fn other(&self, name: &str) -> usize {
        self.object(match name {
            "CUstream" => "CUevent",
            _ => "CUstream",
        })
    }
}

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
    let name = param.name.to_lowercase();
    let words = [
        "num", "count", "len", "size", "bytes", "pitch", "height", "width",
    ];
    said || words.iter().any(|word| name.contains(word))
}

/// Arguments of a call, by the name of the idea.
fn argument(idea: &str, call: &Call, param: &Param, pieces: &Pieces) -> usize {
    let host = pieces.host.as_ptr().expose_provenance();
    let huge = usize::MAX;
    match &param.ty {
        Type::Pointer { .. } => match idea {
            "nothing" | "huge, no memory" | "huge, live objects" => 0,
            _ => host,
        },
        Type::Handle(name) => match idea {
            "nothing" | "memory" => 0,
            "huge, no memory" => huge,
            "other objects" => pieces.other(name),
            _ => pieces.object(name),
        },
        Type::Scalar(name, _) => match idea {
            "nothing" | "memory" => 0,
            "huge, no memory" | "huge, live objects" => huge,
            "huge, short" if !counts(call, param) => huge,
            "device memory, huge" if name != "CUdeviceptr" => huge,
            _ if name == "CUdeviceptr" => pieces.device + 1,
            _ => 1,
        },
        _ => 0,
    }
}

fn ideas(call: &Call) -> Vec<&'static str> {
    let mut ideas = vec![
        "nothing",
        "huge, no memory",
        "huge, live objects",
        "memory",
        "one of each",
        "other objects",
        "huge, short",
    ];
    let takes_memory =
        |param: &Param| matches!(&param.ty, Type::Scalar(name, _) if name == "CUdeviceptr");
    if call.params.iter().any(takes_memory) {
        ideas.push("device memory, huge");
    }
    ideas
}

/// Fails unless the session lives and moves data.
fn use_device(machine: &(Vec<CUcontext>, &'static Driver)) -> Result<(), String> {
    let (contexts, driver) = machine;
    let (mut mode, mut stream, mut place) = (CU_STREAM_CAPTURE_MODE_RELAXED, null_mut(), 0);
    let (from, mut to) = ([7_u8; 64], [0_u8; 64]);
    // SAFETY: the places are locals, and live until the stream has been waited for.
    let outcomes = unsafe {
        let mut context = null_mut();
        // A call may have reset it.
        driver.cuDevicePrimaryCtxRetain(&raw mut context, 0);
        driver.cuCtxSetCurrent(contexts[0]);
        // Posted work fails at a wait.
        for _ in 0..4 {
            driver.cuMemAlloc_v2(&raw mut place, 64);
            driver.cuMemsetD8_v2(place, 1, 64);
            driver.cuCtxSynchronize();
            driver.cuMemFree_v2(place);
        }
        [
            driver.cuCtxSetCurrent(contexts[0]),
            driver.cuThreadExchangeStreamCaptureMode(&raw mut mode),
            driver.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING),
            driver.cuMemAlloc_v2(&raw mut place, 64),
            driver.cuMemcpyHtoDAsync_v2(place, from.as_ptr().cast(), 64, stream),
            driver.cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), place, 64, stream),
            driver.cuStreamSynchronize(stream),
            driver.cuMemFree_v2(place),
            driver.cuStreamDestroy_v2(stream),
            driver.cuThreadExchangeStreamCaptureMode(&raw mut mode),
        ]
    };
    match outcomes == [CUDA_SUCCESS; 10] && from == to {
        true => Ok(()),
        false => Err(format!("the device is of no use: {outcomes:?}")),
    }
}

fn declared() -> Api {
    towline_api::load(&towline_api::root(), "cuda").expect("the declarations are sound")
}

/// The child: calls under all of their names.
#[test]
fn some_calls() {
    let Ok(names) = std::env::var(CALLS) else {
        return;
    };
    let api = declared();
    let machine = Machine::on_soft();
    let mut pieces = Pieces::new(&machine);
    let Machine {
        driver,
        sessions,
        contexts,
        ..
    } = machine;
    let driver = driver.into_process().map_err(drop).expect("there is none");
    let machine = (contexts, driver);
    let calls = names.split(',').map(|name| {
        let mut all = api.calls.iter();
        all.find(|call| call.name == name).unwrap()
    });
    for (call, symbol) in calls.flat_map(|call| {
        let names = symbols::of(&api, call).into_iter();
        names.map(move |symbol| (call, symbol))
    }) {
        let address = towline_cuda::exported(&symbol.name).unwrap_or(null());
        assert!(!address.is_null(), "{} is not exported", symbol.name);
        // SAFETY: every exported function takes words, and fewer of them.
        let function: Function = unsafe { std::mem::transmute::<*const c_void, _>(address) };
        for idea in ideas(call) {
            println!("{}: {idea}", symbol.name);
            std::io::stdout().flush().unwrap();
            pieces.host.fill(0);
            let mut words = [0; 16];
            for (word, param) in words.iter_mut().zip(&call.params) {
                *word = argument(idea, call, param, &pieces);
            }
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = words;
            // SAFETY: pointers lead to memory or nowhere; what a count makes of that is what is tried.
            unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) };
            let lost = sessions[0]
                .lost()
                .map(|reason| format!("the session ended: {reason}"));
            let useless = || {
                use_device(&machine)
                    .err()
                    .map(|found| format!("{found}, {:?}", sessions[0].lost()))
            };
            if let Some(reason) = lost.or_else(useless) {
                println!("because {reason}");
                std::process::exit(1);
            }
        }
    }
    println!("done");
    // All else ends with the process.
    std::process::exit(0);
}

/// How calls ended their process, which of them, and with which arguments; `None` if all went well.
fn fate(calls: &str) -> Option<String> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "some_calls", "--nocapture"])
        .env(CALLS, calls)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
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
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !hangs && output.status.success() && text.contains("done") {
        return None;
    }
    let is_of = |line: &&str| {
        let mut calls = calls.split(',');
        calls.any(|call| line.starts_with(call_stem(call)))
    };
    let last = text.lines().rfind(is_of);
    let why = text.lines().find_map(|line| line.strip_prefix("because "));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let panicked = errors.lines().find(|line| line.contains("panicked at"));
    let why = match hangs {
        true => "it hangs",
        false => why.or(panicked).unwrap_or("it crashed"),
    };
    Some(format!(
        "{}: {} {why}",
        last.unwrap_or(calls),
        output.status
    ))
}

/// Common beginning of a call's names.
fn call_stem(call: &str) -> &str {
    call.split("_v").next().unwrap_or(call)
}

#[test]
fn no_argument_of_any_call_ends_a_session() {
    let only = std::env::var("TOWLINE_HOSTILE_ONLY").unwrap_or_default();
    let api = declared();
    let exported = api.calls.iter().filter(|call| call.exported());
    let is_wanted = |call: &&Call| only.is_empty() || only.split(',').any(|one| one == call.name);
    let wanted: Vec<&Call> = exported.filter(is_wanted).collect();
    let names: Vec<&str> = wanted.iter().map(|call| call.name.as_str()).collect();
    let children: Vec<&[&str]> = names.chunks(OF_ONE).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(calls) = children.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if fate(&calls.join(",")).is_some() {
                        let fates = calls.iter().filter_map(|call| fate(call));
                        found.lock().unwrap().extend(fates);
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    println!("{} calls", wanted.len());
    let all = found.join("\n");
    assert!(found.is_empty(), "{} calls:\n{all}", found.len());
}
