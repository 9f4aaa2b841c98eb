// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/comm/nccl/backend.h"

namespace trireme::detail {

std::shared_ptr<Backend> nccl_backend(const BackendSpec&) {
  fail<UsageError>(
      "the backend 'nccl' is not in this build: this LibTorch has no CUDA, or the headers of NCCL "
      "and CUDA were missing (TRIREME_NCCL_INCLUDE, TRIREME_CUDA_INCLUDE)");
}
bool has_nccl() { return false; }

}  // namespace trireme::detail
