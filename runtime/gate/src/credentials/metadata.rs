//! What a request to this machine's metadata service needs, and what no provider gets from there. Pure.
//!
//! A metadata service wants a header as proof that its caller isn't a confused proxy. The gate takes such headers out of the
//! requests of providers, and attaches its own only where the operator has granted paths of the service. The service hands
//! out the machine's identity as well, on other paths: the gate refuses these regardless of grants, so that a grant for `/`
//! isn't one for the machine's tokens.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;

use crate::address;
use crate::credentials::spec::MetadataFlavor;
use crate::credentials::token::Token;
use crate::pattern::HostPattern;
use crate::request::{Host, check_single_reading};

/// The proof that Azure wants, of requests for tokens as well.
pub(super) const AZURE: (HeaderName, HeaderValue) =
    (HeaderName::from_static("metadata"), HeaderValue::from_static("true"));
const GOOGLE: (HeaderName, HeaderValue) =
    (HeaderName::from_static("metadata-flavor"), HeaderValue::from_static("Google"));

/// The path at which AWS issues a token for its metadata.
pub(super) const AWS_PATH: &str = "/latest/api/token";
/// The header that carries this token.
pub(super) const AWS_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
/// The header that says for how many seconds a token is to be valid, and is.
const AWS_LIFETIME: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
/// The longest lifetime, in seconds: six hours.
const AWS_LONGEST: u32 = 21_600;

/// The segments that lead to identities of this machine, in the services of the flavors and of clouds that resemble them.
const IDENTITIES: &[&str] = &[
    // Azure: tokens, and signed statements about the machine.
    "identity",
    "attested",
    // Google, beside `identity`.
    "token",
    "service-accounts",
    // AWS, beside `token`.
    "iam",
    "identity-credentials",
    "instance-identity",
    "security-credentials",
];

/// The only address that the hosts of a credential name, if it is one of this machine or its link.
pub(super) fn service(hosts: &[HostPattern]) -> Option<&Host> {
    match hosts {
        [HostPattern::Exact(host @ Host::Ip(address))] if address::is_near(*address) => Some(host),
        _ => None,
    }
}

/// The constant header of a flavor; `None` if its header has a token.
pub(super) fn header(flavor: MetadataFlavor) -> Option<(HeaderName, HeaderValue)> {
    match flavor {
        MetadataFlavor::Azure => Some(AZURE),
        MetadataFlavor::Google => Some(GOOGLE),
        MetadataFlavor::Aws => None,
    }
}

/// The headers of a request for AWS's token.
pub(super) fn token_request() -> HeaderMap {
    HeaderMap::from_iter([(AWS_LIFETIME, AWS_LONGEST.into())])
}

/// Reads AWS's token, which is all of a body.
pub(super) fn read_token(headers: &HeaderMap, body: &[u8]) -> Option<Token> {
    let text = std::str::from_utf8(body).ok()?.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let said = headers.get(AWS_LIFETIME).and_then(|value| value.to_str().ok()?.parse().ok());
    let lifetime = Duration::from_secs(said.unwrap_or(AWS_LONGEST).min(AWS_LONGEST).into());
    (!lifetime.is_zero()).then(|| Token { token: SecretString::from(text), lifetime })
}

/// Whether a canonical path leads to no identity of this machine. Paths of metadata services are plain ASCII, so one with
/// any other letter is refused, and no spelling that some server decodes passes.
///
/// # Errors
/// What the path does, as a verb phrase.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.contains(['%', ';']) {
        return Err("holds a percent-encoding or a ;");
    }
    check_single_reading(path)?;
    let is_identity = |segment: &str| {
        // Some servers drop dots at the end.
        let name = segment.trim_end_matches('.');
        IDENTITIES.iter().any(|identity| name.eq_ignore_ascii_case(identity))
    };
    if path.split('/').any(is_identity) { Err("leads to an identity of this machine") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::request::canonical_path;

    #[test]
    fn no_spelling_of_a_path_leads_to_an_identity() {
        for path in [
            "/metadata/identity",
            "/metadata/identity/oauth2/token?ignored".split('?').next().unwrap(),
            "/Metadata/IDENTITY/oauth2/token",
            "/metadata/attested/document",
            "/metadata//identity/info",
            "/metadata/identity./info",
            "/metadata/%69dentity/info",
            "/metadata/%2569dentity/info",
            "/metadata%2Fidentity/info",
            "/metadata%5cidentity/info",
            "/metadata/identity;a=b/info",
            "/metadata/identity%20/info",
            "/metadata/.../identity",
            "/metadata/%c4%b1dentity/info",
            "/computeMetadata/v1/instance/service-accounts/default/token",
            "/computeMetadata/v1/instance/service-accounts/default/identity",
            "/computeMetadata/v1beta1/instance/service-accounts/",
            "/computemetadata/V1/Instance/Service-Accounts/default/email",
            "/computeMetadata/v1/any/token",
            "/computeMetadata/v1/any/to%e2%84%aaen",
            "/latest/meta-data/iam",
            "/latest/meta-data/iam/security-credentials/role",
            "/2021-07-15/meta-data/iam/info",
            "/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance",
            "/latest/dynamic/instance-identity/document",
            "/latest/api/token",
        ] {
            let canonical = canonical_path(path).unwrap();
            assert!(check_path(&canonical).is_err(), "{path}");
        }
        for path in [
            "/metadata/instance",
            "/metadata/instance/compute/tagsList",
            "/metadata/loadbalancer",
            "/metadata/versions",
            "/computeMetadata/v1/instance/",
            "/computeMetadata/v1/instance/network-interfaces/0/access-configs/0/external-ip",
            "/computeMetadata/v1/instance/attributes/identity-provider",
            "/latest/meta-data/instance-id",
            "/latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/local-ipv4s",
            "/latest/meta-data/placement/availability-zone",
            "/openstack/latest/meta_data.json",
            "/hetzner/v1/metadata/instance-id",
            "/",
        ] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_metadata_service_is_one_address_near_this_machine() {
        let is_one = |hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(|host| host.parse().unwrap()).collect();
            service(&hosts).is_some()
        };
        for host in ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "127.0.0.1", "0xa9fea9fe"] {
            assert!(is_one(&[host]), "{host}");
        }
        for hosts in [
            &["10.0.0.1"][..],
            &["8.8.8.8"],
            &["metadata.google.internal"],
            &["*.internal"],
            &["169.254.169.254", "fd00:ec2::254"],
            &[],
        ] {
            assert!(!is_one(hosts), "{hosts:?}");
        }
    }

    #[test]
    fn a_token_of_aws_is_its_whole_answer() {
        let read = |said: Option<&'static str>, body: &str| {
            let headers = said.map(|said| (AWS_LIFETIME, HeaderValue::from_static(said)));
            let token = read_token(&headers.into_iter().collect(), body.as_bytes())?;
            Some((token.token.expose_secret().to_owned(), token.lifetime.as_secs()))
        };
        let planted = |seconds| Some(("planted==".to_owned(), seconds));
        for (said, body, expected) in [
            (Some("21600"), "planted==", planted(21_600)),
            (Some("60"), "planted==\n", planted(60)),
            (None, "planted==", planted(21_600)),
            (Some("soon"), "planted==", planted(21_600)),
            (Some("4000000000"), "planted==", planted(21_600)),
            (Some("0"), "planted==", None),
            (None, "", None),
            (None, "two words", None),
            (None, "new\r\nline", None),
        ] {
            assert_eq!(read(said, body), expected, "{said:?} {body}");
        }
    }
}
