//! Sub-devices, where the device can be divided.

use std::ptr;

use super::call::*;
use super::fixture::Fixture;
use super::rules;
use towline_backend::opencl::*;

rules![partition:
    counts_of_more_units_than_there_are_are_refused,
    equal_parts_answer_with_their_parent_and_units,
    kernel_runs_on_a_part,
    part_has_reference_counts,
    partition_in_an_unknown_way_is_invalid_value,
    program_of_the_whole_is_built_for_parts,
];

/// Parts of one unit each.
fn parts(cl: &Fixture) -> Result<Vec<Owned<cl_device_id>>, Stop> {
    let way = CL_DEVICE_PARTITION_EQUALLY;
    cl.requires(
        cl.caps.partitions.contains(&(way as u64)),
        "the device cannot be divided equally",
    )?;
    cl.requires(cl.caps.units > 1, "the device has one compute unit")?;
    let (list, mut count) = ([way, 1, 0], 0);
    call!(
        cl,
        clCreateSubDevices(
            cl.device(),
            list.as_ptr(),
            0,
            ptr::null_mut(),
            &raw mut count
        )
    )?;
    let mut raw = vec![ptr::null_mut(); count as usize];
    let (room, none) = (raw.as_mut_ptr(), ptr::null_mut());
    call!(
        cl,
        clCreateSubDevices(cl.device(), list.as_ptr(), count, room, none)
    )?;
    Ok(raw
        .into_iter()
        .map(|part| Owned::new(&cl.api, part))
        .collect())
}

fn counts_of_more_units_than_there_are_are_refused(cl: &Fixture) -> Verdict {
    let way = CL_DEVICE_PARTITION_BY_COUNTS;
    cl.requires(
        cl.caps.partitions.contains(&(way as u64)),
        "the device cannot be divided by counts",
    )?;
    let list = [way, cl.caps.units as i64 + 1, 0, 0];
    let mut count = 0;
    let divided = call!(
        cl,
        clCreateSubDevices(
            cl.device(),
            list.as_ptr(),
            0,
            ptr::null_mut(),
            &raw mut count
        )
    );
    assert_eq!(divided.code(), CL_INVALID_DEVICE_PARTITION_COUNT);
    Ok(())
}

fn equal_parts_answer_with_their_parent_and_units(cl: &Fixture) -> Verdict {
    let parts = parts(cl)?;
    let number =
        |query| info!(cl, clGetDeviceInfo(parts[0].raw(), query)).map(|answer| answer.number());
    assert_eq!(parts.len(), cl.caps.units as usize);
    assert_eq!(number(CL_DEVICE_PARENT_DEVICE)?, cl.device().addr() as u64);
    assert_eq!(number(CL_DEVICE_MAX_COMPUTE_UNITS)?, 1);
    Ok(())
}

fn kernel_runs_on_a_part(cl: &Fixture) -> Verdict {
    let parts = parts(cl)?;
    let device = parts[1].raw();
    let user = ptr::null_mut();
    let context = create!(
        cl,
        clCreateContext(ptr::null(), 1, &raw const device, None, user)
    )?;
    let queue = create!(cl, clCreateCommandQueue(context.raw(), device, 0))?;
    let program = cl.program(&context, super::fixture::KERNELS)?;
    let options = ptr::null();
    call!(
        cl,
        clBuildProgram(program.raw(), 1, &raw const device, options, None, user)
    )?;
    let kernel = cl.kernel(&program, c"add_one")?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch(&queue, &kernel, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [2; 4]);
    Ok(())
}

fn part_has_reference_counts(cl: &Fixture) -> Verdict {
    let parts = parts(cl)?;
    let count = || {
        info!(
            cl,
            clGetDeviceInfo(parts[0].raw(), CL_DEVICE_REFERENCE_COUNT)
        )
        .map(|answer| answer.number())
    };
    call!(cl, clRetainDevice(parts[0].raw()))?;
    let more = count()?;
    call!(cl, clReleaseDevice(parts[0].raw()))?;
    assert_eq!((more, count()?), (2, 1));
    Ok(())
}

fn partition_in_an_unknown_way_is_invalid_value(cl: &Fixture) -> Verdict {
    let (list, mut count) = ([0x7777, 1, 0], 0);
    let divided = call!(
        cl,
        clCreateSubDevices(
            cl.device(),
            list.as_ptr(),
            0,
            ptr::null_mut(),
            &raw mut count
        )
    );
    cl.requires(
        !cl.caps.partitions.iter().all(|way| *way == 0),
        "the device cannot be divided",
    )?;
    assert_eq!(divided.code(), CL_INVALID_VALUE);
    Ok(())
}

fn program_of_the_whole_is_built_for_parts(cl: &Fixture) -> Verdict {
    let parts = parts(cl)?;
    let whole = cl.device();
    let devices = [parts[0].raw(), whole];
    let user = ptr::null_mut();
    let context = create!(
        cl,
        clCreateContext(ptr::null(), 2, devices.as_ptr(), None, user)
    )?;
    let program = cl.program(&context, super::fixture::KERNELS)?;
    let options = ptr::null();
    call!(
        cl,
        clBuildProgram(program.raw(), 1, &raw const whole, options, None, user)
    )?;
    for device in devices {
        let query = CL_PROGRAM_BUILD_STATUS;
        let status = info!(cl, clGetProgramBuildInfo(program.raw(), device, query))?;
        assert_eq!(status.number() as i32, CL_BUILD_SUCCESS);
    }
    Ok(())
}
