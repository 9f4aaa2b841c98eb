// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/unused_parameters.h"

#include <memory>

#include "trireme/base/check.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

constexpr size_t kNames = 12;  // in one sentence

template <class Describe>
std::string list_of(const std::vector<ParameterUse>& unused, Describe describe) {
  std::string text;
  for (size_t i = 0; i < unused.size() && i < kNames; ++i)
    text += (i ? ", " : "") + describe(unused[i]);
  if (unused.size() > kNames) text += fmt::format(" and {} more", unused.size() - kNames);
  return text;
}

}  // namespace

UnusedPolicy refuse_unused() {
  return [](const std::vector<ParameterUse>& unused, int ranks) {
    if (unused.empty()) return;
    auto describe = [&](const ParameterUse& u) {
      return u.ranks == 0 ? fmt::format("'{}' (from none)", u.name)
                          : fmt::format("'{}' (from {} of {})", u.name, u.ranks, ranks);
    };
    fail<UsageError>(
        "{} parameter{} did not get a gradient from every rank in this backward: {}. If the loss "
        "need not depend on all of them, set DdpOptions::find_unused_parameters; if a rank's loss "
        "depends on none, look at what it calls backward() on",
        unused.size(), unused.size() == 1 ? "" : "s", list_of(unused, describe));
  };
}

UnusedPolicy name_unused(int rank) {
  auto last = std::make_shared<std::string>();
  return [rank, last](const std::vector<ParameterUse>& unused, int) {
    std::vector<ParameterUse> by_none;
    for (const auto& u : unused)
      if (u.ranks == 0) by_none.push_back(u);
    const std::string names = list_of(by_none, [](const ParameterUse& u) { return u.name; });
    if (names == *last) return;
    *last = names;
    if (rank != 0) return;
    if (names.empty())
      log_info("every parameter got a gradient again");
    else
      log_info("{} parameter{} got no gradient on any rank: {}", by_none.size(),
               by_none.size() == 1 ? "" : "s", names);
  };
}

}  // namespace trireme
