// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/device/train_runs.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/writer.h"

// A save that is waited for, of a device's state.
namespace trireme::device_saves_test {
namespace {

using pretend::device;

std::vector<at::Tensor> numbers(at::Device where) {
  std::vector<at::Tensor> state;
  for (int64_t i = 0; i < 12; ++i) {
    const at::Tensor t = at::arange(64 * (i + 1), at::kFloat).view({-1, 16}).add(1000.0 * i);
    state.push_back((i % 3 == 0 ? t.to(at::kBFloat16) : t).to(where));
    if (i % 4 == 1) state.back() = state.back().t();  // as it does not lie in files
  }
  return state;
}

StateWalk walk_of(const std::vector<at::Tensor>& state) {
  return [&state](StateVisitor& v) {
    for (size_t i = 0; i < state.size(); ++i) v.tensor(fmt::format("model.w{}", i), state[i]);
  };
}

// The values that it has behind what was put into the stream, whatever is late, from pinned memory,
// and beside a tensor of the CPU's.
TEST(device_saves, come_through_pinned_memory_with_what_the_stream_has_computed) {
  pretend::for_some_seeds(8, [] {
    const CurrentDevice current(device(1));
    PrivateFolder folder;
    std::vector<at::Tensor> state = numbers(device(1)), expected = numbers(at::kCPU);
    state[5] = expected[5].clone();
    for (std::vector<at::Tensor>* all : {&state, &expected})
      for (at::Tensor& t : *all) t.mul_(2);
    const pretend::Counters before = pretend::counters();
    save_step(folder.path(), 1, walk_of(state));
    EXPECT_GE(pretend::counters().async_copies, before.async_copies + state.size() - 1);
    EXPECT_EQ(pretend::counters().staged_copies, before.staged_copies);
    std::vector<at::Tensor> loaded = numbers(at::kCPU);
    for (at::Tensor& t : loaded) t.fill_(-1);
    load_step(folder.path(), walk_of(loaded));
    for (size_t i = 0; i < loaded.size(); ++i) EXPECT_TRUE(loaded[i].equal(expected[i])) << i;
  });
}

}  // namespace
}  // namespace trireme::device_saves_test
