//! The files of a new provider, from `guest-sdk/template`. That folder is a crate of its own with everything in it: for a new
//! provider its names are replaced, and the parts about load balancers are left out unless they are wanted.

use std::path::Path;

use serde_json::Value;

/// The files of the template, by their paths in the crate.
const FILES: &[(&str, &str)] = &[
    (".gitignore", include_str!("../../../../guest-sdk/template/.gitignore")),
    ("Cargo.toml", include_str!("../../../../guest-sdk/template/Cargo.toml")),
    ("README.md", include_str!("../../../../guest-sdk/template/README.md")),
    ("provider.yaml", include_str!("../../../../guest-sdk/template/provider.yaml")),
    ("src/lib.rs", include_str!("../../../../guest-sdk/template/src/lib.rs")),
    (LOAD_BALANCER, include_str!("../../../../guest-sdk/template/src/load_balancer.rs")),
];

/// The file that only a provider with load balancers has.
const LOAD_BALANCER: &str = "src/load_balancer.rs";

/// What other files have only for load balancers. Each text occurs once in its file.
const LOAD_BALANCER_PARTS: &[(&str, &str)] = &[
    ("README.md", " --load-balancers"),
    ("README.md", " --allow-changes"),
    ("src/lib.rs", "mod load_balancer;\n\n"),
    ("src/lib.rs", ", load_balancers"),
    ("src/lib.rs", ", and to change load balancers"),
    ("src/lib.rs", "            .rules(self.load_balancers().read_rules())\n"),
    ("src/lib.rs", "            .rules(self.load_balancers().write_rules([\"PUT\", \"DELETE\"]))\n"),
];

/// The template's dependency on the SDK, in `Cargo.toml`.
const DEPENDENCY: &str = r#"{ path = ".." }"#;

/// The option that names the SDK, in the command of `README.md`.
const SDK_OPTION: &str = " --sdk ../pileus/guest-sdk";

/// A file of a new provider.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateFile {
    /// Its path in the crate.
    pub(super) path: &'static str,
    pub(super) content: String,
}

/// The files of a provider of this name. `sdk` is the path of the SDK from the folder that holds the crate.
pub(super) fn files(name: &str, load_balancers: bool, sdk: &Path) -> Vec<TemplateFile> {
    let file = |&(path, text): &(&'static str, &str)| {
        let mut content = text.to_owned();
        for (_, part) in LOAD_BALANCER_PARTS.iter().filter(|(file, _)| *file == path && !load_balancers) {
            content = content.replace(part, "");
        }
        content = content.replace("my-cloud", name).replace("my_cloud", &name.replace('-', "_"));
        // After the name, which the path may contain.
        content = match path {
            "Cargo.toml" => content.replace(DEPENDENCY, &dependency(sdk)),
            "README.md" => content.replace(SDK_OPTION, &option(sdk)),
            _ => content,
        };
        TemplateFile { path, content }
    };
    FILES.iter().filter(|(path, _)| load_balancers || *path != LOAD_BALANCER).map(file).collect()
}

/// The dependency on the SDK, as TOML.
fn dependency(sdk: &Path) -> String {
    let path = Path::new("..").join(sdk).display().to_string();
    // A JSON string is a TOML string.
    format!("{{ path = {} }}", Value::String(path))
}

fn option(sdk: &Path) -> String {
    format!(" --sdk {}", sdk.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDK: &str = "../checkout/guest-sdk";

    fn content<'a>(files: &'a [TemplateFile], path: &str) -> &'a str {
        &files.iter().find(|file| file.path == path).unwrap().content
    }

    #[test]
    fn no_placeholder_is_left() {
        for load_balancers in [false, true] {
            for TemplateFile { path, content } in files("tiny-sky", load_balancers, Path::new(SDK)) {
                for placeholder in ["my-cloud", "my_cloud", "MyCloud", DEPENDENCY, SDK_OPTION] {
                    assert!(!content.contains(placeholder), "{path}: {placeholder}");
                }
            }
        }
    }

    #[test]
    fn names_are_those_of_the_crate_and_of_its_library() {
        let files = files("tiny-sky", true, Path::new(SDK));
        assert!(content(&files, "Cargo.toml").contains("name = \"tiny-sky\"\n"));
        assert!(content(&files, "provider.yaml").contains("/release/tiny_sky.wasm\n"));
        assert!(content(&files, "src/lib.rs").contains("\"tiny-sky://\""));
    }

    #[test]
    fn parts_about_load_balancers_are_there_only_if_they_are_wanted() {
        let text = |path| FILES.iter().find(|(file, _)| *file == path).unwrap().1;
        for (path, part) in LOAD_BALANCER_PARTS {
            assert_eq!(text(*path).matches(part).count(), 1, "{path}: {part}");
        }
        for load_balancers in [false, true] {
            let files = files("tiny-sky", load_balancers, Path::new(SDK));
            let is_there = files.iter().any(|file| {
                file.path == LOAD_BALANCER
                    || file.content.contains("load_balancer")
                    || file.content.contains("load balancers")
                    || file.content.contains("load-balancers")
            });
            assert_eq!(is_there, load_balancers);
        }
    }

    #[test]
    fn the_sdk_is_named_by_its_path() {
        let here = files("tiny-sky", false, Path::new("../src/my-cloud \"x\"/guest-sdk"));
        let dependency = r#"pileus-guest = { path = "../../src/my-cloud \"x\"/guest-sdk" }"#;
        assert!(content(&here, "Cargo.toml").contains(dependency), "{}", content(&here, "Cargo.toml"));
        assert!(content(&here, "README.md").contains(" --sdk ../src/my-cloud \"x\"/guest-sdk\n"));
    }

    #[test]
    fn the_template_needs_the_rust_of_the_sdk() {
        let files = files("tiny-sky", false, Path::new(SDK));
        let expected = format!("\nrust-version = \"{}\"\n", env!("CARGO_PKG_RUST_VERSION"));
        assert!(content(&files, "Cargo.toml").contains(&expected));
    }
}
