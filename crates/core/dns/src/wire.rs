//! Questions and replies in DNS format (RFC 1035), and the checks on a reply.
//!
//! A reply is accepted only if it has the id of the question and repeats the question. Only records
//! for the requested name, or for a name that it is an alias of, are used. All others are ignored,
//! because they could poison the cache.

use std::net::IpAddr;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::Service;
use crate::limits::ALIASES_MAX;

/// The type of records requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    V4,
    V6,
    /// The hosts of a service (RFC 2782).
    Service,
}

impl Wanted {
    fn record_type(self) -> RecordType {
        match self {
            Wanted::V4 => RecordType::A,
            Wanted::V6 => RecordType::AAAA,
            Wanted::Service => RecordType::SRV,
        }
    }
}

/// A question.
#[derive(Clone, Debug)]
pub(super) struct Question {
    name: Name,
    wanted: Wanted,
}

/// The content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The addresses and their TTL in seconds.
    Addresses(Vec<IpAddr>, u32),
    /// The hosts of a service and their TTL in seconds.
    Services(Vec<Service>, u32),
    /// The name does not exist or has no record of this family. With the TTL in seconds, if the
    /// reply has one.
    Nothing(Option<u32>),
    /// It did not fit: ask again by TCP.
    Truncated,
    /// The server cannot or will not answer.
    Refused,
}

impl Question {
    /// `None` if `host` is not a valid name.
    pub(super) fn new(host: &str, wanted: Wanted) -> Option<Question> {
        let mut name = Name::from_ascii(host).ok()?;
        name.set_fqdn(true);
        Some(Question { name, wanted })
    }

    /// The question's bytes.
    pub(super) fn bytes(&self, id: u16) -> Option<Vec<u8>> {
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(self.name.clone(), self.wanted.record_type()));
        message.to_vec().ok()
    }

    /// Parses a message; `None` if it is not a reply to this question.
    pub(super) fn read(&self, id: u16, bytes: &[u8]) -> Option<Reply> {
        let message = Message::from_vec(bytes).ok()?;
        let head = &message.metadata;
        let answers = head.id == id
            && head.message_type == MessageType::Response
            && head.op_code == OpCode::Query
            && matches!(&message.queries[..], [asked] if self.is(asked));
        if !answers {
            return None;
        }
        if head.truncation {
            return Some(Reply::Truncated);
        }
        Some(match head.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => self.answer(&message),
            _ => Reply::Refused,
        })
    }

    fn is(&self, asked: &Query) -> bool {
        asked.query_class == DNSClass::IN
            && asked.query_type == self.wanted.record_type()
            && asked.name.eq_ignore_root(&self.name)
    }

    fn answer(&self, message: &Message) -> Reply {
        let mut name = &self.name;
        let mut ttl = u32::MAX;
        for _ in 0..ALIASES_MAX {
            let of_name = || records_of(&message.answers, name);
            let addresses = of_name().filter_map(|record| self.address(record));
            let (mut ips, mut ttl_ips) = (Vec::new(), ttl);
            for (ip, ttl_ip) in addresses {
                ttl_ips = ttl_ips.min(ttl_ip);
                if !ips.contains(&ip) {
                    ips.push(ip);
                }
            }
            if !ips.is_empty() {
                return Reply::Addresses(ips, ttl_ips);
            }
            let services = of_name().filter_map(|record| self.service(record));
            let (services, ttls): (Vec<_>, Vec<_>) = services.unzip();
            if let Some(least) = ttls.into_iter().min() {
                return Reply::Services(services, ttl.min(least));
            }
            let alias = of_name().find_map(|record| match &record.data {
                RData::CNAME(alias) => Some((&alias.0, record.ttl)),
                _ => None,
            });
            let Some((next, ttl_alias)) = alias else { break };
            name = next;
            ttl = ttl.min(ttl_alias);
        }
        // RFC 2308, 5: how long the negative answer is valid.
        let ttl_negative = message.authorities.iter().find_map(|record| match &record.data {
            RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
            _ => None,
        });
        Reply::Nothing(ttl_negative.map(|negative| negative.min(ttl)))
    }

    fn address(&self, record: &Record) -> Option<(IpAddr, u32)> {
        match (&record.data, self.wanted) {
            (RData::A(a), Wanted::V4) => Some((IpAddr::V4(a.0), record.ttl)),
            (RData::AAAA(a), Wanted::V6) => Some((IpAddr::V6(a.0), record.ttl)),
            _ => None,
        }
    }

    /// A record of a service and its TTL. The target `.` says that there is no such service.
    fn service(&self, record: &Record) -> Option<(Service, u32)> {
        let RData::SRV(srv) = &record.data else { return None };
        let target = srv.target.to_ascii();
        let target = crate::Name::read(target.strip_suffix('.').unwrap_or(&target))?;
        let (port, priority, weight) = (srv.port, srv.priority, srv.weight);
        let is_it = self.wanted == Wanted::Service && port != 0;
        is_it.then(|| {
            (Service { target: target.as_str().into(), port, priority, weight }, record.ttl)
        })
    }
}

