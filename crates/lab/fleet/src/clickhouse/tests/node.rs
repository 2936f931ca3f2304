//! Debian's ClickHouse server and today's engine, started by the tests on free ports of loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::free_port;

/// A server has this long to start, on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

/// A server with its own directory. It is ended when this is dropped.
pub(crate) struct Node {
    directory: PathBuf,
    pub(crate) http: u16,
    pub(crate) https: u16,
    tcp: u16,
    child: Option<Child>,
}

impl Node {
    /// One server.
    pub(crate) fn start(directory: &Path) -> Node {
        let mut nodes = Node::cluster(directory, 1);
        nodes.pop().unwrap()
    }

    /// Servers that know each other as the cluster `fleet`, with one shard on each. They listen for
    /// TLS, too, if the directory has the files `tls.crt` and `tls.key`.
    pub(crate) fn cluster(directory: &Path, nodes: usize) -> Vec<Node> {
        let ports: Vec<[u16; 4]> = (0..nodes).map(|_| [(); 4].map(|()| free_port())).collect();
        let shard = |[_, tcp, ..]: &[u16; 4]| {
            format!("<shard><replica><host>127.0.0.1</host><port>{tcp}</port></replica></shard>")
        };
        let shards: String = ports.iter().map(shard).collect();
        let shards = format!("<remote_servers><fleet>{shards}</fleet></remote_servers>");
        let start = |(at, ports): (usize, &[u16; 4])| {
            let [http, tcp, _, https] = *ports;
            let tls = tls(directory, https);
            let directory = directory.join(format!("node{at}"));
            configure(&directory, *ports, &format!("{shards}{tls}"));
            let mut node = Node { directory, http, https, tcp, child: None };
            node.restart();
            node
        };
        ports.iter().enumerate().map(start).collect()
    }

    /// The address of a database in it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("http://127.0.0.1:{}/{database}", self.http)
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it with the data that it had, and waits until it answers.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let out = fs::File::create(self.directory.join("out")).unwrap();
        let config = format!("--config-file={}/config.xml", self.directory.display());
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let child = Command::new("clickhouse-server")
            .env("PATH", path)
            .arg(config)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap_or_else(|error| panic!("clickhouse-server: {error}: ./setup.sh test"));
        self.child = Some(child);
        await_answer(self.http, || {
            let errors = fs::read_to_string(self.directory.join("errors")).unwrap_or_default();
            fs::read_to_string(self.directory.join("out")).unwrap_or_default() + &errors
        });
        // The other nodes ask at this port.
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, self.tcp)).is_ok());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn tls(directory: &Path, port: u16) -> String {
    let at = directory.display();
    if !directory.join("tls.crt").exists() {
        return String::new();
    }
    format!(
        "<https_port>{port}</https_port><openSSL><server>\
         <certificateFile>{at}/tls.crt</certificateFile>\
         <privateKeyFile>{at}/tls.key</privateKeyFile>\
         <verificationMode>none</verificationMode></server></openSSL>"
    )
}

fn configure(directory: &Path, [http, tcp, interserver, _]: [u16; 4], more: &str) {
    fs::create_dir_all(directory).unwrap();
    let at = directory.display();
    let config = format!(
        "<yandex><logger><level>warning</level><log>{at}/log</log>\
         <errorlog>{at}/errors</errorlog></logger>\
         <http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>\
         <interserver_http_port>{interserver}</interserver_http_port>\
         <interserver_http_host>127.0.0.1</interserver_http_host>\
         <listen_host>127.0.0.1</listen_host><max_concurrent_queries>200</max_concurrent_queries>\
         <path>{at}/data/</path><tmp_path>{at}/tmp/</tmp_path>\
         <format_schema_path>{at}/formats/</format_schema_path>\
         <users_config>{at}/users.xml</users_config><default_profile>default</default_profile>\
         <default_database>default</default_database><timezone>America/New_York</timezone>\
         <mark_cache_size>16777216</mark_cache_size>\
         {more}</yandex>"
    );
    fs::write(directory.join("config.xml"), config).unwrap();
    let user = |name: &str, password: &str, profile: &str, databases: &str| {
        format!(
            "<{name}><password>{password}</password><networks><ip>127.0.0.1</ip></networks>\
             <profile>{profile}</profile><quota>default</quota>{databases}</{name}>"
        )
    };
    let only = "<allow_databases><database>fleet</database></allow_databases>";
    let users = format!(
        "<yandex><profiles><default><max_memory_usage>1000000000</max_memory_usage>\
         <max_threads>2</max_threads></default><reader><readonly>1</readonly></reader></profiles>\
         <users>{}{}{}</users><quotas><default></default></quotas></yandex>",
        user("default", "", "default", ""),
        user("recorder", "s3cret", "default", only),
        user("reader", "r3ad", "reader", only),
    );
    fs::write(directory.join("users.xml"), users).unwrap();
}

/// Today's engine. It is ended when this is dropped.
pub(crate) struct Chdb {
    pub(crate) http: u16,
    child: Child,
}

impl Chdb {
    pub(crate) fn start(directory: &Path) -> Chdb {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = home.join("../../../target/chdb/bin/python");
        assert!(python.exists(), "chdb is missing: ./setup.sh test installs it");
        let http = free_port();
        let child = Command::new(python)
            .arg(home.join("src/clickhouse/tests/today.py"))
            .arg(http.to_string())
            .arg(directory)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let chdb = Chdb { http, child };
        await_answer(http, String::new);
        chdb
    }
}

impl Drop for Chdb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a server answers at this port.
fn await_answer(http: u16, why: impl Fn() -> String) {
    let begun = Instant::now();
    while !answers(http) {
        assert!(begun.elapsed() < START_MAX, "port {http}: {}", why());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answers(http: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, http)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = stream.write_all(b"GET /ping HTTP/1.0\r\n\r\n");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).is_ok() && &answer == b"HTTP/"
}
