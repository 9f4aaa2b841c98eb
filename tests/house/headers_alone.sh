#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A launcher of the compiler for a source that includes every public header. First it parses each of these headers alone, twice over, with
# the same options and precompiled header; then it compiles the source. Parsing ends at an error of our own, before the compiler
# instantiates what LibTorch's headers left pending: 0.2 s a header in place of 3.5.
set -euo pipefail
export LC_ALL=C  # the compiler's messages are read

command=("$@") options=() source=
while (($#)); do  # what launches the compiler, and the compiler
  options+=("$1")
  case $1 in
    env | *=* | */ccache | ccache) unset 'options[-1]'; shift ;;
    *) shift; break ;;
  esac
done
while (($#)); do
  case $1 in
    -c) source=$2; shift ;;
    -o | -MF | -MT) shift ;;
    -MD) ;;
    *) options+=("$1") ;;
  esac
  shift
done
# The precompiled header is made by the same launcher.
if [[ $source == *cmake_pch* ]]; then exec "${command[@]}"; fi
mapfile -t headers < <(sed -n 's/^#include <\(.*\)>$/\1/p' "$source")
((${#headers[@]})) || { echo "headers_alone.sh: $source includes no header" >&2; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=()
for header in "${headers[@]}"; do
  printf '#include <%s>\n#include <%s>\nstatic_assert(false, "the end of the header");\n' "$header" "$header" >"$folder/alone.cc"
  if ! "${options[@]}" -Wfatal-errors -fsyntax-only "$folder/alone.cc" >"$folder/messages" 2>&1 &&
    grep -q 'error: .*the end of the header' "$folder/messages" && (($(grep -c 'error: ' "$folder/messages") == 1)); then
    continue
  fi
  bad+=("$header")
  cat "$folder/messages" >&2
done
if ((${#bad[@]})); then
  printf '%s does not compile alone: it must include what it uses\n' "${bad[@]}" >&2
  exit 1
fi
rm -rf "$folder"
trap - EXIT
exec "${command[@]}"
