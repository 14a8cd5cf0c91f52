//! Writes the seeds of every target into the corpus, from the encoders of today.

use std::path::Path;

use towline_fuzz::targets::TARGETS;

fn main() -> std::io::Result<()> {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(target.name);
        std::fs::create_dir_all(&folder)?;
        for seed in (target.seeds)() {
            std::fs::write(folder.join(seed.name), seed.bytes)?;
        }
    }
    Ok(())
}
