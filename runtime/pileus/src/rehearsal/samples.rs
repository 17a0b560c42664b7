//! A plan with a bit of everything, for the tests of how it is told.

use pileus_gate::WantedWrite;

use super::apart::Verdict;
use super::outlook::{Change, End, Findings, Identity, Outlook, Part, Shared, Verb};

fn write(url: &str, body: &str, body_size: usize) -> WantedWrite {
    let (method, url) = ("PUT".to_owned(), format!("http://cloud.test/v1/{url}"));
    WantedWrite { method, url, body: body.to_owned().into(), body_size }
}

fn change(verb: Verb, object: &str, reason: &str, end: End) -> Change {
    Change { verb, object: object.to_owned(), reason: reason.to_owned(), end }
}

/// One where something of each kind is to be told.
pub(super) fn outlook() -> Outlook {
    let missing = "type LoadBalancer without a load balancer";
    let differs = "its targets or what it wants differ from the cloud";
    let refused = End::Refused("spec.ports is empty".to_owned());
    let load_balancers = Findings {
        settled: 12,
        changes: vec![
            change(
                Verb::Create,
                "default/a",
                missing,
                End::Told(Verdict::Writes(vec![write("a", "{\"port\": 80}", 12)])),
            ),
            change(Verb::Change, "default/b", differs, End::Told(Verdict::Writes(Vec::new()))),
            change(Verb::Change, "default/c", differs, End::Told(Verdict::UnderWay)),
            change(Verb::Change, "default/d", "something is wrong with it", refused),
            change(Verb::Create, "default/e", missing, End::Told(Verdict::Failed("no quota".to_owned()))),
        ],
        together: vec![Shared {
            write: write("shared\x1b[31mred", "{\"many\":", 9_000),
            by: vec!["default/a".to_owned(), "default/b".to_owned()],
        }],
        left_out: 0,
        notes: Vec::new(),
    };
    let routes = Findings {
        settled: 40,
        changes: vec![
            change(
                Verb::Delete,
                "10.0.1.0/24 (r)",
                "blackhole: it leads nowhere",
                End::Told(Verdict::Writes(vec![write("r", "", 0)])),
            ),
            change(Verb::Create, "10.0.1.0/24", "node a has no route for 10.0.1.0/24", End::Next),
        ],
        notes: vec!["node n gets no route".to_owned()],
        ..Findings::default()
    };
    Outlook { load_balancers: Part::Seen(load_balancers), routes: Part::Seen(routes), ..settled() }
}

/// One where there is nothing to do.
pub(super) fn settled() -> Outlook {
    Outlook {
        provider: Identity {
            name: "sim".to_owned(),
            component: "simulated".to_owned(),
            version: "0.1.0".to_owned(),
            digest: "sha256:1".to_owned(),
        },
        cluster: ("kubernetes".to_owned(), Some("uid".to_owned())),
        load_balancers: Part::Seen(Findings { settled: 1, ..Findings::default() }),
        routes: Part::Nothing("no routes are kept".to_owned()),
    }
}
