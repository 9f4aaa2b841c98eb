// SPDX-License-Identifier: Apache-2.0
// What mpirun starts: one rank that goes through the facts named as arguments. Exits with 0 when
// they hold, else with 1 and a line that says what does not.
#include <signal.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "tests/support/conformance.h"
#include "tests/support/desync_by_default.h"
#include "tests/support/desync_programs.h"
#include "tests/support/forked_group.h"
#include "trireme/base/check.h"
#include "trireme/comm/mpi/backend.h"
#include "trireme/comm/start/run.h"
#include "trireme/rendezvous/rendezvous.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr at::ScalarType kTypes[] = {
    at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,          at::kInt,
    at::kShort,  at::kChar,  at::kByte, at::kBool,     at::kComplexDouble, at::kComplexFloat};
constexpr ReduceOp kOps[] = {ReduceOp::sum,     ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                             ReduceOp::product, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};

void equal(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  trireme::check<Error>(got.sizes() == want.sizes() && got.equal(want), "{}: wrong {}", what,
                        c10::toString(got.scalar_type()));
}

template <class E>
std::string expect(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const E& e) {
    trireme::check<Error>(std::string(e.what()).find(part) != std::string::npos, "no '{}' in: {}",
                          part, e.what());
    return e.what();
  }
  fail<Error>("nothing thrown that says '{}'", part);
}

/// What rank `rank` gives: small numbers, so that halves are exact.
at::Tensor of_rank(int rank, int64_t n, at::ScalarType t) {
  at::Tensor x = (at::arange(n, at::kLong) * 7 + rank * 3).remainder(5);
  if (t == at::kBool) return x.remainder(2).to(t);
  if (t != at::kByte) x = x - 2;
  if (at::isComplexType(t)) return at::complex(x.to(at::kDouble), (x + rank).to(at::kDouble)).to(t);
  return x.to(t);
}

at::Tensor combine(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::min:
      return at::minimum(a, b);
    case ReduceOp::max:
      return at::maximum(a, b);
    case ReduceOp::product:
      return a * b;
    case ReduceOp::band:
      return a.bitwise_and(b);
    case ReduceOp::bor:
      return a.bitwise_or(b);
    case ReduceOp::bxor:
      return a.bitwise_xor(b);
    default:
      return a + b;
  }
}

/// One after the other, in the widest type.
at::Tensor oracle(ReduceOp op, int ranks, int64_t n, at::ScalarType t) {
  const auto wide = at::isComplexType(t)    ? at::kComplexDouble
                    : at::isFloatingType(t) ? at::kDouble
                    : t == at::kBool        ? at::kBool
                                            : at::kLong;
  at::Tensor all = of_rank(0, n, t).to(wide);
  for (int r = 1; r < ranks; ++r) all = combine(op, all, of_rank(r, n, t).to(wide));
  if (op == ReduceOp::avg) all = all / ranks;
  return all.to(t);
}

