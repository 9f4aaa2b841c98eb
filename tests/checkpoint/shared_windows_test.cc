// SPDX-License-Identifier: Apache-2.0
// What all ranks of a host want is read by one of them and passed on to the others.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/checkpoint/file_faults.h"
#include "tests/checkpoint/rank_processes.h"
#include "tests/support/ranks.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/step_file.h"
#include "trireme/comm/start/run.h"

namespace shared_windows_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;

namespace {

constexpr int64_t kBlock = CheckpointIndex::kBlock / 4;  // floats
constexpr int64_t kAlike = 4;                            // tensors that all ranks have

at::Tensor numbers(int64_t count, int64_t from) {
  return (at::arange(count, at::kInt) + from).remainder(1 << 20).to(at::kFloat);
}

/// Tensors of several windows each that all ranks hold alike, with small ones between them, and one
/// of which each rank has its share.
struct Held {
  Held(int rank, int world, bool with_shares) {
    for (int64_t i = 0; i < kAlike; ++i) {
      alike.push_back(numbers(9 * kBlock + 77 * i, 1000 * i));
      small.push_back(numbers(7, i));
    }
    if (!with_shares) return;
    const int64_t n = 24 * kBlock;
    own =
        Slice::range("optim.own", {n}, n * rank / world, n * (rank + 1) / world - n * rank / world);
    share = numbers(n, 5).narrow(0, own.flat->begin, own.flat->count).clone();
  }
  void show(StateVisitor& v, int64_t i) {
    v.tensor(fmt::format("model.large.{}", i), alike[static_cast<size_t>(i)]);
    v.tensor(fmt::format("model.small.{}", i), small[static_cast<size_t>(i)]);
  }
  void operator()(StateVisitor& v) {
    for (int64_t i = 0; i < kAlike; ++i) show(v, i);
    if (share.defined()) v.tensor(own, share);
  }
  void forget() {
    for (std::vector<at::Tensor>* some : {&alike, &small})
      for (at::Tensor& t : *some) t.fill_(-1);
    if (share.defined()) share.fill_(-1);
  }
  /// Each number is that of forget() or the one in `other`.
  bool is_old_or(const Held& other) const {
    for (size_t i = 0; i < alike.size(); ++i)
      if (!(alike[i].eq(-1) | alike[i].eq(other.alike[i])).all().item<bool>()) return false;
    return true;
  }
  bool equals(const Held& other) const {
    for (size_t i = 0; i < alike.size(); ++i)
      if (!alike[i].equal(other.alike[i]) || !small[i].equal(other.small[i])) return false;
    return !share.defined() || share.equal(other.share);
  }
  std::vector<at::Tensor> alike, small;
  Slice own;
  at::Tensor share;
};

void save(const std::string& run, int world, bool with_shares) {
  run_threads(world, [&](Group g) {
    Held held(g.rank(), world, with_shares);
    save_sharded_step(run, 1, std::ref(held), g, {.layout = "some"});
  });
}

int64_t bytes_of(const std::string& folder) {
  int64_t size = 0;
  for (const auto& [name, file] : read_step_index(folder).files)
    size += static_cast<int64_t>(file.size);
  return size;
}

/// Bytes that this process has read by any call.
int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string word;
  int64_t n = 0;
  io >> word >> n;
  return n;
}

}  // namespace

TEST(checkpoint_shared_windows, what_ranks_hold_alike_and_what_each_has_are_read_once_by_one_rank) {
  for (const bool with_shares : {false, true})
    for (const int world : {2, 3, 5}) {
      PrivateFolder run;
      save(run.path(), world, with_shares);
      const int64_t before = bytes_read();
      run_threads(world, [&](Group g) {
        Held held(g.rank(), world, with_shares);
        held.forget();
        load_step(run.path(), std::ref(held), {.group = g});
        EXPECT_TRUE(held.equals(Held(g.rank(), world, with_shares))) << g.rank();
      });
      const auto moved = static_cast<double>(bytes_read() - before);
      EXPECT_LT(moved, 1.2 * static_cast<double>(bytes_of(run / "step-00000001")))
          << world << with_shares;
    }
}

TEST(checkpoint_shared_windows, processes_fill_the_same_bits) {
  PrivateFolder run;
  save(run.path(), 3, true);
  const auto outcomes = outcomes_by_processes(3, [&](Group g) {
    Held held(g.rank(), 3, true);
    held.forget();
    load_step(run.path(), std::ref(held), {.group = g});
    check<Error>(held.equals(Held(g.rank(), 3, true)), "other values were loaded");
  });
  EXPECT_EQ(outcomes, (std::vector<std::string>{"", "", ""}));
}

