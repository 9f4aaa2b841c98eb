// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/exchange.h"

#include <charconv>
#include <string_view>

#include "trireme/base/check.h"

namespace trireme {

std::vector<std::pair<std::string, std::string>> map_rules(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> rules;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    check<UsageError>(equals != text.npos && text.find('=', equals + 1) == text.npos,
                      "--map '{}' is no map of names: write OLD=NEW", text);
    rules.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return rules;
}

uint64_t size_of_text(const std::string& text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  constexpr std::pair<std::string_view, uint64_t> kUnits[] = {{"", 1},
                                                              {"B", 1},
                                                              {"KB", 1000},
                                                              {"MB", 1000'000},
                                                              {"GB", 1000'000'000},
                                                              {"TB", 1000'000'000'000},
                                                              {"KiB", uint64_t{1} << 10},
                                                              {"MiB", uint64_t{1} << 20},
                                                              {"GiB", uint64_t{1} << 30},
                                                              {"TiB", uint64_t{1} << 40}};
  for (const auto& [name, bytes] : kUnits)
    if (error == std::errc() && unit == name && number > 0 &&
        !__builtin_mul_overflow(number, bytes, &number))
      return number;
  fail<UsageError>("'{}' is no size: write a number and KB, MB, GB, KiB, MiB or GiB", text);
}

}  // namespace trireme
