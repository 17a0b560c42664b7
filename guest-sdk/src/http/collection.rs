//! Things of one kind in a REST API: a list of all, which comes in pages, and each of them under its name. What every
//! provider for such an API reads, and what its settings say of that.

use std::collections::HashMap;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BaseUrl, Document, HeaderMap, Request, Response, Source, delete, get, pages, put};
use crate::operation::{self, State};
use crate::{Effect, Error, Place, Rule, side_by_side};

/// Up to so many things are read one by one: a list of any size costs as many requests as it has pages.
pub const HANDFUL: usize = 3;

/// One page of a list, as the cloud writes it.
pub trait Page: DeserializeOwned {
    /// What it lists.
    type Item: DeserializeOwned;

    /// The query parameter in which a request names the page that it wants.
    const PARAMETER: &'static str;

    /// What is on it, and where the next one is; none on the last one.
    fn take(self) -> (Vec<Self::Item>, Option<Next>);
}

/// Where the next page of a list is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The same request, with this value of [`Page::PARAMETER`]. Many clouds write an empty text on the last page, which is
    /// taken for none.
    Value(String),
    /// This URL, as it is. It names the page in [`Page::PARAMETER`] too, and its host must be granted as any other.
    Url(String),
}

/// All things of a kind: their list under a path, in pages `P`, and each under its name below that.
///
/// ```no_run
/// # async fn example(cloud: &pileus_guest::http::BaseUrl) -> Result<(), pileus_guest::Error> {
/// # #[derive(serde::Deserialize)] struct Server { name: String }
/// use pileus_guest::http::{Collection, Next, Page};
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
///     fn take(self) -> (Vec<Server>, Option<Next>) {
///         (self.servers, self.next_page.map(|page| Next::Value(page.to_string())))
///     }
/// }
///
/// let servers = Collection::<Servers>::new(cloud, ["v1", "servers"]);
/// let all: Vec<Server> = servers.all().await?;
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
    /// The things below a path of an API.
    pub fn new(base: &BaseUrl, path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let path = path.into_iter().map(Into::into).collect();
        Self { base: base.clone(), path, query: Vec::new(), list_query: Vec::new(), page: PhantomData }
    }

    /// Adds a parameter to all its URLs: the version of the API, say.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a parameter to its lists: how much a page holds, or what is left out.
    #[must_use]
    pub fn list_query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.list_query.push((name.into(), value.into()));
        self
    }

    /// The URL of the thing of this name, to write it or to delete it.
    pub fn url(&self, name: &str) -> String {
        self.request(self.path.iter().map(String::as_str).chain([name])).url
    }

    /// Reads the thing of this name; none where the cloud has no such thing.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn read(&self, name: &str) -> Result<Option<P::Item>, Error> {
        get(self.url(name)).send().await?.or_absent()?.map(Response::json).transpose()
    }

    /// Reads the thing of this name to edit and to write it as a whole.
    ///
    /// # Errors
    ///
    /// As [`Document::read`].
    pub async fn document(&self, name: &str) -> Result<Document<P::Item>, Error>
    where
        P::Item: Serialize,
    {
        Document::read(self.url(name)).await
    }

    /// Lists all things: what came, and what ended the list. It is whole only where that is no error.
    pub async fn list(&self, source: Source) -> (Vec<P::Item>, Result<(), Error>) {
        let first =
            || self.request(&self.path).queries(self.list_query.iter().map(|(name, value)| (&**name, value)));
        let take = |page: P| {
            let (items, next) = page.take();
            let next = match next {
                None => None,
                Some(Next::Value(value)) if value.is_empty() => None,
                Some(Next::Value(value)) => Some(first().query(P::PARAMETER, value)),
                Some(Next::Url(url)) => Some(get(url)),
            };
            (items, next)
        };
        pages(first(), async |page: Request| page.send_from(source).await, take).await
    }

    /// Lists all things, or fails.
    ///
    /// # Errors
    ///
    /// What ended the list before its end.
    pub async fn all(&self) -> Result<Vec<P::Item>, Error> {
        let (items, end) = self.list(Source::Cloud).await;
        end.map(|()| items)
    }

    /// What the cloud has under these names: a [`HANDFUL`] is read one by one, each with its own error, and more are looked
    /// for in a list of all, whose things may have other names too.
    ///
    /// # Errors
    ///
    /// Those of the list.
    pub async fn named<'a>(
        &self,
        names: impl ExactSizeIterator<Item = &'a str>,
        name: impl Fn(&P::Item) -> &str,
    ) -> Result<HashMap<String, Result<P::Item, Error>>, Error> {
        if names.len() > HANDFUL {
            let all = self.all().await?.into_iter();
            return Ok(all.map(|item| (name(&item).to_owned(), Ok(item))).collect());
        }
        let read = async |name: &str| Some((name.to_owned(), self.read(name).await.transpose()?));
        Ok(side_by_side(names, read).await.into_iter().flatten().collect())
    }

    /// Creates or replaces the thing of this name with `PUT`: what the cloud made of it, and the headers of its answer.
    ///
    /// # Errors
    ///
    /// As [`Response::json`].
    pub async fn put(&self, name: &str, wanted: &impl Serialize) -> Result<(P::Item, HeaderMap), Error> {
        put(self.url(name)).json(wanted).send().await?.parts()
    }

    /// Deletes the thing of this name, and tells how that is getting on. Deleting what is gone has ended.
    ///
    /// # Errors
    ///
    /// As [`Response::or_absent`], and `broken` where the name is empty: many servers would take the URL for that of all.
    pub async fn delete(&self, name: &str) -> Result<State, Error> {
        if name.is_empty() {
            return Err(Error::broken(format!(
                "one of {} without a name was not deleted",
                self.path.join("/")
            )));
        }
        operation::deleted(delete(self.url(name)).send().await?)
    }

    /// Rules about reading it: its list, which comes in pages, and each thing by itself. What is read makes up a scope of
    /// the cache, which its [`writes`](Self::writes) clear.
    pub fn reads(&self) -> [Rule; 2] {
        let (all, one) = self.patterns();
        let read = |pattern: &str| self.base.rule("GET", pattern, Effect::Read).cache_scope(&*all);
        [read(&all).page(Place::Query(P::PARAMETER.to_owned())), read(&one)]
    }

    /// Rules about writing its things, each under its name, by these methods.
    pub fn writes<const N: usize>(&self, methods: [&str; N]) -> [Rule; N] {
        let (all, one) = self.patterns();
        methods.map(|method| self.base.rule(method, &one, Effect::Write).cache_scope(&*all))
    }

    fn request<S: AsRef<str>>(&self, path: impl IntoIterator<Item = S>) -> Request {
        get(self.base.join(path)).queries(self.query.iter().map(|(name, value)| (&**name, value)))
    }

    /// The path of the list, and of each thing, as patterns of rules. A segment `*` of the path stands for any.
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

    /// A page that names the next by a mark, or by its URL.
    #[derive(Deserialize)]
    struct Disks {
        items: Vec<Disk>,
        mark: Option<String>,
        link: Option<String>,
    }

    impl Page for Disks {
        type Item = Disk;
        const PARAMETER: &'static str = "from";

        fn take(self) -> (Vec<Disk>, Option<Next>) {
            (self.items, self.mark.map(Next::Value).or(self.link.map(Next::Url)))
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
    fn a_list_goes_on_at_a_mark_in_the_same_request_or_at_a_url_as_it_is() {
        let first = |next: Value| page("version=7&limit=2", &["a", "b"], &next);
        let second = |query| page(query, &["c"], &json!({}));
        let rows = [
            (json!({"mark": "b/1"}), "version=7&limit=2&from=b%2F1"),
            (json!({"link": format!("{DISKS}?from=b&other=x")}), "from=b&other=x"),
        ];
        for (next, query) in rows {
            let host = Host::new().exchange(first(next)).exchange(second(query));
            assert_eq!(host.run(disks().all()), Ok(["a", "b", "c"].map(disk).to_vec()), "{query}");
        }
    }

    #[test]
    fn a_list_ends_at_an_empty_mark() {
        let host = Host::new().exchange(page("version=7&limit=2", &["a"], &json!({"mark": ""})));
        assert_eq!(host.run(disks().all()), Ok(vec![disk("a")]));
    }

    #[test]
    fn a_list_that_breaks_off_fails_and_tells_what_came_to_who_asks_for_that() {
        let host = || {
            Host::new()
                .exchange(page("version=7&limit=2", &["a"], &json!({"mark": "b"})))
                .exchange(testing::get(format!("{DISKS}?version=7&limit=2&from=b")).status(503))
        };
        assert_eq!(host().run(disks().all()).unwrap_err().kind, ErrorKind::Unavailable);
        let (came, end) = host().run(disks().list(Source::Cloud));
        assert_eq!((came, end.unwrap_err().kind), (vec![disk("a")], ErrorKind::Unavailable));
    }

    #[test]
    fn a_thing_is_read_by_its_name_and_none_where_it_is_not_there() {
        let host = Host::new().exchange(one("a%2Fb").json(json!({"name": "a/b"})));
        assert_eq!(host.run(disks().read("a/b")), Ok(Some(disk("a/b"))));
        let host = Host::new().exchange(one("c").status(404));
        assert_eq!(host.run(disks().read("c")), Ok(None));
        let host = Host::new().exchange(one("d").json(json!({"name": "d"})));
        assert_eq!(host.run(disks().document("d")).unwrap().value, Some(disk("d")));
        assert_eq!(host.requests()[0].header("cache-control"), Some("no-cache"));
    }

    #[test]
    fn what_is_written_comes_back_with_the_headers_and_a_deletion_with_how_it_is_getting_on() {
        let url = format!("{DISKS}/a?version=7");
        let host = Host::new()
            .exchange(testing::put(&*url).json(json!({"name": "a"})).header("operation-location", "/7"))
            .exchange(testing::delete(&*url).status(404));
        let (written, headers) = host.run(disks().put("a", &json!({"size": 1}))).unwrap();
        assert_eq!((written, &headers["operation-location"]), (disk("a"), &"/7".parse().unwrap()));
        assert_eq!(host.requests()[0].body, br#"{"size":1}"#);
        assert_eq!(host.run(disks().delete("a")), Ok(State::Ended));
        assert_eq!(host.run(disks().delete("")).unwrap_err().kind, ErrorKind::Broken);
        assert_eq!(host.requests().len(), 2, "nothing is deleted without a name");
        let throttled = testing::put(url).status(429).header("retry-after", "7");
        let error = Host::new().exchange(throttled).run(disks().put("a", &json!({}))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Throttled(Some(Duration::from_secs(7))));
    }

    #[test]
    fn a_handful_of_names_is_read_one_by_one_and_more_are_looked_for_in_a_list() {
        let find = |host: &Host, names: &[&str]| {
            let found = host.run(disks().named(names.iter().copied(), |disk| &disk.name))?;
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
        assert!(find(&host, &names).is_err(), "a list that fails tells of nothing absent");
    }

    #[test]
    fn its_rules_are_about_its_paths_and_share_a_scope() {
        let rule = |method: &str, path: &str, effect| {
            Rule::new("cloud.test", method, format!("/api/v1/disks{path}"), effect).cache_scope("/v1/disks")
        };
        let list = rule("GET", "", Effect::Read).page(Place::Query("from".to_owned()));
        assert_eq!(disks().reads(), [list, rule("GET", "/*", Effect::Read)]);
        assert_eq!(disks().writes(["PATCH"]), [rule("PATCH", "/*", Effect::Write)]);
    }
}
