//! Lists: filters, order and pages. Pure.

use serde::Serialize;

use super::label::{Labels, Selector};
use crate::refusal::Refusal;

/// The number of entries on a page, unless the request says otherwise.
const DEFAULT_PER_PAGE: usize = 25;

/// The most entries on a page.
const MAX_PER_PAGE: usize = 50;

/// An entry of a list.
pub(super) trait Listed {
    /// The parameters that its list accepts besides `page`, `per_page` and `sort`.
    const FILTERS: &'static [&'static str];
    /// The fields by which its list can be sorted.
    const SORTS: &'static [&'static str];

    fn id(&self) -> u64;
    /// Its name, where it has one.
    fn name(&self) -> &str {
        Default::default()
    }
    fn labels(&self) -> Option<&Labels> {
        None
    }
    /// Its status, where the list can be filtered by it.
    fn status(&self) -> &'static str {
        ""
    }
    /// The order of this entry by a field of [`Listed::SORTS`].
    fn order(&self, field: &str) -> (u64, String) {
        match field {
            "name" => (0, self.name().to_owned()),
            // Numbers are counted up, so they are in the order of creation.
            _ => (self.id(), String::new()),
        }
    }
}

/// Which entries a request wants.
#[derive(Debug)]
pub(super) struct Query {
    page: usize,
    per_page: usize,
    name: Option<String>,
    selector: Option<Selector>,
    pub(super) ids: Vec<u64>,
    statuses: Vec<String>,
    /// Fields, and whether the order is descending.
    sorts: Vec<(String, bool)>,
}

/// Where a page is in its list, as the API shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Pagination {
    page: usize,
    per_page: usize,
    previous_page: Option<usize>,
    next_page: Option<usize>,
    last_page: usize,
    total_entries: usize,
}

impl Query {
    /// Parses the parameters of a list of `T`. An unknown parameter is refused, because an ignored filter returns too much.
    pub(super) fn parse<T: Listed>(pairs: &[(String, String)]) -> Result<Self, Refusal> {
        let mut query = Self {
            page: 1,
            per_page: DEFAULT_PER_PAGE,
            name: None,
            selector: None,
            ids: Vec::new(),
            statuses: Vec::new(),
            sorts: Vec::new(),
        };
        for (name, value) in pairs {
            match name.as_str() {
                "page" => query.page = number(name, value, usize::MAX)?,
                "per_page" => query.per_page = number(name, value, MAX_PER_PAGE)?,
                "sort" => query.sorts.push(sort::<T>(value)?),
                other if !T::FILTERS.contains(&other) => {
                    return Err(Refusal::invalid(name, format!("unknown parameter {name}")));
                }
                "name" => query.name = Some(value.clone()),
                "label_selector" => query.selector = Some(Selector::parse(value, name)?),
                "id" => {
                    let id = value.parse().map_err(|_| Refusal::invalid(name, "not a number"))?;
                    query.ids.push(id);
                }
                _ => query.statuses.push(value.clone()),
            }
        }
        Ok(query)
    }

    fn matches<T: Listed>(&self, entry: &T) -> bool {
        self.name.as_ref().is_none_or(|name| name == entry.name())
            && self.selector.as_ref().is_none_or(|it| entry.labels().is_some_and(|labels| it.matches(labels)))
            && (self.ids.is_empty() || self.ids.contains(&entry.id()))
            && (self.statuses.is_empty() || self.statuses.iter().any(|status| status == entry.status()))
    }

    /// The entries of the page.
    pub(super) fn page<'a, T: Listed>(&self, all: impl Iterator<Item = &'a T>) -> (Vec<&'a T>, Pagination) {
        let mut found: Vec<_> = all.filter(|entry| self.matches(*entry)).collect();
        // The sorts are stable, so the first field is sorted by last.
        for (field, is_descending) in self.sorts.iter().rev() {
            found.sort_by(|one, other| {
                let order = one.order(field).cmp(&other.order(field));
                if *is_descending { order.reverse() } else { order }
            });
        }
        let Self { page, per_page, .. } = *self;
        let total_entries = found.len();
        let last_page = total_entries.div_ceil(per_page).max(1);
        let pagination = Pagination {
            page,
            per_page,
            previous_page: (page > 1).then(|| page - 1),
            next_page: (page < last_page).then(|| page + 1),
            last_page,
            total_entries,
        };
        let first = (page - 1).saturating_mul(per_page);
        (found.into_iter().skip(first).take(per_page).collect(), pagination)
    }
}

