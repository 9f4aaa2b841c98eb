// SPDX-License-Identifier: Apache-2.0
// What a loop of one's own saves and loads: modules and values, as people wrap and change them.
#include "trireme/checkpoint/own_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"

namespace trireme::testing::own_state_test {
namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(double mark = 0) {
    in = register_module("in", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    out = register_module("out", torch::nn::Linear(4, 2));
    torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).view(p.sizes()) + mark);
  }
  at::Tensor forward(const at::Tensor& x) { return out(norm(in(x))); }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

void expect_same(const torch::nn::Module& got, const torch::nn::Module& want) {
  const auto parameters = want.named_parameters(), buffers = want.named_buffers();
  for (const auto& p : got.named_parameters())
    check<Error>(torch::equal(p.value(), parameters[p.key()]), "{} differs", p.key());
  for (const auto& b : got.named_buffers())
    check<Error>(torch::equal(b.value(), buffers[b.key()]), "{} differs", b.key());
}

}  // namespace

TEST(checkpoint_own_state, parameters_and_running_statistics_come_back) {
  PrivateFolder folder;
  Net a(1), b(2);
  a->forward(torch::randn({8, 3}));
  EXPECT_EQ(save(folder.path(), 7, trireme::state_of(a)), folder / "step-00000007");
  EXPECT_EQ(load(folder.path(), trireme::state_of(b)).step, 7);
  expect_same(*b, *a);
  EXPECT_EQ(b->norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(checkpoint_own_state, values_of_the_loop_come_back_in_their_types) {
  PrivateFolder folder;
  int epoch = 3;
  bool warm = true;
  float rate = 0.1F;
  int64_t seen = int64_t{1} << 40;
  double best = 1 / 3.0;
  std::string note = "a\nb";
  at::Tensor average = torch::arange(6.).view({2, 3}).t();  // not contiguous
  const StateWalk state =
      all_of({trireme::state_of("epoch", epoch), trireme::state_of("warm", warm),
              trireme::state_of("rate", rate), trireme::state_of("seen", seen),
              trireme::state_of("best", best), trireme::state_of("note", note),
              trireme::state_of("average", average)});
  save(folder.path(), 0, state);
  epoch = 0, warm = false, rate = 0, seen = 0, best = 0, note = "", average.zero_();
  load(folder.path(), state);
  EXPECT_EQ(epoch, 3);
  EXPECT_TRUE(warm);
  EXPECT_EQ(rate, 0.1F);
  EXPECT_EQ(seen, int64_t{1} << 40);
  EXPECT_EQ(best, 1 / 3.0);
  EXPECT_EQ(note, "a\nb");
  EXPECT_TRUE(torch::equal(average, torch::arange(6.).view({2, 3}).t()));
}

TEST(checkpoint_own_state, a_value_that_its_variable_cannot_hold_is_refused) {
  PrivateFolder folder;
  int64_t large = int64_t{1} << 40;
  int small = 0;
  save(folder.path(), 0, trireme::state_of("n", large));
  EXPECT_TRUE(has(refusal([&] { load(folder.path(), trireme::state_of("n", small)); }),
                  "the value 'n' is 1099511627776"));
}

TEST(checkpoint_own_state, a_name_twice_is_refused_unless_it_is_put_under_another) {
  PrivateFolder folder;
  Net a(1), b(2), c(3), d(4);
  EXPECT_TRUE(has(refusal([&] {
                    save(folder.path(), 0, all_of({trireme::state_of(a), trireme::state_of(b)}));
                  }),
                  "names 'model.in.weight' twice"));
  save(folder.path(), 0, all_of({trireme::state_of(a), named("teacher", trireme::state_of(b))}));
  load(folder.path(), all_of({trireme::state_of(c), named("teacher", trireme::state_of(d))}));
  expect_same(*c, *a);
  expect_same(*d, *b);
}

TEST(checkpoint_own_state, an_empty_name_is_called_empty_and_not_twice) {
  PrivateFolder folder;
  int64_t n = 1;
  at::Tensor t = torch::ones({2});
  for (const StateWalk& walk : {trireme::state_of("", n), trireme::state_of("", t)}) {
    const std::string said = refusal([&] { save(folder.path(), 0, walk); });
    EXPECT_TRUE(has(said, "an empty name") && !has(said, "twice")) << said;
  }
}

TEST(checkpoint_own_state, another_model_is_refused_by_name_before_anything_is_written) {
  PrivateFolder folder;
  Net net(1);
  save(folder.path(), 0, trireme::state_of(net));
  torch::nn::Linear other(3, 4);
  const at::Tensor before = other->weight.detach().clone();
  EXPECT_TRUE(
      has(refusal([&] { load(folder.path(), trireme::state_of(other)); }), "'model.weight'"));
  EXPECT_TRUE(torch::equal(other->weight, before));
  Net wide(1);
  wide->out = wide->replace_module("out", torch::nn::Linear(4, 3));
  EXPECT_TRUE(has(refusal([&] { load(folder.path(), trireme::state_of(wide)); }),
                  "'model.out.weight' has shape [2, 4] there and [3, 4] here"));
  Net half(1);
  half->in->to(at::kBFloat16);
  EXPECT_TRUE(has(refusal([&] { load(folder.path(), trireme::state_of(half)); }),
                  "'model.in.weight' is F32 there and BFloat16 here"));
}

TEST(checkpoint_own_state, bfloat16_and_channels_last_parameters_come_back) {
  PrivateFolder folder;
  const auto make = [] {
    torch::nn::Conv2d conv(3, 4, 3);
    conv->weight.set_data(
        torch::randn({4, 3, 3, 3}).to(at::kBFloat16).to(at::MemoryFormat::ChannelsLast));
    return conv;
  };
  torch::nn::Conv2d a = make(), b = make();
  ASSERT_FALSE(a->weight.is_contiguous());
  save(folder.path(), 0, trireme::state_of(a));
  load(folder.path(), trireme::state_of(b));
  EXPECT_TRUE(torch::equal(a->weight, b->weight));
  EXPECT_FALSE(b->weight.is_contiguous());
}

TEST(checkpoint_own_state, tied_weights_lie_once_and_load_into_models_that_tie_them) {
  PrivateFolder folder;
  struct Net : torch::nn::Module {
    Net() {
      weight = register_parameter("a", torch::randn({4}));
      register_module("head", head);
      head->register_parameter("weight", weight);
    }
    at::Tensor weight;
    std::shared_ptr<torch::nn::Module> head = std::make_shared<torch::nn::Module>("head");
  };
  Net a, b;
  save(folder.path(), 0, trireme::state_of(a));
  SafetensorsFile file(folder / "step-00000000/model.safetensors");
  EXPECT_EQ(file.entries().size(), 1u);
  load(folder.path(), trireme::state_of(b));
  EXPECT_TRUE(torch::equal(a.weight, b.weight));
}

TEST(checkpoint_own_state, a_module_is_loaded_before_or_after_ddp_wraps_it) {
  PrivateFolder folder;
  Net saved(1);
  saved->forward(torch::randn({8, 3}));
  save(folder.path(), 4, trireme::state_of(saved));
  run_threads(2, [&](Group g) {
    Net before(2 + g.rank()), after(5 + g.rank());
    load(folder.path(), trireme::state_of(before), g);
    DistributedDataParallel first(before, g), second(after, g);
    load(folder.path(), trireme::state_of(after), g);
    expect_same(*before, *saved);
    expect_same(*after, *saved);
    for (Net net : {before, after}) net->forward(torch::ones({2, 3})).sum().backward();
    check<Error>(torch::equal(before->in->weight.grad(), after->in->weight.grad()),
                 "the gradients differ");
  });
}

TEST(checkpoint_own_state, of_buffers_that_differ_between_ranks_rank_0s_are_saved) {
  PrivateFolder folder;
  run_threads(3, [&](Group g) {
    Net net(1), loaded(2);
    net->norm->running_mean.fill_(10 + g.rank());
    at::Tensor own = torch::full({3}, static_cast<double>(g.rank()));
    const StateWalk state = all_of({trireme::state_of(net), trireme::state_of("own", own)});
    save(folder.path(), 0, state, g);
    load(folder.path(), all_of({trireme::state_of(loaded), trireme::state_of("own", own)}), g);
    check<Error>(torch::equal(loaded->norm->running_mean, torch::full({4}, 10.0F)), "mean {}",
                 loaded->norm->running_mean[0].item<float>());
    check<Error>(torch::equal(own, torch::zeros({3})), "a tensor of the loop's own");
  });
}

TEST(checkpoint_own_state, values_that_ranks_have_differently_are_refused_by_name) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    int epoch = g.rank();
    const std::string text =
        refusal([&] { save(folder.path(), 0, trireme::state_of("epoch", epoch), g); });
    check<Error>(has(text, "'epoch'"), "{}", text);
  });
  EXPECT_TRUE(list_steps(folder.path()).empty());
}

