// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/checkpoint/steps/pretend_worker.h"
#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"

namespace snapshot_format_test {

using namespace trireme;
using namespace trireme::test;

// snapshot-v<v>-rank<r>.bin is what the two ranks of a job had in memory as version v was when it
// landed.
namespace {

std::string fixture(int version, int rank) {
  return trireme::testing::source_path("/tests/formats/snapshot-v") + std::to_string(version) +
         "-rank" + std::to_string(rank) + ".bin";
}

PretendWorker writer(int rank) {
  PretendWorker w;
  w.rank = rank;
  w.sums = true;
  if (rank == 0) w.latest = "step-00000005";
  w.resumes = true;
  return w;
}

}  // namespace

class formats_snapshot_version : public ::testing::TestWithParam<int> {};

TEST(formats_snapshot, version_2_is_written_byte_for_byte) {
  ASSERT_EQ(kSnapshotVersion, 2u) << "a new version: keep this fixture, add one of the new";
  for (int rank : {0, 1}) EXPECT_TRUE(writer(rank).bytes() == read_file(fixture(2, rank))) << rank;
}

TEST_P(formats_snapshot_version, is_read) {
  std::vector<std::unique_ptr<const HeldSnapshot>> ranks;
  for (int rank : {0, 1}) {
    const UniqueFd memory = memory_of(read_file(fixture(GetParam(), rank)));
    ranks.push_back(HeldSnapshot::open(memory.get()));
    ASSERT_NE(ranks.back(), nullptr);
  }
  HeldStep step(std::move(ranks));
  step.sum_blocks();
  EXPECT_EQ(step.note().step, 7);
  EXPECT_EQ(step.note().run_dir, "/run");
  EXPECT_EQ(step.note().resumes, GetParam() > 1);
  EXPECT_EQ(step.note().latest,
            GetParam() > 1 ? std::optional<std::string>("step-00000005") : std::nullopt);
  EXPECT_EQ(step.index().values.at("train.step"), IndexValue(int64_t{7}));
  EXPECT_EQ(step.index().values.at("train.note"), IndexValue(std::string("a")));
  const IndexTensor& w = step.index().tensors.at("model.w");
  for (size_t r : {size_t{0}, size_t{1}}) {
    const auto file = step.open(w.parts[r].file);
    const auto& at = file->find(w.parts[r], "F32");
    std::vector<float> values(4);
    file->read(at.begin, {reinterpret_cast<uint8_t*>(values.data()), 16});
    EXPECT_EQ(values, std::vector<float>(4, r == 0 ? 1.f : 2.f));
    EXPECT_EQ(w.parts[r].blocks[0], Checksum::number_of(values.data(), 16));
  }
}

INSTANTIATE_TEST_SUITE_P(each, formats_snapshot_version, ::testing::Values(1, 2));

TEST(formats_snapshot, a_newer_version_is_refused_by_its_number) {
  std::string bytes = read_file(fixture(2, 0));
  bytes[8] = 3;
  try {
    HeldSnapshot::open(memory_of(bytes).get());
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("a snapshot of version 3; this launcher reads up to 2"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace snapshot_format_test
