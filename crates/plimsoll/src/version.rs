//! `plimsoll version`: what this program was built from. `build.rs` records it.

use command::failure::Failure;
use command::output;
use serde::Serialize;

#[derive(Serialize)]
struct Version {
    version: &'static str,
    /// 40 digits, or `unknown`: a build from an archive, or one for development.
    commit: &'static str,
    compiler: &'static str,
    target: &'static str,
    features: Vec<&'static str>,
}

/// Each feature of this crate, and whether it is on.
const FEATURES: &[(&str, bool)] = &[
    ("server", cfg!(feature = "server")),
    ("measure", cfg!(feature = "measure")),
    ("lab", cfg!(feature = "lab")),
    ("bpf", cfg!(feature = "bpf")),
];

pub(crate) fn version(json: bool) -> Result<(), Failure> {
    let features = FEATURES.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("BUILT_COMMIT"),
        compiler: env!("BUILT_COMPILER"),
        target: env!("BUILT_TARGET"),
        features,
    };
    output::show(json, &version, |version| {
        let Version { version, commit, compiler, target, features } = version;
        let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
        format!(
            "plimsoll {version}\ncommit    {commit}\ncompiler  {compiler}\ntarget    {target}\n\
             features  {features}\n"
        )
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_feature_is_listed() {
        let manifest = include_str!("../Cargo.toml");
        let features = manifest.split_once("[features]\n").unwrap().1;
        let features = features.split("\n[").next().unwrap();
        let named = features.lines().filter(|line| line.contains(" = ["));
        let named: Vec<&str> = named.map(|line| line.split(' ').next().unwrap()).collect();
        let listed = super::FEATURES.iter().map(|(name, _)| *name);
        let listed: Vec<&str> = std::iter::once("default").chain(listed).collect();
        assert_eq!(named, listed);
    }
}
