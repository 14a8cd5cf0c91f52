//! Whole programs: names, layouts, refusals.

use super::op::{Address, Argument, Callee, Flag, Source};
use super::*;
use crate::ptx::Module;

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

fn link(text: &str) -> Result<Program, Error> {
    let text = format!("{HEAD}{text}");
    let module = Module::parse(&text).expect("a module");
    Program::link(&[module])
}

fn code(program: &Program, name: &str) -> Code {
    let found = program.functions.iter().find(|one| one.name == name);
    match &found.expect("the function").body {
        Body::Code(code) => code.clone(),
        other => panic!("{other:?}"),
    }
}

fn refusal(body: &str) -> String {
    let program = link(&format!(".entry k() {{\n{body}\n}}")).expect("a program");
    match &program.functions[0].body {
        Body::Refused(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn registers_are_numbered_as_they_are_used_and_scopes_hide_names() {
    let program = link(
        ".entry k() { .reg .b32 %r<1000000000>; .reg .pred p; mov.u32 %r9, 1; { .reg .b32 %r9; mov.u32 %r9, 2; }\n\
         mov.u32 %r9, 3; }",
    );
    let code = code(&program.expect("a program"), "k");
    let registers: Vec<_> = code
        .instructions
        .iter()
        .filter_map(|one| match one.op {
            Op::Mov { d, .. } => Some(d.0),
            _ => None,
        })
        .collect();
    assert_eq!(registers, [0, 1, 0]);
    assert_eq!((code.registers, code.predicates), (2, 1));
}

#[test]
fn labels_belong_to_their_braces() {
    let program = link(
        ".entry k() { .reg .pred p; { again: @p bra again; } { again: @!p bra again; } bra done; done: ret; }",
    );
    let code = code(&program.expect("a program"), "k");
    let targets: Vec<_> = code
        .instructions
        .iter()
        .filter_map(|one| match one.op {
            Op::Branch { target } => Some((one.guard, target)),
            _ => None,
        })
        .collect();
    let p = op::Pred(0);
    assert_eq!(
        targets,
        [(Some(Flag::Pred(p)), 0), (Some(Flag::Not(p)), 1), (None, 3)]
    );
}

#[test]
fn initializers_become_bytes_and_addresses() {
    let program = link(
        ".global .align 4 .b8 text[6] = {104, 105};\n.global .u64 where[2] = {generic(text)+2, 7};\n\
         .const .f32 half = 0.5;\n.global .b32 grid[2][2] = {{1}, {2, 3}};\n.global .b8 low[2] = {0xff(text), 0xff00(text)};",
    );
    let program = program.expect("a program");
    assert_eq!(program.variables[0].bytes, b"hi");
    assert_eq!(program.variables[0].len, 6);
    let relocation = Relocation {
        offset: 0,
        len: 8,
        shift: 0,
        symbol: Symbol::Variable(VariableId(0)),
        addend: 2,
        generic: true,
    };
    assert_eq!(program.variables[1].relocations, [relocation]);
    assert_eq!(program.variables[1].bytes[8], 7);
    assert_eq!(program.variables[2].bytes, 0.5_f32.to_le_bytes());
    assert_eq!(program.variables[2].space, Space::Const);
    let grid: Vec<_> = program.variables[3].bytes.iter().step_by(4).collect();
    assert_eq!(grid, [&1, &0, &2, &3]);
    let low = &program.variables[4].relocations;
    assert_eq!((low[1].len, low[1].shift), (1, 8));
}

#[test]
fn modules_are_linked_by_name() {
    let texts = [
        ".extern .func (.param .b32 r) twice(.param .b32 a);\n.extern .global .b32 count;\n\
         .visible .entry k() { .param .b32 a; .param .b32 r; .reg .b32 x; ld.global.u32 x, [count]; st.param.b32 [a], x;\n\
         call (r), twice, (a); ld.param.b32 x, [r]; st.global.u32 [count], x; }",
        ".visible .global .b32 count = 21;\n.visible .func (.param .b32 r) twice(.param .b32 a) { .reg .b32 x;\n\
         ld.param.b32 x, [a]; shl.b32 x, x, 1; st.param.b32 [r], x; }",
    ]
    .map(|text| format!("{HEAD}{text}"));
    let modules: Vec<_> = texts
        .iter()
        .map(|text| Module::parse(text).expect("a module"))
        .collect();
    let program = Program::link(&modules).expect("a program");
    assert_eq!(program.variables.len(), 1);
    assert_eq!(program.variables[0].bytes, [21, 0, 0, 0]);
    let code = code(&program, "k");
    let call = code.instructions.iter().find_map(|one| match &one.op {
        Op::Call(call) => Some(call.clone()),
        _ => None,
    });
    let call = call.expect("a call");
    assert_eq!(call.callee, Callee::Function(FunctionId(0)));
    assert_eq!(call.arguments, [Argument::Memory { offset: 0, len: 4 }]);
    assert_eq!(call.returns, [Argument::Memory { offset: 4, len: 4 }]);
    assert!(matches!(program.functions[0].body, Body::Code(_)));
}

#[test]
fn what_is_defined_twice_is_refused_with_its_place() {
    let twice = link(".visible .func f() { ret; }\n .visible .func f() { ret; }");
    let error = twice.expect_err("twice");
    assert_eq!(error.to_string(), "line 5, column 17: `f` is defined twice");
    assert!(link(".weak .func f() { ret; } .weak .func f() { trap; }").is_ok());
}

#[test]
fn kernels_parameters_are_laid_out_and_calls_reuse_their_space() {
    let program = link(
        ".func f(.param .b64 a) { ret; }\n.visible .entry k(.param .u8 a, .param .u64 b) .maxntid 64 {\n\
         { .param .b64 x; call f, (x); } { .param .b64 y; call f, (y); } }",
    );
    let program = program.expect("a program");
    let kernel = &program.functions[1];
    let places: Vec<_> = kernel.parameters.iter().map(|one| one.place).collect();
    assert_eq!(
        places,
        [ParameterPlace::Memory(0), ParameterPlace::Memory(8)]
    );
    assert_eq!((kernel.parameter_bytes, kernel.frame_bytes), (16, 24));
    assert_eq!(kernel.limits.most_threads, Some([64, 1, 1]));
}

#[test]
fn addresses_are_a_base_and_an_offset() {
    let program = link(
        ".shared .b32 buffer[4];\n.entry k() { .reg .b64 a; .reg .b32 x; ld.shared.u32 x, [buffer+8];\n\
         ld.global.u32 x, [a+-4]; st.u32 [a], x; }",
    );
    let code = code(&program.expect("a program"), "k");
    let Op::Load { address, .. } = &code.instructions[0].op else {
        panic!("a load");
    };
    assert_eq!(address.offset, 8);
    let Source::Constant(index) = address.base else {
        panic!("a constant");
    };
    let symbol = Symbol::Variable(VariableId(0));
    let expected = Constant::Address {
        symbol,
        addend: 0,
        generic: false,
    };
    assert_eq!(code.constants[index as usize], expected);
    assert_eq!(code.variables, [VariableId(0)]);
    let Op::Load {
        address: Address { offset, .. },
        ..
    } = code.instructions[1].op
    else {
        panic!("a load");
    };
    assert_eq!(offset, -4);
}

#[test]
fn what_is_unknown_is_refused_by_name_and_place() {
    for (body, expected) in [
        (
            "wgmma.fence.sync.aligned;",
            "line 5, column 1: the instruction `wgmma` is not supported",
        ),
        (
            ".reg .f32 f;\nadd.wrong.f32 f, f, f;",
            "line 6, column 1: `add` with `.wrong` is not supported",
        ),
        (
            ".reg .b16 h; .reg .f32 f;\ncvt.rn.satfinite.e2m3x2.f32 h, f, f;",
            "line 6, column 1: `cvt` with `.e2m3x2` is not supported",
        ),
        (
            ".reg .b32 r; .reg .f32 f;\ncvt.rna.satfinite.tf32.f32 r, f;",
            "line 6, column 1: `cvt.satfinite.tf32` is not supported",
        ),
        (
            ".reg .b16 h; .reg .f32 f;\ncvt.rn.satfinite.bf16.f32 h, f;",
            "line 6, column 1: `cvt.satfinite.bf16` is not supported",
        ),
        (
            ".reg .b32 r;\nvadd2.s32.s32.s32 r, r.h45, r, r;",
            "line 6, column 1: `.h45` does not say which parts of words",
        ),
        (
            ".reg .b32 r;\nvset2.s32.s32.lt r, r, r, r;",
            "line 6, column 1: the instruction `vset2` is not supported",
        ),
        (
            "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2];",
            "line 5, column 1: `cp.async.bulk.tensor` is not supported",
        ),
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1}, %r1, 0;",
            "line 5, column 1: `mma.sp` is not supported",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%r1}, {%r1}, {%r1}, {%r1};",
            "line 5, column 1: a matrix has no type, or one that is not supported",
        ),
        (
            "mma.sync.aligned.m16n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
            "line 5, column 1: there is no `mma` of this shape and these types",
        ),
        (
            ".reg .b64 d; .reg .b32 r;\nmbarrier.init.shared.b64 [d], 0;",
            "line 6, column 1: a barrier is for 1 to 1048575 threads",
        ),
        (
            ".reg .b32 r; .reg .b64 d;\ncp.async.cg.shared.global [r], [d], 8;",
            "line 6, column 1: `cp.async.ca` copies 4, 8 or 16 bytes, `cp.async.cg` 16",
        ),
        (
            ".reg .b32 r; .reg .b64 d;\ncp.async.ca.shared [r], [d], 8;",
            "line 6, column 1: `cp.async` copies from global to shared memory",
        ),
        (
            "bra nowhere;",
            "line 5, column 1: there is no label `nowhere`",
        ),
        (
            ".reg .b32 r;\nmov.u32 r, %unknown;",
            "line 6, column 1: there is no `%unknown`",
        ),
        (
            ".reg .f32 f;\nadd.f32 f, f, 1;",
            "line 6, column 1: `1` is no value of type .f32",
        ),
        (
            ".reg .b32 r;\nadd.u32 r, r;",
            "line 6, column 1: 2 operands where 3 must stand",
        ),
        (
            ".local .b8 big[100000000];\nret;",
            "line 5, column 12: 100000000 bytes of local memory are over the limit of 16777216",
        ),
    ] {
        assert_eq!(refusal(body), expected);
    }
}

