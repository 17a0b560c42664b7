//! What all requests to the API server share: the timeout, and the parameters of patches.

use std::time::Duration;

use kube::api::PatchParams;

use crate::error::Error;

/// The name of the writer in `metadata.managedFields`.
const FIELD_MANAGER: &str = "pileus";

/// How long a request to the API server may take. The server's own limit for such requests is a minute. A request that a
/// broken network has swallowed must not block its object or a writer forever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The parameters of all patches.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Sends a request to the API server, within [`REQUEST_TIMEOUT`]. A write that timed out may have been done all the same. The
/// next write then ends in a conflict, and the object is read again.
///
/// # Errors
/// [`Error::Unavailable`] after the timeout, else what the API server answers.
pub(crate) async fn with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(Error::from),
        Err(_elapsed) => Err(Error::Unavailable(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
    }
}

/// The result of a request, as a metric label.
pub(crate) fn result_label<T>(result: &Result<T, Error>) -> &'static str {
    result.as_ref().map_or_else(Error::as_str, |_| "ok")
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_times_out() {
        let started = Instant::now();
        let error = with_timeout::<()>(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        assert_eq!(started.elapsed(), REQUEST_TIMEOUT);
    }
}
