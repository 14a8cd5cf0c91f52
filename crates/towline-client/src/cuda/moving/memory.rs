//! Device memory at the addresses that a program knows.

use super::*;

/// Drivers heed a wish for as many addresses as this, at multiples of it, and not one for a few (measured with driver 580.159).
const SPAN: u64 = 32 << 20;
/// More than any gap between allocations of a pool.
const LARGEST_GAP: u64 = 1 << 36;
/// Allocations of pools begin at multiples of this.
const POOL_ALIGNMENT: u64 = 512;

/// Spans of addresses: where each begins, and its bytes.
#[derive(Default)]
pub(super) struct Spans(Vec<(u64, u64)>);

impl Spans {
    fn around(&self, address: u64) -> (u64, u64) {
        let spans = self.0.iter();
        let mut spans = spans.filter(|(start, size)| address.wrapping_sub(*start) < *size);
        spans.next().copied().unwrap_or_default()
    }
}

/// The address and bytes of an allocation.
pub(super) fn allocation(recipe: &Recipe) -> Option<(u64, u64)> {
    let Key::Memory(address) = recipe.key else {
        return None;
    };
    let alone = recipe.read::<wire::MemoryAlloc>().map(|made| made.size);
    let size = alone.or(recipe.read::<wire::PoolAlloc>().map(|made| made.size));
    Some((address, size?))
}

/// The spans that hold all memory and all reserved addresses.
pub(super) fn spans<'a>(recipes: impl Iterator<Item = &'a Recipe>) -> Spans {
    let ranges = recipes.filter_map(|recipe| {
        let reserved = match recipe.key {
            Key::Reserved(address) => recipe
                .read::<wire::AddressReserve>()
                .map(|reserve| (address, reserve.size)),
            _ => None,
        };
        let told = variable(recipe).and_then(|(_, told)| told);
        let (start, size) = reserved.or_else(|| allocation(recipe)).or(told)?;
        let end = start.checked_add(size)?.checked_next_multiple_of(SPAN)?;
        Some((start / SPAN * SPAN, end))
    });
    let mut ranges: Vec<(u64, u64)> = ranges.collect();
    ranges.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match spans.last_mut() {
            Some((first, size)) if start <= *first + *size => *size = (*size).max(end - *first),
            _ => spans.push((start, end - start)),
        }
    }
    Spans(spans)
}

impl Session {
    /// The meaning of a status of a request for these addresses.
    fn unplaced(&self, what: &'static str, address: u64, status: i32) -> RebuildError {
        match status {
            wire::CUDA_ERROR_ALREADY_MAPPED => RebuildError::Taken {
                server: self.server().into(),
                address,
            },
            status => self.refused(what, status),
        }
    }

    pub(super) fn reserve_again(
        &self,
        fresh: &Self,
        recipe: &Recipe,
        reserve: &wire::AddressReserve,
        spans: &Spans,
    ) -> Result<(), RebuildError> {
        let Key::Reserved(address) = recipe.key else {
            return Ok(());
        };
        let (span, span_size) = spans.around(address);
        let request = wire::AddressReserve {
            hint: address,
            span,
            span_size,
            ..*reserve
        };
        let asked = fresh.call_rare(in_context(recipe.context), &request);
        let asked = asked.map(|_| ());
        asked.map_err(|status| fresh.unplaced("addresses", address, status))
    }

    /// Has nothing lie there where the program believes a variable to be.
    pub(super) fn keep_free(
        &self,
        fresh: &Self,
        alias: &Alias,
        spans: &Spans,
    ) -> Result<(), RebuildError> {
        let (span, span_size) = spans.around(alias.known);
        let request = wire::AddressReserve {
            size: alias.size,
            alignment: 0,
            hint: alias.known,
            span,
            span_size,
        };
        let asked = fresh.call_rare(MOVER, &request).map(|_| ());
        asked.map_err(|status| fresh.unplaced("addresses", alias.known, status))
    }

    /// Allocates all memory anew where it is.
    pub(super) fn place_memory(
        &self,
        fresh: &Self,
        known: &recipe::Known,
        spans: &Spans,
    ) -> Result<(), RebuildError> {
        let mut groups: Vec<Group> = Vec::new();
        for recipe in known.in_order() {
            let Some((address, size)) = allocation(recipe) else {
                continue;
            };
            let place = (recipe.context, spans.around(address));
            let known = groups.iter().position(|group| group.place == place);
            let at = known.unwrap_or_else(|| {
                groups.push(Group {
                    place,
                    ..Group::default()
                });
                groups.len() - 1
            });
            let group = &mut groups[at];
            group.words.extend([address, size]);
            match recipe.read::<wire::PoolAlloc>() {
                Some(made) => group.of_pools.push((made.pool.0, address, size)),
                None => group.has_others = true,
            }
        }
        let devices = devices(known);
        // Memory at addresses that the pool itself would have to have. Before its first allocation it has none, and then many.
        let mut of_pools: Vec<(u64, u64, (u64, u64))> = Vec::new();
        for group in groups {
            let (context, (span, span_size)) = group.place;
            let device = devices.get(&context).copied();
            let device = device.ok_or(RebuildError::Unmovable(
                "memory of it is of a context that has ended",
            ))?;
            let request = wire::MemoryPlace {
                device,
                span,
                span_size,
                words: group.words.len() as u32,
                allocations: wire::List::Values(&group.words),
            };
            match fresh.call_rare(in_context(context), &request) {
                Ok(_) => {}
                Err(wire::CUDA_ERROR_ALREADY_MAPPED) if !group.has_others => {
                    let allocations = group.of_pools.into_iter();
                    of_pools.extend(
                        allocations.map(|(pool, address, size)| (context, pool, (address, size))),
                    );
                }
                Err(status) => return Err(fresh.unplaced("memory", span, status)),
            }
        }
        while let Some((context, pool, (address, _))) = of_pools.first().copied() {
            let is_of_it = |other: &mut (u64, u64, _)| (other.0, other.1) == (context, pool);
            let allocations = of_pools.extract_if(.., is_of_it);
            let allocations: Vec<_> = allocations.map(|(_, _, allocation)| allocation).collect();
            if !fill_pool(fresh, context, pool, &allocations)? {
                return Err(RebuildError::Taken {
                    server: fresh.server().into(),
                    address,
                });
            }
        }
        Ok(())
    }
}

