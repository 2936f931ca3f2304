//! Many conditions together, and what judging allocates.

use conditions::{Builder, Lists, Scope};
use runtime::{CountingAllocator, allocations};

use super::{compiled, with_facts};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const PREFIXES: [&str; 9] = ["/a", "/a/", "/a/b", "/a/b/", "/b", "/", "/a/a", "/c", "/aa"];
const SUFFIXES: [&str; 9] = ["b", "/b", "a/b", "/a/b", "a", "bb", "/", "x", "c/b"];
const PARTS: [&str; 9] = ["a/b", "/a", "b", "c", "//", "/b", "a//", "ab", "ba"];
const AGENTS: [&str; 9] = ["curl", "/8", "url/", "c", "x", "rl", "zz", "8/", "curl/9"];

/// Terms of every kind, more of each kind than an index needs. Some of each kind hold.
fn texts() -> Vec<String> {
    let of = |at: usize| {
        [
            format!("path.startsWith('{}')", PREFIXES[at]),
            format!("path.endsWith('{}')", SUFFIXES[at]),
            format!("path.contains('{}')", PARTS[at]),
            format!("path.matches('^/[a-z]+/b{{0,{at}}}$') && path.contains('b')"),
            format!("path.glob('/*{}*')", &SUFFIXES[at]),
            format!("host in ['{at}.example', '{}.org']", ["example", "x"][at % 2]),
            format!("fields['user-agent'].lowerAscii().contains('{}')", AGENTS[at]),
            format!("fields['x-a'] == 'one, {}' || fields['x-{at}'] != ''", ["two", "x"][at % 2]),
            format!("cookies['c{at}'] == '' && args['q'].contains('{}')", ["b", "x"][at % 2]),
            format!("args['x{at}'] == 'a' || args['q'] == 'a b c'"),
            format!("teams[path] != '{at}' && share(cookies['sid']) < 0.{at}1"),
            format!("client.within('10.{at}.0.0/16') || status == 40{at}"),
            format!("user in words || size(response['x']) == {at}"),
        ]
    };
    (0..9).flat_map(of).collect()
}

#[test]
fn conditions_together_are_judged_as_each_alone() {
    let texts = texts();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (conditions, ids) = compiled(&texts);
    let mut together = Vec::new();
    with_facts(|facts| conditions.judge(facts).matching(&ids, |at| together.push(at)));
    let alone = |text: &&str| {
        let (conditions, ids) = compiled(&[text]);
        with_facts(|facts| conditions.judge(facts).holds(ids[0]))
    };
    let alone: Vec<usize> =
        (0..).zip(&texts).filter(|(_, text)| alone(text)).map(|(at, _)| at).collect();
    assert_eq!(together, alone);
    assert!(alone.len() > 20 && alone.len() < texts.len() - 20, "{}", alone.len());
}

#[test]
fn judging_allocates_nothing() {
    let texts = texts();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (conditions, ids) = compiled(&texts);
    let judge = || {
        with_facts(|facts| {
            let before = allocations().count;
            let mut found = 0;
            let mut judge = conditions.judge(facts);
            judge.matching(&ids, |_| found += 1);
            ids.iter().for_each(|id| found += usize::from(judge.holds(*id)));
            drop(judge);
            (found, allocations().count - before)
        })
    };
    let (found, _) = judge();
    assert!(found > 40, "{found}");
    for _ in 0..3 {
        assert_eq!(judge(), (found, 0));
    }
}

/// A pattern that is too large for an automaton is searched in another way, with the same result.
#[test]
fn large_patterns_hold_for_the_same_values() {
    let large = "path.matches('(a|b).{12}x$')";
    let (conditions, ids) = compiled(&[large]);
    for (path, expected) in [("/a/a012345678901x", true), ("/a/a01234567890x", false)] {
        let holds = with_facts(|mut facts| {
            facts.path = path.as_bytes();
            conditions.judge(facts).holds(ids[0])
        });
        assert_eq!(holds, expected, "{path}");
    }
}

#[test]
fn more_terms_than_are_remembered_are_tested_each_time() {
    let mut builder = Builder::new(Lists::new());
    let mut ids = Vec::new();
    for at in 0..500 {
        let terms = (0..8).map(|term| format!("path == '/{at}/{term}' || port == {at}"));
        let text = terms.collect::<Vec<_>>().join(" || ");
        ids.push(builder.add(&text, Scope::Request).unwrap());
    }
    let conditions = builder.build();
    let mut found = Vec::new();
    with_facts(|mut facts| {
        facts.path = b"/77/5";
        conditions.judge(facts).matching(&ids, |at| found.push(at));
    });
    assert_eq!(found, [77, 443]);
}
