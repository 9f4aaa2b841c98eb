#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# soak_test.sh BUILD_FOLDER: a short run of scripts/soak, its plan, its refusals and what Ctrl-C gives.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath --relative-to=. "$1")
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
fail() { echo "soak_test: $*" >&2; exit 1; }

first=$(scripts/soak --seed 1 --plan --rounds 30)
[[ $first == "$(scripts/soak --seed 1 --plan --rounds 30)" ]] || fail "one seed gives two plans"
[[ $first != "$(scripts/soak --seed 2 --plan --rounds 30)" ]] || fail "two seeds give one plan"
for kind in collectives training parsers; do [[ $first == *": $kind "* ]] || fail "no round of $kind in: $first"; done
[[ $(scripts/soak --seed 1 --round 3 --plan) == "$(sed -n 4p <<<"$first")" ]] || fail "--round 3 is another round"

for wrong in --minuts=3 --minutes=-1 --minutes=soon; do
  code=0
  said=$(scripts/soak "$wrong" 2>&1) || code=$?
  ((code == 2)) || fail "$wrong ends with $code: $said"
  [[ $(wc -l <<<"$said") == 1 && $said == "scripts/soak: "* ]] || fail "$wrong is refused with: $said"
done

said=$(scripts/soak --minutes 0.2 --seed 1 --rounds 5 --build "$build") || fail "a short run: $said"
[[ $said == *"seed 1"* && $said == *" 0 failed"* ]] || fail "a short run says: $said"

# A failure names the command that repeats it. A build folder of programs that fail stands in for a bug.
mkdir -p "$TMPDIR/broken/bin" "$TMPDIR/broken/tests"
for program in bin/trireme tests/soak_collectives tests/soak_parsers; do
  printf '#!/bin/sh\nexit 3\n' >"$TMPDIR/broken/$program"
  chmod +x "$TMPDIR/broken/$program"
done
code=0
said=$(scripts/soak --seed 5 --rounds 2 --build "$(realpath --relative-to=. "$TMPDIR/broken")") || code=$?
((code == 1)) || fail "failures end with $code"
[[ $said == *"repeat it: scripts/soak --seed 5 --round 1"* && $said == *"2 failed (rounds 0, 1)"* ]] || fail "failures say: $said"

# The sweep over file calls runs the tests with all of them.
files() { printf '#!/bin/sh\n%s\n' "$1" >"$TMPDIR/broken/tests/test_checkpoint"; chmod +x "$TMPDIR/broken/tests/test_checkpoint"
  scripts/soak --files --build "$(realpath --relative-to=. "$TMPDIR/broken")" 2>&1; }
# shellcheck disable=SC2016
said=$(files '[ "$TRIREME_SOAK $*" = "1 --gtest_filter=*checkpoint_file_faults*" ]') || fail "--files says: $said"
code=0
said=$(files 'echo why; exit 3') || code=$?
((code == 1)) || fail "a sweep that fails ends with $code"
[[ $said == *"ended with 3"* && $said == *why* ]] || fail "a sweep that fails says: $said"

# The sweep of kills runs the test with more of them.
cp "$TMPDIR/broken/tests/test_checkpoint" "$TMPDIR/broken/tests/test_faults"
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$TRIREME_SOAK_KILLS $*" = "200 --gtest_filter=*faults_async_saves_killed*" ]\n' >"$TMPDIR/broken/tests/test_faults"
said=$(scripts/soak --kills --build "$(realpath --relative-to=. "$TMPDIR/broken")" 2>&1) || fail "--kills says: $said"
[[ $said == *"200 kills"*passed* ]] || fail "--kills says: $said"

# The test of losses runs for longer.
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$TRIREME_SOAK_LOSSES $*" = "100 --gtest_filter=*faults_losses*" ]\n' >"$TMPDIR/broken/tests/test_faults"
said=$(scripts/soak --losses --build "$(realpath --relative-to=. "$TMPDIR/broken")" 2>&1) || fail "--losses says: $said"
[[ $said == *"every five steps of 100"*passed* ]] || fail "--losses says: $said"

# The tests of layouts run with all pairs.
layouts() { printf '#!/bin/sh\n%s\n' "$1" >"$TMPDIR/broken/tests/test_train"; chmod +x "$TMPDIR/broken/tests/test_train"
  scripts/soak --layouts --build "$(realpath --relative-to=. "$TMPDIR/broken")" 2>&1; }
