//! An OpenTelemetry collector gets our metrics and profiles.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point::Value};
use prost::Message;

use crate::PLIMSOLL;
use crate::lab::made;
use crate::support::{Accepting, Home, OurServer, Running, SOON, get, read_some, run, wait_for};

/// The heads and bodies of requests.
type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector that is overloaded at first.
fn collector() -> (Accepting, Requests) {
    let requests = Requests::default();
    let keep = Arc::clone(&requests);
    let accepting = Accepting::start(move |mut stream| {
        let Some(request) = request(&mut stream) else { return };
        let mut requests = keep.lock().unwrap();
        let status = match requests.is_empty() {
            true => "503 Service Unavailable\r\nRetry-After: 0",
            false => "200 OK",
        };
        requests.push(request);
        let _ =
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    (accepting, requests)
}

fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    stream.set_read_timeout(Some(SOON)).ok()?;
    let mut bytes = Vec::new();
    loop {
        let mut more = [0; 16 * 1024];
        let read = read_some(&mut *stream, &mut more).ok().filter(|read| *read > 0)?;
        bytes.extend(&more[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length =
            head.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
        if bytes.len() >= end + 4 + length {
            return Some((head, bytes.split_off(end + 4)));
        }
    }
}

fn sending(args: &[&str]) -> Command {
    let mut command = Command::new(PLIMSOLL);
    command.args(args).env("no_proxy", "127.0.0.1").env("NO_PROXY", "127.0.0.1");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret");
    command
}

#[test]
fn a_collector_gets_the_metrics_of_a_server_also_if_it_is_overloaded_at_first() {
    let home = Home::new();
    let origin = OurServer::origin();
    let server = OurServer::serve(&["--admin", "127.0.0.1:0", "--origin", &origin.url()]);
    (0..3).for_each(|_| drop(get(server.address(), "/obj/1")));
    let (collector, requests) = collector();
    let (url, admin) = (format!("http://{}", collector.address), server.admin().to_string());
    let flags = ["metrics", "--otlp", &url, "--every", "200ms", "--admin", &admin];
    let mut forwarding = Running::start(sending(&flags).stderr(Stdio::piped()));
    wait_for("three messages", SOON, || {
        assert!(!forwarding.has_ended(), "{}", forwarding.remaining_output().1);
        (requests.lock().unwrap().len() >= 3).then_some(())
    });
    drop(forwarding);
    let requests = requests.lock().unwrap();
    for (head, body) in requests.iter() {
        assert!(head.starts_with("post /v1/metrics http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        assert!(head.contains("authorization: bearer secret"), "{head}");
        let message = ExportMetricsServiceRequest::decode(body.as_slice()).unwrap();
        let of = &message.resource_metrics[0];
        let attributes = &of.resource.as_ref().unwrap().attributes;
        let keys: Vec<&str> = attributes.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["service.name", "service.instance.id", "host.name"]);
        let metrics = &of.scope_metrics[0].metrics;
        let data = |name: &str| metrics.iter().find(|metric| metric.name == name)?.data.clone();
        let Some(Data::Sum(served)) = data("plimsoll_requests") else { panic!("{metrics:?}") };
        let point = &served.data_points[0];
        assert_eq!(point.value, Some(Value::AsInt(3)));
        assert!(point.start_time_unix_nano > 0, "{point:?}");
        assert!(point.start_time_unix_nano < point.time_unix_nano, "{point:?}");
        let durations = data("plimsoll_request_duration_seconds");
        let Some(Data::Histogram(durations)) = durations else { panic!("{metrics:?}") };
        let counts = durations.data_points.iter().map(|point| point.count);
        assert_eq!(counts.sum::<u64>(), 3);
        for point in &durations.data_points {
            assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
            assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        }
    }
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let refused = sending(&["report", &trial, "--otlp", "http://127.0.0.1:4318/?a=b"]);
    run(refused, SOON).refused(&["--otlp", "query"]);
}

#[test]
fn a_collector_gets_the_profile_of_a_trial() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let (collector, requests) = collector();
    let url = format!("http://{}/", collector.address);
    let output = run(sending(&["report", &trial, "--otlp", &url]), SOON).succeeded();
    assert!(output.stdout.contains("capacity"), "{output:?}");
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 2, "the first is answered with 503");
    assert_eq!(requests[0].1, requests[1].1);
    let (head, body) = &requests[1];
    assert!(head.starts_with("post /v1development/profiles http/1.1\r\n"), "{head}");
    let message = ExportProfilesServiceRequest::decode(body.as_slice()).unwrap();
    let names = &message.dictionary.unwrap().string_table;
    assert!(names.iter().any(|name| name.contains("tcp_sendmsg")), "{names:?}");
}
