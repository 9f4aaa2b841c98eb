// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/flat_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/tensor/file_view.h"

namespace trireme {
namespace {

void set_data_pointer(const at::Tensor& t, void* p) {
  c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(p, storage->device()));
}

char* at_element(const at::Tensor& memory, int64_t offset) {
  return static_cast<char*>(memory.data_ptr()) +
         offset * static_cast<int64_t>(memory.element_size());
}

}  // namespace

at::Tensor alias_of(const at::Tensor& memory, int64_t offset, at::IntArrayRef sizes) {
  // LibTorch would ask CUDA on which GPU this is, and what has no elements is nowhere.
  return at::for_blob(at_element(memory, offset), sizes)
      .deleter([memory](void*) {})
      .options(memory.options().requires_grad(false))
      .target_device(memory.device())
      .make_tensor();
}

ShardPlan FlatParameters::plan_flat_buffer(const NamedTensors& members, int ranks) {
  std::vector<int64_t> numels;
  for (const auto& [name, p] : members) {
    check<UsageError>(p.is_contiguous() && p.layout() == at::kStrided,
                      "sharding: parameter '{}' is not a contiguous tensor: store it with "
                      ".contiguous() before",
                      name);
    numels.push_back(p.numel());
  }
  return plan_shards(std::move(numels), ranks);
}

FlatParameters::FlatParameters(NamedTensors members, const Group& group, const std::string& name,
                               ShardFile* file)
    : members_(std::move(members)),
      options_(members_.front().second.options().requires_grad(false)),
      plan_(plan_flat_buffer(members_, group.size())),
      rank_(group.rank()),
      file_(file) {
  at::NoGradGuard no_grad;
  for (const auto& [member, p] : members_)
    check<UsageError>(!file_ || p.is_cpu(),
                      "offload: parameter '{}' is on {}, and shards in a file are brought into CPU "
                      "memory: train without offload_param on a GPU",
                      member, p.device().str());
  if (file_) place_ = file_->add(name, plan_.shard, dtype());
  shard_ = (place_ ? file_->memory(plan_.shard, options()) : group.empty({plan_.shard}, options()))
               .zero_();
  make_pieces();
  for (const ParameterShard& piece : pieces_)
    piece.tensor.detach().copy_(members_[piece.member].second.detach().reshape({-1}).narrow(
        0, piece.begin, piece.tensor.numel()));
  for (size_t m = 0; m < members_.size(); ++m) own_storage(m);
  mark_storage();
  holds_ = 1;
  release(Changed::yes);
}

FlatParameters::FlatParameters(NamedTensors members, const Group& group,
                               const at::Tensor& flat_buffer)
    : members_(std::move(members)),
      options_(members_.front().second.options().requires_grad(false)),
      plan_(plan_flat_buffer(members_, group.size())),
      rank_(group.rank()),
      shard_(alias_of(flat_buffer, plan_.shard * rank_, {plan_.shard})),
      file_(nullptr) {
  at::NoGradGuard no_grad;
  make_pieces();
  // These keep the flat buffer alive: the module may outlive who sharded it.
  for (size_t i = 0; i < members_.size(); ++i)
    members_[i].second.set_data(
        alias_of(flat_buffer, plan_.offsets[i], members_[i].second.sizes()));
  mark_storage();
}

void FlatParameters::mark_storage() {
  home_.clear();
  shapes_.clear();
  for (const auto& [name, p] : members_) {
    home_.emplace_back(p);
    shapes_.push_back(p.sizes().vec());
  }
  taken_ = home_;
}

void FlatParameters::make_pieces() {
  for (const ShardPiece& piece : pieces_of(plan_, rank_)) {
    const auto& [member, p] = members_[piece.parameter];
    at::Tensor part = alias_of(shard_, piece.offset, {piece.length});
    part.requires_grad_(p.requires_grad());
    pieces_.push_back({member, part, p.sizes().vec(), piece.begin, piece.parameter, piece.offset});
  }
}

void FlatParameters::read_ahead() {
  if (place_ && !shard_.defined()) place_->prefetch();
}

void FlatParameters::copy_shard_to(const at::Tensor& into) {
  at::NoGradGuard no_grad;
  if (shard_.defined())
    at::Tensor(into).copy_(shard_);
  else
    place_->read_into(into);
}

void FlatParameters::hold() {
  if (!place_ || shard_.defined()) {
    ++holds_;
    return;
  }
  const at::Tensor memory = file_->memory(plan_.shard, options());
  place_->read_into(memory);
  shard_ = memory;
  point_pieces();
  ++holds_;
}

