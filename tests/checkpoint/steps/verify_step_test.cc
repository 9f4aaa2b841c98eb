// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/verify_step.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/file_log.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace trireme::test::verify_step_test {
namespace {

constexpr int64_t kMiB = 1 << 18;  // floats

// A tensor of 4 MiB in two parts, and a small one.
std::string write_two_parts(const std::string& run) {
  return write_test_step(
      run, 7,
      {{"model.w", "F32", {4, kMiB}, counted(4 * kMiB), {{{0, 0}, {1, kMiB}}, {{1, 0}, {3, kMiB}}}},
       {"optim.m.w", "F32", {3}, counted(3)}},
      {}, 2);
}

TEST(checkpoint_steps_verify, a_good_step_is_read_to_its_last_byte) {
  PrivateFolder run;
  const auto verdict = verify_step(write_two_parts(run.path()));
  EXPECT_TRUE(verdict.good());
  uint64_t size = 0;
  for (const auto& [name, file] : verdict.index->files) size += file.size;
  EXPECT_EQ(verdict.bytes_read, size);
  EXPECT_GT(size, uint64_t{4} << 20);
}

TEST(checkpoint_steps_verify, every_fault_is_named_and_neighbouring_blocks_are_one) {
  PrivateFolder run;
  const std::string folder = write_two_parts(run.path());
  flip_byte(folder + "/model-rank00001.safetensors", 1);                       // block 2 of 0 … 2
  flip_byte(folder + "/model-rank00001.safetensors", (size_t{1} << 20) + 10);  // block 1
  flip_byte(folder + "/state.safetensors", 5);
  const auto missing_size = std::filesystem::file_size(folder + "/model-rank00000.safetensors");
  std::filesystem::remove(folder + "/model-rank00000.safetensors");
  const auto verdict = verify_step(folder);
  ASSERT_EQ(verdict.faults.size(), 3u);
  const StepFault &missing = verdict.faults[0], &blocks = verdict.faults[1],
                  &small = verdict.faults[2];
  EXPECT_EQ(missing.file, "model-rank00000.safetensors");
  EXPECT_EQ(missing.tensor, "");
  EXPECT_EQ(missing.what,
            folder + "/model-rank00000.safetensors is missing; the index says it has " +
                std::to_string(missing_size) + " bytes; tensor 'w' in it was not read");
  EXPECT_EQ(blocks.file, "model-rank00001.safetensors");
  EXPECT_EQ(blocks.tensor, "model.w");
  EXPECT_EQ(blocks.first_block, 1);
  EXPECT_EQ(blocks.last_block, 2);
  EXPECT_EQ(blocks.begin, uint64_t{1} << 20);
  EXPECT_EQ(blocks.end, uint64_t{3} << 20);
  EXPECT_EQ(small.file, "state.safetensors");
  EXPECT_EQ(small.tensor, "optim.m.w");
  EXPECT_EQ(small.first_block, 0);
  EXPECT_EQ(small.end, 12u);
  // Of neighbours, the first one's.
  const auto& parts = verdict.index->tensors.at("model.w").parts;
  const std::string file = read_file(folder + "/model-rank00001.safetensors");
  const std::string block = file.substr(file.size() - (size_t{2} << 20), size_t{1} << 20);
  EXPECT_TRUE(blocks.what.ends_with("of block 1 it is " + Checksum::of(block.data(), block.size()) +
                                    "; the index says " + Checksum::hex_of(parts[1].blocks.at(1))))
      << blocks.what;
  EXPECT_TRUE(small.what.ends_with(
      "; the index says " +
      Checksum::hex_of(verdict.index->tensors.at("optim.m.w").parts[0].blocks.at(0))))
      << small.what;
}

TEST(checkpoint_steps_verify, what_the_disk_does_not_give_is_unread_and_not_wrong) {
  PrivateFolder run;
  const std::string folder = write_two_parts(run.path());
  flip_byte(folder + "/state.safetensors", 5);
  EXPECT_EQ(verify_step(folder).unread(), nullptr);
  for (const char* faults : {"model-rank00001,pread:EIO", "trireme.index.json,read:EIO"}) {
    const trireme::testing::FileFaults disk("only=" + std::string(faults));
    const auto verdict = verify_step(folder);
    ASSERT_NE(verdict.unread(), nullptr) << faults;
    EXPECT_NE(verdict.unread()->what.find("Input/output error"), std::string::npos) << faults;
  }
}

TEST(checkpoint_steps_verify, a_damaged_header_or_index_is_a_fault_of_that_file) {
  PrivateFolder run;
  const std::string folder = write_two_parts(run.path());
  const std::string path = folder + "/state.safetensors";
  flip_byte(path, read_file(path).size() - 12);
  auto verdict = verify_step(folder);
  const std::string head = read_file(path).substr(0, read_file(path).size() - 12);
  const std::string said = verdict.index->files.at("state.safetensors").head;
  ASSERT_EQ(verdict.faults.size(), 1u);
  EXPECT_EQ(verdict.faults[0].what, path + ": the checksum of its header does not fit: it is " +
                                        Checksum::of(head.data(), head.size()) +
                                        "; the index says " + said +
                                        "; tensor 'optim.m.w' in it was not read");
  flip_byte(folder + "/" + CheckpointIndex::kFileName, 10);
  verdict = verify_step(folder);
  ASSERT_EQ(verdict.faults.size(), 1u);
  EXPECT_EQ(verdict.faults[0].file, CheckpointIndex::kFileName);
  EXPECT_FALSE(verdict.index.has_value());
}

TEST(checkpoint_steps_verify, a_glance_sees_what_is_missing_or_short_and_no_flipped_byte) {
  PrivateFolder run;
  const std::string folder = write_two_parts(run.path());
  flip_byte(folder + "/model-rank00001.safetensors", 1);
  EXPECT_TRUE(glance_at_step(folder).good());
  std::filesystem::resize_file(folder + "/state.safetensors", 9);
  std::filesystem::remove(folder + "/model-rank00000.safetensors");
  const auto verdict = glance_at_step(folder);
  ASSERT_EQ(verdict.faults.size(), 2u);
  EXPECT_NE(verdict.faults[0].what.find("model-rank00000.safetensors is missing"),
            std::string::npos);
  EXPECT_NE(verdict.faults[1].what.find("has 9 bytes; the index says"), std::string::npos);
}

TEST(checkpoint_steps_verify, a_step_of_a_newer_version_is_not_called_damaged) {
  PrivateFolder run;
  const std::string folder = write_two_parts(run.path());
  rewrite_index(folder, "\"version\": 3", "\"version\": 4");
  EXPECT_THROW(verify_step(folder), UsageError);
  EXPECT_THROW(glance_at_step(folder), UsageError);
}

}  // namespace
}  // namespace trireme::test::verify_step_test
