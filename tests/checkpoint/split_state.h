// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/checkpoint/test_state.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/comm/start/run.h"

// State that is split over ranks as ZeRO does it, for the tests of this folder.
namespace trireme::test {

/// Where a rank stands: `shards` ranks split everything, `world / shards` hold the same.
struct Seat {
  int rank = 0, world = 1, shards = 1, stage = 3;
  std::string layout() const {
    return "zero stage " + std::to_string(stage) + ", dp_shard " + std::to_string(shards) +
           ", dp_replicate " + std::to_string(world / shards);
  }
};

struct Parameter {
  const char* name;
  std::vector<int64_t> shape;
};
inline const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> list{{"fc.weight", {5, 3}}, {"fc.bias", {2}}, {"g", {}}};
  return list;
}

/// What rank `seat.rank` of a model with three parameters (18 elements in a row, dealt evenly)
/// and a buffer shows. Element i of a tensor is a function of its name, i and `mark`.
struct SplitState {
  SplitState(Seat s, double mark) : seat(s), step(static_cast<int64_t>(mark)) {
    const int64_t chunk = (18 + s.shards - 1) / s.shards;
    const int64_t mine = s.rank % s.shards * chunk;
    int64_t at = 0;
    for (const auto& p : parameters()) {
      const int64_t numel = Slice::whole("", p.shape).numel();
      const int64_t begin = std::clamp(mine - at, int64_t{0}, numel);
      const int64_t end = std::clamp(mine + chunk - at, int64_t{0}, numel);
      const std::string name = p.name;
      if (s.stage < 3)
        put(Slice::whole("model." + name, p.shape), mark);
      else if (begin < end)
        put(Slice::range("model." + name, p.shape, begin, end - begin), mark);
      if (begin < end) {
        put(Slice::range("optim.exp_avg." + name, p.shape, begin, end - begin), mark + 0.5);
        steps["optim.steps." + name] = static_cast<int64_t>(mark) + numel;
      }
      at += numel;
    }
    put(Slice::whole("model.mean", {3}), mark);
  }

  static at::Tensor values(const Slice& s, double mark) {
    double key = mark * 1000;
    for (char c : s.name) key += c;
    const int64_t begin = s.flat ? s.flat->begin : 0;
    return (at::arange(s.numel(), at::kDouble) + (key + static_cast<double>(begin)))
        .to(at::kFloat)
        .view(s.local_shape());
  }
  void put(const Slice& slice, double mark) { tensors.emplace_back(slice, values(slice, mark)); }
  void operator()(StateVisitor& v) {
    for (auto& [slice, t] : tensors) v.tensor(slice, t);
    v.value("train.step", step);
    for (auto& [name, n] : steps) v.value(name, n);
  }
  bool same_as(const SplitState& other) const {
    bool same = tensors.size() == other.tensors.size() && step == other.step;
    for (size_t i = 0; same && i < tensors.size(); ++i)
      same = tensors[i].first == other.tensors[i].first &&
             tensors[i].second.equal(other.tensors[i].second);
    return same && steps == other.steps;
  }

  Seat seat;
  std::vector<std::pair<Slice, at::Tensor>> tensors;
  std::map<std::string, int64_t> steps;
  int64_t step = 0;
};

/// Weights alone, whole and in their shapes.
struct WholeWeights {
  WholeWeights() {
    for (const auto& p : parameters()) tensors["model." + std::string(p.name)] = at::zeros(p.shape);
    tensors["model.mean"] = at::zeros({3});
  }
  void operator()(StateVisitor& v) {
    for (auto& [name, t] : tensors) v.tensor(name, t);
  }
  bool are_of(double mark) const {
    for (const auto& [name, t] : tensors)
      if (!t.equal(SplitState::values(Slice::whole(name, t.sizes().vec()), mark))) return false;
    return true;
  }
  std::map<std::string, at::Tensor> tensors;
};

inline Seat seat_of(const Group& g, int shards, int stage = 3) {
  return {g.rank(), g.size(), shards, stage};
}

/// By the ranks of a group: state `step`.
inline std::string save_split(const std::string& run, int64_t step, Group g, Seat seat,
                              int keep = 2) {
  SplitState state(seat, static_cast<double>(step));
  return save_sharded_step(run, step, std::ref(state), g, {.layout = seat.layout(), .keep = keep});
}
/// By threads.
inline void save_split(const std::string& run, int64_t step, Seat seat, int keep = 2) {
  run_threads(seat.world, [&](Group g) {
    save_split(run, step, g, {g.rank(), seat.world, seat.shards, seat.stage}, keep);
  });
}
/// Does rank `seat.rank` find what it saved?
inline bool loads(const std::string& path, Seat seat) {
  SplitState state(seat, -1);
  const auto info = load_step(path, std::ref(state), {.partial = true});
  return state.same_as(SplitState(seat, static_cast<double>(info.step)));
}
inline bool all_load(const std::string& path, Seat seat) {
  for (seat.rank = 0; seat.rank < seat.world; ++seat.rank)
    if (!loads(path, seat)) return false;
  return true;
}

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder))
    names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline size_t hidden_files(const std::string& run) {
  size_t n = 0;
  for (const std::string& name : names_in(run)) n += name.front() == '.';
  return n;
}

}  // namespace trireme::test
