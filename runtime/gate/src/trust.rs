//! Which certificate authorities a gate trusts: those of the system and those in the operator's bundle. A bundle is used
//! whole or refused: a part that was skipped would be noticed only when a proxy changes its certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::Error;

/// How often the file is read again, at most. It is read only before a new connection.
const REREAD_PERIOD: Duration = Duration::from_secs(10);

/// The TLS configuration of a gate: TLS 1.2 and 1.3 with ring, trusting the roots of the system and those in a file. The
/// system's are on disk and are read only if the gate speaks TLS at all; the file is read in any case, and again while the
/// gate is used.
///
/// # Errors
/// [`Error::Roots`] if the system has no roots; [`Error::ExtraRoots`] for the file.
pub(crate) fn tls(spoken: bool, extra_roots: Option<&Path>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    if spoken {
        add_native(&mut roots)?;
    }
    let bundle = match extra_roots {
        Some(file) => {
            let wrong = |cause| Error::ExtraRoots { file: file.into(), cause };
            let text = std::fs::read(file).map_err(|cause| wrong(cause.to_string()))?;
            let native = roots.clone();
            add_bundle(&mut roots, &text).map_err(wrong)?;
            Some((file.to_owned(), native, text))
        }
        None => None,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions of TLS");
    let Some((file, native, text)) = bundle else {
        return Ok(config.with_root_certificates(roots).with_no_client_auth());
    };
    let state = Mutex::new(BundleState { verifier: verifier(roots)?, text, read_at: Instant::now() });
    let bundle = Arc::new(Bundle { file, native, state });
    Ok(config.dangerous().with_custom_certificate_verifier(bundle).with_no_client_auth())
}

/// Trusts the system's roots and those in a file, which tools replace while the gate is used. A file that can't be read or
/// used leaves what was read before.
#[derive(Debug)]
struct Bundle {
    file: PathBuf,
    native: RootCertStore,
    state: Mutex<BundleState>,
}

#[derive(Debug)]
struct BundleState {
    verifier: Arc<WebPkiServerVerifier>,
    text: Vec<u8>,
    read_at: Instant,
}

impl Bundle {
    fn current(&self, now: Instant) -> Arc<WebPkiServerVerifier> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(state.read_at) >= REREAD_PERIOD {
            state.read_at = now;
            if let Err(cause) = self.read_again(&mut state) {
                let file = self.file.display();
                tracing::warn!(%file, %cause, "can't use the certificates of connection.caBundle; using those read before");
            }
        }
        Arc::clone(&state.verifier)
    }

    fn read_again(&self, state: &mut BundleState) -> Result<(), String> {
        let text = std::fs::read(&self.file).map_err(|cause| cause.to_string())?;
        if text != state.text {
            let mut roots = self.native.clone();
            add_bundle(&mut roots, &text)?;
            state.verifier = verifier(roots).map_err(|cause| cause.to_string())?;
            state.text = text;
        }
        Ok(())
    }
}

fn verifier(roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map_err(|cause| Error::Roots { source: Arc::new(io::Error::other(cause)) })
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let current = self.current(Instant::now());
        current.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current(Instant::now()).verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current(Instant::now()).verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current(Instant::now()).supported_verify_schemes()
    }
}

fn add_native(roots: &mut RootCertStore) -> Result<(), Error> {
    let found = rustls_native_certs::load_native_certs();
    // Some systems carry authorities in forms that no library reads any more; the others are enough.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(());
    }
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    let cause = format!("no certificate was found (errors: {})", errors.join("; "));
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
    fn a_bundle_is_read_again_and_a_broken_one_leaves_what_was_read_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let new = || {
            let names = ["corporate.test".to_owned()];
            rcgen::generate_simple_self_signed(names).unwrap().cert
        };
        let (first, second) = (new(), new());
        let mut roots = RootCertStore::empty();
        add_bundle(&mut roots, first.pem().as_bytes()).unwrap();
        let start = Instant::now();
        let text = first.pem().into_bytes();
        let state = Mutex::new(BundleState { verifier: verifier(roots).unwrap(), text, read_at: start });
        let bundle = Bundle { file: file.clone(), native: RootCertStore::empty(), state };
        let trusts = |cert: &rcgen::Certificate, seconds| {
            let current = bundle.current(start + Duration::from_secs(seconds));
            let name = ServerName::try_from("corporate.test").unwrap();
            let trusted = current.verify_server_cert(cert.der(), &[], &name, &[], UnixTime::now());
            trusted.is_ok()
        };
        assert!(trusts(&first, 0) && !trusts(&second, 0));
        assert!(trusts(&first, 11), "there is no file");
        std::fs::write(&file, second.pem()).unwrap();
        assert!(trusts(&first, 20), "it is too early to read it again");
        assert!(trusts(&second, 30) && !trusts(&first, 30));
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----").unwrap();
        assert!(trusts(&second, 60));
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, first.pem() + &second.pem()).unwrap();
        assert!(trusts(&second, 90) && trusts(&first, 90));
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
