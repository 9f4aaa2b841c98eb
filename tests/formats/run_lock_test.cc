// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/run_lock.h"

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace run_lock_test {

using namespace trireme;
using namespace trireme::launch;

// run-lock-v1.json is the owner's name in a run folder as version 1 was when it landed.
namespace {

const std::string kFixture = trireme::testing::source_path("/tests/formats/run-lock-v1.json");
const LockOwner kOwner{
    {"node7", "5cd7ca7c-1c4f-4ce6-b1f0-0a6a2b3c4d5e", "pid:[4026531836]", 4711, 123456},
    "2026-11-22T16:50:07Z"};

}  // namespace

TEST(formats_run_lock, version_1_is_written_byte_for_byte) {
  ASSERT_EQ(kRunLockVersion, 1) << "a new version: keep this fixture, add one of the new";
  EXPECT_EQ(lock_text(kOwner), read_file(kFixture));
}

TEST(formats_run_lock, version_1_is_read) {
  const auto owner = read_lock(read_file(kFixture), kFixture);
  ASSERT_TRUE(owner.has_value());
  EXPECT_EQ(owner->process, kOwner.process);
  EXPECT_EQ(owner->since, kOwner.since);
}

}  // namespace run_lock_test
