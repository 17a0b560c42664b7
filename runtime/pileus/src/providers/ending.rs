//! How providers end: what they have begun is awaited, before another of the same name begins, and before the lease is released.

use std::sync::Arc;

use futures::future::BoxFuture;
use pileus_gate::Gate;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leader::LeaseEnd;
use crate::working::DRAIN;

/// These tasks, which begin when the former ones have ended. `ended` is cancelled when all of them have ended.
pub(super) fn in_turn<T: 'static>(
    tasks: impl IntoIterator<Item = BoxFuture<'static, T>>,
    former: Option<&CancellationToken>,
    ended: CancellationToken,
) -> Vec<BoxFuture<'static, T>> {
    let guard = Arc::new(ended.drop_guard());
    let in_turn = tasks.into_iter().map(|task| -> BoxFuture<'static, T> {
        let (former, guard) = (former.cloned(), Arc::clone(&guard));
        Box::pin(async move {
            if let Some(former) = former {
                former.cancelled().await;
            }
            let result = task.await;
            drop(guard);
            result
        })
    });
    in_turn.collect()
}

/// Closes the gates, and waits until the controllers have ended and the cloud has answered. The lease is released only where
/// nothing can be in flight any more.
pub(super) async fn drain(gates: &[Gate], controllers: impl Future<Output = ()>) -> LeaseEnd {
    gates.iter().for_each(Gate::close);
    // The deadline is set before the controllers start to count their own.
    let end = Instant::now() + DRAIN;
    controllers.await;
    let writes = futures::future::join_all(gates.iter().map(Gate::wait_for_writes));
    if tokio::time::timeout_at(end, writes).await.is_err() {
        let unfinished: usize = gates.iter().map(Gate::writes_in_flight).sum();
        tracing::warn!(unfinished, "stopped before the cloud answered all writes");
    }
    // Controllers that took the whole time have given up writes, too.
    if Instant::now() < end { LeaseEnd::Released } else { LeaseEnd::LeftToExpire }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::registry::Registry;

    use super::*;

    fn gate() -> Gate {
        let config = pileus_gate::Config::new("test");
        Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_only_if_all_that_was_begun_has_ended_in_time() {
        for (name, drains_for, end) in [
            ("nothing is under way", Duration::ZERO, LeaseEnd::Released),
            ("it ends in time", Duration::from_secs(24), LeaseEnd::Released),
            ("the controllers give up after their own time", DRAIN, LeaseEnd::LeftToExpire),
        ] {
            let ended = drain(&[gate()], tokio::time::sleep(drains_for)).await;
            assert_eq!(ended, end, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_tasks_of_a_provider_that_was_made_anew_begin_when_the_former_ones_have_ended() {
        let begun = Instant::now();
        let task = |secs| -> BoxFuture<'static, Duration> {
            Box::pin(async move {
                let after = begun.elapsed();
                tokio::time::sleep(Duration::from_secs(secs)).await;
                after
            })
        };
        let [one, two, three] = [(); 3].map(|()| CancellationToken::new());
        let all = [
            in_turn([task(1), task(27)], None, one.clone()),
            in_turn([task(1), task(2)], Some(&one), two.clone()),
            in_turn([task(0)], Some(&two), three.clone()),
        ];
        let begun: Vec<_> = futures::future::join_all(all.into_iter().flatten())
            .await
            .iter()
            .map(Duration::as_secs)
            .collect();
        assert_eq!(begun, [0, 0, 27, 27, 29]);
        assert!(three.is_cancelled());
    }
}
