//! Links: what several modules are together, and what is said of those that are nothing.

use super::*;

const CALLS: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 out) helper(.param .b32 in);\n\
.extern .global .align 4 .b32 offset;\n.global .align 4 .b32 own = 10;\n\
.visible .entry apply(.param .u64 data) { .reg .b64 d; .reg .b32 x, y; ld.param.u64 d, [data]; ld.global.u32 x, [d];\n\
 { .param .b32 in; .param .b32 out; st.param.b32 [in], x; call.uni (out), helper, (in); ld.param.b32 x, [out]; }\n\
 ld.global.u32 y, [own]; add.u32 x, x, y; ld.global.u32 y, [offset]; add.u32 x, x, y; st.global.u32 [d], x; ret; }";
const HELPS: &CStr = c".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b32 offset = 1000;\n\
.global .align 4 .b32 own = 3;\n\
.visible .func (.param .b32 out) helper(.param .b32 in) { .reg .b32 x, y; ld.param.b32 x, [in]; ld.global.u32 y, [own];\n\
 mul.lo.u32 x, x, y; st.param.b32 [out], x; ret; }";

/// A link whose messages go to a buffer.
struct Linking {
    state: CUlinkState,
    error: Box<[u8; 256]>,
    _options: Box<[CUjit_option; 2]>,
    _values: Box<[*mut c_void; 2]>,
}