// A tensor whose memory is not filled in place, and another order.
TEST(checkpoint_shared_windows, ranks_that_take_other_windows_load_the_same_values) {
  PrivateFolder run;
  save(run.path(), 2, false);
  for (const bool other_order : {false, true})
    run_threads(2, [&](Group g) {
      Held held(g.rank(), 2, false);
      const bool other = g.rank() == 1;
      if (other && !other_order) held.alike[2] = held.alike[2].to(at::kDouble);
      held.forget();
      load_step(run.path(),
                [&](StateVisitor& v) {
                  for (int64_t i = 0; i < kAlike; ++i)
                    held.show(v, other && other_order ? kAlike - 1 - i : i);
                },
                {.group = g, .convert = true});
      if (other && !other_order) held.alike[2] = held.alike[2].to(at::kFloat);
      EXPECT_TRUE(held.equals(Held(g.rank(), 2, false))) << g.rank() << other_order;
    });
}

// The walk itself calls the group between tensors, as ZeRO does when it publishes what it loaded.
TEST(checkpoint_shared_windows, a_read_that_fails_on_one_rank_is_told_by_all_whose_walks_go_on) {
  PrivateFolder run, logs;
  save(run.path(), 3, true);
  const auto body = [&](Group& g) {
    Held held(g.rank(), 3, true);
    held.forget();
    int64_t calls = 0;
    const std::string said = outcome_of([&] {
      load_step(run.path(),
                [&](StateVisitor& v) {
                  for (int64_t i = 0; i < kAlike; ++i) {
                    held.show(v, i);
                    if (!v.loading()) continue;
                    at::Tensor one = at::ones({3000});
                    g.all_reduce(one).wait();
                    calls += one[0].item<double>() == 3;
                  }
                  v.tensor(held.own, held.share);
                },
                {.group = g});
    });
    check<Error>(calls == kAlike || calls == 0, "{} calls in the walk", calls);
    check<Error>(held.is_old_or(Held(g.rank(), 3, true)), "bytes from nowhere");
    at::Tensor after = at::ones({1});
    g.all_reduce(after).wait();  // the group is whole
    check<Error>(after.item<double>() == 3, "the group adds {}", after.item<double>());
    return said;
  };
  size_t told = 0, told_of_a_part = 0;
  for (const int rank : {0, 2}) {
    const std::string log = logs / std::to_string(rank);
    const auto outcomes = outcomes_by_processes(3, [&](Group g) {
      set_file_faults(fmt::format("rank={},only={},count={}", rank, run.path(), log));
      check<Error>(body(g).empty(), "a load without faults fails");
      set_file_faults("");
    });
    ASSERT_EQ(outcomes, (std::vector<std::string>{"", "", ""}));
    std::vector<int64_t> reads;
    for (const LoggedCall& call : read_file_log(log))
      if (call.moves_bytes()) reads.push_back(call.number);
    ASSERT_GT(reads.size(), 8u);
    for (const size_t at : {reads.size() / 2, reads.size() - 2, reads.size() - 1}) {
      const auto each = outcomes_by_processes(3, [&](Group g) {
        set_file_faults(fmt::format("rank={},only={},{}+:EIO", rank, run.path(), reads[at]));
        const std::string said = body(g);
        set_file_faults("");
        if (!said.empty()) throw Error(said);
      });
      for (int r = 0; r < 3; ++r) {
        const std::string& said = each[static_cast<size_t>(r)];
        EXPECT_TRUE(contains(said, "Input/output error") && contains(said, run.path())) << said;
        EXPECT_EQ(contains(said, fmt::format("rank {}:", rank)), r != rank) << said;
        ++told;
        told_of_a_part += contains(said, "may be part old and part new now");
      }
    }
  }
  EXPECT_EQ(told, 18u);
  EXPECT_GT(told_of_a_part, 0u);
}

