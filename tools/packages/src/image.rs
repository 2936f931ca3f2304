//! An image of a container in the layout of OCI, made without a daemon.
//!
//! It holds the program, the libraries that it needs from this machine, the certificates of public
//! authorities, and two users. There is no shell. Each file belongs to root, except for two
//! directories that the server writes to; these are a layer, because `tar` gives one owner to all
//! files of an archive.
//!
//! The layout is in one archive, `NAME-image.tar`, which also has the list that `docker load` of
//! older versions reads.
//!
//! Source: OCI image specification 1.1, image-layout.md, config.md, manifest.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::json::{Json, text, texts};
use crate::tools::{self, ROOT};
use crate::{Files, Program, Stamp};

/// The user, and the group, that the server runs as in a container.
pub const IMAGE_USER: u32 = 65532;
/// The certificates of public authorities, on Debian and in the image.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
const CONFIGURATION: &str = "etc/plimsoll/plimsoll.toml";
const PROGRAM: &str = "/usr/bin/plimsoll";
/// The admin address of the configuration file, which the health check asks.
const ADMIN: &str = "127.0.0.1:3129";
const SECOND_NS: u64 = 1_000_000_000;

/// One layer: where its archive is, its digests, and its size in bytes.
struct Layer {
    what: &'static str,
    blob: Blob,
    /// The digest of the archive before it was compressed.
    uncompressed: String,
}

/// A file below `blobs`, by its digest.
struct Blob {
    digest: String,
    size: u64,
}

/// Makes `NAME-image.tar` in `out`, with the image `plimsoll:VERSION`, and returns its path.
///
/// # Errors
///
/// If a library or the certificates are missing on this machine, or a tool fails.
pub fn image(
    root: &Path,
    program: &Program,
    name: &str,
    stamp: &Stamp,
    out: &Path,
) -> io::Result<PathBuf> {
    let layout = out.join(format!("{name}.oci"));
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layers = [
        layer("directories of the server", &directories(), IMAGE_USER, stamp, &blobs)?,
        layer("system", &system(program)?, ROOT, stamp, &blobs)?,
        layer("program", &served(root, program)?, ROOT, stamp, &blobs)?,
    ];
    let created = tools::date(stamp.epoch)?;
    let config = blob(&config(&layers, &created, stamp).to_string(), &blobs)?;
    let manifest = blob(&manifest(&config, &layers).to_string(), &blobs)?;
    let tag = format!("plimsoll:{}", stamp.version);
    let index = Json::Object(vec![
        ("schemaVersion", Json::Number(2)),
        ("mediaType", text("application/vnd.oci.image.index.v1+json")),
        ("manifests", Json::List(vec![with_tag(&manifest, &stamp.version, &tag)])),
    ]);
    let mut files = Files::new();
    files.text("index.json", index.to_string());
    files.text("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
    files.text("manifest.json", docker_list(&config, &layers, &tag).to_string());
    files.write_to(&layout, stamp.epoch)?;
    let archive = out.join(format!("{name}-image.tar"));
    tools::tar(&layout, Path::new("."), ROOT, stamp.epoch, &archive)?;
    fs::remove_dir_all(&layout)?;
    Ok(archive)
}

/// The libraries, the certificates and the users.
fn system(program: &Program) -> io::Result<Files> {
    let mut files = Files::new();
    for library in program.libraries()? {
        let path = library.to_string_lossy().trim_start_matches('/').to_owned();
        files.copy(&path, 0o755, &library);
    }
    files.copy(CERTIFICATES, 0o644, &Path::new("/").join(CERTIFICATES));
    let id = IMAGE_USER;
    let users = format!("root:x:0:0::/:/\nplimsoll:x:{id}:{id}::/:/\n");
    let groups = format!("root:x:0:\nplimsoll:x:{id}:\n");
    files.text("etc/passwd", users).text("etc/group", groups).directory("tmp", 0o1777);
    for parent in ["var", "var/cache", "var/log"] {
        files.directory(parent, 0o755);
    }
    Ok(files)
}

/// What the server writes to, if the configuration says so. Their parents are in the next layer,
/// which gives them to root.
fn directories() -> Files {
    let mut files = Files::new();
    files.directory("var/cache/plimsoll", 0o755).directory("var/log/plimsoll", 0o755);
    files
}

fn served(root: &Path, program: &Program) -> io::Result<Files> {
    let mut files = Files::new();
    files.copy(PROGRAM.trim_start_matches('/'), 0o755, program.binary());
    files.text(CONFIGURATION, fs::read(root.join("packaging/plimsoll.toml"))?);
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.text(&format!("usr/share/doc/plimsoll/{licence}"), fs::read(root.join(licence))?);
    }
    Ok(files)
}

