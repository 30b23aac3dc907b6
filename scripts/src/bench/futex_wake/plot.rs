//! The distribution as a picture: of each column the share of wakes that took at most
//! so long.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// A column's name and the times of its wakes, in milliseconds.
pub type Curve<'a> = (&'a str, &'a [f64]);

/// Size of the picture in pixels.
const SIZE: (u32, u32) = (960, 540);

/// Colours that are told apart by people who see fewer of them, too (Okabe and Ito).
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 0, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
];

/// Draws `curves` as an SVG.
///
/// # Errors
/// There is nothing to draw.
pub fn svg(curves: &[Curve<'_>]) -> Result<String> {
    let all = || curves.iter().flat_map(|(_, ms)| ms.iter().copied());
    let (low, high) = all().fold((f64::MAX, 0.0_f64), |(low, high), ms| {
        (low.min(ms), high.max(ms))
    });
    if low > high {
        return Err(anyhow!("no wake was measured"));
    }
    let mut text = String::new();
    draw(&mut text, curves, low * 0.9..high * 1.1).map_err(|error| anyhow!("{error}"))?;
    Ok(text)
}

fn draw(
    text: &mut String,
    curves: &[Curve<'_>],
    span: std::ops::Range<f64>,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(20)
        .caption(
            "perf bench futex wake, 16 of 16 threads",
            ("sans-serif", 22),
        )
        .x_label_area_size(50)
        .y_label_area_size(60)
        .build_cartesian_2d(span.log_scale(), 0.0..1.0)?;
    chart
        .configure_mesh()
        .x_desc("milliseconds of virtual time (instructions of all CPUs / 10⁶)")
        .y_desc("share of wakes that took at most so long")
        .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (&(name, ms), colour) in curves.iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(steps(ms), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

/// The corners of the stairs that rise at each time.
fn steps(ms: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let share = |rank: usize| rank as f64 / sorted.len() as f64;
    let corners = |(rank, &ms): (usize, &f64)| [(ms, share(rank)), (ms, share(rank + 1))];
    sorted.iter().enumerate().flat_map(corners).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stairs_rise_from_nothing_to_all() {
        let corners = steps(&[2.0, 1.0]);
        assert_eq!(corners, [(1.0, 0.0), (1.0, 0.5), (2.0, 0.5), (2.0, 1.0)]);
    }

    #[test]
    fn a_picture_names_its_columns_and_is_the_same_each_time() {
        let curves: [Curve<'_>; 2] = [("bare metal", &[0.02, 0.05]), ("KVM", &[0.04])];
        let picture = svg(&curves).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("bare metal"));
        assert_eq!(picture, svg(&curves).unwrap());
        assert!(svg(&[]).is_err());
    }
}
