//! A placement as SVG: nodes with their sockets and cores, each core with the rank that it has; colours follow the ranks, so
//! that neighbours by number look alike.

use std::fmt::Write;

use crate::gpus::{Assignment, Home};
use crate::{Cluster, Placement};

const CELL: u32 = 26;
const GAP: u32 = 8;
/// Nodes in a row of the picture.
const ACROSS: u32 = 8;
/// What is drawn of a large cluster: its first nodes with ranks.
const MAX_NODES: usize = 256;

/// Draws a placement with a line of text below.
pub fn draw(
    cluster: &Cluster,
    placement: &Placement,
    gpus: Option<&Assignment>,
    caption: &str,
) -> String {
    let nodes = placement.by_node(cluster);
    let shown = &nodes[..nodes.len().min(MAX_NODES)];
    let rows = |index: usize| cluster.nodes[index].sockets.len() as u32;
    let columns = |index: usize| {
        cluster.nodes[index]
            .sockets
            .iter()
            .copied()
            .max()
            .unwrap_or(1)
            .min(32)
    };
    let width = shown
        .iter()
        .map(|(node, _)| columns(*node) * CELL)
        .max()
        .unwrap_or(CELL)
        .max(90)
        + 2 * GAP;
    let lines = |node: usize| -> u32 {
        cluster.nodes[node]
            .sockets
            .iter()
            .map(|cores| cores.div_ceil(32))
            .sum::<u32>()
            .max(rows(node))
    };
    let height = shown
        .iter()
        .map(|(node, _)| lines(*node) * (CELL + GAP))
        .max()
        .unwrap_or(CELL)
        + 3 * GAP
        + 14;
    let across = ACROSS.min(shown.len().max(1) as u32);
    let down = (shown.len() as u32).div_ceil(across);
    let (all_width, all_height) = (
        across * (width + GAP) + GAP,
        down * (height + GAP) + 3 * GAP + 30,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all_width}\" height=\"{all_height}\" \
         viewBox=\"0 0 {all_width} {all_height}\" font-family=\"sans-serif\" font-size=\"10\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let remote: Vec<bool> = (0..placement.ranks())
        .map(|rank| {
            gpus.and_then(|gpus| gpus.gpus.get(rank).copied().flatten())
                .is_some_and(|slot| matches!(slot.home, Home::Server(_)))
        })
        .collect();
    for (place, (node, ranks)) in (0..).zip(shown) {
        let (x, y) = (
            GAP + place % across * (width + GAP),
            GAP + place / across * (height + GAP),
        );
        let of = &cluster.nodes[*node];
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"#f4f4f4\" stroke=\"#888\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"#333\">{}</text>",
            x + GAP,
            y + 14,
            escape(&of.name)
        );
        let mut top = y + 14 + GAP;
        for (socket, &cores) in (0..).zip(&of.sockets) {
            let first = of.first_core(socket);
            for core in 0..cores {
                let (left, line) = (x + GAP + core % 32 * CELL, top + core / 32 * (CELL + GAP));
                let here: Vec<usize> = ranks
                    .iter()
                    .copied()
                    .filter(|&rank| placement.slots[rank].core == first + core)
                    .collect();
                let hue = here
                    .first()
                    .map(|rank| rank * 300 / placement.ranks().max(1));
                let fill = hue.map_or("white".to_owned(), |hue| format!("hsl({hue},65%,75%)"));
                let stroke = match here.iter().any(|&rank| remote[rank]) {
                    true => "#c00",
                    false => "#aaa",
                };
                let label: Vec<String> = here.iter().map(usize::to_string).collect();
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left}\" y=\"{line}\" width=\"{0}\" height=\"{0}\" fill=\"{fill}\" stroke=\"{stroke}\"/>\
                     <text x=\"{1}\" y=\"{2}\" text-anchor=\"middle\" font-size=\"{3}\">{4}</text>",
                    CELL - 2,
                    left + CELL / 2 - 1,
                    line + CELL / 2 + 3,
                    if here.len() > 1 { 7 } else { 10 },
                    label.join("/")
                );
            }
            top += cores.div_ceil(32) * (CELL + GAP);
        }
    }
    let more = match nodes.len() > shown.len() {
        true => format!(" ({} more nodes are not shown)", nodes.len() - shown.len()),
        false => String::new(),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{GAP}\" y=\"{}\" font-size=\"12\">{}{more}</text>\n</svg>",
        all_height - GAP - 6,
        escape(caption)
    );
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::cluster::sample;

    #[test]
    fn every_rank_is_in_the_picture_and_it_is_xml() {
        let cluster = sample(3, 2, 40);
        let placement = Policy::RoundRobin(1).place(&cluster, 200, false).unwrap();
        let svg = draw(&cluster, &placement, None, "a < b & c");
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = document
            .descendants()
            .filter_map(|node| node.text())
            .collect();
        assert!((0..200).all(|rank| texts.contains(&rank.to_string().as_str())));
        assert!(texts.contains(&"a < b & c"));
    }
}
