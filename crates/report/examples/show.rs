//! Temporary.
fn main() {
    let mut a = std::env::args().skip(1);
    let t0 = std::time::Instant::now();
    let trial = trial::Trial::open(a.next().unwrap()).unwrap();
    let t1 = std::time::Instant::now();
    let an = match report::analyse(&trial, &report::Options { objective_ms: Some(10.0), ..Default::default() }) { Ok(a) => a, Err(e) => { println!("{e}"); return } };
    let t2 = std::time::Instant::now();
    let page = report::html(&an);
    let t3 = std::time::Instant::now();
    println!("{}", report::terminal(&an, 80));
    println!("open {:?} analyse {:?} html {:?} {} bytes", t1 - t0, t2 - t1, t3 - t2, page.len());
    if let Some(f) = a.next() { std::fs::write(f, page).unwrap(); }
}
