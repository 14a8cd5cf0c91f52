//! Plots like the study's Figures 2 to 4, as SVG: performance by size or by nodes, natively and in machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::report::{CaseReport, Report};
use super::stats::Interval;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Natively dark, in machines light, by processes for each GPU.
const COLOURS: [(&str, &str); 4] = [
    ("#1f4e79", "#7fb2e5"),
    ("#7f3f00", "#f0a860"),
    ("#1e6b3a", "#86cf9f"),
    ("#5b2a7a", "#c19be0"),
];

/// A line of a plot.
struct Series {
    name: String,
    colour: &'static str,
    is_dashed: bool,
    /// Places on the axis and what is there.
    points: Vec<(usize, Interval)>,
}

/// The plots, by the name of their file.
#[must_use]
pub fn plots(report: &Report) -> BTreeMap<String, String> {
    let mut by_kind: BTreeMap<&str, Vec<&CaseReport>> = BTreeMap::new();
    for case in &report.cases {
        by_kind.entry(case.case.kind.name()).or_default().push(case);
    }
    by_kind
        .into_iter()
        .map(|(kind, cases)| (format!("{kind}.svg"), plot(kind, &cases)))
        .collect()
}

/// By size where there are several, else by nodes.
fn plot(kind: &str, cases: &[&CaseReport]) -> String {
    let mut sizes: Vec<&str> = Vec::new();
    for case in cases {
        if !sizes.contains(&case.case.size.as_str()) {
            sizes.push(&case.case.size);
        }
    }
    let nodes: BTreeSet<u32> = cases.iter().map(|case| case.case.nodes).collect();
    let by_size = sizes.len() > 1;
    let labels: Vec<String> = match by_size {
        true => sizes.iter().map(|&size| size.to_owned()).collect(),
        false => nodes.iter().map(ToString::to_string).collect(),
    };
    let place = |case: &CaseReport| match by_size {
        true => sizes.iter().position(|&size| size == case.case.size),
        false => nodes.iter().position(|&count| count == case.case.nodes),
    };
    let mut groups: BTreeMap<(u32, u32), Vec<&CaseReport>> = BTreeMap::new();
    for case in cases {
        let of_nodes = if by_size { case.case.nodes } else { 0 };
        groups
            .entry((of_nodes, case.case.per_gpu))
            .or_default()
            .push(case);
    }
    let mut series = Vec::new();
    for (number, ((of_nodes, per_gpu), group)) in groups.into_iter().enumerate() {
        let (dark, light) = COLOURS
            .get(number % COLOURS.len())
            .copied()
            .unwrap_or_default();
        let what = match (
            of_nodes,
            group
                .first()
                .is_some_and(|case| case.case.kind.takes_ranks()),
        ) {
            (0, true) => format!(", {per_gpu}:1"),
            (0, false) => String::new(),
            (nodes, true) => format!(", {per_gpu}:1, {nodes} nodes"),
            (nodes, false) => format!(", {nodes} nodes"),
        };
        let points = |of: fn(&CaseReport) -> Option<Interval>| {
            let found = group
                .iter()
                .filter_map(|case| Some((place(case)?, of(case)?)));
            let mut points: Vec<(usize, Interval)> = found.collect();
            points.sort_by_key(|&(place, _)| place);
            points
        };
        series.push(Series {
            name: format!("native{what}"),
            colour: dark,
            is_dashed: false,
            points: points(|case| case.native),
        });
        series.push(Series {
            name: format!("machines{what}"),
            colour: light,
            is_dashed: true,
            points: points(|case| case.vm),
        });
    }
    let unit = cases.first().map_or("", |case| case.unit.as_str());
    draw(
        kind,
        unit,
        if by_size { "size" } else { "nodes" },
        &labels,
        &series,
    )
}

fn draw(title: &str, unit: &str, axis: &str, labels: &[String], series: &[Series]) -> String {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let highest = series
        .iter()
        .flat_map(|line| &line.points)
        .map(|(_, found)| found.high)
        .fold(0.0, f64::max);
    let top = ceiling(highest);
    let x =
        |place: usize| LEFT + (place as f64 + 0.5) / labels.len().max(1) as f64 * (right - LEFT);
    let y = |figure: f64| bottom - (figure / top).clamp(0.0, 1.0) * (bottom - TOP);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' font-family='sans-serif' font-size='13'>\n\
         <rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>\n\
         <text x='{LEFT}' y='25' font-size='16'>{}</text>\n",
        escaped(title)
    );
    for step in 0..=5 {
        let figure = top * f64::from(step) / 5.0;
        let at = y(figure);
        let _ = write!(
            svg,
            "<line x1='{LEFT}' y1='{at:.1}' x2='{right}' y2='{at:.1}' stroke='#dddddd'/>\n\
             <text x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>\n",
            LEFT - 8.0,
            at + 4.0,
            short(figure)
        );
    }
    for (place, label) in labels.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            x(place),
            bottom + 18.0,
            escaped(label)
        );
    }
    let middle = (LEFT + right) / 2.0;
    let _ = write!(
        svg,
        "<text x='{middle:.1}' y='{:.1}' text-anchor='middle'>{axis}</text>\n\
         <text x='20' y='{:.1}' text-anchor='middle' transform='rotate(-90 20 {:.1})'>{}</text>\n",
        bottom + 42.0,
        (TOP + bottom) / 2.0,
        (TOP + bottom) / 2.0,
        escaped(unit)
    );
    for (number, line) in series.iter().enumerate() {
        let dash = if line.is_dashed {
            " stroke-dasharray='6 4'"
        } else {
            ""
        };
        let way: Vec<String> = line
            .points
            .iter()
            .map(|(place, found)| format!("{:.1},{:.1}", x(*place), y(found.mean)))
            .collect();
        let colour = line.colour;
        let _ = writeln!(
            svg,
            "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'{dash}/>",
            way.join(" ")
        );
        for (place, found) in &line.points {
            let at = x(*place);
            let _ = write!(
                svg,
                "<circle cx='{at:.1}' cy='{:.1}' r='4' fill='{colour}'/>\n\
                 <line x1='{at:.1}' y1='{:.1}' x2='{at:.1}' y2='{:.1}' stroke='{colour}'/>\n",
                y(found.mean),
                y(found.low),
                y(found.high)
            );
        }
        let row = TOP + 20.0 * number as f64;
        let _ = write!(
            svg,
            "<line x1='{:.1}' y1='{row:.1}' x2='{:.1}' y2='{row:.1}' stroke='{colour}' stroke-width='2'{dash}/>\n\
             <text x='{:.1}' y='{:.1}'>{}</text>\n",
            right + 15.0,
            right + 40.0,
            right + 46.0,
            row + 4.0,
            escaped(&line.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The next of 1, 2, 2.5, 5 times a power of ten.
fn ceiling(figure: f64) -> f64 {
    if !(figure.is_finite() && figure > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(figure.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|&step| step >= figure)
        .unwrap_or(figure)
}

fn short(figure: f64) -> String {
    let text = format!("{figure:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_figures() {
        let ends: Vec<f64> = [0.0, 0.03, 1.0, 1.2, 2.2, 4.0, 7.0, 123.0]
            .map(ceiling)
            .to_vec();
        assert_eq!(ends, [1.0, 0.05, 1.0, 2.0, 2.5, 5.0, 10.0, 200.0]);
    }
}
