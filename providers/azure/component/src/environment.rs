//! The clouds and their endpoints, and which credential a configuration describes. Values of one provider: nothing is global,
//! so two providers of different clouds don't meet.

use pileus_guest::http::BaseUrl;
use pileus_guest::{CredentialHint, Problem};

use crate::configuration::Values;

/// A cloud: where its resource manager is, and who gives out tokens for it.
pub(crate) struct Environment {
    pub(crate) arm: BaseUrl,
    /// The URL of the token service, without a slash at its end. None where the configuration doesn't say.
    authority: Option<String>,
    /// The audience of tokens, without a slash at its end.
    audience: Option<String>,
    /// Whether the API versions are those of Azure Stack.
    pub(crate) is_stack: bool,
    pub(crate) notice: Option<Problem>,
}

/// The clouds that Microsoft runs: name, token service, resource manager, audience.
pub(crate) const CLOUDS: [(&str, &str, &str, &str); 3] = [
    ("AzurePublicCloud", "login.microsoftonline.com", "management.azure.com", "management.core.windows.net"),
    (
        "AzureChinaCloud",
        "login.chinacloudapi.cn",
        "management.chinacloudapi.cn",
        "management.core.chinacloudapi.cn",
    ),
    (
        "AzureUSGovernmentCloud",
        "login.microsoftonline.us",
        "management.usgovcloudapi.net",
        "management.core.usgovcloudapi.net",
    ),
];

const STACK: &str = "AzureStackCloud";

impl Environment {
    /// Reads which cloud it is. Problems are added to those of the values.
    pub(crate) fn read(values: &mut Values) -> Self {
        let name = values.text("cloud").unwrap_or("AzurePublicCloud").to_owned();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let is_stack_cloud = is(STACK);
        let known = CLOUDS.iter().find(|(cloud, ..)| {
            is(cloud) || (*cloud == "AzurePublicCloud" && is("AzureCloud")) || {
                *cloud == "AzureUSGovernmentCloud" && is("AzureUSGovernment")
            }
        });
        let unknown = format!("`{name}` is not a known cloud, so it is taken for AzurePublicCloud");
        let notice = (known.is_none() && !is_stack_cloud).then(|| Problem::new("cloud", unknown));
        let (_, authority, arm, audience) = known.unwrap_or(&CLOUDS[0]);
        let given = values.url("resourceManagerEndpoint");
        if is_stack_cloud && given.is_none() {
            values.problem(
                "resourceManagerEndpoint",
                "Azure Stack has a resource manager of its own, name its URL",
            );
        }
        let public = |host: &str| (!is_stack_cloud).then(|| format!("https://{host}"));
        let https =
            |name: &str, values: &Values| values.text(name).map(|url| url.trim_end_matches('/').to_owned());
        Self {
            arm: given
                .or_else(|| BaseUrl::parse(&format!("https://{arm}")).ok())
                .unwrap_or_else(unreachable_url),
            authority: https("activeDirectoryEndpoint", values).or_else(|| public(authority)),
            audience: https("tokenAudience", values).or_else(|| public(audience)),
            is_stack: is_stack_cloud && !values.flag("disableAzureStackCloud"),
            notice,
        }
    }
}

fn unreachable_url() -> BaseUrl {
    // The texts of the table are URLs, so this never happens.
    unreachable!("a cloud without a URL")
}

/// The identity that the configuration describes.
pub(crate) struct Identity {
    /// What the CloudProvider document's credential looks like. None if the configuration describes none.
    pub(crate) hint: Option<CredentialHint>,
}

impl Identity {
    /// Reads which credential it is. Of several, the first in cloud-provider-azure's order counts.
    pub(crate) fn read(values: &Values, environment: &Environment, notices: &mut Vec<Problem>) -> Self {
        let text = |name: &str| values.text(name);
        let kind = if values.flag("useFederatedWorkloadIdentityExtension") {
            Some("workloadIdentity")
        } else if values.flag("useManagedIdentityExtension") {
            Some("managedIdentity")
        } else if text("aadClientCertPath").is_some() {
            Some("clientCertificate")
        } else if text("aadClientId").is_some_and(|id| id != "msi") {
            Some("clientSecret")
        } else {
            None
        };
        let tenant = text("tenantId");
        let is_adfs = [tenant, text("identitySystem")]
            .iter()
            .any(|text| text.is_some_and(|text| text.eq_ignore_ascii_case("adfs")));
        if let Some(other) = text("networkResourceTenantID").filter(|other| Some(*other) != tenant) {
            let message = format!(
                "the network resources are in tenant {other}: give spec.credentials a second credential of that tenant, and name it \
                 in `auxiliary` of the first"
            );
            notices.push(Problem::new("networkResourceTenantID", message));
        }
        if kind == Some("clientCertificate") {
            let message =
                "the document's credential names the certificate and its key as PEM; convert a PFX file";
            notices.push(Problem::new("aadClientCertPath", message));
        }
        let hint = kind.map(|kind| match kind {
            "managedIdentity" => managed(values, environment),
            kind => client(kind, values, environment, is_adfs),
        });
        if hint.is_some() && (environment.authority.is_none() || environment.audience.is_none()) {
            let message = "name activeDirectoryEndpoint and tokenAudience, as the resource manager's \
                           /metadata/endpoints?api-version=2019-05-01 tells them";
            notices.push(Problem::new("resourceManagerEndpoint", message));
        }
        Self { hint }
    }
}

/// A credential of a client that has its tokens from Entra or AD FS.
fn client(kind: &str, values: &Values, environment: &Environment, is_adfs: bool) -> CredentialHint {
    let Environment { authority, audience, .. } = environment;
    let mut hint = CredentialHint::new(kind);
    if let Some(authority) = authority {
        let authority = authority.trim_end_matches("/adfs");
        let tenant = values.text("tenantId").unwrap_or("TENANT");
        let url = if is_adfs {
            format!("{authority}/adfs/oauth2/token")
        } else {
            format!("{authority}/{tenant}/oauth2/v2.0/token")
        };
        hint = hint.value("tokenURL", url);
    }
    hint = hint.value("clientID", values.text("aadClientId").unwrap_or("CLIENT"));
    match audience {
        Some(audience) if is_adfs => hint.value("resource", audience),
        Some(audience) => hint.value("scope", format!("{audience}/.default")),
        None => hint,
    }
}

/// A managed identity. A user-assigned one is named by its client ID or its resource ID.
fn managed(values: &Values, environment: &Environment) -> CredentialHint {
    let mut hint = CredentialHint::new("managedIdentity");
    if let Some(audience) = &environment.audience {
        hint = hint.value("resource", format!("{audience}/"));
    }
    match values.text("userAssignedIdentityID") {
        Some(id) if id.to_ascii_lowercase().contains("/subscriptions/") => hint.value("resourceID", id),
        Some(id) => hint.value("clientID", id),
        None => hint,
    }
}
