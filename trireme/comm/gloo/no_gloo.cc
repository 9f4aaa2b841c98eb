// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/comm/gloo/backend.h"

namespace trireme::detail {

std::shared_ptr<Backend> gloo_backend(const BackendSpec&) {
  fail<UsageError>(
      "the backend 'gloo' is not in this build: this LibTorch has no Gloo, or its headers are "
      "missing "
      "(Debian: libgloo-dev)");
}
bool has_gloo() { return false; }

}  // namespace trireme::detail
