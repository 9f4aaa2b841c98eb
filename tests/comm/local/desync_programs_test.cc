// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/comm/local/groups.h"

namespace desync_programs_test {

// One small wrong program for each way in which ranks can call different things. All ranks must
// raise, soon, with both calls named.
using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

thread_local std::vector<unsigned char> memory(size_t{8} << 20);

struct Of {  // what a call says, with memory for it
  DType dtype = DType::f32;
  size_t count = 100;
  int root = 0;
  ReduceOp red = ReduceOp::sum;
  int tag = 0;
};

Call call(Collective op, Of of = {}, CallSite site = CallSite::here()) {
  Call c{.op = op,
         .dtype = of.dtype,
         .red = of.red,
         .root = of.root,
         .tag = of.tag,
         .count = of.count,
         .site = site};
  unsigned char* low = memory.data();
  const bool in_place =
      op == Collective::all_reduce || op == Collective::broadcast || op == Collective::reduce;
  c.in = low;
  c.out = in_place ? low : low + memory.size() / 2;
  return c;
}

constexpr auto all_reduce = Collective::all_reduce, broadcast = Collective::broadcast,
               barrier = Collective::barrier, send = Collective::send, recv = Collective::recv;

struct Program {
  const char* name;
  int ranks;
  WorldBody body;
  std::vector<const char*> named;  // every rank's text has these
  double within = 2;               // seconds; orders and groups 4
};

void differ(World& w, Collective a, Of of_a, Collective b, Of of_b) {  // the last rank makes call b
  w.all->run(call(barrier));
  w.all->run(w.rank() == w.size() - 1 ? call(b, of_b) : call(a, of_a));
}

const std::vector<Program>& programs() {
  static const std::vector<Program> list{
      // ---- another call under the same number
      {"operation",
       3,
       [](World& w) { differ(w, all_reduce, {}, broadcast, {}); },
       {"call 2: rank ", "called all_reduce(float32[100], sum)", "rank 2 called broadcast("}},
      {"operation_of_another_shape",
       2,
       [](World& w) { differ(w, Collective::all_gather, {}, Collective::reduce_scatter, {}); },
       {"rank 0 called all_gather(", "rank 1 called reduce_scatter("}},
      {"barrier_against_data",
       2,
       [](World& w) { differ(w, all_reduce, {}, barrier, {}); },
       {"rank 0 called all_reduce(", "rank 1 called barrier"}},
      {"gather_against_scatter",
       2,
       [](World& w) { differ(w, Collective::gather, {}, Collective::scatter, {}); },
       {"rank 0 called gather(", "rank 1 called scatter("}},
      {"dtype",
       2,
       [](World& w) { differ(w, all_reduce, {}, all_reduce, {.dtype = DType::f64}); },
       {"rank 0 called all_reduce(float32[100]", "rank 1 called all_reduce(float64[100]"}},
      {"dtype_of_the_same_size",
       4,
       [](World& w) { differ(w, all_reduce, {}, all_reduce, {.dtype = DType::i32}); },
       {"float32[100]", "rank 3 called all_reduce(int32[100]"}},
      {"half_types",
       2,
       [](World& w) {
         differ(w, broadcast, {.dtype = DType::f16}, broadcast, {.dtype = DType::bf16});
       },
       {"float16[100]", "bfloat16[100]"}},
      {"count",
       2,
       [](World& w) { differ(w, all_reduce, {}, all_reduce, {.count = 99}); },
       {"float32[100]", "float32[99]"}},
      {"count_of_nothing",
       2,
       [](World& w) { differ(w, all_reduce, {}, all_reduce, {.count = 0}); },
       {"float32[100]", "float32[0]"}},
      {"count_of_large_buffers",
       2,
       [](World& w) { differ(w, all_reduce, {.count = 900000}, all_reduce, {.count = 900001}); },
       {"float32[900000]", "float32[900001]"}},
      {"count_of_all_gather",
       3,
       [](World& w) {
         differ(w, Collective::all_gather, {}, Collective::all_gather, {.count = 101});
       },
       {"all_gather(float32[100])", "rank 2 called all_gather(float32[101])"}},
      {"count_of_reduce_scatter",
       2,
       [](World& w) {
         differ(w, Collective::reduce_scatter, {}, Collective::reduce_scatter, {.count = 50});
       },
       {"reduce_scatter(float32[100]", "reduce_scatter(float32[50]"}},
      {"small_against_large",
       2,
       [](World& w) { differ(w, all_reduce, {.count = 4}, all_reduce, {.count = 500000}); },
       {"float32[4]", "float32[500000]"}},
      {"root_of_broadcast",
       3,
       [](World& w) { differ(w, broadcast, {}, broadcast, {.root = 2}); },
       {"root 0", "root 2"}},
      {"root_of_reduce",
       2,
       [](World& w) { differ(w, Collective::reduce, {}, Collective::reduce, {.root = 1}); },
       {"reduce(float32[100], sum, root 0)", "reduce(float32[100], sum, root 1)"}},
      {"root_of_gather",
       2,
       [](World& w) { differ(w, Collective::gather, {}, Collective::gather, {.root = 1}); },
       {"gather(float32[100], root 0)", "gather(float32[100], root 1)"}},
      {"root_of_scatter",
       2,
       [](World& w) { differ(w, Collective::scatter, {}, Collective::scatter, {.root = 1}); },
       {"scatter(float32[100], root 0)", "scatter(float32[100], root 1)"}},
      {"reduction",
       2,
       [](World& w) { differ(w, all_reduce, {}, all_reduce, {.red = ReduceOp::max}); },
       {"float32[100], sum)", "float32[100], max)"}},
      {"reduction_of_reduce_scatter",
       2,
       [](World& w) {
         differ(w, Collective::reduce_scatter, {}, Collective::reduce_scatter,
                {.red = ReduceOp::avg});
       },
       {"float32[100], sum)", "float32[100], avg)"}},
      {"order_in_one_group",
       2,
       [](World& w) {
         const Call a = call(all_reduce, {.count = 10}), b = call(all_reduce, {.count = 20});
         w.all->run(w.rank() ? b : a);
         w.all->run(w.rank() ? a : b);
       },
       {"call 1: rank 0", "float32[10]", "float32[20]"}},
      {"missing_call",
       3,
       [](World& w) {
         if (w.rank() != 1) w.all->run(call(all_reduce));
         w.all->run(call(broadcast));
         w.all->run(call(barrier));
       },
       {"call 1: rank ", "called all_reduce(", "rank 1 called broadcast("}},
      {"extra_call",
       2,
       [](World& w) {
         for (int i = 0; i < (w.rank() ? 4 : 3); ++i) w.all->run(call(all_reduce));
         w.all->run(call(barrier));
       },
       {"call 4: rank 0 called barrier", "rank 1 called all_reduce("}},
      {"one_step_more_than_the_others",
       2,
       [](World& w) {
         for (int i = 0; i < (w.rank() ? 3 : 2); ++i) w.all->run(call(all_reduce));
         if (w.rank() == 0) {
           w.all->leave();
           throw Error("left after call 2; rank 1 waits in call 3, all_reduce(");
         }
       },
       {"left after call 2", "call 3, all_reduce("}},
      {"all_to_all_parts",
       2,
       [](World& w) {
         const uint64_t three[] = {3, 3}, four[] = {4, 4};
         Call c = call(Collective::all_to_all, {.count = 0});
         c.send_counts = three;
         c.recv_counts = w.rank() ? four : three;
         w.all->run(c);
       },
       {"rank 0 sends 3 elements to rank 1", "rank 1 expects 4"}},
      {"a_rank_that_throws",
       3,
       [](World& w) {
         w.all->run(call(all_reduce));
         if (w.rank() == 1) throw NumericError("loss is nan");
         w.all->run(call(all_reduce));
       },
       {"loss is nan"}},
      // ---- point to point
      {"count_of_a_message",
       2,
       [](World& w) {
         w.all->run(w.rank() ? call(recv, {.count = 4}) : call(send, {.count = 3, .root = 1}));
         w.all->run(call(barrier));
       },
       {"rank 0 sent float32[3] with tag 0 to rank 1", "called recv(float32[4], from rank 0)"}},
      {"dtype_of_a_large_message",
       2,
       [](World& w) {
         w.all->run(w.rank() ? call(recv, {.dtype = DType::i32, .count = 500000})
                             : call(send, {.count = 500000, .root = 1}));
         w.all->run(call(barrier));
       },
       {"rank 0 sent float32[500000]", "called recv(int32[500000], from rank 0)"}},
      // ---- no common slot: orders and groups
      {"tag_of_a_message",
       2,
       [](World& w) {
         w.all->run(w.rank() ? call(recv, {.tag = 8}) : call(send, {.root = 1, .tag = 7}));
         w.all->run(call(barrier));
       },
       {"rank 0 is in call 1 of group world, barrier at ", "and needs rank 1",
        "rank 1 is in recv(float32[100], from rank 0) at ", "with tag 8", "and needs rank 0"},
       4},
      {"both_receive_first",
       2,
       [](World& w) {
         w.all->run(call(recv, {.root = 1 - w.rank()}));
         w.all->run(call(send, {.root = 1 - w.rank()}));
       },
       {"rank 0 is in recv(float32[100], from rank 1)",
        "rank 1 is in recv(float32[100], from rank 0)"},
       4},
      {"large_message_that_nobody_takes",
       2,
       [](World& w) {
         if (w.rank() == 0) w.all->run(call(send, {.count = 500000, .root = 1}));
         w.all->run(call(barrier));
       },
       {"rank 0 is in send(float32[500000], to rank 1)", "rank 1 is in call 1 of group world"},
       4},
      {"ring_of_receives",
       3,
       [](World& w) { w.all->run(call(recv, {.root = (w.rank() + 1) % 3})); },
       {"rank 0 is in recv(", "and needs rank 1; rank 1 is in recv(", "and needs rank 2; rank 2"},
       4},
      {"order_of_two_groups",
       2,
       [](World& w) {
         Engine &a = w.group("world/1", {0, 1}), &b = w.group("world/2", {0, 1});
         (w.rank() ? b : a).run(call(all_reduce));
         (w.rank() ? a : b).run(call(broadcast));
       },
       {"rank 0 is in call 1 of group world/1, all_reduce(", "rank 1 is in call 1 of group world/2",
        "desync_programs_test.cc:"},
       4},
      {"wrong_group",
       3,
       [](World& w) {
         if (w.rank() == 2) {
           w.all->run(call(all_reduce));
           return;
         }
         Engine& pair = w.group("world/1", {0, 1});
         (w.rank() ? *w.all : pair).run(call(all_reduce));  // rank 1 means the pair
         w.all->run(call(all_reduce));
       },
       {"rank 0 is in call 1 of group world/1", "rank 1 is in call 1 of group world,"},
       4},
      {"circle_over_three_groups",
       3,
       [](World& w) {
         std::vector<Engine*> mine;  // each rank is in two of the three
         for (int g = 0; g < 3; ++g) {
           std::vector<int> members{g, (g + 1) % 3};
           std::sort(members.begin(), members.end());
           if (std::count(members.begin(), members.end(), w.rank()))
             mine.push_back(&w.group("world/" + std::to_string(g), members));
         }
         // Ranks 0, 1, 2 begin with groups 0, 1, 2 and go on with 2, 0, 1.
         const bool turned = w.rank() != 0;
         mine[turned ? 1 : 0]->run(call(all_reduce));
         mine[turned ? 0 : 1]->run(call(all_reduce));
       },
       {"rank 0 is in call 1 of group world/0", "group world/1", "group world/2"},
       4},
      {"message_inside_a_collective",
       2,
       [](World& w) {
         Engine& pair = w.group("world/1", {0, 1});
         if (w.rank() == 0) {
           w.all->run(call(all_reduce));
           pair.run(call(send, {.root = 1}));
         } else {
           pair.run(call(recv, {.root = 0}));
           w.all->run(call(all_reduce));
         }
       },
       {"rank 0 is in call 1 of group world, all_reduce(", "rank 1 is in recv(",
        "of group world/1"},
       4},
  };
  return list;
}

void judge(const Program& p, const std::vector<Ended>& ended, const char* how) {
  for (size_t r = 0; r < ended.size(); ++r) {
    const std::string& what = ended[r].what;
    const std::string where = fmt::format("{} ({}), rank {}: '{}'", p.name, how, r, what);
    EXPECT_FALSE(what.empty()) << where;
    EXPECT_LT(ended[r].after, p.within) << where;
    // A rank outside a circle may only learn why another one gave up. One that throws for a reason
    // of its own is PeerLost to the others.
    if (std::string(p.name) != "a_rank_that_throws" &&
        std::string(p.name) != "one_step_more_than_the_others") {
      EXPECT_NE(what.find("Mismatch: "), std::string::npos) << where;
    }
    for (const char* part : p.named)
      EXPECT_NE(what.find(part), std::string::npos) << where << "\nlacks '" << part << "'";
  }
}

}  // namespace

TEST(comm_local_desync_programs, there_is_one_for_each_of_more_than_thirty_kinds) {
  EXPECT_GE(programs().size(), 30u);
}

TEST(comm_local_desync_programs, every_wrong_call_raises_on_all_threads_and_names_both) {
  for (const Program& p : programs())
    if (p.within <= 2) judge(p, worlds_as_threads(p.ranks, p.body), "threads");
}

// Side by side: each takes more than a second to be sure.
TEST(comm_local_desync_programs, every_wrong_order_raises_on_all_threads_and_names_both) {
  std::vector<std::thread> runs;
  for (const Program& p : programs())
    if (p.within > 2)
      runs.emplace_back([&p] { judge(p, worlds_as_threads(p.ranks, p.body), "threads"); });
  for (auto& t : runs) t.join();
}

TEST(comm_local_desync_programs, wrong_calls_raise_between_processes_too) {
  for (const Program& p : programs())
    for (const char* name : {"operation", "dtype", "count_of_large_buffers", "root_of_reduce",
                             "missing_call", "count_of_a_message", "order_of_two_groups"})
      if (std::string(p.name) == name) judge(p, worlds_as_processes(p.ranks, p.body), "processes");
}

}  // namespace desync_programs_test
