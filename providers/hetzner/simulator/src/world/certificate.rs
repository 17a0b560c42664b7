//! Certificates, as far as clients resolve them by name or ID. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::World;
use super::label::{self, Labels};
use super::listing::Listed;
use crate::refusal::{Code, Refusal};

/// How long certificates are valid.
const LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Where a certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateType {
    /// The cloud issues and renews it.
    Managed,
    /// Its owner has uploaded it.
    Uploaded,
}

/// A new certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewCertificate {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: CertificateType,
    /// Its domains.
    #[serde(default)]
    pub domain_names: Vec<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: Labels,
}

/// A certificate.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    pub(super) id: u64,
    name: String,
    kind: CertificateType,
    domain_names: Vec<String>,
    labels: Labels,
    created: Duration,
}

impl Certificate {
    pub(super) fn view(&self, world: &World) -> Value {
        let Self { id, name, kind, domain_names, labels, created } = self;
        let status = (*kind == CertificateType::Managed)
            .then(|| json!({"issuance": "completed", "renewal": "scheduled", "error": null}));
        let used_by: Vec<_> = world
            .load_balancers
            .values()
            .filter(|it| it.certificates().contains(id))
            .map(|it| json!({"id": it.id, "type": "load_balancer"}))
            .collect();
        json!({
            "id": id, "name": name, "type": kind, "domain_names": domain_names, "labels": labels,
            "created": world.time(*created), "not_valid_before": world.time(*created),
            "not_valid_after": world.time(*created + LIFETIME), "certificate": "simulated",
            "fingerprint": format!("simulated-{id}"), "status": status, "used_by": used_by,
        })
    }
}

impl World {
    /// Creates a certificate. Returns its ID.
    pub fn create_certificate(&mut self, now: Duration, new: NewCertificate) -> Result<u64, Refusal> {
        self.advance(now);
        let NewCertificate { name, kind, domain_names, labels } = new;
        label::check(&labels)?;
        if self.certificates.values().any(|certificate| certificate.name == name) {
            return Err(Refusal::new(Code::UniquenessError, "certificate name is already used"));
        }
        let id = self.next_id();
        let created = self.now;
        self.certificates.insert(id, Certificate { id, name, kind, domain_names, labels, created });
        Ok(id)
    }
}

impl Listed for Certificate {
    const FILTERS: &'static [&'static str] = &["name", "label_selector"];
    const SORTS: &'static [&'static str] = &["id", "name", "created"];

    fn id(&self) -> u64 {
        self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn labels(&self) -> Option<&Labels> {
        Some(&self.labels)
    }
}
