//! The elements of a figure as text. All text of a trial goes through [`escape`].

use std::fmt::Write;

/// Shapes that distinguish series without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// As for idle time in the figures of 1998.
    Circle,
    /// As for kernel time there.
    Square,
    /// A triangle that points up.
    Triangle,
    /// A square on its corner.
    Diamond,
}

/// Builds one figure. Coordinates are pixels of the view box.
pub struct Canvas {
    body: String,
    width: f64,
    height: f64,
}

impl Canvas {
    /// An empty figure of this size.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Canvas {
        Canvas { body: String::new(), width, height }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Its width.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.width
    }

    /// A closed outline.
    pub fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        let list = list(points);
        self.add(format_args!("<polygon class=\"{class}\" points=\"{list}\"/>"));
    }

    /// Points joined in order.
    pub fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let list = list(points);
        self.add(format_args!("<polyline class=\"{class}\" points=\"{list}\"/>"));
    }

    /// `anchor` is `start`, `middle` or `end`.
    pub fn text(&mut self, class: &str, anchor: &str, at: (f64, f64), text: &str) {
        let ((x, y), text) = (at, escape(text));
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" \
             text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// A marker. `title` is its tooltip, if not empty.
    pub fn marker(
        &mut self,
        class: &str,
        marker: Marker,
        at: (f64, f64),
        radius: f64,
        title: &str,
    ) {
        let (x, y) = at;
        let close = close(title, marker.element());
        match marker {
            Marker::Circle => self.add(format_args!(
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"{close}"
            )),
            Marker::Square => {
                let (half, side) = (radius * 0.9, radius * 1.8);
                self.add(format_args!(
                    "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{side:.1}\" \
                     height=\"{side:.1}\"{close}",
                    x - half,
                    y - half
                ));
            }
            Marker::Triangle => {
                let r = radius * 1.15;
                let points = [(x, y - r), (x + r, y + 0.8 * r), (x - r, y + 0.8 * r)];
                let list = list(&points);
                self.add(format_args!("<polygon class=\"{class}\" points=\"{list}\"{close}"));
            }
            Marker::Diamond => {
                let r = radius * 1.25;
                let list = list(&[(x, y - r), (x + r, y), (x, y + r), (x - r, y)]);
                self.add(format_args!("<polygon class=\"{class}\" points=\"{list}\"{close}"));
            }
        }
    }

    /// A rectangle. `title` is its tooltip, if not empty.
    pub fn block(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (wide, high): (f64, f64),
        title: &str,
    ) {
        let close = close(title, "rect");
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
             height=\"{high:.1}\"{close}"
        ));
    }

    /// Clips everything up to [`leave_clip`](Canvas::leave_clip) to the rectangle.
    pub fn clip(&mut self, id: &str, corner: (f64, f64), size: (f64, f64)) {
        let ((x, y), (w, h)) = (corner, size);
        self.add(format_args!(
            "<clipPath id=\"{id}\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" \
             height=\"{h:.1}\"/></clipPath><g clip-path=\"url(#{id})\">"
        ));
    }

    /// Ends what [`clip`](Canvas::clip) began.
    pub fn leave_clip(&mut self) {
        self.add(format_args!("</g>"));
    }

    /// The whole element. `style` is empty if the page has it.
    #[must_use]
    pub fn finish(self, name: &str, description: &str, style: &str) -> String {
        let Canvas { body, width, height } = self;
        let (name, description) = (escape(name), escape(description));
        let style =
            if style.is_empty() { String::new() } else { format!("<style>\n{style}</style>\n") };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" role=\"img\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\n\
             <title>{name}</title>\n<desc>{description}</desc>\n{style}\
             <rect class=\"ground\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{body}</svg>\n"
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("a String takes everything");
    }
}

impl Marker {
    fn element(self) -> &'static str {
        match self {
            Marker::Circle => "circle",
            Marker::Square => "rect",
            Marker::Triangle | Marker::Diamond => "polygon",
        }
    }
}

/// The end of an element, with a tooltip if `title` is not empty.
fn close(title: &str, element: &str) -> String {
    match title {
        "" => "/>".to_string(),
        title => format!("><title>{}</title></{element}>", escape(title)),
    }
}

fn list(points: &[(f64, f64)]) -> String {
    let pairs: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    pairs.join(" ")
}

/// Escapes text for an element or an attribute. Control characters, which XML does not allow,
/// become the replacement character.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_trial_never_becomes_markup() {
        assert_eq!(escape("<script>\"&'\u{0}"), "&lt;script&gt;&quot;&amp;&#39;\u{fffd}");
        let mut canvas = Canvas::new(10.0, 10.0);
        canvas.text("soft", "start", (0.0, 0.0), "<b>");
        canvas.marker("point", Marker::Diamond, (1.0, 1.0), 2.0, "</title><script>");
        let svg = canvas.finish("a<b", "c&d", "");
        assert!(!svg.contains("<b>") && !svg.contains("<script>"), "{svg}");
    }
}
