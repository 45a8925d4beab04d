//! What the workspace consists of: its packages as cargo sees them, and its files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::{Failure, Result, While};
use crate::run;

/// The folder of the root manifest.
///
/// The variable of the run comes before that of the build: a copied target folder holds a program that was built
/// somewhere else.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or(own.clone(), Path::to_path_buf)
}

/// The members, as `cargo metadata` tells them.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root, such as `examples/quickstart`.
    pub(crate) folder: String,
    pub(crate) features: Vec<String>,
    /// Features that this machine cannot be expected to build, with the reason:
    /// `[package.metadata.xtask.not-built]` in the package's manifest.
    pub(crate) not_built: BTreeMap<String, String>,
    pub(crate) has_library: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) for_tests: bool,
}

impl Workspace {
    /// Asks cargo. Fails when `Cargo.lock` does not fit the manifests.
    pub(crate) fn load() -> Result<Self> {
        let mut command = run::cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"]);
        let metadata: Value =
            serde_json::from_str(&run::read(&mut command)?).or_fail("read what cargo metadata says")?;
        let packages = list(&metadata["packages"]).map(|package| read_package(package, &root())).collect();
        Ok(Self { packages })
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// The argument of `--features` that turns on every feature that can be built, in these packages.
    ///
    /// All steps use it, so that what one has compiled serves the next.
    pub(crate) fn all_features<'a>(&'a self, of: impl IntoIterator<Item = &'a Package>) -> String {
        let features = of.into_iter().flat_map(|package| {
            package.features_built().map(move |feature| format!("{}/{feature}", package.name))
        });
        features.collect::<Vec<_>>().join(",")
    }
}

impl Package {
    pub(crate) fn features_built(&self) -> impl Iterator<Item = &str> {
        self.features.iter().map(String::as_str).filter(|feature| !self.not_built.contains_key(*feature))
    }

    pub(crate) fn is_example(&self) -> bool {
        self.folder.starts_with("examples/")
    }
}

fn read_package(package: &Value, root: &Path) -> Package {
    let manifest = PathBuf::from(text(&package["manifest_path"]));
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
    let features = package["features"].as_object();
    let not_built = package["metadata"]["xtask"]["not-built"].as_object();
    Package {
        name: text(&package["name"]),
        folder: folder.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default(),
        features: features.into_iter().flat_map(|map| map.keys().cloned()).collect(),
        not_built: not_built.into_iter().flatten().map(|(name, why)| (name.clone(), text(why))).collect(),
        has_library: list(&package["targets"]).any(|target| list(&target["kind"]).any(|kind| kind == "lib")),
        dependencies: list(&package["dependencies"])
            .map(|dependency| Dependency {
                name: text(&dependency["name"]),
                for_tests: dependency["kind"] == "dev",
            })
            .collect(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// One text file of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every file under the root whose name ends in one of `extensions`, but for build output and what git ignores by
/// the same rule; sorted by path.
pub(crate) fn files(extensions: &[&str]) -> Result<Vec<SourceFile>> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).or_fail(format_args!("list {}", folder.display()))?;
        for entry in entries {
            let path = entry.or_fail(format_args!("list {}", folder.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let relative = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
            if path.is_symlink() {
                continue;
            } else if path.is_dir() {
                if name != ".git" && relative != "target" {
                    folders.push(path);
                }
            } else if extensions.iter().any(|extension| name.ends_with(extension)) {
                let bytes = fs::read(&path).or_fail(format_args!("read {relative}"))?;
                let text =
                    String::from_utf8(bytes).map_err(|_| Failure::new(format!("{relative} is not UTF-8")))?;
                found.push(SourceFile { path: relative, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The names of what lies in the root.
pub(crate) fn top_level() -> Result<Vec<String>> {
    let entries = fs::read_dir(root()).or_fail("list the root")?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names.collect::<std::io::Result<_>>().or_fail("list the root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_cannot_be_built_are_left_out() {
        let package = Package {
            name: "sink".into(),
            features: vec!["one".into(), "two".into()],
            not_built: BTreeMap::from([("two".into(), "needs a library".into())]),
            ..Package::default()
        };
        let workspace = Workspace { packages: vec![package] };
        assert_eq!(workspace.all_features(&workspace.packages), "sink/one");
    }

    #[test]
    fn this_workspace_knows_its_packages_and_files() {
        let workspace = Workspace::load().unwrap();
        let own = workspace.package("xtask").unwrap();
        assert_eq!((own.folder.as_str(), own.has_library), ("xtask", false));
        assert!(workspace.package("outbox-core").unwrap().has_library);
        let files = files(&[".rs"]).unwrap();
        assert!(files.iter().any(|file| file.path == "xtask/src/workspace.rs"));
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }
}
