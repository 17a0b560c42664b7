//! Everything that the host could be made to hold for a guest, beside the guest's own memory.

use std::hint::black_box;

use pileus_guest::{Description, Effect, Problem, Rule, Settings};
use wasip2::http::types::{Fields, Method, OutgoingBody, OutgoingRequest};

use crate::attempt::Attempt;

/// What `describe` does. It has no configuration, so a test changes this text in the component's bytes.
static DESCRIBES: [u8; 32] = *b"hostile provider describes:quiet";

/// As many bytes of fields as the host accepts in one set.
const FIELDS: usize = 28 << 10;

/// The bytes of a body that the host accepts at once.
const CHUNK: usize = 4096;

/// A description, which is large if the test wants it to be.
pub(crate) fn describe(description: Description) -> Description {
    match black_box(&DESCRIBES).get(27..) {
        // The host finds no room for the text.
        Some(b"texts") => description.node_label("x".repeat(1_200_000)),
        // It finds too many items.
        Some(b"items") => {
            (0..4_000).fold(description, |description, number| description.node_label(number.to_string()))
        }
        Some(b"flood") => description.node_label("x".repeat(20 << 20)),
        _ => description,
    }
}

pub(crate) fn problems() -> Vec<Problem> {
    (0..1_200).map(|number| Problem::new(number.to_string(), "x".repeat(1_000))).collect()
}

pub(crate) fn settings() -> Settings {
    let path = format!("/{}", "x".repeat(1_000));
    let rule =
        || Rule::new("https://cloud.example", "GET", path.clone(), Effect::Read).cache_scope("x".repeat(500));
    (0..1_000).fold(Settings::default(), |settings, _| settings.rule(rule()))
}

fn fields() -> Fields {
    let fields = Fields::new();
    let value = "x".repeat(FIELDS / 4);
    for number in 0..4 {
        // The test checks how the call ends.
        let _ignored = fields.append(&format!("x-{number}"), value.as_bytes());
    }
    fields
}

pub(crate) fn heads() -> ! {
    let (path, mut open) = (format!("/{}", "x".repeat(60_000)), Vec::new());
    loop {
        let request = OutgoingRequest::new(fields());
        let _ignored = request.set_method(&Method::Other("X".repeat(60)));
        let _ignored = request.set_authority(Some(&"x".repeat(1_000)));
        let _ignored = request.set_path_with_query(Some(&path));
        // No authority is that long, so this sets nothing.
        let _ignored = request.set_authority(Some(&"x".repeat(1 << 20)));
        open.push(request);
        black_box(&open);
    }
}

pub(crate) fn field_sets() -> ! {
    let mut open = Vec::new();
    loop {
        open.push(fields());
        black_box(&open);
    }
}

pub(crate) fn field_copies() -> ! {
    let (first, mut open) = (fields(), Vec::new());
    loop {
        let copy = first.clone();
        // A copy shares its memory until it is changed.
        let _ignored = copy.append("y", b"y");
        open.push(copy);
        black_box(&open);
    }
}

pub(crate) fn unsent_bodies() -> ! {
    let mut open = Vec::new();
    loop {
        let request = OutgoingRequest::new(Fields::new());
        let Ok(body) = request.body() else { continue };
        if let Ok(stream) = body.write() {
            write(&stream, 32);
            open.push((stream, body, request));
        }
        black_box(&open);
    }
}

/// Writes to all bodies in turn. Returns how many bytes the host took.
pub(crate) fn many_bodies(attempt: &Attempt) -> usize {
    let started: Vec<_> = (0..600).filter_map(|_| attempt.begin().ok()).collect();
    let streams: Vec<_> = started
        .iter()
        .filter_map(|started| started.body.as_ref().and_then(|body| OutgoingBody::write(body).ok()))
        .collect();
    let mut written = 0_usize;
    for _ in 0..400 {
        let before = written;
        for stream in &streams {
            written = written.saturating_add(write(stream, 4));
        }
        if written == before {
            // The host takes some of them before it takes more of any.
            wasip2::clocks::monotonic_clock::subscribe_duration(1_000_000).block();
        }
    }
    written
}

/// Writes chunks for as long as the host takes them at once. Returns how many bytes that were.
fn write(stream: &wasip2::io::streams::OutputStream, chunks: usize) -> usize {
    let chunk = [b'x'; CHUNK];
    let mut written = 0_usize;
    for _ in 0..chunks {
        match stream.check_write() {
            Ok(room) if room >= CHUNK as u64 && stream.write(&chunk).is_ok() => {
                written = written.saturating_add(CHUNK);
            }
            _ => break,
        }
    }
    written
}
