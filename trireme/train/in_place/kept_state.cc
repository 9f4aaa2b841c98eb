// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/kept_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <functional>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"

namespace trireme {
namespace {

[[noreturn]] void refuse_rank_tensor(const std::string& name) {
  fail<ResourceError>("'{}' differs between ranks, and is not kept without the rank that had it",
                      name);
}

int64_t product(const std::vector<int64_t>& of) {
  return std::accumulate(of.begin(), of.end(), int64_t{1}, std::multiplies<>());
}

/// A box of a slice, in the slice's memory.
at::Tensor box_in(const at::Tensor& local, const PlacedBox& box) {
  return local.flatten().narrow(0, box.at, product(box.lengths)).view(box.lengths);
}

/// A part of a box, in the box's memory.
at::Tensor part_of(at::Tensor box, const std::vector<int64_t>& begins, const SharedBox& part) {
  for (size_t d = 0; d < begins.size(); ++d)
    box = box.narrow(static_cast<int64_t>(d), part.offsets[d] - begins[d], part.lengths[d]);
  return box;
}

/// Sees the names and shapes of a walk.
class NamingVisitor final : public StateVisitor {
 public:
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor) override {
    names[slice.name] = product(slice.global_shape);
  }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  void constant(const std::string&, const std::string&) override {}
  WholeState names;
};

}  // namespace

class KeepingVisitor final : public StateVisitor {
 public:
  explicit KeepingVisitor(KeptState& kept) : kept_(kept) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    const at::Tensor copy = local.detach().clone();
    for (const PlacedBox& box : boxes_of(slice))
      kept_.tensors_[{slice.name, box.offsets, box.lengths,
                      static_cast<int64_t>(local.scalar_type())}] = box_in(copy, box);
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

/// Gives values; tensors are remembered in a first walk, and are full in the second.
class FillingVisitor final : public StateVisitor {
 public:
  struct Wanted {
    std::vector<int64_t> offsets, lengths;
    at::Tensor to;
    int64_t left;  // elements that nobody has sent yet
  };

  explicit FillingVisitor(KeptState& kept) : kept_(kept) {}
  using StateVisitor::tensor;
  Purpose purpose() const override { return Purpose::load; }
  void tensor(const Slice& slice, at::Tensor local) override {
    if (second_) return;
    device_ = local.device();
    for (const PlacedBox& box : boxes_of(slice))
      wanted_[slice.name].push_back(
          {box.offsets, box.lengths, box_in(local.detach(), box), product(box.lengths)});
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

  /// Between the two walks.
  void fill(Group group, const std::vector<BoxSent>& sent) {
    for (const BoxSent& one : sent) {
      const auto mine = kept_.tensors_.find(one.box);
      const auto wanted = wanted_.find(one.box.name);
      check<ResourceError>(mine != kept_.tensors_.end() || one.from != group.rank(),
                           "'{}' was not kept", one.box.name);
      at::Tensor box;
      if (mine != kept_.tensors_.end()) {
        box = mine->second;
      } else {
        box = at::empty(
            one.box.lengths,
            at::TensorOptions().dtype(static_cast<at::ScalarType>(one.box.dtype)).device(device_));
      }
      if (!one.all_have_it) group.broadcast(box, one.from).wait();
      if (wanted == wanted_.end()) continue;
      for (Wanted& part : wanted->second) {
        const SharedBox shared =
            shared_box(part.offsets, part.lengths, one.box.offsets, one.box.lengths);
        if (!shared.any) continue;
        part_of(part.to, part.offsets, shared).copy_(part_of(box, one.box.offsets, shared));
        part.left -= product(shared.lengths);
      }
    }
    for (const auto& [name, parts] : wanted_)
      for (const Wanted& part : parts)
        check<ResourceError>(part.left == 0, "{} elements of '{}' were not kept", part.left, name);
    second_ = true;
  }

 private:
  template <class T>
  static void give(const std::map<std::string, T>& from, const std::string& name, T& to) {
    const auto found = from.find(name);
    check<ResourceError>(found != from.end(), "the value '{}' was not kept", name);
    to = found->second;
  }

  KeptState& kept_;
  std::map<std::string, std::vector<Wanted>> wanted_;
  at::Device device_ = at::kCPU;
  bool second_ = false;
};

void KeptState::take(const StateWalk& walk) {
  at::NoGradGuard no_grad;
  KeptState kept;
  KeepingVisitor visitor(kept);
  walk(visitor);
  *this = std::move(kept);
}

std::vector<KeptBox> KeptState::boxes() const {
  std::vector<KeptBox> all;
  for (const auto& [box, tensor] : tensors_) all.push_back(box);
  return all;
}

int64_t KeptState::integer(const std::string& name, int64_t otherwise) const {
  const auto found = values_.integers.find(name);
  return found == values_.integers.end() ? otherwise : found->second;
}

void KeptState::fill(const StateWalk& walk, Group group, const std::vector<BoxSent>& sent) {
  at::NoGradGuard no_grad;
  FillingVisitor visitor(*this);
  walk(visitor);
  visitor.fill(std::move(group), sent);
  walk(visitor);
}

void KeptState::share_values(Group group) {
  const std::vector<Values> all = all_gather_object(std::move(group), values_);
  values_ = {};
  for (const Values& of_rank : all) {  // shards have some of their own
    values_.integers.insert(of_rank.integers.begin(), of_rank.integers.end());
    values_.numbers.insert(of_rank.numbers.begin(), of_rank.numbers.end());
    values_.texts.insert(of_rank.texts.begin(), of_rank.texts.end());
  }
}

WholeState whole_state_of(const StateWalk& walk) {
  NamingVisitor visitor;
  walk(visitor);
  return visitor.names;
}

}  // namespace trireme