#[test]
fn one_refused_kernel_does_not_sink_the_others() {
    let program =
        link(".visible .entry bad(.param .u64 p) { wgmma; }\n.visible .entry good() { ret; }");
    let program = program.expect("a program");
    assert!(matches!(program.functions[0].body, Body::Refused(_)));
    assert_eq!(program.functions[0].parameters.len(), 1);
    assert!(matches!(program.functions[1].body, Body::Code(_)));
}

#[test]
fn absurd_initializers_are_refused() {
    let far = link(".global .b8 far[2][274877906944] = {{1}, {2}};");
    assert!(far.expect_err("too long").message.contains("longer"));
    assert!(link(".global .b8 huge[1152921504606846976];").is_err());
    assert!(link(".global .b8 few[2] = {1, 2, 3};").is_err());
}

#[test]
fn what_ptxas_refuses_is_refused_with_a_reason() {
    for (body, expected) in [
        (
            ".reg .s32 r;\nadd.rn.s32 r, r, r;",
            "line 6, column 1: there is no `add.rn.s32`",
        ),
        (
            ".reg .f32 f;\nadd.s32 f, f, f;",
            "line 6, column 1: `f` is a register of type .f32, where one for .s32 must stand",
        ),
        (
            ".reg .b32 r;\nadd.s32 r, r, %tid.x;",
            "line 6, column 1: `%tid.x` is read by `mov` and `cvt` alone",
        ),
        (
            ".reg .b32 r; .shared .b32 s;\nld.global.b32 r, [s];",
            "line 6, column 1: `s` lies in shared memory, not in global",
        ),
        (
            ".reg .b32 r;\n.reg .b64 r;",
            "line 6, column 11: `r` is declared twice",
        ),
        (
            "bar.sync 16;",
            "line 5, column 1: barriers have numbers from 0 to 15",
        ),
    ] {
        assert_eq!(refusal(body), expected);
    }
}

