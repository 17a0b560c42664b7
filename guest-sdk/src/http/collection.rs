//! A collection of a REST API: a paged list of all resources of a kind, and each resource under its name. It sends the
//! requests, and makes the rules about them for the provider's settings.

use std::collections::HashMap;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BaseUrl, Document, HeaderMap, Request, Response, Source, delete, get, put, read_pages};
use crate::operation::{self, Status};
use crate::{Effect, Error, Place, Rule, map_concurrently};

/// Up to this number, resources are read one by one. Above it they are looked up in a list, which costs one request for
/// each page.
pub const MAX_SINGLE_READS: usize = 3;

/// One page of a list, as the cloud sends it.
pub trait Page: DeserializeOwned {
    /// The type of the listed resources.
    type Item: DeserializeOwned;

    /// The query parameter in which a request names the page that it asks for.
    const PARAMETER: &'static str;

    /// Splits the page into its items and the next page's place. None on the last page.
    fn into_parts(self) -> (Vec<Self::Item>, Option<NextPage>);
}

/// The place of the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextPage {
    /// The same request with this value of [`Page::PARAMETER`]. Many clouds send an empty value on the last page, which
    /// ends the list.
    Value(String),
    /// This URL, unchanged. It names the page in [`Page::PARAMETER`] too. Its host needs a grant like any other.
    Url(String),
}

/// All resources of a kind: their list under a path, in pages `P`, and each resource under its name below the path.
///
/// ```no_run
/// # async fn example(cloud: &pileus_guest::http::BaseUrl) -> Result<(), pileus_guest::Error> {
/// # #[derive(serde::Deserialize)] struct Server { name: String }
/// use pileus_guest::http::{Collection, NextPage, Page};
///
/// #[derive(serde::Deserialize)]
/// struct Servers {
///     servers: Vec<Server>,
///     next_page: Option<u32>,
/// }
///
/// impl Page for Servers {
///     type Item = Server;
///     const PARAMETER: &'static str = "page";
///     fn into_parts(self) -> (Vec<Server>, Option<NextPage>) {
///         (self.servers, self.next_page.map(|page| NextPage::Value(page.to_string())))
///     }
/// }
///
/// let servers = Collection::<Servers>::new(cloud, ["v1", "servers"]);
/// let all: Vec<Server> = servers.list().await?;
/// let one: Option<Server> = servers.read("web-1").await?;
/// # drop((all, one));
/// # Ok(())
/// # }
/// ```
pub struct Collection<P> {
    base: BaseUrl,
    path: Vec<String>,
    query: Vec<(String, String)>,
    list_query: Vec<(String, String)>,
    page: PhantomData<fn() -> P>,
}

impl<P: Page> Collection<P> {
    /// The collection at a path of an API.
    pub fn new(base: &BaseUrl, path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let path = path.into_iter().map(Into::into).collect();
        Self { base: base.clone(), path, query: Vec::new(), list_query: Vec::new(), page: PhantomData }
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

    /// The URL of the resource of this name.
    pub fn url(&self, name: &str) -> String {
        self.request(self.path.iter().map(String::as_str).chain([name])).url
    }

    /// Reads the resource of this name. None if the cloud has none.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn read(&self, name: &str) -> Result<Option<P::Item>, Error> {
        get(self.url(name)).send().await?.or_absent()?.map(Response::json).transpose()
    }

    /// Reads the resource of this name, to edit it and to write it as a whole.
    ///
    /// # Errors
    ///
    /// As [`Document::read`].
    pub async fn read_document(&self, name: &str) -> Result<Document<P::Item>, Error>
    where
        P::Item: Serialize,
    {
        Document::read(self.url(name)).await
    }

    /// Lists all resources, and returns the items and how the list ended. The list is complete only if it ended without an
    /// error.
    pub async fn list_from(&self, source: Source) -> (Vec<P::Item>, Result<(), Error>) {
        let first =
            || self.request(&self.path).queries(self.list_query.iter().map(|(name, value)| (&**name, value)));
        let split = |page: P| {
            let (items, next) = page.into_parts();
            let next = match next {
                None => None,
                Some(NextPage::Value(value)) if value.is_empty() => None,
                Some(NextPage::Value(value)) => Some(first().query(P::PARAMETER, value)),
                Some(NextPage::Url(url)) => Some(get(url)),
            };
            (items, next)
        };
        read_pages(first(), async |page: Request| page.send_from(source).await, split).await
    }

    /// Lists all resources.
    ///
    /// # Errors
    ///
    /// The error that ended the list early.
    pub async fn list(&self) -> Result<Vec<P::Item>, Error> {
        let (items, end) = self.list_from(Source::Cloud).await;
        end.map(|()| items)
    }

