//! Paths of the resource manager. Names in them are compared without case and kept as they were written first. Pure.

use std::fmt;

/// An ID in lower case: what resources are found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// The key of an ID in any case, with or without a slash at its end.
    pub(crate) fn of(id: &str) -> Self {
        Self(id.trim_end_matches('/').to_lowercase())
    }

    /// The start of all keys that begin with a text. Unlike a key it may end with a slash.
    pub(crate) fn start(prefix: &str) -> Self {
        Self(prefix.to_lowercase())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the ID of a part of `whole`, or of `whole` itself.
    pub(crate) fn is_within(&self, whole: &Self) -> bool {
        self.0.strip_prefix(&whole.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The parts of a path below `/subscriptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) subscription: String,
    /// The resource group; `None` where the path has none.
    pub(crate) group: Option<String>,
    /// The namespace of the resource provider, such as `Microsoft.Network`.
    pub(crate) namespace: Option<String>,
    /// Types and names in turn, such as `virtualNetworks`, `one`, `subnets`. The last name is missing in the path of a list.
    pub(crate) segments: Vec<String>,
}

impl Path {
    /// Parses a path. `None` where it doesn't begin as one of the resource manager does.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_end_matches('/').split('/').skip(1).map(str::to_owned).peekable();
        let mut is_next = |name: &str| parts.next_if(|part| part.eq_ignore_ascii_case(name)).is_some();
        if !is_next("subscriptions") {
            return None;
        }
        let mut parsed = Self { subscription: parts.next()?, ..Self::default() };
        let mut is_next = |name: &str| parts.next_if(|part| part.eq_ignore_ascii_case(name)).is_some();
        if is_next("resourceGroups") {
            // A list of resource groups has an empty name.
            parsed.group = Some(parts.next().unwrap_or_default());
        }
        let mut is_next = |name: &str| parts.next_if(|part| part.eq_ignore_ascii_case(name)).is_some();
        if is_next("providers") {
            parsed.namespace = Some(parts.next()?);
        }
        parsed.segments = parts.collect();
        Some(parsed)
    }

    /// The types of the path, in lower case, such as `virtualnetworks/subnets`.
    pub(crate) fn types(&self) -> String {
        let types: Vec<_> = self.segments.iter().step_by(2).map(|part| part.to_lowercase()).collect();
        types.join("/")
    }

    /// Whether it ends in a type: the path of a list.
    pub(crate) fn is_list(&self) -> bool {
        self.segments.len() % 2 == 1
    }

    /// The same path with at most so many segments: 2 are those of the outermost resource.
    pub(crate) fn first(&self, segments: usize) -> Self {
        Self { segments: self.segments.iter().take(segments).cloned().collect(), ..self.clone() }
    }

    pub(crate) fn group(&self) -> &str {
        self.group.as_deref().unwrap_or_default()
    }
}

/// Whether a path is one of a list of resources.
pub(crate) fn is_list(path: &str) -> bool {
    Path::parse(path).is_some_and(|path| path.is_list() && path.namespace.is_some())
}

/// The ID of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    text: String,
    path: Path,
}

impl Id {
    /// Parses an ID. `None` where it is not one of a resource of a provider.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let path = Path::parse(text)?;
        let is_resource = path.group.as_ref().is_some_and(|group| !group.is_empty())
            && path.namespace.is_some()
            && !path.segments.is_empty()
            && !path.is_list();
        is_resource.then(|| Self { text: text.trim_end_matches('/').to_owned(), path })
    }

    pub(crate) fn key(&self) -> Key {
        Key::of(&self.text)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn group(&self) -> &str {
        self.path.group()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.segments.last().map_or("", String::as_str)
    }

    /// The ID of the resource that holds this one; `None` for a resource of a resource group.
    pub(crate) fn parent(&self) -> Option<Self> {
        if self.path.segments.len() <= 2 {
            return None;
        }
        let parent = self.text.rsplitn(3, '/').nth(2)?;
        Self::parse(parent)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_in_any_case() {
        let table = [
            ("/subscriptions/s", ("s", None, None, "")),
            ("/subscriptions/s/resourcegroups", ("s", Some(""), None, "")),
            ("/subscriptions/s/RESOURCEGROUPS/Rg/", ("s", Some("Rg"), None, "")),
            ("/subscriptions/s/providers/Microsoft.Compute", ("s", None, Some("Microsoft.Compute"), "")),
            (
                "/Subscriptions/s/resourceGroups/g/Providers/microsoft.network/virtualNetworks/v/Subnets",
                ("s", Some("g"), Some("microsoft.network"), "virtualnetworks/subnets"),
            ),
        ];
        for (text, (subscription, group, namespace, types)) in table {
            let path = Path::parse(text).unwrap();
            assert_eq!(path.subscription, subscription, "{text}");
            assert_eq!((path.group.as_deref(), path.namespace.as_deref()), (group, namespace), "{text}");
            assert_eq!(path.types(), types, "{text}");
        }
        assert_eq!(Path::parse("/metadata/instance"), None);
    }

    #[test]
    fn an_id_knows_its_parent_and_its_parts() {
        let subnet =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/One";
        let subnet = Id::parse(subnet).unwrap();
        let network = subnet.parent().unwrap();
        assert_eq!((subnet.name(), network.name(), network.parent()), ("One", "v", None));
        assert!(subnet.key().is_within(&network.key()));
        assert!(!Key::of(&format!("{network}2")).is_within(&network.key()));
        assert_eq!(Id::parse("/subscriptions/s/resourceGroups/g"), None);
    }
}
