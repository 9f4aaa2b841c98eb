// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/group.h"

// One small wrong program for each way in which ranks can call different things, for any backend
// with check=each and any number of ranks from 2. All ranks must raise, soon, with both calls
// named.
namespace trireme::testing {

/// Which groups beside that of all ranks a program calls in.
enum class DesyncGroups : uint8_t { none, copies, pairs };

/// What a program of n ranks has to call in.
struct DesyncWorld {
  Group all;
  Group one, two;             // copies: everybody
  Group first, middle, last;  // pairs: ranks {0, 1}, {1, n-1}, {0, n-1}
  int rank() const { return all.rank(); }
  int size() const { return all.size(); }
  bool odd() const { return rank() == size() - 1; }  // who does something else

  DesyncWorld(Group group, DesyncGroups others) : all(std::move(group)) {
    const int n = all.size();
    std::vector<int> everybody;
    for (int r = 0; r < n; ++r) everybody.push_back(r);
    if (others == DesyncGroups::copies) {
      one = all.new_group(everybody);
      two = all.new_group(everybody);
    } else if (others == DesyncGroups::pairs) {
      first = all.new_group({0, 1});
      middle = all.new_group({1, n - 1});
      last = all.new_group({0, n - 1});
    }
  }
};

struct DesyncProgram {
  const char* name;
  std::function<void(DesyncWorld&)> body;
  std::vector<std::string> named;  // every rank's text has these; N: the odd rank
  double within = 2;               // seconds; orders and groups 4
  DesyncGroups groups = DesyncGroups::none;
  enum Ends : uint8_t { mismatch, mismatch_on_the_odd, error } ends = mismatch;
  int at_least() const { return groups == DesyncGroups::pairs ? 3 : 2; }  // ranks
};

namespace desync {

inline at::Tensor t(int64_t count = 100, at::ScalarType dtype = at::kFloat) {
  return at::ones({count}, dtype);
}
inline std::vector<at::Tensor> list(bool wanted, int n, int64_t count = 100) {
  std::vector<at::Tensor> all;
  for (int r = 0; wanted && r < n; ++r) all.push_back(t(count));
  return all;
}
inline void gather(DesyncWorld& w, int root = 0) {
  w.all.gather(list(w.rank() == root, w.size()), t(), root).wait();
}
inline void scatter(DesyncWorld& w, int root = 0) {
  w.all.scatter(t(), list(w.rank() == root, w.size()), root).wait();
}
inline void all_gather(DesyncWorld& w, int64_t count = 100, at::ScalarType dtype = at::kFloat) {
  w.all.all_gather_into_tensor(t(count * w.size(), dtype), t(count, dtype)).wait();
}
inline void reduce_scatter(DesyncWorld& w, int64_t count = 100, ReduceOp op = ReduceOp::sum) {
  w.all.reduce_scatter_tensor(t(count), t(count * w.size()), op).wait();
}

}  // namespace desync

inline const std::vector<DesyncProgram>& desync_programs() {
  using namespace desync;
  using W = DesyncWorld;
  static const std::vector<DesyncProgram> programs{
      // ---- another call under the same number
      {"operation",
       [](W& w) { (w.odd() ? w.all.broadcast(t(), 0) : w.all.all_reduce(t())).wait(); },
       {"rank 0 called all_reduce(float32[100], sum)", "rank N called broadcast(float32[100]"}},
      {"operation_of_another_shape",
       [](W& w) { w.odd() ? reduce_scatter(w) : all_gather(w); },
       {"rank 0 called all_gather(", "rank N called reduce_scatter("}},
      {"barrier_against_data",
       [](W& w) { w.odd() ? w.all.barrier() : w.all.all_reduce(t()).wait(); },
       {"rank 0 called all_reduce(", "rank N called barrier"}},
      {"gather_against_scatter",
       [](W& w) { w.odd() ? scatter(w) : gather(w); },
       {"rank 0 called gather(", "rank N called scatter("}},
      {"reduce_against_all_reduce",
       [](W& w) { (w.odd() ? w.all.reduce(t(), 0) : w.all.all_reduce(t())).wait(); },
       {"rank 0 called all_reduce(", "rank N called reduce("}},
      {"all_to_all_against_all_gather",
       [](W& w) {
         w.odd() ? w.all.all_to_all_single(t(10 * w.size()), t(10 * w.size())).wait()
                 : all_gather(w, 10);
       },
       {"rank 0 called all_gather(", "rank N called all_to_all("}},
      {"dtype",
       [](W& w) { w.all.all_reduce(t(100, w.odd() ? at::kDouble : at::kFloat)).wait(); },
       {"rank 0 called all_reduce(float32[100]", "rank N called all_reduce(float64[100]"}},
      {"dtype_of_the_same_size",
       [](W& w) { w.all.all_reduce(t(100, w.odd() ? at::kInt : at::kFloat)).wait(); },
       {"float32[100]", "rank N called all_reduce(int32[100]"}},
      {"half_types",
       [](W& w) { w.all.broadcast(t(100, w.odd() ? at::kBFloat16 : at::kHalf), 0).wait(); },
       {"broadcast(float16[100]", "broadcast(bfloat16[100]"}},
      {"dtype_of_all_gather",
       [](W& w) { all_gather(w, 100, w.odd() ? at::kLong : at::kDouble); },
       {"all_gather(float64[100])", "all_gather(int64[100])"}},
      {"count",
       [](W& w) { w.all.all_reduce(t(w.odd() ? 99 : 100)).wait(); },
       {"float32[100]", "float32[99]"}},
      {"count_of_nothing",
       [](W& w) { w.all.all_reduce(t(w.odd() ? 0 : 100)).wait(); },
       {"float32[100]", "float32[0]"}},
      {"count_of_large_buffers",
       [](W& w) { w.all.all_reduce(t(w.odd() ? 900001 : 900000)).wait(); },
       {"float32[900000]", "float32[900001]"}},
      {"small_against_large",
       [](W& w) { w.all.all_reduce(t(w.odd() ? 500000 : 4)).wait(); },
       {"float32[4]", "float32[500000]"}},
      {"count_of_broadcast",
       [](W& w) { w.all.broadcast(t(w.odd() ? 7 : 8), 0).wait(); },
       {"broadcast(float32[8], root 0)", "broadcast(float32[7], root 0)"}},
      {"count_of_all_gather",
       [](W& w) { all_gather(w, w.odd() ? 101 : 100); },
       {"all_gather(float32[100])", "rank N called all_gather(float32[101])"}},
      {"count_of_reduce_scatter",
       [](W& w) { reduce_scatter(w, w.odd() ? 50 : 100); },
       {"reduce_scatter(float32[100]", "reduce_scatter(float32[50]"}},
      {"a_list_of_other_tensors",
       [](W& w) {
         w.all.all_reduce_coalesced({t(10), t(w.odd() ? 9 : 10)}).wait();
       },
       {"float32[20]", "float32[19]"}},
      {"root_of_broadcast",
       [](W& w) { w.all.broadcast(t(), w.odd() ? 1 : 0).wait(); },
       {"broadcast(float32[100], root 0)", "broadcast(float32[100], root 1)"}},
      {"root_of_reduce",
       [](W& w) { w.all.reduce(t(), w.odd() ? 1 : 0).wait(); },
       {"reduce(float32[100], sum, root 0)", "reduce(float32[100], sum, root 1)"}},
      {"root_of_gather",
       [](W& w) { gather(w, w.odd() ? 1 : 0); },
       {"gather(float32[100], root 0)", "gather(float32[100], root 1)"}},
      {"root_of_scatter",
       [](W& w) { scatter(w, w.odd() ? 1 : 0); },
       {"scatter(float32[100], root 0)", "scatter(float32[100], root 1)"}},
      {"reduction",
       [](W& w) { w.all.all_reduce(t(), w.odd() ? ReduceOp::max : ReduceOp::sum).wait(); },
       {"float32[100], sum)", "float32[100], max)"}},
      {"reduction_of_reduce_scatter",
       [](W& w) { reduce_scatter(w, 100, w.odd() ? ReduceOp::avg : ReduceOp::sum); },
       {"float32[100], sum)", "float32[100], avg)"}},
      {"order_in_one_group",
       [](W& w) {
         w.all.all_reduce(t(w.odd() ? 20 : 10)).wait();
         w.all.all_reduce(t(w.odd() ? 10 : 20)).wait();
       },
       {"rank 0 called all_reduce(float32[10]", "rank N called all_reduce(float32[20]"}},
      {"order_of_calls_under_way",
       [](W& w) {
         Work a = w.all.all_reduce(t(w.odd() ? 20 : 10));
         Work b = w.all.all_reduce(t(w.odd() ? 10 : 20));
         b.wait();
         a.wait();
       },
       {"rank 0 called all_reduce(float32[10]", "rank N called all_reduce(float32[20]"}},
      {"missing_call",
       [](W& w) {
         if (!w.odd()) w.all.all_reduce(t()).wait();
         w.all.broadcast(t(), 0).wait();
       },
       {"rank 0 called all_reduce(", "rank N called broadcast("}},
      {"extra_call",
       [](W& w) {
         for (int i = 0; i < (w.odd() ? 4 : 3); ++i) w.all.all_reduce(t()).wait();
         w.all.barrier();
       },
       {"rank 0 called barrier", "rank N called all_reduce("}},
      {"parts_of_all_to_all",
       [](W& w) {  // rank 0 sends three elements to the odd rank, which expects four
         std::vector<int64_t> from(static_cast<size_t>(w.size()), 3), to = from;
         if (w.odd()) from[0] = 4;
         w.all.all_to_all_single(t(3 * w.size() + (w.odd() ? 1 : 0)), t(3 * w.size()), from, to)
             .wait();
       },
       {"rank 0 sends 3 elements to rank N, but rank N expects 4"}},
      {"another_new_group",
       [](W& w) {
         w.odd() ? w.all.new_group({0}) : w.all.new_group({0, 1});
       },
       {"new_group at ", "name different ranks"}},
      {"a_rank_that_throws",
       [](W& w) {
         w.all.all_reduce(t()).wait();
         if (w.odd()) throw NumericError("the loss is nan");
         w.all.all_reduce(t()).wait();
       },
       {"the loss is nan"},
       2,
       DesyncGroups::none,
       DesyncProgram::error},
      // ---- no common slot: orders and groups
      {"one_step_more_than_the_others",
       [](W& w) {
         for (int i = 0; i < (w.odd() ? 3 : 2); ++i) w.one.all_reduce(t()).wait();
         w.one = {};
       },
       {" left group world/1 after call 2; rank N waits in call 3 of group world/1, all_reduce("},
       4,
       DesyncGroups::copies,
       DesyncProgram::mismatch_on_the_odd},
      {"tag_of_a_message",
       [](W& w) {
         if (w.rank() == 0) w.all.send(t(), w.size() - 1, 7).wait();
         if (w.odd()) w.all.recv(t(), 0, 8).wait();
         w.all.barrier();
       },
       {"rank 0 is in ", "rank N is in recv(float32[100], from rank 0) at ", "with tag 8",
        "and needs rank 0"},
       4},
      {"both_receive_first",
       [](W& w) {
         const int peer = w.rank() == 0 ? w.size() - 1 : 0;
         if (w.rank() == 0 || w.odd()) {
           w.all.recv(t(), peer).wait();
           w.all.send(t(), peer).wait();
         }
         w.all.barrier();
       },
       {"rank 0 is in recv(float32[100], from rank N)",
        "rank N is in recv(float32[100], from rank 0)"},
       4},
      {"large_message_that_nobody_takes",
       [](W& w) {
         if (w.rank() == 0) w.all.send(t(5000000), w.size() - 1).wait();
         w.all.barrier();
       },
       {"rank 0 is in send(float32[5000000], to rank N)", "rank N is in call "},
       4},
      {"ring_of_receives",
       [](W& w) { w.all.recv(t(), (w.rank() + 1) % w.size()).wait(); },
       {"rank 0 is in recv(", "and needs rank 1", "and needs rank 0"},
       4},
      {"order_of_two_groups",
       [](W& w) {
         (w.odd() ? w.two : w.one).all_reduce(t()).wait();
         (w.odd() ? w.one : w.two).broadcast(t(), 0).wait();
       },
       {" is in call 1 of group world/1, all_reduce(",
        "rank N is in call 1 of group world/2, all_reduce("},
       4,
       DesyncGroups::copies},
      {"wrong_group",
       [](W& w) { (w.odd() ? w.all : w.one).all_reduce(t()).wait(); },
       {" is in call 1 of group world/1, all_reduce(", "rank N is in call ", " of group world, "},
       4,
       DesyncGroups::copies},
      {"group_of_other_ranks",
       [](W& w) {  // rank 1 means the pair
         (w.rank() == 0 ? w.first : w.all).all_reduce(t()).wait();
         w.all.all_reduce(t()).wait();
       },
       {"rank 0 is in call 1 of group world/1", "rank 1 is in call "},
       4,
       DesyncGroups::pairs},
      {"circle_over_three_groups",
       [](W& w) {
         Group* begin = w.rank() == 0 ? &w.first : w.rank() == 1 ? &w.middle : &w.last;
         Group* then = w.rank() == 0 ? &w.last : w.rank() == 1 ? &w.first : &w.middle;
         if (w.rank() < 2 || w.odd()) {
           begin->all_reduce(t()).wait();
           then->all_reduce(t()).wait();
         } else {
           w.all.barrier();
         }
       },
       {"rank 0 is in call 1 of group world/1", "rank 1 is in call 1 of group world/2",
        "rank N is in call 1 of group world/3"},
       4,
       DesyncGroups::pairs},
      {"message_inside_a_collective",
       [](W& w) {
         if (w.rank() == 0) {
           w.all.all_reduce(t()).wait();
           w.one.send(t(), w.size() - 1).wait();
         } else {
           if (w.odd()) w.one.recv(t(), 0).wait();
           w.all.all_reduce(t()).wait();
         }
       },
       {"rank 0 is in call ", " of group world, all_reduce(", "rank N is in recv(",
        "of group world/1"},
       4,
       DesyncGroups::copies},
  };
  return programs;
}

/// How it ended on this rank.
struct DesyncEnd {
  std::string what;  // "Kind: text"; "": as if nothing were wrong
  double after = 0;
};

/// `world` is gone afterwards.
inline DesyncEnd run_desync(const DesyncProgram& program, DesyncWorld world) {
  DesyncEnd end;
  auto start = Clock::now();
  try {
    world.all.barrier();
    start = Clock::now();
    program.body(world);
  } catch (const Error& e) {
    end.what = std::string(e.kind()) + ": " + e.what();
    if (program.ends == DesyncProgram::error)
      world.all.abort(e.what());  // as run_threads and spawn do
  }
  end.after = seconds_since(start);
  return end;
}

/// "": as it should be.
inline std::string judge_desync(const DesyncProgram& p, const DesyncEnd& end, int rank, int size) {
  const bool odd = rank == size - 1;
  const std::string where = fmt::format("{}, rank {} of {}, after {:.2f} s: '{}'", p.name, rank,
                                        size, end.after, end.what);
  if (p.ends == DesyncProgram::mismatch_on_the_odd && !odd)
    return end.what.empty() ? "" : where + "\n";
  if (end.what.empty()) return where + ": nothing was raised\n";
  if (end.after > p.within) return where + ": too late\n";
  if (p.ends != DesyncProgram::error && end.what.rfind("Mismatch: ", 0) != 0)
    return where + ": no Mismatch\n";
  for (std::string part : p.named) {
    for (size_t at; (at = part.find("rank N")) != std::string::npos;)
      part.replace(at + 5, 1, std::to_string(size - 1));
    if (end.what.find(part) == std::string::npos) return where + " lacks '" + part + "'\n";
  }
  if (p.ends != DesyncProgram::error && end.what.find("desync_programs.h:") == std::string::npos)
    return where + ": no source location\n";
  return "";
}

/// All of them; the orders side by side, since each takes a second to be sure. "": as it should be
/// on this rank. Every rank calls it.
inline std::string run_desync_programs(int rank, int size,
                                       const std::function<Group(const DesyncProgram&)>& group_of) {
  std::string wrong;
  std::vector<const DesyncProgram*> orders;
  std::vector<DesyncWorld> worlds;
  for (const DesyncProgram& p : desync_programs()) {
    if (p.at_least() > size) continue;
    DesyncWorld world(group_of(p), p.groups);
    if (p.within <= 2) {
      wrong += judge_desync(p, run_desync(p, std::move(world)), rank, size);
      continue;
    }
    orders.push_back(&p);
    worlds.push_back(std::move(world));
  }
  std::vector<DesyncEnd> ends(orders.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < orders.size(); ++i)
    threads.emplace_back([&, i] { ends[i] = run_desync(*orders[i], std::move(worlds[i])); });
  for (auto& t : threads) t.join();
  for (size_t i = 0; i < orders.size(); ++i) wrong += judge_desync(*orders[i], ends[i], rank, size);
  return wrong;
}

}  // namespace trireme::testing