void every_collective_of(Group g, const std::vector<int64_t>& counts) {
  const int n = g.size(), me = g.rank();
  for (auto t : kTypes)
    for (int64_t count : counts) {
      const std::string size = std::to_string(count);
      for (ReduceOp op : kOps) {
        trireme::check<Error>(
            g.supports(op, t) || (t == at::kBool && (op == ReduceOp::sum || op == ReduceOp::avg)) ||
                (at::isComplexType(t) && op != ReduceOp::sum && op != ReduceOp::avg) ||
                (at::isFloatingType(t) && op > ReduceOp::product) ||
                (at::isIntegralType(t, false) && op == ReduceOp::avg),
            "an op is missing for {}", c10::toString(t));
        if (!g.supports(op, t)) continue;
        const at::Tensor want = oracle(op, n, count, t);
        at::Tensor x = of_rank(me, count, t);
        g.all_reduce(x, op).wait();
        equal(x, want, "all_reduce " + size);

        x = of_rank(me, count, t);
        g.reduce(x, n - 1, op).wait();
        equal(x, me == n - 1 ? want : of_rank(me, count, t), "reduce " + size);

        // Rank r's part is the oracle's; all give the same n parts, one after the other.
        const at::Tensor parts = of_rank(me, count, t).repeat({n});
        at::Tensor out = at::empty({count}, t);
        g.reduce_scatter_tensor(out, parts, op).wait();
        equal(out, want, "reduce_scatter " + size);
        // In place: the output is a part of the input.
        at::Tensor whole = parts.clone();
        at::Tensor part = whole.narrow(0, me * count, count);
        g.reduce_scatter_tensor(part, whole, op).wait();
        equal(part, want, "reduce_scatter in place " + size);
      }

      at::Tensor x = of_rank(me, count, t);
      g.broadcast(x, n - 1).wait();
      equal(x, of_rank(n - 1, count, t), "broadcast " + size);

      std::vector<at::Tensor> wants;
      for (int r = 0; r < n; ++r) wants.push_back(of_rank(r, count, t));
      const at::Tensor everything = at::cat(wants);
      at::Tensor all = at::zeros({n * count}, t);
      g.all_gather_into_tensor(all, of_rank(me, count, t)).wait();
      equal(all, everything, "all_gather " + size);
      all.zero_();
      all.narrow(0, me * count, count).copy_(of_rank(me, count, t));
      g.all_gather_into_tensor(all, all.narrow(0, me * count, count)).wait();
      equal(all, everything, "all_gather in place " + size);

      std::vector<at::Tensor> got;
      if (me == n - 1)
        for (int r = 0; r < n; ++r) got.push_back(at::zeros({count}, t));
      g.gather(got, of_rank(me, count, t), n - 1).wait();
      for (size_t r = 0; r < got.size(); ++r) equal(got[r], wants[r], "gather " + size);

      at::Tensor out = at::zeros({count}, t);
      g.scatter(out, me == 0 ? wants : std::vector<at::Tensor>{}, 0).wait();
      equal(out, wants[static_cast<size_t>(me)], "scatter " + size);

      // Rank r sends r + s elements to rank s.
      std::vector<at::Tensor> to, from;
      for (int r = 0; r < n; ++r) {
        to.push_back(of_rank(me, count ? me + r : 0, t));
        from.push_back(at::zeros({count ? me + r : 0}, t));
      }
      g.all_to_all(from, to).wait();
      for (int r = 0; r < n; ++r)
        equal(from[static_cast<size_t>(r)], of_rank(r, count ? me + r : 0, t),
              "all_to_all " + size);
    }
}

void every_collective(Group g) { every_collective_of(g, {0, 1, 5, 1000}); }

void conformance(Group g) {
  std::vector<testing::Sizes> shapes{{}, {0}, {3, 5}};
  if (g.size() == 2) shapes.push_back({50001});  // more ranks share the cores
  testing::conform(g, testing::all_dtypes(), shapes);
}

void large(Group) {
  // Counts that MPI cannot hold, made small: seven elements or 64 bytes in a call.
  Group g(detail::mpi_backend_on(nullptr, 0, false, seconds(20), detail::MpiLimits{7, 64}));
  every_collective_of(g, {0, 1, 5, 23});
  at::Tensor x = at::zeros({1000});
  Work sent = g.isend(of_rank(g.rank(), 1000, at::kFloat), (g.rank() + 1) % g.size());
  const int left = (g.rank() + g.size() - 1) % g.size();
  g.recv(x, left).wait();
  sent.wait();
  equal(x, of_rank(left, 1000, at::kFloat), "a large message");
}

