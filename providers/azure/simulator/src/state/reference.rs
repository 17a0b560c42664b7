//! What a body refers to: other resources and parts of them by their IDs, and addresses of subnets. Pure.

use std::net::IpAddr;

use serde_json::Value;

use crate::id::{Id, Key};
use crate::json::{items, text};

/// A reference from a part of a resource to another resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The ID of the innermost part that refers.
    pub(crate) from: String,
    /// The ID that it refers to, as it is written.
    pub(crate) to: String,
}

/// All references of a body.
pub(crate) fn references(id: &Id, body: &Value) -> Vec<Reference> {
    let mut found = Vec::new();
    walk(body, id.as_str(), &mut found);
    found
}

fn walk(value: &Value, holder: &str, found: &mut Vec<Reference>) {
    match value {
        Value::Object(fields) => {
            if let Some(to) = fields.get("id").and_then(Value::as_str).filter(|to| Id::parse(to).is_some()) {
                found.push(Reference { from: holder.to_owned(), to: to.to_owned() });
                return;
            }
            for (field, value) in fields {
                for element in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
                    match part_name(element) {
                        Some(name) => walk(element, &format!("{holder}/{}/{name}", part_type(field)), found),
                        None => walk(element, holder, found),
                    }
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| walk(element, holder, found)),
        _ => {}
    }
}

/// The name of an element that has an ID of its own.
fn part_name(element: &Value) -> Option<&str> {
    let is_part = element.get("properties").is_some() && element.get("id").is_none();
    element.get("name").and_then(Value::as_str).filter(|_| is_part)
}

/// The segment of the parts of a field: a scale set's configurations are the interfaces of its machines.
fn part_type(field: &str) -> &str {
    if field == "networkInterfaceConfigurations" { "networkInterfaces" } else { field }
}

/// The private addresses of a body, with the keys of their subnets.
pub(super) fn addresses(body: &Value) -> Vec<(Key, IpAddr)> {
    let mut found = Vec::new();
    collect_addresses(body, &mut found);
    found
}

fn collect_addresses(value: &Value, found: &mut Vec<(Key, IpAddr)>) {
    if let (subnet, Ok(address)) = (text(value, "/subnet/id"), text(value, "/privateIPAddress").parse())
        && !subnet.is_empty()
    {
        found.push((Key::of(subnet), address));
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|value| collect_addresses(value, found)),
        Value::Array(elements) => elements.iter().for_each(|value| collect_addresses(value, found)),
        _ => {}
    }
}

/// The element of an array field by the field and its name, without case. The interfaces of a scale set's machine are in its
/// configuration.
pub(crate) fn named<'a>(properties: &'a Value, field: &str, name: &str) -> Option<&'a Value> {
    let elements = if field.eq_ignore_ascii_case("networkInterfaces") {
        items(properties, "/networkProfileConfiguration/networkInterfaceConfigurations")
    } else {
        let fields = properties.as_object()?;
        let (_, elements) = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(field))?;
        elements.as_array()?
    };
    elements.iter().find(|element| text(element, "/name").eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_name_the_part_that_holds_them() {
        let base = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
        let subnet = format!("{base}/virtualNetworks/v/subnets/a");
        let id = Id::parse(&format!("{base}/networkInterfaces/n")).unwrap();
        let body = json!({"properties": {
            "networkSecurityGroup": {"id": format!("{base}/networkSecurityGroups/x")},
            "ipConfigurations": [{"name": "one", "properties": {"subnet": {"id": subnet}, "privateIPAddress": "10.0.0.4"}}],
        }});
        let found = references(&id, &body);
        assert_eq!(found.len(), 2);
        assert!(
            found.contains(&Reference { from: format!("{id}/ipConfigurations/one"), to: subnet.clone() })
        );
        assert_eq!(addresses(&body), [(Key::of(&subnet), "10.0.0.4".parse().unwrap())]);
    }
}
