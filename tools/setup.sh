#!/bin/bash
# Installs the Debian packages that the tests need and that are not there yet.
set -euo pipefail
missing=()
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
command -v gcc >/dev/null || missing+=(gcc libc6-dev) # the race detector links with it
command -v setpriv >/dev/null || missing+=(util-linux)
command -v npm >/dev/null || missing+=(nodejs npm)
PATH=$PATH:/usr/sbin command -v nginx >/dev/null || missing+=(nginx-light) # terminates TLS in tests of a whole installation
command -v chromium >/dev/null || missing+=(chromium) # looks at the sign-in pages, and follows a stream
command -v curl >/dev/null || missing+=(curl) # follows a stream
if [ ${#missing[@]} -eq 0 ]; then
  echo "system packages: all there"
  exit 0
fi
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
