// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/comm/start/run.h"
#include "trireme/comm/wrappers/forwarding_backend.h"
#include "trireme/comm/wrappers/tuned_backend.h"

namespace tuned_test {

using namespace trireme;

namespace {

// `small` is the fastest up to some kilobytes, `large` above.
TuningTable table_of(const HostShape& shape, int ranks, Algorithm small, Algorithm large) {
  TuningTable table(shape);
  for (size_t bytes : {size_t{64}, size_t{1} << 20}) {
    const Algorithm best = bytes == 64 ? small : large;
    for (Algorithm a : kAlgorithms)
      table.add({"all_reduce", ranks, bytes, a, a == best ? 1e-6 : 1e-3});
  }
  return table;
}

struct Counter final : trireme::detail::ForwardingBackend {
  using ForwardingBackend::ForwardingBackend;
  trireme::detail::Token post(const trireme::detail::Call& call) override {
    own += call.op == Collective::all_reduce;
    sends += call.op == Collective::send;
    if (call.op == Collective::send) sent_bytes += call.input->nbytes();
    return inner_->post(call);
  }
  /// The backend's own all_reduce, complete.
  void reduce(const at::Tensor& t, ReduceOp op) {
    wait(post({.op = Collective::all_reduce,
               .reduction = op,
               .input = &t,
               .output = &t,
               .site = CallSite::here()}),
         std::chrono::seconds(30));
  }
  int own = 0, sends = 0;
  size_t sent_bytes = 0;
};

/// A group of n thread ranks whose all_reduce goes by such a table.
void run_tuned(int n, Algorithm small, Algorithm large,
               const std::function<void(Group, Counter&)>& body) {
  run_threads(n, [&](Group plain) {
    // Of the group's backend, which outlives both.
    auto counter = std::make_shared<Counter>(
        std::shared_ptr<trireme::detail::Backend>(std::shared_ptr<void>(), plain.get()));
    const TuningTable table = table_of({"any", 1, n, "local"}, n, small, large);
    body(Group(trireme::detail::tuned_backend(counter, table, {})), *counter);
  });
}

void must(bool ok, const char* what) { trireme::check<Error>(ok, "{}", what); }

at::Tensor mine(const Group& g, int64_t count) {
  return at::arange(count, at::kFloat) + 100 * (g.rank() + 1);
}
at::Tensor sum(const Group& g, int64_t count) {
  const int n = g.size();
  return at::arange(count, at::kFloat) * n + 100 * (n * (n + 1) / 2);
}

}  // namespace

TEST(comm_tuned, all_reduce_goes_by_the_fastest_algorithm_at_its_size) {
  run_tuned(4, Algorithm::direct, Algorithm::halving_doubling, [](Group g, Counter& c) {
    at::Tensor small = mine(g, 16), large = mine(g, 1 << 18);
    g.all_reduce(small).wait();
    must(c.own == 1 && c.sends == 0, "the backend's own was the fastest for 64 bytes");
    g.all_reduce(large).wait();
    must(c.own == 1 && c.sends == 4, "halving and doubling of 4 sends 4 times");
    must(c.sent_bytes == 6u * (1 << 18), "it sends 2 (n-1)/n");
    must(small.equal(sum(g, 16)) && large.equal(sum(g, 1 << 18)), "not the sum");
  });
}

// Which one was the fastest is a matter of the clock; sums are not.
TEST(comm_tuned, an_algorithm_with_bits_of_its_own_is_never_taken_however_fast_it_was) {
  for (Algorithm fastest : {Algorithm::ring, Algorithm::double_tree})
    run_tuned(4, fastest, fastest, [](Group g, Counter& c) {
      for (int64_t count : {int64_t{5}, int64_t{1} << 18}) {
        at::Tensor t = (at::arange(count, at::kFloat) * 0.37 + g.rank()).sin() * 9;
        at::Tensor want = t.clone();
        g.all_reduce(t).wait();
        c.reduce(want, ReduceOp::sum);
        must(t.equal(want), "other bits than the backend's");
      }
    });
  using trireme::detail::may_serve;
  for (Algorithm a : kAlgorithms)
    for (const char* backend : {"mpi", "nccl", "hybrid"})
      EXPECT_EQ(may_serve(a, backend, {0, 0, 1, 1}), a == Algorithm::direct) << backend;
}

TEST(comm_tuned, calls_under_way_finish_in_any_order_of_waits_beside_those_of_the_backend) {
  for (int n : {2, 3, 5})
    run_tuned(n, Algorithm::tree, Algorithm::halving_doubling, [n](Group g, Counter& c) {
      std::vector<at::Tensor> t;
      std::vector<Work> works;
      for (int64_t count : {1, 1 << 18, 7, 1 << 16}) {
        t.push_back(mine(g, count));
        works.push_back(g.all_reduce(t.back()));
      }
      at::Tensor all = at::empty({n}, at::kInt);
      // The backend's own call, with four of ours before it.
      g.all_gather_into_tensor(all, at::full({1}, g.rank(), at::kInt)).wait();
      must(all.equal(at::arange(n, at::kInt)), "not what was gathered");
      for (size_t i : {3u, 0u, 2u, 1u}) {
        works[i].wait();
        must(works[i].is_completed(), "waited for and not complete");
        must(t[i].equal(sum(g, t[i].numel())), "not the sum");
      }
      must(c.own == 0, "none was the backend's own");
      g.barrier();
    });
}

// Planned calls of the root move while a rank waits in a group made of it.
TEST(comm_tuned, a_group_of_some_ranks_does_not_hold_up_a_planned_call) {
  run_tuned(4, Algorithm::tree, Algorithm::halving_doubling, [](Group g, Counter&) {
    Group pair = g.split(g.rank() / 2);
    at::Tensor t = mine(g, 1 << 18), one = at::ones({1 << 18});
    Work work = g.all_reduce(t);
    if (g.rank() != 0) work.wait();
    pair.all_reduce(one).wait();
    work.wait();
    must(one.eq(2).all().item<bool>() && t.equal(sum(g, 1 << 18)), "wrong values");
  });
}

TEST(comm_tuned, another_call_of_a_peer_is_named_in_seconds) {
  const auto start = Clock::now();
  std::atomic<int> named{0};
  try {
    run_tuned(2, Algorithm::tree, Algorithm::tree, [&](Group g, Counter&) {
      at::Tensor t = mine(g, 1 << 18);
      try {
        (g.rank() ? g.broadcast(t, 1) : g.all_reduce(t)).wait();
        must(false, "they do not fit together");
      } catch (const Mismatch& e) {
        const std::string text = e.what();
        must(text.find("broadcast") != std::string::npos, e.what());
        must(text.find("ranks wait for each other") != std::string::npos, e.what());
        ++named;
      }
    });
  } catch (const Mismatch&) {
  }
  EXPECT_EQ(named, 2);
  EXPECT_LT(seconds_since(start), 12);
}

// Rank 1 comes to its all_reduce only after rank 0 has sent what it does after posting its own.
TEST(comm_tuned, a_message_is_not_held_up_by_a_call_that_waits_for_its_sender) {
  run_tuned(2, Algorithm::tree, Algorithm::halving_doubling, [](Group g, Counter&) {
    at::Tensor t = mine(g, 1 << 18), note = at::zeros({1 << 18});
    if (g.rank() == 0) {
      Work work = g.all_reduce(t);
      g.recv(note, 1).wait();
      g.send(note, 1).wait();
      work.wait();
    } else {
      g.send(note.fill_(7), 0).wait();
      g.recv(note.zero_(), 0).wait();
      g.all_reduce(t).wait();
    }
    must(note.eq(7).all().item<bool>() && t.equal(sum(g, 1 << 18)), "wrong values");
  });
}

TEST(comm_tuned, ops_halves_and_strided_tensors_give_what_the_backend_gives) {
  run_tuned(4, Algorithm::halving_doubling, Algorithm::tree, [](Group g, Counter& c) {
    for (int64_t count : {int64_t{5}, int64_t{1} << 18}) {
      for (auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kInt})
        for (auto op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max}) {
          if (type == at::kInt && op == ReduceOp::avg) continue;
          at::Tensor t = ((at::arange(count, at::kFloat) * 0.37 + g.rank()).sin() * 9).to(type);
          at::Tensor want = t.clone();
          g.all_reduce(t, op).wait();
          const int before = c.own;
          c.reduce(want, op);
          must(before == 0 || c.own == before + 1, "by the wrong way");
          must(t.equal(want), "other bits than the backend's");
        }
      c.own = 0;
      at::Tensor wide = mine(g, 2 * count), half = wide.view({-1, 2}).select(1, 1);
      g.all_reduce(half).wait();
      must(half.equal(sum(g, 2 * count).view({-1, 2}).select(1, 1)), "not the sum of the strided");
      must(wide.view({-1, 2}).select(1, 0).equal(mine(g, 2 * count).view({-1, 2}).select(1, 0)),
           "wrote between the strides");
    }
  });
}