fn layer(
    what: &'static str,
    files: &Files,
    owner: u32,
    stamp: &Stamp,
    blobs: &Path,
) -> io::Result<Layer> {
    let stage = blobs.join("stage");
    files.write_to(&stage, stamp.epoch)?;
    let archive = blobs.join("layer.tar");
    tools::tar(&stage, Path::new("."), owner, stamp.epoch, &archive)?;
    fs::remove_dir_all(&stage)?;
    let uncompressed = format!("sha256:{}", tools::sha256(&archive)?);
    let blob = taken(&tools::gzip(&archive, stamp.compression)?, blobs)?;
    Ok(Layer { what, blob, uncompressed })
}

/// Gives a file in `blobs` the name of its digest.
fn taken(file: &Path, blobs: &Path) -> io::Result<Blob> {
    let sum = tools::sha256(file)?;
    let size = fs::metadata(file)?.len();
    fs::rename(file, blobs.join(&sum))?;
    Ok(Blob { digest: format!("sha256:{sum}"), size })
}

fn blob(text: &str, blobs: &Path) -> io::Result<Blob> {
    let file = blobs.join("text");
    fs::write(&file, text)?;
    taken(&file, blobs)
}

fn config(layers: &[Layer], created: &str, stamp: &Stamp) -> Json {
    let user = format!("{IMAGE_USER}:{IMAGE_USER}");
    let health = Json::Object(vec![
        ("Test", texts(&["CMD", PROGRAM, "metrics", "--admin", ADMIN])),
        ("Interval", Json::Number(10 * SECOND_NS)),
        ("Timeout", Json::Number(5 * SECOND_NS)),
        ("StartPeriod", Json::Number(2 * SECOND_NS)),
        ("Retries", Json::Number(3)),
    ]);
    let labels = Json::Object(vec![
        ("org.opencontainers.image.title", text("plimsoll")),
        ("org.opencontainers.image.version", text(stamp.version.as_str())),
        ("org.opencontainers.image.licenses", text("Apache-2.0 OR MIT")),
    ]);
    let run = Json::Object(vec![
        ("User", text(user)),
        ("Env", texts(&["PATH=/usr/bin"])),
        ("Entrypoint", texts(&[PROGRAM])),
        ("Cmd", texts(&["serve", "-c", &format!("/{CONFIGURATION}")])),
        ("WorkingDir", text("/")),
        ("StopSignal", text("SIGTERM")),
        ("Healthcheck", health),
        ("Labels", labels),
    ]);
    let history = layers.iter().map(|layer| {
        Json::Object(vec![("created", text(created)), ("created_by", text(layer.what))])
    });
    let digests = layers.iter().map(|layer| text(layer.uncompressed.as_str())).collect();
    Json::Object(vec![
        ("created", text(created)),
        ("architecture", text(architecture())),
        ("os", text("linux")),
        ("config", run),
        ("rootfs", Json::Object(vec![("type", text("layers")), ("diff_ids", Json::List(digests))])),
        ("history", Json::List(history.collect())),
    ])
}

/// The name that Go, and so OCI, has for the processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn manifest(config: &Blob, layers: &[Layer]) -> Json {
    let layer = "application/vnd.oci.image.layer.v1.tar+gzip";
    let layers = layers.iter().map(|one| Json::Object(descriptor(layer, &one.blob)));
    let config = descriptor("application/vnd.oci.image.config.v1+json", config);
    Json::Object(vec![
        ("schemaVersion", Json::Number(2)),
        ("mediaType", text(MANIFEST)),
        ("config", Json::Object(config)),
        ("layers", Json::List(layers.collect())),
    ])
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn descriptor(media_type: &str, blob: &Blob) -> Vec<(&'static str, Json)> {
    let digest = text(blob.digest.as_str());
    vec![("mediaType", text(media_type)), ("digest", digest), ("size", Json::Number(blob.size))]
}

fn with_tag(manifest: &Blob, version: &str, tag: &str) -> Json {
    let mut described = descriptor(MANIFEST, manifest);
    let names = vec![
        ("org.opencontainers.image.ref.name", text(version)),
        ("io.containerd.image.name", text(format!("docker.io/library/{tag}"))),
    ];
    described.push(("annotations", Json::Object(names)));
    Json::Object(described)
}

/// The list of an archive of `docker save`.
fn docker_list(config: &Blob, layers: &[Layer], tag: &str) -> Json {
    let path = |blob: &Blob| format!("blobs/sha256/{}", blob.digest.trim_start_matches("sha256:"));
    let layers: Vec<String> = layers.iter().map(|layer| path(&layer.blob)).collect();
    let layers: Vec<&str> = layers.iter().map(String::as_str).collect();
    Json::List(vec![Json::Object(vec![
        ("Config", text(path(config))),
        ("RepoTags", texts(&[tag])),
        ("Layers", texts(&layers)),
    ])])
}