void FlatParameters::release(Changed changed) {
  if (changed == Changed::yes) changed_ = true;
  if (changed == Changed::maybe) maybe_changed_ = true;
  if (--holds_ > 0 || !place_) return;
  if (changed_)
    place_->put(shard_);
  else if (maybe_changed_)
    place_->put_if_changed(shard_);
  changed_ = maybe_changed_ = false;
  shard_ = at::Tensor();
  point_pieces();
}

// At the shard, or at what there is without one.
void FlatParameters::point_pieces() {
  std::shared_ptr<const void> view;
  for (ParameterShard& piece : pieces_) {
    c10::StorageImpl* storage = piece.tensor.storage().unsafeGetStorageImpl();
    const at::Device device = storage->device();
    if (shard_.defined()) {
      storage->set_data_ptr_noswap(at::DataPtr(at_element(shard_, piece.offset), device));
    } else if (piece.tensor.storage().use_count() == 1) {
      storage->set_data_ptr_noswap(at::DataPtr(nullptr, device));
    } else {
      if (!view) view = place_->view();
      const auto* at = static_cast<const char*>(view.get()) +
                       piece.offset * static_cast<int64_t>(piece.tensor.element_size());
      storage->set_data_ptr_noswap(file_view(at, view, device));
    }
  }
}

// A parameter may be a part of a larger storage, or share one: pointers are set for one alone.
void FlatParameters::own_storage(size_t m) {
  at::NoGradGuard no_grad;
  at::Tensor& p = members_[m].second;
  const at::Tensor values = p.detach();  // keeps the old bytes until whoever else holds them goes
  p.set_data(alias_of(values, 0, values.sizes()));
}

void FlatParameters::point_into(const at::Tensor& flat_buffer) {
  for (size_t i = 0; i < members_.size(); ++i)
    if (!replaced(i))
      set_data_pointer(members_[i].second, at_element(flat_buffer, plan_.offsets[i]));
}

void FlatParameters::point_at_nothing() {
  for (size_t i = 0; i < members_.size(); ++i)
    if (!replaced(i)) set_data_pointer(members_[i].second, nullptr);
}

bool FlatParameters::replaced() const {
  for (size_t i = 0; i < members_.size(); ++i)
    if (replaced(i)) return true;
  return false;
}

bool FlatParameters::untaken() const {
  for (size_t i = 0; i < members_.size(); ++i)
    if (replaced(i) && taken_[i].moved(members_[i].second)) return true;
  return false;
}

void FlatParameters::take_replaced() {
  const auto due = [&](size_t m) { return replaced(m) && taken_[m].moved(members_[m].second); };
  if (std::none_of(pieces_.begin(), pieces_.end(),
                   [&](const ParameterShard& piece) { return due(piece.member); }))
    return;
  at::NoGradGuard no_grad;
  hold();
  for (ParameterShard& piece : pieces_) {
    if (!due(piece.member)) continue;
    const int64_t n = piece.tensor.numel();
    piece.tensor.set_data(alias_of(shard_, piece.offset, {n}));
    piece.tensor.detach().copy_(
        members_[piece.member].second.detach().reshape({-1}).narrow(0, piece.begin, n));
  }
  release(Changed::yes);
  for (size_t m = 0; m < members_.size(); ++m) taken_[m] = StorageMark(members_[m].second);
}

void FlatParameters::return_to(const at::Tensor& flat_buffer, bool fill) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!replaced(i)) continue;
    at::Tensor& p = members_[i].second;
    const at::Tensor place = alias_of(flat_buffer, plan_.offsets[i], p.sizes());
    if (fill) place.copy_(p.detach());
    p.set_data(place);
  }
  mark_storage();
}

void FlatParameters::return_to_nothing() {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!replaced(i)) continue;
    own_storage(i);
    set_data_pointer(members_[i].second, nullptr);
  }
  mark_storage();
}

void write_flat_buffer(const at::Tensor& flat_buffer, const ShardPlan& plan,
                       const NamedTensors& members) {
  at::NoGradGuard no_grad;
  at::Tensor(flat_buffer).zero_();
  for (size_t i = 0; i < members.size(); ++i) {
    const at::Tensor& p = members[i].second;
    alias_of(flat_buffer, plan.offsets[i], p.sizes()).copy_(p.detach());
  }
}

}  // namespace trireme
