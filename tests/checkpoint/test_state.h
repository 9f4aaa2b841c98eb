// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/tensor/state.h"

// A state to save and load, and small helpers, for the tests of this folder.
namespace trireme::test {

struct TestState {
  /// Every element tells which state it came from.
  explicit TestState(double mark = 0) {
    put("model.fc.weight", at::arange(6, at::kFloat).view({2, 3}) + mark);
    put("model.fc.bias", at::full({2}, mark, at::kBFloat16));
    put("model.steps_seen", at::full({}, static_cast<int64_t>(mark), at::kLong));
    put("optim.exp_avg.fc.weight", at::full({2, 3}, mark * 2, at::kDouble));
    put("data.mask", at::ones({3}, at::kBool));
    put("data.nothing", at::empty({0, 4}));
    step = static_cast<int64_t>(mark);
    loss = mark / 3;
  }
  void put(const std::string& name, at::Tensor t) { tensors[name] = std::move(t); }
  void operator()(StateVisitor& v) {
    for (auto& [name, t] : tensors) v.tensor(name, t);
    v.value("train.step", step);
    v.value("train.loss", loss);
    v.value("train.note", note);
  }
  bool same_as(const TestState& other) const {
    for (const auto& [name, t] : tensors)
      if (!other.tensors.count(name) || !t.equal(other.tensors.at(name))) return false;
    return tensors.size() == other.tensors.size() && step == other.step && loss == other.loss &&
           note == other.note;
  }
  std::map<std::string, at::Tensor> tensors;
  int64_t step = 0;
  double loss = 0;
  std::string note = "grüße";
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& bytes) {
  if (path.compare(0, 6, "/proc/") != 0)
    ::unlink(path.c_str());  // a new file: truncating makes ext4 sync
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// The message of the E that call throws; "" when it throws none.
template <class E, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void save(const std::string& run, int64_t step, SaveOptions options = {}) {
  TestState state(static_cast<double>(step));
  save_step(run, step, std::ref(state), options);
}

/// Loads what `path` holds; the mark of the state found.
inline int64_t load_mark(const std::string& path) {
  TestState state(-1);
  auto info = load_step(path, std::ref(state));
  EXPECT_TRUE(state.same_as(TestState(static_cast<double>(info.step))));
  return info.step;
}

}  // namespace trireme::test