fn records_of<'m>(records: &'m [Record], name: &'m Name) -> impl Iterator<Item = &'m Record> {
    records
        .iter()
        .filter(move |record| record.dns_class == DNSClass::IN && record.name.eq_ignore_root(name))
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, CNAME, SOA};
    use proptest::prelude::*;

    use super::*;

    const ID: u16 = 7;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn question() -> Question {
        Question::new("www.example.org", Wanted::V4).unwrap()
    }

    fn reply(records: Vec<Record>) -> Message {
        let asked = Message::from_vec(&question().bytes(ID).unwrap()).unwrap();
        let mut message = Message::response(ID, OpCode::Query);
        message.add_queries(asked.queries);
        message.add_answers(records);
        message
    }

    fn a(owner: &str, ttl: u32, last: u8) -> Record {
        Record::from_rdata(name(owner), ttl, RData::A(A::new(10, 0, 0, last)))
    }

    fn alias(owner: &str, ttl: u32, of: &str) -> Record {
        Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(of))))
    }

    fn read(message: &Message) -> Option<Reply> {
        question().read(ID, &message.to_vec().unwrap())
    }

    fn found(last: &[u8], ttl: u32) -> Option<Reply> {
        let ips = last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect();
        Some(Reply::Addresses(ips, ttl))
    }

    #[test]
    fn addresses_are_found_whatever_the_case_of_the_name() {
        let all = vec![a("www.example.org.", 60, 1), a("WWW.Example.org.", 30, 2)];
        assert_eq!(read(&reply(all)), found(&[1, 2], 30));
    }

    #[test]
    fn aliases_are_followed_and_the_shortest_ttl_applies() {
        let all = vec![
            a("host.example.net.", 60, 1),
            alias("www.example.org.", 20, "cdn.example.net."),
            alias("cdn.example.net.", 40, "host.example.net."),
        ];
        assert_eq!(read(&reply(all)), found(&[1], 20));
        let circle = vec![alias("www.example.org.", 20, "www.example.org.")];
        assert_eq!(read(&reply(circle)), Some(Reply::Nothing(None)));
    }

    #[test]
    fn the_hosts_of_a_service_are_found_and_no_strange_ones() {
        use hickory_proto::rr::rdata::SRV;

        let question = Question::new("_http._tcp.example.org", Wanted::Service).unwrap();
        let srv = |owner: &str, ttl, port, target: &str| {
            Record::from_rdata(name(owner), ttl, RData::SRV(SRV::new(1, 2, port, name(target))))
        };
        let asked = Message::from_vec(&question.bytes(ID).unwrap()).unwrap();
        let mut message = Message::response(ID, OpCode::Query);
        message.add_queries(asked.queries);
        message.add_answers([
            srv("_http._tcp.example.org.", 60, 8000, "A.example.org."),
            srv("_http._tcp.example.org.", 30, 8001, "b.example.org."),
            srv("_http._tcp.example.org.", 30, 8002, "."),
            srv("_http._tcp.example.org.", 30, 0, "c.example.org."),
            srv("_http._tcp.example.com.", 30, 8003, "evil.example."),
        ]);
        let service =
            |target: &str, port| Service { target: target.into(), port, priority: 1, weight: 2 };
        let both = vec![service("a.example.org", 8000), service("b.example.org", 8001)];
        let read = question.read(ID, &message.to_vec().unwrap());
        assert_eq!(read, Some(Reply::Services(both, 30)));
    }

    #[test]
    fn records_of_other_names_are_ignored() {
        let all = vec![a("other.example.org.", 60, 1), a("www.example.org.evil.", 60, 2)];
        assert_eq!(read(&reply(all)), Some(Reply::Nothing(None)));
        let beside = vec![a("www.example.org.", 60, 1), a("bank.example.", 60, 2)];
        assert_eq!(read(&reply(beside)), found(&[1], 60));
    }

    #[test]
    fn a_reply_must_repeat_id_and_question() {
        let good = reply(vec![a("www.example.org.", 60, 1)]);
        assert!(read(&good).is_some());
        assert_eq!(question().read(ID + 1, &good.to_vec().unwrap()), None);
        let other = Question::new("www.example.com", Wanted::V4).unwrap();
        assert_eq!(other.read(ID, &good.to_vec().unwrap()), None);
        let six = Question::new("www.example.org", Wanted::V6).unwrap();
        assert_eq!(six.read(ID, &good.to_vec().unwrap()), None);
        assert_eq!(question().read(ID, &question().bytes(ID).unwrap()), None);
    }

    #[test]
    fn a_negative_answer_has_the_ttl_of_the_authority() {
        let mut message = reply(Vec::new());
        message.metadata.response_code = ResponseCode::NXDomain;
        let soa = SOA::new(name("ns."), name("mail."), 1, 2, 3, 4, 300);
        message.add_authority(Record::from_rdata(name("example.org."), 900, RData::SOA(soa)));
        assert_eq!(read(&message), Some(Reply::Nothing(Some(300))));
        message.metadata.response_code = ResponseCode::ServFail;
        assert_eq!(read(&message), Some(Reply::Refused));
        message.metadata.truncation = true;
        assert_eq!(read(&message), Some(Reply::Truncated));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..80,
            by: u8,
        ) {
            let _ = question().read(ID, &bytes);
            let good = reply(vec![alias("www.example.org.", 9, "a."), a("a.", 60, 1)]);
            let mut bent = good.to_vec().unwrap();
            let at = at % bent.len();
            bent[at] ^= by;
            let _ = question().read(ID, &bent);
        }
    }
}
