// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/slice.h"

// How every component with state exposes it: state(visitor) names its tensors (with the slice of
// the global tensor that this rank holds) and its small values. The same walk saves and loads: a
// saving visitor reads, a loading visitor writes in place. Names are dotted paths, unique within
// one walk: "model.blocks.0.attn.qkv.weight", "optim.exp_avg.blocks.0…", "train.step".
namespace trireme {

/// What happens to state that differs between ranks (error feedback, weights of ranks that step
/// separately) when it is loaded on a different number of ranks.
enum class RankStateRule {
  add,         // the sum over ranks is preserved: a new rank gets the sum of old ones, or zeros
  average,     // every new rank gets the mean
  begin_anew,  // every new rank keeps the values that it has
};

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  /// `local` has slice.local_shape() as its sizes (or as many elements) and is contiguous. Written
  /// in place on load. A rank may visit several boxes under one name if they are disjoint.
  virtual void tensor(const Slice& slice, at::Tensor local) = 0;
  /// A whole tensor of which every rank has a copy, and the copies may differ (running statistics
  /// of BatchNorm): rank 0's is saved, and every rank loads it.
  virtual void copy_of_rank_0(const std::string& name, at::Tensor whole) {
    const Slice slice = Slice::whole(name, whole.sizes().vec());
    tensor(slice, std::move(whole));
  }
  /// State that differs between ranks: `local` is that of rank `rank` out of `ranks`, flat and of
  /// the same size on all of them. In files it is a row of a tensor [ranks, numel].
  virtual void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule /*rule*/,
                           at::Tensor local) {
    const int64_t n = local.numel();
    tensor(Slice{name, {ranks, n}, {rank, 0}, {1, n}}, std::move(local));
  }
  virtual void value(const std::string& name, int64_t& v) = 0;
  virtual void value(const std::string& name, double& v) = 0;
  virtual void value(const std::string& name, std::string& v) = 0;

  /// A value that cannot be loaded but must equal the saved one ("optim.type"): a load compares it
  /// before it writes anything.
  virtual void constant(const std::string& name, const std::string& v) {
    std::string copy = v;
    value(name, copy);
    if (copy != v) throw UsageError("'" + name + "' is '" + copy + "' there and '" + v + "' here");
  }
  /// The purpose of this walk. A load first compares everything that is visited and then writes it,
  /// in one walk, or in two of which the second ends what the first has begun (some of what this
  /// rank needs is read by others first). Only then, and in each of the two, may a component update
  /// what it derives from its state. If a load fails, the rest of the walk is passed over.
  enum class Purpose { save, compare, load };
  virtual Purpose purpose() const { return Purpose::save; }
  bool saving() const { return purpose() == Purpose::save; }
  bool loading() const { return purpose() == Purpose::load; }

  /// The common case: this rank holds the whole tensor.
  void tensor(const std::string& name, at::Tensor whole) {
    tensor(Slice::whole(name, whole.sizes().vec()), whole);
  }
};

/// Forwards everything to another visitor; subclasses change some of it.
class ForwardingVisitor : public StateVisitor {
 public:
  explicit ForwardingVisitor(StateVisitor& inner) : inner_(inner) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    inner_.tensor(slice, std::move(local));
  }
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override {
    inner_.copy_of_rank_0(name, std::move(whole));
  }
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override {
    inner_.rank_tensor(name, rank, ranks, rule, std::move(local));
  }
  void value(const std::string& name, int64_t& v) override { inner_.value(name, v); }
  void value(const std::string& name, double& v) override { inner_.value(name, v); }
  void value(const std::string& name, std::string& v) override { inner_.value(name, v); }
  void constant(const std::string& name, const std::string& v) override {
    inner_.constant(name, v);
  }
  Purpose purpose() const override { return inner_.purpose(); }

 protected:
  StateVisitor& inner_;
};

using StateWalk = std::function<void(StateVisitor&)>;

/// The state of an object with a method state(visitor) (a schedule, a sampler, a GradScaler, one of
/// our optimizers), which must outlive the walk.
template <class Component>
requires requires(Component& c, StateVisitor& v) { c.state(v); }
StateWalk state_of(Component& component) {
  return [&component](StateVisitor& v) { component.state(v); };
}

}  // namespace trireme
