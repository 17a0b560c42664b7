//! A document that many Services or routes share and that is written as a whole, such as a load balancer, a firewall or a
//! DNS zone in some clouds. It is read once, edited for all items of a call, and written once, on the condition that it
//! hasn't changed since it was read.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::request::without_query;
use super::{Response, StatusCode, delete, get, put};
use crate::operation::{self, InProgress};
use crate::{Error, ErrorKind};

/// How often a write is attempted while others keep changing the document. Few do, mostly other calls of this provider,
/// and each attempt lets one of them succeed.
const MAX_ATTEMPTS: usize = 4;

/// How often a call bisects the items of a document that the cloud rejects. One item among a thousand is found in ten
/// steps. If the cloud rejects all halves, because what all items share is wrong, that costs two writes for each step.
const MAX_BISECTIONS: usize = 12;

/// The result of an edit for one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit<O> {
    /// The document needs no change for this item, whose outcome this is.
    Unchanged(Result<O, Error>),
    /// The document was changed for this item. Once it is written, the edit runs again on the cloud's version of it, and
    /// returns the outcome.
    Changed,
}

/// A document of the cloud, as it was read.
///
/// The type `T` reads what the cloud sends and writes what the cloud accepts: it doesn't serialize fields that only the
/// cloud sets. It must hold everything that others may have put into the document, because what it lacks is lost when it
/// is written.
#[derive(Debug)]
pub struct Document<T> {
    /// The content. None if the document doesn't exist.
    pub value: Option<T>,
    /// Whether this call wrote the content.
    pub is_written: bool,
    /// The operation that the write began, if its response says so.
    pub begun: Option<InProgress>,
    url: String,
    etag: Option<String>,
    /// The size of the response that had it, in bytes.
    size: usize,
}

impl<T: DeserializeOwned + Serialize> Document<T> {
    /// Reads the document, past the host's cache.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn read(url: impl Into<String>) -> Result<Self, Error> {
        let url = url.into();
        match get(&*url).no_cache().send().await?.or_absent()? {
            Some(response) => Self::from_response(url, response),
            None => Ok(Self { value: None, is_written: false, begun: None, url, etag: None, size: 0 }),
        }
    }

    /// Edits the document for many items, writes it if that changed something, and returns the outcome of each item, in
    /// their order.
    ///
    /// `edit` is pure and returns the result for each item that it is given. It sets the document's value to create the
    /// document, and takes it away to delete the document. If another client wrote in between (status 412), the edit runs
    /// again on the new content, a few times. If that doesn't succeed, or the write fails, that error is the outcome of
    /// the items that needed a change, and of no others.
    ///
    /// If the cloud rejects the document (`invalid`), usually one item is the cause. So the items are bisected: the
    /// document is written for half of them, and so on until the failing item is alone. The others succeed.
    pub async fn edit<I, O>(
        self,
        items: &[I],
        edit: impl Fn(&mut Self, &[I]) -> Vec<Edit<O>>,
    ) -> Vec<Result<O, Error>> {
        let url = self.url.clone();
        let (mut document, mut parts, mut bisections) = (Some(self), vec![items], 0);
        let mut outcomes = Vec::with_capacity(items.len());
        while let Some(part) = parts.pop() {
            let read = match document.take() {
                Some(document) => Ok(document),
                None => Self::read(&*url).await,
            };
            match read {
                Err(error) => outcomes.extend(part.iter().map(|_| Err(error.clone()))),
                Ok(document) => match document.edit_all(|document| edit(document, part)).await {
                    (edits, error) if bisections < MAX_BISECTIONS && needs_bisection(&edits, &error) => {
                        bisections += 1;
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                    (edits, error) => outcomes.extend(into_outcomes(edits, &error)),
                },
            }
        }
        outcomes
    }

    /// Edits the document for all items of an edit. The error applies to those items whose change isn't written.
    async fn edit_all<O>(mut self, edit: impl Fn(&mut Self) -> Vec<Edit<O>>) -> (Vec<Edit<O>>, Error) {
        for _ in 0..MAX_ATTEMPTS {
            let existed = self.value.is_some();
            let edits = edit(&mut self);
            if edits.iter().all(|edit| matches!(edit, Edit::Unchanged(_))) {
                return (edits, self.contended());
            }
            let url = self.url.clone();
            match self.write(existed).await {
                Ok(Some(mut written)) => {
                    let seen = edit(&mut written).into_iter();
                    let both = edits.into_iter().zip(seen).map(|(edit, seen)| match edit {
                        Edit::Unchanged(_) => edit,
                        Edit::Changed => seen,
                    });
                    return (both.collect(), written.contended());
                }
                Err(error) => return (edits, error),
                Ok(None) => match Self::read(url).await {
                    Ok(fresh) => self = fresh,
                    Err(error) => return (edits, error),
                },
            }
        }
        (edit(&mut self), self.contended())
    }

    /// Writes the current value, and returns the cloud's version of it. None if another client wrote first. The value is
    /// dropped before the request is sent, because a large document fits into the memory of a call only a few times.
    async fn write(mut self, existed: bool) -> Result<Option<Self>, Error> {
        let value = self.value.take();
        let (request, is_put) = match &value {
            Some(value) => (put(&*self.url).json_of_size(value, self.size), true),
            None => (delete(&*self.url), false),
        };
        drop(value);
        let request = match &self.etag {
            Some(etag) => request.header("if-match", etag),
            None if existed => {
                return Err(Error::broken(format!("{} came without an etag", self.subject())));
            }
            None => request.header("if-none-match", "*"),
        };
        let response = request.send().await?;
        if response.status == StatusCode::PRECONDITION_FAILED {
            return Ok(None);
        }
        let response = if is_put { Some(response.error_for_status()?) } else { response.or_absent()? };
        let begun = response.as_ref().and_then(operation::begun);
        // Some clouds respond with an empty body, or with an operation.
        let written = match response.map(|response| Self::from_response(self.url.clone(), response)) {
            Some(Ok(written)) => written,
            Some(Err(_)) | None => Self::read(&*self.url).await?,
        };
        Ok(Some(Self { is_written: true, begun, ..written }))
    }

    fn from_response(url: String, response: Response) -> Result<Self, Error> {
        let from_header = response.header("etag").map(str::to_owned);
        let etag = from_header.or_else(|| serde_json::from_slice::<EtagInBody>(&response.bytes).ok()?.etag);
        let size = response.bytes.len();
        Ok(Self { value: Some(response.json()?), is_written: false, begun: None, url, etag, size })
    }

    /// The document's name in messages.
    pub(crate) fn subject(&self) -> &str {
        without_query(&self.url)
    }

    fn contended(&self) -> Error {
        let message =
            "isn't as it was written: others keep changing it, or the cloud changed what was written";
        Error::conflict(format!("{} {message}", self.subject()))
    }
}

