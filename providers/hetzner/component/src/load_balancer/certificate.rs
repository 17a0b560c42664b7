//! The certificates that Services name: their numbers, and the ones that Hetzner manages for a Service.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pileus_guest::http::{self, NumericId};
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
        let stored = self.collection::<Stored>("certificate");
        let (parameter, value) = match certificate {
            Certificate::Uploaded(id_or_name) => match id_or_name.parse() {
                Ok(id) => return Ok(id),
                Err(_) => ("name", id_or_name.clone()),
            },
            Certificate::Managed { uid, .. } => ("label_selector", format!("{UID}=={uid}")),
        };
        let url = stored.list_url();
        if let Some(found) = stored.list_query(parameter, value).list().await?.first() {
            return Ok(found.id);
        }
        let Certificate::Managed { uid, name, domains, is_test } = certificate else {
            let Certificate::Uploaded(name) = certificate else { unreachable!() };
            return Err(Error::invalid(format!("there is no certificate {name}")));
        };
        let mut labels = BTreeMap::from([(UID, &**uid)]);
        labels.extend(is_test.then_some(("HC-Use-Staging-CA", "true")));
        let body = json!({"name": name, "type": "managed", "domain_names": domains, "labels": labels});
        match self.collection::<Stored>("certificate").write(http::post(url).json(&body)).await? {
            Written::Whole(created) => Ok(created.id),
            Written::Step(_) | Written::Gone => Err(Error::broken("a new certificate has no number")),
        }
    }
}
