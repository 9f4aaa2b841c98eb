// SPDX-License-Identifier: Apache-2.0
// Seeded damage to a step of several ranks' files, through load_step(). What else reads steps is
// tested where the sanitizers' trees have it: tests/checkpoint/steps/damaged_step_test.cc.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/checkpoint/test_state.h"
#include "tests/support/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"

namespace damaged_load_test {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

/// Three ranks: a tensor in parts of rows, of which the first has two blocks, one divided over its
/// columns, state in parts, and what all ranks held.
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
       {"optim.m.w", "F64", {6}, counted(12, 3), {{{0}, {2}}, {{2}, {2}}, {{4}, {2}}}},
       {"optim.count", "I64", {}, "12345678"}},
      {{"train.step", int64_t{7}}, {"train.loss", 0.125}, {"train.note", "a note"}}, 3);
}

/// What one process has of it.
class Whole {
 public:
  Whole() {
    put("model.w", {300'000}, at::kFloat);
    put("model.v", {4, 6}, at::kFloat);
    put("model.b", {5}, at::kBFloat16);
    put("model.none", {0, 4}, at::kFloat);
    put("optim.m.w", {6}, at::kDouble);
    put("optim.count", {}, at::kLong);
  }
  void operator()(StateVisitor& v) {
    for (auto& [name, t] : tensors_) v.tensor(name, t);
    v.value("train.step", step_);
    v.value("train.loss", loss_);
    v.value("train.note", note_);
  }
  /// As before any load.
  void forget() {
    for (auto& [name, t] : tensors_) t.fill_(-1);
    step_ = -1, loss_ = -1, note_ = "old";
  }
  bool is_untouched() const {
    for (const auto& [name, t] : tensors_)
      if (!t.eq(-1).all().item<bool>()) return false;
    return step_ == -1 && loss_ == -1 && note_ == "old";
  }
  bool same_as(const Whole& other) const {
    for (const auto& [name, t] : tensors_)
      if (!t.equal(other.tensors_.at(name))) return false;
    return step_ == other.step_ && loss_ == other.loss_ && note_ == other.note_;
  }

 private:
  void put(const std::string& name, std::vector<int64_t> shape, at::ScalarType dtype) {
    tensors_[name] = at::full(shape, -1, dtype);
  }
  std::map<std::string, at::Tensor> tensors_;
  int64_t step_ = -1;
  double loss_ = -1;
  std::string note_ = "old";
};

/// Changes these bits of a byte.
void flip(const std::string& path, size_t at, int bits) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  char byte = 0;
  ASSERT_EQ(::pread(fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
  byte = static_cast<char>(byte ^ bits);
  ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
}

class checkpoint_damaged_load : public ::testing::Test {
 protected:
  checkpoint_damaged_load() {
    // What is left to go on from, and what the message names.
    older_ = write_test_step(run_.path(), 6, {{"model.b", "BF16", {5}, "9876543210"}});
    folder_ = write_three_ranks(run_.path());
    load_step(folder_, std::ref(good_));
    for (const auto& entry : fs::directory_iterator(folder_))
      files_.emplace_back(entry.path().string(), entry.file_size());
    std::sort(files_.begin(), files_.end());
  }

  /// Bits all over the files, half of them in headers and in the index, which are small. True where
  /// the state was touched before the fault was found.
  void flip_1000_bits(bool check_first, size_t& touched) {
    std::mt19937_64 random(18);
    Whole state;
    ASSERT_EQ(files_.size(), 9u);
    for (int round = 0; round < 1000; ++round) {
      const auto& [path, size] = files_[random() % files_.size()];
      const size_t at = random() % (round % 2 ? size : std::min<size_t>(size, 400));
      const int bit = static_cast<int>(random() % 8);
      flip(path, at, 1 << bit);
      state.forget();
      const std::string text = trireme::testing::outcome_of(
          [&] { load_step(run_.path(), std::ref(state), {.check_first = check_first}); });
      const std::string where = fmt::format("{}: bit {} of byte {}: '{}'", path, bit, at, text);
      EXPECT_TRUE(text.starts_with("Corrupt: ") && contains(text, path)) << where;
      EXPECT_TRUE(contains(text, "The newest good checkpoint before it is " + older_)) << where;
      touched += !state.is_untouched();
      flip(path, at, 1 << bit);
    }
    state.forget();
    load_step(run_.path(), std::ref(state), {.check_first = check_first});
    EXPECT_TRUE(state.same_as(good_)) << "the last flip is undone";
  }

  PrivateFolder run_;
  std::string folder_, older_;
  Whole good_;
  std::vector<std::pair<std::string, size_t>> files_;
};

}  // namespace

TEST_F(
    checkpoint_damaged_load,
    each_of_1000_flipped_bits_is_refused_by_its_files_name_and_if_checked_first_changes_nothing) {
  size_t touched = 0;
  flip_1000_bits(true, touched);
  EXPECT_EQ(touched, 0u);
}

TEST_F(checkpoint_damaged_load,
       each_of_1000_flipped_bits_is_refused_by_its_files_name_while_state_is_filled) {
  size_t touched = 0;
  flip_1000_bits(false, touched);
  // In some of model.w's blocks: it was there that they were compared.
  EXPECT_GT(touched, 0u);
}

}  // namespace damaged_load_test