    /// Reads the resources of these names, as a map by name. Up to [`MAX_SINGLE_READS`] are read one by one, each with its
    /// own error. More are looked up in a list of all, so the map may hold other resources too.
    ///
    /// # Errors
    ///
    /// The error of the list.
    pub async fn read_many<'a>(
        &self,
        names: impl ExactSizeIterator<Item = &'a str>,
        name_of: impl Fn(&P::Item) -> &str,
    ) -> Result<HashMap<String, Result<P::Item, Error>>, Error> {
        if names.len() > MAX_SINGLE_READS {
            let all = self.list().await?.into_iter();
            return Ok(all.map(|item| (name_of(&item).to_owned(), Ok(item))).collect());
        }
        let read = async |name: &str| Some((name.to_owned(), self.read(name).await.transpose()?));
        Ok(map_concurrently(names, read).await.into_iter().flatten().collect())
    }

    /// Creates or replaces the resource of this name with `PUT`. Returns the cloud's version of it and the response headers.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn put(&self, name: &str, desired: &impl Serialize) -> Result<(P::Item, HeaderMap), Error> {
        put(self.url(name)).json(desired).send().await?.json_with_headers()
    }

    /// Deletes the resource of this name, and returns the status of the deletion. Deleting what is gone succeeds.
    ///
    /// # Errors
    ///
    /// As [`Response::or_absent`], and `broken` if the name is empty: many servers would take the URL for that of the whole
    /// collection.
    pub async fn delete(&self, name: &str) -> Result<Status, Error> {
        if name.is_empty() {
            return Err(Error::broken(format!(
                "not deleted: a resource of {} has an empty name",
                self.path.join("/")
            )));
        }
        operation::deletion_status(delete(self.url(name)).send().await?)
    }

    /// Rules about reading the collection: its paged list, and each resource. What they read is one cache scope, which the
    /// [`write_rules`](Self::write_rules) clear.
    pub fn read_rules(&self) -> [Rule; 2] {
        let (all, one) = self.patterns();
        let read = |pattern: &str| self.base.rule("GET", pattern, Effect::Read).cache_scope(&*all);
        [read(&all).page(Place::Query(P::PARAMETER.to_owned())), read(&one)]
    }

    /// Rules about writing resources under their names with these methods.
    pub fn write_rules<const N: usize>(&self, methods: [&str; N]) -> [Rule; N] {
        let (all, one) = self.patterns();
        methods.map(|method| self.base.rule(method, &one, Effect::Write).cache_scope(&*all))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::ErrorKind;
    use crate::testing::{self, Exchange, Host};

    const DISKS: &str = "http://cloud.test/api/v1/disks";

    #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
    struct Disk {
        name: String,
    }

    /// A page that names the next one by a mark or by its URL.
    #[derive(Deserialize)]
    struct Disks {
        items: Vec<Disk>,
        mark: Option<String>,
        link: Option<String>,
    }

    impl Page for Disks {
        type Item = Disk;
        const PARAMETER: &'static str = "from";

        fn into_parts(self) -> (Vec<Disk>, Option<NextPage>) {
            (self.items, self.mark.map(NextPage::Value).or(self.link.map(NextPage::Url)))
        }
    }

    fn disks() -> Collection<Disks> {
        let base = BaseUrl::parse("http://cloud.test/api").unwrap();
        Collection::new(&base, ["v1", "disks"]).query("version", "7").list_query("limit", "2")
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
            (json!({"mark": "b/1"}), "version=7&limit=2&from=b%2F1"),
            (json!({"link": format!("{DISKS}?from=b&other=x")}), "from=b&other=x"),
        ];
        for (next, query) in rows {
            let host = Host::new().exchange(first(next)).exchange(second(query));
            assert_eq!(host.run(disks().list()), Ok(["a", "b", "c"].map(disk).to_vec()), "{query}");
        }
    }

    #[test]
    fn a_list_ends_at_an_empty_mark() {
        let host = Host::new().exchange(page("version=7&limit=2", &["a"], &json!({"mark": ""})));
        assert_eq!(host.run(disks().list()), Ok(vec![disk("a")]));
    }

    #[test]
    fn a_list_that_ends_early_fails_or_returns_its_items_with_the_error() {
        let host = || {
            Host::new()
                .exchange(page("version=7&limit=2", &["a"], &json!({"mark": "b"})))
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
        let host = Host::new().exchange(one("d").json(json!({"name": "d"})));
        assert_eq!(host.run(disks().read_document("d")).unwrap().value, Some(disk("d")));
        assert_eq!(host.requests()[0].header("cache-control"), Some("no-cache"));
    }

    #[test]
    fn a_write_returns_the_resource_and_headers_and_a_deletion_its_status() {
        let url = format!("{DISKS}/a?version=7");
        let host = Host::new()
            .exchange(testing::put(&*url).json(json!({"name": "a"})).header("operation-location", "/7"))
            .exchange(testing::delete(&*url).status(404));
        let (written, headers) = host.run(disks().put("a", &json!({"size": 1}))).unwrap();
        assert_eq!((written, &headers["operation-location"]), (disk("a"), &"/7".parse().unwrap()));
        assert_eq!(host.requests()[0].body, br#"{"size":1}"#);
        assert_eq!(host.run(disks().delete("a")), Ok(Status::Succeeded));
        assert_eq!(host.run(disks().delete("")).unwrap_err().kind, ErrorKind::Broken);
        assert_eq!(host.requests().len(), 2, "nothing is deleted without a name");
        let throttled = testing::put(url).status(429).header("retry-after", "7");
        let error = Host::new().exchange(throttled).run(disks().put("a", &json!({}))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Throttled(Some(Duration::from_secs(7))));
    }

    #[test]
    fn few_names_are_read_one_by_one_and_more_are_looked_up_in_a_list() {
        let find = |host: &Host, names: &[&str]| {
            let found = host.run(disks().read_many(names.iter().copied(), |disk| &disk.name))?;
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
        assert_eq!(disks().write_rules(["PATCH"]), [rule("PATCH", "/*", Effect::Write)]);
    }
}