#[test]
fn a_call_that_does_not_fit_is_refused_where_it_stands() {
    let program = link(
        ".func f(.param .b32 a) { ret; }\n.entry few() { call f; ret; }\n\
         .entry long() { .param .b64 x; call f, (x); ret; }\n.entry right() { .param .b32 x; call f, (x); ret; }",
    );
    let functions = program.expect("a program").functions;
    for name in ["few", "long"] {
        let function = functions.iter().find(|one| one.name == name);
        let Body::Refused(error) = &function.expect("it is there").body else {
            panic!("{name}");
        };
        assert_eq!(error.message, "`f` is called with what it does not take");
    }
    let right = functions.last().expect("the last");
    assert!(matches!(right.body, Body::Code(_)));
}

#[test]
fn textures_are_read_through_registers_and_variables() {
    use super::texture::{Detail, Geometry, TextureOp};
    let program = link(
        ".global .texref photo;\n.global .samplerref how = {addr_mode_0 = mirror, filter_mode = linear};\n\
         .entry k() { .reg .b64 h; .reg .b32 layer; .reg .f32 x<4>; .reg .pred p;\n\
         tex.level.a2d.v4.f32.f32 {x0, _, x2, x3}|p, [photo, how, {layer, x1, x2, x2}], 0f3F800000;\n\
         tex.1d.v4.f32.f32 {x0, x1, x2, x3}, [h, {x0}]; }",
    );
    let program = program.expect("a program");
    let old = link(".tex .u32 slide;").expect("a program");
    assert_eq!(old.variables[0].object, Some(crate::ptx::Type::TexRef));
    let [photo, how] = &program.variables[..] else {
        panic!("{:?}", program.variables);
    };
    assert_eq!(photo.object, Some(crate::ptx::Type::TexRef));
    assert_eq!(how.object, Some(crate::ptx::Type::SamplerRef));
    let settings: Vec<_> = how
        .settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        settings,
        [("addr_mode_0", "mirror"), ("filter_mode", "linear")]
    );
    let code = code(&program, "k");
    let Op::Texture(access) = &code.instructions[0].op else {
        panic!("{:?}", code.instructions);
    };
    assert!(matches!(
        access.op,
        TextureOp::Sample {
            geometry: Geometry::Planes,
            detail: Detail::Level,
            floats: true,
            offset: false,
            ..
        }
    ));
    // Fillers of the vector of coordinates are no inputs; the level is.
    assert_eq!((access.inputs.len(), access.d.len()), (4, 4));
    assert!(access.d[1].is_none() && access.p.is_some() && access.sampler.is_some());
}

