//! IDs of resources. Azure preserves their case and compares them without it, so the same ID comes in several spellings. They are
//! split into segments, never searched or rewritten as text.

/// An ID below a resource group, split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceId<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) resource_group: &'a str,
    /// As in `Microsoft.Compute`.
    pub(crate) namespace: &'a str,
    /// The types and names below it, from the outer to the inner.
    pub(crate) path: Vec<(&'a str, &'a str)>,
}

impl<'a> ResourceId<'a> {
    /// Splits an ID. None if it isn't of a resource below a resource group.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut segments = text.split('/').filter(|segment| !segment.is_empty());
        let mut expect = |word: &str| segments.next().filter(|segment| segment.eq_ignore_ascii_case(word));
        expect("subscriptions")?;
        let subscription = segments.next()?;
        let mut expect = |word: &str| segments.next().filter(|segment| segment.eq_ignore_ascii_case(word));
        expect("resourceGroups")?;
        let resource_group = segments.next()?;
        let mut expect = |word: &str| segments.next().filter(|segment| segment.eq_ignore_ascii_case(word));
        expect("providers")?;
        let namespace = segments.next()?;
        let mut path = Vec::new();
        while let Some(kind) = segments.next() {
            path.push((kind, segments.next()?));
        }
        (!path.is_empty()).then_some(Self { subscription, resource_group, namespace, path })
    }
}

/// The form in which IDs are compared.
pub(crate) fn key(id: &str) -> String {
    id.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_split_in_any_case() {
        let text = "/SUBSCRIPTIONS/s/resourcegroups/G/Providers/microsoft.compute/virtualMachineScaleSets/a/virtualMachines/0";
        let id = ResourceId::parse(text).unwrap();
        assert_eq!((id.subscription, id.resource_group, id.namespace), ("s", "G", "microsoft.compute"));
        assert_eq!(id.path, [("virtualMachineScaleSets", "a"), ("virtualMachines", "0")]);
        for text in [
            "",
            "vm",
            "/subscriptions/s",
            "/subscriptions/s/resourceGroups/g",
            "/subscriptions/s/resourceGroups/g/providers/p",
            "/subscriptions/s/resourceGroups/g/providers/p/virtualMachines",
            "/resourceGroups/g/subscriptions/s/providers/p/a/b",
        ] {
            assert_eq!(ResourceId::parse(text), None, "{text}");
        }
    }
}
