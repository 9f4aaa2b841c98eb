// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cerrno>
#include <string>
#include <utility>

#include "trireme/base/error.h"

// fail<UsageError>("batch {} does not divide by {}: choose …", a, b);
// check<Corrupt>(magic == kMagic, "{}: not an index of ours", path);
namespace trireme {

template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw E(fmt::format(text, std::forward<Args>(args)...));
}

template <class E, class... Args>
void check(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) [[unlikely]]
    throw E(fmt::format(text, std::forward<Args>(args)...));
}

/// The text for errno (or for `code`), without strerror's shared buffer.
TRIREME_API std::string errno_text(int code = errno);

}  // namespace trireme
