//! The results as a picture: on the left each of perf's repeats as a dot, on the right
//! the exits that a wake takes, by reason.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::Figures;
use super::samples::Summary;
use crate::bench::systems::System;

/// Size of the picture in pixels.
const SIZE: (u32, u32) = (1040, 420);

/// Where things are, in pixels from the left and from the top.
const DOTS: Range<i32> = 226..640;
const RATIO: i32 = 664;
const BARS: Range<i32> = 740..976;
const ROWS: Range<i32> = 124..364;

/// Dots lie at most so far above and below their row's middle.
const SPREAD: i32 = 12;

const INK: RGBColor = RGBColor(34, 34, 34);
const FAINT: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(226, 226, 226);

/// Colours that are told apart by people who see fewer of them, too (Okabe and Ito).
const BARE: RGBColor = RGBColor(34, 34, 34);
const OURS: RGBColor = RGBColor(0, 114, 178);
const KVM: RGBColor = RGBColor(213, 94, 0);
const REASONS: [(&str, RGBColor); 4] = [
    ("hypercall", RGBColor(0, 158, 115)),
    ("idle", RGBColor(86, 180, 233)),
    ("iocsr", RGBColor(230, 159, 0)),
    ("interrupt", RGBColor(204, 121, 167)),
];
const OTHER: (&str, RGBColor) = ("other", RGBColor(153, 153, 153));

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws `figures` as an SVG.
///
/// # Errors
/// There is nothing to draw.
pub fn svg(figures: &[Figures]) -> Result<String> {
    let all: Vec<f64> = figures.iter().flat_map(|of| of.perf_ms.clone()).collect();
    let span = Summary::of(&all).context("no wake was measured")?;
    let axis = Axis {
        low: span.minimum * 0.9,
        high: span.maximum * 1.1,
    };
    let mut text = String::new();
    draw(&mut text, figures, axis).map_err(|error| anyhow!("{error}"))?;
    Ok(text)
}

fn draw(text: &mut String, figures: &[Figures], axis: Axis) -> Drawn {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    headings(&area, figures)?;
    axis.draw(&area)?;
    let height = (ROWS.end - ROWS.start) / figures.len().max(1) as i32;
    let most = figures.iter().map(|of| of.wake.all_exits());
    let most = most.fold(1.0, f64::max);
    let bare = figures.first().map_or(f64::NAN, |of| of.summary.minimum);
    for (row, of) in (0..).zip(figures) {
        let y = ROWS.start + height * row + height / 2;
        label(
            &area,
            of.system.label(),
            (DOTS.start - 16, y),
            15,
            INK,
            HPos::Right,
        )?;
        dots(&area, of, y, axis)?;
        let ratio = format!("{:.2} ×", of.summary.minimum / bare);
        label(&area, &ratio, (RATIO, y), 15, INK, HPos::Left)?;
        bar(&area, of, y, most)?;
    }
    area.present()?;
    Ok(())
}

/// Titles, what is on either side, and the colours of the reasons.
fn headings(area: &Area<'_>, figures: &[Figures]) -> Drawn {
    let threads = figures.first().map_or(0, |of| of.threads);
    let title = format!("Waking {threads} threads that sleep, on as many CPUs");
    label(area, &title, (24, 30), 21, INK, HPos::Left)?;
    let about = "Debian's perf bench futex wake on an emulated LoongArch machine";
    label(area, about, (24, 56), 14, FAINT, HPos::Left)?;
    label(
        area,
        "each wake of all threads; the line is the median",
        (DOTS.start, 92),
        14,
        INK,
        HPos::Left,
    )?;
    label(area, "least ÷ bare", (RATIO - 8, 92), 14, INK, HPos::Left)?;
    label(
        area,
        "exits a wake, all CPUs",
        (BARS.start, 92),
        14,
        INK,
        HPos::Left,
    )?;
    let mut x = BARS.start - 10;
    for (name, colour) in REASONS.into_iter().chain([OTHER]) {
        let y = ROWS.end + 14;
        area.draw(&Rectangle::new(
            [(x, y - 5), (x + 10, y + 5)],
            colour.filled(),
        ))?;
        label(area, name, (x + 14, y), 12, FAINT, HPos::Left)?;
        x += 22 + 6 * name.len() as i32;
    }
    Ok(())
}

