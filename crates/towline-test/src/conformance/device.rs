//! Platforms and devices: lists, and answers to queries.

use std::ptr;

use super::call::*;
use super::fixture::Fixture;
use super::rules;
use towline_backend::opencl::*;

rules![device:
    answers_have_the_size_they_say,
    compiler_without_linker_is_not_offered_by_full_profile,
    device_belongs_to_its_platform,
    device_info_null_device_is_invalid_device,
    device_info_unknown_query_is_invalid_value,
    device_list_zero_room_is_invalid_value,
    device_list_without_destination_is_invalid_value,
    device_list_writes_no_more_than_its_room,
    device_name_and_version_are_text,
    device_numeric_version_agrees_with_text,
    device_reference_count_of_a_whole_device_stays_one,
    device_type_of_no_device_is_not_found,
    device_type_zero_is_invalid_device_type,
    extensions_with_version_name_the_extensions,
    limits_are_those_of_a_device_that_can_be_used,
    platform_info_unknown_query_is_invalid_value,
    platform_list_without_destination_is_invalid_value,
    platform_name_is_text,
    timers_advance,
    timers_without_destination_are_refused,
];

fn answers_have_the_size_they_say(cl: &Fixture) -> Verdict {
    let name = sizes!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_NAME));
    let limits = sizes!(
        cl,
        clGetDeviceInfo(cl.device(), CL_DEVICE_MAX_WORK_ITEM_SIZES)
    );
    let kind = sizes!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_TYPE));
    let platform = sizes!(cl, clGetPlatformInfo(cl.platform, CL_PLATFORM_VERSION));
    assert_eq!(name, Sizes::of(name.size));
    assert_eq!(limits, Sizes::of(3 * size_of::<usize>()));
    assert_eq!(kind, Sizes::of(8));
    assert_eq!(platform, Sizes::of(platform.size));
    Ok(())
}

fn compiler_without_linker_is_not_offered_by_full_profile(cl: &Fixture) -> Verdict {
    let profile = info!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_PROFILE))?.text();
    assert!(
        ["FULL_PROFILE", "EMBEDDED_PROFILE"].contains(&profile.as_str()),
        "{profile}"
    );
    assert!(cl.caps.compiler || profile == "EMBEDDED_PROFILE");
    assert_eq!(cl.caps.linker, cl.caps.compiler);
    Ok(())
}

fn device_belongs_to_its_platform(cl: &Fixture) -> Verdict {
    let platform = info!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_PLATFORM))?.number();
    assert_eq!(platform, cl.platform.addr() as u64);
    Ok(())
}

fn device_info_null_device_is_invalid_device(cl: &Fixture) -> Verdict {
    let answer = info!(cl, clGetDeviceInfo(ptr::null_mut(), CL_DEVICE_NAME));
    assert_eq!(answer.code(), CL_INVALID_DEVICE);
    Ok(())
}

fn device_info_unknown_query_is_invalid_value(cl: &Fixture) -> Verdict {
    assert_eq!(
        info!(cl, clGetDeviceInfo(cl.device(), 0x7777)).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn device_list_zero_room_is_invalid_value(cl: &Fixture) -> Verdict {
    let mut device = ptr::null_mut();
    let (all, none) = (CL_DEVICE_TYPE_ALL, ptr::null_mut());
    let listed = call!(
        cl,
        clGetDeviceIDs(cl.platform, all, 0, &raw mut device, none)
    );
    assert_eq!(listed.code(), CL_INVALID_VALUE);
    Ok(())
}

fn device_list_without_destination_is_invalid_value(cl: &Fixture) -> Verdict {
    let all = CL_DEVICE_TYPE_ALL;
    let listed = call!(
        cl,
        clGetDeviceIDs(cl.platform, all, 0, ptr::null_mut(), ptr::null_mut())
    );
    assert_eq!(listed.code(), CL_INVALID_VALUE);
    Ok(())
}

fn device_list_writes_no_more_than_its_room(cl: &Fixture) -> Verdict {
    let guard = ptr::without_provenance_mut(0xfeed);
    let mut devices = [guard; 2];
    let mut count = 0;
    let (all, room) = (CL_DEVICE_TYPE_ALL, devices.as_mut_ptr());
    call!(
        cl,
        clGetDeviceIDs(cl.platform, all, 1, room, &raw mut count)
    )?;
    assert!(count >= 1 && devices[0] != guard);
    assert_eq!(devices[1], guard);
    Ok(())
}

fn device_name_and_version_are_text(cl: &Fixture) -> Verdict {
    for query in [
        CL_DEVICE_NAME,
        CL_DEVICE_VENDOR,
        CL_DEVICE_VERSION,
        CL_DRIVER_VERSION,
    ] {
        let answer = info!(cl, clGetDeviceInfo(cl.device(), query))?;
        assert_eq!(
            answer.0.last(),
            Some(&0),
            "the answer to {query:#x} ends with a NUL"
        );
        assert!(
            !answer.text().is_empty(),
            "the answer to {query:#x} says something"
        );
    }
    Ok(())
}

fn device_numeric_version_agrees_with_text(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (3, 0),
        "the device is older than OpenCL 3.0",
    )?;
    let version = info!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_NUMERIC_VERSION))?.number();
    assert_eq!((version >> 22, version >> 12 & 0x3ff), cl.caps.version);
    Ok(())
}

