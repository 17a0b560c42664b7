//! All CloudProvider documents in the Markdown files of the repository are valid.

use std::fs;
use std::path::{Path, PathBuf};

use super::tests::parse;

/// Adds the Markdown files below a folder to `files`.
fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (name, path) = (entry.file_name().into_string().unwrap(), entry.path());
        let is_source = !["target", ".git", "venv"].contains(&&*name);
        if entry.file_type().unwrap().is_dir() && is_source {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

/// The blocks of a Markdown file that are fenced as YAML.
fn yaml_blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n```yaml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest))
}

#[test]
fn documents_in_markdown_files_are_valid() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut files = Vec::new();
    find(root, &mut files);
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let documents = yaml_blocks(&text).flat_map(|block| block.split("\n---\n"));
        for document in documents.filter(|document| document.contains("kind: CloudProvider")) {
            let result = parse(document, "/etc/pileus");
            assert!(result.is_ok(), "{}: {:?} in\n{document}", file.display(), result.err());
            count += 1;
        }
    }
    assert!(count > 0, "no document found below {}", root.display());
}
