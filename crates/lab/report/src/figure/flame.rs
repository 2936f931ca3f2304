//! The flame graph: one row per call depth, the outermost at the bottom, each frame as wide as its
//! value.
//!
//! Fonts are not measured: names have a fixed pitch, so that it is known how much of a name fits. A
//! long name ends in an ellipsis, and a frame too narrow for a few letters has no label; the
//! tooltip has the full name. Nested frames that have nearly all of the value are drawn as one row,
//! because they show the same and the height is needed above.

use drawing::Canvas;

use crate::analysis::{Flame, FlameFrame, FlameUnit};
use crate::format::{percent, thousands};

const WIDTH: f64 = 780.0;
const LEFT: f64 = 2.0;
const RIGHT: f64 = 778.0;
const TOP: f64 = 26.0;
const ROW: f64 = 15.0;
/// Width of a letter of the fixed pitch, at the size in the style.
const LETTER: f64 = 6.05;
/// Fewest letters of a truncated name; a narrower frame has no label.
const LETTERS_MIN: usize = 4;
/// Frames narrower than this, in pixels, are not visible and not drawn.
const NARROWEST: f64 = 0.4;
/// Most rows. The interactive file has deeper calls.
const ROWS_MAX: usize = 56;
/// A frame with this share of the one below it, and no sibling, is joined to it.
const JOINED_SHARE: f64 = 0.97;

/// The figure. `style` is empty if the page has it.
pub(crate) fn flame(flame: &Flame, style: &str) -> String {
    let scale = (RIGHT - LEFT) / flame.drawn;
    let trunks: Vec<Trunk<'_>> = flame.frames.iter().map(Trunk::of).collect();
    let rows = trunks.iter().map(|trunk| 1 + depth(trunk.top, scale)).max().unwrap_or(1);
    let bottom = TOP + ROW * rows.min(ROWS_MAX) as f64;
    let mut drawing = Drawing { canvas: Canvas::new(WIDTH, bottom + 24.0), flame, scale, bottom };
    drawing.keys();
    let mut x = LEFT;
    for trunk in &trunks {
        drawing.frame(&trunk.label(), trunk.bottom, x, 0);
        drawing.above(trunk.top, x, 1);
        x += scale * trunk.bottom.width;
    }
    let whole = flame.written(flame.total);
    let under = match flame.unit {
        FlameUnit::UsPerRequest => format!("one more request: {whole}"),
        FlameUnit::SampledMs => format!("CPU time sampled: {whole}"),
    };
    drawing.canvas.text("soft", "start", (LEFT, bottom + 16.0), &under);
    let description = format!("Procedures above their callers, {under}");
    drawing.canvas.finish("Flame graph", &description, style)
}

/// Frames at the bottom with nearly the same value, drawn as one.
struct Trunk<'a> {
    bottom: &'a FlameFrame,
    top: &'a FlameFrame,
    frames: usize,
}

impl<'a> Trunk<'a> {
    fn of(bottom: &'a FlameFrame) -> Trunk<'a> {
        let mut trunk = Trunk { bottom, top: bottom, frames: 1 };
        while let [only] = trunk.top.called.as_slice() {
            if only.width < JOINED_SHARE * trunk.top.width {
                break;
            }
            (trunk.top, trunk.frames) = (only, trunk.frames + 1);
        }
        trunk
    }

    fn label(&self) -> String {
        match self.frames {
            1 => self.bottom.name.clone(),
            frames => {
                format!("{} … {} ({frames} procedures)", self.bottom.name, self.top.name)
            }
        }
    }
}

/// Rows above a frame that are wide enough to be visible.
fn depth(frame: &FlameFrame, scale: f64) -> usize {
    let seen = frame.called.iter().filter(|called| called.width * scale >= NARROWEST);
    seen.map(|called| 1 + depth(called, scale)).max().unwrap_or(0)
}

struct Drawing<'a> {
    canvas: Canvas,
    flame: &'a Flame,
    /// Pixels per unit.
    scale: f64,
    bottom: f64,
}

