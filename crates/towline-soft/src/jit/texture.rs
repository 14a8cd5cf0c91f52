//! Accesses to textures and surfaces: a helper carries them out, which finds inputs in the head and leaves parts there.

use cranelift_codegen::ir::{InstBuilder, MemFlags, types};
use towline_ptx::ir::op::Source;
use towline_ptx::ir::texture::Access;

use super::HELPER_COST;
use super::emit::{Emitter, Kind};
use super::head::exchange;

impl Emitter<'_, '_> {
    pub(super) fn texture(&mut self, access: &Access) {
        let flags = MemFlags::trusted();
        let head = self.head;
        let sampler = access.sampler.iter();
        let given: Vec<Source> = [access.handle]
            .iter()
            .chain(sampler)
            .chain(&access.inputs)
            .copied()
            .collect();
        for (place, source) in given.into_iter().enumerate() {
            let value = self.get_exact(source, Kind::I64);
            self.b.ins().store(flags, value, head, exchange(place));
        }
        self.spend(HELPER_COST);
        let at = self.b.ins().iconst(types::I64, i64::from(self.at));
        let lane = self.lane;
        let call = self.b.ins().call(self.helpers.texture, &[head, at, lane]);
        let done = self.b.inst_results(call)[0];
        let on = self.b.create_block();
        let faulted = self.faulted;
        self.b.ins().brif(done, on, &[], faulted, &[]);
        self.b.switch_to_block(on);
        for (place, d) in access.d.iter().enumerate() {
            if let Some(d) = d {
                let value = self.b.ins().load(types::I64, flags, head, exchange(place));
                self.set(*d, value, Kind::I64);
            }
        }
        if let Some(p) = access.p {
            let yes = self.b.ins().iconst(types::I8, 1);
            self.set_flag(p, yes);
        }
    }
}
