// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/method.h"

namespace trireme::rpc::detail {

Answering::~Answering() = default;
Keeper::~Keeper() = default;
Line::~Line() = default;

}  // namespace trireme::rpc::detail
