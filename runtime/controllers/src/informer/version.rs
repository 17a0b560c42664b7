//! The newest version of the API server's store that an informer has seen, by which it notices that the store went back, as
//! one that was restored from a backup does. Pure.
//!
//! A version of any object, and that of a list, is a revision of the whole store and a whole number (KEP-5504), and a list
//! without a version is answered from the present store. So such a list never has a lower version than anything that was
//! received before it was asked for. Versions that aren't numbers say nothing.
//!
//! etcd's documentation recommends to restore a backup with versions that are raised by a billion, so that no client takes it
//! for the history that it knows. Then the store seems to go forward, further than any store can in that time.

/// No store goes further between two questions: etcd takes some ten thousand writes a second, so this takes most of a day.
const MAX_ADVANCE: u128 = 500_000_000;

/// The newest version that was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewestVersion {
    number: u128,
    /// That of the newest answer to the question for it; 0 before the first. Objects have older ones.
    present: u128,
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

    /// The store went back: what was seen of it means nothing any more.
    pub(super) const fn forget(&mut self) {
        *self = Self { number: 0, present: 0, rollbacks: self.rollbacks.saturating_add(1) };
    }

    /// Records the present version of the store. `asked` is what was known when it was asked for. Returns whether the store went
    /// back meanwhile; each time is noticed once.
    pub(super) fn on_present(&mut self, asked: Self, version: &str) -> bool {
        let Ok(number) = version.parse::<u128>() else { return false };
        let went_back = asked.excludes(number) && asked.rollbacks == self.rollbacks;
        if went_back {
            self.forget();
        }
        self.number = self.number.max(number);
        self.present = self.present.max(number);
        went_back
    }

    /// Whether a store of which this was known can't have this version now.
    fn excludes(self, number: u128) -> bool {
        number < self.number || (self.present > 0 && number - self.present > MAX_ADVANCE)
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
            ("its versions are raised", &[Present(&[], "7"), Present(&[], "1000000003")], 1),
            (
                "an object of the raised history comes first",
                &[Present(&[], "7"), Seen("1000000004"), Present(&[], "1000000005")],
                1,
            ),
            (
                "it is noticed once that they are raised",
                &[
                    Present(&[], "7"),
                    Present(&[], "1000000003"),
                    Seen("1000000004"),
                    Present(&[], "1000000004"),
                ],
                1,
            ),
            (
                "objects from before they were raised, after a start",
                &[
                    Seen("7"),
                    Seen("1000000004"),
                    Present(&[], "1000000005"),
                    Seen("9"),
                    Present(&[], "1000000006"),
                ],
                0,
            ),
            ("many writes", &[Present(&[], "7"), Present(&[], "500000007")], 0),
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
