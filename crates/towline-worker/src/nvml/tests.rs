use std::sync::Mutex;

use towline_backend::nvml::snapshot::{Device, Snapshot};
use towline_backend::nvml::{
    DeviceGetMemoryInfoV2, DeviceGetMemoryInfoV2Reply, DeviceGetName, DeviceGetPowerUsage,
    DeviceGetPowerUsageReply, DeviceHandle, FieldValues, FieldValuesReply, List, MemoryClocks,
    MemoryClocksReply, MemoryV2, Message, NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_NOT_SUPPORTED, NVML_SUCCESS, NullNvml, Request,
    nvmlDevice_t, nvmlMemory_v2_t, nvmlReturn_t,
};

use super::*;

fn monitor() -> NvmlMonitor {
    NvmlMonitor::open(Arc::new(NullNvml::new(2)), &|_, _, _| true).unwrap()
}

fn question<'a, R: Request<'a>>(request: &R) -> Question {
    let mut body = Vec::new();
    request.encode(&mut body);
    Question { call: R::ID, body }
}

fn ask<'a, R: Request<'a>>(monitor: &mut NvmlMonitor, request: &R) -> Answer {
    let questions = NvmlQuestions {
        questions: vec![question(request)],
    };
    monitor.answer(&questions, Instant::now()).answers.remove(0)
}

/// The first device, as some client's handle.
const FIRST: DeviceHandle = DeviceHandle((7 << 32) | 1);

#[test]
fn what_never_changes_is_told_at_once_and_devices_can_be_left_out() {
    let snapshot = Snapshot::decode(monitor().snapshot()).unwrap();
    let uuids: Vec<_> = snapshot
        .devices
        .iter()
        .map(|device| String::from_utf8_lossy(&device.uuid))
        .collect();
    assert_eq!(
        uuids,
        [
            "GPU-746f776c-696e-652d-6e75-6c6c2d637530",
            "GPU-746f776c-696e-652d-6e75-6c6c2d637531"
        ]
    );
    let second = |number: usize, _: &str, _: &str| number == 1;
    let one = NvmlMonitor::open(Arc::new(NullNvml::new(2)), &second).unwrap();
    let told = Snapshot::decode(one.snapshot()).unwrap();
    // It is this server's first.
    let expected = Device {
        number: 0,
        ..snapshot.devices[1].clone()
    };
    assert_eq!(told.devices, [expected]);
    let none = NvmlMonitor::open(Arc::new(NullNvml::new(2)), &|_, _, _| false);
    assert!(matches!(none.err(), Some(NvmlOpenError::NoDevice)));
}

#[test]
fn a_device_that_is_not_there_and_nonsense_are_refused_and_others_answered() {
    let mut monitor = monitor();
    let power = |device| question(&DeviceGetPowerUsage { device });
    let questions = NvmlQuestions {
        questions: vec![
            power(DeviceHandle(9)),
            power(DeviceHandle(0)),
            Question {
                call: 0xffff,
                body: Vec::new(),
            },
            Question {
                call: DeviceGetPowerUsage::ID,
                body: vec![1],
            },
            power(FIRST),
        ],
    };
    let answers = monitor.answer(&questions, Instant::now()).answers;
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    let refused = NVML_ERROR_INVALID_ARGUMENT;
    assert_eq!(statuses, [refused, refused, refused, refused, NVML_SUCCESS]);
    let reply = DeviceGetPowerUsageReply::decode(&answers[4].body).unwrap();
    assert_eq!(reply.power, Some(42_000));
}

