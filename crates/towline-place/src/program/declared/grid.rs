//! Boxes of points cut among ranks.

/// Three factors of `ranks` whose boxes of a grid of `points` have the least surface; the first that has it.
pub(super) fn cut(ranks: u32, points: [u32; 3]) -> [u32; 3] {
    let mut best = ([ranks, 1, 1], f64::INFINITY);
    for a in (1..=ranks).filter(|a| ranks.is_multiple_of(*a)) {
        let rest = ranks / a;
        for b in (1..=rest).filter(|b| rest.is_multiple_of(*b)) {
            let parts = [a, b, rest / b];
            let edge = |axis: usize| f64::from(points[axis]) / f64::from(parts[axis]);
            let surface = edge(0) * edge(1) + edge(1) * edge(2) + edge(2) * edge(0);
            if surface < best.1 {
                best = (parts, surface);
            }
        }
    }
    best.0
}

/// A rank's neighbour `step` away along an axis of a grid of ranks whose last axis runs fastest; none beyond the edge unless
/// the grid closes.
pub(super) fn neighbour(
    me: u32,
    parts: [u32; 3],
    axis: usize,
    forward: bool,
    closes: bool,
) -> Option<u32> {
    let stride: u32 = parts.iter().skip(axis + 1).product();
    let at = me / stride % parts[axis];
    let base = me - at * stride;
    let to = match (forward, at) {
        (true, at) if at + 1 < parts[axis] => at + 1,
        (true, _) => closes.then_some(0)?,
        (false, 0) => closes.then_some(parts[axis] - 1)?,
        (false, at) => at - 1,
    };
    let peer = base + to * stride;
    (peer != me).then_some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_cubic_as_the_count_allows() {
        assert_eq!(cut(8, [64, 64, 64]), [2, 2, 2]);
        assert_eq!(cut(16, [1024, 512, 512]), [4, 2, 2]);
        assert_eq!(cut(7, [10, 10, 10]).iter().product::<u32>(), 7);
    }

    #[test]
    fn neighbours_are_mutual() {
        let parts = [2, 3, 4];
        for me in 0..24 {
            for axis in 0..3 {
                let there = neighbour(me, parts, axis, true, true).unwrap();
                assert_eq!(neighbour(there, parts, axis, false, true), Some(me));
            }
        }
        assert_eq!(neighbour(0, parts, 2, false, false), None);
        assert_eq!(neighbour(0, parts, 0, true, false), Some(12));
    }
}
