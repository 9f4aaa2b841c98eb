// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sched.h>

#include "cli/worker/bench_run.h"
#include "cli/worker/bench_tune.h"
#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/launch/machine/cpu.h"
#include "trireme/mesh/mesh.h"

// trireme bench: makes the ranks' groups and hands them to bench_run.
namespace trireme {
namespace {

bench::Job read_job(const TaskOptions& given) {
  bench::Job job;
  for (const auto& op : bench::choose(given.get("ops"), bench::as_strings(bench::kOpNames), "OP"))
    job.ops.push_back(bench::op_named(op));
  for (const auto& red : bench::choose(given.get("op"), bench::as_strings(bench::kRedNames), "-o"))
    job.reds.push_back(bench::red_named(red));
  for (const auto& type : bench::choose(given.get("dtype"), bench::type_names(), "-d"))
    job.types.push_back(&bench::type_named(type));
  const int64_t factor = std::stoll(given.get("factor")), step = std::stoll(given.get("step"));
  job.bytes =
      bench::sizes(std::stoll(given.get("begin")), std::stoll(given.get("end")), factor, step);
  job.step = factor > 1 ? fmt::format("{}(factor)", factor) : fmt::format("{}(bytes)", step);
  job.root = std::stoi(given.get("root"));
  job.calls = std::stoll(given.get("calls"));
  job.warmup = std::stoi(given.get("warmup"));
  job.rounds = std::stoi(given.get("rounds"));
  job.check = given.get("check") != "0";
  job.arena = given.get("memory") == "arena";
  job.threads = given.get("ranks") == "threads";
  return job;
}

struct Asked {
  bench::Job job;
  std::vector<std::string> backends;
  std::string json, table;
  bool tune = false, force = false;

  explicit Asked(const TaskOptions& given)
      : job(read_job(given)),
        backends(
            bench::choose(given.get("backend"), bench::as_strings(bench::kBackends), "--backend")),
        json(given.get("json", "")),
        table(given.get("table", "")),
        tune(given.get("purpose") == "tune"),
        force(given.get("force") == "1") {}

  /// The group that keeps the ranks in step: one of those that are timed where it is ours.
  std::string world() const {
    const bool across = std::find(backends.begin(), backends.end(), "hybrid") != backends.end();
    return tune ? backends[0] : across ? "hybrid" : "local";
  }
};

std::vector<bench::NamedPeer> peers_of(const Asked& asked, const Group& world) {
  std::vector<bench::NamedPeer> peers;
  for (const auto& name : asked.backends) {
    if (name == world.backend())
      peers.push_back({name, group_peer(world)});
    else if (name == "gloo")
      peers.push_back({name, gloo_peer(world)});
    else
      peers.push_back({name, mpi_peer(world)});
  }
  return peers;
}

bool measure(const Asked& asked, Group world) {
  check<UsageError>(asked.job.root < world.size(), "bench: -r {}, but there are {} ranks",
                    asked.job.root, world.size());
  for (auto op : asked.job.ops)
    check<UsageError>(op != bench::Op::pingpong || world.size() > 1,
                      "bench: pingpong takes two ranks (--nproc-per-node 2)");
  const std::vector<int> hosts = gather_hosts(world);
  bench::Output output(world.rank() == 0, asked.json);
  auto peers = asked.tune ? bench::algorithm_peers(world, hosts) : peers_of(asked, world);
  const bench::Result result = bench::run(asked.job, world, hosts, peers, output);
  if (asked.tune) bench::save_tuning(result, world, hosts, asked.table, asked.force, output);
  return result.wrong == 0;
}

void bind_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

}  // namespace

int bench_task(const Words& words) {
  const TaskOptions given(words);
  tune_worker_process();
  const Asked asked(given);
  bool right = true;
  if (asked.job.threads) {
    const auto cpus = launch::CpuBinding::parse(given.get("cpus"));
    ThreadOptions options;
    options.backend = asked.world();
    run_threads(
        std::stoi(given.get("nproc")),
        [&](Group world) {
          const auto rank = static_cast<size_t>(world.rank());
          if (rank < cpus.lists.size()) bind_to(cpus.lists[rank]);
          const bool ok = measure(asked, world);
          if (rank == 0) right = ok;
        },
        options);
  } else {
    right = measure(asked, init_process_group({.backend = asked.world(), .tuned = !asked.tune}));
  }
  return right ? kExitDone : kExitFailed;
}

}  // namespace trireme
