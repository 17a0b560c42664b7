//! Work on many things at the same time, as all of the SDK's default batches do it.

use std::cell::RefCell;

use futures::StreamExt;
use futures::future::LocalBoxFuture;

use crate::http::IN_FLIGHT;

/// Works on many things at the same time, and tells what came of each in their order. So many are begun as
/// [`http`](crate::http) keeps requests in flight: more would only wait and take memory.
///
/// Once the soft deadline of the call has passed, each request fails with an error that [is the
/// deadline](crate::Error::is_deadline), so that what is left ends at once.
pub async fn side_by_side<I, T>(things: impl IntoIterator<Item = I>, work: impl AsyncFn(I) -> T) -> Vec<T> {
    let came = RefCell::new(Vec::new());
    let one = async |index: usize, thing| {
        let told = work(thing).await;
        if let Some(place) = came.borrow_mut().get_mut(index) {
            *place = Some(told);
        }
    };
    let mut begun = things.into_iter().enumerate().map(|(index, thing)| -> LocalBoxFuture<'_, ()> {
        came.borrow_mut().push(None);
        Box::pin(one(index, thing))
    });
    run(&mut begun).await;
    drop(begun);
    came.into_inner().into_iter().flatten().collect()
}

/// Runs them, so many at a time. The same code for whatever they are, as each kind would take 4 kB of the component.
async fn run(begun: &mut dyn Iterator<Item = LocalBoxFuture<'_, ()>>) {
    futures::stream::iter(begun).buffer_unordered(IN_FLIGHT).collect::<()>().await;
}

/// Makes changes side by side, all removals and then the rest, and tells what came of each in their order: an address or a
/// range that one gives up may be what another wants.
pub async fn removals_first<'a, C, T>(
    changes: &'a [C],
    is_removal: impl Fn(&C) -> bool,
    change: impl AsyncFn(&'a C) -> T,
) -> Vec<T> {
    let (removals, rest): (Vec<_>, Vec<_>) = changes.iter().partition(|change| is_removal(change));
    let mut removed = side_by_side(removals, &change).await.into_iter();
    let mut rest = side_by_side(rest, &change).await.into_iter();
    let told =
        changes.iter().filter_map(|change| if is_removal(change) { removed.next() } else { rest.next() });
    told.collect()
}
