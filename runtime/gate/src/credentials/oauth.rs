//! Token requests: the forms of OAuth 2.0 client credentials, and the query of Azure's metadata service.

use secrecy::{ExposeSecret, SecretString};
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::credentials::spec::{IdentityId, OAuthClient, TokenTarget};

/// More than the longest secret or assertion takes with percent-encoding, so that a form never grows and leaves copies
/// behind.
const CAPACITY: usize = 4 * 64 * 1024;

const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The form with a client's secret (RFC 6749, 2.3.1).
pub(crate) fn with_secret(client: &OAuthClient, secret: &SecretString) -> Zeroizing<String> {
    form(client, &[("client_secret", secret.expose_secret())])
}

/// The form with an assertion (RFC 7523, 2.2).
pub(crate) fn with_assertion(client: &OAuthClient, assertion: &str) -> Zeroizing<String> {
    form(client, &[("client_assertion_type", ASSERTION), ("client_assertion", assertion)])
}

fn form(client: &OAuthClient, proof: &[(&str, &str)]) -> Zeroizing<String> {
    let OAuthClient { token_url: _, client_id, target } = client;
    let target = match target {
        TokenTarget::Scope(scope) => ("scope", scope.as_str()),
        TokenTarget::Resource(resource) => ("resource", resource.as_str()),
    };
    let mut form = Serializer::new(String::with_capacity(CAPACITY));
    form.extend_pairs([("grant_type", "client_credentials"), ("client_id", client_id), target]);
    form.extend_pairs(proof);
    Zeroizing::new(form.finish())
}

/// The query of Azure's metadata service. Other services of Azure call the resource ID `mi_res_id`.
pub(crate) fn metadata_query(resource: &str, identity: Option<&IdentityId>) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("api-version", "2018-02-01").append_pair("resource", resource);
    query.extend_pairs(identity.map(|identity| match identity {
        IdentityId::Client(id) => ("client_id", id),
        IdentityId::Resource(id) => ("msi_res_id", id),
        IdentityId::Object(id) => ("object_id", id),
    }));
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_form_encoded() {
        let token_url = "https://login.example/token".parse().unwrap();
        let target = TokenTarget::Scope("https://a.example/.default".into());
        let client = OAuthClient { token_url, client_id: "id".into(), target };
        assert_eq!(
            *with_secret(&client, &"a+b&c=d é".into()),
            "grant_type=client_credentials&client_id=id&scope=https%3A%2F%2Fa.example%2F.default\
             &client_secret=a%2Bb%26c%3Dd+%C3%A9"
        );
        let form = with_assertion(&client, "a.b.c");
        assert!(form.ends_with(
            "&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer\
             &client_assertion=a.b.c"
        ));
        let target = TokenTarget::Resource("https://a.example/".into());
        let of_resource = OAuthClient { target, ..client };
        assert_eq!(
            *with_secret(&of_resource, &"s".into()),
            "grant_type=client_credentials&client_id=id&resource=https%3A%2F%2Fa.example%2F&client_secret=s"
        );
    }
}
