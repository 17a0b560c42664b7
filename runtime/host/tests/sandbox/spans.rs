//! Whose doing a line of the log is: a request to the cloud is below its call, and a call below what it was made for.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use pileus_cloud::{Instances as _, Purpose};
use pileus_gate::{Course, Grant, Meaning, Request, StandIn};
use pileus_host::Limits;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument as _, Subscriber, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::fixture::{configured, engine, gate, hostile, metrics, node};

/// Keeps each event with the spans that it is in, the outermost first, and the fields of all of them.
#[derive(Clone, Default)]
struct Chains(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Chains {
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

impl Chains {
    /// The only event with this text.
    fn of(&self, text: &str) -> String {
        let found: Vec<_> =
            self.0.lock().unwrap().iter().filter(|event| event.contains(text)).cloned().collect();
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        found.concat()
    }
}

#[derive(Debug)]
struct Ok200;

impl StandIn for Ok200 {
    fn decide(&self, _: &Request, _: &[u8], _: &Meaning) -> Course {
        Course::Answer(http::Response::new(Bytes::new()))
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
    let gate = gate(vec![grant]).with_stand_in(Arc::new(Ok200));
    let limits = Limits::default();
    let asks = configured(&engine, r#"{"behaviour": "denied-host"}"#, gate, limits.clone(), &metrics()).await;
    let panics = hostile(&engine, "panic", limits).await;
    let chains = Chains::default();
    let _logged = tracing::subscriber::set_default(tracing_subscriber::registry().with(chains.clone()));
    let lookups = async {
        let answers = asks.lookup(Purpose::Initialise, &[node("a")]).await.unwrap();
        // It answers with something that is no machine.
        assert!(answers[0].is_err(), "{answers:?}");
        panics.lookup(Purpose::Initialise, &[node("a")]).await.unwrap_err();
    };
    lookups.instrument(info_span!("reconcile", nodes = 1)).await;

    let request = chains.of("request to the cloud finished");
    let call = "reconcile nodes=1 > call provider=\"hostile\" function=\"lookup\" number=";
    let below = " > cloud request provider=hostile method=GET url=\"http://denied.example/\" \
                 grant=\"http://denied.example:80\" effect=\"write\" > ";
    assert!(request.starts_with(call) && request.contains(below), "{request}");
    let words = chains.of("hostile panic about");
    assert!(words.starts_with(call) && words.contains("source=\"stderr\""), "{words}");
    let number = |event: &str| event.split("number=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_ne!(number(&request), number(&words));
}