impl Drawing<'_> {
    fn keys(&mut self) {
        let keys = [("flame second", "kernel mode"), ("flame third", "user mode")];
        let mut x = LEFT;
        for (class, name) in keys {
            self.canvas.block(class, (x, 6.0), (12.0, 11.0), "");
            self.canvas.text("soft", "start", (x + 17.0, 16.0), name);
            x += 112.0;
        }
    }

    /// The procedures that a frame called, row by row.
    fn above(&mut self, frame: &FlameFrame, left: f64, row: usize) {
        let mut x = left;
        for called in &frame.called {
            let wide = called.width * self.scale;
            if wide >= NARROWEST && row < ROWS_MAX {
                self.frame(&called.name, called, x, row);
                self.above(called, x, row + 1);
            }
            x += wide;
        }
    }

    fn frame(&mut self, label: &str, frame: &FlameFrame, x: f64, row: usize) {
        let (wide, top) = (frame.width * self.scale, self.bottom - ROW * (row + 1) as f64);
        let class = match frame.mode {
            "kernel" => "flame second",
            "user" => "flame third",
            _ => "flame first",
        };
        self.canvas.block(class, (x, top), (wide, ROW - 1.0), &self.title(label, frame));
        if let Some(text) = fitting(label, wide - 5.0) {
            self.canvas.text("code", "start", (x + 3.0, top + 10.5), &text);
        }
    }

    /// The tooltip of a frame.
    fn title(&self, label: &str, frame: &FlameFrame) -> String {
        let place = match (frame.module.as_str(), frame.mode) {
            ("", _) => String::new(),
            (module, "kernel") => format!(" ({module}, kernel mode)"),
            (module, _) => format!(" ({module}, user mode)"),
        };
        let mut title = format!(
            "{label}{place}: {}, {} %",
            self.flame.written(frame.value),
            percent(100.0 * frame.value / self.flame.total)
        );
        if frame.samples > 0 {
            title.push_str(&format!("; n = {} samples", thousands(frame.samples as f64)));
        }
        let left_out = frame.value - frame.width;
        if left_out < -0.005 * frame.width {
            title.push_str(&format!("; {} left out above it", self.flame.written(left_out)));
        }
        title
    }
}

/// As much of a name as fits; `None` if that is too short.
fn fitting(name: &str, wide: f64) -> Option<String> {
    let room = (wide.max(0.0) / LETTER) as usize;
    let letters = name.chars().count();
    if letters <= room {
        return Some(name.to_string());
    }
    let cut = || name.chars().take(room - 1).chain(['…']).collect();
    (room >= LETTERS_MIN).then(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, value: f64, called: Vec<FlameFrame>) -> FlameFrame {
        FlameFrame {
            name: name.to_string(),
            module: "a<b".to_string(),
            mode: "user",
            value,
            width: value,
            samples: 20,
            called,
        }
    }

    fn made(frames: Vec<FlameFrame>) -> Flame {
        let drawn: f64 = frames.iter().map(|frame| frame.width).sum();
        Flame {
            unit: FlameUnit::UsPerRequest,
            total: drawn - 0.5,
            drawn,
            left_out: -0.5,
            left_out_frames: 1,
            samples_min: 8,
            samples: 100,
            stacks: 3,
            frames,
            by_stack: Vec::new(),
            unsampled: 0.0,
        }
    }

    #[test]
    fn names_are_truncated_to_fit_or_omitted() {
        assert_eq!(fitting("tcp_sendmsg", 80.0).as_deref(), Some("tcp_sendmsg"));
        assert_eq!(fitting("tcp_sendmsg", 40.0).as_deref(), Some("tcp_s…"));
        assert_eq!(fitting("tcp_sendmsg", 18.5), None, "three letters are too few");
        assert_eq!(fitting("brk", 18.5).as_deref(), Some("brk"), "unless they are the whole name");
        assert_eq!(fitting("read", -3.0), None);
    }

    #[test]
    fn similar_nested_frames_are_one_row_and_widths_match_values() {
        let top = frame("loop", 9.9, vec![frame("read", 4.0, vec![]), frame("write", 3.0, vec![])]);
        let svg =
            flame(&made(vec![frame("_start", 10.0, vec![frame("main", 9.95, vec![top])])]), "");
        assert!(svg.contains("_start … loop (3 procedures)"), "{svg}");
        assert_eq!(svg.matches("<rect class=\"flame third\"").count(), 1 + 1 + 2, "{svg}");
        assert!(svg.contains("width=\"310.4\""), "4 of 10 in 776 pixels: {svg}");
        assert!(svg.contains("read (a&lt;b, user mode): 4.00 µs, 42.1 %; n = 20 samples"), "{svg}");
    }

    #[test]
    fn values_left_out_above_a_frame_are_shown() {
        let mut wide = frame("wide", 4.0, vec![]);
        wide.width = 5.0;
        let svg = flame(&made(vec![wide]), "");
        assert!(svg.contains("wide (a&lt;b, user mode): 4.00 µs"), "{svg}");
        assert!(svg.contains("-1.00 µs left out above it"), "{svg}");
    }
}