#[test]
fn a_structure_of_another_size_never_reaches_the_library() {
    let mut monitor = monitor();
    let memory = |version| DeviceGetMemoryInfoV2 {
        device: FIRST,
        memory: MemoryV2 {
            version,
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        },
    };
    let right = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
    let answer = ask(&mut monitor, &memory(right));
    let reply = DeviceGetMemoryInfoV2Reply::decode(&answer.body).unwrap();
    assert_eq!(reply.memory.map(|memory| memory.total), Some(8 << 30));
    let answer = ask(&mut monitor, &memory(right + 8));
    assert_eq!(answer.status, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

#[test]
fn room_beyond_the_limit_is_refused_before_it_is_made() {
    let mut monitor = monitor();
    let name = |length| DeviceGetName {
        device: FIRST,
        length,
    };
    assert_eq!(
        ask(&mut monitor, &name(u32::MAX)).status,
        NVML_ERROR_INVALID_ARGUMENT
    );
    assert_eq!(
        ask(&mut monitor, &name(4)).status,
        NVML_ERROR_INSUFFICIENT_SIZE
    );
    assert_eq!(ask(&mut monitor, &name(64)).status, NVML_SUCCESS);
}

#[test]
fn lists_tell_their_length_and_then_what_is_in_them() {
    let mut monitor = monitor();
    let clocks = |room| MemoryClocks {
        device: FIRST,
        room,
    };
    let answer = ask(&mut monitor, &clocks(0));
    let reply = MemoryClocksReply::decode(&answer.body).unwrap();
    assert_eq!((answer.status, reply.count), (NVML_SUCCESS, 2));
    let answer = ask(&mut monitor, &clocks(2));
    let reply = MemoryClocksReply::decode(&answer.body).unwrap();
    assert_eq!(
        reply.clocks.map(|clocks| clocks.to_vec()),
        Some(vec![3201, 1593])
    );
    assert_eq!(
        ask(&mut monitor, &clocks(1)).status,
        NVML_ERROR_INSUFFICIENT_SIZE
    );
}

#[test]
fn each_value_by_number_has_its_own_status() {
    let mut monitor = monitor();
    let request = FieldValues {
        device: FIRST,
        count: 2,
        fields: List::Values(&[83, 4711]),
        scopes: List::Values(&[0, 0]),
    };
    let answer = ask(&mut monitor, &request);
    let reply = FieldValuesReply::decode(&answer.body).unwrap();
    let statuses = reply.statuses.map(|list| list.to_vec());
    assert_eq!(statuses, Some(vec![NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED]));
}

/// A library that counts how often it is asked, and answers with the count.
#[derive(Default)]
struct Counting {
    asked: Mutex<u32>,
}

#[allow(non_snake_case)]
impl NvmlApi for Counting {
    unsafe fn nvmlInit_v2(&self) -> nvmlReturn_t {
        NVML_SUCCESS
    }
    unsafe fn nvmlDeviceGetCount_v2(&self, count: *mut u32) -> nvmlReturn_t {
        // SAFETY: the contract of the call.
        unsafe { count.write(1) };
        NVML_SUCCESS
    }
    unsafe fn nvmlDeviceGetHandleByIndex_v2(
        &self,
        _index: u32,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        // SAFETY: the contract of the call.
        unsafe { device.write(std::ptr::without_provenance_mut(1)) };
        NVML_SUCCESS
    }
    unsafe fn nvmlDeviceGetPowerUsage(
        &self,
        _device: nvmlDevice_t,
        power: *mut u32,
    ) -> nvmlReturn_t {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        // SAFETY: the contract of the call.
        unsafe { power.write(*asked) };
        NVML_SUCCESS
    }
}

#[test]
fn many_who_poll_cost_what_one_does() {
    let mut monitor = NvmlMonitor::open(Arc::new(Counting::default()), &|_, _, _| true).unwrap();
    let questions = NvmlQuestions {
        questions: vec![question(&DeviceGetPowerUsage { device: FIRST })],
    };
    let mut at = |now| {
        let answer = monitor.answer(&questions, now).answers.remove(0);
        DeviceGetPowerUsageReply::decode(&answer.body)
            .unwrap()
            .power
    };
    let start = Instant::now();
    assert_eq!(at(start), Some(1));
    assert_eq!(at(start + AGE / 2), Some(1));
    assert_eq!(at(start + AGE), Some(2));
    assert_eq!(at(start + AGE + AGE / 2), Some(2));
}
