// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/shards.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace trireme::interop {
namespace {

struct ShardName {
  std::string base, extension;
  int number = 0, of = 0;
};

std::optional<int> five_digits(std::string_view text) {
  int n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return {};
    n = n * 10 + (c - '0');
  }
  return n;
}

std::optional<ShardName> shard_name(const std::string& name) {
  constexpr size_t kDigits = 5, kTail = 2 * kDigits + 5;  // "-00001-of-00003"
  const size_t dot = name.rfind('.');
  if (dot == name.npos || dot < kTail) return {};
  const size_t begin = dot - kTail;
  const auto number = five_digits(std::string_view(name).substr(begin + 1, kDigits)),
             of = five_digits(std::string_view(name).substr(dot - kDigits, kDigits));
  if (name[begin] != '-' || name.compare(begin + 1 + kDigits, 4, "-of-") != 0 || !number || !of)
    return {};
  return ShardName{name.substr(0, begin), name.substr(dot), *number, *of};
}

}  // namespace

bool is_shard_name(const std::string& name) { return shard_name(name).has_value(); }

std::string first_missing_shard(const std::vector<std::string>& names) {
  const std::set<std::string> there(names.begin(), names.end());
  std::map<std::string, ShardName> kinds;
  for (const std::string& name : there)
    if (const auto shard = shard_name(name))
      kinds.emplace(fmt::format("{} {} {}", shard->base, shard->of, shard->extension), *shard);
  for (const auto& [key, kind] : kinds)
    for (int i = 1; i <= kind.of; ++i) {
      const std::string name =
          fmt::format("{}-{:05}-of-{:05}{}", kind.base, i, kind.of, kind.extension);
      if (!there.contains(name)) return name;
    }
  return "";
}

}  // namespace trireme::interop
