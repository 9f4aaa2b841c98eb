#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/suite: which failures have a second chance, and what is said of them. A project of five shell commands stands in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WORK=$work
unset CTEST_PARALLEL_LEVEL
fail() { echo "suite.sh: $*" >&2; exit 1; }

cat >"$work/CTestTestfile.cmake" <<'TESTS'
add_test(good.passes "true")
add_test(late.passes_alone "sh" "-c" "test -e $WORK/second || { touch $WORK/second; seq 40; echo a.cc:7: Failure; echo too late; seq 40; exit 1; }")
add_test(bad.never_passes "sh" "-c" "echo here is why; exit 1")
add_test(race.passes_alone "sh" "-c" "test -e $WORK/raced || { touch $WORK/raced; echo 'WARNING: ThreadSanitizer: data race'; exit 66; }")
TESTS
run() {
  rm -f "$work/second" "$work/raced"
  code=0
  said=$(scripts/suite "$work" "$@" 2>&1) || code=$?
  told=$(cat "$work/failed.txt" 2>/dev/null) || told=''
}

run -R good
((code == 0)) && [[ -z $told ]] || fail "a good suite: $code, $told"

run -R 'good|late'
((code == 0)) || fail "a test that passes alone fails the suite: $said"
[[ $told == *"late.passes_alone failed:"*"a.cc:7: Failure"*"too late"*"..."*"40"* ]] || fail "its failure is not repeated: $told"
[[ $told == *"unstable: late.passes_alone failed, and passed when it was run again alone"* ]] || fail "it is not named: $told"
grep -q 'Test: good.passes' "$work/Testing/Temporary/LastTest.log" || fail "the log is not of the whole run"

run -R 'late|bad'
((code == 1)) || fail "a test that never passes passes: $said"
[[ $told == *"bad.never_passes failed:"*"here is why"* && $told != *unstable* ]] || fail "the bad one is not told: $told"

run -R race
((code == 1)) && [[ $told == *"data race"* && ! -e $work/second ]] || fail "a race has a second chance: $said"

for i in 1 2 3 4; do echo "add_test(many.fail_once_$i \"sh\" \"-c\" \"test -e $work/m$i || { touch $work/m$i; exit 1; }\")"; done >>"$work/CTestTestfile.cmake"
run -R many
((code == 1)) && [[ $(grep -c 'failed:' <<<"$told") == 4 ]] || fail "four that fail have a second chance: $said"

run -R good
((code == 0)) && [[ -z $told ]] || fail "an old failure is told again: $told"

code=0
said=$(scripts/failed "$work/none" 2>&1) || code=$?
((code == 2)) && [[ $said == *"run ctest in"* ]] || fail "a folder without a log: $code, $said"