#[test]
fn textures_of_other_kinds_are_refused_by_name() {
    let registers = ".reg .b64 h; .reg .b32 i; .reg .f32 x<4>;";
    for (body, expected) in [
        (
            "tex.2dms.v4.f32.s32 {x0, x1, x2, x3}, [h, {i, i, i, i}];",
            "several samples per texel",
        ),
        (
            "tex.2d.v4.f32.f32 {x0, x1, x2, x3}, [h, {x0, x1}], {1, 2}, x3;",
            "comparison with depths",
        ),
        (
            "tex.2d.v4.f32.f32 {x0, x1, x2, x3}, [h, {x0}];",
            "2 coordinates must stand here",
        ),
        (
            "suld.b.2d.b32 i, [h, {i, i}];",
            "`.trap`, `.clamp` or `.zero`",
        ),
    ] {
        let found = refusal(&format!("{registers} {body}"));
        assert!(found.contains(expected), "{body}: {found}");
    }
}

/// Modules of their own, put together.
fn link_all(texts: &[&str]) -> Result<Program, Error> {
    let texts: Vec<String> = texts.iter().map(|text| format!("{HEAD}{text}")).collect();
    let modules: Vec<_> = texts
        .iter()
        .map(|text| Module::parse(text).expect("a module"))
        .collect();
    Program::link(&modules)
}