void pairs(Group g) {
  const int n = g.size(), me = g.rank();
  for (auto t : kTypes) {
    // Around the ring, each rank sending first.
    at::Tensor got = at::zeros({70000}, t);
    Work s = g.isend(of_rank(me, 70000, t), (me + 1) % n, 3);
    g.recv(got, (me + n - 1) % n, 3).wait();
    s.wait();
    equal(got, of_rank((me + n - 1) % n, 70000, t), "ring");
  }
  // Tags decide which recv gets a message, whatever the order.
  const int left = (me + n - 1) % n, right = (me + 1) % n;
  at::Tensor a = at::zeros({1}), b = at::zeros({1}), c = at::zeros({1});
  std::vector<Work> works{g.isend(at::full({1}, 1.F), right, 1),
                          g.isend(at::full({1}, 2.F), right, 2),
                          g.isend(at::full({1}, 3.F), right, 2)};
  works.push_back(g.irecv(b, left, 2));
  works.push_back(g.irecv(c, left, 2));
  works.push_back(g.irecv(a, left, 1));
  for (Work& w : works) w.wait();
  equal(at::cat({a, b, c}), at::arange(1.F, 4.F), "tags");
  // From anybody.
  if (me == 0) {
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int r = 1; r < n; ++r) {
      at::Tensor x = at::zeros({1}, at::kLong);
      Work w = g.recv(x, kAnySource, 9);
      w.wait();
      trireme::check<Error>(w.source() == x.item<int64_t>(), "source() is {}", w.source());
      seen[static_cast<size_t>(w.source())] = true;
    }
    for (int r = 1; r < n; ++r) trireme::check<Error>(seen[static_cast<size_t>(r)], "no {}", r);
  } else {
    g.send(at::full({1}, me, at::kLong), 0, 9).wait();
  }
  std::vector<at::Tensor> in;
  std::vector<P2POp> batch;
  for (int r = 0; r < n; ++r) {
    in.push_back(at::zeros({40000}));
    if (r == me) continue;
    batch.push_back({P2POp::isend, at::full({40000}, float(me)), r, 0});
    batch.push_back({P2POp::irecv, in.back(), r, 0});
  }
  for (Work& w : g.batch_isend_irecv(batch)) w.wait();
  for (int r = 0; r < n; ++r)
    if (r != me) equal(in[static_cast<size_t>(r)], at::full({40000}, float(r)), "batch");
  expect<UsageError>([&] { g.send(a, (me + 1) % n, std::numeric_limits<int>::max()); },
                     "takes tags up to");
  g.monitored_barrier(seconds(5));
}

void groups(Group g) {
  const int n = g.size(), me = g.rank();
  Group half = g.split(me % 2, -me);  // the other way round
  at::Tensor x = of_rank(me, 9, at::kInt), want = at::zeros({9}, at::kInt);
  for (int r = me % 2; r < n; r += 2) want += of_rank(r, 9, at::kInt);
  half.all_reduce(x).wait();
  equal(x, want, "split");
  trireme::check<Error>(half.world_ranks().front() == n - 2 + me % 2, "key does not order");
  // Overlapping groups, used at the same time.
  std::vector<int> most;
  for (int r = n - 1; r > 0; --r) most.push_back(r);
  Group some = g.new_group(most);
  trireme::check<Error>(bool(some) == (me != 0), "a group of the others");
  at::Tensor y = of_rank(me, 5, at::kLong), z = of_rank(me, 5, at::kLong);
  Work all = g.all_reduce(y);
  if (some) {
    some.broadcast(z, 0).wait();
    equal(z, of_rank(n - 1, 5, at::kLong), "broadcast in a group of some");
  }
  all.wait();
  equal(y, oracle(ReduceOp::sum, n, 5, at::kLong), "all_reduce across it");
  half = {};
  some = {};
  // A part of the world whose ranks know each other by a store alone, the other way round.
  ServerHandle server;
  const auto in_a_minute = Deadline::after(seconds(60));
  std::shared_ptr<Store> store = open_store(read_rank_env(), "env://", in_a_minute, server);
  if (me != 0) {
    detail::BackendSpec part;
    part.rank = n - 1 - me;
    part.size = n - 1;
    part.timeout = seconds(20);
    part.name = "world/across";
    part.store = store;
    Group across(detail::make_backend("mpi", part));
    at::Tensor w = of_rank(me, 5, at::kLong);
    across.broadcast(w, 0).wait();
    equal(w, of_rank(n - 1, 5, at::kLong), "broadcast in a part of the world");
  }
  store.reset();
  // A world of another size or order than MPI's.
  detail::BackendSpec spec;
  spec.rank = me;
  spec.size = n + 1;
  spec.timeout = seconds(5);
  expect<UsageError>([&] { detail::mpi_backend(spec); }, fmt::format("{} ranks, but", n + 1));
  expect<UsageError>(
      [&] {
        spec.size = n;
        spec.rank = (me + 1) % n;
        detail::mpi_backend(spec);
      },
      "leave RANK and WORLD_SIZE");
}

