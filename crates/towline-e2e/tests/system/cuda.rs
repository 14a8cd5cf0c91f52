//! Programs of the CUDA driver API on the device in host memory.

use crate::support::{Client, Server, opencl_program};

#[test]
fn program_of_the_driver_api_computes_on_a_server() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let lines = Client::new(&[&server], opencl_program("cuda_add"))
        .run()
        .lines_of_success();
    let mut expected = vec!["1 device".to_owned()];
    expected.extend((0..4).map(|power| format!("{} numbers, 0 wrong", 64_u32.pow(power))));
    expected.push("fault 700, then 700".into());
    assert_eq!(lines, expected);
}

#[test]
fn server_without_a_driver_has_no_cuda_devices_and_says_so() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "off"], &[]);
    let said = Client::new(&[&server], opencl_program("cuda_add")).run();
    assert!(said.errors.contains("no CUDA devices"), "{}", said.errors);
}
