//! Properties of the gate's decisions that must hold for any input: canonical form, header rules, address filter and cache
//! keys. `gate-fuzz` searches for input that breaks one. A test here checks every input of the corpus (`fuzz/corpus`); add
//! to it every input that was ever found. Not a part of any program.

mod addresses;
mod headers;
mod keys;
mod request;

/// Panics if the property doesn't hold for this input.
pub type Property = fn(&[u8]);

/// Every property, with the name of its folder in the corpus.
pub const PROPERTIES: &[(&str, Property)] = &[
    ("addresses", addresses::hold),
    ("headers", headers::hold),
    ("keys", keys::hold),
    ("request", request::hold),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_property_holds_for_its_corpus() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        let folders = std::fs::read_dir(&corpus).unwrap();
        let folders: BTreeSet<_> =
            folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect();
        let properties: BTreeSet<_> = PROPERTIES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(folders, properties);
        for (name, hold) in PROPERTIES {
            let inputs: Vec<_> = std::fs::read_dir(corpus.join(name)).unwrap().collect();
            assert!(inputs.len() >= 5, "{name}");
            for input in inputs {
                let path = input.unwrap().path();
                println!("{}", path.display());
                hold(&std::fs::read(path).unwrap());
            }
        }
    }
}
