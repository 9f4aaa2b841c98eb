// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/sampling.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace sampling_test {

using namespace trireme;

namespace {
GptOptions tiny(int64_t vocab = 256) {
  return {.layers = 1, .width = 16, .heads = 2, .context = 8, .vocab = vocab, .dropout = 0.5};
}

// A model that ignores the text: the score of byte v is scores[v].
void fix_scores(Gpt& gpt, const at::Tensor& scores) {
  at::NoGradGuard no_grad;
  auto p = gpt.named_parameters();
  p["ln_f.weight"].zero_();
  p["ln_f.bias"].zero_()[0] = 1;
  p["head.weight"].zero_().select(1, 0).copy_(scores);
}
}  // namespace

TEST(models_sampling, is_a_function_of_prompt_and_seed) {
  Gpt gpt(tiny(), 1);
  const auto a = generate(gpt, "abc", {.count = 30, .temperature = 1});
  EXPECT_EQ(a.size(), 30u);
  EXPECT_EQ(generate(gpt, "abc", {.count = 30, .temperature = 1}), a);
  EXPECT_NE(generate(gpt, "abc", {.count = 30, .temperature = 1, .seed = 1}), a);
  EXPECT_EQ(generate(gpt, "abc", {.count = 10, .temperature = 1}), a.substr(0, 10));
  EXPECT_TRUE(gpt.is_training()) << "the mode is restored";
}

TEST(models_sampling, temperature_0_takes_the_likeliest) {
  Gpt gpt(tiny(), 1);
  auto scores = at::zeros({256});
  scores['x'] = 1;
  fix_scores(gpt, scores);
  EXPECT_EQ(generate(gpt, "", {.count = 5, .temperature = 0}), "xxxxx");
}

TEST(models_sampling, draws_follow_the_probabilities_and_the_temperature) {
  Gpt gpt(tiny(), 1);
  auto scores = at::full({256}, -100.0);
  scores['a'] = std::log(0.8);
  scores['b'] = std::log(0.2);
  fix_scores(gpt, scores);
  auto share = [&](double temperature) {
    const auto text = generate(gpt, "", {.count = 1000, .temperature = temperature});
    const auto a = std::count(text.begin(), text.end(), 'a'),
               b = std::count(text.begin(), text.end(), 'b');
    EXPECT_EQ(a + b, 1000);
    return static_cast<double>(a) / 1000;
  };
  EXPECT_NEAR(share(1), 0.8, 0.04);
  EXPECT_NEAR(share(0.5), 0.64 / 0.68, 0.03);
}

TEST(models_sampling, top_k_keeps_the_k_likeliest) {
  Gpt gpt(tiny(), 1);
  auto scores = at::zeros({256});
  scores['p'] = 0.1;
  scores['q'] = 0.2;
  fix_scores(gpt, scores);
  const auto text = generate(gpt, "", {.count = 200, .temperature = 1, .top_k = 2});
  EXPECT_EQ(text.find_first_not_of("pq"), text.npos);
  EXPECT_NE(text.find('p'), text.npos);
  EXPECT_NE(text.find('q'), text.npos);
}

TEST(models_sampling, the_model_sees_the_last_context_bytes) {
  Gpt gpt(tiny(), 1);
  EXPECT_EQ(generate(gpt, "0123456789abcdef", {.count = 5}),
            generate(gpt, "xx89abcdef", {.count = 5}));
}

TEST(models_sampling, the_caller_sees_each_byte_and_can_stop) {
  Gpt gpt(tiny(), 1);
  std::string seen;
  const auto text = generate(gpt, "a", {.count = 20}, [&](char c) {
    seen += c;
    return seen.size() < 3;
  });
  EXPECT_EQ(text.size(), 3u);
  EXPECT_EQ(text, seen);
}

TEST(models_sampling, what_cannot_be_sampled_is_refused) {
  Gpt gpt(tiny(), 1), other(tiny(20), 1);
  EXPECT_THROW(generate(other, "a"), UsageError);
  EXPECT_THROW(generate(gpt, "a", {.count = -1}), UsageError);
  EXPECT_THROW(generate(gpt, "a", {.temperature = -1}), UsageError);
  fix_scores(gpt, at::full({256}, std::nan("")));
  EXPECT_THROW(generate(gpt, "a", {.count = 1}), NumericError);
  EXPECT_TRUE(gpt.is_training());
}

}  // namespace sampling_test
