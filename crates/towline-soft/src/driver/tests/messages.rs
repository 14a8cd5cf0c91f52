//! Messages to programs: of faults, of what cannot run, of images that are none.

use std::sync::Mutex;

use towline_ptx::fatbin::{Container, choose_text};

use super::*;

/// The messages that a function of the program is told.
fn heard(cuda: &SoftCuda) -> Arc<Mutex<Vec<String>>> {
    unsafe extern "C" fn ear(
        data: *mut c_void,
        _level: CUlogLevel,
        message: *mut c_char,
        length: usize,
    ) {
        // SAFETY: the data is what was registered, which is never freed.
        let all = unsafe { &*data.cast::<Arc<Mutex<Vec<String>>>>() };
        // SAFETY: the message has this length.
        let text = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), length) };
        lock(all).push(String::from_utf8_lossy(text).into_owned());
    }
    let all: Arc<Mutex<Vec<String>>> = Arc::default();
    let data = Box::into_raw(Box::new(Arc::clone(&all))).cast();
    let mut registered = null_mut();
    // SAFETY: the function takes this data; one place for the handle.
    check(unsafe { cuda.cuLogsRegisterCallback(Some(ear), data, &raw mut registered) });
    all
}

/// A module's text with the lines that nvcc writes for debuggers.
const STRAYS: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry strays(.param .u64 at)\n{\n\
.reg .b64 %d<2>;\n.loc 1 42 9\nld.param.u64 %d0, [at];\n.loc 1 43 5\nst.global.u32 [%d0+256], 7;\nret;\n}\n\
.file 1 \"/home/u/strays.cu\", 1700000000, 100\n";

#[test]
fn fault_is_told_with_place_neighbour_and_remedy() {
    let cuda = devices(SoftOptions::default());
    let all = heard(&cuda);
    let module = module(&cuda, STRAYS).expect("a module");
    let strays = function(&cuda, module, c"strays");
    let data = allocate(&cuda, 240);
    let default = null_mut();
    check(launch(&cuda, strays, (1, 1), default, &mut [data]));
    assert_eq!(synchronize(&cuda, default), CUDA_ERROR_ILLEGAL_ADDRESS);
    let expected = format!(
        "kernel `strays`: invalid write of 4 bytes at global address {:#x}, 16 bytes past the end of the allocation of 240 bytes at \
         {data:#x}: block (0, 0, 0), thread (0, 0, 0), /home/u/strays.cu:43, PTX line 10, column 1: `st.global.u32 [%d0+256], 7;`; \
         compare the index with the length of the array before the access",
        data + 256
    );
    assert_eq!(*lock(&all), [expected]);
}

#[test]
fn fault_in_shared_memory_is_told_with_its_size() {
    let cuda = devices(SoftOptions::default());
    let all = heard(&cuda);
    let image = c".version 8.0\n.target sm_75\n.address_size 64\n.shared .align 4 .b8 own[64];\n.func reads() {\n.reg .b32 r;\n\
        ld.shared.u32 r, [own+64];\nret;\n}\n.visible .entry k() { call reads; ret; }\n";
    let module = module(&cuda, image).expect("a module");
    let kernel = function(&cuda, module, c"k");
    check(launch(&cuda, kernel, (1, 1), null_mut(), &mut []));
    assert_eq!(synchronize(&cuda, null_mut()), CUDA_ERROR_ILLEGAL_ADDRESS);
    let expected = "kernel `k`: invalid read of 4 bytes at shared address 0x40, where the block has 64 bytes: block (0, 0, 0), \
        thread (0, 0, 0), in `reads`, PTX line 7, column 1: `ld.shared.u32 r, [own+64];`; compare the index with the length of the \
        array before the access";
    assert_eq!(*lock(&all), [expected]);
}

