// SPDX-License-Identifier: Apache-2.0
// What a run in bfloat16 decides and says before step 1.
#include <ATen/Context.h>

#include "tests/train/small_runs.h"
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

}  // namespace train_half_products_test