TEST(checkpoint_shared_windows, a_flipped_bit_is_found_by_the_one_rank_that_reads_it) {
  PrivateFolder run;
  save(run.path(), 3, false);
  const std::string path = run / "step-00000001/model.safetensors", good = slurp(path);
  for (size_t at = good.size() - 1000, n = 0; n < 8; at -= 4'500'000, ++n) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 64);
    spill(path, bad);
    run_threads(3, [&](Group g) {
      Held held(g.rank(), 3, false);
      const std::string said =
          message_of<Corrupt>([&] { load_step(run.path(), std::ref(held), {.group = g}); });
      EXPECT_TRUE(contains(said, path) && contains(said, "large.")) << at << ": " << said;
      at::Tensor after = at::ones({1});
      g.all_reduce(after).wait();
      EXPECT_EQ(after.item<double>(), 3);
    });
  }
}

TEST(checkpoint_shared_windows, a_walk_that_throws_on_one_rank_is_an_error_of_all) {
  PrivateFolder run;
  save(run.path(), 3, false);
  run_threads(3, [&](Group g) {
    Held held(g.rank(), 3, false);
    const std::string said = message_of<Error>([&] {
      load_step(run.path(),
                [&](StateVisitor& v) {
                  for (int64_t i = 0; i < kAlike; ++i) {
                    if (g.rank() == 1 && i == 2 && v.loading()) throw UsageError("a walk's own");
                    held.show(v, i);
                  }
                },
                {.group = g});
    });
    EXPECT_TRUE(contains(said, "a walk's own")) << said;
    EXPECT_EQ(contains(said, "rank 1:"), g.rank() != 1) << said;
    g.barrier();
  });
}

TEST(checkpoint_shared_windows, a_walk_that_ends_early_on_one_rank_is_named_and_the_group_stays) {
  PrivateFolder run;
  save(run.path(), 3, false);
  run_threads(3, [&](Group g) {
    Held held(g.rank(), 3, false);
    const std::string said = message_of<UsageError>([&] {
      load_step(run.path(),
                [&](StateVisitor& v) {
                  const bool ends = g.rank() == 1 && v.loading();
                  for (int64_t i = 0; i < (ends ? 2 : kAlike); ++i) held.show(v, i);
                },
                {.group = g});
    });
    EXPECT_TRUE(contains(said, "'model.large.2' changed between two walks")) << said;
    g.barrier();
  });
}

// As with a tied weight that is the first of one stage and the last of another.
TEST(checkpoint_shared_windows, a_rank_with_much_of_its_own_before_does_not_keep_others_waiting) {
  PrivateFolder run;
  const int64_t n = 17 * kBlock * 4;  // 68 MiB
  const auto walk = [&](const at::Tensor& tied, const at::Tensor& own, Group& g, StateVisitor& v) {
    if (g.rank() == 0) v.tensor("model.tied", tied);
    if (v.loading()) g.barrier();  // a Mismatch with a rank that broadcasts
    v.tensor(Slice::range("model.own", {2 * n}, g.rank() * n, n), own);
    if (g.rank() == 1) v.tensor("model.tied", tied);
  };
  run_threads(2, [&](Group g) {
    const at::Tensor tied = numbers(n, 3), own = numbers(n, g.rank());
    save_sharded_step(run.path(), 1, [&](StateVisitor& v) { walk(tied, own, g, v); }, g,
                      {.layout = "stages"});
  });
  run_threads(2, [&](Group g) {
    const at::Tensor tied = at::zeros({n}), own = at::zeros({n});
    load_step(run.path(), [&](StateVisitor& v) { walk(tied, own, g, v); }, {.group = g});
    EXPECT_TRUE(tied.equal(numbers(n, 3)) && own.equal(numbers(n, g.rank()))) << g.rank();
  });
}

TEST(checkpoint_shared_windows, the_death_of_a_rank_in_its_walk_is_named_by_the_others) {
  PrivateFolder run;
  save(run.path(), 3, false);
  const auto outcomes = outcomes_by_processes(3, [&](Group g) {
    Held held(g.rank(), 3, false);
    load_step(run.path(),
              [&](StateVisitor& v) {
                for (int64_t i = 0; i < kAlike; ++i) {
                  if (g.rank() == 2 && i == 1 && v.loading()) ::raise(SIGKILL);
                  held.show(v, i);
                }
              },
              {.group = g});
  });
  EXPECT_EQ(outcomes[2], "signal 9");
  for (const int r : {0, 1})
    EXPECT_TRUE(outcomes[static_cast<size_t>(r)].starts_with("PeerLost: ") &&
                contains(outcomes[static_cast<size_t>(r)], "rank 2"))
        << outcomes[static_cast<size_t>(r)];
}

}  // namespace shared_windows_test
