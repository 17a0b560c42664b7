//! The cloud during a test: the real one, with all requests recorded, or one that fails. It takes the place of the
//! cloud in the gate, so a provider can't distinguish it from the real one. Requests that may change something reach
//! the real cloud only if the user allowed that, because the component is untrusted and the cloud may be in use.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pileus_cloud::NodeReference;
use pileus_gate::{Classification, Effect, Error, Interception, Interceptor, Limits, Request};

use super::facts::SeenRequest;

/// The Retry-After of a busy cloud, in seconds; an unusual number, so that it can be recognized.
pub(crate) const RETRY_AFTER: u64 = 7;

/// How the cloud behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloudMode {
    /// The real cloud, for reads.
    Real,
    /// The real cloud, which may be changed.
    Changing,
    /// The real cloud for this many requests, then a busy one: others may use the cloud too.
    RealFor(usize),
    /// It answers 429 with `Retry-After`.
    Busy,
    /// It answers 503.
    Down,
    /// It answers one request, and 503 to all later ones.
    BreaksDown,
    /// It answers 403.
    Forbidden,
    /// It answers 404.
    NotFound,
    /// A proxy answers with an HTML page.
    Page,
    /// It breaks connections.
    CutOff,
    /// It refuses with a code that the provider declares.
    Refusing,
    /// It never answers.
    Silence,
}

impl CloudMode {
    /// All modes in which the cloud fails.
    pub(crate) const FAULTS: [Self; 8] = [
        Self::Busy,
        Self::Down,
        Self::BreaksDown,
        Self::Forbidden,
        Self::NotFound,
        Self::Page,
        Self::CutOff,
        Self::Silence,
    ];

    /// The cloud in this mode, as the object of a sentence.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Real | Self::Changing | Self::RealFor(_) => "the cloud",
            Self::Busy => "a cloud that answers 429",
            Self::Down => "a cloud that answers 503",
            Self::BreaksDown => "a cloud that answers once and then 503",
            Self::Forbidden => "a cloud that answers 403",
            Self::NotFound => "a cloud that answers 404",
            Self::Page => "a proxy that answers 200 with an HTML page",
            Self::CutOff => "a cloud that breaks connections",
            Self::Refusing => "a cloud that refuses with a declared code",
            Self::Silence => "a cloud that never answers",
        }
    }

    /// What happens to a request after this many others.
    fn intercept_request(self, earlier: usize) -> Interception {
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
            Self::Silence | Self::Refusing => Interception::NoResponse,
        }
    }
}

fn json(code: &str) -> String {
    format!(r#"{{"code":"{code}","message":"this answer is from the conformance test"}}"#)
}

fn answer(head: http::response::Builder, kind: &str, body: String) -> Interception {
    let answer = head.header("content-type", kind).body(body.into());
    Interception::Respond(answer.expect("status and headers are constants"))
}

fn forbidden() -> Interception {
    answer(http::Response::builder().status(403), "application/json", json("forbidden"))
}

/// Whether the real cloud may get a request as a read. Without a rule, the method decides.
fn only_reads(request: &Request, classification: &Classification) -> bool {
    classification.effect != Effect::Write || (!has_rule(classification) && request.is_safe())
}

fn has_rule(classification: &Classification) -> bool {
    !matches!(classification.limits, Limits::AllOfHost)
}

/// Stands between provider and cloud, and records requests. Clones share their state.
#[derive(Clone)]
pub(crate) struct Cloud(Arc<Mutex<CloudState>>);

struct CloudState {
    mode: CloudMode,
    nodes: Vec<NodeReference>,
    seen: Vec<SeenRequest>,
    /// The answer to each request in [`CloudMode::Refusing`].
    refusal: Option<http::Response<Vec<u8>>>,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(CloudState {
            mode: CloudMode::Real,
            nodes: Vec::new(),
            seen: Vec::new(),
            refusal: None,
        })))
    }

    /// Starts a call about these Nodes.
    pub(crate) fn begin(&self, mode: CloudMode, nodes: &[NodeReference]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = state.refusal.take();
        *state = CloudState { mode, nodes: nodes.to_vec(), seen: Vec::new(), refusal };
    }

    /// Sets the answer of the next call with [`CloudMode::Refusing`].
    pub(crate) fn refuse(&self, response: http::Response<Vec<u8>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refusal = Some(response);
    }

    /// The requests since the call started.
    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seen.clone()
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cloud") // requests may contain secrets in their queries
    }
}

