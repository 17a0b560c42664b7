//! Rate limits as Azure has them: the resource manager counts by subscription and principal, the providers by subscription
//! and region, and the compute provider also by resource. All are token buckets. Pure.

mod policy;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use axum::http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::policy::{Limit, a_second, policy};
use crate::catalog::Provider;
use crate::id::Path;
use crate::refusal::Refusal;
use crate::request::Request;

/// Which rate limits there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Quotas {
    /// The model of the resource manager.
    pub manager: ManagerQuota,
    /// Whether the compute provider has its limits.
    pub compute: bool,
    /// Whether the network provider has its limits.
    pub network: bool,
    /// Whether the metadata service has its limits.
    pub metadata: bool,
    /// What all limits are multiplied by, for tests with few requests.
    pub scale: f64,
}

/// The rate limits of the resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManagerQuota {
    /// Token buckets by subscription and principal: 250 reads, 200 writes and 200 deletions, refilled by 25, 10 and 10 a
    /// second; 15 times as many for all principals together.
    TokenBucket,
    /// The former model: 12,000 reads, 1,200 writes and 15,000 deletions an hour.
    Hourly,
    /// No limit.
    None,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { manager: ManagerQuota::TokenBucket, compute: true, network: true, metadata: true, scale: 1.0 }
    }
}

impl Quotas {
    /// No limits.
    pub fn unlimited() -> Self {
        Self { manager: ManagerQuota::None, compute: false, network: false, metadata: false, scale: 1.0 }
    }
}

impl FromStr for Quotas {
    type Err = String;

    /// `azure`, `none`, or JSON.
    fn from_str(text: &str) -> Result<Self, String> {
        let quotas = match text {
            "azure" => Self::default(),
            "none" => Self::unlimited(),
            _ => serde_json::from_str(text)
                .map_err(|error| format!("invalid quotas: {error}; use azure, none or JSON"))?,
        };
        if quotas.scale > 0.0 { Ok(quotas) } else { Err("scale must be greater than 0".to_owned()) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Duration,
}

/// What is left of the limits.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    quotas: Quotas,
    buckets: BTreeMap<String, Bucket>,
}

/// A request counts against a limit under a name.
struct Charge {
    key: String,
    /// The policy, as headers name it.
    policy: String,
    limit: Limit,
}

impl Throttle {
    pub(crate) fn new(quotas: Quotas) -> Self {
        Self { quotas, buckets: BTreeMap::new() }
    }

    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Takes from all limits that a request counts against, or from none where one is used up. Returns the headers that say
    /// what is left.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        started_at: Timestamp,
        client: &str,
        request: &Request,
        place: (&str, bool),
    ) -> Result<Vec<(String, String)>, Refusal> {
        let path = Path::parse(&request.path);
        let subscription = path.as_ref().map_or("", |path| path.subscription.as_str()).to_lowercase();
        let mut headers = Vec::new();
        let manager = self.manager_charges(&subscription, client, &request.method);
        let left = self
            .charge(now, &manager)
            .map_err(|(charge, wait)| manager_refusal(charge, wait, &subscription))?;
        let names = manager.iter().map(|charge| format!("x-ms-ratelimit-remaining-{}", charge.policy));
        headers.extend(names.zip(left.iter().map(ToString::to_string)));
        let Some(path) = path else { return Ok(headers) };
        match path.namespace.as_deref().and_then(Provider::of) {
            Some(Provider::Compute) if self.quotas.compute && !path.segments.is_empty() => {
                let charges = compute_charges(&subscription, request, &path, place);
                let left = self
                    .charge(now, &charges)
                    .map_err(|(charge, wait)| compute_refusal(charge, wait, started_at + now))?;
                for (charge, left) in charges.iter().zip(left) {
                    let value = format!("Microsoft.Compute/{};{left}", charge.policy);
                    headers.push(("x-ms-ratelimit-remaining-resource".to_owned(), value));
                }
                headers.push(("x-ms-request-charge".to_owned(), "1".to_owned()));
            }
            Some(Provider::Network) if self.quotas.network && !path.segments.is_empty() => {
                let charge = network_charge(&subscription, request, place.0);
                self.charge(now, &[charge]).map_err(|(charge, wait)| network_refusal(charge, wait))?;
            }
            _ => {}
        }
        Ok(headers)
    }

    /// Takes from a limit of the metadata service.
    pub(crate) fn take_metadata(&mut self, now: Duration, name: &str, per_second: f64) -> bool {
        let limit = a_second(per_second, per_second);
        let charge = Charge { key: format!("metadata/{name}"), policy: String::new(), limit };
        !self.quotas.metadata || self.charge(now, &[charge]).is_ok()
    }