/// Some clouds return the etag in the document instead of a header, for example Azure.
#[derive(Deserialize)]
struct EtagInBody {
    etag: Option<String>,
}

/// Whether the cloud rejected a document that was changed for several items.
fn needs_bisection<O>(edits: &[Edit<O>], error: &Error) -> bool {
    let changed = edits.iter().filter(|edit| matches!(edit, Edit::Changed)).count();
    error.kind == ErrorKind::Invalid && changed > 1
}

/// The outcomes of the items. Those for which the document was changed get the error.
fn into_outcomes<O>(edits: Vec<Edit<O>>, error: &Error) -> impl Iterator<Item = Result<O, Error>> {
    edits.into_iter().map(|edit| match edit {
        Edit::Unchanged(outcome) => outcome,
        Edit::Changed => Err(error.clone()),
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;
    use crate::testing::{Exchange, Host, SentRequest};

    const URL: &str = "http://cloud.test/firewall";

    #[derive(Debug, Deserialize, Serialize)]
    struct Firewall {
        open: Vec<u16>,
        #[serde(default, skip_serializing)]
        busy: bool,
    }

    /// Opens ports, and closes those that are negative. The outcome is whether the firewall is ready. Port 0 is rejected.
    fn open(document: &mut Document<Firewall>, ports: &[i32]) -> Vec<Edit<bool>> {
        let firewall = &mut document.value;
        let is_busy = firewall.as_ref().is_some_and(|firewall| firewall.busy);
        let edits = ports.iter().map(|port| {
            let number = u16::try_from(port.abs()).unwrap();
            let is_open = firewall.iter().any(|firewall| firewall.open.contains(&number));
            if number == 0 {
                return Edit::Unchanged(Err(Error::invalid("port 0")));
            }
            if is_open == (*port > 0) || is_busy {
                return Edit::Unchanged(Ok(!is_busy));
            }
            let now = firewall.get_or_insert(Firewall { open: Vec::new(), busy: false });
            now.open.retain(|it| *it != number);
            now.open.extend((*port > 0).then_some(number));
            Edit::Changed
        });
        let edits = edits.collect();
        firewall.take_if(|firewall| firewall.open.is_empty());
        edits
    }

    fn there(open: &[u16], etag: &str) -> Exchange {
        testing::get(URL).json(json!({"open": open})).header("etag", etag)
    }

    fn written(open: &[u16]) -> Exchange {
        testing::put(URL).json(json!({"open": open})).header("etag", "\"new\"")
    }

    fn run(host: &Host, ports: &[i32]) -> Vec<Result<bool, ErrorKind>> {
        let outcomes = host.run(async { Document::read(URL).await.unwrap().edit(ports, open).await });
        outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind)).collect()
    }

    fn body(sent: &SentRequest) -> Value {
        serde_json::from_slice(&sent.body).unwrap()
    }

    #[test]
    fn all_items_are_one_conditional_write() {
        let host = Host::new().exchange(there(&[1, 2], "\"a\"")).exchange(written(&[1, 3, 4]));
        assert_eq!(run(&host, &[3, 4, -2, 1]), [Ok(true), Ok(true), Ok(true), Ok(true)]);
        let [read, write] = host.requests().try_into().unwrap();
        assert_eq!(read.header("cache-control"), Some("no-cache"));
        assert_eq!((write.header("if-match"), write.header("if-none-match")), (Some("\"a\""), None));
        assert_eq!(body(&write), json!({"open": [1, 3, 4]}));
    }

    #[test]
    fn a_missing_document_is_created_and_an_empty_one_deleted() {
        let host = Host::new().exchange(testing::get(URL).status(404)).exchange(written(&[5]));
        assert_eq!(run(&host, &[5]), [Ok(true)]);
        assert_eq!(host.requests()[1].header("if-none-match"), Some("*"));
        for status in [204, 404] {
            let host = Host::new()
                .exchange(there(&[5], "\"a\""))
                .exchange(testing::delete(URL).status(status))
                .exchange(testing::get(URL).status(404));
            assert_eq!(run(&host, &[-5]), [Ok(true)]);
            assert_eq!(host.requests()[1].header("if-match"), Some("\"a\""));
        }
    }

    #[test]
    fn nothing_is_written_if_nothing_differs() {
        let host = Host::new().exchange(there(&[1], "\"a\""));
        assert_eq!(run(&host, &[1, -2, 0]), [Ok(true), Ok(true), Err(ErrorKind::Invalid)]);
        let host = Host::new().exchange(testing::get(URL).status(404));
        assert_eq!(run(&host, &[-2]), [Ok(true)]);
    }

    #[test]
    fn after_another_clients_write_the_edit_runs_on_the_new_content() {
        let host = Host::new()
            .exchange(there(&[9], "\"a\""))
            .exchange(testing::put(URL).status(412))
            .exchange(there(&[1, 7], "\"b\""))
            .exchange(written(&[1, 7, 2]));
        assert_eq!(run(&host, &[1, 2]), [Ok(true), Ok(true)]);
        let last = &host.requests()[3];
        assert_eq!((last.header("if-match"), body(last)), (Some("\"b\""), json!({"open": [1, 7, 2]})));
    }

    #[test]
    fn contention_is_a_conflict_only_for_items_that_need_a_change() {
        let host = Host::new()
            .exchange(there(&[1], "\"a\"").times(MAX_ATTEMPTS + 1))
            .exchange(testing::put(URL).status(412).times(MAX_ATTEMPTS));
        assert_eq!(
            run(&host, &[1, 2, 0]),
            [Ok(true), Err(ErrorKind::Conflict(None)), Err(ErrorKind::Invalid)]
        );
    }

    #[test]
    fn a_failed_write_is_the_outcome_of_the_items_that_needed_it() {
        let host = Host::new().exchange(there(&[1], "\"a\"")).exchange(testing::put(URL).status(429));
        assert_eq!(run(&host, &[1, 2]), [Ok(true), Err(ErrorKind::Throttled(None))]);
    }

    /// A cloud that rejects documents with one of these ports open.
    fn picky_cloud(refused: fn(i64) -> bool) -> Host {
        let mut there = (json!({"open": [9]}), 0);
        Host::new().cloud(move |sent| {
            if sent.method == "PUT" {
                assert_eq!(sent.header("if-match"), Some(&*there.1.to_string()));
                if body(sent)["open"].as_array().unwrap().iter().any(|port| refused(port.as_i64().unwrap())) {
                    return testing::put(URL).status(400);
                }
                there = (body(sent), there.1 + 1);
            }
            testing::get(URL).json(&there.0).header("etag", &there.1.to_string())
        })
    }

    fn writes(host: &Host) -> usize {
        host.requests().iter().filter(|sent| sent.method == "PUT").count()
    }

    #[test]
    fn an_item_that_the_cloud_rejects_does_not_affect_the_others() {
        let host = picky_cloud(|port| port == 13);
        let outcomes = run(&host, &[1, 2, 3, 13, 5, 6, 7, 9]);
        let expected = [1, 2, 3, 13, 5, 6, 7, 9].map(|port| match port {
            13 => Err(ErrorKind::Invalid),
            _ => Ok(true),
        });
        assert_eq!(outcomes, expected);
        // All; the first four and two of them; the other two, and each of these; the last four.
        assert_eq!(writes(&host), 7);
    }

    #[test]
    fn a_cloud_that_rejects_everything_is_not_asked_for_each_item() {
        let ports: Vec<_> = (100..1_100).collect();
        let host = picky_cloud(|port| port >= 100);
        assert!(run(&host, &ports).iter().all(|outcome| *outcome == Err(ErrorKind::Invalid)));
        assert_eq!(writes(&host), 1 + 2 * MAX_BISECTIONS);
    }

    #[test]
    fn the_clouds_version_of_a_write_decides_the_outcome() {
        let busy = testing::put(URL).json(json!({"open": [2], "busy": true}));
        let host = Host::new().exchange(there(&[1], "\"a\"")).exchange(busy);
        assert_eq!(run(&host, &[2]), [Ok(false)]);
        let ignored = Host::new().exchange(there(&[1], "\"a\"")).exchange(written(&[1]));
        assert_eq!(run(&ignored, &[2]), [Err(ErrorKind::Conflict(None))]);
        for other in [testing::put(URL).status(204), testing::put(URL).json(json!({"operation": 7}))] {
            let host =
                Host::new().exchange(there(&[1], "\"a\"")).exchange(other).exchange(there(&[1, 2], "\"b\""));
            assert_eq!(run(&host, &[2]), [Ok(true)]);
        }
    }

    #[test]
    fn an_etag_is_read_from_the_header_or_else_from_the_document() {
        for (header, expected) in [(None, "W/\"b\""), (Some("\"a\""), "\"a\"")] {
            let there = testing::get(URL).json(json!({"open": [1], "etag": "W/\"b\""}));
            let there = header.into_iter().fold(there, |there, etag| there.header("etag", etag));
            let host = Host::new().exchange(there).exchange(written(&[1, 2]));
            assert_eq!(run(&host, &[2]), [Ok(true)]);
            assert_eq!(host.requests()[1].header("if-match"), Some(expected));
        }
    }

    #[test]
    fn a_document_without_an_etag_is_not_overwritten() {
        let host = Host::new().exchange(testing::get(URL).json(json!({"open": [1]})));
        assert_eq!(run(&host, &[2]), [Err(ErrorKind::Broken)]);
    }

    #[test]
    fn the_edit_after_a_write_sees_its_operation_even_if_its_body_was_empty() {
        let edit = |document: &mut Document<Firewall>, ports: &[i32]| match document.begun.take() {
            Some(begun) => vec![Edit::Unchanged(Ok(begun.resume.unwrap()))],
            None => open(document, ports).into_iter().map(|_| Edit::Changed).collect(),
        };
        let begun = |exchange: Exchange| exchange.header("operation-location", "/7");
        let hosts = [
            Host::new().exchange(there(&[1], "\"a\"")).exchange(begun(written(&[1, 2]))),
            Host::new()
                .exchange(there(&[1], "\"a\"").times(2))
                .exchange(begun(testing::put(URL).status(202))),
        ];
        for host in hosts {
            let outcomes = host.run(async { Document::read(URL).await.unwrap().edit(&[2], edit).await });
            assert_eq!(outcomes, [Ok("/7".to_owned())]);
        }
    }
}
