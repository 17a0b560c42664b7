//! Concurrent work on many items, as all default batches of the SDK do it.

use std::cell::RefCell;

use futures::StreamExt;
use futures::future::LocalBoxFuture;

use crate::http::MAX_IN_FLIGHT;

/// Works on many items concurrently, and returns the results in the order of the items. It begins at most as many at a
/// time as [`http`](crate::http) keeps requests in flight: more would only wait and use memory.
///
/// Once the soft deadline of the call has passed, each request fails with an error that
/// [says so](crate::Error::is_past_deadline). So the remaining items end at once.
pub async fn map_concurrently<I, T>(
    items: impl IntoIterator<Item = I>,
    work: impl AsyncFn(I) -> T,
) -> Vec<T> {
    let results = RefCell::new(Vec::new());
    let run_one = async |index: usize, item| {
        let result = work(item).await;
        if let Some(place) = results.borrow_mut().get_mut(index) {
            *place = Some(result);
        }
    };
    let mut futures = items.into_iter().enumerate().map(|(index, item)| -> LocalBoxFuture<'_, ()> {
        results.borrow_mut().push(None);
        Box::pin(run_one(index, item))
    });
    run_all(&mut futures).await;
    drop(futures);
    results.into_inner().into_iter().flatten().collect()
}

/// Runs boxed futures. Not generic, because each instance of the code would add 4 kB to the component.
async fn run_all(futures: &mut dyn Iterator<Item = LocalBoxFuture<'_, ()>>) {
    futures::stream::iter(futures).buffer_unordered(MAX_IN_FLIGHT).collect::<()>().await;
}

/// Makes changes concurrently, all removals first, and returns the results in the order of the changes. Removals come
/// first because a change may need the address or range that another one frees.
pub async fn map_removals_first<'a, C, T>(
    changes: &'a [C],
    is_removal: impl Fn(&C) -> bool,
    change: impl AsyncFn(&'a C) -> T,
) -> Vec<T> {
    let (removals, rest): (Vec<_>, Vec<_>) = changes.iter().partition(|change| is_removal(change));
    let mut removed = map_concurrently(removals, &change).await.into_iter();
    let mut changed = map_concurrently(rest, &change).await.into_iter();
    let in_order =
        changes.iter().filter_map(|change| if is_removal(change) { removed.next() } else { changed.next() });
    in_order.collect()
}
