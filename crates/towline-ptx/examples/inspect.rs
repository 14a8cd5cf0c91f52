//! Prints what images hold: `cargo run -p towline-ptx --example inspect -- FILE...`, files as compilers write them (`nvcc -fatbin`,
//! `-cubin`, `-ptx`). `--device 9.0` adds which entry of a container that device uses, and `--alone` writes that entry alone to FILE.alone.
//! `--print` writes PTX as it is printed to FILE.printed: ptxas must make the same machine code of both.

use std::error::Error;

use towline_ptx::ComputeCapability;
use towline_ptx::cubin::Cubin;
use towline_ptx::fatbin::{self, EntryKind, containers};
use towline_ptx::image::{self, Kind};
use towline_ptx::ir::{Body, Program};
use towline_ptx::ptx::{self, Module, layout};

fn main() -> Result<(), Box<dyn Error>> {
    let mut device = None;
    let mut alone = false;
    let mut print = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--device" {
            device = arguments.next().as_deref().and_then(capability);
            continue;
        }
        if argument == "--alone" {
            alone = true;
            continue;
        }
        if argument == "--print" {
            print = true;
            continue;
        }
        println!("{argument}");
        let bytes = std::fs::read(&argument)?;
        if let Err(error) = file(&bytes, device) {
            println!("  {error}");
        }
        if print && let Ok(module) = ptx::text(&bytes).and_then(|text| Ok(Module::parse(text)?)) {
            std::fs::write(format!("{argument}.printed"), module.to_string())?;
        }
        if let Some(device) = device.filter(|_| alone)
            && let Ok(Some(selected)) = fatbin::select(&bytes, device)
        {
            std::fs::write(format!("{argument}.alone"), selected)?;
        }
    }
    Ok(())
}

fn capability(text: &str) -> Option<ComputeCapability> {
    let (major, minor) = text.split_once('.')?;
    Some(ComputeCapability::new(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

fn file(bytes: &[u8], device: Option<ComputeCapability>) -> Result<(), Box<dyn Error>> {
    match image::kind(bytes) {
        Some(Kind::Container) => {
            for container in containers(bytes) {
                let container = container?;
                let programs = container.programs()?;
                for program in &programs {
                    let (major, minor) = program.version;
                    println!(
                        "  {:?} {} version {major}.{minor}, {:?}, stored as {} bytes",
                        program.kind,
                        program.arch,
                        program.entry.codec,
                        program.entry.payload().len()
                    );
                    match program.kind {
                        EntryKind::Elf => cubin(&program.image()?)?,
                        EntryKind::Ptx => text(&program.image()?)?,
                        _ => {}
                    }
                }
                if let Some(chosen) = device.and_then(|device| fatbin::choose(programs, device)) {
                    println!("  uses {:?} {}", chosen.kind, chosen.arch);
                }
            }
            Ok(())
        }
        Some(Kind::Elf) => cubin(bytes),
        Some(Kind::Ptx) => text(bytes),
        _ => Err("no image in a file".into()),
    }
}

fn cubin(bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let cubin = Cubin::parse(bytes)?;
    println!("    machine code for {}", cubin.arch);
    for kernel in &cubin.kernels {
        let parameters: Vec<_> = kernel
            .parameters
            .iter()
            .map(|parameter| (parameter.offset, parameter.len))
            .collect();
        println!(
            "    {}: parameters {parameters:?}, registers {:?}, shared {}, frame {:?}",
            String::from_utf8_lossy(kernel.name),
            kernel.registers,
            kernel.shared_bytes,
            kernel.frame_bytes
        );
    }
    for variable in &cubin.variables {
        let name = String::from_utf8_lossy(variable.name);
        println!("    {:?} {name}: {} bytes", variable.space, variable.len);
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let text = ptx::text(bytes)?;
    let module = Module::parse(text)?;
    let (major, minor) = module.version;
    println!("    PTX {major}.{minor} for {}", module.target.join(", "));
    for kernel in module.kernels() {
        let parameters: Option<Vec<_>> = layout::parameters(kernel).map(|placements| {
            let place = |one: &layout::Placement| (one.offset, one.len);
            placements.iter().map(place).collect()
        });
        println!("    {}: parameters {:?}", kernel.name, parameters);
    }
    for variable in module.variables() {
        println!(
            "    {} {}: {:?} bytes",
            variable.space,
            variable.name,
            layout::len(variable)
        );
    }
    for function in Program::link(std::slice::from_ref(&module))?.functions {
        match function.body {
            Body::Declared => println!("    {}: not here", function.name),
            Body::Code(code) => println!(
                "    {}: {} instructions, {} registers",
                function.name,
                code.instructions.len(),
                code.registers
            ),
            Body::Refused(error) => println!("    {}: {error}", function.name),
        }
    }
    let printed = module.to_string();
    if Module::parse(&printed)? != module {
        return Err("does not print as it was read".into());
    }
    Ok(())
}
