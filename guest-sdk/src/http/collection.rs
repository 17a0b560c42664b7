//! A collection of a REST API: a paged list of all resources of a kind, and each resource under its name or number. It
//! sends the requests, and makes the rules about them for the provider's settings.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::envelope::{PageBody, PageLayout, read_one};
use super::{BaseUrl, Request, Response, Source, delete, get, put, read_pages};
use crate::operation::{self, Status, Written};
use crate::{Effect, Error, Place, Rule, map_concurrently};

/// Up to this number, resources are read one by one. Above it they are looked up in a list, which costs one request for
/// each page.
pub const MAX_SINGLE_READS: usize = 3;

/// All resources of a kind: their list under a path, and each resource under its name below the path.
///
/// ```no_run
/// # async fn example(cloud: &pileus_guest::http::BaseUrl) -> Result<(), pileus_guest::Error> {
/// # #[derive(serde::Deserialize)] struct Server { id: NumericId }
/// use pileus_guest::http::{Collection, NumericId};
///
/// // {"servers": [{"id": 42}], "meta": {"pagination": {"next_page": 2}}} and {"server": {"id": 42}}
/// let servers = Collection::<Server>::new(cloud, ["v1", "servers"])
///     .envelope("server", "servers")
///     .pages("page", "meta.pagination.next_page");
/// let all: Vec<Server> = servers.list().await?;
/// let one: Option<Server> = servers.read(NumericId(42)).await?;
/// # drop((all, one));
/// # Ok(())
/// # }
/// ```
pub struct Collection<T> {
    base: BaseUrl,
    path: Vec<String>,
    query: Vec<(String, String)>,
    list_query: Vec<(String, String)>,
    one: Option<String>,
    items: Option<String>,
    paging: Option<Paging>,
    filter: Option<Filter>,
    item: PhantomData<fn() -> T>,
}

/// The query parameter in which a request names the page that it asks for, and the path in a page of the next page's place.
#[derive(Clone)]
struct Paging {
    parameter: String,
    next: String,
}

/// The query parameter of a list that selects one resource, and its value for the key of the resource.
#[derive(Clone)]
struct Filter {
    parameter: String,
    value: fn(&str) -> String,
}

