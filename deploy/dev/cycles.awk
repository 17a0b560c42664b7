# The edges between the top-level modules of a crate, one `from to` a line, as its files outside tests write them:
# `crate::name` and `crate::{one, two}`, where a name that lib.rs re-exports stands for its module.
#
# usage: awk -f cycles.awk $(find CRATE/src -name '*.rs')

FNR == 1 {
  finish()
  folder = FILENAME
  sub(/(\/(lib|main|mod))?\.rs$/, "", folder)
  from = FILENAME
  sub(/.*\/src\//, "", from)
  sub(/(\/.*|\.rs)$/, "", from)
  file = FILENAME
  text = ""
  is_test = in_tests = 0
}

# Tests in a file are at its end; modules that only tests compile are files of their own.
/^#\[cfg\(.*test.*\)\]/ { is_test = 1; next }
/^#\[/ { next }
is_test && /^(pub(\([a-z]+\))? )?mod [a-z_0-9]+/ {
  if (/\{$/) in_tests = 1
  sub(/.*mod /, "")
  sub(/;.*/, "")
  tests[folder "/" $0]
}
{ is_test = 0 }
!in_tests {
  sub(/\/\/.*/, "")
  text = text " " $0
}

END {
  finish()
  for (edge in edges) {
    split(edge, part, SUBSEP)
    path = part[1]
    sub(/\.rs$/, "", path)
    to = part[3] in exported ? exported[part[3]] : part[3]
    if (to in modules && !(is_of_tests(path)) && part[2] in modules && part[2] != to) print part[2], to
  }
}

function is_of_tests(path) {
  for (; path ~ /\/src\//; sub(/\/[^\/]*$/, "", path)) if (path in tests) return 1
  return 0
}

function finish(   at, rest, name) {
  if (file == "") return
  if (from == "lib" || from == "main") { exports(text); return }
  modules[from]
  for (rest = text; (at = index(rest, "crate::")); ) {
    rest = substr(rest, at + 7)
    if (substr(rest, 1, 1) == "{") tree(rest)
    else if (match(rest, /^[A-Za-z_0-9]+/)) edges[file, from, substr(rest, 1, RLENGTH)]
  }
}

# The names directly below the braces that a text begins with.
function tree(text,   i, letter, depth, is_first) {
  for (i = 1; i <= length(text); i++) {
    letter = substr(text, i, 1)
    if (letter == "{" && ++depth == 1 || letter == "," && depth == 1) is_first = 1
    else if (letter == "}" && --depth == 0) return
    else if (is_first && match(substr(text, i), /^[A-Za-z_0-9]+/)) {
      edges[file, from, substr(text, i, RLENGTH)]
      is_first = 0
    }
  }
}

# What lib.rs re-exports: `pub use module::Name` and `pub use module::{One, Two}`.
function exports(text,   use, module, count, names, i) {
  while (match(text, /pub(\([a-z]+\))? use [a-z_0-9]+::[^;]*;/)) {
    use = substr(text, RSTART, RLENGTH)
    text = substr(text, RSTART + RLENGTH)
    sub(/.* use /, "", use)
    module = use
    sub(/::.*/, "", module)
    count = split(substr(use, length(module) + 3), names, /[^A-Za-z_0-9]+/)
    for (i = 1; i <= count; i++) if (names[i] != "") exported[names[i]] = module
  }
}
