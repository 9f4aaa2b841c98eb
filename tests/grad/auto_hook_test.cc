// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/auto_hook.h"

#include <gtest/gtest.h>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"
#include "trireme/grad/compression/int8_hook.h"
#include "trireme/grad/compression/sign_hook.h"

namespace auto_hook_test {

using namespace trireme;
using namespace trireme::testing;

TEST(grad_auto_hook, all_ranks_choose_alike_and_only_what_is_allowed) {
  std::vector<std::string> said(3);
  run_threads(3, [&](Group g) {
    Rounds run(
        g,
        [](const NamedTensors& p, const Group& group) {
          std::vector<std::unique_ptr<Codec>> codecs;
          codecs.push_back(int8_codec(32));
          codecs.push_back(sign_codec());
          return auto_hook(std::move(codecs), p, group, {0.01, 12, {true, 1}});
        },
        mixed_shapes());
    expect(run.hook->describe() == "auto: not yet chosen", run.hook->describe());
    for (int64_t i = 0; i < 15; ++i) run.round(i);
    said[static_cast<size_t>(g.rank())] = run.hook->describe();
  });
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(said[0], said[2]);
  EXPECT_EQ(said[0].rfind("auto: bucket 0: ", 0), 0u) << said[0];
  EXPECT_EQ(said[0].find("signs"), std::string::npos) << said[0];  // they leave a third
}

TEST(grad_auto_hook, what_one_codec_left_the_next_one_sends) {
  run_threads(2, [](Group g) {
    Rounds run(g,
               [](const NamedTensors& p, const Group& group) {
                 std::vector<std::unique_ptr<Codec>> codecs;
                 codecs.push_back(sign_codec());
                 return auto_hook(std::move(codecs), p, group, {0.0001, 10, {true, 0}});
               },
               {{600}, {900}});
    at::Tensor applied, truth;
    for (int64_t i = 0; i < 3; ++i) {  // plain, signs, then plain: signs leave too much
      run.round(i);
      expect((run.kept().norm().item<double>() > 0) == (i == 1), "what is kept");
      applied = applied.defined() ? applied + run.result() : run.result().to(at::kDouble);
      truth = truth.defined() ? truth + run.truth(i) : run.truth(i);
    }
    expect(relative(applied, truth) < 1e-6, "something was lost on the way");
  });
}

TEST(grad_auto_hook, a_choice_that_is_not_one_is_refused) {
  run_threads(1, [](Group g) {
    const NamedTensors parameters = {{"p", at::zeros({5})}};
    const auto hook = make_compression({.type = "auto"}, parameters, g);
    Shown shown;
    hook->state(shown);
    shown.loading = true;
    for (const char* text : {"", "4", "4 zz", "4 1 9", "4 fffffffffffffff", "-1 0", "4 1 0 0 0"}) {
      shown.text["hook.auto"] = text;
      EXPECT_THROW(hook->state(shown), Corrupt) << text;
    }
    shown.text["hook.auto"] = "2 0 0 0";
    EXPECT_THROW(hook->state(shown), UsageError);
    EXPECT_THROW(auto_hook({}, parameters, g, {0, 10, {}}), UsageError);
    EXPECT_THROW(auto_hook({}, parameters, g, {0.5, 9, {}}), UsageError);
  });
}

}  // namespace auto_hook_test