impl Linking {
    fn begin(cuda: &SoftCuda) -> Self {
        let mut error = Box::new([0_u8; 256]);
        let mut options = Box::new([CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]);
        let room = std::ptr::without_provenance_mut(error.len());
        let mut values = Box::new([error.as_mut_ptr().cast::<c_void>(), room]);
        let mut state = null_mut();
        let (names, places) = (options.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: two options, which stay where they are; one place for the link.
        check(unsafe { cuda.cuLinkCreate_v2(2, names, places, &raw mut state) });
        Self {
            state,
            error,
            _options: options,
            _values: values,
        }
    }

    fn add(&self, cuda: &SoftCuda, kind: CUjitInputType, code: &[u8]) -> CUresult {
        let data = code.as_ptr().cast_mut().cast();
        let (none, len, name) = (null_mut(), code.len(), c"part".as_ptr());
        // SAFETY: the code is as long as said, the name ends with a NUL.
        unsafe { cuda.cuLinkAddData_v2(self.state, kind, data, len, name, 0, none, null_mut()) }
    }

    fn text(&self, cuda: &SoftCuda, code: &CStr) -> CUresult {
        self.add(cuda, CU_JIT_INPUT_PTX, code.to_bytes())
    }

    fn complete(&self, cuda: &SoftCuda) -> Result<*mut c_void, CUresult> {
        let (mut image, mut size) = (null_mut(), 0);
        // SAFETY: a place for each answer.
        match unsafe { cuda.cuLinkComplete(self.state, &raw mut image, &raw mut size) } {
            CUDA_SUCCESS => Ok(image),
            status => Err(status),
        }
    }

    fn said(&self) -> &str {
        let said = CStr::from_bytes_until_nul(&*self.error).expect("it ends");
        said.to_str().expect("text")
    }

    fn end(self, cuda: &SoftCuda) -> CUresult {
        // SAFETY: no pointers that are followed.
        unsafe { cuda.cuLinkDestroy(self.state) }
    }
}

#[test]
fn modules_call_each_other_and_keep_what_is_their_own() {
    let cuda = devices(SoftOptions::default());
    let link = Linking::begin(&cuda);
    check(link.text(&cuda, CALLS));
    check(link.text(&cuda, HELPS));
    let image = link.complete(&cuda).expect("an image");
    // SAFETY: the image ends with a NUL, and is there while the link is.
    let image = unsafe { CStr::from_ptr(image.cast()) }.to_owned();
    check(link.end(&cuda));
    let module = module(&cuda, &image).expect("a module");
    let apply = function(&cuda, module, c"apply");
    let data = allocate(&cuda, 4);
    upload(&cuda, data, &[7], null_mut());
    check(launch(&cuda, apply, (1, 1), null_mut(), &mut [data]));
    // Times 3 by the one's own number, plus 10 of the other's, plus 1000 of what they share.
    assert_eq!(download(&cuda, data, 1, null_mut()), [7 * 3 + 10 + 1000]);
}

#[test]
fn what_cannot_be_linked_is_refused_where_it_is_found_out() {
    let cuda = devices(SoftOptions::default());
    let link = Linking::begin(&cuda);
    assert_eq!(link.complete(&cuda), Err(CUDA_ERROR_INVALID_IMAGE));
    let wrong = link.text(&cuda, c".version 8.0 .target sm_75\n nonsense");
    assert_eq!(wrong, CUDA_ERROR_INVALID_PTX);
    assert!(
        link.said().starts_with("ptxas part, line 2; error   : "),
        "{}",
        link.said()
    );
    let machine = link.add(&cuda, CU_JIT_INPUT_CUBIN, b"\x7fELF\x02\x01");
    assert_eq!(machine, CUDA_ERROR_NO_BINARY_FOR_GPU);
    let object = link.add(&cuda, CU_JIT_INPUT_OBJECT, b"\x7fELF\x02\x01");
    assert_eq!(object, CUDA_ERROR_NOT_SUPPORTED);
    check(link.add(&cuda, CU_JIT_INPUT_LIBRARY, b"!<arch>\n"));
    check(link.text(&cuda, CALLS));
    assert_eq!(link.complete(&cuda), Err(CUDA_ERROR_INVALID_PTX));
    assert!(
        link.said().contains("nothing was taken from part"),
        "{}",
        link.said()
    );
    assert!(
        link.said().contains("unresolved function `helper`"),
        "{}",
        link.said()
    );
    check(link.text(&cuda, HELPS));
    check(link.text(&cuda, HELPS));
    assert_eq!(link.complete(&cuda), Err(CUDA_ERROR_INVALID_PTX));
    assert!(link.said().contains("defined twice"), "{}", link.said());
    let state = link.state;
    check(link.end(&cuda));
    // SAFETY: no pointers that are followed.
    let again = unsafe { cuda.cuLinkDestroy(state) };
    assert_eq!(again, CUDA_ERROR_INVALID_HANDLE);
}

/// Each block writes how far it is, waits for the grid, and adds up what all blocks wrote; then the same again.
const MEETS: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n\
.extern .func (.param .b64 out) cudaCGGetIntrinsicHandle(.param .b32 scope);\n\
.extern .func (.param .b32 out) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);\n\
.visible .entry meet(.param .u64 data) { .reg .b64 d, e, w; .reg .b32 r, i, n, x, sum, me, t, status; .reg .pred p, q;\n\
 ld.param.u64 d, [data]; mov.u32 me, %ctaid.x; mov.u32 t, %tid.x; mov.u32 n, %nctaid.x; mov.u32 r, 0; mov.u32 sum, 0;\n\
 { .param .b32 scope; .param .b64 out; st.param.b32 [scope], 1; call.uni (out), cudaCGGetIntrinsicHandle, (scope);\n\
 ld.param.b64 w, [out]; }\n\
 round: mul.wide.u32 e, me, 4; add.u64 e, e, d; add.u32 r, r, 1; setp.eq.u32 p, t, 0; @p st.volatile.global.u32 [e], r;\n\
 { .param .b64 handle; .param .b32 flags; .param .b32 out; st.param.b64 [handle], w; st.param.b32 [flags], 0;\n\
 call.uni (out), cudaCGSynchronize, (handle, flags); ld.param.b32 status, [out]; }\n\
 setp.ne.u32 q, status, 0; @q bra done; mov.u32 i, 0;\n\
 next: mul.wide.u32 e, i, 4; add.u64 e, e, d; ld.volatile.global.u32 x, [e]; add.u32 sum, sum, x; add.u32 i, i, 1;\n\
 setp.lt.u32 q, i, n; @q bra next;\n\
 { .param .b64 handle; .param .b32 flags; .param .b32 out; st.param.b64 [handle], w; st.param.b32 [flags], 0;\n\
 call.uni (out), cudaCGSynchronize, (handle, flags); ld.param.b32 status, [out]; }\n\
 setp.lt.u32 q, r, 20; @q bra round; @!p bra done; mul.wide.u32 e, me, 4; add.u64 e, e, d; st.global.u32 [e], sum;\n\
 done: ret; }";

fn grids_meet(tier: SoftTier) {
    let cuda = devices(SoftOptions {
        tier,
        time_limit: Some(Duration::from_secs(20)),
        ..SoftOptions::default()
    });
    let module = module(&cuda, MEETS).expect("a module");
    let meet = function(&cuda, module, c"meet");
    let mut data = allocate(&cuda, 32);
    check(launch_with(&cuda, meet, (8, 64), TOGETHER, &mut data));
    // In each of 20 rounds every block sees that all are in it: 8 times 1, 2, ... 20.
    let sum = 8 * (20 * 21 / 2);
    assert_eq!(download(&cuda, data, 8, null_mut()), [sum; 8]);
    // Without a cooperative launch there is no place to meet, and the functions say so.
    check(launch(&cuda, meet, (8, 64), null_mut(), &mut [data]));
    assert_eq!(download(&cuda, data, 8, null_mut()), [1; 8]);
}

#[test]
fn grids_meet_by_the_functions_of_the_device_runtime_when_interpreted() {
    grids_meet(SoftTier::Interpreter);
}

#[test]
fn grids_meet_by_the_functions_of_the_device_runtime_when_compiled() {
    grids_meet(SoftTier::Jit);
}
