//! The smallest server on this runtime: reads, answers with 1 KB, waits again.
//!
//! Shows what a request costs: under `strace -c`, against the null server, with thousands of idle
//! connections. `answer ADDRESS [BACKEND] [CPU]`; ends with its standard input.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use readiness::Choice;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::stop::StopSource;
use runtime::time::{now, sleep};
use runtime::{Either, Options, Runtime, race, spawn};

const IDLE_MAX: Duration = Duration::from_secs(600);
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n";
static ANSWER: [u8; HEAD.len() + 1024] = {
    let mut answer = [b'.'; HEAD.len() + 1024];
    answer
        .first_chunk_mut::<{ HEAD.len() }>()
        .expect("it begins with the head")
        .copy_from_slice(HEAD);
    answer
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().ok_or("answer ADDRESS [BACKEND] [CPU]")?.parse()?;
    let backend = match arguments.next() {
        Some(name) => Choice::Named(name.parse()?),
        None => Choice::Preferred,
    };
    let cpu = arguments.next().map(|cpu| cpu.parse()).transpose()?;
    let options = Options::default().with_backend(backend).with_pin_cpu(cpu);
    let mut runtime = Runtime::new(options)?;
    let source = StopSource::new();
    let token = source.token();
    std::thread::spawn(move || {
        // An error ends it too.
        drop(io::stdin().read_to_end(&mut Vec::new()));
        source.stop();
    });
    runtime.block_on(async move {
        let listener = TcpListener::bind(address, &ListenOptions::default())?;
        eprintln!("{} on {}", runtime::backend(), listener.local_addr()?);
        match race(token.stopped(), accept(&listener)).await {
            Either::Left(()) => {}
            Either::Right(failed) => failed?,
        }
        for (name, _, value) in runtime::counters().list() {
            eprintln!("{name:>18} {value}");
        }
        Ok(())
    })
}

async fn accept(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        spawn(async move {
            // A failed connection ends; the others continue.
            drop(serve(stream).await);
        })
        .detach();
    }
}

async fn serve(stream: TcpStream) -> io::Result<()> {
    let mut idle = sleep(IDLE_MAX);
    loop {
        idle.reset(now() + IDLE_MAX);
        match race(stream.readable(), &mut idle).await {
            Either::Left(ready) => ready?,
            Either::Right(()) => return Ok(()),
        }
        match stream.try_read(&mut [0; 512]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        stream.write_all(&ANSWER).await?;
    }
}
