//! What is shown of a bad log line.
//!
//! A sample shows the line, shortened and made printable. A redacted sample shows only its shape:
//! runs of letters become `a`, runs of digits `0`. In a line that cannot be parsed, addresses and
//! query strings cannot be found either, so none of its words are kept. The shape is enough to fix
//! a format.

/// Longest sample, characters.
const SAMPLE_CHARS_MAX: usize = 160;

/// A bad line, for display.
pub fn sample(line: &[u8], redact: bool) -> String {
    let text = String::from_utf8_lossy(line);
    let printable = text.chars().map(|c| if c.is_control() { '.' } else { c });
    let mut sample = String::new();
    let mut last = None;
    let mut chars = 0;
    for c in printable {
        let shape = match c {
            '0'..='9' if redact => '0',
            c if redact && (c.is_alphanumeric() || !c.is_ascii()) => 'a',
            c => c,
        };
        let run = redact && last == Some(shape) && matches!(shape, 'a' | '0');
        last = Some(shape);
        if run {
            continue;
        }
        if chars == SAMPLE_CHARS_MAX {
            sample.push_str("...");
            break;
        }
        sample.push(shape);
        chars += 1;
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_short_and_printable_and_has_no_words_if_redacted() {
        let line =
            b"203.0.113.77 - bob \"GET /secret?token=abc123 HTTP/1.1\" \xff\x1b[0m 2001:db8::7";
        let open = sample(line, false);
        assert!(open.contains("token=abc123") && !open.contains('\u{1b}'), "{open}");
        let shape = sample(line, true);
        assert_eq!(shape, "0.0.0.0 - a \"a /a?a=a0 a/0.0\" a.[0a 0:a0::0");
        let long = sample(&[b'.'; 5000], true);
        assert_eq!(long.chars().count(), SAMPLE_CHARS_MAX + 3);
    }
}
