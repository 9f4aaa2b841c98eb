// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/captured_log.h"
#include "tests/support/desync_programs.h"
#include "trireme/comm/backend.h"
#include "trireme/comm/objects.h"

// The wrong programs of desync_programs.h without check=each: what users have who set nothing. A
// call that differs may let ranks through, so a rank need not raise; but every program ends on all
// ranks in seconds, and somebody says what is wrong, in an error or, at the group's end, in the
// log.
namespace trireme::testing {

/// What is promised is 5 s.
constexpr double kEndsWithin = 3 * 5;

struct DesyncEnds {
  std::vector<DesyncEnd> of;  // by rank
  std::vector<std::string> log;
};

/// "": as it should be. words: both calls must be named; else that somebody says something will do.
inline std::string judge_by_default(const DesyncProgram& p, const DesyncEnds& ends, bool words,
                                    const std::vector<std::string>& named) {
  std::string all, wrong;
  const int size = static_cast<int>(ends.of.size());
  bool raised = false;
  for (int r = 0; r < size; ++r) {
    const DesyncEnd& end = ends.of[static_cast<size_t>(r)];
    all += fmt::format("  rank {} of {}, after {:.2f} s: '{}'\n", r, size, end.after, end.what);
    if (end.after > kEndsWithin) wrong += fmt::format("rank {} was too late; ", r);
    raised = raised || !end.what.empty();
  }
  for (const std::string& line : ends.log)
    if (line.find(std::string("group ") + p.name) != std::string::npos) {
      all += "  log: " + line + "\n";
      raised = true;
    }
  if (!raised) wrong += "nobody says anything; ";
  // A rank that went on, and left, is what the others wait for.
  const bool left = all.find(" left ") != std::string::npos;
  for (std::string part : named) {
    for (size_t at; (at = part.find("rank N")) != std::string::npos;)
      part.replace(at + 5, 1, std::to_string(size - 1));
    for (size_t at; (at = part.find("group world")) != std::string::npos;)
      part.replace(at, 11, std::string("group ") + p.name);
    // Any of the ranks that are right may stand for them.
    if (part.rfind("rank 0 called ", 0) == 0) part = part.substr(7);
    if (words && !left && all.find(part) == std::string::npos) wrong += "no '" + part + "'; ";
  }
  return wrong.empty() ? "" : fmt::format("{}: {}\n{}", p.name, wrong, all);
}

/// Runs all of them, several at a time, and judges them on rank 0 of `world`, through which the
/// ranks tell it how they ended. group_of: a group under the program's name, with default options.
/// `log`: of this process. other_words: what names the calls of a program where a backend has other
/// words for them. Every rank calls it. "": as it should be.
inline std::string run_desync_by_default(
    Group world, const CapturedLog& log,
    const std::function<Group(const std::string& name)>& group_of, bool words,
    const std::vector<std::string>& skip = {},
    const std::map<std::string, std::vector<std::string>>& other_words = {}) {
  std::vector<const DesyncProgram*> programs;
  for (const DesyncProgram& p : desync_programs())
    if (p.at_least() <= world.size() && std::find(skip.begin(), skip.end(), p.name) == skip.end())
      programs.push_back(&p);
  std::vector<DesyncEnd> mine(programs.size());
  constexpr size_t kAtOnce = 12;
  for (size_t begin = 0; begin < programs.size(); begin += kAtOnce) {
    const size_t end = std::min(programs.size(), begin + kAtOnce);
    std::vector<DesyncWorld> worlds;
    for (size_t i = begin; i < end; ++i) {
      Group g = group_of(programs[i]->name);
      g.get()->identity.name = programs[i]->name;
      worlds.emplace_back(std::move(g), programs[i]->groups);
    }
    std::vector<std::thread> threads;
    for (size_t i = begin; i < end; ++i)
      threads.emplace_back(
          [&, i] { mine[i] = run_desync(*programs[i], std::move(worlds[i - begin])); });
    for (auto& t : threads) t.join();
    world.barrier();
  }
  using Told = std::pair<std::vector<std::pair<std::string, double>>, std::vector<std::string>>;
  Told told;
  for (const DesyncEnd& end : mine) told.first.emplace_back(end.what, end.after);
  told.second = log.lines();
  const std::vector<Told> all = all_gather_object(world, told);
  std::string wrong;
  for (size_t i = 0; i < programs.size() && world.rank() == 0; ++i) {
    DesyncEnds ends;
    for (const Told& one : all) {
      ends.of.push_back({one.first[i].first, one.first[i].second});
      ends.log.insert(ends.log.end(), one.second.begin(), one.second.end());
    }
    const auto other = other_words.find(programs[i]->name);
    wrong += judge_by_default(*programs[i], ends, words,
                              other == other_words.end() ? programs[i]->named : other->second);
  }
  return wrong;
}

/// One rank computes for some seconds while the others wait for it, twice: they say so, once each
/// time, and go on.
inline std::string expect_a_late_rank_is_reported(Group world, const CapturedLog& log) {
  for (int time = 0; time < 2; ++time) {
    at::Tensor t = at::ones({77});
    if (world.rank() == world.size() - 1) std::this_thread::sleep_for(std::chrono::seconds(6));
    world.all_reduce(t).wait();
    if (!t.eq(world.size()).all().item<bool>()) return "wrong sum after a stall";
  }
  // Ranks that are threads have one log.
  std::set<std::string> told;
  for (const auto& lines : all_gather_object(world, log.with("all_reduce(float32[77], sum)")))
    told.insert(lines.begin(), lines.end());
  std::string all, wrong;
  std::set<std::string> calls, reports;
  const auto between = [](const std::string& line, const char* from, const char* to) {
    const auto begin = line.find(from) + std::string(from).size();
    return line.substr(begin, line.find(to, begin) - begin);
  };
  const std::string late = fmt::format("rank {} is not waiting in a call", world.size() - 1);
  for (const std::string& line : told) {
    all += line + "\n";
    const std::string call = between(line, " s in ", " of group");
    calls.insert(call);
    if (!reports.insert(between(line, "rank ", " has waited") + " " + call).second)
      wrong += "a rank reports one stall twice; ";
    for (const std::string& part : {late, std::string("desync_by_default.h:")})
      if (line.find(part) == std::string::npos) wrong += "no '" + part + "'; ";
  }
  if (calls.size() != 2) wrong += "two stalls are to be reported; ";
  return wrong.empty() ? "" : wrong + "the log says:\n" + all;
}

}  // namespace trireme::testing
