//! What a graph is, in the words of `GraphMake` and `GraphChange`: nodes that a driver has, and edges. Graphs within graphs have been
//! written out; what of them needs the application's memory or functions is named by the node's number when the graph is launched.

use crate::codec::{Decoder, Scalar, put_blob};
use crate::error::DecodeError;

/// Most nodes of a graph.
const NODE_LIMIT: usize = 1 << 20;
/// Most edges.
const EDGE_LIMIT: usize = 1 << 22;
/// Most words of launch attributes or operations of a node.
const WORD_LIMIT: usize = 4096;
/// Most words of a node's collectives.
const COLLECTIVE_LIMIT: usize = 1 << 20;
/// Most bodies of a conditional node.
const BODY_LIMIT: usize = 256;
/// How deep conditional nodes may lie in conditional nodes.
const DEPTH_LIMIT: usize = 8;

/// A description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// What keeps them in order.
    pub edges: Vec<Edge>,
}

/// A node under the client's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The number; 0 is none.
    pub number: u64,
    /// What it does.
    pub work: Work,
}

/// One node comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// Where in the list of nodes the earlier is.
    pub from: u32,
    /// Where the later is.
    pub to: u32,
    /// `CUgraphEdgeData`: port it comes from, port it goes to, kind, zeros.
    pub data: [u8; 8],
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Empty,
    /// A launch, as `Launch` has it.
    Kernel(Kernel),
    /// A copy.
    Copy(Copy),
    /// A fill.
    Fill(Fill),
    /// The client is called.
    Call,
    /// Records an event.
    Record(u64),
    /// Waits for an event.
    Wait(u64),
    /// Waits for and writes values; six words of each, as the API's union has them.
    Operations {
        /// The context, 0 for the one acted in.
        context: u64,
        /// The API's flags.
        flags: u32,
        /// The words.
        words: Vec<u64>,
    },
    /// An allocation that `GraphAlloc` has made.
    Alloc,
    /// Frees memory.
    Free(u64),
    /// Runs graphs as a value says.
    Conditional {
        /// The value, as `GraphCondition` gave it.
        handle: u64,
        /// `CUgraphConditionalNodeType`.
        kind: u32,
        /// The context, 0 for the one acted in.
        context: u64,
        /// The graphs.
        bodies: Vec<Graph>,
    },
    /// Collectives, in the words of `CollectiveRun`; streams in them mean nothing.
    Collective(Vec<u64>),
}

/// A launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The function's number, or a kernel's.
    pub function: u64,
    /// The context, 0 for the one acted in.
    pub context: u64,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Nine words of each attribute: its number and its 64 bytes.
    pub attributes: Vec<u64>,
    /// The packed parameters.
    pub params: Vec<u8>,
}

/// A copy of a box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copy {
    /// Where it comes from.
    pub source: Operand,
    /// Where it goes to.
    pub destination: Operand,
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
    /// The context, 0 for the one acted in.
    pub context: u64,
}

/// One side of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operand {
    /// What it lies in.
    pub place: Place,
    /// First byte of a row.
    pub x: u64,
    /// First row.
    pub y: u64,
    /// First slice.
    pub z: u64,
    /// Level of a mipmapped array.
    pub level: u64,
    /// Bytes from a row to the next.
    pub pitch: u64,
    /// Rows from a slice to the next.
    pub height: u64,
}

/// Where an operand lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// In the application's memory: the bytes travel when the node runs, rows end to end.
    #[default]
    Client,
    /// At an address of the device.
    Device(u64),
    /// In an array of this number.
    Array(u64),
}

/// A fill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fill {
    /// Where.
    pub address: u64,
    /// Bytes from a row to the next.
    pub pitch: u64,
    /// With what.
    pub value: u32,
    /// Bytes of an element.
    pub element_size: u32,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// The context, 0 for the one acted in.
    pub context: u64,
}

