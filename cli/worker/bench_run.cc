// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_run.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <sched.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/worker/bench_bound.h"
#include "cli/worker/bench_check.h"
#include "cli/worker/bench_load.h"
#include "cli/worker/bench_plan.h"
#include "cli/worker/bench_table.h"
#include "trireme/base/version.h"

namespace trireme::bench {
namespace {

BenchCall make_call(const Job& job, const Group& world, Op op, Red red, const Type& type, int root,
                    const Shape& shape) {
  BenchCall c;
  c.op = op;
  c.red = red;
  c.type = &type;
  c.root = root;
  if (op == Op::barrier) return c;
  const int me = world.rank(), n = world.size();
  const auto dtype = scalar_type_of(type);
  auto buffer = [&](int64_t count) {
    return job.arena ? world.empty({count}, dtype) : at::empty({count}, dtype);
  };
  auto parts_of = [n](const at::Tensor& whole) {
    std::vector<at::Tensor> parts;
    for (int r = 0; r < n; ++r)
      parts.push_back(whole.narrow(0, r * (whole.numel() / n), whole.numel() / n));
    return parts;
  };
  if (op != Op::gather || me == root) c.out = buffer(shape.out);
  if (in_place(op))
    c.in = c.out;
  else if (op != Op::scatter || me == root)
    c.in = buffer(shape.in);
  if (c.out.defined() && (op == Op::all_gather || op == Op::gather || op == Op::all_to_all))
    c.out_parts = parts_of(c.out);
  if (c.in.defined() && (op == Op::scatter || op == Op::all_to_all)) c.in_parts = parts_of(c.in);
  return c;
}

class Runner {
 public:
  Runner(const Job& job, Group& world, const std::vector<int>& hosts,
         std::vector<NamedPeer>& backends, Output& output)
      : job_(job), world_(world), hosts_(hosts), backends_(backends), output_(output) {
    for (const auto& b : backends) width_ = std::max(width_, b.name.size());
  }

  Result run();

 private:
  struct Timed {
    NamedPeer* backend;
    int64_t calls = 0;
    std::vector<double> rounds;  // the median of each
    std::vector<double> all;     // every call
    int64_t wrong = -1;
  };

  void say_who();
  void run_op(Op op);
  void run_table(Op op, Red red, const Type& type, int root);
  void run_size(Op op, Red red, const Type& type, int root, int64_t bytes);
  std::vector<double> round_of(BenchPeer& peer, BenchCall& call, int64_t calls);
  int64_t calls_of(BenchPeer& peer, BenchCall& call);
  void report(Timed& t, const BenchCall& call, const Shape& shape, double bound, const Load& load);
  void compare(const std::vector<Timed>& timed, const BenchCall& call, const Shape& shape);

