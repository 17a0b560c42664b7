//! What the bytes of a component tell beyond what the host has to know: which tools made it, and what it takes from the
//! start. The bytes are anybody's; what can't be read is left out, as the host's own check of them says what is wrong.

use std::collections::BTreeSet;

use pileus_host::sanitize;
use wasmparser::{KnownCustom, Parser, Payload};

/// The size of a page of memory where a module doesn't choose another.
const PAGE: u64 = 64 << 10;

/// The longest text that is kept of a producer, in characters: `clang` has 60.
const LONGEST: usize = 100;

/// What the bytes of a component tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Binary {
    /// The bytes of memory that an instance has from the start, over all its modules.
    pub(super) memory: u64,
    /// The elements of all its tables from the start.
    pub(super) tables: u64,
    /// The tools that made it, sorted.
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
    sanitize(&text.chars().take(LONGEST).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_add_up() {
        let component = wat::parse_str(
            "(component
                (core module (memory 2) (table 7 funcref))
                (core module (memory 3) (table 11 funcref) (table 5 funcref)))",
        );
        let binary = Binary::read(&component.unwrap());
        assert_eq!((binary.memory, binary.tables), (5 * PAGE, 7 + 11 + 5));
    }

    #[test]
    fn the_tools_are_told_once_and_on_one_line() {
        let producers = r#"(@producers (language "Rust" "") (processed-by "rustc" "1.95\n0"))"#;
        let component =
            wat::parse_str(format!("(component (core module {producers}) (core module {producers}))"));
        let binary = Binary::read(&component.unwrap());
        let told: Vec<_> = binary
            .producers
            .iter()
            .map(|it| (it.field.as_str(), it.name.as_str(), it.version.as_str()))
            .collect();
        assert_eq!(told, [("language", "Rust", ""), ("processed-by", "rustc", "1.95 0")]);
    }

    #[test]
    fn what_is_no_component_tells_nothing() {
        for bytes in [&b""[..], b"#!/bin/sh", b"\0asm\x0d\0\x01\0garbage"] {
            assert_eq!(Binary::read(bytes), Binary::default());
        }
    }
}
