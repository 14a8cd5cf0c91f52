//! Variables of device code that lie elsewhere than the program was told, since the session has moved: what a request says of them is changed
//! on its way.
//!
//! A program has such an address from the driver and gives it back in calls, parameters and graphs, where it can be found. One that it has
//! stored in device memory refuses the move ([`super::moving`]).

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::cuda::graph::{Graph, Place, Work};
use towline_wire::cuda::texture_reference as setting;

/// Addresses of one variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Alias {
    /// Its address for the program.
    pub(super) known: u64,
    pub(super) size: u64,
    /// Its address.
    pub(super) actual: u64,
}

/// The variables that lie elsewhere.
#[derive(Debug, Default)]
pub(super) struct Aliases(Vec<Alias>);

impl Aliases {
    pub(super) fn new(aliases: Vec<Alias>) -> Self {
        Self(aliases)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address of something that the program has at this one.
    fn at(&self, address: u64) -> u64 {
        let holds = |alias: &&Alias| address.wrapping_sub(alias.known) < alias.size;
        let found = self.0.iter().find(holds);
        found.map_or(address, |alias| alias.actual + (address - alias.known))
    }

    /// Packed parameters with the addresses in them changed: pointers are at multiples of their size.
    fn in_parameters(&self, params: &[u8]) -> Vec<u8> {
        let mut changed = params.to_vec();
        for word in changed.as_chunks_mut::<8>().0 {
            *word = self.at(u64::from_le_bytes(*word)).to_le_bytes();
        }
        changed
    }

    /// Six words of each operation, the second an address.
    fn in_operations(&self, words: &mut [u64]) {
        for [_, address, ..] in words.as_chunks_mut::<6>().0 {
            *address = self.at(*address);
        }
    }

    fn in_graph(&self, graph: &mut Graph) {
        for node in &mut graph.nodes {
            match &mut node.work {
                Work::Kernel(kernel) => kernel.params = self.in_parameters(&kernel.params),
                Work::Copy(copy) => {
                    for place in [&mut copy.source.place, &mut copy.destination.place] {
                        if let Place::Device(address) = place {
                            *address = self.at(*address);
                        }
                    }
                }
                Work::Fill(fill) => fill.address = self.at(fill.address),
                Work::Operations { words, .. } => self.in_operations(words),
                Work::Conditional { bodies, .. } => {
                    bodies.iter_mut().for_each(|body| self.in_graph(body));
                }
                _ => {}
            }
        }
    }

    /// A description of a graph with the addresses in it changed.
    fn in_description(&self, description: &[u8]) -> Vec<u8> {
        match Graph::decode(description) {
            Ok(mut graph) => {
                self.in_graph(&mut graph);
                graph.encode()
            }
            Err(_) => description.to_vec(),
        }
    }

    /// An encoded request as the server is to have it; `None` where it stays as it is.
    pub(super) fn changed(&self, id: u16, body: &[u8]) -> Option<Vec<u8>> {
        fn read<'a, R: Request<'a>>(id: u16, body: &'a [u8]) -> Option<R> {
            (id == R::ID).then(|| R::decode(body).ok()).flatten()
        }
        fn written<'a>(request: &impl Message<'a>) -> Option<Vec<u8>> {
            let mut out = Vec::new();
            request.encode(&mut out);
            Some(out)
        }
        if let Some(mut launch) = read::<wire::Launch<'_>>(id, body) {
            let params = self.in_parameters(launch.params);
            launch.params = &params;
            return written(&launch);
        }
        if let Some(mut launch) = read::<wire::LaunchFirst<'_>>(id, body) {
            let params = self.in_parameters(launch.params);
            launch.params = &params;
            return written(&launch);
        }
        if let Some(mut write) = read::<wire::WriteInline<'_>>(id, body) {
            write.address = self.at(write.address);
            return written(&write);
        }
        if let Some(mut write) = read::<wire::WriteBulk>(id, body) {
            write.address = self.at(write.address);
            return written(&write);
        }
        if let Some(mut read) = read::<wire::Read>(id, body) {
            read.address = self.at(read.address);
            return written(&read);
        }
        if let Some(mut write) = read::<wire::WriteBox<'_>>(id, body) {
            write.address = self.at(write.address);
            return written(&write);
        }
        if let Some(mut read) = read::<wire::ReadBox<'_>>(id, body) {
            read.address = self.at(read.address);
            return written(&read);
        }
        if let Some(mut write) = read::<wire::WriteShared>(id, body) {
            write.address = self.at(write.address);
            return written(&write);
        }
        if let Some(mut read) = read::<wire::ReadShared>(id, body) {
            read.address = self.at(read.address);
            return written(&read);
        }
        if let Some(mut fill) = read::<wire::Memset>(id, body) {
            fill.address = self.at(fill.address);
            return written(&fill);
        }
        if let Some(mut copy) = read::<wire::Copy>(id, body) {
            copy.source = self.at(copy.source);
            copy.destination = self.at(copy.destination);
            return written(&copy);
        }
        if let Some(mut copy) = read::<wire::CopyBox<'_>>(id, body) {
            copy.source = self.at(copy.source);
            copy.destination = self.at(copy.destination);
            return written(&copy);
        }
        if let Some(mut map) = read::<wire::TensorMap<'_>>(id, body) {
            map.address = self.at(map.address);
            return written(&map);
        }
        self.changed_words(id, body)
            .or_else(|| self.changed_graph(id, body))
    }

    /// Requests with addresses among words.
    fn changed_words(&self, id: u16, body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if id == <wire::StreamOperations<'_> as Request<'_>>::ID {
            let mut request = wire::StreamOperations::decode(body).ok()?;
            let mut words: Vec<u64> = request.operations.iter().collect();
            self.in_operations(&mut words);
            request.operations = wire::List::Values(&words);
            request.encode(&mut out);
        } else if id == <wire::TextureCreate<'_> as Request<'_>>::ID {
            let mut request = wire::TextureCreate::decode(body).ok()?;
            let mut words: Vec<u64> = request.resource.iter().collect();
            self.in_word(&mut words, 1);
            request.resource = wire::List::Values(&words);
            request.encode(&mut out);
        } else if id == <wire::TextureReferenceSet<'_> as Request<'_>>::ID {
            let mut request = wire::TextureReferenceSet::decode(body).ok()?;
            let mut words: Vec<u64> = request.words.iter().collect();
            self.in_word(&mut words, address_at(request.setting)?);
            request.words = wire::List::Values(&words);
            request.encode(&mut out);
        }
        (!out.is_empty()).then_some(out)
    }

    fn in_word(&self, words: &mut [u64], at: usize) {
        if let Some(word) = words.get_mut(at) {
            *word = self.at(*word);
        }
    }

    fn changed_graph(&self, id: u16, body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if id == <wire::GraphMake<'_> as Request<'_>>::ID {
            let mut make = wire::GraphMake::decode(body).ok()?;
            let description = self.in_description(make.description);
            (make.description, make.size) = (&description, description.len() as u64);
            make.encode(&mut out);
            return Some(out);
        }
        if id == <wire::GraphChange<'_> as Request<'_>>::ID {
            let mut change = wire::GraphChange::decode(body).ok()?;
            let description = self.in_description(change.changes);
            (change.changes, change.size) = (&description, description.len() as u64);
            change.encode(&mut out);
            return Some(out);
        }
        if id == <wire::GraphAdjust<'_> as Request<'_>>::ID {
            let mut change = wire::GraphAdjust::decode(body).ok()?;
            let description = self.in_description(change.changes);
            (change.changes, change.size) = (&description, description.len() as u64);
            change.encode(&mut out);
            return Some(out);
        }
        None
    }
}