    fn manager_charges(&self, subscription: &str, client: &str, method: &Method) -> Vec<Charge> {
        let (what, burst, per_second, hourly) = match *method {
            Method::GET | Method::HEAD => ("reads", 250.0, 25.0, 12_000.0),
            Method::DELETE => ("deletes", 200.0, 10.0, 15_000.0),
            _ => ("writes", 200.0, 10.0, 1_200.0),
        };
        let scope = if subscription.is_empty() { "tenant" } else { "subscription" };
        let one = |name: String, key: String, limit| Charge { key, policy: name, limit };
        let own = format!("manager/{subscription}/{client}/{what}");
        match self.quotas.manager {
            ManagerQuota::None => Vec::new(),
            ManagerQuota::Hourly => {
                let limit = a_second(hourly / 3_600.0, hourly);
                vec![one(format!("{scope}-{what}"), own, limit)]
            }
            ManagerQuota::TokenBucket => {
                let all = format!("manager/{subscription}/all/{what}");
                let global = a_second(per_second * 15.0, burst * 15.0);
                vec![
                    one(format!("{scope}-{what}"), own, a_second(per_second, burst)),
                    one(format!("{scope}-global-{what}"), all, global),
                ]
            }
        }
    }

    /// Takes one from each limit, and returns what is left of each. Where one is used up: which, and for how many seconds.
    fn charge<'a>(&mut self, now: Duration, charges: &'a [Charge]) -> Result<Vec<u64>, (&'a Charge, u64)> {
        let scale = self.quotas.scale;
        for Charge { key, limit, .. } in charges {
            let bucket =
                self.buckets.entry(key.clone()).or_insert(Bucket { tokens: limit.burst * scale, at: now });
            let elapsed = now.saturating_sub(bucket.at).as_secs_f64();
            bucket.tokens = (bucket.tokens + elapsed * limit.per_second * scale).min(limit.burst * scale);
            bucket.at = now;
        }
        let empty =
            charges.iter().find(|charge| self.buckets.get(&charge.key).is_some_and(|it| it.tokens < 1.0));
        if let Some(charge) = empty {
            let tokens = self.buckets.get(&charge.key).map_or(0.0, |bucket| bucket.tokens);
            let wait = (1.0 - tokens) / (charge.limit.per_second * scale);
            return Err((charge, whole(wait.ceil()).max(1)));
        }
        let mut left = Vec::new();
        for Charge { key, .. } in charges {
            if let Some(bucket) = self.buckets.get_mut(key) {
                bucket.tokens -= 1.0;
                left.push(whole(bucket.tokens));
            }
        }
        Ok(left)
    }
}

/// A number that is at least 0 and far below 2⁵³, without its fraction.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is documented")]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

fn compute_charges(
    subscription: &str,
    request: &Request,
    path: &Path,
    (region, exists): (&str, bool),
) -> Vec<Charge> {
    let (name, of_resource, of_subscription) = policy(&request.method, path, exists);
    let resource = of_resource.map(|limit| Charge {
        key: format!("compute/{name}/{}", request.path.to_lowercase()),
        policy: format!("{name}Resource"),
        limit,
    });
    let subscription = Charge {
        key: format!("compute/{name}/{subscription}/{region}"),
        policy: format!("{name}SubscriptionMaximum"),
        limit: of_subscription,
    };
    resource.into_iter().chain([subscription]).collect()
}

fn network_charge(subscription: &str, request: &Request, region: &str) -> Charge {
    let (what, amount) = if request.method == Method::GET { ("Read", 10_000.0) } else { ("Write", 1_000.0) };
    Charge {
        key: format!("network/{subscription}/{region}/{what}"),
        policy: format!("{what}_ObservationWindow_00:05:00"),
        limit: a_second(amount / 300.0, amount),
    }
}

fn manager_refusal(charge: &Charge, wait: u64, subscription: &str) -> Refusal {
    let message = format!(
        "Number of '{}' requests for subscription '{subscription}' exceeded. Please try again after '{wait}' seconds after \
         additional tokens are available. Refer to https://aka.ms/arm-throttling for additional information.",
        charge.policy
    );
    Refusal::gateway(429, "SubscriptionRequestsThrottled", message)
        .with_header("retry-after", wait.to_string())
        .with_header(&format!("x-ms-ratelimit-remaining-{}", charge.policy), "0")
}

