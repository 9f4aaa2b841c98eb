// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/worker/bench_load.h"
#include "cli/worker/bench_plan.h"
#include "trireme/base/check.h"
#include "trireme/comm/algorithms.h"
#include "trireme/comm/plan/tuning.h"
#include "trireme/comm/wrappers/tuned_backend.h"

namespace trireme::bench {
namespace {

class AlgorithmPeer final : public BenchPeer {
 public:
  AlgorithmPeer(Group group, Algorithm algorithm, const std::vector<int>& hosts)
      : group_(std::move(group)), algorithm_(algorithm) {
    options_.hosts = hosts;
  }
  std::string lacks(Op op, Red, const Type&) const override {
    return op == Op::all_reduce ? "" : std::string("no ") + name_of(op);
  }
  void run(BenchCall& c) override {
    if (c.op == Op::barrier) return group_.barrier();
    all_reduce_with(group_, c.out, ReduceOp::sum, algorithm_, options_);
  }

 private:
  Group group_;
  const Algorithm algorithm_;
  AlgorithmOptions options_;
};

}  // namespace

std::vector<NamedPeer> algorithm_peers(Group world, const std::vector<int>& hosts) {
  std::vector<NamedPeer> peers;
  for (Algorithm algorithm : kAlgorithms) {
    const std::string name = trireme::name_of(algorithm);
    if (algorithm == Algorithm::direct)
      peers.push_back({name, group_peer(world)});
    else
      peers.push_back({name, std::make_unique<AlgorithmPeer>(world, algorithm, hosts)});
  }
  return peers;
}

void save_tuning(const Result& result, const Group& world, const std::vector<int>& hosts,
                 const std::string& path, bool force, Output& output) {
  const int me = world.rank(), n = world.size();
  const int here = hosts[static_cast<size_t>(me)];
  if (std::find(hosts.begin(), hosts.end(), here) - hosts.begin() != me) return;
  check<ResourceError>(result.wrong == 0, "bench --tune: {} wrong results; no table is written",
                       result.wrong);
  check<ResourceError>(force || result.foreign <= kMostForeignLoad,
                       "bench --tune: others used {:.0f} % of this machine meanwhile, so no table "
                       "is written: run it again on an idle one, or with --force",
                       100 * result.foreign);
  const auto ranks_here = static_cast<int>(std::count(hosts.begin(), hosts.end(), here));
  const HostShape shape = HostShape::here(ranks_here, world.backend());
  const std::string file = path.empty() ? TuningTable::path_for(shape) : path;
  // What was measured before, at other sizes or on other numbers of ranks, stays.
  TuningTable table = TuningTable::load(shape, file).value_or(TuningTable(shape));
  for (const Row& row : result.rows)
    if (const auto algorithm = algorithm_named(row.backend))
      table.add({row.op, n, static_cast<size_t>(row.bytes), *algorithm, row.seconds});
  table.save(file);
  output.human(
      fmt::format("#\n# Fastest by size of those with the backend's own bits, which groups take; "
                  "written to {}:",
                  file));
  int64_t last = -1;
  for (const Row& row : result.rows) {
    if (row.bytes == last) continue;
    last = row.bytes;
    const auto best = table.choose(row.op, n, static_cast<size_t>(row.bytes), [&](Algorithm a) {
      return detail::may_serve(a, world.backend(), hosts);
    });
    output.human(fmt::format("#{:>11}  {}", row.bytes, trireme::name_of(*best)));
    output.record({{"event", "tuned"},
                   {"op", row.op},
                   {"ranks", n},
                   {"bytes", row.bytes},
                   {"algorithm", trireme::name_of(*best)},
                   {"table", file}});
  }
}

}  // namespace trireme::bench