# shellcheck disable=SC2016
said=$(layouts 'echo "$TRIREME_SOAK $*" >"$0.ran"') || fail "--layouts says: $said"
[[ $said == *"all pairs of layouts"*passed* ]] || fail "--layouts says: $said"
ran=$(cat "$TMPDIR/broken/tests/test_train.ran")
[[ $ran == "1 --gtest_filter="* ]] || fail "--layouts ran: $ran"
# Each of its filters names tests that are there.
listed=$("$build/tests/test_train" --gtest_list_tests "${ran#1 }")
for name in train_resume_layouts. each_loads_what_each_has_saved masters_come_over engines_load train_resume. \
  a_reproducible_run_goes_on; do
  [[ $listed == *"$name"* ]] || fail "--layouts leaves out $name: $listed"
done
code=0
said=$(layouts 'echo a pair; exit 3') || code=$?
((code == 1)) || fail "a sweep of layouts that fails ends with $code"
[[ $said == *"a pair"* ]] || fail "a sweep of layouts that fails says: $said"
rm "$TMPDIR/broken/tests/test_train"
code=0
said=$(scripts/soak --layouts --build "$(realpath --relative-to=. "$TMPDIR/broken")" 2>&1) || code=$?
((code == 2)) || fail "--layouts without its program ends with $code"
[[ $said == *"tests/test_train is not there: run scripts/build --tests all" ]] || fail "--layouts without its program says: $said"

# The tests of devices run with 20 seeds, both programs.
devices() { for program in test_support_pretend_device test_device; do
    printf '#!/bin/sh\necho %s >>"%s/ran"\n%s\n' "$program" "$TMPDIR" "$1" >"$TMPDIR/broken/tests/$program"
    chmod +x "$TMPDIR/broken/tests/$program"
  done
  scripts/soak --devices --build "$(realpath --relative-to=. "$TMPDIR/broken")" 2>&1; }
# shellcheck disable=SC2016
said=$(devices '[ "$TRIREME_SOAK $OMP_NUM_THREADS $*" = "1 1 " ]') || fail "--devices says: $said"
[[ $said == *"20 seeds"*passed* ]] || fail "--devices says: $said"
[[ $(cat "$TMPDIR/ran") == $'test_support_pretend_device\ntest_device' ]] || fail "--devices ran: $(cat "$TMPDIR/ran")"
code=0
said=$(devices 'echo seed 17; exit 3') || code=$?
((code == 1)) || fail "a sweep of devices that fails ends with $code"
[[ $said == *"seed 17"* ]] || fail "a sweep of devices that fails says: $said"
rm "$TMPDIR/broken/tests/test_device"
code=0
said=$(scripts/soak --devices --build "$(realpath --relative-to=. "$TMPDIR/broken")" 2>&1) || code=$?
((code == 2)) || fail "--devices without its programs ends with $code"
[[ $said == *"tests/test_device is not there: run scripts/build --tests all" ]] || fail "--devices without its programs says: $said"
for pair in "--files --kills" "--kills --losses" "--losses --layouts" "--layouts --devices"; do
  code=0
  # shellcheck disable=SC2086
  said=$(scripts/soak $pair 2>&1) || code=$?
  ((code == 2)) || fail "$pair ends with $code: $said"
done

# Ctrl-C ends the round with the process that it started, and still gives the summary.
printf '#!/bin/sh\necho $$ >"%s/pid"\nexec sleep 100\n' "$TMPDIR" >"$TMPDIR/broken/tests/soak_collectives"
scripts/soak --seed 5 --build "$(realpath --relative-to=. "$TMPDIR/broken")" >"$TMPDIR/said" &
soak=$!
for ((i = 0; i < 200; ++i)); do [[ -s $TMPDIR/pid ]] && break; sleep 0.1; done
kill -TERM "$soak"
code=0
wait "$soak" || code=$?
((code == 130)) || fail "a stopped run ends with $code"
grep -q "stopped: 0 rounds passed" "$TMPDIR/said" || fail "a stopped run says: $(cat "$TMPDIR/said")"
if kill -0 "$(cat "$TMPDIR/pid")" 2>/dev/null; then fail "a stopped run leaves a process"; fi
[[ -z $(find "$TMPDIR" -maxdepth 1 -name 'trireme-soak-*') ]] || fail "a folder is left: $(ls "$TMPDIR")"
