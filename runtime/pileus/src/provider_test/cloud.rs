//! The cloud as the provider meets it during a test: the real one, with everything that is asked of it written down, or
//! one that is busy, broken or silent. It stands in the gate, so a provider can't tell it from the real one. What would
//! change something reaches none of them but where the author allowed that: the component may be anybody's, and the cloud
//! somebody's.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pileus_cloud::NodeReference;
use pileus_gate::{Classification, Effect, Error, Interception, Interceptor, Limits, Request};

use super::facts::Seen;

/// How long a busy cloud asks to be left alone, in seconds; an odd number, so that it is recognised.
pub(crate) const RETRY_AFTER: u64 = 7;

/// What the cloud does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// It is the real one.
    Real,
    /// It is the real one, and may be changed.
    Changing,
    /// It is the real one for so many requests, and then busy: more would be rude to a cloud that others use.
    RealFor(usize),
    /// It has had enough: 429 with `Retry-After`.
    Busy,
    /// It can't at the moment: 503.
    Down,
    /// It answers one request, and then can't any more.
    BreaksDown,
    /// The credentials don't allow it: 403.
    Forbidden,
    /// It knows nothing of what is asked for: 404.
    NotFound,
    /// A proxy in between answers, with a page for people.
    Page,
    /// The connection breaks.
    CutOff,
    /// It never answers.
    Silence,
}

impl Scene {
    /// All that aren't the real one.
    pub(crate) const TROUBLES: [Self; 8] = [
        Self::Busy,
        Self::Down,
        Self::BreaksDown,
        Self::Forbidden,
        Self::NotFound,
        Self::Page,
        Self::CutOff,
        Self::Silence,
    ];

    /// The cloud in this scene, as the object of a sentence.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Real | Self::Changing | Self::RealFor(_) => "the cloud",
            Self::Busy => "a cloud that answers 429",
            Self::Down => "a cloud that answers 503",
            Self::BreaksDown => "a cloud that answers once and then 503",
            Self::Forbidden => "a cloud that answers 403",
            Self::NotFound => "a cloud that answers 404",
            Self::Page => "a proxy that answers 200 with an HTML page",
            Self::CutOff => "a cloud that breaks connections off",
            Self::Silence => "a cloud that never answers",
        }
    }

    /// What becomes of a request after so many others.
    fn course(self, earlier: usize) -> Interception {
        let plain = |status: u16| http::Response::builder().status(status);
        let busy = || {
            let head = plain(429).header("retry-after", RETRY_AFTER);
            answer(head, "application/json", json("throttled"))
        };
        match self {
            Self::Real | Self::Changing => Interception::Forward,
            Self::RealFor(most) if earlier < most => Interception::Forward,
            Self::RealFor(_) | Self::Busy => busy(),
            Self::BreaksDown if earlier == 0 => Interception::Forward,
            Self::Down | Self::BreaksDown => answer(plain(503), "application/json", json("unavailable")),
            Self::Forbidden => forbidden(),
            Self::NotFound => answer(plain(404), "application/json", json("not-found")),
            Self::Page => {
                answer(plain(200), "text/html", "<html><body>Please log in</body></html>".to_owned())
            }
            Self::CutOff => Interception::Fail(Error::Protocol {
                host: "the cloud".to_owned(),
                source: Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
            }),
            Self::Silence => Interception::NoResponse,
        }
    }
}

fn json(code: &str) -> String {
    format!(r#"{{"code":"{code}","message":"the conformance test says so"}}"#)
}

fn answer(head: http::response::Builder, kind: &str, body: String) -> Interception {
    let answer = head.header("content-type", kind).body(body.into());
    Interception::Respond(answer.expect("status and headers are constants"))
}

fn forbidden() -> Interception {
    answer(http::Response::builder().status(403), "application/json", json("forbidden"))
}

/// Whether the real cloud may see a request. Where no rule says what it means, its method has to.
fn only_reads(request: &Request, meaning: &Classification) -> bool {
    (meaning.effect != Effect::Write && request.can_be_a_read())
        || (!has_rule(meaning) && request.method().is_safe())
}

fn has_rule(meaning: &Classification) -> bool {
    !matches!(meaning.limits, Limits::AllOfHost)
}

/// Stands between provider and cloud. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Cloud(Arc<Mutex<Play>>);

struct Play {
    scene: Scene,
    nodes: Vec<NodeReference>,
    seen: Vec<Seen>,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Play { scene: Scene::Real, nodes: Vec::new(), seen: Vec::new() })))
    }

    /// Begins a call about these Nodes.
    pub(crate) fn begin(&self, scene: Scene, nodes: &[NodeReference]) {
        let mut play = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *play = Play { scene, nodes: nodes.to_vec(), seen: Vec::new() };
    }

    /// The requests since the call began.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seen.clone()
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cloud") // what it holds may hold what a query holds
    }
}