impl<T: DeserializeOwned> Collection<T> {
    /// The collection at a path of an API. Its list is a JSON list in one response, unless the other functions say more.
    pub fn new(base: &BaseUrl, path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            base: base.clone(),
            path: path.into_iter().map(Into::into).collect(),
            query: Vec::new(),
            list_query: Vec::new(),
            one: None,
            items: None,
            paging: None,
            filter: None,
            item: PhantomData,
        }
    }

    /// Names the field in which a response has the items of the list.
    #[must_use]
    pub fn items(mut self, field: impl Into<String>) -> Self {
        self.items = Some(field.into());
        self
    }

    /// Names the fields in which responses have one resource, and the items of the list.
    #[must_use]
    pub fn envelope(mut self, one: impl Into<String>, items: impl Into<String>) -> Self {
        self.one = Some(one.into());
        self.items(items)
    }

    /// Says that lists come in pages: the query parameter that names a page, and the path in a page of what names the next
    /// one, as in `meta.pagination.next_page`. That is a value for the parameter, or a URL. Without it, or if it is empty, the
    /// page is the last one.
    #[must_use]
    pub fn pages(mut self, parameter: impl Into<String>, next: impl Into<String>) -> Self {
        self.paging = Some(Paging { parameter: parameter.into(), next: next.into() });
        self
    }

    /// Says that [`read_many`](Self::read_many) finds a resource by a query parameter of the list and this value of it, for a
    /// cloud that numbers its resources. For example a label selector, or a name.
    #[must_use]
    pub fn found_by(mut self, parameter: impl Into<String>, value: fn(&str) -> String) -> Self {
        self.filter = Some(Filter { parameter: parameter.into(), value });
        self
    }

    /// Adds a query parameter to all URLs, such as the API's version.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a query parameter to lists, such as the page size or a filter.
    #[must_use]
    pub fn list_query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.list_query.push((name.into(), value.into()));
        self
    }

    /// The URL of the list.
    pub fn list_url(&self) -> String {
        self.request(&self.path).url
    }

    /// The URL of the resource of this name or number.
    pub fn url(&self, name: impl fmt::Display) -> String {
        let name = name.to_string();
        self.request(self.path.iter().chain([&name])).url
    }

    /// Reads the resource of this name or number. None if the cloud has none.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn read(&self, name: impl fmt::Display) -> Result<Option<T>, Error> {
        get(self.url(name)).send().await?.or_absent()?.map(|response| self.one(response)).transpose()
    }

    /// Lists all resources, and returns the items and how the list ended. The list is complete only if it ended without an
    /// error.
    pub async fn list_from(&self, source: Source) -> (Vec<T>, Result<(), Error>) {
        self.list_with(source, None).await
    }

    /// Lists all resources.
    ///
    /// # Errors
    ///
    /// The error that ended the list early.
    pub async fn list(&self) -> Result<Vec<T>, Error> {
        let (items, end) = self.list_from(Source::Cloud).await;
        end.map(|()| items)
    }

    async fn list_with(&self, source: Source, filter: Option<(&str, String)>) -> (Vec<T>, Result<(), Error>) {
        let first = || {
            let queries = self.list_query.iter().map(|(name, value)| (&**name, value));
            self.request(&self.path)
                .queries(queries)
                .queries(filter.iter().map(|(name, value)| (*name, value)))
        };
        let next = self.paging.as_ref().map(|paging| &*paging.next);
        let layout = PageLayout { items: self.items.as_deref(), next };
        let split = |response: Response| {
            let PageBody { items, next } = response.parse(|bytes| layout.read(bytes))?;
            let request = |next: String| match &self.paging {
                Some(_) if next.starts_with("https://") || next.starts_with("http://") => get(next),
                Some(paging) => first().query(&paging.parameter, next),
                None => first(),
            };
            Ok((items, next.map(request)))
        };
        read_pages(first(), async |page: Request| page.send_from(source).await, split).await
    }

    /// Reads the resources of these keys, as a map by key. Up to [`MAX_SINGLE_READS`] are read one by one, each with its own
    /// error: under their names, or as [`found_by`](Self::found_by) says. More are looked up in a list of all, so the map may
    /// hold other resources too. `key_of` returns the key of a resource. A key that several resources have is an error.
    ///
    /// # Errors
    ///
    /// The error of the list.
    pub async fn read_many<'a>(
        &self,
        keys: impl ExactSizeIterator<Item = &'a str>,
        key_of: impl Fn(&T) -> Option<&str>,
    ) -> Result<HashMap<String, Result<T, Error>>, Error> {
        if keys.len() > MAX_SINGLE_READS {
            return Ok(index(self.list().await?, key_of));
        }
        let read = async |key: &str| match &self.filter {
            None => self.read(key).await.transpose(),
            Some(Filter { parameter, value }) => {
                match self.list_with(Source::Cloud, Some((parameter, value(key)))).await {
                    (_, Err(error)) => Some(Err(error)),
                    (found, Ok(())) => index(found, &key_of).remove(key),
                }
            }
        };
        let read = async |key: &str| Some((key.to_owned(), read(key).await?));
        Ok(map_concurrently(keys, read).await.into_iter().flatten().collect())
    }

    /// Creates or replaces the resource of this name with `PUT`.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn put(&self, name: impl fmt::Display, desired: &impl Serialize) -> Result<Written<T>, Error> {
        self.write(put(self.url(name)).json(desired)).await
    }

    /// Sends a write, to this collection or a part of it, and returns what the response says: an operation that has begun, or
    /// the resource.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn write(&self, request: Request) -> Result<Written<T>, Error> {
        let response = request.send().await?.error_for_status()?;
        match operation::begun(&response) {
            Some(progress) => Ok(Written::Step(progress)),
            None if response.bytes.is_empty() => Ok(Written::Step(operation::InProgress::soon())),
            None => self.one(response).map(Written::Whole),
        }
    }

    /// Deletes the resource of this name or number, and returns the status of the deletion. Deleting what is gone succeeds.
    ///
    /// # Errors
    ///
    /// As [`Response::or_absent`], and `broken` if the name is empty: many servers would take the URL for that of the whole
    /// collection.
    pub async fn delete(&self, name: impl fmt::Display) -> Result<Status, Error> {
        let name = name.to_string();
        if name.is_empty() {
            return Err(Error::broken(format!(
                "not deleted: a resource of {} has an empty name",
                self.path.join("/")
            )));
        }
        operation::deletion_status(delete(self.url(name)).send().await?)
    }

    /// Rules about reading the collection: its list, and each resource. What they read is one cache scope, which the
    /// [`write_rules`](Self::write_rules) clear.
    pub fn read_rules(&self) -> [Rule; 2] {
        let (all, one) = self.patterns();
        let read = |pattern: &str| self.base.rule("GET", pattern, Effect::Read).cache_scope(&*all);
        let list = read(&all);
        let list = match &self.paging {
            Some(Paging { parameter, .. }) => list.page(Place::Query(parameter.clone())),
            None => list,
        };
        [list, read(&one)]
    }

    /// Rules about writing with these methods: `POST` to the list's path, others to resources under their names.
    pub fn write_rules<const N: usize>(&self, methods: [&str; N]) -> [Rule; N] {
        let (all, one) = self.patterns();
        methods.map(|method| {
            let path = if method == "POST" { &all } else { &one };
            self.base.rule(method, path, Effect::Write).cache_scope(&*all)
        })
    }

    fn one(&self, response: Response) -> Result<T, Error> {
        response.parse(|bytes| read_one(bytes, self.one.as_deref()))
    }

    fn request<S: AsRef<str>>(&self, path: impl IntoIterator<Item = S>) -> Request {
        get(self.base.join(path)).queries(self.query.iter().map(|(name, value)| (&**name, value)))
    }

    /// The paths of the list and of a resource, as patterns for rules. A segment `*` of the path stands for any segment.
    fn patterns(&self) -> (String, String) {
        let all = format!("/{}", self.path.join("/"));
        let one = format!("{all}/*");
        (all, one)
    }
}

