//! Previews for the tests of the two formats.

use pileus_gate::WantedWrite;

use super::attribution::{DryRunResult, SharedWrite};
use super::preview::{Action, ChangeResult, Findings, Identity, Preview, PreviewedChange, Section};

fn write(url: &str, body: &str, body_size: usize) -> WantedWrite {
    let (method, url) = ("PUT".to_owned(), format!("http://cloud.test/v1/{url}"));
    WantedWrite { method, url, body: body.to_owned().into(), body_size }
}

fn change(action: Action, object: &str, reason: &str, result: ChangeResult) -> PreviewedChange {
    PreviewedChange { action, object: object.to_owned(), reason: reason.to_owned(), result }
}

/// One with a change of each kind.
pub(super) fn preview() -> Preview {
    let missing = "type LoadBalancer without a load balancer";
    let differs = "its targets or what it wants differ from the cloud";
    let rejected = ChangeResult::Rejected("spec.ports is empty".to_owned());
    let load_balancers = Findings {
        settled: 12,
        changes: vec![
            change(
                Action::Create,
                "default/a",
                missing,
                ChangeResult::DryRun(DryRunResult::Writes(vec![write("a", "{\"port\": 80}", 12)])),
            ),
            change(
                Action::Change,
                "default/b",
                differs,
                ChangeResult::DryRun(DryRunResult::Writes(Vec::new())),
            ),
            change(Action::Change, "default/c", differs, ChangeResult::DryRun(DryRunResult::InProgress)),
            change(Action::Change, "default/d", "the Service is invalid", rejected),
            change(
                Action::Create,
                "default/e",
                missing,
                ChangeResult::DryRun(DryRunResult::Failed("no quota".to_owned())),
            ),
        ],
        shared_writes: vec![SharedWrite {
            write: write("shared\x1b[31mred", "{\"many\":", 9_000),
            items: vec!["default/a".to_owned(), "default/b".to_owned()],
        }],
        left_out: 0,
        notes: Vec::new(),
    };
    let routes = Findings {
        settled: 40,
        changes: vec![
            change(
                Action::Delete,
                "10.0.1.0/24 (r)",
                "blackhole: it leads nowhere",
                ChangeResult::DryRun(DryRunResult::Writes(vec![write("r", "", 0)])),
            ),
            change(
                Action::Create,
                "10.0.1.0/24",
                "node a has no route for 10.0.1.0/24",
                ChangeResult::Follows,
            ),
        ],
        notes: vec!["node n gets no route".to_owned()],
        ..Findings::default()
    };
    Preview {
        load_balancers: Section::Planned(load_balancers),
        routes: Section::Planned(routes),
        ..settled()
    }
}

/// One without pending changes.
pub(super) fn settled() -> Preview {
    Preview {
        provider: Identity {
            name: "sim".to_owned(),
            component: "simulated".to_owned(),
            version: "0.1.0".to_owned(),
            digest: "sha256:1".to_owned(),
        },
        cluster: ("kubernetes".to_owned(), Some("uid".to_owned())),
        load_balancers: Section::Planned(Findings { settled: 1, ..Findings::default() }),
        routes: Section::NotApplicable("routes are managed only with --cluster-cidr".to_owned()),
    }
}
