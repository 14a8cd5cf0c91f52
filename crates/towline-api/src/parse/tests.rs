//! What the language refuses, and that it says where and why.

use super::parse;
use crate::ApiError;
use crate::model::{Api, Extent, Mode, Shape};

const TYPES: &str = r#"
    type cl_int = i32;
    type cl_uint = u32;
    extern "C" {
        #[handle(tag = 1)]
        type cl_context;
        #[handle(tag = 2)]
        type cl_mem;
    }
"#;

/// Parses these calls; they begin in line 2 of `api/calls.rs`.
fn parsed(calls: &str) -> Result<Api, ApiError> {
    let calls = format!("extern \"C\" {{\n{calls}\n}}");
    let sources = [("api/calls.rs", calls.as_str()), ("api/types.rs", TYPES)];
    parse(
        "api",
        &sources.map(|(file, text)| (file.into(), text.into())),
    )
}

fn refusal(calls: &str) -> String {
    parsed(calls).expect_err("it must be refused").to_string()
}

#[test]
fn a_call_means_what_its_declaration_says() {
    let api = parsed(
        "/// First line.
         /// Second line.
         #[call(id = 0x0501, async, since = \"1.2\", alias = \"clOldName\")]
         fn clName(#[destroys] buffer: cl_mem, count: cl_uint, #[input(bytes = count * 4, nullable)] data: *const c_void) -> cl_int;",
    )
    .unwrap();
    let call = api.call("clOldName").unwrap();
    assert_eq!((call.name.as_str(), call.id), ("clName", 0x0501));
    assert_eq!(
        (call.mode, call.since.as_deref()),
        (Mode::Async, Some("1.2"))
    );
    assert_eq!(call.doc, "First line. Second line.");
    assert_eq!(call.params[0].shape, Shape::Value { destroys: true });
    let Shape::Input {
        extent: Extent::Bytes(bytes),
        nullable: true,
    } = &call.params[2].shape
    else {
        panic!("{:?}", call.params[2].shape);
    };
    assert_eq!((bytes.param.as_deref(), bytes.factor), (Some("count"), 4));
}

#[test]
fn a_fault_is_told_with_file_and_line() {
    let fault = refusal("/// Sees.\n#[call(id = 1)]\nfn clSee(what: *const c_void) -> cl_int;");
    assert!(fault.starts_with("api/calls.rs:4: "), "{fault}");
}

#[test]
fn a_pointer_needs_a_direction() {
    let fault = refusal("/// Sees.\n#[call(id = 1)]\nfn clSee(what: *const c_void) -> cl_int;");
    assert!(
        fault.contains("what is a pointer without a direction: add #[input(..)]"),
        "{fault}"
    );
}

#[test]
fn a_function_pointer_needs_a_direction() {
    let fault = refusal(
        "/// Sees.\n#[call(id = 1)]\nfn clSee(notify: Option<unsafe extern \"C\" fn(cl_mem)>) -> cl_int;",
    );
    assert!(
        fault.contains("notify is a pointer without a direction"),
        "{fault}"
    );
}

#[test]
fn a_parameter_has_one_direction() {
    let fault = refusal(
        "/// Sees.\n#[call(id = 1)]\nfn clSee(#[input()] #[out()] what: *mut cl_int) -> cl_int;",
    );
    assert!(fault.contains("what has two directions"), "{fault}");
}

#[test]
fn both_directions_at_once_are_written_by_hand() {
    let fault =
        refusal("/// Sees.\n#[call(id = 1)]\nfn clSee(#[inout()] what: *mut cl_int) -> cl_int;");
    assert!(
        fault.contains("what cannot travel, so both halves must be manual"),
        "{fault}"
    );
}

#[test]
fn an_id_is_given_once() {
    let fault = refusal(
        "/// One.\n#[call(id = 7)]\nfn clOne() -> cl_int;\n/// Two.\n#[call(id = 7)]\nfn clTwo() -> cl_int;",
    );
    assert!(
        fault.contains("id 0x0007 is taken by another call"),
        "{fault}"
    );
}

#[test]
fn a_name_is_given_once_aliases_included() {
    let fault = refusal(
        "/// One.\n#[call(id = 1)]\nfn clOne() -> cl_int;\n/// Two.\n#[call(id = 2, alias = \"clOne\")]\nfn clTwo() -> cl_int;",
    );
    assert!(fault.contains("clOne is declared twice"), "{fault}");
}

#[test]
fn a_call_needs_an_id() {
    let fault = refusal("/// Sees.\n#[call(sync)]\nfn clSee() -> cl_int;");
    assert!(
        fault.contains("clSee needs #[call(id = 0x....)]"),
        "{fault}"
    );
}

#[test]
fn an_id_is_a_number_of_16_bits() {
    let fault = refusal("/// Sees.\n#[call(id = \"one\")]\nfn clSee() -> cl_int;");
    assert!(
        fault.contains("`id` needs a number such as 0x0501"),
        "{fault}"
    );
    let fault = refusal("/// Sees.\n#[call(id = 0x10000)]\nfn clSee() -> cl_int;");
    assert!(fault.contains("too large"), "{fault}");
}

#[test]
fn a_call_needs_documentation() {
    let fault = refusal("#[call(id = 1)]\nfn clSee() -> cl_int;");
    assert!(
        fault.contains("clSee needs a line of documentation"),
        "{fault}"
    );
}

#[test]
fn a_length_names_a_scalar_parameter() {
    for length in ["rows", "context"] {
        let fault = refusal(&format!(
            "/// Sees.\n#[call(id = 1)]\nfn clSee(context: cl_context, #[input(len = {length})] what: *const cl_int) -> cl_int;"
        ));
        let expected = format!("the length of what names no scalar parameter `{length}`");
        assert!(fault.contains(&expected), "{fault}");
    }
}

#[test]
fn length_behind_a_pointer_is_refused_where_calls_travel() {
    let fault = refusal(
        "/// Sees.\n#[call(id = 1, manual)]\nfn clSee(#[inout] n: *mut cl_uint, #[input(len = n)] what: *const cl_int) -> cl_int;",
    );
    assert!(
        fault.contains("the length of what names no scalar parameter `n`"),
        "{fault}"
    );
}

#[test]
fn a_length_is_a_parameter_a_number_their_product_or_difference() {
    let fault = refusal(
        "/// Sees.\n#[call(id = 1)]\nfn clSee(n: cl_uint, #[input(len = n + 1)] what: *const cl_int) -> cl_int;",
    );
    assert!(
        fault.contains(
            "`len` needs a parameter, a number, parameter * number, or parameter - number"
        ),
        "{fault}"
    );
}

#[test]
fn a_true_size_goes_to_a_parameter_that_receives_it() {
    let fault = refusal(
        "/// Sees.\n#[call(id = 1)]\nfn clSee(n: cl_uint, #[out(len = n, actual = n)] what: *mut cl_int) -> cl_int;",
    );
    assert!(
        fault.contains("`actual = n` names no #[out(size_of)] parameter"),
        "{fault}"
    );
}

#[test]
fn words_and_attributes_that_do_not_exist_are_named() {
    for (calls, expected) in [
        (
            "/// Sees.\n#[call(id = 1, later)]\nfn clSee() -> cl_int;",
            "`later` is no word of #[call]",
        ),
        (
            "/// Sees.\n#[call(id = 1)]\nfn clSee(#[input(often)] what: *const cl_int) -> cl_int;",
            "`often` is no word of #[input]",
        ),
        (
            "/// Sees.\n#[call(id = 1)]\nfn clSee(#[sideways] what: *const cl_int) -> cl_int;",
            "`sideways` is no attribute of a parameter",
        ),
        (
            "/// Sees.\n#[call(id = 1)]\n#[inline]\nfn clSee() -> cl_int;",
            "only #[call(..)] and documentation can stand on a call",
        ),
        (
            "/// Sees.\n#[call(id = 1, manual(both))]\nfn clSee() -> cl_int;",
            "write manual, manual(client) or manual(server)",
        ),
        (
            "/// Sees.\n#[call(id = 1, since = 2)]\nfn clSee() -> cl_int;",
            "`since` needs a string in quotes",
        ),
    ] {
        let fault = refusal(calls);
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn a_type_is_declared_before_it_is_used() {
    let fault = refusal("/// Sees.\n#[call(id = 1)]\nfn clSee(what: cl_sampler) -> cl_int;");
    assert!(
        fault.contains("`cl_sampler` is not declared in types.rs"),
        "{fault}"
    );
}

#[test]
fn destroying_is_for_handles_by_value() {
    let fault =
        refusal("/// Ends.\n#[call(id = 1)]\nfn clEnd(#[destroys] what: *mut cl_mem) -> cl_int;");
    assert!(
        fault.contains("#[destroys] stands on a handle by value"),
        "{fault}"
    );
}

#[test]
fn a_callback_does_not_travel_by_generated_code() {
    let call = |words| {
        format!(
            "/// Tells.\n#[call(id = 1{words})]\nfn clTell(#[callback] notify: Option<unsafe extern \"C\" fn(cl_mem)>) -> cl_int;"
        )
    };
    let fault = refusal(&call(""));
    assert!(
        fault.contains("notify cannot travel, so both halves must be manual"),
        "{fault}"
    );
    assert!(parsed(&call(", manual")).is_ok());
    assert!(parsed(&call(", local")).is_ok());
}

#[test]
fn a_call_that_creates_needs_a_place_for_its_status() {
    let fault = refusal("/// Makes.\n#[call(id = 1)]\nfn clMake(context: cl_context) -> cl_mem;");
    assert!(
        fault.contains("clMake creates a handle, so it needs an #[errcode] parameter"),
        "{fault}"
    );
}

#[test]
fn only_questions_about_objects_are_passed_on_as_they_are() {
    for (signature, expected) in [
        (
            "fn clAsk() -> cl_int;",
            "no object says which provider it goes to",
        ),
        (
            "fn clAsk(#[destroys] buffer: cl_mem) -> cl_int;",
            "`buffer` needs a method of the platform",
        ),
    ] {
        let fault = refusal(&format!("/// Asks.\n#[call(id = 1, forward)]\n{signature}"));
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn a_tag_of_handles_is_given_once() {
    let types =
        "extern \"C\" {\n#[handle(tag = 1)]\ntype cl_one;\n#[handle(tag = 1)]\ntype cl_two;\n}";
    let fault = parse("api", &[("api/types.rs".into(), types.into())])
        .unwrap_err()
        .to_string();
    assert!(fault.contains("handle tag 1 is taken"), "{fault}");
}

/// Parses these calls as the CUDA driver API's.
fn driver(calls: &str) -> Result<Api, ApiError> {
    let types = r#"
        type CUresult = i32;
        type CUcallback = Option<unsafe extern "C" fn(data: *mut c_void)>;
        extern "C" {
            #[handle(tag = 1)]
            type CUstream;
        }
        pub union CUvalue {
            pub small: u32,
            pub large: u64,
        }
        pub struct CUplace {
            pub next: *mut CUplace,
            #[unnamed]
            pub either: CUvalue,
        }
        #[align(64)]
        pub struct CUextent {
            pub width: usize,
        }
        pub struct CUpair {
            pub first: u32,
            pub list: [u8; 3],
        }
    "#;
    let calls = format!("extern \"C\" {{\n{calls}\n}}");
    let sources = [("cuda/calls.rs", calls.as_str()), ("cuda/types.rs", types)];
    parse(
        "cuda",
        &sources.map(|(file, text)| (file.into(), text.into())),
    )
}

#[test]
fn a_name_may_say_which_version_introduced_it() {
    let api = driver(
        "/// Frees.
         #[call(id = 1, async, planned, since = \"3.2\", alias = \"cuFree@2.0\", per_thread = \"cuFree_v2_ptds@7.0\")]
         fn cuFree_v2(address: u64) -> CUresult;",
    )
    .unwrap();
    let call = api.call("cuFree").unwrap();
    assert_eq!(
        call.alias_since.get("cuFree").map(String::as_str),
        Some("2.0")
    );
    assert_eq!(call.per_thread, [("cuFree_v2_ptds".into(), "7.0".into())]);
    assert!(call.planned && call.travels() && !call.served());
}

#[test]
fn a_name_for_the_threads_own_stream_needs_its_version() {
    let fault = driver(
        "/// Frees.\n#[call(id = 1, per_thread = \"cuFree_ptds\")]\nfn cuFree() -> CUresult;",
    );
    let fault = fault.unwrap_err().to_string();
    assert!(fault.contains("needs a name and its version"), "{fault}");
}

#[test]
fn structures_are_laid_out_as_they_say() {
    let api = driver("").unwrap();
    assert!(api.structure("CUvalue").is_some_and(|value| value.union));
    assert_eq!(api.structure("CUplace").unwrap().unnamed, ["either"]);
    assert_eq!(api.structure("CUextent").unwrap().align, Some(64));
}

#[test]
fn only_plain_data_travels_field_by_field() {
    let api = driver("").unwrap();
    let travels: Vec<_> = ["CUvalue", "CUplace", "CUextent", "CUpair"]
        .into_iter()
        .filter(|name| api.travels(name))
        .collect();
    assert_eq!(travels, ["CUpair"]);
}

#[test]
fn what_holds_a_pointer_is_composed_by_the_client() {
    let fault =
        driver("/// Sees.\n#[call(id = 1)]\nfn cuSee(#[input] place: *const CUplace) -> CUresult;");
    let fault = fault.unwrap_err().to_string();
    assert!(fault.contains("over a message of the session"), "{fault}");
    let local = driver(
        "/// Sees.\n#[call(id = 1, local)]\nfn cuSee(#[input] place: *const CUplace) -> CUresult;",
    );
    assert!(local.is_ok());
}

#[test]
fn a_handle_that_comes_out_is_the_clients_own() {
    let fault =
        driver("/// Gives.\n#[call(id = 1)]\nfn cuGive(#[out] stream: *mut CUstream) -> CUresult;");
    let fault = fault.unwrap_err().to_string();
    assert!(fault.contains("add `creates`"), "{fault}");
}

#[test]
fn a_pointer_to_a_pointer_does_not_travel() {
    let fault = driver(
        "/// Gives.\n#[call(id = 1)]\nfn cuGive(#[out] what: *mut *mut c_void) -> CUresult;",
    );
    let fault = fault.unwrap_err().to_string();
    assert!(fault.contains("points to a pointer"), "{fault}");
}

#[test]
fn a_named_function_type_needs_a_direction_too() {
    let fault =
        driver("/// Calls.\n#[call(id = 1, local)]\nfn cuCall(callback: CUcallback) -> CUresult;");
    let fault = fault.unwrap_err().to_string();
    assert!(
        fault.contains("is a pointer without a direction"),
        "{fault}"
    );
}