/// The axis of times, logarithmic.
#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn x(&self, ms: f64) -> i32 {
        let share = (ms / self.low).ln() / (self.high / self.low).ln();
        DOTS.start + (share * f64::from(DOTS.end - DOTS.start)).round() as i32
    }

    /// The numbers 1, 2 and 5 of every decade.
    fn marks(&self) -> impl Iterator<Item = f64> {
        let decades = (-6..6).map(|power| 10_f64.powi(power));
        let marks = decades.flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]);
        let (low, high) = (self.low, self.high);
        marks.filter(move |mark| (low..=high).contains(mark))
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        for mark in self.marks() {
            let x = self.x(mark);
            area.draw(&PathElement::new([(x, ROWS.start), (x, ROWS.end)], GRID))?;
            let mark = format!("{}", (mark * 1e6).round() / 1e6);
            label(area, &mark, (x, ROWS.end + 14), 13, FAINT, HPos::Center)?;
        }
        let about = "milliseconds of virtual time: a nanosecond is an instruction of any CPU";
        let x = (DOTS.start + DOTS.end) / 2;
        label(area, about, (x, ROWS.end + 36), 13, FAINT, HPos::Center)
    }
}

/// Each repeat as a dot; the least and the median stand out.
fn dots(area: &Area<'_>, of: &Figures, y: i32, axis: Axis) -> Drawn {
    let colour = match of.system {
        System::Bare => BARE,
        system if system.is_kvm() => KVM,
        _ => OURS,
    };
    for (index, &ms) in of.perf_ms.iter().enumerate() {
        // Steps of the golden section lie evenly, wherever one stops.
        let at = (index as f64 * 0.618_034).fract() * 2.0 - 1.0;
        let place = (axis.x(ms), y + (at * f64::from(SPREAD)) as i32);
        area.draw(&Circle::new(place, 3, colour.mix(0.4).filled()))?;
    }
    let s = &of.summary;
    let median = axis.x(s.median);
    area.draw(&Rectangle::new(
        [(median - 1, y - SPREAD - 5), (median + 2, y + SPREAD + 5)],
        INK.filled(),
    ))?;
    let least = format!("{:.3}", s.minimum);
    label(
        area,
        &least,
        (axis.x(s.minimum), y + SPREAD + 11),
        12,
        FAINT,
        HPos::Center,
    )
}

/// The exits of a wake, one reason beside the other.
fn bar(area: &Area<'_>, of: &Figures, y: i32, most: f64) -> Drawn {
    let width = f64::from(BARS.end - BARS.start) / most;
    let x = |exits: f64| BARS.start + (exits * width).round() as i32;
    let mut left = 0.0;
    for (colour, exits) in by_colour(&of.wake.exits) {
        let corners = [(x(left), y - 11), (x(left + exits), y + 11)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        left += exits;
    }
    let sum = format!("{:.2}", of.wake.all_exits());
    label(area, &sum, (x(left) + 8, y), 14, INK, HPos::Left)
}

/// Exits in the order of the colours, all that have none in one.
fn by_colour(exits: &BTreeMap<String, f64>) -> Vec<(RGBColor, f64)> {
    let named = |name: &str| exits.get(name).copied().unwrap_or(0.0).max(0.0);
    let all: f64 = exits.values().fold(0.0, |sum, exits| sum + exits.max(0.0));
    let mut parts: Vec<_> = REASONS.map(|(name, colour)| (colour, named(name))).into();
    let rest = all - parts.iter().fold(0.0, |sum, (_, exits)| sum + exits);
    parts.push((OTHER.1, rest.max(0.0)));
    parts
}

fn label(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: i32,
    colour: RGBColor,
    side: HPos,
) -> Drawn {
    let style = ("sans-serif", size).into_font().color(&colour);
    let style = style.pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    #[test]
    fn a_picture_names_its_columns_and_is_the_same_each_time() {
        let all = [
            figures(System::Bare, &[0.02, 0.05], 0.0),
            figures(System::Kvm, &[0.04, 1.2], 4.25),
        ];
        let picture = svg(&all).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("bare metal"));
        assert!(picture.contains("2.00 ×") && picture.contains("4.25"));
        assert_eq!(picture, svg(&all).unwrap());
        assert!(svg(&[]).is_err());
    }

    #[test]
    fn times_are_where_they_belong() {
        let (low, high) = (0.01, 1.0);
        let axis = Axis { low, high };
        assert_eq!(axis.x(0.01), DOTS.start);
        assert_eq!(axis.x(0.1), (DOTS.start + DOTS.end) / 2);
        assert_eq!(axis.marks().count(), 7);
    }

    #[test]
    fn exits_without_a_colour_are_one() {
        let exits = [("idle", 1.5), ("a", 0.25), ("b", 0.5), ("c", -0.1)];
        let exits = exits.map(|(name, count)| (name.to_owned(), count)).into();
        let parts = by_colour(&exits);
        assert_eq!(parts.last().unwrap().1, 0.75);
        assert_eq!(parts[1].1, 1.5);
    }
}
