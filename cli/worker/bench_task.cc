// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/worker/bench_bound.h"
#include "cli/worker/bench_plan.h"
#include "cli/worker/peers/peer.h"
#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/comm/run.h"

// trireme bench all_reduce: ours and the peers alternate, round by round, in one run, by one clock.
namespace trireme {
namespace {

struct Named {
  std::string name;
  std::unique_ptr<BenchPeer> peer;
  std::vector<double> rounds;  // seconds a call: median of a round, slowest rank
  int64_t wrong = 0;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

at::ScalarType dtype_named(const std::string& name) {
  if (name == "float") return at::kFloat;
  if (name == "double") return at::kDouble;
  if (name == "half") return at::kHalf;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "int32") return at::kInt;
  if (name == "int64") return at::kLong;
  if (name == "uint8") return at::kByte;
  fail<UsageError>(
      "bench: -d {} is not a dtype; use float, double, half, bfloat16, int32, int64 or uint8",
      name);
}

/// Medians over calls of the slowest rank's time.
double round_of(Named& b, Group& world, at::Tensor& buffer, int calls) {
  at::Tensor mine = at::empty({calls}, at::kDouble),
             all = at::empty({world.size() * calls}, at::kDouble);
  auto* t = static_cast<double*>(mine.data_ptr());
  for (int i = 0; i < calls; ++i) {
    buffer.fill_(world.rank() +
                 1);  // otherwise chunks stay in one core's cache and nothing crosses cores
    world.barrier();
    const auto begin = Clock::now();
    b.peer->all_reduce(buffer);
    t[i] = seconds_since(begin);
  }
  world.all_gather_into_tensor(all, mine).wait();
  const auto* a = static_cast<const double*>(all.data_ptr());
  std::vector<double> slowest(static_cast<size_t>(calls));
  for (int r = 0; r < world.size(); ++r)
    for (int i = 0; i < calls; ++i)
      slowest[static_cast<size_t>(i)] = std::max(slowest[static_cast<size_t>(i)], a[r * calls + i]);
  return median(slowest);
}

int64_t count_wrong(BenchPeer& peer, Group& world, at::Tensor& buffer) {
  buffer.fill_(world.rank() + 1);
  peer.all_reduce(buffer);
  const int64_t n = world.size();
  at::Tensor wrong = buffer.ne(at::full({1}, n * (n + 1) / 2, buffer.options())).sum().reshape({1});
  world.all_reduce(wrong).wait();
  return wrong.item<int64_t>();
}

class Table {
 public:
  Table(bool on, const std::string& json) : on_(on) {
    if (!on_ || json.empty()) return;
    if (json == "-") {
      to_stdout_ = true;
    } else {
      file_.open(json);
      check<ResourceError>(file_.good(), "bench: cannot write {}", json);
    }
  }
  void human(const std::string& line) {
    if (on_ && !to_stdout_) std::puts(line.c_str()), std::fflush(stdout);
  }
  void record(const nlohmann::ordered_json& row) {
    if (!on_) return;
    if (to_stdout_) std::puts(row.dump().c_str()), std::fflush(stdout);
    if (file_.is_open()) file_ << row.dump() << "\n" << std::flush;
  }

