//! Pages, selectors, resets, and servers that respond incorrectly.

use super::*;
use proptest::prelude::*;
use std::net::TcpListener;

fn url(text: &str) -> MetricUrl {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

const PAGE: &str = "# HELP http_requests_total Requests.
# TYPE http_requests_total counter
http_requests_total{method=\"GET\",code=\"200\"} 1027 1395066363000
http_requests_total{method=\"GET\",code=\"500\"} 3
http_requests_total{method=\"a\\\"b,}\\\\\",code=\"200\"} 1.5e3
http_requests_total_of_another 7
http_requests_total_seconds{x=\"y\"} NaN
plain_requests_total 12
odd NaN
";

#[test]
fn series_are_chosen_by_their_labels_and_summed() {
    for (selector, expected) in [
        ("http_requests_total", 2530.0),
        ("http_requests_total{code=\"200\"}", 2527.0),
        ("http_requests_total{ method=\"GET\" , code=\"500\" }", 3.0),
        ("http_requests_total{method=\"a\\\"b,}\\\\\"}", 1500.0),
        ("plain_requests_total", 12.0),
        ("plain_requests_total{code=\"200\"}", 0.0),
        ("http_requests_total{code=\"404\"}", 0.0),
        ("odd", 0.0),
    ] {
        let metric = url(&format!("http://h/#{selector}"));
        let sum: f64 = metric.read(PAGE.as_bytes()).values().sum();
        assert_eq!(sum, expected, "{selector}");
        assert_eq!(url(&metric.to_string()), metric, "it is read back");
    }
}

#[test]
fn invalid_metric_urls_are_refused_with_a_fix() {
    assert_eq!(url("http://h#m").to_string(), "http://h:80/metrics#m");
    assert_eq!(url("http://[::1]:9/a?b=c#m").to_string(), "http://[::1]:9/a?b=c#m");
    for (text, part) in [
        ("h:80/metrics#m", "http://"),
        ("https://h/metrics#m", "https: is not supported"),
        ("http://h/metrics", "after a #"),
        ("http:///metrics#m", "HOST:PORT"),
        ("http://h/me trics#m", "HOST:PORT"),
        ("http://h/#", "not a metric name"),
        ("http://h/#a-b", "not a metric name"),
        ("http://h/#a{b=c}", "label=\"value\""),
        ("http://h/#a{b=\"c\"}d", "label=\"value\""),
    ] {
        let error = text.parse::<MetricUrl>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

fn scrape(at_ns: i64, values: &[(&str, f64)]) -> Scrape {
    let series = values.iter().map(|(labels, value)| (labels.as_bytes().to_vec(), *value));
    Scrape { at_ns, read: Ok(series.collect()) }
}

#[test]
fn growth_continues_through_failures_and_resets_and_says_which_is_sound() {
    let mut counter = Counter::default();
    let grown =
        |start_ns, end_ns, requests, sound| Some(Growth { start_ns, end_ns, requests, sound });
    assert_eq!(counter.take(scrape(0, &[("a", 100.0)])), None);
    assert_eq!(counter.take(scrape(10, &[("a", 130.0)])), grown(0, 10, 30.0, true));
    // A new series began at zero.
    let more = scrape(20, &[("a", 130.0), ("b", 5.0)]);
    assert_eq!(counter.take(more), grown(10, 20, 5.0, true));
    assert_eq!(counter.take(Scrape { at_ns: 30, read: Err("refused".to_owned()) }), None);
    let after = scrape(40, &[("a", 150.0), ("b", 7.0)]);
    assert_eq!(counter.take(after), grown(20, 40, 22.0, false));
    // One was reset, the other was not.
    let reset = scrape(50, &[("a", 4.0), ("b", 9.0)]);
    assert_eq!(counter.take(reset), grown(40, 50, 6.0, false));
    let on = scrape(60, &[("a", 5.0), ("b", 9.0)]);
    assert_eq!(counter.take(on), grown(50, 60, 1.0, true));
    assert_eq!(counter.take(scrape(60, &[("a", 6.0)])), None, "no time between them");
    assert_eq!((counter.failed, counter.resets), (1, 1));
    assert_eq!(counter.why.as_deref(), Some("refused"));
}

/// Answers each connection with the next of the responses, and stops after the last.
fn fake(answers: Vec<&'static str>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let found = stream.read(&mut request).unwrap();
            assert!(request[..found].starts_with(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:"));
            stream.write_all(answer.as_bytes()).unwrap();
            if answer.is_empty() {
                // Stays silent until the client closes.
                let _ = stream.read(&mut request);
            }
        }
    });
    port
}

#[test]
fn a_page_is_read_and_failures_are_reported() {
    let good = "HTTP/1.1 200 OK\r\ncontent-Length: 9\r\n\r\nm_total 7and no more";
    let port = fake(vec![
        good,
        "HTTP/1.0 200 OK\r\n\r\nm_total 8\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\nm_total 8\n",
        "HTTP/1.1 404 Not Found\r\n\r\n",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\n\r\nn_requests 1\nhttp_requests{a=\"b\"} 2\n",
        "",
    ]);
    let metric = url(&format!("http://127.0.0.1:{port}/metrics#m_total"));
    let read = |ms| metric.scrape(Duration::from_millis(ms));
    assert_eq!(read(5000).unwrap().values().sum::<f64>(), 7.0);
    assert_eq!(read(5000).unwrap().values().sum::<f64>(), 8.0);
    assert!(read(5000).unwrap_err().contains("was truncated"));
    assert!(read(5000).unwrap_err().contains("404 Not Found"));
    assert!(read(5000).unwrap_err().contains("SSH"));
    let missing = read(5000).unwrap_err();
    assert!(missing.contains("no m_total") && missing.contains("http_requests"), "{missing}");
    assert!(read(50).unwrap_err().contains("within 50 ms"));
    // The listener is closed by now.
    assert!(read(5000).is_err());
    let error = Scraper::start(metric, Duration::from_secs(1)).unwrap_err();
    assert!(error.contains("refused"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn no_page_and_no_selector_panics(
        page in proptest::collection::vec(
            prop_oneof![
                Just("m".to_owned()), Just("m_total".to_owned()), Just("{a=\"".to_owned()),
                Just("\\".to_owned()), Just("\"}".to_owned()), Just(" 1e9\n".to_owned()),
                Just(",".to_owned()), ".{0,4}",
            ],
            0..20,
        ),
        selector in ".{0,20}",
    ) {
        let page = page.concat();
        let metric = url("http://h/#m{a=\"b\"}");
        prop_assert!(metric.read(page.as_bytes()).values().all(|value| *value >= 0.0));
        let _ = format!("http://h/#{selector}").parse::<MetricUrl>();
        let _ = format!("http://h/#m{{{selector}").parse::<MetricUrl>();
        let page = page.as_bytes();
        let _ = (body(page), complete(page), similar_metrics(page));
    }
}
