// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>

#include "trireme/base/export.h"

// State that is kept in a file (offload) is shown as a read-only view of that file: the kernel
// reads its pages when they are looked at, and takes them back when memory is short.
namespace trireme {

/// For a storage whose bytes are such a view. `owner` lives as long as they are used.
TRIREME_API at::DataPtr file_view(const void* bytes, std::shared_ptr<const void> owner,
                                  at::Device device = at::kCPU);
/// Whether a tensor's bytes are one. They are those of the file: whoever needs them as they are now
/// must be done with them before its owner goes on.
TRIREME_API bool is_file_view(const at::Tensor& tensor);

}  // namespace trireme
