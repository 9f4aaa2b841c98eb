// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/units.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/check.h"

namespace trireme::pipeline {
namespace {

using List = std::vector<Action>;

// The next `most` different stages that the list computes, from `at` on, in the order of their use.
std::vector<int> next_stages(const List& list, size_t at, size_t most) {
  std::vector<int> stages;
  for (; at < list.size() && stages.size() < most; ++at)
    if (is_compute(list[at].kind) &&
        std::find(stages.begin(), stages.end(), list[at].stage) == stages.end())
      stages.push_back(list[at].stage);
  return stages;
}

// For each stage, the position of the last action that `wanted` takes.
template <class Wanted>
std::map<int, size_t> last_of_each(const List& list, Wanted wanted) {
  std::map<int, size_t> last;
  for (size_t at = 0; at < list.size(); ++at)
    if (wanted(list[at].kind)) last[list[at].stage] = at;
  return last;
}

List with_units(const List& list, size_t most) {
  const auto last_use = last_of_each(list, is_compute);
  // Where the table says itself when gradients are added, nothing is added to that.
  const bool reduces = std::any_of(list.begin(), list.end(), [](const Action& a) {
    return a.kind == ActionKind::reduce_gradients;
  });
  const auto last_gradient =
      reduces ? std::map<int, size_t>{} : last_of_each(list, gives_weight_gradient);
  std::set<int> whole;
  List out;
  const auto reshard = [&](int stage) {
    if (whole.erase(stage)) out.push_back({ActionKind::reshard, stage, Action::kNone});
  };
  for (size_t begin = 0; begin < list.size();) {
    size_t end = begin + 1;
    while (end < list.size() && list[end - 1].overlaps_next) ++end;
    if (is_compute(list[begin].kind)) {
      // All of a rank's stages may be whole: then each is gathered at its own first use.
      const bool all = most == 0;
      const std::vector<int> wanted = next_stages(list, begin, all ? 1 : most);
      if (!all)
        for (const int stage : std::vector<int>(whole.begin(), whole.end()))
          if (std::find(wanted.begin(), wanted.end(), stage) == wanted.end()) reshard(stage);
      const auto gather = [&](int stage) {
        if (whole.insert(stage).second) out.push_back({ActionKind::unshard, stage, Action::kNone});
      };
      for (const int stage : wanted) gather(stage);
      for (size_t at = begin; at < end; ++at) gather(list[at].stage);
    }
    out.insert(out.end(), list.begin() + static_cast<ptrdiff_t>(begin),
               list.begin() + static_cast<ptrdiff_t>(end));
    for (size_t at = begin; at < end; ++at) {
      const int stage = list[at].stage;
      const auto gradient = last_gradient.find(stage), use = last_use.find(stage);
      if (gradient != last_gradient.end() && gradient->second == at)
        out.push_back({ActionKind::reduce_gradients, stage, Action::kNone});
      if (use != last_use.end() && use->second == at) reshard(stage);
    }
    begin = end;
  }
  return out;
}

}  // namespace

Schedule place_units(const Schedule& schedule, int whole) {
  check<UsageError>(whole >= 0, "{} stages whole at a time: choose 0 (all) or more", whole);
  check<UsageError>(!schedule.has_gathers(), "the table gathers and drops units already");
  Schedule out = schedule;
  for (List& list : out.actions) {
    const bool pairs =
        std::any_of(list.begin(), list.end(), [](const Action& a) { return a.overlaps_next; });
    check<UsageError>(whole != 1 || !pairs,
                      "an overlapped pair uses two stages at once: keep 2 or more whole");
    list = with_units(list, static_cast<size_t>(whole));
  }
  return out;
}

}  // namespace trireme::pipeline