impl Copy {
    /// Bytes; `None` where that is no number.
    pub fn bytes(&self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// Whether the application's memory is read or written.
    pub fn is_of_client(&self) -> bool {
        self.source.place == Place::Client || self.destination.place == Place::Client
    }
}

impl Graph {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.nodes.len() * 192 + self.edges.len() * 16 + 8);
        self.put(&mut out);
        out
    }

    /// Reads a description. Edges lie between its nodes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let graph = Self::take(&mut decoder, DEPTH_LIMIT)?;
        decoder.finish()?;
        Ok(graph)
    }

    fn put(&self, out: &mut Vec<u8>) {
        (self.nodes.len() as u32).put(out);
        for node in &self.nodes {
            node.number.put(out);
            node.work.put(out);
        }
        (self.edges.len() as u32).put(out);
        for edge in &self.edges {
            edge.from.put(out);
            edge.to.put(out);
            edge.data.put(out);
        }
    }

    fn take(decoder: &mut Decoder<'_>, depth: usize) -> Result<Self, DecodeError> {
        let mut graph = Self::default();
        for _ in 0..decoder.count("nodes", NODE_LIMIT)? {
            graph.nodes.push(Node {
                number: decoder.scalar()?,
                work: Work::take(decoder, depth)?,
            });
        }
        let nodes = graph.nodes.len();
        for _ in 0..decoder.count("edges", EDGE_LIMIT)? {
            let edge = Edge {
                from: decoder.scalar()?,
                to: decoder.scalar()?,
                data: decoder.scalar()?,
            };
            if edge.from.max(edge.to) as usize >= nodes {
                return Err(DecodeError::TooLong {
                    what: "nodes of an edge",
                    len: u64::from(edge.from.max(edge.to)),
                    limit: nodes as u64,
                });
            }
            graph.edges.push(edge);
        }
        Ok(graph)
    }
}

fn put_words(out: &mut Vec<u8>, words: &[u64]) {
    (words.len() as u32).put(out);
    words.iter().for_each(|word| word.put(out));
}

fn take_words(decoder: &mut Decoder<'_>, limit: usize) -> Result<Vec<u64>, DecodeError> {
    let count = decoder.count("words", limit)?;
    (0..count).map(|_| decoder.scalar()).collect()
}

impl Work {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => 0_u8.put(out),
            Self::Kernel(kernel) => {
                1_u8.put(out);
                kernel.function.put(out);
                kernel.context.put(out);
                kernel.grid.put(out);
                kernel.block.put(out);
                kernel.shared_bytes.put(out);
                put_words(out, &kernel.attributes);
                put_blob(out, &kernel.params);
            }
            Self::Copy(copy) => {
                2_u8.put(out);
                copy.source.put(out);
                copy.destination.put(out);
                [copy.width, copy.height, copy.depth, copy.context].put(out);
            }
            Self::Fill(fill) => {
                3_u8.put(out);
                [fill.address, fill.pitch, fill.width, fill.height].put(out);
                [fill.value, fill.element_size].put(out);
                fill.context.put(out);
            }
            Self::Call => 4_u8.put(out),
            Self::Record(event) => {
                5_u8.put(out);
                event.put(out);
            }
            Self::Wait(event) => {
                6_u8.put(out);
                event.put(out);
            }
            Self::Operations {
                context,
                flags,
                words,
            } => {
                7_u8.put(out);
                context.put(out);
                flags.put(out);
                put_words(out, words);
            }
            Self::Alloc => 8_u8.put(out),
            Self::Free(address) => {
                9_u8.put(out);
                address.put(out);
            }
            Self::Conditional {
                handle,
                kind,
                context,
                bodies,
            } => {
                10_u8.put(out);
                handle.put(out);
                kind.put(out);
                context.put(out);
                (bodies.len() as u32).put(out);
                bodies.iter().for_each(|body| body.put(out));
            }
            Self::Collective(words) => {
                11_u8.put(out);
                put_words(out, words);
            }
        }
    }

    fn take(decoder: &mut Decoder<'_>, depth: usize) -> Result<Self, DecodeError> {
        Ok(match decoder.scalar::<u8>()? {
            0 => Self::Empty,
            1 => Self::Kernel(Kernel {
                function: decoder.scalar()?,
                context: decoder.scalar()?,
                grid: decoder.scalar()?,
                block: decoder.scalar()?,
                shared_bytes: decoder.scalar()?,
                attributes: take_words(decoder, WORD_LIMIT)?,
                params: decoder.blob()?.to_vec(),
            }),
            2 => {
                let (source, destination) = (Operand::take(decoder)?, Operand::take(decoder)?);
                let [width, height, depth, context] = decoder.scalar()?;
                Self::Copy(Copy {
                    source,
                    destination,
                    width,
                    height,
                    depth,
                    context,
                })
            }
            3 => {
                let [address, pitch, width, height] = decoder.scalar()?;
                let [value, element_size] = decoder.scalar()?;
                Self::Fill(Fill {
                    address,
                    pitch,
                    value,
                    element_size,
                    width,
                    height,
                    context: decoder.scalar()?,
                })
            }
            4 => Self::Call,
            5 => Self::Record(decoder.scalar()?),
            6 => Self::Wait(decoder.scalar()?),
            7 => Self::Operations {
                context: decoder.scalar()?,
                flags: decoder.scalar()?,
                words: take_words(decoder, WORD_LIMIT)?,
            },
            8 => Self::Alloc,
            9 => Self::Free(decoder.scalar()?),
            10 => {
                let depth = depth.checked_sub(1).ok_or(DecodeError::TooLong {
                    what: "conditional nodes in each other",
                    len: DEPTH_LIMIT as u64 + 1,
                    limit: DEPTH_LIMIT as u64,
                })?;
                let (handle, kind) = (decoder.scalar()?, decoder.scalar()?);
                let context = decoder.scalar()?;
                let count = decoder.count("bodies", BODY_LIMIT)?;
                let bodies = (0..count).map(|_| Graph::take(decoder, depth));
                Self::Conditional {
                    handle,
                    kind,
                    context,
                    bodies: bodies.collect::<Result<_, _>>()?,
                }
            }
            11 => Self::Collective(take_words(decoder, COLLECTIVE_LIMIT)?),
            other => return Err(DecodeError::BadFlag(other)),
        })
    }
}

