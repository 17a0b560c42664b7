//! A document that many share, and that is written as a whole: what a cloud has where its load balancers, firewalls or
//! zones are one object each. It is read once, edited for all items of a call, and written once, on the condition that it
//! is still what was read.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{HeaderMap, Response, StatusCode, delete, get, put, without_query};
use crate::{Error, ErrorKind};

/// How often a document is written that others keep changing in between. They are few, calls of this provider mostly, and
/// each time one of them gets through.
const TRIES: usize = 4;

/// How often a call halves what the cloud won't take: one item among a thousand is found in ten. Where no half is taken, as
/// what all items share is wrong, that is two writes each and no more.
const HALVINGS: usize = 12;

/// What an edit came to for one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit<O> {
    /// The document is left as it is for this item, whose outcome this is.
    Kept(Result<O, Error>),
    /// The document was changed for it. Once it is written, the edit is run again on what the cloud made of it, and tells
    /// the outcome.
    Changed,
}

/// A document of the cloud, as it was read.
///
/// Its type reads what the cloud says and writes what it takes: fields that the cloud alone decides are not serialised. It
/// holds everything that others may have put into it, since what it lacks is lost when it is written.
#[derive(Debug)]
pub struct Document<T> {
    /// What it says; none where it isn't there.
    pub value: Option<T>,
    /// The headers of the answer to the write that made it so, in which a cloud may name the operation that it has begun
    /// ([`operation::begun`](crate::operation::begun)). Empty where it was only read.
    pub written: HeaderMap,
    url: String,
    etag: Option<String>,
}

impl<T: DeserializeOwned + Serialize> Document<T> {
    /// Reads it, past the host's cache.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn read(url: impl Into<String>) -> Result<Self, Error> {
        let url = url.into();
        match get(&*url).no_cache().send().await?.or_absent()? {
            Some(response) => Self::of(url, response),
            None => Ok(Self { value: None, written: HeaderMap::new(), url, etag: None }),
        }
    }

    /// Edits it for many items, writes it where that changed something, and tells what became of each item, in their order.
    ///
    /// `edit` is pure and tells what it did for each item that it is given. It makes the document's value or takes it away to
    /// have it created or deleted. Where somebody else wrote in between (status 412), it is run again on what is there then, a
    /// few times. Where that doesn't end, or the write fails, that is the outcome of the items that it would have changed
    /// something for, and of no other.
    ///
    /// A document that the cloud won't take (`invalid`) is most often one item's fault: it is written again for half of the
    /// items, and so on until that one stands alone, and costs the others nothing.
    pub async fn edit<I, O>(
        self,
        items: &[I],
        edit: impl Fn(&mut Self, &[I]) -> Vec<Edit<O>>,
    ) -> Vec<Result<O, Error>> {
        let url = self.url.clone();
        let (mut document, mut parts, mut halvings) = (Some(self), vec![items], 0);
        let mut outcomes = Vec::with_capacity(items.len());
        while let Some(part) = parts.pop() {
            let read = match document.take() {
                Some(document) => Ok(document),
                None => Self::read(&*url).await,
            };
            match read {
                Err(error) => outcomes.extend(part.iter().map(|_| Err(error.clone()))),
                Ok(document) => match document.attempt(|document| edit(document, part)).await {
                    (edits, error) if halvings < HALVINGS && is_one_of_many(&edits, &error) => {
                        halvings += 1;
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                    (edits, error) => outcomes.extend(told(edits, &error)),
                },
            }
        }
        outcomes
    }

    /// Edits it for all that an edit is about. What it was changed for and isn't written has this error.
    async fn attempt<O>(mut self, edit: impl Fn(&mut Self) -> Vec<Edit<O>>) -> (Vec<Edit<O>>, Error) {
        for _ in 0..TRIES {
            let was_there = self.value.is_some();
            let edits = edit(&mut self);
            if edits.iter().all(|edit| matches!(edit, Edit::Kept(_))) {
                return (edits, self.contended());
            }
            match self.write(was_there).await {
                Ok(Some(mut written)) => {
                    let seen = edit(&mut written).into_iter();
                    let both = edits.into_iter().zip(seen).map(|(edit, seen)| match edit {
                        Edit::Kept(_) => edit,
                        Edit::Changed => seen,
                    });
                    return (both.collect(), written.contended());
                }
                Err(error) => return (edits, error),
                Ok(None) => match Self::read(&*self.url).await {
                    Ok(fresh) => self = fresh,
                    Err(error) => return (edits, error),
                },
            }
        }
        (edit(&mut self), self.contended())
    }

    /// Writes what it says now, and reads what the cloud made of it; none where somebody else was faster.
    async fn write(&self, was_there: bool) -> Result<Option<Self>, Error> {
        let request = match &self.value {
            Some(value) => put(&*self.url).json(value),
            None => delete(&*self.url),
        };
        let request = match &self.etag {
            Some(etag) => request.header("if-match", etag),
            None if was_there => {
                return Err(Error::broken(format!("{} came without an etag", self.subject())));
            }
            None => request.header("if-none-match", "*"),
        };
        let response = request.send().await?;
        if response.status == StatusCode::PRECONDITION_FAILED {
            return Ok(None);
        }
        let answer = match &self.value {
            Some(_) => Some(response.error_for_status()?),
            None => response.or_absent()?,
        };
        let headers = answer.as_ref().map(|answer| answer.headers.clone()).unwrap_or_default();
        // Some clouds answer with nothing, or with an operation.
        let written = match answer.map(|answer| Self::of(self.url.clone(), answer)) {
            Some(Ok(written)) => written,
            Some(Err(_)) | None => Self::read(&*self.url).await?,
        };
        Ok(Some(Self { written: headers, ..written }))
    }

    fn of(url: String, response: Response) -> Result<Self, Error> {
        let said = response.header("etag").map(str::to_owned);
        let etag = said.or_else(|| serde_json::from_slice::<Tagged>(&response.bytes).ok()?.etag);
        Ok(Self { value: Some(response.json()?), written: HeaderMap::new(), url, etag })
    }

    /// What messages call it.
    pub(crate) fn subject(&self) -> &str {
        without_query(&self.url)
    }

    fn contended(&self) -> Error {
        let message =
            "isn't as it was written: others keep changing it, or the cloud made something else of it";
        Error::conflict(format!("{} {message}", self.subject()))
    }
}

