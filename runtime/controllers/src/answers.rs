//! Answers of a provider about several items. They must be as many as the items, in the same order: an item without an answer would
//! be forgotten, or get the answer about another one.
//!
//! Pure.

use pileus_cloud::{Error, ErrorKind};

/// The answer about each of `items` items. Where the call failed as a whole, or has another number of answers, all get the error.
pub(crate) fn per_item<T: Clone>(
    answers: Result<Vec<Result<T, Error>>, Error>,
    items: usize,
) -> Vec<Result<T, Error>> {
    aligned(answers, items).unwrap_or_else(|error| vec![Err(error); items])
}

/// The same, without the failure of a call for each item.
///
/// # Errors
/// [`ErrorKind::Broken`] for another number of answers, or the call's own error.
pub(crate) fn aligned<T>(answers: Result<Vec<T>, Error>, items: usize) -> Result<Vec<T>, Error> {
    let answers = answers?;
    if answers.len() == items {
        return Ok(answers);
    }
    Err(Error::new(ErrorKind::Broken, format!("{} answers about {items} items", answers.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_an_answer_and_never_that_of_another() {
        let down = Error::new(ErrorKind::Unavailable(None), "down");
        for (answers, kinds) in [
            (Ok(vec![Ok(1), Ok(2)]), [None, None]),
            (Ok(vec![Err(down.clone()), Ok(2)]), [Some(ErrorKind::Unavailable(None)), None]),
            (Ok(vec![Ok(1)]), [Some(ErrorKind::Broken); 2]),
            (Ok(vec![]), [Some(ErrorKind::Broken); 2]),
            (Ok(vec![Ok(1), Ok(2), Ok(3)]), [Some(ErrorKind::Broken); 2]),
            (Err(down), [Some(ErrorKind::Unavailable(None)); 2]),
        ] {
            let found: Vec<_> =
                per_item(answers, 2).into_iter().map(|answer| answer.err().map(|it| it.kind)).collect();
            assert_eq!(found, kinds);
        }
    }
}