#[test]
fn strong_definitions_replace_weak_and_common_ones() {
    let weak =
        ".weak .global .b32 v[2] = {1, 1}; .common .global .b32 c; .weak .func f() { trap; }";
    let strong =
        ".visible .global .b32 v = 2; .common .global .b32 c[4]; .visible .func f() { ret; }";
    for order in [[weak, strong], [strong, weak]] {
        let program = link_all(&order).expect("a program");
        let [v, c] = &program.variables[..] else {
            panic!("{:?}", program.variables);
        };
        assert_eq!((v.len, &v.bytes[..]), (4, &[2, 0, 0, 0][..]));
        assert_eq!(c.len, 16);
        let first = &code(&program, "f").instructions[0];
        assert!(matches!(first.op, Op::Return), "{first:?}");
    }
    assert!(link_all(&[weak, strong, strong]).is_err());
    assert!(link_all(&[weak, weak, strong]).is_ok());
}

#[test]
fn other_modules_call_functions_by_alias() {
    let uses = ".extern .func f(); .visible .entry k() { call f; ret; }";
    let has = ".visible .func g() { ret; } .visible .func f(); .alias f, g;";
    for order in [[uses, has], [has, uses]] {
        let program = link_all(&order).expect("a program");
        let callee = code(&program, "k").calls[0];
        let callee = program.function(callee).expect("a function");
        assert_eq!(callee.name, "g");
    }
}

#[test]
fn calls_of_kernels_are_refused() {
    let program = link(".entry k() { ret; } .entry l() { call k; ret; }").expect("a program");
    let Body::Refused(error) = &program.functions[1].body else {
        panic!("{:?}", program.functions[1].body);
    };
    assert!(error.message.contains("`k` is a kernel"), "{error}");
}

#[test]
fn names_of_register_runs_may_end_in_digits() {
    let program = link(".entry k() { .reg .b32 %r1<4>, %q<2>; mov.u32 %r10, 0; mov.u32 %r13, 0; }");
    assert_eq!(code(&program.expect("a program"), "k").registers, 2);
    let beyond = refusal(".reg .b32 %r1<4>; mov.u32 %r14, 0;");
    assert!(beyond.contains("`%r14` is no register"), "{beyond}");
}

#[test]
fn branches_by_one_table_share_its_targets() {
    let program = link(
        ".entry k() { .reg .b32 i; mov.u32 i, 0; a: brx.idx i, t; t: .branchtargets b, a; b: brx.idx i, t; }",
    );
    let code = code(&program.expect("a program"), "k");
    let tables: Vec<_> = code
        .instructions
        .iter()
        .filter_map(|one| match &one.op {
            Op::BranchIndexed { targets, .. } => Some(targets),
            _ => None,
        })
        .collect();
    assert_eq!(tables[0][..], [2, 1]);
    assert!(std::sync::Arc::ptr_eq(tables[0], tables[1]));
}

#[test]
fn volatile_cache_loads_poll() {
    let program = link(
        ".entry k() { .reg .b32 r; .reg .b64 d; mov.u64 d, 0; ld.global.cv.u32 r, [d]; ld.global.cg.u32 r, [d]; }",
    );
    let code = code(&program.expect("a program"), "k");
    let polls = code.instructions.iter().filter_map(|one| match one.op {
        Op::Load { polls, .. } => Some(polls),
        _ => None,
    });
    assert_eq!(polls.collect::<Vec<_>>(), [true, false]);
}
