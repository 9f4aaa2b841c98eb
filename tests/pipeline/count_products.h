// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <string>

namespace trireme::testing {

/// The matrix products of this thread while it lives.
class CountProducts {
 public:
  CountProducts() {
    now() = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& f) {
          const std::string name = f.name();
          if (name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm") ++now();
          return std::unique_ptr<at::ObserverContext>();
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CountProducts() { at::removeCallback(handle_); }
  static int& now() {
    thread_local int count = 0;
    return count;
  }

 private:
  at::CallbackHandle handle_;
};

}  // namespace trireme::testing
