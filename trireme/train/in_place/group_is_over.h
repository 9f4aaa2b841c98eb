// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/error.h"
#include "trireme/base/export.h"

namespace trireme {

/// Thrown out of a loop between two steps: the ranks leave their group, because another is waiting
/// in which there are more of them.
class TRIREME_API GroupIsOver final : public Error {
 public:
  using Error::Error;
  const char* kind() const override { return "GroupIsOver"; }
};

}  // namespace trireme