fn device_reference_count_of_a_whole_device_stays_one(cl: &Fixture) -> Verdict {
    call!(cl, clRetainDevice(cl.device()))?;
    let count = info!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_REFERENCE_COUNT))?.number();
    call!(cl, clReleaseDevice(cl.device()))?;
    assert_eq!(count, 1);
    Ok(())
}

fn device_type_of_no_device_is_not_found(cl: &Fixture) -> Verdict {
    let mut count = 9;
    let kind = CL_DEVICE_TYPE_CUSTOM;
    let listed = call!(
        cl,
        clGetDeviceIDs(cl.platform, kind, 0, ptr::null_mut(), &raw mut count)
    );
    cl.requires(listed.is_err(), "the platform has a custom device")?;
    assert_eq!(listed.code(), CL_DEVICE_NOT_FOUND);
    Ok(())
}

fn device_type_zero_is_invalid_device_type(cl: &Fixture) -> Verdict {
    let mut count = 9;
    let listed = call!(
        cl,
        clGetDeviceIDs(cl.platform, 0, 0, ptr::null_mut(), &raw mut count)
    );
    assert_eq!(listed.code(), CL_INVALID_DEVICE_TYPE);
    Ok(())
}

fn extensions_with_version_name_the_extensions(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (3, 0),
        "the device is older than OpenCL 3.0",
    )?;
    let text = info!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_EXTENSIONS))?.text();
    let list = info!(
        cl,
        clGetDeviceInfo(cl.device(), CL_DEVICE_EXTENSIONS_WITH_VERSION)
    )?;
    let mut named: Vec<String> = list
        .0
        .as_chunks::<68>()
        .0
        .iter()
        .map(|entry| Answer(entry[4..].into()).text())
        .collect();
    let mut listed: Vec<String> = text.split_whitespace().map(String::from).collect();
    named.sort();
    listed.sort();
    assert_eq!(named, listed);
    Ok(())
}

fn limits_are_those_of_a_device_that_can_be_used(cl: &Fixture) -> Verdict {
    let number =
        |query| info!(cl, clGetDeviceInfo(cl.device(), query)).map(|answer| answer.number());
    let dimensions = number(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS)?;
    let sizes = info!(
        cl,
        clGetDeviceInfo(cl.device(), CL_DEVICE_MAX_WORK_ITEM_SIZES)
    )?
    .words();
    assert!(dimensions >= 3 && sizes.len() == dimensions as usize);
    assert!(number(CL_DEVICE_MAX_COMPUTE_UNITS)? >= 1);
    assert!(number(CL_DEVICE_MAX_WORK_GROUP_SIZE)? >= 1);
    assert!(number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)? <= number(CL_DEVICE_GLOBAL_MEM_SIZE)?);
    assert_eq!(number(CL_DEVICE_AVAILABLE)?, 1);
    Ok(())
}

fn platform_info_unknown_query_is_invalid_value(cl: &Fixture) -> Verdict {
    assert_eq!(
        info!(cl, clGetPlatformInfo(cl.platform, 0x7777)).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn platform_list_without_destination_is_invalid_value(cl: &Fixture) -> Verdict {
    let listed = call!(cl, clGetPlatformIDs(0, ptr::null_mut(), ptr::null_mut()));
    assert_eq!(listed.code(), CL_INVALID_VALUE);
    Ok(())
}

fn platform_name_is_text(cl: &Fixture) -> Verdict {
    let name = info!(cl, clGetPlatformInfo(cl.platform, CL_PLATFORM_NAME))?;
    let version = info!(cl, clGetPlatformInfo(cl.platform, CL_PLATFORM_VERSION))?.text();
    assert_eq!(name.0.last(), Some(&0));
    assert!(version.starts_with("OpenCL "), "{version}");
    Ok(())
}

fn timers_advance(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (2, 1),
        "the device is older than OpenCL 2.1",
    )?;
    let (mut device, mut host, mut later) = (0, 0, 0);
    let both = call!(
        cl,
        clGetDeviceAndHostTimer(cl.device(), &raw mut device, &raw mut host)
    );
    cl.requires(
        both.code() != CL_INVALID_OPERATION,
        "the platform has no device timers",
    )?;
    both?;
    call!(cl, clGetHostTimer(cl.device(), &raw mut later))?;
    assert!(
        device > 0 && host > 0 && later >= host,
        "{device} {host} {later}"
    );
    Ok(())
}

fn timers_without_destination_are_refused(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (2, 1),
        "the device is older than OpenCL 2.1",
    )?;
    let resolution = info!(
        cl,
        clGetPlatformInfo(cl.platform, CL_PLATFORM_HOST_TIMER_RESOLUTION)
    )?;
    let refusal = if resolution.number() == 0 {
        CL_INVALID_OPERATION
    } else {
        CL_INVALID_VALUE
    };
    let none = ptr::null_mut::<cl_ulong>();
    let both = call!(cl, clGetDeviceAndHostTimer(cl.device(), none, none));
    let host = call!(cl, clGetHostTimer(cl.device(), none));
    assert_eq!((both.code(), host.code()), (Code(refusal), Code(refusal)));
    Ok(())
}