impl Interceptor for Cloud {
    fn intercept(&self, request: &Request, body: &[u8], classification: &Classification) -> Interception {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!(
            "{}?{} {}",
            request.url(),
            request.query().unwrap_or_default(),
            String::from_utf8_lossy(body)
        );
        let seen = SeenRequest {
            line: format!("{} {}", request.method(), request.url()),
            effect: classification.effect,
            has_rule: has_rule(classification),
            about: named_in(&text, &state.nodes),
        };
        let interception = match state.mode.intercept_request(state.seen.len()) {
            Interception::NoResponse if state.mode == CloudMode::Refusing => match &state.refusal {
                Some(response) => Interception::Respond(response.clone().map(Into::into)),
                None => Interception::NoResponse,
            },
            Interception::Forward
                if state.mode != CloudMode::Changing && !only_reads(request, classification) =>
            {
                forbidden()
            }
            interception => interception,
        };
        state.seen.push(seen);
        interception
    }
}

/// The Nodes that a request names: by name, or by the last part of the provider ID, which is the cloud's name of the
/// instance. Case is ignored.
fn named_in(text: &str, nodes: &[NodeReference]) -> Vec<usize> {
    let text = text.to_ascii_lowercase();
    let is_named = |node: &NodeReference| {
        let id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let id = id.rsplit('/').next().unwrap_or_default();
        [&node.name, id].into_iter().any(|word| has_word(&text, &word.to_ascii_lowercase()))
    };
    nodes.iter().enumerate().filter(|(_, node)| is_named(node)).map(|(index, _)| index).collect()
}

/// Whether a text contains a word on its own, not as part of a longer one.
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
    fn a_name_counts_only_as_a_separate_word() {
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
    fn changes_reach_a_cloud_that_may_be_changed() {
        let cloud = Cloud::new();
        cloud.begin(CloudMode::Changing, &[]);
        let request = Request::parse(&Method::DELETE, &"https://cloud.example/a".parse().unwrap()).unwrap();
        let classification = Classification {
            effect: Effect::Write,
            limits: Limits::AllOfHost,
            cache_scope: None,
            fold_case: false,
            page: None,
        };
        assert!(matches!(cloud.intercept(&request, b"", &classification), Interception::Forward));
    }

    #[test]
    fn changes_reach_no_other_cloud() {
        let carries = |mode, method, effect, limits| {
            let cloud = Cloud::new();
            cloud.begin(mode, &[]);
            let request = Request::parse(&method, &"https://cloud.example/a".parse().unwrap()).unwrap();
            let classification =
                Classification { effect, limits, cache_scope: None, fold_case: false, page: None };
            let interception = cloud.intercept(&request, b"", &classification);
            assert_eq!(cloud.seen().len(), 1, "it is recorded in any case");
            matches!(interception, Interception::Forward)
        };
        let ruled = || Limits::Keys(Vec::new());
        for mode in [CloudMode::Real, CloudMode::RealFor(1), CloudMode::BreaksDown] {
            assert!(carries(mode, Method::GET, Effect::Read, ruled()));
            assert!(carries(mode, Method::POST, Effect::Read, ruled()), "some APIs read by POST");
            assert!(carries(mode, Method::GET, Effect::OperationPoll, ruled()));
            assert!(carries(mode, Method::GET, Effect::Write, Limits::AllOfHost), "no rule matches it");
            assert!(!carries(mode, Method::GET, Effect::Write, ruled()));
            assert!(!carries(mode, Method::POST, Effect::Write, Limits::AllOfHost));
            assert!(!carries(mode, Method::DELETE, Effect::Write, ruled()));
        }
    }

    #[test]
    fn an_instance_is_named_as_in_its_cloud() {
        let node = |id: &str| NodeReference {
            name: "node-1".to_owned(),
            uid: String::new(),
            provider_id: Some(pileus_cloud::ProviderId::parse(id).unwrap()),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            addresses: Vec::new(),
            node_ips: Vec::new(),
            labels: Vec::new(),
            system_uuid: None,
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
    fn after_the_limit_of_requests_the_cloud_is_busy() {
        assert!(matches!(CloudMode::RealFor(2).intercept_request(1), Interception::Forward));
        let Interception::Respond(answer) = CloudMode::RealFor(2).intercept_request(2) else {
            unreachable!("it answers")
        };
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["retry-after"].to_str().ok()),
            (429, Some("7"))
        );
    }
}
