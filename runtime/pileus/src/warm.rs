//! `pileus warm`: fetches, verifies and compiles a component, so that a start waits for neither registry nor compiler.

use std::io::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use pileus_host::{CodeOrigin, Engine};
use pileus_loader::{Loader, Retry, Verified};
use serde_json::json;

use crate::error::Error;
use crate::folders::open_compiled_code;
use crate::provider::{compile, compiler};
use crate::sources::{Artifact, trust_json, trust_text};
use crate::{cli, terminal};

/// How long the store keeps what this command has fetched, until a start pins it: a Pod may wait long for its other
/// containers.
const KEPT: Duration = Duration::from_hours(24);

/// Fills the store and the folder of compiled code.
///
/// # Errors
/// [`Error::Source`], [`Error::Provider`] if the component can't be used, [`Error::Folder`] if its code can't be kept.
pub(crate) async fn run(arguments: cli::Warm) -> Result<(), Error> {
    let cli::Warm { reference, flags, compiled } = arguments;
    let cli::ComponentFlags { json, source, store } = flags;
    let artifact = Artifact::new(reference.parse()?, &source)?;
    let failed = |source| Error::Provider { provider: reference.clone(), source };
    let folder = open_compiled_code(compiled)?;
    let engine = Engine::start(Some(folder), compiler()).map_err(failed)?;
    let verified = obtain(&artifact, store).await?;
    let (digest, trust, again) = (verified.digest(), verified.trust().clone(), verified.clone());
    let component = compile(&engine, verified).await.map_err(failed)?;
    if let CodeOrigin::Compiled(_) = component.code_origin {
        // A full disk is no error of a load, but it is one here: the next start would compile.
        let stored = compile(&engine, again).await.map_err(failed)?;
        if let CodeOrigin::Compiled(_) = stored.code_origin {
            let cause = "the code was not kept; check its free space and its owner".to_owned();
            return Err(Error::Folder { flag: "compiled-code", cause });
        }
    }
    let pinned = artifact.pinned(digest);
    let (from, words, took) = match component.code_origin {
        CodeOrigin::Compiled(took) => ("compiler", "compiled", took),
        CodeOrigin::Cached(took) => ("cache", "was compiled already", took),
    };
    let text = if json {
        terminal::json(&json!({
            "reference": pinned,
            "digest": digest.to_string(),
            "trust": trust_json(&trust),
            "code": {"from": from, "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX)},
        }))
    } else {
        format!("{pinned}\n{}; {words}\n", trust_text(&trust))
    };
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Gets the component, and keeps others that share the store from evicting it before the start.
async fn obtain(artifact: &Artifact, store: cli::StoreFolder) -> Result<Verified, Error> {
    let (loader, now) = (artifact.loader(store)?, Timestamp::now());
    let verified = latest(artifact, &loader, now).await?;
    let owner = format!("warm {}", artifact.reference);
    loader.store().pin_until(&owner, &[verified.digest()], now + KEPT)?;
    Ok(verified)
}

/// Fetches what the reference leads to now. Where the registry can't say, what it led to at last is as good for a start.
async fn latest(artifact: &Artifact, loader: &Loader, now: Timestamp) -> Result<Verified, Error> {
    let Artifact { reference, policy, .. } = artifact;
    let fetched = loader.fetch(reference, policy, now).await;
    terminal::clear_progress();
    let error = match fetched {
        Ok(verified) => return Ok(verified),
        Err(error) if error.retry() == Retry::Never => return Err(error.into()),
        Err(error) => error,
    };
    let Some(digest) = reference.digest.or_else(|| loader.store().resolved(reference)) else {
        return Err(error.into());
    };
    match loader.load(reference, digest, policy, now).await {
        Ok(verified) => {
            eprintln!("pileus: {error}; using {digest} from the store");
            Ok(verified)
        }
        Err(pileus_loader::Error::NotStored { .. }) => Err(error.into()),
        // With another policy than at last, for example.
        Err(refused) => Err(refused.into()),
    }
}