impl Operand {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, at) = match self.place {
            Place::Client => (0_u8, 0),
            Place::Device(address) => (1, address),
            Place::Array(array) => (2, array),
        };
        kind.put(out);
        at.put(out);
        [self.x, self.y, self.z, self.level, self.pitch, self.height].put(out);
    }

    fn take(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (kind, at) = (decoder.scalar::<u8>()?, decoder.scalar()?);
        let place = match kind {
            0 => Place::Client,
            1 => Place::Device(at),
            2 => Place::Array(at),
            other => return Err(DecodeError::BadFlag(other)),
        };
        let [x, y, z, level, pitch, height] = decoder.scalar()?;
        Ok(Self {
            place,
            x,
            y,
            z,
            level,
            pitch,
            height,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Graph {
        let operand = |place| Operand {
            place,
            x: 1,
            y: 2,
            z: 3,
            level: 4,
            pitch: 5,
            height: 6,
        };
        let works = [
            Work::Empty,
            Work::Kernel(Kernel {
                function: 7,
                context: 8,
                grid: [1, 2, 3],
                block: [4, 5, 6],
                shared_bytes: 9,
                attributes: vec![1; 9],
                params: vec![1, 2, 3],
            }),
            Work::Copy(Copy {
                source: operand(Place::Client),
                destination: operand(Place::Device(0x1000)),
                width: 1,
                height: 2,
                depth: 3,
                context: 4,
            }),
            Work::Copy(Copy {
                source: operand(Place::Array(9)),
                ..Copy::default()
            }),
            Work::Fill(Fill {
                address: 1,
                pitch: 2,
                value: 3,
                element_size: 4,
                width: 5,
                height: 6,
                context: 7,
            }),
            Work::Collective(vec![1; WORD_LIMIT + 1]),
            Work::Call,
            Work::Record(1),
            Work::Wait(2),
            Work::Operations {
                context: 1,
                flags: 2,
                words: vec![3; 6],
            },
            Work::Alloc,
            Work::Free(4),
            Work::Conditional {
                handle: 1,
                kind: 2,
                context: 3,
                bodies: vec![Graph::default(), {
                    let node = Node {
                        number: 9,
                        work: Work::Empty,
                    };
                    Graph {
                        nodes: vec![node],
                        edges: Vec::new(),
                    }
                }],
            },
        ];
        let nodes = works.into_iter().zip(100..);
        Graph {
            nodes: nodes.map(|(work, number)| Node { number, work }).collect(),
            edges: vec![Edge {
                from: 0,
                to: 11,
                data: [1, 0, 1, 0, 0, 0, 0, 0],
            }],
        }
    }

    #[test]
    fn a_description_survives_the_wire_and_no_cut_decodes() {
        let graph = sample();
        let bytes = graph.encode();
        assert_eq!(Graph::decode(&bytes).as_ref(), Ok(&graph));
        for cut in 0..bytes.len() {
            assert!(Graph::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn an_edge_to_no_node_is_refused() {
        let mut graph = sample();
        graph.edges[0].to = graph.nodes.len() as u32;
        assert!(Graph::decode(&graph.encode()).is_err());
    }

    #[test]
    fn graphs_in_graphs_end_at_the_limit() {
        let nest = |depth: usize| {
            (0..depth).fold(Graph::default(), |body, _| Graph {
                nodes: vec![Node {
                    number: 1,
                    work: Work::Conditional {
                        handle: 0,
                        kind: 0,
                        context: 0,
                        bodies: vec![body],
                    },
                }],
                edges: Vec::new(),
            })
        };
        assert!(Graph::decode(&nest(DEPTH_LIMIT).encode()).is_ok());
        assert!(Graph::decode(&nest(DEPTH_LIMIT + 1).encode()).is_err());
    }
}
