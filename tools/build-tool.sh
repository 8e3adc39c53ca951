#!/bin/bash
# Builds one tool of tools/go.mod: build-tool.sh FILE PACKAGE. The file appears only
# when it is whole, so that two builds at once do no harm.
set -euo pipefail
file=$1 package=$2
mkdir -p "$(dirname "$file")"
echo "building $(basename "$file") (once a machine)" >&2
cd "$(dirname "$0")"
CGO_ENABLED=0 go build -o "$file.$$" "$package"
mv "$file.$$" "$file"
