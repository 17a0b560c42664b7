//! Reads the events that Pileus records on Nodes and Services.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use pileus_dev::Error;
use tokio::time::{Instant, sleep};

use crate::nodes::SOON;

/// The time between two reads while waiting for an event.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits for an event about an object whose text has this part, and returns its text.
pub(crate) async fn about(client: &Client, name: &str, part: &str) -> Result<String, Error> {
    let begun = Instant::now();
    loop {
        let found = all_about(client, name).await?.into_iter().find(|text| text.contains(part));
        if let Some(found) = found {
            return Ok(found);
        }
        if begun.elapsed() > SOON {
            let object = format!("an event about {name} with {part:?}");
            return Err(Error::Deadline { object, deadline: SOON, seen: "none".to_owned() });
        }
        sleep(PAUSE).await;
    }
}

/// The texts of all events about an object, as `Reason: message`, oldest first.
pub(crate) async fn all_about(client: &Client, name: &str) -> Result<Vec<String>, Error> {
    let events: Api<Event> = Api::all(client.clone());
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let failed = |source| Error::Api { action: format!("events about {name}"), source: Box::new(source) };
    let mut events = events.list(&about).await.map_err(failed)?.items;
    events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    let texts = events.into_iter().filter_map(|event| Some((event.reason?, event.message?)));
    Ok(texts.map(|(reason, message)| format!("{reason}: {message}")).collect())
}
