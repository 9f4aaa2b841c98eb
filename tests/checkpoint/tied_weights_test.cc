// SPDX-License-Identifier: Apache-2.0
// A tensor that a walk shows under two names: written once, read into both, and still one.
#include "tests/checkpoint/split_state.h"
#include "tests/grad/tied_net.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/safetensors.h"

namespace tied_weights_test {

using namespace trireme;
using namespace trireme::test;
using trireme::testing::expect;
using trireme::testing::expect_tied_as;
using trireme::testing::tied_net;
using trireme::testing::TiedNet;

namespace {

/// Everything that LibTorch lists, as a loop of one's own would write it.
StateWalk every_name(TiedNet& net) {
  return [&net](StateVisitor& v) {
    for (const auto& p : net->named_parameters()) v.tensor("model." + p.key(), p.value().detach());
    for (const auto& b : net->named_buffers()) v.tensor("model." + b.key(), b.value());
  };
}
StateWalk each_once_walk(TiedNet& net) {
  return [&net](StateVisitor& v) {
    for (const auto& [name, p] : named_parameters(*net)) v.tensor("model." + name, p.detach());
    for (const auto& [name, b] : named_buffers(*net)) v.tensor("model." + name, b);
  };
}
TiedNames tied_of(TiedNet& net) {
  TiedNames tied;
  named_parameters(*net, &tied);
  named_buffers(*net, &tied);
  return tied;
}

std::vector<std::string> written(const std::string& folder) {
  std::vector<std::string> names;
  const SafetensorsFile file(folder + "/model.safetensors");
  for (const auto& e : file.entries()) names.push_back(e.name);
  std::sort(names.begin(), names.end());
  return names;
}

/// What a version before this one wrote: both names of everything.
void save_both_names(const std::string& run, TiedNet& net) {
  std::vector<std::pair<std::string, at::Tensor>> copies;
  for (const auto& p : net->named_parameters())
    copies.emplace_back(p.key(), p.value().detach().clone());
  for (const auto& b : net->named_buffers()) copies.emplace_back(b.key(), b.value().clone());
  save_step(run, 1, [&](StateVisitor& v) {
    for (auto& [name, t] : copies) v.tensor("model." + name, t);
  });
}

}  // namespace

TEST(checkpoint_tied_weights, are_written_once_and_loaded_into_both_names) {
  PrivateFolder run;
  TiedNet net = tied_net(1), other = tied_net(2), third = tied_net(3);
  const std::string folder = save_step(run.path(), 1, every_name(net));
  EXPECT_EQ(written(folder),
            (std::vector<std::string>{"a.bias", "a.weight", "b.bias", "b.weight", "first.bias",
                                      "first.weight", "head", "scale"}));
  verify_checkpoint(folder);
  load_step(run.path(), every_name(other));
  expect_tied_as(other, net, 0);
  load_step(run.path(), each_once_walk(third));
  expect_tied_as(third, net, 0);
  // Whichever name comes first in the walk that loads.
  TiedNet fourth = tied_net(4);
  load_step(run.path(), [&](StateVisitor& v) {
    auto all = fourth->named_parameters().pairs();
    for (auto p = all.rbegin(); p != all.rend(); ++p)
      v.tensor("model." + p->first, p->second.detach());
    v.tensor("model.scale_again", fourth->scale);
    v.tensor("model.scale", fourth->scale);
  });
  expect_tied_as(fourth, net, 0);
}

TEST(checkpoint_tied_weights, that_were_written_under_both_names_load) {
  PrivateFolder run;
  TiedNet net = tied_net(1), other = tied_net(2), third = tied_net(3);
  save_both_names(run.path(), net);
  load_step(run.path(), every_name(other));
  expect_tied_as(other, net, 0);
  // A walk of first names is told the others.
  const std::string refused =
      message_of<UsageError>([&] { load_step(run.path(), each_once_walk(third)); });
  EXPECT_TRUE(contains(refused, "holds tensor 'model.again.bias', which this state does not know"))
      << refused;
  LoadOptions options;
  options.tied = tied_of(third);
  load_step(run.path(), each_once_walk(third), options);
  expect_tied_as(third, net, 0);
}

TEST(checkpoint_tied_weights, of_which_two_values_are_there_are_refused) {
  PrivateFolder run;
  TiedNet untied = tied_net(1, false), net = tied_net(2), before = tied_net(2);
  {
    at::NoGradGuard no_grad;
    untied->head.add_(1);
  }
  save_both_names(run.path(), untied);
  LoadOptions options;
  options.tied = tied_of(net);
  for (const auto& said :
       {message_of<UsageError>([&] { load_step(run.path(), every_name(net)); }),
        message_of<UsageError>([&] { load_step(run.path(), each_once_walk(net), options); })})
    EXPECT_TRUE(contains(said, "have different values there, and are one tensor here")) << said;
  expect_tied_as(net, before, 0);  // nothing was written
}

TEST(checkpoint_tied_weights, do_not_load_into_a_model_that_is_not_tied) {
  PrivateFolder run;
  TiedNet net = tied_net(1), untied = tied_net(2, false);
  save_step(run.path(), 1, every_name(net));
  const std::string said =
      message_of<UsageError>([&] { load_step(run.path(), every_name(untied)); });
  EXPECT_TRUE(contains(said, "has no tensor 'model.emb.weight', which this state asks for"))
      << said;
}

TEST(checkpoint_tied_weights, state_of_optimizers_and_values_are_found_under_the_other_name) {
  PrivateFolder run;
  at::Tensor w = at::arange(6, at::kFloat), m = w * 2, m2 = w * 3;
  int64_t steps = 7, steps2 = 7;
  save_step(run.path(), 1, [&](StateVisitor& v) {
    v.tensor("model.emb", w);
    v.tensor("model.head", w.clone());
    v.tensor("optim.exp_avg.emb", m);
    v.tensor("optim.exp_avg.head", m2);  // stepped under each name: what the first has stays
    v.value("optim.steps.emb", steps);
    v.value("optim.steps.head", steps2);
  });
  for (bool head_first : {false, true}) {
    at::Tensor got_w = at::zeros({6}), got_m = at::zeros({6});
    int64_t got_steps = 0;
    const std::string first = head_first ? "head" : "emb";
    LoadOptions options;
    options.tied = {{head_first ? "emb" : "head", first}};
    load_step(
        run.path(),
        [&](StateVisitor& v) {
          v.tensor("model." + first, got_w);
          v.tensor("optim.exp_avg." + first, got_m);
          v.value("optim.steps." + first, got_steps);
        },
        options);
    EXPECT_TRUE(got_w.equal(w) && got_m.equal(head_first ? m2 : m) && got_steps == 7);
  }
  // One name alone, and the other one is asked for.
  PrivateFolder one;
  save_step(one.path(), 1, [&](StateVisitor& v) {
    v.tensor("model.head", w);
    v.tensor("optim.exp_avg.head", m);
    v.value("optim.steps.head", steps);
  });
  at::Tensor got_w = at::zeros({6}), got_m = at::zeros({6});
  int64_t got_steps = 0;
  auto walk = [&](StateVisitor& v) {
    v.tensor("model.emb", got_w);
    v.tensor("optim.exp_avg.emb", got_m);
    v.value("optim.steps.emb", got_steps);
  };
  EXPECT_TRUE(contains(message_of<UsageError>([&] { load_step(one.path(), walk); }),
                       "has no tensor 'model.emb'"));
  LoadOptions options;
  options.tied = {{"head", "emb"}};
  load_step(one.path(), walk, options);
  EXPECT_TRUE(got_w.equal(w) && got_m.equal(m) && got_steps == 7);
}

TEST(checkpoint_tied_weights, of_a_state_that_is_split_over_ranks) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    // Each rank has its half of a flat weight, under two names.
    auto walk = [&](at::Tensor half) {
      return [&g, half](StateVisitor& v) {
        for (const char* name : {"model.emb", "model.head"})
          v.tensor(Slice{name, {8}, {4 * g.rank()}, {4}}, half);
        v.tensor(Slice::whole("model.b", {4}), at::ones({4}));
      };
    };
    const at::Tensor mine = at::arange(4, at::kFloat) + 4 * g.rank();
    const std::string folder = save_sharded_step(run.path(), 1, walk(mine), g, {"halves", 1});
    g.barrier();
    verify_checkpoint(run.path() + "/step-00000001");
    const SafetensorsFile file(
        fmt::format("{}/step-00000001/model-rank{:05}.safetensors", run.path(), g.rank()));
    expect(file.find("emb") && !file.find("head"), "once");
    at::Tensor got = at::zeros({4});
    load_step(run.path(), walk(got), {.group = g});
    expect(got.equal(mine), "my half");
    // Weights load under any layout.
    at::Tensor whole = at::zeros({8}), b = at::zeros({4});
    load_step(run.path(),
              [&](StateVisitor& v) {
                v.tensor("model.head", whole);
                v.tensor("model.emb", whole);
                v.tensor("model.b", b);
              },
              {"model."});
    expect(whole.equal(at::arange(8, at::kFloat)), "the whole");
  });
}

