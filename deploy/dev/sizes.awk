# Reads Rust files as rustfmt writes them and prints what is too long: "FILE LINES" and "FILE:LINE NAME LINES".
# Lines from the first `#[cfg(test)]` on that is followed by an inline module are tests and aren't counted.
function end_file() { if (file != "" && count > files) printf "%s has %d lines before its tests\n", file, count }
FNR == 1 { end_file(); file = FILENAME; count = 0; tests = 0; pending = 0; name = "" }
tests { next }
pending && /^(pub(\([a-z]+\))? )?mod [a-z_0-9]+ \{/ { tests = 1; count--; next }
# Other attributes may stand between the two.
{ pending = /^#\[cfg\(test\)\]$/ || (pending && /^#\[.*\]$/); count++ }
name == "" && /^ *(pub(\([a-z: ]+\))? )?(const )?(async )?(unsafe )?(extern "C" )?fn [a-z_0-9]+/ && !/;$/ && !/\}$/ {
  match($0, /^ */); indent = RLENGTH; start = FNR
  name = $0; sub(/^.*fn /, "", name); sub(/[^a-z_0-9].*/, "", name)
}
name != "" && /^ *\}$/ { match($0, /^ */); if (RLENGTH == indent) {
  if (FNR - start + 1 > functions) printf "%s:%d: fn %s has %d lines\n", FILENAME, start, name, FNR - start + 1
  name = "" } }
END { end_file() }
