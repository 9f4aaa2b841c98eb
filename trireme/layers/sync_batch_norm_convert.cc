// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/layers/sync_batch_norm.h"

namespace trireme {
namespace {

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;

template <class Impl>
ModulePtr instead_of(const Impl& old, const Group& group) {
  auto made = std::make_shared<SyncBatchNormImpl>(old.options, group, old.weight, old.bias,
                                                  old.running_mean, old.running_var,
                                                  old.num_batches_tracked);
  made->train(old.is_training());
  return made;
}

// Null unless it is one of LibTorch's, itself and not of a class derived from it.
ModulePtr instead_of(const Module& old, const Group& group) {
  auto made = [&]<class Impl>(const Impl*) -> ModulePtr {
    return typeid(old) == typeid(Impl) ? instead_of(dynamic_cast<const Impl&>(old), group)
                                       : nullptr;
  };
  if (auto m = made(static_cast<const torch::nn::BatchNorm1dImpl*>(nullptr))) return m;
  if (auto m = made(static_cast<const torch::nn::BatchNorm2dImpl*>(nullptr))) return m;
  return made(static_cast<const torch::nn::BatchNorm3dImpl*>(nullptr));
}

bool is_batch_norm(const Module& m) {
  return m.as<torch::nn::BatchNorm1d>() || m.as<torch::nn::BatchNorm2d>() ||
         m.as<torch::nn::BatchNorm3d>();
}

bool is_container(const Module& m) {
  return m.as<torch::nn::Sequential>() || m.as<torch::nn::ModuleList>() ||
         m.as<torch::nn::ModuleDict>();
}

void exchange(Module& parent, const std::string& name, const Module* old, const ModulePtr& made) {
  if (auto* list = parent.as<torch::nn::Sequential>()) {
    for (torch::nn::AnyModule& any : *list)
      if (any.ptr().get() == old)
        any = torch::nn::AnyModule(std::dynamic_pointer_cast<SyncBatchNormImpl>(made));
  } else if (auto* modules = parent.as<torch::nn::ModuleList>()) {
    for (ModulePtr& m : *modules)
      if (m.get() == old) m = made;
  } else if (auto* dict = parent.as<torch::nn::ModuleDict>()) {
    for (auto& item : *dict)
      if (item.value().get() == old) item.value() = made;
  }
  parent.replace_module(name, made);
}

struct Found {
  Module* parent;
  std::string name, path;
  Module* old;
};

struct Walk {
  std::vector<Found> replaceable;
  std::vector<SyncBatchNormImpl*> declared;
  std::vector<std::string> refused;

  void visit(Module& parent, const std::string& prefix) {
    for (const auto& child : parent.named_children().pairs()) visit(parent, prefix, child);
  }

  void visit(Module& parent, const std::string& prefix,
             const std::pair<std::string, ModulePtr>& child) {
    const std::string path = prefix + child.first;
    Module& m = *child.second;
    if (auto* ours = dynamic_cast<SyncBatchNormImpl*>(&m)) {
      declared.push_back(ours);
    } else if (is_batch_norm(m)) {
      // The container's own handle, its list of children, and the copy in our hands.
      constexpr long kHandles = 3;
      if (!is_container(parent))
        refused.push_back(fmt::format("'{}' ({}) is a member", path, m.name()));
      else if (!instead_of(m, {}))
        refused.push_back(fmt::format("'{}' ({}) is of a class of its own", path, m.name()));
      else if (child.second.use_count() > kHandles)
        refused.push_back(fmt::format("'{}' ({}) is held elsewhere too", path, m.name()));
      else
        replaceable.push_back({&parent, child.first, path, &m});
    } else {
      visit(m, path + ".");
    }
  }
};

}  // namespace

int convert_sync_batch_norm(Module& root, const Group& group) {
  check<UsageError>(static_cast<bool>(group),
                    "convert_sync_batch_norm: the group is empty: give one from "
                    "init_process_group()");
  Walk walk;
  if (auto* ours = dynamic_cast<SyncBatchNormImpl*>(&root))
    walk.declared.push_back(ours);
  else if (is_batch_norm(root))
    walk.refused.push_back(fmt::format("the module itself ({})", root.name()));
  else
    walk.visit(root, "");
  if (!walk.refused.empty())
    fail<UsageError>(
        "convert_sync_batch_norm: {}, which cannot be replaced from outside: declare it as "
        "trireme::SyncBatchNorm (same options, same parameter names), or put it into a "
        "torch::nn::Sequential that is its only holder",
        fmt::join(walk.refused, "; "));
  for (const Found& f : walk.replaceable)
    exchange(*f.parent, f.name, f.old, instead_of(*f.old, group));
  for (SyncBatchNormImpl* m : walk.declared) m->set_group(group);
  return static_cast<int>(walk.replaceable.size() + walk.declared.size());
}

}  // namespace trireme
