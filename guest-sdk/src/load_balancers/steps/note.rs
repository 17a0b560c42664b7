//! The note of a change that waits: the step that it waits for, in which direction, and the address of the operation if the
//! cloud names one. As text it is `balancer /operations/7`, or `-balancer /operations/7` for a removal. A note may be lost, or
//! come from another version of the provider.

use crate::operation::InProgress;

/// The longest note that the host keeps, in bytes.
const MAX_NOTE: usize = 4 << 10;

/// A note, as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note<'a> {
    step: Option<&'a str>,
    is_removal: bool,
    pub(super) address: Option<&'a str>,
}

impl<'a> Note<'a> {
    pub(super) fn read(resume: Option<&'a str>) -> Self {
        let Some(note) = resume else { return Self::default() };
        let (name, address) =
            note.split_once(' ').map_or((note, None), |(name, address)| (name, Some(address)));
        let (is_removal, step) = name.strip_prefix('-').map_or((false, name), |name| (true, name));
        Self { step: Some(step), is_removal, address }
    }

    /// Whether the change waits for this step, in this direction.
    pub(super) fn is_at(&self, step: &str, is_removal: bool) -> bool {
        self.step == Some(step) && self.is_removal == is_removal
    }

    /// The step, if it is one of these.
    pub(super) fn step_of(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.step == Some(name))
    }

    /// Whether the change waits for a step after this one, in its direction. So it has passed this one before.
    pub(super) fn is_after(&self, step: &str, names: &[&'static str], is_removal: bool) -> bool {
        let place = |name: &str| names.iter().position(|known| *known == name);
        match (self.step.and_then(place), place(step)) {
            (Some(noted), Some(here)) if self.is_removal == is_removal => {
                if is_removal {
                    noted < here
                } else {
                    noted > here
                }
            }
            _ => false,
        }
    }

    /// The progress of a change that waits for this step now. The address of the operation stays in the note while the
    /// operation runs, even if only the response to the write named it. An address that is too long is left out, but never
    /// the step: without it a failure would go unreported, and the change would be retried at once, endlessly.
    pub(super) fn next(&self, step: &str, is_removal: bool, progress: InProgress) -> InProgress {
        let InProgress { after, resume: named } = progress;
        let name = format!("{}{step}", if is_removal { "-" } else { "" });
        let known = self.address.filter(|_| self.is_at(step, is_removal));
        let note = named.as_deref().or(known).map(|address| format!("{name} {address}"));
        InProgress { after, resume: Some(note.filter(|note| note.len() <= MAX_NOTE).unwrap_or(name)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["address", "balancer", "rules"];

    #[test]
    fn a_note_names_the_step_the_direction_and_the_operation() {
        let next = |resume: Option<&str>, step: &str, is_removal, named: Option<&str>| {
            let progress = InProgress { resume: named.map(str::to_owned), ..InProgress::soon() };
            Note::read(resume).next(step, is_removal, progress).resume.unwrap()
        };
        let rows = [
            (None, false, None, "rules"),
            (None, true, Some("/7"), "-rules /7"),
            (Some("rules /7"), false, None, "rules /7"),
            (Some("rules /7"), false, Some("/8"), "rules /8"),
            (Some("rules /7"), true, None, "-rules"),
            (Some("balancer /7"), false, None, "rules"),
        ];
        for (resume, is_removal, named, expected) in rows {
            assert_eq!(next(resume, "rules", is_removal, named), expected, "{resume:?} {named:?}");
        }
        let (fits, too_long) = ("u".repeat(MAX_NOTE - "rules ".len()), "u".repeat(MAX_NOTE));
        assert_eq!(next(None, "rules", false, Some(&fits)), format!("rules {fits}"));
        assert_eq!(next(None, "rules", false, Some(&too_long)), "rules");
    }

    #[test]
    fn a_change_has_passed_the_steps_before_that_of_its_note() {
        let passed = |resume: &str, is_removal| {
            let note = Note::read(Some(resume));
            NAMES.iter().filter(|step| note.is_after(step, NAMES, is_removal)).copied().collect::<Vec<_>>()
        };
        let none: &[&str] = &[];
        let rows = [
            ("rules /7", false, &["address", "balancer"][..]),
            ("address", false, none),
            ("-address /7", true, &["balancer", "rules"]),
            ("-rules", true, none),
            ("rules", true, none),
            ("-address", false, none),
            ("frontend", false, none),
            ("", true, none),
        ];
        for (resume, is_removal, expected) in rows {
            assert_eq!(passed(resume, is_removal), expected, "{resume} {is_removal}");
        }
        assert!(
            Note::read(Some("rules")).is_at("rules", false)
                && !Note::read(Some("rules")).is_at("rules", true)
        );
    }
}