impl Interceptor for Cloud {
    fn intercept(&self, request: &Request, body: &[u8], meaning: &Classification) -> Interception {
        let mut play = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!(
            "{}?{} {}",
            request.url(),
            request.query().unwrap_or_default(),
            String::from_utf8_lossy(body)
        );
        let seen = Seen {
            line: format!("{} {}", request.method(), request.url()),
            effect: meaning.effect,
            has_rule: has_rule(meaning),
            about: named_in(&text, &play.nodes),
        };
        let course = match play.scene.course(play.seen.len()) {
            Interception::Forward if play.scene != Scene::Changing && !only_reads(request, meaning) => {
                forbidden()
            }
            course => course,
        };
        play.seen.push(seen);
        course
    }
}

/// Which Nodes a request names: by name, or by the last part of the provider ID, which is what clouds call a machine, in
/// large or small letters.
fn named_in(text: &str, nodes: &[NodeReference]) -> Vec<usize> {
    let text = text.to_ascii_lowercase();
    let is_named = |node: &NodeReference| {
        let id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let id = id.rsplit('/').next().unwrap_or_default();
        [&node.name, id].into_iter().any(|word| has_word(&text, &word.to_ascii_lowercase()))
    };
    nodes.iter().enumerate().filter(|(_, node)| is_named(node)).map(|(index, _)| index).collect()
}

/// Whether a text holds a word, and not only as a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let (before, after) = (text.get(..at), text.get(at + word.len()..));
            ends(before.and_then(|text| text.chars().next_back()))
                && ends(after.and_then(|text| text.chars().next()))
        })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn a_name_counts_only_as_a_word_of_its_own() {
        for (text, named) in [
            ("http://a/v1/machines/node-1?", true),
            ("http://a/v1/machines?name=node-1&x=2", true),
            ("http://a/v1 {\"name\":\"node-1\"}", true),
            ("http://a/v1/machines/node-11?", false),
            ("http://a/v1/machines/my-node-1?", false),
            ("http://a/v1/machines?limit=1000", false),
        ] {
            assert_eq!(has_word(text, "node-1"), named, "{text}");
        }
        assert!(!has_word("http://a/", ""));
    }

    #[test]
    fn a_cloud_that_may_be_changed_is() {
        let cloud = Cloud::new();
        cloud.begin(Scene::Changing, &[]);
        let request = Request::parse(&Method::DELETE, &"https://cloud.example/a".parse().unwrap()).unwrap();
        let meaning = Classification {
            effect: Effect::Write,
            limits: Limits::AllOfHost,
            cache_scope: None,
            fold_case: false,
            page: None,
        };
        assert!(matches!(cloud.intercept(&request, b"", &meaning), Interception::Forward));
    }

    #[test]
    fn no_cloud_sees_what_would_change_something() {
        let carries = |scene, method, effect, limits| {
            let cloud = Cloud::new();
            cloud.begin(scene, &[]);
            let request = Request::parse(&method, &"https://cloud.example/a".parse().unwrap()).unwrap();
            let meaning = Classification { effect, limits, cache_scope: None, fold_case: false, page: None };
            let course = cloud.intercept(&request, b"", &meaning);
            assert_eq!(cloud.seen().len(), 1, "it is written down in any case");
            matches!(course, Interception::Forward)
        };
        let ruled = || Limits::Keys(Vec::new());
        for scene in [Scene::Real, Scene::RealFor(1), Scene::BreaksDown] {
            assert!(carries(scene, Method::GET, Effect::Read, ruled()));
            assert!(carries(scene, Method::POST, Effect::Read, ruled()), "some APIs read by POST");
            assert!(carries(scene, Method::GET, Effect::OperationPoll, ruled()));
            assert!(carries(scene, Method::GET, Effect::Write, Limits::AllOfHost), "no rule is about it");
            assert!(!carries(scene, Method::GET, Effect::Write, ruled()));
            assert!(!carries(scene, Method::POST, Effect::Write, Limits::AllOfHost));
            assert!(!carries(scene, Method::DELETE, Effect::Write, ruled()));
            assert!(!carries(scene, Method::DELETE, Effect::Read, ruled()), "no rule makes a read of it");
        }
    }

    #[test]
    fn a_machine_is_named_as_its_cloud_writes_its_name() {
        let node = |id: &str| NodeReference {
            name: "node-1".to_owned(),
            uid: String::new(),
            provider_id: Some(pileus_cloud::ProviderId::parse(id).unwrap()),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            addresses: Vec::new(),
            node_ips: Vec::new(),
            labels: Vec::new(),
        };
        let nodes = ["azure:///subscriptions/1/VirtualMachines/Pool-VM7", "hcloud://42"].map(node);
        for (text, named) in [
            ("https://a/subscriptions/1/virtualMachines/pool-vm7?", vec![0]),
            ("https://a/v1/servers/42?", vec![1]),
            ("https://a/v1/servers?name=NODE-1", vec![0, 1]),
            ("https://a/v1/servers/421?", vec![]),
        ] {
            assert_eq!(named_in(text, &nodes), named, "{text}");
        }
    }

    #[test]
    fn a_cloud_that_is_shared_is_spared_after_its_share() {
        assert!(matches!(Scene::RealFor(2).course(1), Interception::Forward));
        let Interception::Respond(answer) = Scene::RealFor(2).course(2) else { unreachable!("it answers") };
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["retry-after"].to_str().ok()),
            (429, Some("7"))
        );
    }
}