TEST(checkpoint_own_state, a_loop_without_a_checkpoint_begins_anew) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    int64_t step = 5;
    const StateWalk state = trireme::state_of("step", step);
    check<Error>(!load_if_any(folder / "none", state, g), "something was loaded");
    check<Error>(step == 5, "step {}", step);
    save(folder / "run", 6, state, g);
    const auto saved = load_if_any(folder / "run", state, g);
    check<Error>(saved && saved->step == 6 && saved->layout == "own loop", "not loaded");
  });
}

// A loop that began loses nothing by a failed load(); one that begins is told not to train on.
TEST(checkpoint_own_state,
     a_loop_is_told_that_a_failed_load_filled_a_part_unless_it_was_checked_first) {
  PrivateFolder folder;
  at::Tensor w = at::arange(1 << 20, at::kFloat), v = w + 1;
  const StateWalk state = all_of({trireme::state_of("v", v), trireme::state_of("w", w)});
  const std::string step = save(folder.path(), 7, state);
  std::string path;
  for (const auto& file : std::filesystem::directory_iterator(step))
    if (file.file_size() > size_t{8} << 20) path = file.path().string();
  std::string bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomic(path, bytes);
  const char* part = "The state in memory may be part old and part new now";
  w.fill_(-1), v.fill_(-1);
  const auto damage = [](const auto& body) {
    try {
      body();
    } catch (const Corrupt& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  std::string text = damage([&] { load(folder.path(), state, {}, {.check_first = true}); });
  EXPECT_TRUE(has(text, path) && !has(text, part)) << text;
  EXPECT_TRUE(v.eq(-1).all().item<bool>() && w.eq(-1).all().item<bool>());
  text = damage([&] { load_if_any(folder.path(), state, {}, {.check_first = true}); });
  EXPECT_TRUE(has(text, path) && !has(text, part)) << text;
  EXPECT_TRUE(v.eq(-1).all().item<bool>() && w.eq(-1).all().item<bool>());
  for (const bool if_any : {false, true}) {
    text = damage([&] {
      if (if_any)
        load_if_any(folder.path(), state);
      else
        load(folder.path(), state);
    });
    EXPECT_TRUE(has(text, path) && has(text, part)) << text;
  }
}

TEST(checkpoint_own_state, a_loop_goes_on_from_a_step_that_was_being_replaced) {
  PrivateFolder folder;
  int64_t epoch = 3;
  const StateWalk state = trireme::state_of("epoch", epoch);
  save(folder.path(), 7, state);
  // As a saver leaves it that is killed between two renames.
  const std::string aside = folder / ".tmp-step-00000007-aside-1-00000000";
  std::filesystem::rename(folder / "step-00000007", aside);
  for (const char* latest : {"there", "never written"}) {
    epoch = 0;
    const auto saved = load_if_any(folder.path(), state);
    ASSERT_TRUE(saved) << latest;
    EXPECT_EQ(saved->step, 7);
    EXPECT_EQ(epoch, 3);
    std::filesystem::remove(folder / "latest");
  }
}

TEST(checkpoint_own_state, a_loop_whose_steps_are_gone_is_told_instead_of_beginning_anew) {
  PrivateFolder folder;
  int64_t epoch = 3;
  const StateWalk state = trireme::state_of("epoch", epoch);
  save(folder.path(), 7, state);
  std::filesystem::remove_all(folder / "step-00000007");
  std::string text;
  try {
    load_if_any(folder.path(), state);
  } catch (const Corrupt& e) {
    text = e.what();
  }
  EXPECT_TRUE(has(text,
                  "latest names step-00000007, which is not there or has no index; there is no "
                  "other checkpoint: bring it back, or remove that file to begin anew"))
      << text;
  std::filesystem::remove(folder / "latest");
  EXPECT_FALSE(load_if_any(folder.path(), state));
}

TEST(checkpoint_own_state, rank_0_may_save_alone_what_it_holds_whole) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    Net net(1), loaded(2);
    if (g.rank() == 0) save(folder.path(), 3, trireme::state_of(net));
    g.barrier();
    load(folder.path(), trireme::state_of(loaded), g);
    expect_same(*loaded, *net);
  });
}

