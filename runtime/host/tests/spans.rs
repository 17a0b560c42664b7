//! The spans of a log line: a request to the cloud is in the span of its call, and the call in that of its reconcile.
//!
//! The test is a program of its own, because tracing caches for the whole process whether a call site is enabled. Tests that
//! run beside it and reach a call site first, without a subscriber, could leave it disabled.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "shared with the tests of the sandbox, which use all of it")]
#[path = "sandbox/fixture.rs"]
mod fixture;

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use pileus_cloud::{Answer, Instances as _, Purpose};
use pileus_gate::{Classification, Grant, Interception, Interceptor, Request};
use pileus_host::Limits;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument as _, Subscriber, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Scope};

use fixture::{configured, engine, gate, hostile, metrics, node};

/// Records each event with its spans, the outermost first, and all fields.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut text = String::new();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            write!(text, "{}{} > ", span.name(), extensions.get::<Fields>().unwrap().0).unwrap();
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(text + &fields.0);
    }
}

impl Recorder {
    /// The only event with this text.
    fn only(&self, text: &str) -> String {
        let found: Vec<_> =
            self.0.lock().unwrap().iter().filter(|event| event.contains(text)).cloned().collect();
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        found.concat()
    }
}

#[derive(Debug)]
struct Ok200;

impl Interceptor for Ok200 {
    fn intercept(&self, _: &Request, _: &[u8], _: &Classification) -> Interception {
        Interception::Respond(http::Response::new(Bytes::new()))
    }
}

#[tokio::test]
async fn a_request_is_in_the_span_of_its_call_and_the_call_in_that_of_its_reconcile() {
    let engine = engine();
    let grant = Grant {
        tls: false,
        host: "denied.example".parse().unwrap(),
        port: 80,
        methods: vec!["GET".parse().unwrap()],
        paths: vec!["/".parse().unwrap()],
        addresses: Vec::new(),
    };
    let gate = gate(vec![grant]).with_interceptor(Arc::new(Ok200));
    let limits = Limits::default();
    let asking =
        configured(&engine, r#"{"behaviour": "denied-host"}"#, gate, limits.clone(), &metrics()).await;
    let panicking = hostile(&engine, "panic", limits).await;
    let recorder = Recorder::default();
    let subscriber = tracing_subscriber::registry().with(recorder.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let lookups = async {
        let answers = asking.lookup(Purpose::Initialise, &[node("a")]).await.unwrap();
        // The zone is the status of the response. The controllers leave it out, because no label can have it.
        assert!(
            matches!(&answers[..], [Ok(Answer::Found(found))] if found.zone.as_deref() == Some("200 OK")),
            "{answers:?}"
        );
        panicking.lookup(Purpose::Initialise, &[node("a")]).await.unwrap_err();
    };
    lookups.instrument(info_span!("reconcile", nodes = 1)).await;

    let request = recorder.only("request to the cloud finished");
    let call = "reconcile nodes=1 > call provider=\"hostile\" function=\"lookup\" number=";
    let below = " > cloud request provider=hostile method=GET url=\"http://denied.example/\" \
                 grant=\"http://denied.example:80\" effect=\"write\" > ";
    assert!(request.starts_with(call) && request.contains(below), "{request}");
    let stderr = recorder.only("hostile panic about");
    assert!(stderr.starts_with(call) && stderr.contains("source=\"stderr\""), "{stderr}");
    let number = |event: &str| event.split("number=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_ne!(number(&request), number(&stderr));
}