fn number(name: &str, value: &str, most: usize) -> Result<usize, Refusal> {
    value
        .parse()
        .ok()
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| Refusal::invalid(name, format!("must be a number from 1 to {most}")))
}

fn sort<T: Listed>(value: &str) -> Result<(String, bool), Refusal> {
    let (field, direction) = value.split_once(':').unwrap_or((value, "asc"));
    if !T::SORTS.contains(&field) || !["asc", "desc"].contains(&direction) {
        return Err(Refusal::invalid("sort", format!("can't sort by {value}")));
    }
    Ok((field.to_owned(), direction == "desc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(u64, &'static str, Labels);

    impl Listed for Item {
        const FILTERS: &'static [&'static str] = &["name", "label_selector", "id"];
        const SORTS: &'static [&'static str] = &["id", "name"];

        fn id(&self) -> u64 {
            self.0
        }
        fn name(&self) -> &str {
            self.1
        }
        fn labels(&self) -> Option<&Labels> {
            Some(&self.2)
        }
    }

    fn query(pairs: &[(&str, &str)]) -> Result<Query, Refusal> {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Query::parse::<Item>(&pairs)
    }

    #[test]
    fn pages_have_all_entries_once_and_tell_their_neighbors() {
        let items: Vec<_> = (1..=120).map(|id| Item(id, "x", Labels::new())).collect();
        let table = [
            (&[][..], 25, None, Some(2), 5),
            (&[("per_page", "50")][..], 50, None, Some(2), 3),
            (&[("per_page", "50"), ("page", "3")][..], 20, Some(2), None, 3),
            (&[("per_page", "50"), ("page", "4")][..], 0, Some(3), None, 3),
            (&[("name", "y")][..], 0, None, None, 1),
        ];
        for (pairs, count, previous_page, next_page, last_page) in table {
            let (page, told) = query(pairs).unwrap().page(items.iter());
            assert_eq!(page.len(), count, "{pairs:?}");
            assert_eq!((told.previous_page, told.next_page), (previous_page, next_page), "{pairs:?}");
            assert_eq!(told.last_page, last_page, "{pairs:?}");
        }
    }

    #[test]
    fn filters_and_sorts_combine() {
        let labels = Labels::from([("k".to_owned(), "v".to_owned())]);
        let items = [
            Item(1, "b", labels.clone()),
            Item(2, "a", Labels::new()),
            Item(3, "a", labels),
            Item(4, "c", Labels::new()),
        ];
        let table = [
            (&[][..], vec![1, 2, 3, 4]),
            (&[("sort", "id:desc")][..], vec![4, 3, 2, 1]),
            (&[("sort", "name"), ("sort", "id:desc")][..], vec![3, 2, 1, 4]),
            (&[("label_selector", "k=v")][..], vec![1, 3]),
            (&[("name", "a"), ("label_selector", "!k")][..], vec![2]),
            (&[("id", "4"), ("id", "2"), ("id", "9")][..], vec![2, 4]),
        ];
        for (pairs, expected) in table {
            let (page, _) = query(pairs).unwrap().page(items.iter());
            assert_eq!(page.iter().map(|item| item.0).collect::<Vec<_>>(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        for (name, value) in [
            ("page", "0"),
            ("page", "x"),
            ("per_page", "51"),
            ("per_page", "0"),
            ("sort", "color"),
            ("sort", "id:up"),
            ("id", "x"),
            ("label_selector", "a=b/c"),
            ("label", "a"),
            ("status", "running"),
        ] {
            assert_eq!(query(&[(name, value)]).unwrap_err().field.as_deref(), Some(name), "{name}={value}");
        }
    }
}
