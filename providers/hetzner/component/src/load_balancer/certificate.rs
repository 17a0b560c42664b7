//! The certificates that Services name: their numbers, and the ones that Hetzner manages for a Service.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pileus_guest::http::{self, Collection, NumericId};
use pileus_guest::operation::{Status, Written};
use pileus_guest::{Error, Steps, Task};
use serde::Deserialize;
use serde_json::json;

use super::spec::{Certificate, Spec};
use super::{CERTIFICATE, UID};
use crate::Hetzner;

/// A certificate in the cloud.
#[derive(Deserialize)]
struct Stored {
    id: NumericId,
}

impl Hetzner {
    /// Finds the numbers of the certificates that Services name.
    pub(super) async fn find_certificates(&self, steps: &mut Steps<'_, Spec<'_>>) {
        let ids = RefCell::new(BTreeMap::new());
        let find = async |certificate: &Certificate, _: &[&_]| {
            let id = self.certificate(certificate).await?;
            ids.borrow_mut().insert(certificate.clone(), id);
            Ok(Status::Succeeded)
        };
        let named = |task: &Task<'_, Spec<'_>>| {
            task.desired.as_ref().map(|spec| spec.certificates.clone()).unwrap_or_default()
        };
        steps.things(CERTIFICATE, named, find).await;
        let ids = ids.into_inner();
        steps
            .free_mut()
            .filter_map(|task| task.desired.as_mut())
            .for_each(|spec| spec.set_certificates(&ids));
    }

    async fn certificate(&self, certificate: &Certificate) -> Result<NumericId, Error> {
        match certificate {
            Certificate::Uploaded(name) => {
                // A number needs no search.
                if let Ok(id) = name.parse() {
                    return Ok(id);
                }
                let unknown = || Error::invalid(format!("there is no certificate {name}"));
                self.stored("name", name).await?.ok_or_else(unknown)
            }
            Certificate::Managed { uid, name, domains, is_test } => {
                if let Some(id) = self.stored("label_selector", &format!("{UID}=={uid}")).await? {
                    return Ok(id);
                }
                let mut labels = BTreeMap::from([(UID, &**uid)]);
                labels.extend(is_test.then_some(("HC-Use-Staging-CA", "true")));
                let body =
                    json!({"name": name, "type": "managed", "domain_names": domains, "labels": labels});
                let all = self.certificates();
                match all.write(http::post(all.list_url()).json(&body)).await? {
                    Written::Whole(created) => Ok(created.id),
                    Written::Step(_) | Written::Gone => {
                        Err(Error::broken("the cloud returned no ID of a new certificate"))
                    }
                }
            }
        }
    }

    /// The number of the first certificate that a filter of the list selects.
    async fn stored(&self, filter: &str, value: &str) -> Result<Option<NumericId>, Error> {
        let found = self.certificates().list_query(filter, value).list().await?;
        Ok(found.first().map(|stored| stored.id))
    }

    fn certificates(&self) -> Collection<Stored> {
        self.collection("certificate")
    }
}
