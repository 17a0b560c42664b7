//! The certificate of a simulator: issued at its start by an authority of its own, whose certificate clients read from a file.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use super::Error;

/// Issues a certificate for localhost, the address and more names, and writes the authority's to `ca.pem` in a folder.
pub(super) fn acceptor(folder: &Path, address: IpAddr, more: &[String]) -> Result<TlsAcceptor, Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "Azure simulator");
    let key = KeyPair::generate()?;
    let own = authority.self_signed(&key)?;
    let path = folder.join("ca.pem");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, own.pem()));
    written.map_err(|source| Error::Write { path, source })?;
    let issuer = Issuer::new(authority, key);

    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), address.to_string()];
    names.extend(more.iter().cloned());
    names.sort();
    names.dedup();
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    // Another crate of the process may have chosen another provider of cryptography.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone(), own.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
