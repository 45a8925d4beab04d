//! `cargo xtask features`: each package compiles by itself without features, and with each of its features alone.
//!
//! A build of the whole workspace cannot show that: there, what one package turns on serves all.

use crate::failure::Result;
use crate::run;
use crate::workspace::{Package, Workspace};

pub(crate) fn run(workspace: &Workspace) -> Result {
    for package in &workspace.packages {
        for feature in combinations(package) {
            let mut args = vec!["check", "--locked", "--quiet", "--package", &package.name];
            args.push("--no-default-features");
            if let Some(feature) = feature {
                args.extend(["--features", feature]);
            }
            run::see(&mut run::cargo(&args))?;
        }
        for (feature, why) in &package.not_built {
            eprintln!("not built: {}/{feature}, which {why}", package.name);
        }
    }
    Ok(())
}

/// None, then each alone. `default` is a list of others.
fn combinations(package: &Package) -> impl Iterator<Item = Option<&str>> {
    std::iter::once(None).chain(package.features_built().filter(|feature| *feature != "default").map(Some))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_built_alone_and_none_at_all() {
        let features = ["default", "conformance", "relay"].map(String::from).to_vec();
        let package = Package { features, ..Package::default() };
        assert_eq!(combinations(&package).collect::<Vec<_>>(), [None, Some("conformance"), Some("relay")]);
    }
}