void mismatch(Group) {
  Group g(detail::mpi_backend_on(nullptr, 0, false, seconds(20)));
  at::Tensor x = at::zeros({4});
  if (g.rank() == 0) {
    g.send(at::zeros({3}), 1).wait();
    // It hears of it where it waits next.
    expect<Mismatch>([&] { g.recv(x, 1).wait(); }, "must agree");
  } else if (g.rank() == 1) {
    expect<Mismatch>([&] { g.recv(x, 0).wait(); }, "rank 0 sent 12 bytes, this rank expects 16");
    expect<Mismatch>([&] { g.all_reduce(x); }, "rank 0 sent 12 bytes");
  }
}

void timeout(Group world) {
  const int n = world.size();
  Group g(detail::mpi_backend_on(nullptr, 0, false, milliseconds(1000)));
  at::Tensor x = at::zeros({4});
  const auto start = Clock::now();
  if (g.rank() != n - 1) {
    const auto text = expect<Timeout>([&] { g.all_reduce(x).wait(); },
                                      "rank " + std::to_string(n - 1) + " did not come");
    trireme::check<Error>(text.find("all_reduce #1 (Float × 4)") != std::string::npos &&
                              text.find("ranks.cc:") != std::string::npos,
                          "{}", text);
    trireme::check<Error>(seconds_since(start) < 5, "{} s", seconds_since(start));
    expect<Timeout>([&] { g.barrier(); }, "did not come");
    world.send(x, n - 1).wait();
  } else {
    for (int r = 0; r < n - 1; ++r) world.recv(x, r).wait();  // not before they have given up
    // It meets what the others left behind; whether that call still comes through is MPI's choice.
    expect<Timeout>(
        [&] {
          g.all_reduce(x).wait();
          g.barrier();
        },
        "all_reduce #1");
  }
  // The group is finished; the next one is not.
  g = {};
  Group next(detail::mpi_backend_on(nullptr, 0, false, seconds(20)));
  at::Tensor y = of_rank(next.rank(), 5, at::kFloat);
  next.all_reduce(y).wait();
  equal(y, oracle(ReduceOp::sum, n, 5, at::kFloat), "after a timeout");
}

void different_calls(Group) {
  Group g(detail::mpi_backend_on(nullptr, 0, false, milliseconds(1000)));
  at::Tensor x = at::zeros({4});
  std::vector<at::Tensor> parts;
  for (int r = 0; r < g.size(); ++r) parts.push_back(at::zeros({4}));
  // Everybody receives.
  if (g.rank() == 0)
    expect<Mismatch>([&] { g.gather(parts, x, 0).wait(); }, "rank 0 called gather #1");
  else
    expect<Mismatch>([&] { g.scatter(x, {}, 0).wait(); }, "called scatter #1");
}

void aborted(Group) {
  Group g(detail::mpi_backend_on(nullptr, 0, false, seconds(20)));
  at::Tensor x = at::zeros({4});
  if (g.rank() == 0) {
    g.abort("the disk is full");
    expect<Aborted>([&] { g.barrier(); }, "the disk is full");
  } else {
    expect<PeerLost>([&] { g.all_reduce(x).wait(); }, "rank 0 gave up: the disk is full");
  }
  // An exception that takes the group along.
  Group other(detail::mpi_backend_on(nullptr, 0, false, seconds(20)));
  try {
    if (other.rank() == 0) {
      const Group dies = std::move(other);
      throw std::runtime_error("out of here");
    }
    expect<PeerLost>([&] { other.barrier(); }, "because of an exception");
  } catch (const std::runtime_error&) {
  }
  Group third(detail::mpi_backend_on(nullptr, 0, false, seconds(20)));
  const auto start = Clock::now();
  const std::string missing = std::to_string(third.size() - 1);
  if (third.rank() != third.size() - 1)
    expect<Timeout>([&] { third.monitored_barrier(milliseconds(200)); },
                    "rank " + missing + " did not come within");
  trireme::check<Error>(seconds_since(start) < 5, "{} s", seconds_since(start));
}

