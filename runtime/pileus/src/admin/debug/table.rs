//! Formats a table for a terminal: columns as wide as their content, numbers aligned right, control characters removed.

use pileus_host::sanitize;

/// A column with its name and alignment.
pub(super) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// The lines of a table, with its header.
pub(super) fn table<const N: usize>(
    columns: &[Column; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let name = |column: &Column| match column {
        Column::Text(name) | Column::Number(name) => (*name).to_owned(),
    };
    let rows: Vec<_> = rows.into_iter().map(|row| row.map(|cell| sanitize(&cell))).collect();
    let mut widths = [0; N];
    let lines = || std::iter::once(columns.each_ref().map(name)).chain(rows.iter().cloned());
    for line in lines() {
        for (width, cell) in widths.iter_mut().zip(&line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let padded = |((column, width), cell): ((&Column, &usize), &String)| match column {
        Column::Text(_) => format!("{cell:<width$}"),
        Column::Number(_) => format!("{cell:>width$}"),
    };
    let line = |line: [String; N]| {
        let cells: Vec<_> = columns.iter().zip(&widths).zip(&line).map(padded).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_content_and_cells_are_one_line() {
        let rows = [["größe\n".to_owned(), "1".to_owned()], ["a".to_owned(), "1000".to_owned()]];
        let text = table(&[Column::Text("NAME"), Column::Number("COUNT")], rows);
        assert_eq!(text, "NAME    COUNT\ngröße       1\na        1000\n");
    }
}
