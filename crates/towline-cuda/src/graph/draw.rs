//! A graph as a drawing for people, in Graphviz's language.

use std::fmt::Write;

use towline_backend::cuda::*;

use super::model::{Content, Graphs};
use crate::driver::Driver;

fn kind(content: &Content) -> &'static str {
    match content {
        Content::Kernel(_) => "KERNEL",
        Content::Copy(_) => "MEMCPY",
        Content::Fill(_) => "MEMSET",
        Content::Host(..) => "HOST",
        Content::Child(_) => "GRAPH",
        Content::Empty => "EMPTY",
        Content::Wait(_) => "EVENT_WAIT",
        Content::Record(_) => "EVENT_RECORD",
        Content::Operations { .. } => "BATCH_MEM_OP",
        Content::Alloc(_) => "MEM_ALLOC",
        Content::Free(_) => "MEM_FREE",
        Content::Conditional(_) => "CONDITIONAL",
        Content::Collective(..) => "COLLECTIVE",
    }
}

fn details(driver: &Driver, content: &Content, out: &mut String) {
    // Writing to a string does not fail.
    let _ = match content {
        Content::Kernel(kernel) => {
            let known = driver.function(kernel.named);
            let name = known.map(|known| String::from_utf8_lossy(&known.facts().name).into_owned());
            write!(
                out,
                "\\n{}\\ngrid {:?}\\nblock {:?}\\nshared {}",
                name.unwrap_or_default().replace('"', ""),
                kernel.work.grid,
                kernel.work.block,
                kernel.work.shared_bytes
            )
        }
        Content::Copy(copy) => {
            let given = copy.given.0;
            let (width, height) = (given.WidthInBytes, given.Height);
            write!(out, "\\n{width} x {height} x {}", given.Depth)
        }
        Content::Fill(fill) => write!(
            out,
            "\\n{:#x}\\n{} x {} of {} bytes",
            fill.address, fill.width, fill.height, fill.element_size
        ),
        Content::Wait(event) | Content::Record(event) => write!(out, "\\n{event:#x}"),
        Content::Free(address) => write!(out, "\\n{address:#x}"),
        _ => Ok(()),
    };
}

/// The text.
pub(crate) fn draw(
    driver: &Driver,
    graphs: &Graphs,
    graph: u64,
    flags: u32,
) -> Result<String, CUresult> {
    let flags = match flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE {
        0 => flags,
        // As if every flag were given.
        _ => u32::MAX,
    };
    let mut out = String::from("digraph dot {\n");
    cluster(driver, graphs, graph, flags, &mut out)?;
    out.push_str("}\n");
    Ok(out)
}

fn cluster(
    driver: &Driver,
    graphs: &Graphs,
    graph: u64,
    flags: u32,
    out: &mut String,
) -> Result<(), CUresult> {
    let known = graphs.graph(graph)?;
    let id = known.id;
    let _ = writeln!(
        out,
        "subgraph cluster_{id} {{\nlabel=\"graph_{id}\" graph[style=\"dashed\"];"
    );
    for number in &known.nodes {
        let node = graphs.node(*number)?;
        let mut label = format!("{}\\n{}", node.local, kind(&node.content));
        if flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES != 0 {
            let _ = write!(label, "\\n{number:#x}");
        }
        // Every flag but the handles' asks for more of some kind of node.
        if flags & !CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES != 0 {
            details(driver, &node.content, &mut label);
        }
        let _ = writeln!(
            out,
            "\"graph_{id}_node_{}\" [shape=\"box\" label=\"{label}\"];",
            node.local
        );
        for dep in &node.before {
            let before = graphs.node(dep.node)?.local;
            let _ = writeln!(
                out,
                "\"graph_{id}_node_{before}\" -> \"graph_{id}_node_{}\";",
                node.local
            );
        }
        match &node.content {
            Content::Child(child) => cluster(driver, graphs, *child, flags, out)?,
            Content::Conditional(conditional) => {
                for body in &conditional.bodies {
                    cluster(driver, graphs, *body, flags, out)?;
                }
            }
            _ => {}
        }
    }
    out.push_str("}\n");
    Ok(())
}
