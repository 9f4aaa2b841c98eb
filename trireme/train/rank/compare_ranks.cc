// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/compare_ranks.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/comm/local/reduce_kernels.h"
#include "trireme/comm/objects.h"
#include "trireme/launch/nodes/compare_nodes.h"
#include "trireme/launch/run_lock.h"
#include "trireme/net/address.h"
#include "trireme/rendezvous/facts/read_facts.h"

namespace trireme {
namespace {

constexpr const char* kConfiguration = "configuration";
constexpr int kMeetings = 2;
constexpr size_t kMostKeys = 5;  // of a configuration, in a sentence

double wall_seconds() { return static_cast<double>(wall_ns()) * 1e-9; }

std::string blas_kernels() {
  using CoreName = char* (*)();
  auto core = reinterpret_cast<CoreName>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return core ? std::string("OpenBLAS ") + core() : "other";
}

/// Whom the run folder belongs to, as this host sees it. Ranks of other hosts write there, too.
Fact folder_fact(const std::string& run_dir) {
  const Fact none{"owner of the run folder", "none: it is another folder here, or late to be seen"};
  std::ifstream in(run_dir + "/" + launch::kRunLockName);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) return none;
  try {
    const auto owner = launch::read_lock(text.str(), run_dir);
    if (!owner) return none;
    return {none.name, fmt::format("process {} on {}", owner->process.pid, owner->process.host)};
  } catch (const Error&) {
    return {none.name, "unreadable"};
  }
}

RankFacts facts_of_this_rank(const Config& config, const Group& world, const std::string& run_dir) {
  RankFacts mine;
  mine.host = net::host_name();
  mine.first_rank = world.rank();
  mine.facts = read_facts(run_dir);
  mine.facts.push_back(
      {"LibTorch",
       fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH),
       true});
  mine.facts.push_back({"checkpoint format", std::to_string(CheckpointIndex::kVersion), true});
  mine.facts.push_back({kConfiguration, config.hash(), true});
  mine.facts.push_back({"BLAS", blas_kernels()});
  mine.facts.push_back({"threads", std::to_string(at::get_num_threads())});
  mine.facts.push_back({"vector instructions", local::reduce_target()});
  mine.facts.push_back(folder_fact(run_dir));
  return mine;
}

std::string& configuration_of(RankFacts& facts) {
  return std::find_if(facts.facts.begin(), facts.facts.end(),
                      [](const Fact& f) { return f.name == kConfiguration; })
      ->value;
}

/// In place of their hashes, the keys in which configurations differ.
void name_the_keys(std::vector<RankFacts>& all, const Config& config, const Group& world) {
  std::map<std::string, std::string> mine;
  const auto json = nlohmann::json::parse(config.to_json()).flatten();
  for (const auto& [key, value] : json.items())
    if (key.rfind("/_", 0) != 0) {
      std::string path = key.substr(1);
      std::replace(path.begin(), path.end(), '/', '.');
      mine[path] = value.dump();
    }
  const auto values = all_gather_object(world, mine);
  std::set<std::string> keys;
  for (const auto& of_rank : values)
    for (const auto& [key, value] : of_rank) keys.insert(key);
  std::erase_if(keys, [&](const std::string& key) {
    return std::all_of(values.begin(), values.end(), [&](const auto& of_rank) {
      const auto a = of_rank.find(key), b = values[0].find(key);
      return (a == of_rank.end()) == (b == values[0].end()) &&
             (a == of_rank.end() || a->second == b->second);
    });
  });
  for (size_t r = 0; r < all.size(); ++r) {
    std::string text;
    size_t named = 0;
    for (const std::string& key : keys) {
      if (++named > kMostKeys) break;
      const auto at = values[r].find(key);
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", key,
                          at == values[r].end() ? "nothing" : at->second);
    }
    if (!text.empty()) configuration_of(all[r]) = text;
  }
}

}  // namespace

void compare_ranks(const Config& config, Group world, const std::string& run_dir) {
  if (world.size() == 1) return;
  RankFacts mine = facts_of_this_rank(config, world, run_dir);
  for (int i = 0; i < kMeetings; ++i) {
    mine.came.push_back(wall_seconds());
    world.barrier();
    mine.left.push_back(wall_seconds());
  }
  std::vector<RankFacts> all = all_gather_object(world, mine);
  const std::string first = configuration_of(all[0]);
  if (std::any_of(all.begin(), all.end(),
                  [&](RankFacts& one) { return configuration_of(one) != first; }))
    name_the_keys(all, config, world);
  const FactTable table = compare_facts(all);
  if (world.rank() == 0) launch::say_differences(table);
  check<UsageError>(table.refusal.empty(), "{}", table.refusal);
}

void compare_configurations(const Config& config, Group world) {
  const std::vector<std::string> all = all_gather_object(world, config.hash());
  for (size_t r = 0; r < all.size(); ++r)
    check<UsageError>(
        all[r] == all[0],
        "ranks 0 and {} have different configurations: one of them was started in the "
        "place of one that was lost, and the files or the command have changed since "
        "the others were. Start the job again with --resume",
        r);
}

}  // namespace trireme
