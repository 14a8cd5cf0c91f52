//! Reads a trace and says which ranks send most to each other, and where its tasks should go on a cluster:
//! `cargo run -p towline-place --example read_trace -- crates/towline-place/examples/trace`, or another folder that `towline trace` wrote.

use std::error::Error;
use std::path::PathBuf;

use towline_place::cluster::preset;
use towline_place::score::{Sockets, score};
use towline_place::{Matrix, Policy};

/// Pairs to show.
const SHOWN: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let folder = folder.ok_or("name the folder of a trace")?;
    let (matrix, remark) = Matrix::from_file(&folder)?;
    if let Some(remark) = remark {
        println!("note: {remark}");
    }
    println!("{} ranks sent {:.0} bytes", matrix.ranks(), matrix.bytes());

    let mut pairs: Vec<(usize, u32, f64)> = Vec::new();
    for (from, sent) in matrix.sent.iter().enumerate() {
        pairs.extend(
            sent.iter()
                .map(|traffic| (from, traffic.peer, traffic.bytes)),
        );
    }
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2));
    for (from, to, bytes) in pairs.iter().take(SHOWN) {
        println!("  {from} to {to}: {bytes:.0} bytes");
    }

    let cluster = preset::cluster("two-leaves")?;
    let mut estimates = Vec::new();
    for policy in Policy::usual(&cluster) {
        let placement = policy.place(&cluster, matrix.ranks(), false)?;
        let estimate = score(&cluster, &matrix, &Sockets::default(), &placement)?;
        estimates.push((estimate.total_s, placement.name));
    }
    estimates.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (seconds, name) in estimates {
        println!("  placed by {name}: {seconds:.4} s");
    }
    Ok(())
}
