//! Sends `tracing` events to the host's log. Spans are not sent: the host has its own span for the call. The fields of a
//! span are added to the events inside it.
//!
//! Lines that the host would drop cost little. Whether a level is enabled is asked once for each place in the code. After
//! the host's limit of lines, only empty lines are sent, which the host counts.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use crate::host;

/// The number of lines that the host keeps of one call.
const MAX_LINES: usize = 256;

/// The number of bytes that the host keeps of one line.
const MAX_LINE: usize = 8 * 1024;

type Fields = Vec<(String, String)>;

/// The `tracing` subscriber that writes to the host's log.
#[derive(Default)]
pub(crate) struct HostLog(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    written: usize,
    last_span: u64,
    spans: HashMap<u64, Span>,
    entered: Vec<u64>,
}

struct Span {
    handles: usize,
    fields: Fields,
}

/// Installs the subscriber for the rest of the call.
#[cfg(target_arch = "wasm32")]
pub(crate) fn install() {
    // Fails only if the provider has installed its own subscriber, which is allowed.
    let _ = tracing::subscriber::set_global_default(HostLog::default());
}

/// In a native test the test double installs the subscriber for the test's thread.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn install() {}

impl HostLog {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for HostLog {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        host::log_enabled(*metadata.level())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        attributes.record(&mut text);
        let mut lines = self.lines();
        lines.last_span += 1;
        let id = lines.last_span;
        lines.spans.insert(id, Span { handles: 1, fields: text.fields });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        if let Some(span) = self.lines().spans.get_mut(&span.into_u64()) {
            span.fields.append(&mut text.fields);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        {
            let mut lines = self.lines();
            lines.written += 1;
            if lines.written > MAX_LINES {
                drop(lines);
                host::log(*event.metadata().level(), event.metadata().target(), "", &[]);
                return;
            }
            for span in lines.entered.iter().filter_map(|id| lines.spans.get(id)) {
                fields.extend_from_slice(&span.fields);
            }
        }
        let mut text = Text { fields, ..Text::default() };
        event.record(&mut text);
        host::log(*event.metadata().level(), event.metadata().target(), &text.message, &text.fields);
    }

    fn enter(&self, span: &Id) {
        self.lines().entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut lines = self.lines();
        if let Some(place) = lines.entered.iter().rposition(|id| *id == span.into_u64()) {
            lines.entered.remove(place);
        }
    }

    fn clone_span(&self, span: &Id) -> Id {
        if let Some(span) = self.lines().spans.get_mut(&span.into_u64()) {
            span.handles += 1;
        }
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut lines = self.lines();
        let Some(Span { handles, .. }) = lines.spans.get_mut(&span.into_u64()) else { return false };
        *handles -= 1;
        let closed = *handles == 0;
        if closed {
            lines.spans.remove(&span.into_u64());
        }
        closed
    }
}

/// The message and the fields of an event or a span, as text.
#[derive(Default)]
struct Text {
    message: String,
    fields: Fields,
}

impl Text {
    fn take(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let mut text = Bounded(String::new());
        // Fails if the text is too long. What has been written by then is the line.
        let _ = text.write_fmt(value);
        match field.name() {
            "message" => self.message = text.0,
            name => self.fields.push((name.to_owned(), text.0)),
        }
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, format_args!("{value}"));
    }
}

/// Text up to the maximum length of a line. Formatting stops there.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = MAX_LINE - self.0.len();
        if text.len() <= left {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(text.get(..text.floor_char_boundary(left)).unwrap_or_default());
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Level, debug, info, info_span};

    use crate::testing::Host;

    #[test]
    fn an_event_carries_its_fields_and_those_of_the_spans_around_it() {
        let host = Host::new();
        host.run(async {
            let outer = info_span!("instance", id = "m-1", state = tracing::field::Empty);
            let _entered = outer.enter();
            outer.record("state", "running");
            info!(target: "cloud", count = 2, name = %"a", "read {}", "it");
        });
        let [line] = host.log().try_into().unwrap();
        assert_eq!((line.level, &line.target[..], &line.message[..]), (Level::INFO, "cloud", "read it"));
        let fields: Vec<_> = line.fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(fields, [("id", "m-1"), ("state", "running"), ("count", "2"), ("name", "a")]);
    }

    #[test]
    fn a_span_that_was_left_adds_no_fields() {
        let host = Host::new();
        host.run(async {
            info_span!("instance", id = "m-1").in_scope(|| {});
            info!("done");
        });
        assert!(host.log()[0].fields.is_empty());
    }

    #[test]
    fn a_disabled_level_is_not_formatted() {
        let host = Host::new().log_level(Level::INFO);
        host.run(async {
            debug!("{}", String::from_utf8(vec![0xff]).expect("never formatted"));
            info!("kept");
        });
        assert_eq!(host.log().len(), 1);
    }

    #[test]
    fn lines_beyond_the_limit_are_sent_empty() {
        let host = Host::new();
        host.run(async {
            for line in 0..300 {
                info!(line, "again");
            }
        });
        let log = host.log();
        assert_eq!(log.len(), 300);
        assert_eq!(log.iter().filter(|line| !line.message.is_empty()).count(), 256);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let host = Host::new();
        host.run(async { info!("a{}", "ü".repeat(10_000)) });
        assert_eq!(host.log()[0].message.len(), 8 * 1024 - 1);
    }
}
