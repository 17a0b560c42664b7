//! Reads from a component's bytes what the host doesn't need to know: which tools built it, and its initial memory and
//! tables. The bytes are untrusted. Parts that can't be parsed are left out; the host's own validation reports what is
//! wrong.

use std::collections::BTreeSet;

use pileus_host::sanitize;
use wasmparser::{KnownCustom, Parser, Payload};

/// The default page size of WebAssembly memory.
const PAGE: u64 = 64 << 10;

/// The longest text that is kept of a producer, in characters; that of `clang` has 60.
const MAX_TEXT: usize = 100;

/// What the bytes of a component show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Binary {
    /// The initial memory of all modules of an instance, in bytes.
    pub(super) memory: u64,
    /// The initial number of elements of all tables.
    pub(super) tables: u64,
    /// The tools that built it, sorted.
    pub(super) producers: BTreeSet<Producer>,
}

/// One line of a producers section.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Producer {
    /// `language`, `processed-by` or `sdk`.
    pub(super) field: String,
    pub(super) name: String,
    /// May be empty.
    pub(super) version: String,
}

impl Binary {
    /// Reads a component.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut binary = Self::default();
        for payload in Parser::new(0).parse_all(bytes).map_while(Result::ok) {
            match payload {
                Payload::MemorySection(memories) => {
                    for memory in memories.into_iter().map_while(Result::ok) {
                        let page =
                            memory.page_size_log2.and_then(|log2| 1_u64.checked_shl(log2)).unwrap_or(PAGE);
                        binary.memory = binary.memory.saturating_add(memory.initial.saturating_mul(page));
                    }
                }
                Payload::TableSection(tables) => {
                    let initial = tables.into_iter().map_while(Result::ok).map(|table| table.ty.initial);
                    binary.tables = initial.fold(binary.tables, u64::saturating_add);
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Producers(fields) = section.as_known() {
                        for field in fields.into_iter().map_while(Result::ok) {
                            let values = field.values.into_iter().map_while(Result::ok);
                            binary.producers.extend(values.map(|value| Producer {
                                field: text(field.name),
                                name: text(value.name),
                                version: text(value.version),
                            }));
                        }
                    }
                }
                _ => {}
            }
        }
        binary
    }
}

fn text(text: &str) -> String {
    sanitize(&text.chars().take(MAX_TEXT).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_are_summed() {
        let component = wat::parse_str(
            "(component
                (core module (memory 2) (table 7 funcref))
                (core module (memory 3) (table 11 funcref) (table 5 funcref)))",
        );
        let binary = Binary::read(&component.unwrap());
        assert_eq!((binary.memory, binary.tables), (5 * PAGE, 7 + 11 + 5));
    }

    #[test]
    fn each_producer_is_listed_once_and_on_one_line() {
        let producers = r#"(@producers (language "Rust" "") (processed-by "rustc" "1.95\n0"))"#;
        let component =
            wat::parse_str(format!("(component (core module {producers}) (core module {producers}))"));
        let binary = Binary::read(&component.unwrap());
        let listed: Vec<_> = binary
            .producers
            .iter()
            .map(|it| (it.field.as_str(), it.name.as_str(), it.version.as_str()))
            .collect();
        assert_eq!(listed, [("language", "Rust", ""), ("processed-by", "rustc", "1.95 0")]);
    }

    #[test]
    fn bytes_that_are_not_a_component_yield_nothing() {
        for bytes in [&b""[..], b"#!/bin/sh", b"\0asm\x0d\0\x01\0garbage"] {
            assert_eq!(Binary::read(bytes), Binary::default());
        }
    }
}
