//! The status page at `/`: one file without external resources, so that a demo needs no internet. It reads `/admin/state` each
//! second.

use axum::response::Html;

/// The page.
pub const PAGE: &str = include_str!("page.html");

pub(crate) async fn show() -> Html<&'static str> {
    Html(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_external_resources() {
        for foreign in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn the_elements_that_the_script_fills_exist() {
        let ids =
            PAGE.split("at(\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(id, _)| id.to_owned());
        let lists = PAGE.split("showList(\"").skip(1).filter_map(|rest| rest.split_once('"'));
        let lists = lists.flat_map(|(id, _)| [id.to_owned(), format!("{id}Shown")]);
        let ids: Vec<_> = ids.chain(lists).collect();
        assert!(ids.len() > 20, "{ids:?}");
        for id in ids {
            assert!(PAGE.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }

    #[test]
    fn names_never_become_markup() {
        assert!(!PAGE.contains("innerHTML"));
    }
}
