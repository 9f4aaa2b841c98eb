// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/file_view.h"

#include <c10/core/Storage.h>

#include <utility>

namespace trireme {
namespace {

using ViewOwner = std::shared_ptr<const void>;

// The address of this function is what tells views from other storages.
void end_view(void* owner) { delete static_cast<ViewOwner*>(owner); }

}  // namespace

at::DataPtr file_view(const void* bytes, std::shared_ptr<const void> owner, at::Device device) {
  return {const_cast<void*>(bytes), new ViewOwner(std::move(owner)), end_view, device};
}

bool is_file_view(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().data_ptr().get_deleter() == end_view;
}

}  // namespace trireme