/// The word with the address in a setting of a texture reference.
pub(super) fn address_at(which: u32) -> Option<usize> {
    match which {
        setting::ADDRESS => Some(0),
        setting::ADDRESS_2D | setting::ADDRESS_2D_UNALIGNED => Some(4),
        _ => None,
    }
}

/// Finds addresses of variables in contents.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Sorted: where each begins and ends.
    ranges: Vec<(u64, u64)>,
}

impl Search {
    pub(super) fn new(ranges: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut ranges: Vec<(u64, u64)> = ranges.collect();
        ranges.sort_unstable();
        Self { ranges }
    }

    /// The first such address.
    pub(super) fn find(&self, contents: &[u8]) -> Option<u64> {
        let (first, _) = *self.ranges.first()?;
        let last = self.ranges.iter().map(|(_, end)| *end).max()?;
        let words = contents.as_chunks::<8>().0.iter();
        let mut words = words.map(|word| u64::from_le_bytes(*word));
        words.find(|word| (first..last).contains(word) && self.is_within(*word))
    }

    fn is_within(&self, address: u64) -> bool {
        let at = self.ranges.partition_point(|(start, _)| *start <= address);
        let before = at.checked_sub(1).and_then(|at| self.ranges.get(at));
        before.is_some_and(|(_, end)| address < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases() -> Aliases {
        Aliases::new(vec![Alias {
            known: 0x1000,
            size: 64,
            actual: 0x9000,
        }])
    }

    fn encoded<'a>(request: &impl Message<'a>) -> Vec<u8> {
        let mut out = Vec::new();
        request.encode(&mut out);
        out
    }

    #[test]
    fn addresses_in_calls_and_parameters_are_changed() {
        let fill = wire::Memset {
            stream: wire::StreamHandle(0),
            address: 0x103f,
            pitch: 0,
            value: 1,
            element_size: 1,
            width: 1,
            height: 1,
        };
        let id = <wire::Memset as Request<'_>>::ID;
        let changed = aliases().changed(id, &encoded(&fill)).expect("it has one");
        let changed = wire::Memset::decode(&changed).expect("it is one");
        assert_eq!(changed.address, 0x903f);
        let params: Vec<u8> = [0x1000_u64, 0x1040, 0xfff]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .chain([1, 2, 3, 4])
            .collect();
        let changed = aliases().in_parameters(&params);
        assert_eq!(changed[..8], 0x9000_u64.to_le_bytes());
        assert_eq!(changed[8..], params[8..]);
    }

    #[test]
    fn addresses_among_words_are_changed() {
        let words = [1, 0x1008, 5, 0, 0, 0, 2, 0x1040, 6, 0, 0, 0];
        let changed = [1, 0x9008, 5, 0, 0, 0, 2, 0x1040, 6, 0, 0, 0];
        let operations = wire::StreamOperations {
            stream: wire::StreamHandle(0),
            flags: 0,
            words: 12,
            operations: wire::List::Values(&words),
        };
        let id = <wire::StreamOperations<'_> as Request<'_>>::ID;
        let body = aliases().changed(id, &encoded(&operations));
        let body = body.expect("it has one");
        let there = wire::StreamOperations::decode(&body).expect("it is one");
        assert_eq!(there.operations.iter().collect::<Vec<_>>(), changed);
        let mut graph = Graph::default();
        graph.nodes.push(towline_wire::cuda::graph::Node {
            number: 1,
            work: Work::Operations {
                context: 0,
                flags: 0,
                words: words.to_vec(),
            },
        });
        aliases().in_graph(&mut graph);
        let is_changed =
            matches!(&graph.nodes[0].work, Work::Operations { words, .. } if *words == changed);
        assert!(is_changed);
        let set = |which, words: &[u64; 6]| {
            let set = wire::TextureReferenceSet {
                reference: wire::TexrefHandle(1),
                setting: which,
                array: wire::ArrayHandle(0),
                mipmap: wire::MipmappedArrayHandle(0),
                words: wire::List::Values(words),
            };
            let id = <wire::TextureReferenceSet<'_> as Request<'_>>::ID;
            let body = aliases().changed(id, &encoded(&set))?;
            let there = wire::TextureReferenceSet::decode(&body).ok()?;
            Some(there.words.iter().collect::<Vec<_>>())
        };
        let bound = set(setting::ADDRESS_2D, &[8, 8, 1, 1, 0x1000, 64]);
        assert_eq!(bound, Some(vec![8, 8, 1, 1, 0x9000, 64]));
        assert_eq!(set(setting::FORMAT, &[0x1000, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn other_requests_stay_as_they_are() {
        let ping = encoded(&wire::Ping { token: 0x1000 });
        let id = <wire::Ping as Request<'_>>::ID;
        assert_eq!(aliases().changed(id, &ping), None);
    }

    #[test]
    fn stored_addresses_are_found() {
        let search = Search::new([(0x2000, 0x2008), (0x1000, 0x1010)].into_iter());
        let contents = |words: &[u64]| {
            words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            search.find(&contents(&[5, 0x1fff, 0x2007, 9])),
            Some(0x2007)
        );
        assert_eq!(search.find(&contents(&[0xfff, 0x1010, 0x2008])), None);
        assert_eq!(Search::default().find(&contents(&[0])), None);
    }
}
