//! Which certificate authorities a gate trusts: those of the system and those in the operator's bundle. A bundle is used
//! whole or refused: a part that was skipped would be noticed only when a proxy changes its certificate.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// The TLS configuration of a gate: TLS 1.2 and 1.3 with ring, trusting the roots of the system and those in a file. The
/// system's are on disk and are read only if the gate speaks TLS at all; the file is read in any case.
///
/// # Errors
/// [`Error::Roots`] if the system has no roots; [`Error::ExtraRoots`] for the file.
pub(crate) fn tls(spoken: bool, extra_roots: Option<&Path>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    if spoken {
        add_native(&mut roots)?;
    }
    if let Some(file) = extra_roots {
        let wrong = |cause: &dyn Display| Error::ExtraRoots { file: file.into(), cause: cause.to_string() };
        let text = std::fs::read(file).map_err(|cause| wrong(&cause))?;
        add_bundle(&mut roots, &text).map_err(|cause| wrong(&cause))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions of TLS");
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn add_native(roots: &mut RootCertStore) -> Result<(), Error> {
    let found = rustls_native_certs::load_native_certs();
    // Some systems carry authorities in forms that no library reads any more; the others are enough.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(());
    }
    let cause = format!("no certificate was found (errors: {:?})", found.errors);
    Err(Error::Roots { source: Arc::new(io::Error::new(io::ErrorKind::NotFound, cause)) })
}

/// Adds all certificates of a bundle. The error says what is wrong.
fn add_bundle(roots: &mut RootCertStore, text: &[u8]) -> Result<(), String> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(text) {
        count += 1;
        // The parser's own message would repeat the bytes of a damaged section.
        let certificate = certificate.map_err(|_| format!("its certificate {count} isn't whole"))?;
        roots.add(certificate).map_err(|cause| format!("its certificate {count} can't be used: {cause}"))?;
    }
    if count == 0 { Err("it holds no certificate in PEM form".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        let names = ["corporate.test".to_owned()];
        rcgen::generate_simple_self_signed(names).unwrap().cert.pem()
    }

    #[test]
    fn a_bundle_is_used_whole_or_refused_with_what_is_wrong() {
        let (one, other) = (authority(), authority());
        let cut = other.lines().take(4).collect::<Vec<_>>().join("\n");
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
        let rows = [
            ("one", one.clone(), Ok(1)),
            ("two, with words between them", format!("# ours\n{one}\n# theirs\n{other}"), Ok(2)),
            ("nothing", String::new(), Err("no certificate in PEM form")),
            ("only words", "hello\n".to_owned(), Err("no certificate in PEM form")),
            ("a key", key, Err("no certificate in PEM form")),
            ("one that is cut", format!("{one}{cut}"), Err("certificate 2 isn't whole")),
            ("one that is no certificate", format!("{one}{garbage}"), Err("certificate 2 can't be used")),
            ("one that isn't base64", format!("{broken}{one}"), Err("certificate 1 isn't whole")),
        ];
        for (name, text, expected) in rows {
            let mut roots = RootCertStore::empty();
            match (add_bundle(&mut roots, text.as_bytes()), expected) {
                (Ok(()), Ok(count)) => assert_eq!(roots.len(), count, "{name}"),
                (Err(cause), Err(expected)) => assert!(cause.contains(expected), "{name}: {cause}"),
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_missing_bundle_is_an_error_that_names_it_even_without_tls() {
        let error = tls(false, Some(Path::new("/nowhere/corporate.pem"))).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::ExtraRoots { .. }) && text.contains("/nowhere/corporate.pem"),
            "{text}"
        );
    }
}
