// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/compression/compression.h"
#include "trireme/grad/reducer.h"
#include "trireme/tensor/random/random.h"

// Rounds of made-up gradients through a codec's hook and a Reducer with several buckets.
namespace trireme::testing {

using MakeHook = std::function<std::shared_ptr<CompressionHook>(const NamedTensors&, const Group&)>;

inline MakeHook hook_of(CompressionOptions options) {
  return
      [options](const NamedTensors& p, const Group& g) { return make_compression(options, p, g); };
}

// Every codec, from its first round on, with numbers that suit small tensors.
inline std::vector<CompressionOptions> every_codec(int64_t start_step = 0) {
  std::vector<CompressionOptions> all;
  for (const char* type : {"int8", "topk", "sign", "powersgd", "auto"}) {
    CompressionOptions o;
    o.type = type;
    o.block = 32;
    o.density = 0.1;
    o.rank = 2;
    o.start_step = start_step;
    o.decide_every = 10;
    all.push_back(o);
  }
  return all;
}

/// Matrices, a tensor of four dims, and what is too small or has one dim.
inline std::vector<std::vector<int64_t>> mixed_shapes() {
  return {{12, 30}, {7}, {40, 16}, {3, 4}, {8, 3, 5, 5}, {1}, {333}};
}

struct Rounds {
  Rounds(Group g, const MakeHook& make, std::vector<std::vector<int64_t>> shapes,
         ReduceOp op = ReduceOp::sum, at::ScalarType type = at::kFloat, size_t bucket_bytes = 2500,
         at::Device device = at::kCPU, const std::function<CommHook(CommHook)>& within = {})
      : group(g) {
    for (size_t p = 0; p < shapes.size(); ++p)
      parameters.emplace_back(
          "p" + std::to_string(p),
          at::zeros(shapes[p], at::dtype(type).device(device)).requires_grad_());
    hook = make(parameters, g);
    reducer = std::make_unique<Reducer>(
        parameters, g,
        ReducerOptions{
            {bucket_bytes, bucket_bytes}, op, within ? within(hook->hook()) : hook->hook(), {}});
  }

  /// Rank r's gradient of parameter p in a round: normal, and partly the same on all ranks.
  static at::Tensor gradient(int rank, int64_t round, size_t p, at::IntArrayRef shape) {
    at::Tensor own = at::empty(shape), common = at::empty(shape);
    const auto key = [&](uint64_t who) {
      return stable_hash({who, static_cast<uint64_t>(round), p});
    };
    normal_(own, key(1 + static_cast<uint64_t>(rank)), 0, 0.5);
    normal_(common, key(0), 0, 1);
    return own + common;
  }

  using Change = std::function<void(size_t p, at::Tensor& gradient)>;
  void round(int64_t number, const Change& change = {}) {
    reducer->open();
    for (size_t p = parameters.size(); p-- > 0;) {
      at::Tensor& t = parameters[p].second;
      at::Tensor g = gradient(group.rank(), number, p, t.sizes()).to(t.device(), t.scalar_type());
      if (change) change(p, g);
      t.mutable_grad() = g;
      reducer->ready(p);
    }
    reducer->close();
  }

  /// What the last round gave, flat.
  at::Tensor result() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, p] : parameters) all.push_back(p.grad().cpu().flatten().to(at::kFloat));
    return at::cat(all).clone();
  }
  /// What this rank keeps, flat, in the same order.
  at::Tensor kept() const {
    std::vector<at::Tensor> all;
    for (size_t p = 0; p < parameters.size(); ++p) all.push_back(hook->errors()->of(p).cpu());
    return at::cat(all).clone();
  }
  /// Σ over ranks of the gradients of a round, in float64.
  at::Tensor truth(int64_t number) const {
    std::vector<at::Tensor> all;
    for (size_t p = 0; p < parameters.size(); ++p) {
      at::Tensor sum = at::zeros({parameters[p].second.numel()}, at::kDouble);
      for (int r = 0; r < group.size(); ++r)
        sum += gradient(r, number, p, parameters[p].second.sizes())
                   .to(parameters[p].second.scalar_type())
                   .flatten()
                   .to(at::kDouble);
      all.push_back(sum);
    }
    return at::cat(all);
  }

  Group group;
  NamedTensors parameters;
  std::shared_ptr<CompressionHook> hook;
  std::unique_ptr<Reducer> reducer;
};

inline double relative(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor w = want.to(at::kDouble);
  return ((got.to(at::kDouble) - w).norm() / (w.norm() + 1e-30)).item<double>();
}

/// What one rank shows, and its way back.
struct Shown : StateVisitor {
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    if (loading)
      local.copy_(tensors.at(slice.name));
    else
      tensors[slice.name] = local.clone();
    slices[slice.name] = slice;
  }
  void value(const std::string& name, int64_t& v) override { take(whole, name, v); }
  void value(const std::string& name, double& v) override { take(real, name, v); }
  void value(const std::string& name, std::string& v) override { take(text, name, v); }
  template <class T>
  void take(std::map<std::string, T>& values, const std::string& name, T& v) {
    if (loading)
      v = values.at(name);
    else
      values[name] = v;
  }
  bool loading = false;
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, Slice> slices;
  std::map<std::string, int64_t> whole;
  std::map<std::string, double> real;
  std::map<std::string, std::string> text;
};

}  // namespace trireme::testing
