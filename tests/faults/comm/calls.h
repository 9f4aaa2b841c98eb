// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/objects.h"
#include "trireme/comm/start/run.h"

// What befalls whom in which call.
namespace trireme::testing {

constexpr Duration kPlenty = std::chrono::seconds(100);

/// What befalls the victim in its second call; before: it never comes to it, inside: right after it
/// has posted its part of some megabytes.
enum class Fault { kill_before, kill_inside, stop_before, stop_inside, cut };
inline bool is_stop(Fault f) { return f == Fault::stop_before || f == Fault::stop_inside; }
inline bool is_inside(Fault f) { return f == Fault::kill_inside || f == Fault::stop_inside; }

struct CommCase;

/// One rank's part of one kind of call.
struct CommCall {
  const char* name;
  bool waits;  // it returns when it is done: there is no "posted, not complete"
  std::vector<Work> (*post)(Group& g, const CommCase& c);
};

struct CommCase {
  const CommCall* call = nullptr;
  Fault fault = Fault::kill_before;
  std::string backend = "local";
  int size = 3;
  int victim = 1;
  int per_host = 0;       // 0: all on one
  bool in_arena = false;  // tensors that peers reach
  Duration timeout = kPlenty;
  int64_t elements = 2 << 20;  // float32, of the largest tensor

  std::string name() const {
    static const char* const faults[] = {"killed before", "killed inside", "stopped before",
                                         "stopped inside", "link cut in"};
    return backend + (in_arena ? ", arena: " : ": ") + faults[static_cast<int>(fault)] + " " +
           call->name;
  }
  at::Tensor tensor(const Group& g, int64_t count) const {
    return (in_arena ? g.empty({count}, at::kFloat) : at::empty({count}, at::kFloat)).fill_(1);
  }
  std::vector<at::Tensor> parts(const Group& g) const {
    std::vector<at::Tensor> all;
    for (int r = 0; r < g.size(); ++r) all.push_back(tensor(g, elements / g.size()));
    return all;
  }
};

/// Every call of Group that waits for others; where it has a root, the victim is no root of a call
/// that sends and the root of none that receives. Pairs are of the victim and each other rank.
inline const std::vector<CommCall>& comm_calls() {
  using Works = std::vector<Work>;
  using C = const CommCase&;
  static const std::vector<CommCall> calls{
      {"all_reduce", false,
       [](Group& g, C c) { return Works{g.all_reduce(c.tensor(g, c.elements))}; }},
      {"broadcast", false,
       [](Group& g, C c) { return Works{g.broadcast(c.tensor(g, c.elements), c.victim)}; }},
      {"broadcast_to_it", false,
       [](Group& g, C c) { return Works{g.broadcast(c.tensor(g, c.elements), 0)}; }},
      {"reduce", false, [](Group& g, C c) { return Works{g.reduce(c.tensor(g, c.elements), 0)}; }},
      {"all_gather", false,
       [](Group& g, C c) {
         return Works{g.all_gather(c.parts(g), c.tensor(g, c.elements / g.size()))};
       }},
      {"reduce_scatter", false,
       [](Group& g, C c) {
         return Works{g.reduce_scatter(c.tensor(g, c.elements / g.size()), c.parts(g))};
       }},
      {"gather", false,
       [](Group& g, C c) {
         return Works{g.gather(g.rank() == 0 ? c.parts(g) : std::vector<at::Tensor>(),
                               c.tensor(g, c.elements / g.size()), 0)};
       }},
      {"scatter", false,
       [](Group& g, C c) {
         return Works{g.scatter(c.tensor(g, c.elements / g.size()),
                                g.rank() == c.victim ? c.parts(g) : std::vector<at::Tensor>(),
                                c.victim)};
       }},
      {"all_to_all", false,
       [](Group& g, C c) { return Works{g.all_to_all(c.parts(g), c.parts(g))}; }},
      {"send", false,
       [](Group& g, C c) {
         Works works;
         for (int r = 0; r < g.size(); ++r)
           if (g.rank() == c.victim && r != c.victim)
             works.push_back(g.recv(c.tensor(g, c.elements / g.size()), r));
         if (g.rank() != c.victim)
           works.push_back(g.send(c.tensor(g, c.elements / g.size()), c.victim));
         return works;
       }},
      {"recv", false,
       [](Group& g, C c) {
         Works works;
         for (int r = 0; r < g.size(); ++r)
           if (g.rank() == c.victim && r != c.victim)
             works.push_back(g.send(c.tensor(g, c.elements / g.size()), r));
         if (g.rank() != c.victim)
           works.push_back(g.recv(c.tensor(g, c.elements / g.size()), c.victim));
         return works;
       }},
      {"recv_from_any", false,
       [](Group& g, C c) {
         Works works;
         for (int r = 0; r < g.size(); ++r)
           if (g.rank() == c.victim && r != c.victim)
             works.push_back(g.send(c.tensor(g, c.elements / g.size()), r, 5));
         if (g.rank() != c.victim)
           works.push_back(g.recv(c.tensor(g, c.elements / g.size()), kAnySource, 5));
         return works;
       }},
      {"batch_isend_irecv", false,
       [](Group& g, C c) {
         std::vector<P2POp> ops;
         for (int r = 0; r < g.size(); ++r)
           if (r != g.rank() && (r == c.victim || g.rank() == c.victim)) {
             ops.push_back({P2POp::isend, c.tensor(g, c.elements / g.size()), r});
             ops.push_back({P2POp::irecv, c.tensor(g, c.elements / g.size()), r});
           }
         return g.batch_isend_irecv(ops);
       }},
      {"barrier", true, [](Group& g, C) { return g.barrier(), Works{}; }},
      {"monitored_barrier", true,
       [](Group& g, C c) { return g.monitored_barrier(c.timeout), Works{}; }},
      {"object_collective", true,
       [](Group& g, C) {
         return all_gather_object(g, std::string(size_t{1} << 20, 'x')), Works{};
       }},
  };
  return calls;
}

/// Each of the faults in each call that the backend has.
inline std::vector<CommCase> in_each_call(const CommCase& like, const std::vector<Fault>& faults) {
  std::vector<CommCase> cases;
  for (const CommCall& call : comm_calls())
    for (Fault fault : faults) {
      if (is_inside(fault) && call.waits) continue;
      if (like.backend == "hybrid" && call.name == std::string("recv_from_any")) continue;
      cases.push_back(like);
      cases.back().call = &call;
      cases.back().fault = fault;
      // Making the group is under this limit, too.
      if (is_stop(fault) && call.waits) cases.back().timeout += std::chrono::seconds(3);
    }
  // Those that take longest first.
  std::stable_sort(cases.begin(), cases.end(),
                   [](const CommCase& a, const CommCase& b) { return a.timeout > b.timeout; });
  return cases;
}

}  // namespace trireme::testing