// Both the store's ranks and those of the local engine are this job's own.
void beside_another(Group g) {
  Group local = init_process_group({.timeout = seconds(20)});
  for (int i = 0; i < 50; ++i) {
    at::Tensor x = at::full({1000}, 1.F + g.rank() + i), y = x.clone();
    g.all_reduce(x).wait();
    local.all_reduce(y).wait();
    equal(x, at::full({1000}, 3.F + 2 * i), "all_reduce of this job");
    equal(y, x, "local all_reduce of this job");
  }
}

void desync(Group g) {
  ServerHandle server;
  std::shared_ptr<Store> store =
      open_store(read_rank_env(), "env://", Deadline::after(seconds(60)), server);
  const std::string wrong =
      testing::run_desync_programs(g.rank(), g.size(), [&](const testing::DesyncProgram& p) {
        detail::BackendSpec spec;
        spec.rank = g.rank();
        spec.size = g.size();
        spec.timeout = seconds(20);
        spec.check = "each";
        spec.store = std::make_shared<PrefixStore>(store, p.name);
        return Group(detail::make_backend("mpi", spec));
      });
  trireme::check<Error>(wrong.empty(), "{}", wrong);
}

/// The ranks of `world`, with the options of those who set none.
Group by_default(Group world) {
  detail::BackendSpec spec;
  spec.rank = world.rank();
  spec.size = world.size();
  spec.timeout = seconds(30);
  return Group(detail::make_backend("mpi", spec));
}

void desync_by_default(Group world) {
  const testing::CapturedLog log;
  ServerHandle server;
  std::shared_ptr<Store> store =
      open_store(read_rank_env(), "env://", Deadline::after(seconds(60)), server);
  std::vector<std::string> skip;
  // Open MPI 4.1 writes a large message beyond the end of a smaller buffer: who calls like that by
  // default has no memory left to tell of it.
  if (std::getenv("OMPI_COMM_WORLD_RANK"))
    skip.insert(skip.end(), {"small_against_large", "count_of_large_buffers"});
  // One part of them a process: what a wrong call leaves in Open MPI may meet a later communicator.
  const char* part = std::getenv("TRIREME_TEST_PART");
  size_t number = 0;
  for (const testing::DesyncProgram& p : testing::desync_programs())
    if (std::to_string(number++ % 4) != part) skip.push_back(p.name);
  const std::string wrong = testing::run_desync_by_default(
      world, log,
      [&](const std::string& name) {
        detail::BackendSpec spec;
        spec.rank = world.rank();
        spec.size = world.size();
        spec.timeout = seconds(120);
        spec.name = name;
        spec.store = std::make_shared<PrefixStore>(store, name);
        return Group(detail::make_backend("mpi", spec));
      },
      true, skip,
      // The parts are messages of MPI, which count bytes.
      {{"parts_of_all_to_all", {"rank 0 sent 12 bytes, this rank expects 16"}}});
  trireme::check<Error>(wrong.empty(), "{}", wrong);
}

void expect_it_left(Group g, int who, const std::string& words) {
  const auto start = Clock::now();
  at::Tensor x = at::zeros({4});
  const std::string text = expect<Mismatch>([&] { g.all_reduce(x).wait(); },
                                            fmt::format("rank {} left group {}", who, words));
  const std::string call = " waits in call 2 of group world, all_reduce(float32[4], sum) at ";
  trireme::check<Error>(text.find(call + "tests/comm/mpi/ranks.cc:") != std::string::npos, "{}",
                        text);
  trireme::check<Error>(seconds_since(start) < 5, "{} s", seconds_since(start));
}