  const Job& job_;
  Group& world_;
  const std::vector<int>& hosts_;
  std::vector<NamedPeer>& backends_;
  Output& output_;
  size_t width_ = 7;  // of the column of backends
  Result result_;
  std::map<std::string, std::string> left_out_;  // "gloo: no reduce_scatter" → said already
  std::vector<std::string> ratios_;
  int64_t wrong_ = 0;
  double bus_total_ = 0;
  int64_t bus_rows_ = 0;
};

/// Every call's time on the slowest rank (of a ping-pong: half of what rank 0 saw).
std::vector<double> Runner::round_of(BenchPeer& peer, BenchCall& call, int64_t calls) {
  const int n = world_.size();
  at::Tensor mine = at::zeros({calls}, at::kDouble), all = at::empty({n * calls}, at::kDouble);
  auto* t = static_cast<double*>(mine.data_ptr());
  // By its own barrier: ours spins, which costs the threads of a peer that sleeps in its waits
  // their turn on the CPU (Gloo's ping-pong took 2 ms in place of 45 us).
  BenchCall line_up;
  line_up.type = call.type;
  for (int64_t i = 0; i < calls; ++i) {
    // Otherwise parts stay in one core's cache and nothing crosses cores.
    if (call.in.defined()) call.in.fill_(1);
    peer.run(line_up);
    const auto begin = Clock::now();
    peer.run(call);
    t[i] = seconds_since(begin);
  }
  if (call.op == Op::pingpong) world_.rank() == 0 ? mine.mul_(0.5) : mine.zero_();
  world_.all_gather_into_tensor(all, mine).wait();
  const auto* a = static_cast<const double*>(all.data_ptr());
  std::vector<double> slowest(static_cast<size_t>(calls));
  for (int r = 0; r < n; ++r)
    for (int64_t i = 0; i < calls; ++i) {
      auto& s = slowest[static_cast<size_t>(i)];
      s = std::max(s, a[r * calls + i]);
    }
  return slowest;
}

/// Tries that count for nothing, until one is long enough; warm-up too.
int64_t Runner::calls_of(BenchPeer& peer, BenchCall& call) {
  if (job_.warmup > 0) round_of(peer, call, job_.warmup);
  if (job_.calls > 0) return job_.calls;
  for (int64_t calls = kFewestCalls;;) {
    const auto begin = Clock::now();
    round_of(peer, call, calls);
    at::Tensor seconds = at::full({1}, seconds_since(begin), at::kDouble);
    world_.all_reduce(seconds, ReduceOp::max).wait();
    const int64_t next = more_calls(calls, seconds.item<double>());
    if (next == calls) return calls;
    calls = next;
  }
}

void Runner::say_who() {
  output_.human(fmt::format(
      "# trireme bench {}\n# {} ranks ({}), {} memory, minBytes {} maxBytes {} step: {} warmup "
      "iters: {} iters: {} rounds: {} validation: {}\n#\n# Ranks",
      version(), world_.size(), job_.threads ? "threads" : "processes",
      job_.arena ? "arena" : "plain", job_.bytes.front(), job_.bytes.back(), job_.step, job_.warmup,
      job_.calls > 0 ? std::to_string(job_.calls) : fmt::format("{:.0f} ms", kRoundSeconds * 1e3),
      job_.rounds, job_.check ? 1 : 0));
  at::Tensor mine = at::zeros({3}, at::kLong), all = at::zeros({3 * world_.size()}, at::kLong);
  auto* m = static_cast<int64_t*>(mine.data_ptr());
  cpu_set_t set;
  CPU_ZERO(&set);
  m[0] = ::getpid();
  m[1] = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  while (m[1] > 0 && m[2] < CPU_SETSIZE && !CPU_ISSET(static_cast<size_t>(m[2]), &set)) ++m[2];
  world_.all_gather_into_tensor(all, mine).wait();
  const auto* a = static_cast<const int64_t*>(all.data_ptr());
  for (int r = 0; r < world_.size(); ++r)
    output_.human(fmt::format("#  Rank {:>2} Pid {:>6} on {}", r, a[3 * r],
                              a[3 * r + 1] == 1 ? fmt::format("CPU {}", a[3 * r + 2])
                                                : fmt::format("{} CPUs", a[3 * r + 1])));
}

void Runner::report(Timed& t, const BenchCall& call, const Shape& shape, double bound,
                    const Load& load) {
  Row row;
  row.op = name_of(call.op);
  row.backend = t.backend->name;
  row.bytes = shape.bytes;
  row.count = shape.count;
  row.type = call.op == Op::barrier ? "none" : call.type->name;
  if (reduces(call.op)) row.redop = name_of(call.red);
  if (has_root(call.op)) row.root = call.root;
  row.seconds = median(t.rounds);
  row.p90 = percentile(t.all, 0.9);
  row.algbw = static_cast<double>(shape.bytes) / row.seconds / 1e9;
  row.busbw = row.algbw * bus_factor(call.op, world_.size());
  row.wrong = t.wrong;
  row.bound = bound;
  result_.rows.push_back(row);
  if (call.op != Op::barrier && world_.size() > 1) {
    bus_total_ += row.busbw;
    ++bus_rows_;
  }
  output_.human(table_line(row, width_));
  nlohmann::ordered_json json{{"op", row.op},
                              {"backend", row.backend},
                              {"ranks", world_.size()},
                              {"ranks_as", job_.threads ? "threads" : "processes"},
                              {"bytes", row.bytes},
                              {"count", row.count},
                              {"dtype", row.type},
                              {"redop", row.redop},
                              {"root", row.root},
                              {"memory", job_.arena ? "arena" : "plain"},
                              {"time_us", row.seconds * 1e6},
                              {"p90_us", row.p90 * 1e6},
                              {"algbw", row.algbw},
                              {"busbw", row.busbw},
                              {"calls", t.all.size()}};
  json["wrong"] =
      row.wrong < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(row.wrong);
  json["of_bound"] = bound > 0 ? nlohmann::ordered_json(bound / row.seconds) : nullptr;
  // Shorter than this, the kernel's ticks are more than 5 % of it.
  json["foreign_load"] = load.wall >= 0.5 ? nlohmann::ordered_json(load.foreign) : nullptr;
  output_.record(json);
}

void Runner::compare(const std::vector<Timed>& timed, const BenchCall& call, const Shape& shape) {
  const char* type = call.op == Op::barrier ? "none" : call.type->name;
  const char* redop = reduces(call.op) ? name_of(call.red) : "none";
  for (size_t k = 1; k < timed.size(); ++k) {
    std::vector<double> by_round;
    for (size_t r = 0; r < timed[0].rounds.size(); ++r)
      by_round.push_back(timed[k].rounds[r] / timed[0].rounds[r]);
    const double ratio = median(by_round);
    ratios_.push_back(fmt::format("#{:>11}  {:>8}  {:>6}  {} is {:.2f} x {}", shape.bytes, type,
                                  redop, timed[0].backend->name, ratio, timed[k].backend->name));
    output_.record({{"event", "ratio"},
                    {"op", name_of(call.op)},
                    {"of", timed[0].backend->name + "/" + timed[k].backend->name},
                    {"bytes", shape.bytes},
                    {"dtype", type},
                    {"redop", redop},
                    {"value", ratio}});
  }
}

void Runner::run_size(Op op, Red red, const Type& type, int root, int64_t bytes) {
  const Shape shape = shape_of(op, bytes, type.bytes, world_.size());
  BenchCall call = make_call(job_, world_, op, red, type, root, shape);
  std::vector<Timed> timed;
  for (auto& b : backends_)
    if (b.peer->lacks(op, red, type).empty()) timed.push_back({&b, 0, {}, {}, -1});
  if (timed.empty()) return;
  for (auto& t : timed) {
    if (job_.check && op != Op::barrier) {
      t.wrong = count_wrong(*t.backend->peer, call, world_);
      wrong_ += t.wrong;
    }
    t.calls = calls_of(*t.backend->peer, call);
  }
  const LoadMeter meter(job_.threads, hosts_);
  for (int r = 0; r < job_.rounds; ++r)
    for (auto& t : timed) {
      const auto round = round_of(*t.backend->peer, call, t.calls);
      t.rounds.push_back(median(round));
      t.all.insert(t.all.end(), round.begin(), round.end());
    }
  const Load load = meter.stop(world_);
  double bound = 0;
  const bool all_at_once = world_.size() <= ::sysconf(_SC_NPROCESSORS_ONLN);
  if (has_bound(op) && (!reduces(op) || red == Red::sum) && scalar_type_of(type) == at::kFloat &&
      all_at_once) {
    const int64_t calls = std::clamp<int64_t>((int64_t{64} << 20) / shape.bytes, 3, 200);
    if (world_.rank() == 0) bound = bound_of(op, world_.size(), shape, static_cast<int>(calls));
    world_.barrier();
  }
  for (auto& t : timed) report(t, call, shape, bound, load);
  compare(timed, call, shape);
}

void Runner::run_table(Op op, Red red, const Type& type, int root) {
  for (auto& b : backends_) {
    const std::string why = b.peer->lacks(op, red, type);
    if (why.empty()) continue;
    const std::string text = b.name + ": " + why;
    if (left_out_.emplace(text, name_of(op)).second)
      output_.human(fmt::format("# {}: left out", text));
    output_.record({{"event", "left_out"},
                    {"op", name_of(op)},
                    {"backend", b.name},
                    {"dtype", type.name},
                    {"redop", reduces(op) ? name_of(red) : "none"},
                    {"why", why}});
  }
  if (op == Op::barrier) return run_size(op, red, type, root, 0);
  int64_t last = -1;
  for (int64_t bytes : job_.bytes) {
    // Small sizes may be the same one: an element for each rank is the least.
    const int64_t real = shape_of(op, bytes, type.bytes, world_.size()).bytes;
    if (real != last) run_size(op, red, type, root, bytes);
    last = real;
  }
}

void Runner::run_op(Op op) {
  output_.human(fmt::format("#\n# Collective test starting: {}\n{}", name_of(op),
                            table_head(in_place(op), width_)));
  ratios_.clear();
  wrong_ = 0;
  bus_total_ = 0;
  bus_rows_ = 0;
  const std::vector<Red> one_red{Red::sum};
  const std::vector<const Type*> one_type{job_.types.front()};
  std::vector<int> roots{std::max(0, job_.root)};
  if (has_root(op) && job_.root < 0) {
    roots.clear();
    for (int r = 0; r < world_.size(); ++r) roots.push_back(r);
  }
  for (const Type* type : op == Op::barrier ? one_type : job_.types)
    for (Red red : reduces(op) ? job_.reds : one_red)
      for (int root : roots) run_table(op, red, *type, root);
  if (!ratios_.empty()) {
    output_.human("# Rate of the first backend over the others' (median of the ratios by round)");
    for (const auto& line : ratios_) output_.human(line);
  }
  result_.wrong += wrong_;
  output_.human(fmt::format(
      "# Out of bounds values : {} {}\n# Avg bus bandwidth    : {}\n#\n# Collective test "
      "concluded: {}",
      job_.check ? std::to_string(wrong_) : "N/A", wrong_ ? "FAILED" : "OK",
      bus_rows_ ? fmt::format("{:.4f}", bus_total_ / static_cast<double>(bus_rows_)) : "n/a",
      name_of(op)));
}

Result Runner::run() {
  say_who();
  const LoadMeter meter(job_.threads, hosts_);
  for (Op op : job_.ops) run_op(op);
  const Load load = meter.stop(world_);
  if (result_.rows.empty()) {
    std::string all;
    for (const auto& [text, op] : left_out_) all += (all.empty() ? "" : "; ") + text;
    fail<UsageError>(
        "bench: no backend can do what was asked for ({}). Choose others with "
        "--backend, -o or -d",
        all);
  }
  const bool is_void = load.foreign > kMostForeignLoad;
  output_.human(
      fmt::format("#\n# CPU seconds of ranks : {:.1f} in {:.1f} s; foreign load {:.1f} %{}",
                  load.own, load.wall, 100 * load.foreign,
                  is_void ? ": above 5 %, these figures count for nothing" : ""));
  output_.record({{"event", "done"},
                  {"wrong", result_.wrong},
                  {"foreign_load", load.foreign},
                  {"void", is_void}});
  result_.foreign = load.foreign;
  return std::move(result_);
}

}  // namespace

Result run(const Job& job, Group& world, const std::vector<int>& hosts,
           std::vector<NamedPeer>& backends, Output& output) {
  return Runner(job, world, hosts, backends, output).run();
}

}  // namespace trireme::bench