/// What many clouds say of a document in itself rather than in a header, Azure for one.
#[derive(Deserialize)]
struct Tagged {
    etag: Option<String>,
}

/// Whether the cloud won't take the document, which was changed for several items.
fn is_one_of_many<O>(edits: &[Edit<O>], error: &Error) -> bool {
    let changed = edits.iter().filter(|edit| matches!(edit, Edit::Changed)).count();
    error.kind == ErrorKind::Invalid && changed > 1
}

/// The outcomes of items, this error for those that the document was changed for.
fn told<O>(edits: Vec<Edit<O>>, error: &Error) -> impl Iterator<Item = Result<O, Error>> {
    edits.into_iter().map(|edit| match edit {
        Edit::Kept(outcome) => outcome,
        Edit::Changed => Err(error.clone()),
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;
    use crate::testing::{Exchange, Host, Sent};

    const URL: &str = "http://cloud.test/firewall";

    #[derive(Debug, Deserialize, Serialize)]
    struct Firewall {
        open: Vec<u16>,
        #[serde(default, skip_serializing)]
        busy: bool,
    }

    /// Opens ports, and closes those that are negative; tells whether it is so yet. Port 0 is never opened.
    fn open(document: &mut Document<Firewall>, ports: &[i32]) -> Vec<Edit<bool>> {
        let firewall = &mut document.value;
        let is_busy = firewall.as_ref().is_some_and(|firewall| firewall.busy);
        let edits = ports.iter().map(|port| {
            let number = u16::try_from(port.abs()).unwrap();
            let is_open = firewall.iter().any(|firewall| firewall.open.contains(&number));
            if number == 0 {
                return Edit::Kept(Err(Error::invalid("port 0")));
            }
            if is_open == (*port > 0) || is_busy {
                return Edit::Kept(Ok(!is_busy));
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

    fn body(sent: &Sent) -> Value {
        serde_json::from_slice(&sent.body).unwrap()
    }

    #[test]
    fn all_items_are_one_write_on_the_condition_that_it_is_still_what_was_read() {
        let host = Host::new().exchange(there(&[1, 2], "\"a\"")).exchange(written(&[1, 3, 4]));
        assert_eq!(run(&host, &[3, 4, -2, 1]), [Ok(true), Ok(true), Ok(true), Ok(true)]);
        let [read, write] = host.requests().try_into().unwrap();
        assert_eq!(read.header("cache-control"), Some("no-cache"));
        assert_eq!((write.header("if-match"), write.header("if-none-match")), (Some("\"a\""), None));
        assert_eq!(body(&write), json!({"open": [1, 3, 4]}));
    }

    #[test]
    fn what_isnt_there_is_created_if_it_still_isnt_and_deleted_when_it_is_empty() {
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
    fn nothing_is_written_where_nothing_differs() {
        let host = Host::new().exchange(there(&[1], "\"a\""));
        assert_eq!(run(&host, &[1, -2, 0]), [Ok(true), Ok(true), Err(ErrorKind::Invalid)]);
        let host = Host::new().exchange(testing::get(URL).status(404));
        assert_eq!(run(&host, &[-2]), [Ok(true)]);
    }

    #[test]
    fn where_somebody_else_was_faster_the_edit_is_made_to_what_they_wrote() {
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
    fn a_storm_of_others_is_a_conflict_for_those_that_want_a_change_alone() {
        let host = Host::new()
            .exchange(there(&[1], "\"a\"").times(TRIES + 1))
            .exchange(testing::put(URL).status(412).times(TRIES));
        assert_eq!(run(&host, &[1, 2, 0]), [Ok(true), Err(ErrorKind::Conflict), Err(ErrorKind::Invalid)]);
    }

    #[test]
    fn a_write_that_fails_is_told_to_those_that_wanted_it() {
        let host = Host::new().exchange(there(&[1], "\"a\"")).exchange(testing::put(URL).status(429));
        assert_eq!(run(&host, &[1, 2]), [Ok(true), Err(ErrorKind::Throttled(None))]);
    }

    /// A cloud that takes no document with one of these ports open.
    fn picky(refused: fn(i64) -> bool) -> Host {
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
    fn what_the_cloud_will_not_take_for_one_item_costs_the_others_nothing() {
        let host = picky(|port| port == 13);
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
    fn a_cloud_that_takes_nothing_is_not_asked_for_each_item() {
        let ports: Vec<_> = (100..1_100).collect();
        let host = picky(|port| port >= 100);
        assert!(run(&host, &ports).iter().all(|outcome| *outcome == Err(ErrorKind::Invalid)));
        assert_eq!(writes(&host), 1 + 2 * HALVINGS);
    }

    #[test]
    fn what_the_cloud_makes_of_a_write_tells_the_outcome() {
        let busy = testing::put(URL).json(json!({"open": [2], "busy": true}));
        let host = Host::new().exchange(there(&[1], "\"a\"")).exchange(busy);
        assert_eq!(run(&host, &[2]), [Ok(false)]);
        let ignored = Host::new().exchange(there(&[1], "\"a\"")).exchange(written(&[1]));
        assert_eq!(run(&ignored, &[2]), [Err(ErrorKind::Conflict)]);
        for other in [testing::put(URL).status(204), testing::put(URL).json(json!({"operation": 7}))] {
            let host =
                Host::new().exchange(there(&[1], "\"a\"")).exchange(other).exchange(there(&[1, 2], "\"b\""));
            assert_eq!(run(&host, &[2]), [Ok(true)]);
        }
    }

    #[test]
    fn an_etag_is_taken_from_the_header_or_else_from_the_document() {
        for (header, expected) in [(None, "W/\"b\""), (Some("\"a\""), "\"a\"")] {
            let there = testing::get(URL).json(json!({"open": [1], "etag": "W/\"b\""}));
            let there = header.into_iter().fold(there, |there, etag| there.header("etag", etag));
            let host = Host::new().exchange(there).exchange(written(&[1, 2]));
            assert_eq!(run(&host, &[2]), [Ok(true)]);
            assert_eq!(host.requests()[1].header("if-match"), Some(expected));
        }
    }

    #[test]
    fn a_document_without_an_etag_is_not_written_over() {
        let host = Host::new().exchange(testing::get(URL).json(json!({"open": [1]})));
        assert_eq!(run(&host, &[2]), [Err(ErrorKind::Broken)]);
    }

    #[test]
    fn the_headers_of_the_write_are_there_when_the_outcome_is_told_also_where_its_body_says_nothing() {
        let edit = |document: &mut Document<Firewall>, ports: &[i32]| match document.written.get("operation")
        {
            Some(address) => vec![Edit::Kept(Ok(address.to_str().unwrap().to_owned()))],
            None => open(document, ports).into_iter().map(|_| Edit::Changed).collect(),
        };
        let begun = |exchange: Exchange| exchange.header("operation", "/7");
        let hosts = [
            Host::new().exchange(there(&[1], "\"a\"")).exchange(begun(written(&[1, 2]))),
            Host::new()
                .exchange(there(&[1], "\"a\"").times(2))
                .exchange(begun(testing::put(URL).status(202))),
        ];
        for host in hosts {
            let told = host.run(async { Document::read(URL).await.unwrap().edit(&[2], edit).await });
            assert_eq!(told, [Ok("/7".to_owned())]);
        }
    }
}
