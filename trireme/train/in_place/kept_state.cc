// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/kept_state.h"

#include <ATen/core/grad_mode.h>

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"

namespace trireme {
namespace {

/// A rank may hold several boxes of one tensor.
std::string box_of(const Slice& slice) {
  std::string text = slice.name;
  for (const int64_t offset : slice.offsets) text += fmt::format(" {}", offset);
  return text;
}

[[noreturn]] void refuse_rank_tensor(const std::string& name) {
  fail<ResourceError>("'{}' differs between ranks, and is not kept without the rank that had it",
                      name);
}

}  // namespace

class KeepingVisitor final : public StateVisitor {
 public:
  explicit KeepingVisitor(KeptState& kept) : kept_(kept) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    kept_.tensors_[box_of(slice)] = local.detach().clone();
  }
  void rank_tensor(const std::string& name, int, int, RankStateRule, at::Tensor) override {
    refuse_rank_tensor(name);
  }
  void value(const std::string& name, int64_t& v) override { kept_.values_.integers[name] = v; }
  void value(const std::string& name, double& v) override { kept_.values_.numbers[name] = v; }
  void value(const std::string& name, std::string& v) override { kept_.values_.texts[name] = v; }

 private:
  KeptState& kept_;
};

class FillingVisitor final : public StateVisitor {
 public:
  FillingVisitor(KeptState& kept, Group group, int source, bool all_hold)
      : kept_(kept), group_(std::move(group)), source_(source), all_hold_(all_hold) {}
  using StateVisitor::tensor;
  Purpose purpose() const override { return Purpose::load; }
  void tensor(const Slice& slice, at::Tensor local) override {
    if (all_hold_ || group_.rank() == source_) {
      const auto found = kept_.tensors_.find(box_of(slice));
      check<ResourceError>(found != kept_.tensors_.end(), "'{}' was not kept", slice.name);
      local.copy_(found->second);
    }
    if (!all_hold_) group_.broadcast(local, source_).wait();
  }
  void rank_tensor(const std::string& name, int, int, RankStateRule, at::Tensor) override {
    refuse_rank_tensor(name);
  }
  void value(const std::string& name, int64_t& v) override {
    give(kept_.values_.integers, name, v);
  }
  void value(const std::string& name, double& v) override { give(kept_.values_.numbers, name, v); }
  void value(const std::string& name, std::string& v) override {
    give(kept_.values_.texts, name, v);
  }

 private:
  template <class T>
  static void give(const std::map<std::string, T>& from, const std::string& name, T& to) {
    const auto found = from.find(name);
    check<ResourceError>(found != from.end(), "the value '{}' was not kept", name);
    to = found->second;
  }

  KeptState& kept_;
  Group group_;
  int source_;
  bool all_hold_;
};

void KeptState::take(const StateWalk& walk) {
  at::NoGradGuard no_grad;
  KeptState kept;
  KeepingVisitor visitor(kept);
  walk(visitor);
  *this = std::move(kept);
}

int64_t KeptState::integer(const std::string& name, int64_t otherwise) const {
  const auto found = values_.integers.find(name);
  return found == values_.integers.end() ? otherwise : found->second;
}

void KeptState::fill(const StateWalk& walk, Group group, int source, bool all_hold) {
  at::NoGradGuard no_grad;
  FillingVisitor visitor(*this, std::move(group), source, all_hold);
  walk(visitor);
}

void KeptState::share_values(Group group, int source) {
  values_ = broadcast_object(std::move(group), values_, source);
}

}  // namespace trireme
