//! libFuzzer for the properties in `pileus_gate::fuzz`; `deploy/dev/fuzz` builds and runs it. `PILEUS_FUZZ` names the
//! property, since the arguments are those of libFuzzer.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod fuzz {
    use std::sync::LazyLock;

    use libfuzzer_sys::fuzz_target;
    use pileus_gate::fuzz::{PROPERTIES, Property};

    static PROPERTY: LazyLock<Property> = LazyLock::new(|| {
        let wanted = std::env::var("PILEUS_FUZZ").expect("PILEUS_FUZZ names a folder of the corpus");
        PROPERTIES.iter().find(|(name, _)| *name == wanted).expect("PILEUS_FUZZ names a property").1
    });

    fuzz_target!(|data: &[u8]| PROPERTY(data));
}

#[cfg(not(fuzzing))]
fn main() {
    eprintln!("gate-fuzz: run deploy/dev/fuzz, which builds it with libFuzzer");
    std::process::exit(2);
}
