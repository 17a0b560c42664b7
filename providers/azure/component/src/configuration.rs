//! Reads azure.json as it is today: keys without regard to case, unknown keys ignored with a notice, secrets refused with the
//! place where they belong, and keys without effect here accepted with a notice. `configuration::keys` has the keys.

pub(crate) mod keys;
mod rate_limits;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use keys::{Effect, Key, Kind};
use pileus_guest::Problem;
use pileus_guest::http::BaseUrl;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::arm::tags::Tags;
use crate::environment::{Environment, Identity};

/// How many routes a table has at most, unless Azure's support has raised it.
const MAX_ROUTES: u64 = 400;

/// The metadata service of each machine.
const METADATA: &str = "http://169.254.169.254";

/// azure.json, as the operator wrote it.
pub struct Configuration(Map<String, Value>);

/// Azure, as an operator configures it.
pub struct Azure {
    pub(crate) environment: Environment,
    pub(crate) identity: Identity,
    /// Empty for a node manager that asks the metadata service alone.
    pub(crate) subscription: String,
    /// In lower case.
    pub(crate) resource_group: String,
    pub(crate) location: String,
    /// Whether the cluster may have machines of uniform scale sets.
    pub(crate) has_scale_sets: bool,
    /// Whether lists of scale sets come with power states.
    pub(crate) lists_power_states: bool,
    /// How old a Node must be before a machine that isn't found counts as absent.
    pub(crate) grace: Duration,
    pub(crate) route_table: RouteTableName,
    pub(crate) tags: Tags,
    /// The metadata service, if the provider may ask it.
    pub(crate) metadata: Option<BaseUrl>,
    pub(crate) notices: Vec<Problem>,
}

/// Which route table it is.
pub(crate) struct RouteTableName {
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    pub(crate) name: Option<String>,
    pub(crate) maximum: usize,
}

impl<'de> Deserialize<'de> for Configuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for Configuration {
    fn schema_name() -> Cow<'static, str> {
        "Azure".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let property = |Key { name, kind, effect, meaning }: &Key| {
            let kind = match kind {
                Kind::Text => "string",
                Kind::Flag => "boolean",
                Kind::Number => "number",
                Kind::Object => "object",
                Kind::List => "array",
            };
            let is_deprecated = matches!(effect, Effect::Nothing(_) | Effect::Later);
            let description = describe(*effect, meaning);
            let property =
                json!({"type": [kind, "null"], "description": description, "deprecated": is_deprecated});
            ((*name).to_owned(), property)
        };
        let secret = |key: &&Key| !matches!(key.effect, Effect::Secret(_));
        let properties: Map<_, _> = keys::KEYS.iter().filter(secret).map(property).collect();
        let description = "azure.json of cloud-provider-azure. Keys are compared without regard to case.";
        let schema = json!({"type": "object", "description": description, "properties": properties});
        Schema::try_from(schema).unwrap_or_default()
    }
}

/// What a key means and does, in one sentence.
pub(crate) fn describe(effect: Effect, meaning: &str) -> String {
    match effect {
        Effect::Read | Effect::Credential => meaning.to_owned(),
        Effect::Secret(place) => format!("{meaning}. Refused: it belongs {place}"),
        Effect::Later => format!("{meaning}. Without effect yet: load balancers aren't managed yet"),
        Effect::Nothing(why) => format!("{meaning}. Without effect: {why}"),
    }
}

/// The values of the document that mean something, by the name of their key.
pub(crate) struct Values {
    by_name: BTreeMap<&'static str, Value>,
    problems: Vec<Problem>,
}

impl Values {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.by_name.get(name)?.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    /// The text as it is written: blanks may mean something.
    pub(crate) fn whole_text(&self, name: &str) -> Option<&str> {
        self.by_name.get(name)?.as_str().filter(|text| !text.trim().is_empty())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.by_name.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.by_name.get(name)?.as_u64()
    }

    /// Reads a URL, or reports what is wrong with it.
    pub(crate) fn url(&mut self, name: &'static str) -> Option<BaseUrl> {
        let parsed = BaseUrl::parse(self.text(name)?);
        parsed.map_err(|message| self.problems.push(Problem::new(name, message))).ok()
    }

    pub(crate) fn problem(&mut self, path: &str, message: &str) {
        self.problems.push(Problem::new(path, message));
    }

    /// The text of a key that is required.
    fn required(&mut self, name: &'static str) -> String {
        let text = self.text(name).map(str::to_owned);
        if text.is_none() {
            self.problem(name, "missing, set it");
        }
        text.unwrap_or_default()
    }
}

/// What has no effect, by the reason.
#[derive(Default)]
struct Ignored(BTreeMap<String, Vec<String>>);

impl Ignored {
    fn add(&mut self, why: impl Into<String>, key: &str) {
        self.0.entry(why.into()).or_default().push(key.to_owned());
    }

