//! The whole as its users meet it: `towline serve` processes, unchanged programs under `towline run`, and what goes wrong
//! between them.
//!
//! The tests run binaries of a release build: `cargo build --release -p towline-cli -p towline-opencl` comes first. They
//! need PoCL, Oclgrind, `clinfo`, tmux, a C compiler and `make`, which `make test` installs. Times are limits that a hang
//! exceeds and a busy machine does not, except where a promise names one.

mod support;

mod access;
mod checkpoint;
mod cuda;
mod cuda_events;
mod cuda_faults;
mod cuda_ranks;
mod cuts;
mod device_time;
mod devices;
mod faults;
mod first_run;
mod footprint;
mod jobs;
mod kernel_cache;
mod leases;
mod lifecycle;
mod limits;
mod many;
mod metrics;
mod migration;
mod mix;
mod nccl;
mod nvml;
mod peers;
mod processes;
mod programs;
mod shares;
mod slurm;
mod slurm_pool;
mod swap;
mod tenants;
mod timeline;
mod top;
mod transports;
mod walks;