#[test]
fn refused_launches_are_told_once_and_counted() {
    let cuda = devices(SoftOptions::default());
    let all = heard(&cuda);
    let module = module(&cuda, PROGRAM).expect("a module");
    let textures = function(&cuda, module, c"textures");
    for _ in 0..12 {
        let refused = launch(&cuda, textures, (1, 1), null_mut(), &mut []);
        assert_eq!(refused, CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    let all = lock(&all);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(
        all[0].starts_with(
            "cannot run on this software device: kernel `textures`: PTX line 12, column 30: the instruction `wgmma` is not supported; "
        ),
        "{}",
        all[0]
    );
    assert_eq!(all[1], "textures: cannot run here, 10 times by now");
}

/// Loads an image with logs of errors and remarks.
fn load_logged(cuda: &SoftCuda, image: &[u8]) -> (CUresult, String, String) {
    let (mut error, mut info) = ([0_u8; 4096], [0_u8; 4096]);
    let mut options = [
        CU_JIT_ERROR_LOG_BUFFER,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        CU_JIT_INFO_LOG_BUFFER,
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
    ];
    let room = std::ptr::without_provenance_mut(error.len());
    let mut values: [*mut c_void; 4] = [
        error.as_mut_ptr().cast(),
        room,
        info.as_mut_ptr().cast(),
        room,
    ];
    let (names, places) = (options.as_mut_ptr(), values.as_mut_ptr());
    let (mut module, start) = (null_mut(), image.as_ptr().cast());
    // SAFETY: the image has its headers or ends with a NUL; four options, whose buffers have the room that they say.
    let status = unsafe { cuda.cuModuleLoadDataEx(&raw mut module, start, 4, names, places) };
    let [_, errors, _, infos] = values.map(|value| value.addr());
    let text = |log: &[u8], len: usize| {
        let none = if len == log.len() { 0 } else { len };
        String::from_utf8_lossy(&log[..none]).into_owned()
    };
    (status, text(&error, errors), text(&info, infos))
}

const NEEDS_80: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n wgmma.fence.sync.aligned;\n ret;\n}\n";

#[test]
fn module_that_cannot_run_is_refused_with_the_compiler_s_log() {
    let cuda = devices(SoftOptions::default());
    let all = heard(&cuda);
    let text = |text: &str| [text.as_bytes(), &[0]].concat();
    let (status, error, _) = load_logged(
        &cuda,
        &text(".version 8.0\n.target sm_75\n.entry k() {\n nonsense\n}"),
    );
    assert_eq!(status, CUDA_ERROR_INVALID_PTX);
    assert!(
        error.starts_with("ptxas application ptx input, line 5; error   : "),
        "{error}"
    );
    assert!(
        error.ends_with("ptxas fatal   : Ptx assembly aborted due to errors\n"),
        "{error}"
    );

    let (status, error, _) = load_logged(&cuda, &text(NEEDS_80));
    assert_eq!(status, CUDA_ERROR_INVALID_PTX);
    assert!(
        error.starts_with("ptxas application ptx input, line 5; error   : "),
        "{error}"
    );
    assert!(error.contains(", in `k` (column 2)\n"), "{error}");
    assert!(
        error.contains("nvcc -gencode arch=compute_75,code=compute_75"),
        "{error}"
    );

    let newer = NEEDS_80
        .replace("8.0", "10.1")
        .replace("wgmma", "wgmma ???");
    let (status, error, _) = load_logged(&cuda, &text(&newer));
    assert_eq!(status, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    assert!(error.contains("PTX 10.1 is newer"), "{error}");

    let mixed = format!("{NEEDS_80}.visible .entry fine() {{ ret; }}\n");
    let (status, error, info) = load_logged(&cuda, &text(&mixed));
    assert_eq!((status, error.as_str()), (CUDA_SUCCESS, ""));
    assert!(
        info.starts_with("ptxas application ptx input, line 5; error   : "),
        "{info}"
    );
    assert_eq!(
        lock(&all).len(),
        3,
        "one message for each module that failed: {all:?}"
    );
}

#[test]
fn library_that_cannot_run_is_loaded_and_its_launch_refused() {
    let cuda = devices(SoftOptions::default());
    let image = [NEEDS_80.as_bytes(), &[0]].concat();
    let (mut library, mut kernel) = (null_mut(), null_mut());
    let (none, values) = (null_mut(), null_mut());
    let start = image.as_ptr().cast();
    // SAFETY: the image ends with a NUL; no options.
    let status = unsafe {
        cuda.cuLibraryLoadData(
            &raw mut library,
            start,
            none,
            values,
            0,
            null_mut(),
            null_mut(),
            0,
        )
    };
    check(status);
    // SAFETY: the library is live, the name ends with a NUL.
    check(unsafe { cuda.cuLibraryGetKernel(&raw mut kernel, library, c"k".as_ptr()) });
    let refused = launch(&cuda, kernel.cast(), (1, 1), null_mut(), &mut []);
    assert_eq!(refused, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

/// A fat binary with entries of a kind, each for an architecture.
fn fat_binary(entries: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, arch, payload) in entries {
        let mut entry = vec![0; 64];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
        entry[4..8].copy_from_slice(&64_u32.to_le_bytes());
        entry[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        entry[28..32].copy_from_slice(&arch.to_le_bytes());
        entry.extend_from_slice(payload);
        all.extend(entry);
    }
    let mut bytes = towline_ptx::fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
    bytes.extend([1, 0, 16, 0]);
    bytes.extend((all.len() as u64).to_le_bytes());
    bytes.extend(all);
    bytes
}

#[test]
fn image_without_ptx_is_refused_with_what_it_has() {
    let cuda = devices(SoftOptions::default());
    let image = fat_binary(&[(2, 80, b"\x7fELF...."), (2, 90, b"\x7fELF....")]);
    let (status, error, _) = load_logged(&cuda, &image);
    assert_eq!(status, CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_eq!(
        error,
        "error   : the fat binary has sm_80, sm_90 code and no PTX; this software device needs PTX: build with nvcc -gencode \
         arch=compute_75,code=compute_75\n"
    );
}

/// Numbers after `compute_` in a text.
fn targets(text: &str) -> Vec<u32> {
    let behind = text.split("compute_").skip(1);
    let digits = behind.map(|rest| {
        rest.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    });
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

/// Targets of nvcc 12.9 and 13 alike.
const NVCC: [u32; 10] = [75, 80, 86, 87, 89, 90, 100, 103, 120, 121];

#[test]
fn every_remedy_names_a_target_that_nvcc_has_and_the_device_takes() {
    for capability in SoftOptions::CAPABILITIES {
        let cuda = devices(SoftOptions {
            capability,
            ..SoftOptions::default()
        });
        let all = heard(&cuda);
        let elf = fat_binary(&[(2, 100, b"\x7fELF....")]);
        let (_, error, _) = load_logged(&cuda, &elf);
        let later = NEEDS_80.replace("sm_80", "sm_121");
        load_logged(&cuda, &[later.as_bytes(), &[0]].concat());
        let said = [error, lock(&all).join("\n")].join("\n");
        let named = targets(&said);
        assert!(named.len() >= 4, "{said}");
        for target in named {
            assert!(NVCC.contains(&target), "{target}: {said}");
            // Targets that the device takes come before those that it refused.
            let entries = [(1, 121, &b"new"[..]), (1, target, &b"told"[..])];
            let image = fat_binary(&entries);
            let programs = Container::parse(&image).and_then(|one| one.programs());
            let chosen = choose_text(programs.expect("programs"), cuda.capability());
            assert_eq!(chosen.map(|one| one.arch.number), Some(target), "{said}");
        }
    }
}

#[test]
fn code_for_this_device_is_not_told_to_be_compiled_for_it() {
    for (major, minor) in SoftOptions::CAPABILITIES {
        let cuda = devices(SoftOptions {
            capability: (major, minor),
            ..SoftOptions::default()
        });
        let own = NEEDS_80.replace("sm_80", &format!("sm_{major}{minor}"));
        let (_, error, _) = load_logged(&cuda, &[own.as_bytes(), &[0]].concat());
        assert!(targets(&error).is_empty(), "{error}");
        assert!(error.contains("use a server with a GPU"), "{error}");
    }
}