// A rank holds two boxes of it; which of its names was saved is another program's choice.
TEST(checkpoint_tied_weights, in_several_boxes_are_filled_in_all_of_them_from_either_name) {
  const at::Tensor whole = at::arange(8, at::kFloat);
  for (const char* saved : {"model.emb", "model.head"}) {
    PrivateFolder run;
    save_step(run.path(), 1, [&](StateVisitor& v) { v.tensor(saved, whole); });
    at::Tensor boxes = at::full({2, 2}, -1, at::kFloat);
    LoadOptions options;
    options.partial = true;
    load_step(
        run.path(),
        [&](StateVisitor& v) {
          for (const char* name : {"model.emb", "model.head"})
            for (int64_t b = 0; b < 2; ++b) v.tensor(Slice{name, {8}, {4 * b + 1}, {2}}, boxes[b]);
        },
        options);
    EXPECT_TRUE(boxes.equal(at::tensor({1.F, 2.F, 5.F, 6.F}).view({2, 2})))
        << saved << " " << boxes;
  }
}

// Equal values are not one tensor, nor are two views of one memory.
TEST(checkpoint_tied_weights, what_is_not_one_tensor_is_written_apart) {
  PrivateFolder run;
  at::Tensor line = at::arange(8, at::kFloat), twin = line.clone();
  const std::string folder = save_step(run.path(), 1, [&](StateVisitor& v) {
    v.tensor("model.line", line);
    v.tensor("model.twin", twin);
    v.tensor("model.front", line.narrow(0, 0, 4));
    v.tensor("model.back", line.narrow(0, 4, 4));
    v.tensor("model.matrix", line.view({2, 4}));
    for (int i = 0; i < 3; ++i) v.tensor("model.t" + std::to_string(i), at::full({4}, i));
  });
  EXPECT_EQ(written(folder).size(), 8u);
  const SafetensorsFile file(folder + "/model.safetensors");
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(file.tensor("t" + std::to_string(i)).eq(i).all().item<bool>());
}

}  // namespace tied_weights_test
