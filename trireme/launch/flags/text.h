// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Small readers of text that flags, environment variables and /proc share.
namespace trireme::launch {

/// The whole of `text` as a decimal integer, or nothing.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_number(std::string_view text);
/// "a,,b" → {"a", "", "b"}; "" → {""}.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
void replace_all(std::string& text, std::string_view what, std::string_view with);
/// The candidate with the smallest edit distance, or "" where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace trireme::launch