 private:
  bool on_, to_stdout_ = false;
  std::ofstream file_;
};

}  // namespace

int bench_task(const Words& words) {
  const TaskOptions given(words);
  tune_worker_process();
  Group world = init_process_group();
  const int64_t begin = std::stoll(given.get("begin")), end = std::stoll(given.get("end")),
                factor = std::stoll(given.get("factor"));
  const int rounds = std::stoi(given.get("rounds")), fixed_calls = std::stoi(given.get("calls")),
            warmup = std::stoi(given.get("warmup"));
  const bool checks = given.get("check") != "0", arena = given.get("memory") == "arena";
  const std::string type_name = given.get("dtype");
  const at::ScalarType dtype = dtype_named(type_name);

  std::vector<Named> backends;
  for (const auto& name : split(given.get("backend"))) {
    auto peer = name == "local"  ? local_peer(world)
                : name == "gloo" ? gloo_peer(world)
                                 : mpi_peer(world);
    check<UsageError>(peer->supports(dtype), "bench: {} does not reduce {}", name, type_name);
    backends.push_back({name, std::move(peer), {}, 0});
  }

  Table table(world.rank() == 0, given.get("json", ""));
  table.human(
      fmt::format("# all_reduce, {} ranks, {} memory, median of {} rounds, backends alternating",
                  world.size(), arena ? "arena" : "plain", rounds));
  table.human(fmt::format("#{:>12} {:>12} {:>9} {:>6} {:>8} {:>12} {:>8} {:>8} {:>7} {:>9}", "size",
                          "count", "type", "redop", "backend", "time", "algbw", "busbw", "#wrong",
                          "of bound"));
  table.human(fmt::format("#{:>12} {:>12} {:>9} {:>6} {:>8} {:>12} {:>8} {:>8} {:>7} {:>9}", "(B)",
                          "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", ""));

  const auto wall_begin = Clock::now();
  const double machine_begin = machine_cpu_seconds(), own_begin = own_cpu_seconds();
  int64_t total_wrong = 0;
  std::vector<std::string> ratios;
  double bus_total = 0;
  int bus_rows = 0;
  for (int64_t bytes : bench_sizes(begin, end, factor)) {
    const int64_t count =
        std::max<int64_t>(1, bytes / static_cast<int64_t>(c10::elementSize(dtype)));
    const int calls = fixed_calls > 0 ? fixed_calls : calls_a_round(bytes);
    at::Tensor buffer = arena ? world.empty({count}, dtype) : at::empty({count}, dtype);
    for (auto& b : backends) {
      b.rounds.clear();
      b.wrong = checks ? count_wrong(*b.peer, world, buffer) : 0;
      total_wrong += b.wrong;
      for (int i = 0; i < warmup; ++i) round_of(b, world, buffer, std::max(1, calls / 10));
    }
    for (int r = 0; r < rounds; ++r)
      for (auto& b : backends) b.rounds.push_back(round_of(b, world, buffer, calls));
    double bound = 0;
    if (dtype == at::kFloat && world.rank() == 0)
      bound = all_reduce_bound(world.size(), count, std::max(3, calls));
    world.barrier();
    for (auto& b : backends) {
      const double s = median(b.rounds);
      const double algbw =
          static_cast<double>(count * static_cast<int64_t>(c10::elementSize(dtype))) / s / 1e9;
      const double busbw = algbw * all_reduce_bus_factor(world.size());
      bus_total += busbw;
      ++bus_rows;
      table.human(fmt::format(
          " {:>12} {:>12} {:>9} {:>6} {:>8} {:>12.2f} {:>8.2f} {:>8.2f} {:>7} {:>9}", bytes, count,
          type_name, "sum", b.name, s * 1e6, algbw, busbw, checks ? std::to_string(b.wrong) : "N/A",
          bound > 0 ? fmt::format("{:.0f} %", 100 * bound / s) : "-"));
      table.record({{"op", "all_reduce"},
                    {"backend", b.name},
                    {"ranks", world.size()},
                    {"bytes", bytes},
                    {"dtype", type_name},
                    {"memory", arena ? "arena" : "plain"},
                    {"time_us", s * 1e6},
                    {"algbw", algbw},
                    {"busbw", busbw},
                    {"wrong", b.wrong},
                    {"of_bound", bound > 0 ? bound / s : 0}});
    }
    for (size_t k = 1; k < backends.size(); ++k) {
      std::vector<double> by_round;
      for (size_t r = 0; r < backends[0].rounds.size(); ++r)
        by_round.push_back(backends[k].rounds[r] / backends[0].rounds[r]);
      ratios.push_back(fmt::format("#{:>12} {:>8} is {:>7.2f} × {}", bytes, backends[0].name,
                                   median(by_round), backends[k].name));
      table.record({{"event", "ratio"},
                    {"of", backends[0].name + "/" + backends[k].name},
                    {"bytes", bytes},
                    {"value", median(by_round)}});
    }
  }

  // Everybody's CPU seconds but ours, as a part of the machine's.
  at::Tensor own = at::full({1}, own_cpu_seconds() - own_begin, at::kDouble);
  world.all_reduce(own).wait();
  const double cpus = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  const double foreign = std::max(0.0, machine_cpu_seconds() - machine_begin - own.item<double>()) /
                         (seconds_since(wall_begin) * cpus);
  if (!ratios.empty()) {
    table.human("# rate of the first backend over the others' (median of the ratios by round):");
    for (auto& r : ratios) table.human(r);
  }
  table.human(
      fmt::format("# Out of bounds values : {} {}", total_wrong, total_wrong ? "FAILED" : "OK"));
  table.human(fmt::format("# Avg bus bandwidth    : {:.4f}", bus_rows ? bus_total / bus_rows : 0));
  table.human(fmt::format("# CPU seconds of ranks : {:.1f} in {:.1f} s; foreign load {:.1f} %{}",
                          own.item<double>(), seconds_since(wall_begin), 100 * foreign,
                          foreign > 0.05 ? ": above 5 %, these figures count for nothing" : ""));
  table.record({{"event", "done"},
                {"wrong", total_wrong},
                {"foreign_load", foreign},
                {"void", foreign > 0.05}});
  return total_wrong ? kExitFailed : kExitDone;
}

}  // namespace trireme