    /// One notice for each reason, because an azure.json has many such keys.
    fn notices(self) -> impl Iterator<Item = Problem> {
        self.0.into_iter().map(|(why, keys)| match &*keys {
            [key] => Problem::new(key, format!("it has no effect: {why}")),
            keys => Problem::new("", format!("{} have no effect: {why}", keys.join(", "))),
        })
    }
}

impl Configuration {
    /// Sorts the keys by what they do.
    fn sort(self) -> (Values, Ignored) {
        let mut values = Values { by_name: BTreeMap::new(), problems: Vec::new() };
        let mut ignored = Ignored::default();
        for (given, value) in self.0 {
            if value.is_null() {
                continue;
            }
            let Some(key) = keys::find(&given) else {
                ignored.add("cloud-provider-azure has no such key, correct its name or remove it", &given);
                continue;
            };
            if !has_kind(&value, key.kind) {
                let expected = format!("expected {}", article(key.kind));
                values.problem(&given, &expected);
                continue;
            }
            match key.effect {
                Effect::Secret(_) if is_placeholder(&value) => {}
                Effect::Secret(place) => {
                    let message =
                        format!("a configuration holds no secret; remove it and put it into {place}");
                    values.problem(&given, &message.replace("into nowhere: ", "nowhere: "));
                }
                Effect::Later => ignored.add("load balancers aren't managed yet", key.name),
                Effect::Nothing(why) => ignored.add(why, key.name),
                Effect::Read | Effect::Credential => {
                    if values.by_name.insert(key.name, value).is_some() {
                        values.problem(&given, "it is there twice, in different case; remove one");
                    }
                }
            }
        }
        (values, ignored)
    }

    /// Makes the provider, or lists everything that is wrong.
    pub(crate) fn check(self) -> Result<Azure, Vec<Problem>> {
        let (mut values, ignored) = self.sort();
        let environment = Environment::read(&mut values);
        let is_local = values.flag("useInstanceMetadata");
        let metadata = values.url("metadataEndpoint").or_else(|| BaseUrl::parse(METADATA).ok());
        let is_only_local = is_local && values.text("subscriptionId").is_none();
        let (subscription, resource_group) = if is_only_local {
            (String::new(), String::new())
        } else {
            (values.required("subscriptionId"), values.required("resourceGroup").to_lowercase())
        };
        let vm_type = values.text("vmType").unwrap_or("vmss").to_lowercase();
        if !["vmss", "vmssflex", "standard"].contains(&&*vm_type) {
            values.problem("vmType", "expected vmss, vmssflex or standard");
        }
        let tags = match Tags::read(&values) {
            Ok(tags) => tags,
            Err((key, message)) => {
                values.problem(key, &message);
                Tags::default()
            }
        };
        let route_table = route_table(&values, &subscription, &resource_group);
        let mut notices: Vec<_> = ignored.notices().collect();
        notices.extend(environment.notice.clone());
        let identity = Identity::read(&values, &environment, &mut notices);
        if !values.problems.is_empty() {
            return Err(values.problems);
        }
        Ok(Azure {
            environment,
            identity,
            subscription,
            resource_group,
            location: values.text("location").unwrap_or_default().to_owned(),
            has_scale_sets: vm_type != "standard",
            lists_power_states: !values.flag("listVmssVirtualMachinesWithoutInstanceView"),
            grace: Duration::from_secs(
                values.number("nodeInstanceNotFoundGracePeriodInSeconds").unwrap_or_default(),
            ),
            route_table,
            tags,
            metadata: metadata.filter(|_| is_local),
            notices,
        })
    }
}

fn route_table(values: &Values, subscription: &str, resource_group: &str) -> RouteTableName {
    let maximum = values.number("maximumRouteCount").unwrap_or(MAX_ROUTES);
    RouteTableName {
        subscription: values.text("networkResourceSubscriptionID").unwrap_or(subscription).to_owned(),
        resource_group: values.text("routeTableResourceGroup").unwrap_or(resource_group).to_owned(),
        name: values.text("routeTableName").map(str::to_owned),
        maximum: usize::try_from(maximum).unwrap_or(usize::MAX),
    }
}

impl Values {
    /// The tags that an object has as text.
    pub(crate) fn texts(&self, name: &'static str) -> Result<Vec<(String, String)>, String> {
        let Some(Value::Object(map)) = self.by_name.get(name) else { return Ok(Vec::new()) };
        let pair = |(key, value): (&String, &Value)| match value {
            Value::String(value) => Ok((key.clone(), value.clone())),
            _ => Err(format!("the tag {key} is not a text")),
        };
        map.iter().map(pair).collect()
    }
}

/// What templates of older clusters write in place of a secret that there is not.
fn is_placeholder(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.is_empty() || text == "msi")
}

fn has_kind(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Text => value.is_string(),
        Kind::Flag => value.is_boolean(),
        Kind::Number => value.is_number(),
        Kind::Object => value.is_object(),
        Kind::List => value.is_array(),
    }
}

const fn article(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "a text",
        Kind::Flag => "true or false",
        Kind::Number => "a number",
        Kind::Object => "an object",
        Kind::List => "a list",
    }
}