fn network_refusal(charge: &Charge, wait: u64) -> Refusal {
    let message = format!(
        "The request is being throttled as the limit has been reached for operation type - {}. For more information, see \
         aka.ms/networkthrottling",
        charge.policy
    );
    Refusal::network(429, "TooManyRequests", message).with_header("retry-after", wait.to_string())
}

/// The compute provider writes a JSON document into the message of the detail, and may leave out the outer error.
fn compute_refusal(charge: &Charge, wait: u64, now: Timestamp) -> Refusal {
    let allowed = whole(charge.limit.burst);
    let detail = json!({
        "operationGroup": charge.policy, "startTime": now.to_string(), "endTime": now.to_string(),
        "allowedRequestCount": allowed, "measuredRequestCount": allowed + 1,
    });
    let message =
        "The server rejected the request because too many requests have been received for this subscription.";
    Refusal::new(429, "OperationNotAllowed", message)
        .bare()
        .with_targeted_detail("TooManyRequests", detail.to_string(), &charge.policy)
        .with_header("retry-after", wait.to_string())
        .with_header("x-ms-ratelimit-remaining-resource", format!("Microsoft.Compute/{};0", charge.policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str) -> Request {
        Request::new(method, "https://arm", path)
    }

    fn get(throttle: &mut Throttle, at: Duration, path: &str) -> Result<Vec<(String, String)>, Refusal> {
        throttle.take(at, Timestamp::UNIX_EPOCH, "me", &request(Method::GET, path), ("eastus", true))
    }

    #[test]
    fn the_manager_refuses_the_251st_read_and_lets_25_more_in_a_second_later() {
        let mut throttle = Throttle::new(Quotas { network: false, ..Quotas::default() });
        let path = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/routeTables/r";
        let headers = get(&mut throttle, Duration::ZERO, path).unwrap();
        assert!(
            headers.contains(&("x-ms-ratelimit-remaining-subscription-reads".to_owned(), "249".to_owned()))
        );
        assert!(
            headers.contains(&(
                "x-ms-ratelimit-remaining-subscription-global-reads".to_owned(),
                "3749".to_owned()
            ))
        );
        for _ in 1..250 {
            get(&mut throttle, Duration::ZERO, path).unwrap();
        }
        let refusal = get(&mut throttle, Duration::ZERO, path).unwrap_err();
        assert_eq!((refusal.status, refusal.code.as_str()), (429, "SubscriptionRequestsThrottled"));
        assert_eq!(refusal.response().header("retry-after"), Some("1"));
        let later = (0..30).filter(|_| get(&mut throttle, Duration::from_secs(1), path).is_ok()).count();
        assert_eq!(later, 25);
        let other = throttle.take(
            Duration::ZERO,
            Timestamp::UNIX_EPOCH,
            "other",
            &request(Method::GET, path),
            ("eastus", true),
        );
        assert!(other.is_ok(), "another principal has a bucket of its own");
    }

    #[test]
    fn the_compute_provider_refuses_without_an_outer_error_and_names_the_policy() {
        let mut throttle = Throttle::new(Quotas { manager: ManagerQuota::None, ..Quotas::default() });
        let path = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
        let mut lasts = 0;
        let refusal = loop {
            match get(&mut throttle, Duration::ZERO, path) {
                Ok(_) => lasts += 1,
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(lasts, 36, "a resource may be read 36 times at once");
        let response = refusal.response();
        let body = response.body.clone().unwrap();
        assert_eq!(body["code"], "OperationNotAllowed");
        assert_eq!(body["details"][0]["code"], "TooManyRequests");
        assert_eq!(body["details"][0]["target"], "LowCostGetResource");
        assert_eq!(
            response.header("x-ms-ratelimit-remaining-resource"),
            Some("Microsoft.Compute/LowCostGetResource;0")
        );
    }

    #[test]
    fn the_network_provider_refuses_the_1001st_write_in_a_region() {
        let mut throttle = Throttle::new(Quotas { manager: ManagerQuota::None, ..Quotas::default() });
        let path = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/routeTables/r";
        let mut put = |region| {
            throttle.take(
                Duration::ZERO,
                Timestamp::UNIX_EPOCH,
                "me",
                &request(Method::PUT, path),
                (region, true),
            )
        };
        assert_eq!((0..1_001).filter(|_| put("eastus").is_ok()).count(), 1_000);
        let refusal = put("eastus").unwrap_err();
        assert_eq!((refusal.status, refusal.code.as_str()), (429, "TooManyRequests"));
        assert!(put("westeurope").is_ok());
    }
}
