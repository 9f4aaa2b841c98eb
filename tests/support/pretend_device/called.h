// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>

namespace trireme::pretend {

/// The names of the operators that LibTorch's dispatcher was called for in body(), by whatever
/// thread and on whatever device: "aten::softmax". One call at a time.
inline std::set<std::string> called_in(const std::function<void()>& body) {
  static std::mutex mutex;
  static std::set<std::string> names;
  names.clear();
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& fn) {
                              const std::lock_guard lock(mutex);
                              names.insert(fn.name());
                              return std::unique_ptr<at::ObserverContext>();
                            }).scopes({at::RecordScope::FUNCTION}));
  body();
  at::removeCallback(handle);
  const std::lock_guard lock(mutex);
  return names;
}

}  // namespace trireme::pretend
