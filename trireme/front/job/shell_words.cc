// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/shell_words.h"

#include <fmt/core.h>

#include <algorithm>

namespace trireme::job {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_/.,:=@%+-").find(c) != std::string_view::npos;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// A line that began with what stands in a file's name could be a directive.
std::string in_one_line(std::string_view text) {
  std::string quoted = "$'";
  for (const char c : text) {
    if (c == '\\' || c == '\'')
      quoted += {'\\', c};
    else if (c == '\n')
      quoted += "\\n";
    else if (is_control(c))
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  if (std::any_of(text.begin(), text.end(), is_control)) return in_one_line(text);
  std::string quoted = "'";
  for (const char c : text)
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  return quoted + "'";
}

}  // namespace trireme::job
