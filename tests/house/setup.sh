#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/setup asks apt for sizes without installing anything: an apt-get that writes down how it is called takes apt's place.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir "$here/bin"
cat >"$here/bin/apt-get" <<CALLED
#!/bin/sh
echo "\$@" >>"$here/calls"
case " \$* " in
  *" -s "*) echo "Inst libtorch-dev (1 Debian [amd64])" ;;
  *" --print-uris "*) echo "Need to get 13 kB of archives."; echo "After this operation, 61 kB of additional disk space will be used." ;;
esac
CALLED
printf '#!/bin/sh\n' >"$here/bin/dpkg-query" # nothing is installed
# Where a user has no rights, setup says what to do and calls nobody.
printf '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n' >"$here/bin/sudo"
chmod +x "$here"/bin/*
PATH=$here/bin:$PATH "$(dirname "$0")/../../scripts/setup" -y --no-libtorch </dev/null >"$here/out" 2>&1 || {
  cat "$here/out"
  exit 1
}
grep -q 'download 13 kB, installed 61 kB' "$here/out" || { echo "the size is not said:"; cat "$here/out"; exit 1; }
installs=$(grep '^install' "$here/calls" | grep -v -e ' -s ' -e ' --print-uris ' | wc -l)
if [[ $installs != 1 ]]; then
  echo "apt-get was told $installs times to install, and should be once, at the end:"
  cat "$here/calls"
  exit 1
fi
tail -n 1 "$here/calls" | grep -q '^install -y' || { echo "the last call does not install:"; cat "$here/calls"; exit 1; }
