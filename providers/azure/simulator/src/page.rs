//! The status page at `/`: one file without external resources. It reads `/admin/state` each second.

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
    fn the_page_has_no_external_resources_and_makes_no_markup_of_names() {
        // The only address is the name of a namespace.
        let page = PAGE.replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http://", "https://", "src=", "@import", "url(", "innerHTML"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn the_elements_that_the_script_fills_exist() {
        let ids = PAGE.split("at(\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(id, _)| id);
        let ids: Vec<_> = ids.collect();
        assert!(ids.len() > 4, "{ids:?}");
        for id in ids {
            assert!(PAGE.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }
}