/// Allocations of one span.
#[derive(Default)]
struct Group {
    /// The context, and the span: where it begins, and its bytes.
    place: (u64, (u64, u64)),
    /// Address and bytes of each.
    words: Vec<u64>,
    /// Those of pools: the pool, where each begins, and its bytes.
    of_pools: Vec<(u64, u64, u64)>,
    /// Others are among them.
    has_others: bool,
}

/// A context of the device that physical memory is on, by the memory's number.
pub(super) fn homes(known: &recipe::Known) -> HashMap<u64, u64> {
    let contexts: HashMap<i32, u64> = devices(known)
        .into_iter()
        .map(|(context, device)| (device, context))
        .collect();
    let physical = known.in_order().filter_map(|recipe| {
        let made: wire::PhysicalCreate = recipe.read()?;
        Some((made.memory, *contexts.get(&made.device)?))
    });
    physical.collect()
}

/// The device of each context.
fn devices(known: &recipe::Known) -> HashMap<u64, i32> {
    let contexts = known.in_order().filter_map(|recipe| {
        let created: Option<wire::ContextCreate> = recipe.read();
        let retained: Option<wire::PrimaryRetain> = recipe.read();
        let created = created.map(|made| (made.context.0, made.device));
        created.or(retained.map(|made| (made.context.0, made.device)))
    });
    contexts.collect()
}

/// Allocates from an empty pool so that everything comes to lie where it is: from the lowest address on, with what fills the gaps in between,
/// which is freed in the end. A pool gives out what is free from the lowest address on (measured with driver 580.159). `false` where something came to lie
/// elsewhere: then nothing is allocated.
fn fill_pool(
    fresh: &Session,
    context: u64,
    pool: u64,
    allocations: &[(u64, u64)],
) -> Result<bool, RebuildError> {
    let what = "memory of a pool";
    let actor = in_context(context);
    let allocate = |size: u64| {
        let request = wire::PoolAlloc {
            stream: wire::StreamHandle(0),
            pool: wire::MemoryPoolHandle(pool),
            size,
        };
        let body = match fresh.call_rare(actor, &request) {
            // A gap may be larger than memory.
            Err(wire::CUDA_ERROR_OUT_OF_MEMORY) => return Ok(0),
            body => body.map_err(|status| fresh.refused(what, status))?,
        };
        let reply = wire::PoolAllocReply::decode(&body);
        let address = reply.ok().and_then(|reply| reply.address);
        address.ok_or_else(|| fresh.refused(what, fresh.malformed()))
    };
    let free = |address: u64| {
        if address == 0 {
            return Ok(());
        }
        let stream = wire::StreamHandle(0);
        let freed = fresh.post_rare(actor, &wire::PoolFree { stream, address });
        freed.map_err(|status| fresh.refused(what, status))
    };
    let mut sorted = allocations.to_vec();
    sorted.sort_unstable();
    let mut next = allocate(POOL_ALIGNMENT)?;
    // Its place is free again for what comes next on the stream.
    free(next)?;
    let (mut fillers, mut made, mut fits) = (Vec::new(), Vec::new(), true);
    for (address, size) in sorted {
        fits &= address.wrapping_sub(next) < LARGEST_GAP;
        if fits && address > next {
            let filler = allocate(address - next)?;
            fillers.push(filler);
            fits = filler == next;
        }
        if !fits {
            break;
        }
        let got = allocate(size)?;
        made.push(got);
        fits = got == address;
        next = address + size.next_multiple_of(POOL_ALIGNMENT);
    }
    fillers.into_iter().try_for_each(free)?;
    if !fits {
        made.into_iter().try_for_each(free)?;
    }
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_and_apart() {
        let memory = |address: u64, size: u64| {
            let mut body = Vec::new();
            let made = wire::MemoryAlloc {
                size,
                managed_flags: 0,
            };
            Message::encode(&made, &mut body);
            Recipe::of_memory(<wire::MemoryAlloc as Request<'_>>::ID, address, body)
        };
        let recipes = [
            memory(3 * SPAN + 512, 1024),
            memory(4 * SPAN - 512, 1024),
            memory(9 * SPAN, SPAN + 1),
        ];
        let spans = spans(recipes.iter());
        assert_eq!(spans.0, [(3 * SPAN, 2 * SPAN), (9 * SPAN, 2 * SPAN)]);
        assert_eq!(spans.around(4 * SPAN + 5), (3 * SPAN, 2 * SPAN));
        assert_eq!(spans.around(6 * SPAN), (0, 0));
    }
}
