//! Describes the instance that the host runs on: one call, which asks the instance's own metadata service.

use async_trait::async_trait;
use pileus_cloud::{Error, LocalAnswer, LocalInstance, NodeReference};
use pileus_gate::Urgency;
use tokio::time::Instant;

use super::{Guest, explain};
use crate::call::call;
use crate::convert;
use crate::fault::Fault;

const DESCRIBE: &str = "describe-local-instance";

#[async_trait]
impl LocalInstance for Guest {
    async fn describe(&self, node: &NodeReference) -> Result<LocalAnswer, Error> {
        let started = Instant::now();
        let result = self.call_describe(node).await;
        self.count(DESCRIBE, started, &result, false);
        result.unwrap_or_else(|fault| Err(self.error(DESCRIBE, &fault)))
    }
}

impl Guest {
    async fn call_describe(&self, node: &NodeReference) -> Result<Result<LocalAnswer, Error>, Fault> {
        let Some(local_instance) = self.component.local_instance.clone() else {
            return Err(Fault::Contract("it exports no local-instance".to_owned()));
        };
        let deadlines = [self.limits.lookup_soft, self.limits.lookup_hard];
        // Reads nothing from the cache: the metadata service is next to the process, and its answer is about one Node.
        let options = self.read_options((DESCRIBE, 1), Urgency::Initialise, None, deadlines);
        let (denials, wit_node) = (options.denials.clone(), convert::node_to_wit(node));
        let answered = call(&self.component, options, move |store, instance| {
            Box::pin(async move {
                local_instance.load(&mut *store, &instance)?.call_describe(store, &wit_node).await
            })
        })
        .await?;
        let answer = match answered {
            Ok(answer) => convert::local_answer_from_wit(node, answer, &self.description.provider_id_schemes),
            Err(error) => Err(convert::error_from_wit(error)),
        };
        Ok(answer.map_err(|error| explain(error, &denials)))
    }
}
