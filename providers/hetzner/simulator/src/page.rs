//! The status page at `/`: one file without external resources. It reads `/admin/state` each second.

use axum::response::Html;

/// The page.
pub const PAGE: &str = include_str!("page.html");

pub(crate) async fn show() -> Html<&'static str> {
    Html(PAGE)
}
