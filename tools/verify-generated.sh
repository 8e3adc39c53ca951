#!/bin/bash
# Generates everything again and fails when that changes a file. It compares with the
# tree as it was, committed or not, so it is of use before a commit too.
set -euo pipefail
cd "$(dirname "$0")/.."
generated() {
  { find proto/gen -type f; find ent -type f -name '*.go' -not -path 'ent/schema/*' -not -path 'ent/migrate/*/*'; } |
    LC_ALL=C sort | xargs -d '\n' sha256sum
}
before=$(mktemp) after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT
generated >"$before"
make generate
generated >"$after"
if ! diff "$before" "$after"; then
  echo "generated code differs from its sources: run make generate and commit the result" >&2
  exit 1
fi
