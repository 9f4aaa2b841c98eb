// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "tests/support/backends.h"
#include "tests/support/ranks.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/comm/fake/traffic.h"
#include "trireme/comm/group.h"
#include "trireme/comm/start/run.h"

namespace permute_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::has;

namespace {

using Permutation = std::vector<int>;

Permutation shift(int n, int by) {
  Permutation to;
  for (int r = 0; r < n; ++r) to.push_back((r + by) % n);
  return to;
}

int source_of(const Permutation& to, int rank) {
  return static_cast<int>(std::find(to.begin(), to.end(), rank) - to.begin());
}

at::Tensor of(int rank, at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return (at::arange(c10::multiply_integers(sizes), at::kLong).remainder(50) + rank)
      .view(sizes)
      .to(dtype);
}

void must(bool ok, const char* what) { trireme::check<Error>(ok, "{}", what); }

ThreadOptions on(const std::string& backend, const std::string& check = "hash") {
  return {20s, backend, check};
}

/// What each of the ranks threw.
std::vector<std::string> outcomes_of(int n, const ThreadOptions& options,
                                     const std::function<void(Group)>& body) {
  std::vector<std::string> outcomes(static_cast<size_t>(n));
  try {
    run_threads(
        n,
        [&](Group g) {
          std::string& mine = outcomes[static_cast<size_t>(g.rank())];
          mine = trireme::testing::outcome_of([&] { body(g); });
          if (!mine.empty()) fail<Error>("{}", mine);
        },
        options);
  } catch (const Error&) {
  }
  return outcomes;
}

}  // namespace

TEST(comm_permute, every_permutation_brings_each_rank_the_tensor_that_was_sent_to_it) {
  for (const char* backend : {"local", "gloo"}) {
    if (!trireme::testing::present(backend)) continue;
    for (int n : {1, 2, 3, 4})
      run_threads(
          n,
          [](Group g) {
            Permutation to(static_cast<size_t>(g.size()));
            std::iota(to.begin(), to.end(), 0);
            do
              for (auto dtype : {at::kFloat, at::kBFloat16, at::kBool, at::kLong})
                for (int64_t count : {int64_t{1}, int64_t{700}, int64_t{100000}}) {
                  at::Tensor in = of(g.rank(), {count}, dtype), out = at::zeros_like(in);
                  g.permute(out, in, to).wait();
                  must(out.equal(of(source_of(to, g.rank()), {count}, dtype)), "another tensor");
                  must(in.equal(of(g.rank(), {count}, dtype)), "the input changed");
                  if (g.size() == 4 && count > 1) break;
                }
            while (std::next_permutation(to.begin(), to.end()));
          },
          on(backend));
  }
}

TEST(comm_permute, calls_under_way_shift_a_ring_step_by_step) {
  run_threads(4, [](Group g) {
    at::Tensor here = of(g.rank(), {64, 64}), there = at::empty_like(here);
    for (int step = 1; step <= g.size(); ++step) {
      Work work = g.permute(there, here, shift(g.size(), 1));
      work.wait();
      std::swap(here, there);
      must(here.equal(of((g.rank() + g.size() - step) % g.size(), {64, 64})),
           "not the neighbour's");
    }
    std::vector<Work> works;
    std::vector<at::Tensor> outs;
    for (int by = 0; by < g.size(); ++by) {
      outs.push_back(at::empty({5}));
      works.push_back(g.permute(outs.back(), of(g.rank(), {5}), shift(g.size(), by)));
    }
    for (Work& w : works) w.wait();
    for (int by = 0; by < g.size(); ++by)
      must(outs[static_cast<size_t>(by)].equal(of((g.rank() + g.size() - by) % g.size(), {5})),
           "not the one from that far");
  });
}

TEST(comm_permute, shapes_may_differ_from_pair_to_pair_and_strides_are_kept) {
  for (const char* backend : {"local", "gloo"}) {
    if (!trireme::testing::present(backend)) continue;
    run_threads(
        3,
        [](Group g) {
          const Permutation to{1, 2, 0};
          const int from = source_of(to, g.rank());
          const auto sizes = [](int r) { return std::vector<int64_t>{4, 3 * r}; };  // none of 0
          at::Tensor wide = at::full({4, 6 * from}, -1, at::kFloat);
          at::Tensor out = from ? wide.view({4, 3 * from, 2}).select(2, 1) : at::empty({4, 0});
          at::Tensor in = of(g.rank(), sizes(g.rank())).t().contiguous().t();
          g.permute(out, in, to).wait();
          must(out.equal(of(from, sizes(from))), "another tensor");
          if (from)
            must(wide.view({4, 3 * from, 2}).select(2, 0).eq(-1).all().item<bool>(),
                 "wrote between the strides");
        },
        on(backend));
  }
}

