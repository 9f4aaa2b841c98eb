// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_storages.h"

#include <cstring>
#include <set>
#include <string>

#include "trireme/base/check.h"
#include "trireme/tensor/file_view.h"

namespace trireme::detail {
namespace {

class Finder final : public StateVisitor {
 public:
  void tensor(const Slice& slice, at::Tensor local) override {
    check<UsageError>(local.defined() && local.is_cpu(),
                      "offload: the state '{}' is on {}: only state in CPU memory goes to disk",
                      slice.name, local.defined() ? local.device().str() : "no device");
    if (local.storage().nbytes() > 0 && seen.insert(local.storage().unsafeGetStorageImpl()).second)
      found.push_back(local.storage());
  }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}

  std::set<c10::StorageImpl*> seen;
  std::vector<c10::Storage> found;
};

}  // namespace

OffloadStorages::OffloadStorages(Optimizer& optimizer, const NamedTensors& parameters) {
  Finder finder;
  for (const auto& [name, p] : parameters)  // weights stay where they are
    if (p.has_storage()) finder.seen.insert(p.storage().unsafeGetStorageImpl());
  optimizer.state(finder);
  for (auto& storage : finder.found) entries_.push_back({std::move(storage), 0});
  for (auto& e : entries_) e.own_handles = e.storage.use_count();
}

std::vector<int64_t> OffloadStorages::bytes() const {
  std::vector<int64_t> found;
  for (const auto& e : entries_) found.push_back(static_cast<int64_t>(e.storage.nbytes()));
  return found;
}

bool OffloadStorages::shared() const {
  for (const auto& e : entries_)
    if (e.storage.use_count() > e.own_handles) return true;
  return false;
}

void OffloadStorages::place(const void* base, const std::vector<int64_t>& offsets,
                            const std::shared_ptr<const void>& owner) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    auto* at = const_cast<char*>(static_cast<const char*>(base)) + offsets[i];
    entries_[i].storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        owner ? file_view(at, owner) : at::DataPtr(at, at::Device(at::kCPU)));
  }
}

void OffloadStorages::copy_to(void* base, const std::vector<int64_t>& offsets) const {
  for (size_t i = 0; i < entries_.size(); ++i)
    std::memcpy(static_cast<char*>(base) + offsets[i], entries_[i].storage.data(),
                entries_[i].storage.nbytes());
}

void OffloadStorages::drop() const {
  for (const auto& e : entries_)
    e.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(nullptr, at::Device(at::kCPU)));
}

}  // namespace trireme::detail
