// SPDX-License-Identifier: Apache-2.0
// Seeded damage to a step of several ranks' files. The sanitizers' trees run it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitized.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/checkpoint/steps/exchange/export_weights.h"
#include "trireme/checkpoint/steps/step_reader.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme::test::damaged_step_test {
namespace {

namespace fs = std::filesystem;
using trireme::testing::outcome_of;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Three ranks: a tensor in flat parts, of which the first has two blocks, one divided over dim 1,
/// state in parts, and what all ranks hold.
std::string write_three_ranks(const std::string& run) {
  return write_test_step(
      run, 7,
      {{"model.w",
        "F32",
        {300'000},
        counted(300'000),
        {{{0}, {270'000}}, {{270'000}, {15'000}}, {{285'000}, {15'000}}}},
       {"model.v",
        "F32",
        {4, 6},
        counted(24, 2),
        {{{0, 0}, {4, 2}}, {{0, 2}, {4, 2}}, {{0, 4}, {4, 2}}}},
       {"model.b", "BF16", {5}, "0123456789"},
       {"model.none", "F32", {0, 4}, ""},
       {"optim.m.w", "F64", {6}, counted(12, 3), {{{0}, {2}}, {{2}, {2}}, {{4}, {2}}}}},
      {{"train.step", int64_t{7}}, {"train.loss", 0.125}, {"train.note", "a note"}}, 3);
}

/// Everything that the step holds, as its reader gives it.
std::string all_of(const std::string& folder) {
  StepReader step(folder);
  std::string out;
  for (const auto& [name, tensor] : step.index().tensors) {
    const auto bytes = step.read(name, 0, Slice::whole(name, tensor.shape()).numel());
    out += name + tensor.dtype + std::string(bytes.begin(), bytes.end());
  }
  for (const auto& [name, value] : step.index().values)
    out += name + (std::holds_alternative<int64_t>(value)  ? std::to_string(std::get<0>(value))
                   : std::holds_alternative<double>(value) ? std::to_string(std::get<1>(value))
                                                           : std::get<2>(value));
  return out;
}

/// A checksum or a size of the index, or what no file can have.
bool says_what_was_expected(const std::string& said) {
  return contains(said, "; the index says ") || contains(said, "; the most is ") ||
         contains(said, ": ends inside its header (") ||
         contains(said, "too few for a safetensors");
}

class Damaged {
 public:
  Damaged() : folder_(write_three_ranks(run_.path())), whole_(all_of(folder_)) {
    for (const auto& entry : fs::directory_iterator(folder_))
      bytes_[entry.path().filename().string()] = read_file(entry.path().string());
  }

  /// Was it noticed? Then the message names the file; else all values are what they were.
  bool noticed(const std::string& file, const std::string& what) const {
    const std::string path = folder_ + "/" + file;
    std::string said = outcome_of([&] {
      std::string faults;
      for (const StepFault& fault : verify_step(folder_).faults) faults += fault.what + "\n";
      check<Corrupt>(faults.empty(), "{}", faults);
    });
    std::string read;
    const std::string refused = outcome_of([&] { read = all_of(folder_); });
    EXPECT_TRUE(refused.empty() || contains(refused, path)) << what << ": " << refused;
    EXPECT_TRUE(said.empty() ? read == whole_ : contains(said, path)) << what << ": " << said;
    const bool of_a_tensor = !said.empty() && file != CheckpointIndex::kFileName;
    EXPECT_TRUE(!of_a_tensor || (contains(said, "tensor") && says_what_was_expected(said)))
        << what << ": " << said;
    return !said.empty();
  }

  /// Changes these bits of a byte; 0 makes it as it was.
  void flip(const std::string& file, size_t at, int bits) const {
    const UniqueFd fd(::open((folder_ + "/" + file).c_str(), O_WRONLY | O_CLOEXEC));
    const char byte = static_cast<char>(bytes_.at(file)[at] ^ bits);
    ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
  }
  void restore(const std::string& file) const {
    fs::remove(folder_ + "/" + file);  // a new file: truncating makes ext4 sync
    write_text(folder_ + "/" + file, bytes_.at(file));
  }
  const std::map<std::string, std::string>& files() const { return bytes_; }
  const std::string& folder() const { return folder_; }

 private:
  PrivateFolder run_;
  std::string folder_, whole_;
  std::map<std::string, std::string> bytes_;
};

// Every byte of a step has a checksum, so no flipped bit is left for values to show.
TEST(checkpoint_steps_damaged, each_of_1000_flipped_bits_is_noticed_and_its_file_named) {
  const Damaged step;
  std::mt19937_64 random(18);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : step.files()) names.push_back(name);
  ASSERT_EQ(names.size(), 8u);
  // One thread and minutes of checksums: under ThreadSanitizer fewer do.
  const int rounds = testing::kThreadSanitized ? 50 : 1000;
  int noticed = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string& name = names[random() % names.size()];
    const size_t size = step.files().at(name).size();
    // Half of them in the header, which is small.
    const size_t at = random() % (round % 2 ? size : std::min<size_t>(size, 400));
    const int bit = static_cast<int>(random() % 8);
    step.flip(name, at, 1 << bit);
    noticed += step.noticed(name, fmt::format("{}: bit {} of byte {}", name, bit, at));
    step.flip(name, at, 0);
  }
  EXPECT_EQ(noticed, rounds);
  EXPECT_TRUE(verify_step(step.folder()).good());
}

TEST(checkpoint_steps_damaged, each_of_100_files_that_were_cut_short_is_named) {
  const Damaged step;
  std::mt19937_64 random(18);
  for (int round = 0; round < (testing::kThreadSanitized ? 10 : 100); ++round) {
    const auto file =
        std::next(step.files().begin(), static_cast<long>(random() % step.files().size()));
    const size_t size = random() % file->second.size();
    fs::resize_file(step.folder() + "/" + file->first, size);
    EXPECT_TRUE(step.noticed(file->first, fmt::format("{}: {} bytes", file->first, size)));
    step.restore(file->first);
  }
  EXPECT_TRUE(verify_step(step.folder()).good());
}

TEST(checkpoint_steps_damaged,
     files_of_two_ranks_that_were_exchanged_are_named_with_their_tensors) {
  const Damaged step;
  const std::string a = step.folder() + "/" + place_of("model.w", 1).file,
                    b = step.folder() + "/" + place_of("model.w", 2).file;
  ASSERT_EQ(fs::file_size(a), fs::file_size(b));
  fs::rename(a, a + ".other");
  fs::rename(b, a);
  fs::rename(a + ".other", b);
  const auto verdict = verify_step(step.folder());
  ASSERT_EQ(verdict.faults.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(contains(verdict.faults[i].what, i < 2 ? a : b)) << verdict.faults[i].what;
    EXPECT_EQ(verdict.faults[i].tensor, i % 2 ? "model.w" : "model.v");
  }
  ExportPlan plan;
  plan.tensors.push_back({"model.w", "w"});
  EXPECT_TRUE(contains(outcome_of([&] { verify_exported(StepReader(step.folder()), plan); }),
                       "Corrupt: " + a + ": tensor 'w': block 0 does not fit its checksum"));
}

}  // namespace
}  // namespace trireme::test::damaged_step_test
