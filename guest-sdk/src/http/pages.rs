//! Reads paged lists. Clouds differ only in how a page names the next one.

use super::request::without_query;
use super::{Request, Response};
use crate::Error;

/// Reads a list page by page, and returns the items and how the list ended. The list is complete only if it ended without
/// an error.
///
/// `first` is the request for the first page, and `send` sends each request. `split` splits a successful response into its
/// items and the request for the next page, if there is one.
pub async fn read_pages<T>(
    first: Request,
    send: impl AsyncFn(Request) -> Result<Response, Error>,
    split: impl Fn(Response) -> Result<(Vec<T>, Option<Request>), Error>,
) -> (Vec<T>, Result<(), Error>) {
    let (mut all, mut next) = (Vec::new(), Some(first));
    while let Some(request) = next {
        let url = request.url.clone();
        match send(request.page_turn()).await.and_then(Response::error_for_status).and_then(&split) {
            Ok((items, following)) => {
                all.extend(items);
                // Such a page would be read again and again until the deadline, and fill the memory of the call.
                if following.as_ref().is_some_and(|following| following.url == url) {
                    let message = format!("a page of {} names itself as the next", without_query(&url));
                    return (all, Err(Error::broken(message)));
                }
                next = following;
            }
            Err(error) => return (all, Err(error)),
        }
    }
    (all, Ok(()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::http::slots::MAX_PAGE_BYTES;
    use crate::testing::{Host, get};
    use crate::{ErrorKind, http};

    const URL: &str = "http://cloud.test/machines";

    fn list(host: &Host) -> (Vec<i64>, Result<(), ErrorKind>) {
        let split = |page: Response| {
            let page: Value = page.json()?;
            let items = page["items"].as_array().unwrap().iter().map(|item| item.as_i64().unwrap()).collect();
            Ok((items, page["next"].as_str().map(http::get)))
        };
        let (items, end) = host.run(read_pages(http::get(URL), Request::send, split));
        (items, end.map_err(|error| error.kind))
    }

    #[test]
    fn all_pages_make_one_list_and_an_error_comes_with_the_items_before_it() {
        let first = get(URL).json(json!({"items": [1, 2], "next": "http://cloud.test/more"}));
        let more = get("http://cloud.test/more");
        let host = Host::new().exchange(first.clone()).exchange(more.clone().json(json!({"items": [3]})));
        assert_eq!(list(&host), (vec![1, 2, 3], Ok(())));
        let host = Host::new().exchange(first).exchange(more.status(429));
        assert_eq!(list(&host), (vec![1, 2], Err(ErrorKind::Throttled(None))));
        let again =
            get("http://cloud.test/more").json(json!({"items": [3], "next": "http://cloud.test/more"}));
        let host =
            Host::new().exchange(get(URL).json(json!({"items": [], "next": "http://cloud.test/more"})));
        assert_eq!(
            list(&host.exchange(again)),
            (vec![3], Err(ErrorKind::Broken)),
            "a page that names itself"
        );
    }

    #[test]
    fn pages_of_many_lists_take_turns_by_their_size() {
        const SIZE: usize = 5 << 20;
        let host = Host::new().exchange(get(URL).body(vec![b' '; SIZE]).times(10));
        let split = |page: Response| Ok((vec![page.bytes.len()], None));
        let lists = (0..10).map(|_| read_pages(http::get(URL), Request::send, split));
        let lists = host.run(futures::future::join_all(lists));
        assert!(lists.iter().all(|list| *list == (vec![SIZE], Ok(()))));
        assert_eq!(host.max_in_flight(), 10);
        let most = host.max_bytes_in_flight();
        assert!((3 * SIZE..=MAX_PAGE_BYTES).contains(&most), "{most}");
    }
}
