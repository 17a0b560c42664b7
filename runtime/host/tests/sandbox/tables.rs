//! A guest that grows tables. Rust can't be made to do that, so its module is written by hand.

use pileus_cloud::Purpose;
use pileus_host::{Component, Description, Fault, Guest, Limits, ServiceFacts};
use pileus_loader::Verified;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::fixture::{engine, gate, metrics, node};

/// A component whose lookup grows each of two tables by this many elements, and then traps. It ignores its arguments.
fn grows_two_tables_by(elements: u32) -> Vec<u8> {
    let module = format!(
        r#"(module
             (memory (export "memory") 1)
             (table $a 1 funcref)
             (table $b 1 funcref)
             (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
             (func (export "pileus:provider/info@0.2.0#describe") (result i32) unreachable)
             (func (export "pileus:provider/info@0.2.0#configure") (param i32 i32) (result i32) unreachable)
             (func (export "pileus:provider/instances@0.2.0#lookup") (param i32 i32 i32) (result i32)
               (drop (table.grow $a (ref.null func) (i32.const {elements})))
               (drop (table.grow $b (ref.null func) (i32.const {elements})))
               unreachable))"#
    );
    let mut module = wat::parse_str(module).unwrap();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit")).unwrap();
    let world = resolve.select_world(&[package], Some("provides-instances")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

async fn fault(elements: u32) -> Fault {
    let engine = engine();
    let component = Component::load(&engine, Verified::from_operator(grows_two_tables_by(elements), "test"))
        .await
        .unwrap();
    let description = Description {
        name: "tables".to_owned(),
        version: "1".to_owned(),
        provider_id_schemes: Vec::new(),
        configuration_schema: serde_json::Value::Null,
        service_annotations: Vec::new(),
        service_facts: ServiceFacts::default(),
        node_labels: Vec::new(),
        call_shapes: Vec::new(),
    };
    let guest = Guest::new(component, "tables", description, "{}", gate(Vec::new()), &metrics());
    guest.lookup_once(Purpose::Initialise, &[node("a")]).await.unwrap_err()
}

#[tokio::test]
async fn row_18_the_tables_of_a_call_are_counted_together() {
    let limit = Limits::default().table_elements;
    assert!(matches!(fault(10_000).await, Fault::Trapped { .. }), "growth within the limit succeeds");
    for (each, wanted) in [(40_000, 80_002), (u32::MAX, u32::MAX as usize + 2), (60_000, 60_002)] {
        assert_eq!(fault(each).await, Fault::Table { wanted, limit }, "{each} for each table");
    }
}