TEST(comm_tuned, a_rank_that_is_gone_is_named_and_the_group_is_finished) {
  run_threads(2, [](Group plain) {
    if (plain.rank() == 1) return;  // leaves
    const TuningTable table =
        table_of({"any", 1, 2, "local"}, 2, Algorithm::tree, Algorithm::halving_doubling);
    Group g(trireme::detail::tuned_backend(
        std::shared_ptr<trireme::detail::Backend>(std::shared_ptr<void>(), plain.get()), table,
        {}));
    for (int i = 0; i < 2; ++i) try {
        g.all_reduce(at::ones({8})).wait();
        fail<Error>("rank 1 is not there");
      } catch (const Mismatch& e) {  // it left in order
        must(std::string(e.what()).find("rank 1") != std::string::npos, e.what());
      }
  });
}

namespace {
// A group of the engine itself forwards nothing.
bool decorated(const Group& g) {
  return dynamic_cast<trireme::detail::ForwardingBackend*>(g.get()) != nullptr;
}

struct Cache {
  PrivateFolder folder;
  SpawnOptions options(const std::string& backend) {
    SpawnOptions o;
    o.backend = backend;
    o.args = {"--gtest_filter=" + std::string("comm_tuned.") +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()};
    o.env = [path = folder.path()](int) {
      return std::vector<std::string>{"XDG_CACHE_HOME=" + path};
    };
    return o;
  }
  /// All_reduces go by `best` from now on, in groups of 2 ranks here.
  void says(Algorithm best) {
    const HostShape shape = HostShape::here(2, "local");
    table_of(shape, 2, best, best).save(file(shape));
  }
  std::string file(const HostShape& shape) {
    return TuningTable::path_for(shape, [&](const char* name) {
      return std::string(name) == "XDG_CACHE_HOME" ? folder.path().c_str() : nullptr;
    });
  }
};
}  // namespace

TEST(comm_tuned, a_group_takes_the_table_of_its_host) {
  Cache cache;
  cache.says(Algorithm::tree);
  spawn(
      2,
      [](Group g) {
        must(decorated(g), "the table was not taken");
        at::Tensor t = mine(g, 1000);
        g.all_reduce(t).wait();
        must(t.equal(sum(g, 1000)), "not the sum");
      },
      cache.options("local"));
}

TEST(comm_tuned, a_table_in_which_the_backend_always_won_costs_nothing) {
  Cache cache;
  cache.says(Algorithm::direct);
  spawn(
      2, [](Group g) { must(!decorated(g), "decorated"); }, cache.options("local"));
}

TEST(comm_tuned, a_table_that_cannot_be_read_is_named_on_every_rank) {
  Cache cache;
  const std::string file = cache.file(HostShape::here(2, "gloo"));
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  write_file_atomic(file, "{\"magic\": \"other\"}");
  try {
    spawn(
        2, [](Group) {}, cache.options("gloo"));
    FAIL() << "the table is none of ours";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 0's tuning table"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("not a tuning table of Trireme"), std::string::npos)
        << e.what();
  }
}

}  // namespace tuned_test