/// The resources by key. One of several with the same key would be a guess.
fn index<T>(items: Vec<T>, key_of: impl Fn(&T) -> Option<&str>) -> HashMap<String, Result<T, Error>> {
    let mut found = HashMap::with_capacity(items.len());
    for item in items {
        let Some(key) = key_of(&item).map(str::to_owned) else { continue };
        let twice =
            found.contains_key(&key).then(|| Error::invalid(format!("several resources are for {key}")));
        found.insert(key, twice.map_or(Ok(item), Err));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::ErrorKind;
    use crate::http::NumericId;
    use crate::operation::InProgress;
    use crate::testing::{self, Exchange, Host};

    const DISKS: &str = "http://cloud.test/api/v1/disks";

    #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
    struct Disk {
        name: String,
    }

    fn disks() -> Collection<Disk> {
        let base = BaseUrl::parse("http://cloud.test/api").unwrap();
        let disks = Collection::new(&base, ["v1", "disks"]).items("items").pages("from", "next");
        disks.query("version", "7").list_query("limit", "2")
    }

    fn disk(name: &str) -> Disk {
        Disk { name: name.to_owned() }
    }

    fn page(query: &str, names: &[&str], next: &Value) -> Exchange {
        let disks: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let mut page = json!({"items": disks});
        page.as_object_mut().unwrap().extend(next.as_object().unwrap().clone());
        testing::get(format!("{DISKS}?{query}")).json(page)
    }

    fn one(name: &str) -> Exchange {
        testing::get(format!("{DISKS}/{name}?version=7"))
    }

    #[test]
    fn a_list_continues_with_a_mark_in_the_same_request_or_with_a_url() {
        let first = |next: Value| page("version=7&limit=2", &["a", "b"], &next);
        let second = |query| page(query, &["c"], &json!({}));
        let rows = [
            (json!({"next": "b/1"}), "version=7&limit=2&from=b%2F1"),
            (json!({"next": format!("{DISKS}?from=b&other=x")}), "from=b&other=x"),
        ];
        for (next, query) in rows {
            let host = Host::new().exchange(first(next)).exchange(second(query));
            assert_eq!(host.run(disks().list()), Ok(["a", "b", "c"].map(disk).to_vec()), "{query}");
        }
    }

    #[test]
    fn a_list_ends_at_an_empty_mark() {
        let host = Host::new().exchange(page("version=7&limit=2", &["a"], &json!({"next": ""})));
        assert_eq!(host.run(disks().list()), Ok(vec![disk("a")]));
    }

    #[test]
    fn a_list_that_ends_early_fails_or_returns_its_items_with_the_error() {
        let host = || {
            Host::new()
                .exchange(page("version=7&limit=2", &["a"], &json!({"next": "b"})))
                .exchange(testing::get(format!("{DISKS}?version=7&limit=2&from=b")).status(503))
        };
        assert_eq!(host().run(disks().list()).unwrap_err().kind, ErrorKind::Unavailable(None));
        let (items, end) = host().run(disks().list_from(Source::Cloud));
        assert_eq!((items, end.unwrap_err().kind), (vec![disk("a")], ErrorKind::Unavailable(None)));
    }

    #[test]
    fn a_resource_is_read_by_its_name_and_absent_if_the_cloud_has_none() {
        let host = Host::new().exchange(one("a%2Fb").json(json!({"name": "a/b"})));
        assert_eq!(host.run(disks().read("a/b")), Ok(Some(disk("a/b"))));
        let host = Host::new().exchange(one("c").status(404));
        assert_eq!(host.run(disks().read("c")), Ok(None));
    }

    #[test]
    fn a_write_returns_the_resource_or_its_operation_and_a_deletion_its_status() {
        let url = format!("{DISKS}/a?version=7");
        let host = Host::new()
            .exchange(testing::put(&*url).json(json!({"name": "a"})).header("operation-location", "/7"))
            .exchange(testing::delete(&*url).status(404));
        let begun = InProgress { after: Duration::from_secs(1), resume: Some("/7".to_owned()) };
        assert_eq!(host.run(disks().put("a", &json!({"size": 1}))), Ok(Written::Step(begun)));
        assert_eq!(host.requests()[0].body, br#"{"size":1}"#);
        assert_eq!(host.run(disks().delete("a")), Ok(Status::Succeeded));
        assert_eq!(host.run(disks().delete("")).unwrap_err().kind, ErrorKind::Broken);
        assert_eq!(host.requests().len(), 2, "nothing is deleted without a name");
        let host = Host::new()
            .exchange(testing::put(&*url).status(201).json(json!({"name": "a"})))
            .exchange(testing::put(&*url).status(204));
        assert_eq!(host.run(disks().put("a", &json!({}))), Ok(Written::Whole(disk("a"))));
        assert_eq!(host.run(disks().put("a", &json!({}))), Ok(Written::Step(InProgress::soon())));
        let throttled = testing::put(url).status(429).header("retry-after", "7");
        let error = Host::new().exchange(throttled).run(disks().put("a", &json!({}))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Throttled(Some(Duration::from_secs(7))));
    }

    #[test]
    fn few_names_are_read_one_by_one_and_more_are_looked_up_in_a_list() {
        let find = |host: &Host, names: &[&str]| {
            let found = host.run(disks().read_many(names.iter().copied(), |disk| Some(&disk.name)))?;
            let mut found: Vec<_> =
                found.into_iter().map(|(name, disk)| (name, disk.map_err(|error| error.kind))).collect();
            found.sort_by(|one, other| one.0.cmp(&other.0));
            Ok::<_, Error>(found)
        };
        let there = |name: &str| (name.to_owned(), Ok(disk(name)));
        let host = Host::new()
            .exchange(one("a").json(json!({"name": "a"})))
            .exchange(one("b").status(404))
            .exchange(one("c").status(403));
        let expected = vec![there("a"), ("c".to_owned(), Err(ErrorKind::Denied))];
        assert_eq!(find(&host, &["a", "b", "c"]), Ok(expected));
        let names = ["a", "b", "c", "d"];
        let host = Host::new().exchange(page("version=7&limit=2", &["a", "x"], &json!({})));
        assert_eq!(find(&host, &names), Ok(vec![there("a"), there("x")]));
        let host = Host::new().exchange(testing::get(format!("{DISKS}?version=7&limit=2")).status(503));
        assert!(find(&host, &names).is_err(), "a list that fails says nothing about absence");
    }

    #[test]
    fn the_rules_cover_the_collections_paths_and_share_a_cache_scope() {
        let rule = |method: &str, path: &str, effect| {
            Rule::new("cloud.test", method, format!("/api/v1/disks{path}"), effect).cache_scope("/v1/disks")
        };
        let list = rule("GET", "", Effect::Read).page(Place::Query("from".to_owned()));
        assert_eq!(disks().read_rules(), [list, rule("GET", "/*", Effect::Read)]);
        let writes = [rule("POST", "", Effect::Write), rule("PATCH", "/*", Effect::Write)];
        assert_eq!(disks().write_rules(["POST", "PATCH"]), writes);
    }

    #[test]
    fn numbered_resources_in_envelopes_are_found_by_a_filter() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Server {
            id: NumericId,
            owner: Option<String>,
        }
        let base = BaseUrl::parse("http://cloud.test").unwrap();
        let servers = Collection::<Server>::new(&base, ["servers"])
            .envelope("server", "servers")
            .pages("page", "meta.pagination.next_page")
            .found_by("label_selector", |owner| format!("owner={owner}"));
        let server = |id, owner: &str| Server { id: NumericId(id), owner: Some(owner.to_owned()) };
        let list = |query: &str, servers: Value, next: Option<u32>| {
            let page = json!({"servers": servers, "meta": {"pagination": {"next_page": next}}});
            testing::get(format!("http://cloud.test/servers{query}")).json(page)
        };
        let of = |owner| format!("?label_selector=owner%3D{owner}");
        let host = Host::new()
            .exchange(testing::get("http://cloud.test/servers/7").json(json!({"server": {"id": 7}, "x": 1})))
            .exchange(list(&of("a"), json!([{"id": 1, "owner": "a"}]), None))
            .exchange(list(&of("b"), json!([]), None))
            .exchange(list(&of("c"), json!([{"id": 2, "owner": "c"}]), Some(2)))
            .exchange(list(&format!("{}&page=2", of("c")), json!([{"id": 3, "owner": "c"}]), None));
        let one = host.run(servers.read(NumericId(7)));
        assert_eq!(one, Ok(Some(Server { id: NumericId(7), owner: None })));
        let keys = ["a", "b", "c"];
        let mut found =
            host.run(servers.read_many(keys.into_iter(), |server| server.owner.as_deref())).unwrap();
        assert_eq!((found.remove("a"), found.remove("b")), (Some(Ok(server(1, "a"))), None));
        assert_eq!(
            found["c"].as_ref().unwrap_err().kind,
            ErrorKind::Invalid,
            "to choose one would be a guess"
        );
        assert_eq!(
            host.run(servers.read_many([].into_iter(), |server| server.owner.as_deref())),
            Ok(HashMap::new())
        );
        let all = json!([{"id": 1, "owner": "a"}, {"id": 4}]);
        let host = Host::new().exchange(list("", all, None));
        let found =
            host.run(servers.read_many(["a", "b", "c", "d"].into_iter(), |server| server.owner.as_deref()));
        assert_eq!(found, Ok(HashMap::from([("a".to_owned(), Ok(server(1, "a")))])));
    }
}
