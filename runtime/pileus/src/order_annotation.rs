//! The operator's order as an annotation of its CloudProvider. Pure.

use std::collections::BTreeMap;

use pileus_host::swap::{Order, OrderKind};
use pileus_loader::Digest;

/// The annotation with the operator's last order, as in `7 rollback`, or `8 swap sha256:…` with the component whose differences
/// the operator accepts.
pub(crate) const ORDER: &str = "pileus.dev/order";

/// The words of the orders.
const WORDS: [(OrderKind, &str); 4] = [
    (OrderKind::Pause, "pause"),
    (OrderKind::Resume, "resume"),
    (OrderKind::Rollback, "rollback"),
    (OrderKind::SwapNow, "swap"),
];

/// The order among these annotations.
pub(crate) fn given(annotations: &BTreeMap<String, String>) -> Option<Order> {
    annotations.get(ORDER).and_then(|text| read(text))
}

/// Reads an order: its number, what to do, and the component that was seen.
fn read(text: &str) -> Option<Order> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let word = words.next()?;
    let (kind, _) = WORDS.into_iter().find(|(_, known)| *known == word)?;
    let seen: Option<Digest> = words.next().map(str::parse).transpose().ok()?;
    words.next().is_none().then_some(Order { number, kind, seen })
}

/// Writes an order.
pub(crate) fn write(order: Order) -> String {
    let Order { number, kind, seen } = order;
    let word = WORDS.into_iter().find(|(known, _)| *known == kind).map_or("", |(_, word)| word);
    match seen {
        Some(seen) => format!("{number} {word} {seen}"),
        None => format!("{number} {word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_number_a_word_and_what_was_seen() {
        for (kind, _) in WORDS {
            for seen in [None, Some(Digest::of(b"a component"))] {
                let order = Order { number: 12, kind, seen };
                assert_eq!(read(&write(order)), Some(order));
            }
        }
        assert_eq!(write(Order { number: 7, kind: OrderKind::Rollback, seen: None }), "7 rollback");
        for wrong in
            ["", "rollback", "x rollback", "1 delete", "-1 swap", "1 swap sha256:1", "1 swap now please"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
