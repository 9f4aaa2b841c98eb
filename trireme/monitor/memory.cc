// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/memory.h"

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

std::string read_or_empty(const char* path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

int64_t detail::proc_field_bytes(const std::string& text, const std::string& field) {
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    if (text.compare(at, field.size(), field) == 0 && text[at + field.size()] == ':')
      return std::strtoll(text.c_str() + at + field.size() + 1, nullptr, 10) * 1024;
    at = end + 1;
  }
  return 0;
}

MemoryUse memory_use(int64_t own_window_bytes) {
  const std::string text = read_or_empty("/proc/self/status");
  MemoryUse use;
  use.anonymous = detail::proc_field_bytes(text, "RssAnon");
  use.file = detail::proc_field_bytes(text, "RssFile");
  use.shared = detail::proc_field_bytes(text, "RssShmem");
  use.windows = own_window_bytes;
  return use;
}

int64_t proportional_memory() {
  const std::string text = read_or_empty("/proc/self/smaps_rollup");
  return text.empty() ? -1 : detail::proc_field_bytes(text, "Pss");
}

}  // namespace trireme
