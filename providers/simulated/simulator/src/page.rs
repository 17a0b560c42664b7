//! The page for people at `/`: one file without anything from elsewhere, so that a demo needs no internet. It reads
//! `/admin/state` each second.

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
    fn the_page_needs_nothing_from_elsewhere() {
        for foreign in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn names_from_outside_never_become_markup() {
        assert!(!PAGE.contains("innerHTML"));
    }
}
