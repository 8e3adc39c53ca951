#!/bin/bash
# Runs every fuzz target of the module for a fixed time: fuzz.sh 10s.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
count=0
while IFS=: read -r file line; do
  target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/' <<<"$line")
  echo "== $target in $(dirname "$file")"
  go test -run "^\$" -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")" </dev/null
  count=$((count + 1))
done < <(grep -rE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+\(' internal services test | LC_ALL=C sort)
echo "$count fuzz targets passed"
[ "$count" -gt 0 ]
