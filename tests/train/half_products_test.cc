// SPDX-License-Identifier: Apache-2.0
// What a run in bfloat16 decides and says before step 1.
#include <ATen/Context.h>

#include "tests/train/small_runs.h"
#include "trireme/train/build/half_products_setup.h"
#include "trireme/train/build/run_parts.h"

namespace train_half_products_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// LibTorch without oneDNN, which has the fast bfloat16 products.
struct WithoutOneDnn {
  WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(before); }
  const bool before = at::globalContext().userEnabledMkldnn();
};

struct Seen {
  std::string words, identity;
  double loss = 0;
};

Seen three_steps(const Sets& sets, int ranks = 1) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  std::vector<Seen> seen(static_cast<size_t>(ranks));
  run_threads(ranks, [&](Group group) {
    Run run = build_run(tiny_gpt(corpus, sets), group);
    Seen& mine = seen[static_cast<size_t>(group.rank())];
    for (const std::string& part : run.setup) mine.words += part + "; ";
    mine.identity = run.identity;
    start_data(run, tiny_gpt(corpus, sets));
    for (int i = 0; i < 3; ++i) mine.loss = train_step(run).loss;
  });
  for (const Seen& other : seen) {
    EXPECT_EQ(other.words, seen[0].words);
    EXPECT_EQ(other.identity, seen[0].identity);
  }
  return seen[0];
}

}  // namespace

TEST(train_half_products, a_run_in_float32_measures_nothing) {
  EXPECT_EQ(three_steps({}).words.find("bfloat16"), std::string::npos);
}

TEST(train_half_products, a_run_in_bfloat16_says_the_rate_before_step_1) {
  for (const char* key : {"bf16.enabled=true", "torch_autocast.enabled=true"}) {
    const Seen seen = three_steps({key}, 2);
    EXPECT_NE(seen.words.find("bfloat16 products run at "), std::string::npos) << seen.words;
  }
}

TEST(train_half_products,
     where_they_are_slow_they_are_computed_in_float32_and_the_identity_says_so) {
  const Seen fast = three_steps({"bf16.enabled=true"});
  const WithoutOneDnn slow_processor;
  for (const char* zero : {"zero_optimization.stage=0", "zero_optimization.stage=3"}) {
    const Seen slow = three_steps({"bf16.enabled=true", zero}, 2);
    EXPECT_NE(
        slow.words.find("so they are computed in float32: bfloat16 saves memory here, not time"),
        std::string::npos)
        << slow.words;
    EXPECT_NE(slow.identity.find(" bfloat16_products=widened"), std::string::npos) << slow.identity;
    EXPECT_NEAR(slow.loss, fast.loss, 0.02 * fast.loss);
  }
  const Seen cast = three_steps({"torch_autocast.enabled=true"});
  EXPECT_NE(cast.words.find("bfloat16 saves memory here and costs time"), std::string::npos)
      << cast.words;
}

// A measurement beside other work may choose otherwise than the one before the checkpoint.
TEST(train_half_products, a_run_that_is_resumed_computes_as_it_did_whatever_is_measured_then) {
  PrivateFolder folder;
  const Config config = tiny_gpt(write_corpus(folder),
                                 {"bf16.enabled=true", "training.steps=4", "checkpoint.every=2"});
  TrainOptions first;
  first.run_dir = folder / "run";
  double loss = 0;
  {
    const WithoutOneDnn slow_processor;
    run_threads(2, [&](Group g) {
      const TrainResult r = train(config, g, first);
      if (g.rank() == 0) loss = r.loss;
    });
  }
  run_threads(2, [&](Group g) {
    TrainOptions again;
    again.run_dir = folder / "again";
    again.resume = first.run_dir + "/step-00000002";
    EXPECT_EQ(train(config, g, again).loss, loss);
  });
}

TEST(train_half_products, ways_that_this_processor_has_not_are_not_followed) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const WithoutOneDnn slow_processor;
  run_threads(2, [&](Group g) {
    trireme::Run run = build_run(tiny_gpt(corpus, {"bf16.enabled=true"}), g);
    const std::string mine = run.identity;
    const size_t at = mine.find(" bfloat16_products=widened");
    ASSERT_NE(at, std::string::npos) << mine;
    follow_half_products(run, mine.substr(0, at) + " bfloat16_attention=native");
    EXPECT_EQ(run.identity, mine);
    trireme::Run plain = build_run(tiny_gpt(corpus, {}), g);
    const std::string none = plain.identity;
    follow_half_products(plain, mine);
    EXPECT_EQ(plain.identity, none);
  });
}

}  // namespace train_half_products_test
