#!/bin/bash
# Generates everything again and fails when that changes a file, or when the entities
# say something that the migrations don't. It compares with the tree as it was,
# committed or not, so it is of use before a commit too.
set -euo pipefail
cd "$(dirname "$0")/.."
generated() {
  { find proto/gen ent/migrate/migrations sdk/vectors sdk/ts/src/gen -type f; find ent -type f -name '*.go' -not -path 'ent/schema/*'; } |
    LC_ALL=C sort -u | xargs -d '\n' sha256sum
}
scratch=$(mktemp -d)
before=$scratch/before after=$scratch/after
restore() { # a migration that was written to show the difference is not for keeping
  rm -f ent/migrate/migrations/*/*_drift.sql
  for dialect in postgres sqlite; do
    [ ! -f "$scratch/$dialect.sum" ] || cp "$scratch/$dialect.sum" "ent/migrate/migrations/$dialect/atlas.sum"
  done
  rm -rf "$scratch"
}
for dialect in postgres sqlite; do
  cp "ent/migrate/migrations/$dialect/atlas.sum" "$scratch/$dialect.sum"
done
trap restore EXIT
generated >"$before"
make generate
make migrate-new NAME=drift
generated >"$after"
if ! diff "$before" "$after"; then
  cat ent/migrate/migrations/*/*_drift.sql 2>/dev/null || true
  echo "generated code or migrations differ from their sources: run make generate, make migrate-new, and commit the result" >&2
  exit 1
fi
