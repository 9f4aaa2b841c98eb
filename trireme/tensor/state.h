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

/// What becomes of state that every rank has for itself (error feedback, weights of ranks that step
/// separately) when another number of ranks loads it.
enum class RankStateRule {
  add,         // the old ranks' sum is kept: each new rank gets the sum of some of them, or zeros
  average,     // every new rank gets the mean
  begin_anew,  // it stays as the new run made it
};

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  /// `local` has slice.local_shape() as its sizes (or as many elements) and is contiguous. Written
  /// in place on load. A rank may show several boxes of one name, if they are disjoint.
  virtual void tensor(const Slice& slice, at::Tensor local) = 0;
  /// A whole tensor of which every rank has a copy, and the copies may differ (running statistics
  /// of BatchNorm): rank 0's is saved, and every rank loads it.
  virtual void copy_of_rank_0(const std::string& name, at::Tensor whole) {
    const Slice slice = Slice::whole(name, whole.sizes().vec());
    tensor(slice, std::move(whole));
  }
  /// State that each of `ranks` ranks has for itself: `local`, flat and of the same size on all, is
  /// rank `rank`'s. In files it is a row of a tensor [ranks, numel].
  virtual void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule /*rule*/,
                           at::Tensor local) {
    const int64_t n = local.numel();
    tensor(Slice{name, {ranks, n}, {rank, 0}, {1, n}}, std::move(local));
  }
  virtual void value(const std::string& name, int64_t& v) = 0;
  virtual void value(const std::string& name, double& v) = 0;
  virtual void value(const std::string& name, std::string& v) = 0;

  /// A value that must be the same where it is loaded ("optim.type"): a load compares it before it
  /// writes anything.
  virtual void constant(const std::string& name, const std::string& v) {
    std::string copy = v;
    value(name, copy);
    if (copy != v) throw UsageError("'" + name + "' is '" + copy + "' there and '" + v + "' here");
  }
  /// Why it walks. A load first compares all that is shown, and then, in a second walk, writes it:
  /// that is when a component takes over what follows from its state.
  enum class Purpose { save, compare, load };
  virtual Purpose purpose() const { return Purpose::save; }
  bool saving() const { return purpose() == Purpose::save; }
  bool loading() const { return purpose() == Purpose::load; }

  /// The common case: this rank holds the whole tensor.
  void tensor(const std::string& name, at::Tensor whole) {
    tensor(Slice::whole(name, whole.sizes().vec()), whole);
  }
};

/// Shows another visitor what it is shown; subclasses change some of it.
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

/// The state of an object that shows it (a schedule, a sampler, a loss scale, an optimizer of
/// ours), which must outlive the walk.
template <class Component>
requires requires(Component& c, StateVisitor& v) { c.state(v); }
StateWalk state_of(Component& component) {
  return [&component](StateVisitor& v) { component.state(v); };
}

}  // namespace trireme
