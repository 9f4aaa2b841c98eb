// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/forked.h"
#include "trireme/comm/group.h"

namespace trireme::testing {

/// Every call of a Group in a child.
inline std::string every_call_is_refused(Group& g, Work& under_way) {
  const int peer = (g.rank() + 1) % g.size();
  at::Tensor t = at::ones({8}), many = at::ones({8 * g.size()});
  std::vector<at::Tensor> parts;
  for (int r = 0; r < g.size(); ++r) parts.push_back(at::ones({8}));
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"all_reduce", [&] { g.all_reduce(t).wait(); }},
      {"all_reduce_coalesced", [&] { g.all_reduce_coalesced({t}).wait(); }},
      {"broadcast", [&] { g.broadcast(t, 0).wait(); }},
      {"reduce", [&] { g.reduce(t, 0).wait(); }},
      {"all_gather", [&] { g.all_gather(parts, t).wait(); }},
      {"all_gather_into_tensor", [&] { g.all_gather_into_tensor(many, t).wait(); }},
      {"reduce_scatter", [&] { g.reduce_scatter(t, parts).wait(); }},
      {"reduce_scatter_tensor", [&] { g.reduce_scatter_tensor(t, many).wait(); }},
      {"gather", [&] { g.gather(g.rank() ? std::vector<at::Tensor>{} : parts, t, 0).wait(); }},
      {"scatter", [&] { g.scatter(t, g.rank() ? std::vector<at::Tensor>{} : parts, 0).wait(); }},
      {"all_to_all", [&] { g.all_to_all(parts, parts).wait(); }},
      {"all_to_all_single", [&] { g.all_to_all_single(many, many).wait(); }},
      {"send", [&] { g.send(t, peer).wait(); }},
      {"recv", [&] { g.recv(t, peer).wait(); }},
      {"batch_isend_irecv",
       [&] {
         g.batch_isend_irecv({{P2POp::isend, t, peer}});
       }},
      {"barrier", [&] { g.barrier(); }},
      {"monitored_barrier", [&] { g.monitored_barrier(std::chrono::seconds(1)); }},
      {"split", [&] { g.split(0); }},
      {"new_group", [&] { g.new_group({0}); }},
      {"empty", [&] { g.empty({8}); }},
      {"shared", [&] { g.shared({8}, at::kFloat, 0); }},
      {"progress", [&] { g.progress(); }},
      {"shared_bytes", [&] { g.shared_bytes(); }},
      {"Work::wait", [&] { under_way.wait(); }},
      {"Work::is_completed", [&] { under_way.is_completed(); }},
  };
  std::string wrong;
  for (auto& [name, call] : calls) wrong += refused_in_child(name, call);
  return wrong;
}

/// Each rank forks children that call, drop their copies of the group and end in every way, while
/// the ranks go on. Throws where a child was not refused, or a sum is wrong.
inline void expect_children_do_no_harm(Group g) {
  static std::vector<Group> kept;  // exit() destroys it in the child
  kept.push_back(g);
  Group part = g.split(g.rank() % 2);
  auto sum = [&](int i) {
    for (Group* group : {&g, &part}) {
      at::Tensor t = at::full({1000}, group->rank() + i, at::kDouble);
      group->all_reduce(t).wait();
      const int n = group->size();
      check<Error>(t.eq(n * (n - 1) / 2 + n * i).all().item<bool>(), "wrong sum {}", i);
    }
  };
  for (int i = 0; i < 10; ++i) sum(i);
  for (ChildEnd end : {ChildEnd::exit_at_once, ChildEnd::exit}) {
    // Under way for sure: nobody sends before the fork.
    at::Tensor got = at::zeros({64});
    Work under_way = g.irecv(got, (g.rank() + 1) % g.size(), 9);
    ForkedChild child(end, [&] {
      if (g.rank() < 0 || g.size() < 2 || g.name() != "world") return std::string("other facts");
      std::string wrong = every_call_is_refused(g, under_way);
      g.abort("a child has nothing to say");
      g = part = {};
      under_way = {};
      if (end == ChildEnd::exit_at_once) kept.clear();
      return wrong;
    });
    g.barrier();
    g.send(at::ones({64}), (g.rank() + g.size() - 1) % g.size(), 9).wait();
    under_way.wait();
    check<Error>(got.eq(1).all().item<bool>(), "what was under way came wrongly");
    for (int i = 0; i < 50; ++i) sum(i);
    const std::string wrong = child.ended();
    for (int i = 0; i < 50; ++i) sum(i);
    check<Error>(wrong.empty(), "{}", wrong);
  }
  g.barrier();
  kept.clear();
}

}  // namespace trireme::testing
