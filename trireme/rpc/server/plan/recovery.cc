// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/plan/recovery.h"

#include <algorithm>
#include <set>

#include "trireme/base/check.h"

namespace trireme::rpc::plan {
namespace {

std::string shown(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += (text.empty() ? "" : ", ") + std::to_string(step);
  return text.empty() ? "none" : text;
}

}  // namespace

Decision decide(const std::vector<std::string>& servers, const std::vector<Standing>& standings,
                int asks) {
  check<UsageError>(!servers.empty() && servers.size() == standings.size(),
                    "{} servers of parameters have {} standings", servers.size(), standings.size());
  Decision decision;
  std::set<int32_t> lost;
  for (const Standing& standing : standings) {
    decision.epoch = std::max(decision.epoch, standing.epoch);
    decision.fresh = decision.fresh && standing.fresh;
    lost.insert(standing.lost.begin(), standing.lost.end());
  }
  ++decision.epoch;
  lost.erase(asks);
  decision.lost.assign(lost.begin(), lost.end());
  if (decision.fresh) return decision;
  std::vector<int64_t> common = standings.front().steps;
  std::sort(common.begin(), common.end());
  std::string all;
  for (size_t i = 0; i < servers.size(); ++i) {
    std::vector<int64_t> steps = standings[i].steps, both;
    std::sort(steps.begin(), steps.end());
    std::set_intersection(common.begin(), common.end(), steps.begin(), steps.end(),
                          std::back_inserter(both));
    common.swap(both);
    all += (i ? "; '" : "'") + servers[i] + "': " + shown(steps);
  }
  check<UsageError>(!common.empty(),
                    "servers of parameters have no step in common to go back to (steps of their "
                    "checkpoints: {}): give each server a folder of its own that outlives it",
                    all);
  decision.step = common.back();
  return decision;
}

}  // namespace trireme::rpc::plan