TEST(comm_permute, what_is_no_permutation_is_refused_by_name_and_leaves_the_group_as_it_was) {
  run_threads(3, [](Group g) {
    at::Tensor in = of(g.rank(), {8}), out = at::empty({8});
    const auto text = [&](const Permutation& to) {
      return trireme::testing::refusal([&] { g.permute(out, in, to); });
    };
    must(text({1, 0}) == "permute: 2 targets for 3 ranks", "a short list");
    must(text({1, 3, 0}) == "permute: rank 1 sends to rank 3, which is not in a group of 3",
         "a rank that is not there");
    must(text({1, -1, 0}) == "permute: rank 1 sends to rank -1, which is not in a group of 3",
         "a negative rank");
    must(text({2, 0, 2}) == "permute: ranks 0 and 2 both send to rank 2; each rank gets one tensor",
         "two for one");
    const auto refused = [&](const at::Tensor& to, const at::Tensor& from, const char* words) {
      must(has(trireme::testing::refusal([&] { g.permute(to, from, {0, 1, 2}); }), words), words);
    };
    refused(at::empty({7}), in, "sends 8 elements to itself, and its output has 7");
    refused(at::empty({8}, at::kInt), in, "permute: output is Int, input is Float");
    refused(in, in, "permute: input and output overlap");
    refused(at::Tensor(), in, "permute: undefined tensor");
    g.permute(out, in, {1, 2, 0}).wait();
    must(out.equal(of((g.rank() + 2) % 3, {8})), "not the neighbour's");
  });
}

TEST(comm_permute, ranks_that_give_different_permutations_are_named) {
  for (const auto& options : {on("local"), on("gloo", "each")}) {
    if (!trireme::testing::present(options.backend)) continue;
    const auto outcomes = outcomes_of(4, options, [](Group g) {
      at::Tensor in = of(g.rank(), {8}), out = at::empty({8});
      g.permute(out, in, g.rank() == 2 ? shift(4, 3) : shift(4, 1)).wait();
    });
    for (const std::string& o : outcomes) {
      EXPECT_EQ(o.rfind("Mismatch: ", 0), 0u) << options.backend << ": " << o;
      EXPECT_TRUE(has(o, "permute(") && has(o, "rank 2")) << options.backend << ": " << o;
      EXPECT_TRUE(has(o, "tests/comm/permute_test.cc:")) << options.backend << ": " << o;
    }
  }
}

TEST(comm_permute, its_ends_agree_in_the_number_of_elements) {
  const auto outcomes = outcomes_of(2, on("local"), [](Group g) {
    at::Tensor in = of(g.rank(), {8}), out = at::empty({g.rank() ? 7 : 8});
    g.permute(out, in, {1, 0}).wait();
  });
  for (const std::string& o : outcomes)
    EXPECT_TRUE(has(o, "Mismatch: ") && has(o, "rank 0 sends 8 elements to rank 1") && has(o, "7"))
        << o;
}

TEST(comm_permute, it_is_another_call_than_an_all_to_all) {
  for (const auto& options : {on("local"), on("gloo", "each")}) {
    if (!trireme::testing::present(options.backend)) continue;
    const auto outcomes = outcomes_of(2, options, [](Group g) {
      at::Tensor in = of(g.rank(), {8}), out = at::empty({8});
      if (g.rank() == 0)
        g.permute(out, in, {0, 1}).wait();
      else
        g.all_to_all_single(out, in, {0, 8}, {0, 8}).wait();
    });
    for (const std::string& o : outcomes)
      EXPECT_TRUE(has(o, "Mismatch: ") && has(o, "permute(") && has(o, "all_to_all("))
          << options.backend << ": " << o;
  }
}

TEST(comm_permute, a_fake_world_counts_it_under_its_name) {
  InitOptions options;
  options.backend = "fake";
  options.rank = 2;
  options.world_size = 8;
  Group g = init_process_group(options);
  at::Tensor in = of(2, {8}), out = at::ones({8});
  g.permute(out, in, shift(8, 1)).wait();
  EXPECT_TRUE(out.eq(0).all().item<bool>());  // nobody is there
  g.permute(out, in, shift(8, 0)).wait();
  EXPECT_TRUE(out.equal(in));
  EXPECT_EQ(fake_traffic(g).operations.at("permute").calls, 2u);
}

}  // namespace permute_test
