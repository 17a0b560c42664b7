//! Operations that take time. Azure names one in a header; its address tells the status and, if it failed, the reason.

use std::time::Duration;

use pileus_guest::Error;
use pileus_guest::http::{self, StatusCode};
use pileus_guest::operation::Status;
use serde::Deserialize;

/// When to ask again if Azure doesn't say.
const INTERVAL: Duration = Duration::from_secs(5);

/// What an operation's address answers.
#[derive(Deserialize)]
struct Operation {
    #[serde(default)]
    status: String,
    error: Option<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Polls an operation by its address, of either kind. One that Azure has forgotten has ended: the resource shows the result.
pub(crate) async fn poll(url: &str) -> Result<Status, Error> {
    let response = http::get(url).send().await?;
    let is_forgotten = matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE);
    let after = response.header("retry-after").and_then(|text| text.trim().parse().ok());
    let running = || Status::running_with(after.map_or(INTERVAL, Duration::from_secs), url);
    if is_forgotten || response.status == StatusCode::NO_CONTENT {
        return Ok(Status::Succeeded);
    }
    let response = response.error_for_status()?;
    let is_accepted = response.status == StatusCode::ACCEPTED;
    // The address of the kind `Location` answers with the resource, or with nothing.
    let Ok(Operation { status, error }) = serde_json::from_slice(&response.bytes) else {
        return Ok(if is_accepted { running() } else { Status::Succeeded });
    };
    Ok(match &*status.to_ascii_lowercase() {
        "" if is_accepted => running(),
        "" | "succeeded" => Status::Succeeded,
        "failed" | "canceled" | "cancelled" => Status::failed(Some(&reason(&status, error))),
        _ => running(),
    })
}

fn reason(status: &str, error: Option<Reason>) -> String {
    match error {
        Some(Reason { code, message }) => format!("{status}: {code}: {message}"),
        None => status.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pileus_guest::testing::{Host, get};
    use serde_json::{Value, json};

    use super::*;

    /// Section 5.3: both kinds of operation, statuses without regard to case, others mean that it still runs.
    #[test]
    fn an_operation_runs_until_it_says_otherwise() {
        let url = "https://management.azure.com/subscriptions/s/providers/Microsoft.Network/locations/l/operations/1";
        let running = |seconds| Ok(Status::running_with(Duration::from_secs(seconds), url));
        let failed = |reason: &str| Ok(Status::failed(Some(reason)));
        let why = json!({"code": "Code", "message": "why"});
        let rows = [
            (200, json!({"status": "InProgress"}), None, running(5)),
            (200, json!({"status": "InProgress"}), Some("10"), running(10)),
            (200, json!({"status": "updating"}), Some("x"), running(5)),
            (200, json!({"status": "succeeded"}), None, Ok(Status::Succeeded)),
            (200, json!({"status": "Failed", "error": why}), None, failed("Failed: Code: why")),
            (200, json!({"status": "Canceled"}), None, failed("Canceled")),
            (202, Value::Null, Some("3"), running(3)),
            (202, json!({}), None, running(5)),
            (200, Value::Null, None, Ok(Status::Succeeded)),
            (200, json!({"id": "/subscriptions/s"}), None, Ok(Status::Succeeded)),
            (204, Value::Null, None, Ok(Status::Succeeded)),
            (404, Value::Null, None, Ok(Status::Succeeded)),
        ];
        for (status, body, after, expected) in rows {
            let answer = get(url).status(status);
            let answer = if body.is_null() { answer } else { answer.json(&body) };
            let answer = after.into_iter().fold(answer, |answer, after| answer.header("retry-after", after));
            assert_eq!(Host::new().exchange(answer).run(poll(url)), expected, "{status} {body}");
        }
    }
}