// Rank 0 serves the table in which the others read that it left.
void left(Group world) {
  for (int who : {world.size() - 1, 0}) {
    Group g = by_default(world);
    g.barrier();
    if (g.rank() != who) expect_it_left(g, who, "world after call 1; rank ");
    g = {};
    world.barrier();
  }
}

// main() has the group still.
void left_by_exit(Group world) {
  const int who = world.size() - 1;
  world.barrier();
  if (world.rank() != who) expect_it_left(world, who, "world after call 1;");
  std::fprintf(stderr, "rank %d of %d: all is well\n", world.rank(), world.size());
  std::exit(0);
}

// check=hash, the default: the first of 64 calls.
void stalled(Group world) {
  // Rank 0 comes late, but makes the same calls: the others look at their wait, and go on.
  Group late = by_default(world);
  at::Tensor x = of_rank(late.rank(), 4, at::kFloat);
  if (late.rank() == 0) {
    const auto start = Clock::now();
    while (seconds_since(start) < 1.5) late.get()->progress();
  }
  late.all_reduce(x).wait();
  equal(x, oracle(ReduceOp::sum, late.size(), 4, at::kFloat), "after a stall");

  // Everybody receives.
  Group wrong = by_default(world);
  wrong.barrier();
  std::vector<at::Tensor> parts;
  for (int r = 0; r < wrong.size(); ++r) parts.push_back(at::zeros({4}));
  const auto start = Clock::now();
  const std::string text = expect<Mismatch>(
      [&] { (wrong.rank() ? wrong.scatter(x, {}, 0) : wrong.gather(parts, x, 0)).wait(); },
      "call 2 of group world: rank 0 called gather(float32[4], root 0) at ");
  trireme::check<Error>(text.find(" called scatter(float32[4], root 0) at ") != std::string::npos,
                        "{}", text);
  trireme::check<Error>(seconds_since(start) < 8, "{} s", seconds_since(start));
}

void forked(Group world) { testing::expect_children_do_no_harm(world); }

void late(Group world) {
  const testing::CapturedLog log;
  const std::string wrong = testing::expect_a_late_rank_is_reported(world, log);
  trireme::check<Error>(wrong.empty(), "{}", wrong);
}

// These end the job: the launcher must notice.
void one_exits(Group g) {
  if (g.rank() == 1) std::exit(3);
  g.barrier();
}
void one_is_killed(Group g) {
  if (g.rank() == 1) ::raise(SIGKILL);
  g.barrier();
}

const std::map<std::string, void (*)(Group)> kFacts{
    {"every_collective", every_collective},
    {"conformance", conformance},
    {"large", large},
    {"pairs", pairs},
    {"groups", groups},
    {"mismatch", mismatch},
    {"timeout", timeout},
    {"different_calls", different_calls},
    {"aborted", aborted},
    {"desync", desync},
    {"desync_by_default", desync_by_default},
    {"left", left},
    {"left_by_exit", left_by_exit},
    {"stalled", stalled},
    {"late", late},
    {"forked", forked},
    {"beside_another", beside_another},
    {"one_exits", one_exits},
    {"one_is_killed", one_is_killed},
};

/// What differs between hosts, for ranks that are all on this one.
void pretend_hosts() {
  const std::string rank = std::to_string(read_rank_env().rank);
  if (std::getenv("TRIREME_TEST_HOSTS")) ::setenv("TRIREME_HOST_ID", rank.c_str(), 1);
  if (const char* folder = std::getenv("TRIREME_TEST_SECRETS"))
    ::setenv("TRIREME_SECRET_FILE", (std::string(folder) + "/" + rank).c_str(), 1);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  int rank = -1;
  const char* fact = "init";
  try {
    pretend_hosts();
    Group world = init_process_group({.backend = "mpi", .timeout = std::chrono::seconds(60)});
    rank = world.rank();
    for (int i = 1; i < argc; ++i) {
      fact = argv[i];
      kFacts.at(fact)(world);
      world.barrier();
    }
    std::fprintf(stderr, "rank %d of %d: all is well\n", rank, world.size());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d, %s: %s\n", rank, fact, e.what());
    return 1;
  }
}
