//! The cases of a directory: a line of JSON for each, in the order in which they were measured.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use harness::Error;

use super::Extent;
use super::collect::Case;
use super::servers::{SERVERS, variant_of};

/// The file of the cases, in the directory of their trials.
const FILE: &str = "cases.jsonl";

/// The cases that are kept so far.
pub(super) struct Kept {
    path: PathBuf,
    cases: Vec<Case>,
}

impl Kept {
    /// Reads the cases of a directory, or begins without any.
    ///
    /// # Errors
    /// The file cannot be read, or has a line that is not a case.
    pub(super) fn open(out: &Path, read: bool) -> Result<Kept, Error> {
        let path = out.join(FILE);
        let failed = |error: io::Error| Error::Directory(path.clone(), error);
        let cases = match fs::read_to_string(&path) {
            Ok(text) if read => {
                let lines = text.lines().map(serde_json::from_str);
                lines.collect::<Result<_, _>>().map_err(|error| failed(error.into()))?
            }
            Ok(_) => {
                fs::remove_file(&path).map_err(failed)?;
                Vec::new()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        Ok(Kept { path, cases })
    }

    /// Whether a case is there with all recorded loads.
    pub(super) fn has(&self, wanted: &Case, extent: &Extent) -> bool {
        self.cases.iter().find(|case| case.is(wanted)).is_some_and(|case| {
            extent.loads().all(|load| case.ramps.iter().any(|ramp| ramp.load() == load))
        })
    }

    /// The saturation of which the loads of the server are a part of which this is a variant, if
    /// they are there.
    pub(super) fn of_original(&self, variant: &Case) -> Option<f64> {
        let server = variant_of(&variant.server)?.to_owned();
        let original = Case { server, ..variant.clone() };
        let found = self.cases.iter().find(|case| case.is(&original))?;
        Some(found.saturation[0].rate)
    }

    /// Adds a case, in place of an earlier measurement of the same.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, case: Case) -> Result<(), Error> {
        self.cases.retain(|other| !other.is(&case));
        self.cases.push(case);
        self.write().map_err(|error| Error::Directory(self.path.clone(), error))
    }

    /// Writes a new file and puts it in place of the old one.
    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        for case in &self.cases {
            writeln!(file, "{}", serde_json::to_string(case)?)?;
        }
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// The cases in the order of the servers, the sizes and the connections.
    pub(super) fn sorted(mut self) -> Vec<Case> {
        let place = |name: &str| SERVERS.iter().position(|server| *server == name);
        self.cases.sort_by_key(|case| (place(&case.server), case.body_bytes, case.connections));
        self.cases
    }
}

#[cfg(test)]
mod tests {
    use super::super::collect::{Ramp, Saturation};
    use super::*;

    fn case(server: &str, connections: u32, reaches: &[u32]) -> Case {
        let ramp = |reach: &u32| Ramp { reach: *reach, run: 1, ..Ramp::default() };
        Case {
            server: server.into(),
            connections,
            body_bytes: 1024,
            saturation: [1e3, 2e3].map(|rate| Saturation { rate, ..Saturation::default() }),
            ramps: reaches.iter().map(ramp).collect(),
            ..Case::default()
        }
    }

    #[test]
    fn cases_are_kept_and_a_new_measurement_replaces_an_old_one() {
        let home = tempfile::tempdir().unwrap();
        let mut kept = Kept::open(home.path(), true).unwrap();
        kept.add(case("squid", 16, &[30])).unwrap();
        kept.add(case("nginx", 64, &[30])).unwrap();
        kept.add(case("squid", 16, &[30, 60])).unwrap();
        let kept = Kept::open(home.path(), true).unwrap();
        let has = |server, connections, reaches: &[u32]| {
            let reaches = reaches.to_vec();
            let extent = Extent { reaches, ..Extent::default() };
            kept.has(&Case::new(server, 1024, connections), &extent)
        };
        assert!(has("squid", 16, &[60, 30]) && has("nginx", 64, &[30]));
        assert!(!has("nginx", 64, &[60]) && !has("nginx", 16, &[30]));
        let beside = Extent { beside: vec![30], ..Extent::default() };
        assert!(!kept.has(&Case::new("nginx", 1024, 64), &beside));
        let twice = Extent { reaches: vec![30], runs: 2, ..Extent::default() };
        assert!(!kept.has(&Case::new("nginx", 1024, 64), &twice));
        assert_eq!(kept.of_original(&Case::new("nginx-gzip", 1024, 64)), Some(1e3));
        assert_eq!(kept.of_original(&Case::new("nginx", 1024, 64)), None);
        let names: Vec<String> = kept.sorted().into_iter().map(|case| case.server).collect();
        assert_eq!(names, ["nginx", "squid"]);
        assert!(Kept::open(home.path(), false).unwrap().sorted().is_empty());
        assert!(!home.path().join(FILE).exists());
        fs::write(home.path().join(FILE), "{}x").unwrap();
        assert!(Kept::open(home.path(), true).is_err());
    }
}
