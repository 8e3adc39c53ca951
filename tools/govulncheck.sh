#!/bin/bash
# Runs govulncheck on the binary's packages with the vulnerability database that the Go
# module golang.org/x/vulndb carries, so that only the module proxy is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.0.0-20261105234957-e22db6528018
cache=${XDG_CACHE_HOME:-$HOME/.cache}/poppyfield
db=$cache/vulndb-$version
if [ ! -d "$db" ]; then
  dir=$(go mod download -json "golang.org/x/vulndb@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  GOBIN=$cache/bin GOFLAGS=-mod=mod go install "golang.org/x/vulndb/cmd/indexdb@$version"
  "$cache/bin/indexdb" -vulns "$dir/data/osv" -out "$db.$$"
  mv "$db.$$" "$db"
fi
tool=$cache/bin/govulncheck-$(awk '$1 == "golang.org/x/vuln" { print $2 }' tools/go.mod)
[ -x "$tool" ] || tools/build-tool.sh "$tool" golang.org/x/vuln/cmd/govulncheck
exec "$tool" -db "file://$db" ./services/...
