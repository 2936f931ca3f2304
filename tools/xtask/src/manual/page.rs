//! One page: Markdown to HTML, with an identifier for each heading.

use std::collections::BTreeSet;

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// A rendered page.
pub(crate) struct Page {
    /// Its first heading, as text.
    pub(crate) title: String,
    pub(crate) html: String,
    /// The headings of the second level: identifier and text.
    pub(crate) parts: Vec<(String, String)>,
}

impl Page {
    /// Renders it. `link` maps the target of a link; without one, its text remains.
    pub(crate) fn of(text: &str, link: &mut dyn FnMut(&str) -> Option<String>) -> Page {
        let events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
        let mut ids = Identifiers::default();
        let (mut title, mut parts) = (String::new(), Vec::new());
        let mut out = Vec::with_capacity(events.len());
        // For each open link, whether it has a target.
        let mut links = Vec::new();
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
                    let words = text_of(&events[at + 1..]);
                    let id = ids.of(&words);
                    match *level as usize {
                        1 if title.is_empty() => title.clone_from(&words),
                        2 => parts.push((id.clone(), words)),
                        _ => {}
                    }
                    let (classes, attrs) = (classes.clone(), attrs.clone());
                    let id = Some(CowStr::from(id));
                    out.push(Event::Start(Tag::Heading { level: *level, id, classes, attrs }));
                }
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let target = link(dest_url);
                    links.push(target.is_some());
                    if let Some(target) = target {
                        let (title, id) = (title.clone(), id.clone());
                        let (link_type, dest_url) = (*link_type, target.into());
                        out.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
                    }
                }
                Event::End(TagEnd::Link) => {
                    if links.pop() == Some(true) {
                        out.push(event.clone());
                    }
                }
                Event::Start(Tag::Image { dest_url, .. }) => {
                    // A picture of the repository is copied.
                    let _ = link(dest_url);
                    out.push(event.clone());
                }
                Event::Start(Tag::Table(_)) => {
                    out.extend([Event::Html("<div class=\"wide\">".into()), event.clone()]);
                }
                Event::End(TagEnd::Table) => {
                    out.extend([event.clone(), Event::Html("</div>\n".into())]);
                }
                // Comments are for the tests.
                Event::Html(html) if html.trim_start().starts_with("<!--") => {}
                _ => out.push(event.clone()),
            }
        }
        let mut html = String::new();
        html::push_html(&mut html, out.into_iter());
        Page { title, html, parts }
    }
}

/// The identifiers of all headings of a page.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut ids = Identifiers::default();
    let is_heading = |event: &Event<'_>| matches!(event, Event::Start(Tag::Heading { .. }));
    let headings = events.iter().enumerate().filter(|(_, event)| is_heading(event));
    headings.map(|(at, _)| ids.of(&text_of(&events[at + 1..]))).collect()
}

/// The text of a heading, whose events begin here.
fn text_of(events: &[Event<'_>]) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            Event::End(TagEnd::Heading(_)) => break,
            Event::Text(part) | Event::Code(part) => text.push_str(part),
            _ => {}
        }
    }
    text
}

/// Identifiers as forges make them of headings.
#[derive(Default)]
struct Identifiers {
    given: BTreeSet<String>,
}

impl Identifiers {
    fn of(&mut self, heading: &str) -> String {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let plain: String = heading.to_lowercase().chars().filter(kept).collect();
        let plain = plain.replace(' ', "-");
        let numbered = (1..).map(|number| format!("{plain}-{number}"));
        let mut all = std::iter::once(plain.clone()).chain(numbered);
        let id = all.find(|id| !self.given.contains(id)).unwrap_or(plain);
        self.given.insert(id.clone());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_identifiers_of_a_forge() {
        let text = "# A\n\n## `[[listen]]`: what it is\n\n## Same\n\n## Same\n\n### Grafana, X\n";
        let found: Vec<String> = anchors(text).into_iter().collect();
        assert_eq!(found, ["a", "grafana-x", "listen-what-it-is", "same", "same-1"]);
        let page = Page::of(text, &mut |_| None);
        assert_eq!(page.title, "A");
        assert_eq!(page.parts.len(), 3);
        assert!(page.html.contains("<h2 id=\"same-1\">Same</h2>"), "{}", page.html);
    }

    #[test]
    fn a_link_without_a_target_is_text_and_a_comment_is_left_out() {
        let text = "<!-- run -->\n\n[a](x) [b](y)\n\n| t |\n| --- |\n| 1 |\n";
        let page = Page::of(text, &mut |target| (target == "y").then(|| "z".to_owned()));
        assert!(page.html.starts_with("<p>a <a href=\"z\">b</a></p>"), "{}", page.html);
        assert!(page.html.contains("<div class=\"wide\"><table>"), "{}", page.html);
    }
}
