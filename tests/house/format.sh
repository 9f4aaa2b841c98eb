#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every source is as .clang-format would write it. 77: another release of clang-format, which breaks lines elsewhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in clang-format-14 clang-format none; do
  if command -v "$tool" >/dev/null && [[ $("$tool" --version) == *' 14.'* ]]; then break; fi
done
if [[ $tool == none ]]; then
  # As GoogleTest says it, for scripts/skipped.
  printf '%s: Skipped\nneeds clang-format 14\n[  SKIPPED ] house.format (0 ms)\n' "$0:15"
  exit 77
fi
find trireme cli tests bench examples -name '*.h' -print0 -o -name '*.cc' -print0 | xargs -0 -n 100 -P 2 "$tool" -n --Werror
