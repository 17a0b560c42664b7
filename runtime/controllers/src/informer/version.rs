//! The newest version of the API server's store that an informer has seen, by which it notices that the store went back, as
//! one that was restored from a backup does. Pure.
//!
//! A version of any object, and that of a list, is a revision of the whole store and a whole number (KEP-5504), and a list
//! without a version is answered from the present store. So such a list never has a lower version than anything that was
//! received before it was asked for. Versions that aren't numbers say nothing.

/// The newest version that was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewestVersion {
    number: u128,
    /// How often the store went back.
    rollbacks: u32,
}

impl NewestVersion {
    /// The number; 0 before any was seen.
    pub(super) const fn number(self) -> u128 {
        self.number
    }

    /// Records a version that was seen.
    pub(super) fn observe(&mut self, version: &str) {
        self.number = self.number.max(version.parse().unwrap_or_default());
    }

    /// The store went back, as another watch noticed.
    pub(super) const fn forget(&mut self) {
        *self = Self { number: 0, rollbacks: self.rollbacks.saturating_add(1) };
    }

    /// Records the present version of the store. `asked` is what was known when it was asked for. Returns whether the store went
    /// back meanwhile; each time is noticed once.
    pub(super) fn on_present(&mut self, asked: Self, version: &str) -> bool {
        match version.parse::<u128>() {
            Ok(number) if number < asked.number && asked.rollbacks == self.rollbacks => {
                *self = Self { number, rollbacks: self.rollbacks.saturating_add(1) };
                true
            }
            _ => {
                self.observe(version);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens, in this order: a version is seen; or the store is asked, versions are seen meanwhile, and it answers.
    enum Step {
        Seen(&'static str),
        Present(&'static [&'static str], &'static str),
    }

    #[test]
    fn a_store_that_goes_back_is_noticed_once_each_time() {
        use Step::{Present, Seen};
        let rows: &[(&str, &[Step], u32)] = &[
            ("nothing is known yet", &[Present(&[], "7")], 0),
            ("nothing happens", &[Seen("7"), Present(&[], "7"), Present(&[], "7")], 0),
            ("it goes on", &[Seen("7"), Present(&[], "9"), Seen("8"), Present(&[], "9")], 0),
            ("an object goes back", &[Seen("7"), Present(&[], "6")], 1),
            ("only its own answers show it", &[Seen("7"), Present(&[], "900"), Present(&[], "800")], 1),
            ("more digits are newer", &[Seen("99"), Present(&[], "100"), Present(&[], "99")], 1),
            (
                "a write is answered while it is asked",
                &[Seen("7"), Present(&["12"], "9"), Present(&[], "12")],
                0,
            ),
            ("it is noticed once", &[Seen("7"), Present(&[], "3"), Present(&[], "3"), Present(&[], "4")], 1),
            ("it goes back twice", &[Seen("7"), Present(&[], "3"), Seen("5"), Present(&[], "4")], 2),
            (
                "an answer from the old history",
                &[Seen("7"), Present(&[], "3"), Seen("8"), Present(&[], "4")],
                2,
            ),
            ("no numbers", &[Seen("a"), Present(&[], "b"), Present(&[], "")], 0),
            ("an empty version", &[Seen("7"), Present(&[], "")], 0),
        ];
        for (name, steps, expected) in rows {
            let (mut newest, mut noticed) = (NewestVersion::default(), 0);
            for step in *steps {
                match step {
                    Seen(version) => newest.observe(version),
                    Present(meanwhile, version) => {
                        let asked = newest;
                        meanwhile.iter().for_each(|version| newest.observe(version));
                        noticed += u32::from(newest.on_present(asked, version));
                    }
                }
            }
            assert_eq!(noticed, *expected, "{name}");
        }
    }

    #[test]
    fn two_questions_at_a_time_notice_it_once() {
        let mut newest = NewestVersion::default();
        newest.observe("7");
        let asked = newest;
        assert!(newest.on_present(asked, "3") && !newest.on_present(asked, "4"));
        assert_eq!(newest.number(), 4);
    }

    #[test]
    fn a_question_from_before_another_watch_noticed_it_notices_nothing() {
        let mut newest = NewestVersion::default();
        newest.observe("7");
        let asked = newest;
        newest.forget();
        assert!(!newest.on_present(asked, "3"));
        assert_eq!(newest.number(), 3);
    }
}
