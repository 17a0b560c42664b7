//! Calls that may only read, and dry runs: which of their requests aren't sent, and whose word counts for a POST.

use std::sync::Arc;

use super::Gate;
use super::prepare::PreparedRequest;
use crate::dry_run::DryRun;
use crate::effect::Effect;
use crate::error::Error;
use crate::record::Record;
use crate::rules::Limits;

/// The longest body that is read to find out what a POST does by other rules, in bytes. A longer one counts as a write.
const MAX_BODY: usize = 64 << 10;

impl Gate {
    /// The same gate for a call of this function, which may only read: a request that may change something is denied with
    /// [`Error::ReadOnly`]. A GET, HEAD or OPTIONS without a body that no rule covers is a read here.
    #[must_use]
    pub fn read_only(self, function: &'static str) -> Self {
        Self { reader: Some(function), ..self }
    }

    /// The same gate for a dry run: it answers each request that may change something with 503 and a header `Pileus-Gate:
    /// dry-run`, and records it. Reads and polls of operations are carried as usual. A dry run allows nothing that the gate doesn't allow.
    #[must_use]
    pub fn dry_run(self) -> (Self, DryRun) {
        let dry_run = DryRun::default();
        (self.with_interceptor(Arc::new(dry_run.clone())), dry_run)
    }

    /// The same gate for a provider whose own rules don't suffice: its POST is a read only where the rules of the other gate
    /// call it one, too.
    #[must_use]
    pub fn with_reads_of(self, other: &Self) -> Self {
        Self { other_rules: Some(Arc::clone(&other.inner.rules)), ..self }
    }

    /// Makes a request a write that the other rules call one.
    pub(super) fn apply_other_rules(&self, request: &mut PreparedRequest, record: &mut Record) {
        let PreparedRequest { canonical, headers, body, classification, .. } = request;
        let Some(rules) = self.other_rules.as_ref().filter(|_| !canonical.is_safe()) else { return };
        if body.len() > MAX_BODY || rules.classify(canonical, headers, body).effect == Effect::Write {
            classification.effect = Effect::Write;
            classification.page = None;
            record.set_effect(Effect::Write);
        }
    }

    /// Checks that a call which may only read doesn't send a write. It comes after the interceptor, so that a dry run and a test of
    /// a provider show what is denied here.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(super) fn check_reader(&self, request: &PreparedRequest) -> Result<(), Error> {
        let PreparedRequest { canonical, body, classification, .. } = request;
        let has_rule = classification.limits != Limits::AllOfHost;
        let may_change =
            classification.effect == Effect::Write && (has_rule || !canonical.is_safe() || !body.is_empty());
        match self.reader.filter(|_| may_change) {
            Some(function) => Err(Error::ReadOnly {
                provider: self.provider().to_owned(),
                method: canonical.method.to_string(),
                url: canonical.shown_url(),
                function,
            }),
            None => Ok(()),
        }
    }
}