// if (rank == 0) save(…, group): the others go on to a collective of the next step.
TEST(checkpoint_own_state,
     a_save_of_one_rank_of_the_group_ends_with_a_mismatch_that_names_both_lines) {
  PrivateFolder folder;
  std::string text;
  try {
    run_threads(
        2,
        [&](Group g) {
          Net net(1);
          if (g.rank() == 0) save(folder.path(), 3, trireme::state_of(net), g);
          at::Tensor next = torch::ones({4});
          g.all_reduce(next).wait();
        },
        std::chrono::seconds(20));
  } catch (const Error& e) {
    text = std::string(e.kind()) + ": " + e.what();
  }
  EXPECT_TRUE(has(text, "Mismatch: ")) << text;
  EXPECT_TRUE(has(text, "rank 0 called barrier at ") && has(text, "own_state_test.cc")) << text;
  EXPECT_TRUE(has(text, "rank 1 called all_reduce(")) << text;
  EXPECT_TRUE(list_steps(folder.path()).empty());
}

TEST(checkpoint_own_state, a_save_that_the_others_never_come_to_ends_and_names_them) {
  PrivateFolder folder;
  std::string text;
  run_threads(
      2,
      [&](Group g) {
        Net net(1);
        if (g.rank() != 0) return;
        try {
          save(folder.path(), 3, trireme::state_of(net), g);
        } catch (const Error& e) {
          text = std::string(e.kind()) + ": " + e.what();
        }
      },
      std::chrono::seconds(2));
  EXPECT_TRUE(has(text, "rank 1")) << text;
}

}  // namespace trireme::testing::own_state_test
