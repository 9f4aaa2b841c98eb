// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/checkpoint/test_state.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/writer.h"

namespace save_load_test {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder))
    names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

using Steps = std::vector<int64_t>;
using Names = std::vector<std::string>;

}  // namespace

TEST(checkpoint_save_load, a_state_comes_back_as_it_was_in_place) {
  PrivateFolder run;
  TestState saved(100), loaded(-1);
  const std::string folder = save_step(run.path(), 100, std::ref(saved), {.world = 4});
  EXPECT_EQ(folder, run / "step-00000100");
  void* memory = loaded.tensors.at("model.fc.weight").data_ptr();
  const auto version = loaded.tensors.at("model.fc.weight")._version();
  const auto info = load_step(run.path(), std::ref(loaded));
  EXPECT_TRUE(loaded.same_as(saved));
  EXPECT_EQ(loaded.tensors.at("model.fc.weight").data_ptr(), memory);
  EXPECT_GT(loaded.tensors.at("model.fc.weight")._version(), version);
  EXPECT_EQ(info.folder, folder);
  EXPECT_EQ(info.step, 100);
  EXPECT_EQ(info.world, 4);
}

TEST(checkpoint_save_load, parameters_that_require_gradients_and_strided_memory_are_filled) {
  PrivateFolder run;
  auto from = at::arange(6, at::kFloat).view({2, 3}).set_requires_grad(true);
  save_step(run.path(), 1, [&](StateVisitor& v) { v.tensor("model.w", from); });
  auto leaf = at::zeros({2, 3}).set_requires_grad(true), strided = at::zeros({3, 2}).t();
  load_step(run.path(), [&](StateVisitor& v) { v.tensor("model.w", leaf); });
  load_step(run.path(), [&](StateVisitor& v) { v.tensor("model.w", strided); });
  EXPECT_TRUE(leaf.detach().equal(from.detach()));
  EXPECT_TRUE(strided.equal(from.detach()));
}

TEST(checkpoint_save_load, a_flat_view_of_a_tensor_is_saved_under_its_shape) {
  PrivateFolder run;
  auto flat = at::arange(6, at::kFloat);
  save_step(run.path(), 1, [&](StateVisitor& v) {
    v.tensor(Slice::whole("optim.m", {2, 3}), flat);
  });
  EXPECT_EQ(SafetensorsFile(run / "step-00000001/state.safetensors").tensor("optim.m").sizes(),
            (at::IntArrayRef{2, 3}));
  auto back = at::zeros({6});
  load_step(run.path(), [&](StateVisitor& v) { v.tensor(Slice::whole("optim.m", {2, 3}), back); });
  EXPECT_TRUE(back.equal(flat));
}

TEST(checkpoint_save_load, model_weights_bear_plain_names_for_stock_tools) {
  PrivateFolder run;
  save(run.path(), 7);
  SafetensorsFile model(run / "step-00000007/model.safetensors"),
      state(run / "step-00000007/state.safetensors");
  EXPECT_EQ(model.entries().size(), 3u);
  EXPECT_TRUE(model.tensor("fc.weight").equal(TestState(7).tensors.at("model.fc.weight")));
  EXPECT_EQ(model.metadata().at("format"), "pt");
  EXPECT_NE(state.find("optim.exp_avg.fc.weight"), nullptr);
}

TEST(checkpoint_save_load, the_model_alone_can_be_loaded_even_when_the_rest_is_damaged) {
  PrivateFolder run;
  save(run.path(), 7);
  spill(run / "step-00000007/state.safetensors", "gone");
  auto weight = at::zeros({2, 3}), bias = at::zeros({2}, at::kBFloat16),
       seen = at::zeros({}, at::kLong);
  load_step(run.path(),
            [&](StateVisitor& v) {
              v.tensor("model.fc.weight", weight);
              v.tensor("model.fc.bias", bias);
              v.tensor("model.steps_seen", seen);
            },
            {.prefix = "model."});
  EXPECT_TRUE(weight.equal(TestState(7).tensors.at("model.fc.weight")));
}

TEST(checkpoint_save_load, only_the_last_ones_are_kept_and_latest_names_the_newest) {
  PrivateFolder run;
  for (int64_t step : {100, 200, 300, 400}) save(run.path(), step);
  EXPECT_EQ(list_steps(run.path()), (Steps{300, 400}));
  EXPECT_EQ(slurp(run / "latest"), "step-00000400\n");
  EXPECT_EQ(names_in(run.path()), (Names{"latest", "step-00000300", "step-00000400"}));
  save(run.path(), 500, {.keep = 1});
  EXPECT_EQ(list_steps(run.path()), (Steps{500}));
}

TEST(checkpoint_save_load, other_ranks_write_nothing) {
  PrivateFolder run;
  TestState state(1);
  EXPECT_EQ(save_step(run.path(), 1, std::ref(state), {.rank = 1, .world = 2}), "");
  EXPECT_TRUE(names_in(run.path()).empty());
}

TEST(checkpoint_save_load, a_step_saved_again_is_replaced) {
  PrivateFolder run;
  save(run.path(), 100);
  TestState other(100);
  other.note = "the second";
  save_step(run.path(), 100, std::ref(other));
  TestState loaded;
  load_step(run.path(), std::ref(loaded));
  EXPECT_EQ(loaded.note, "the second");
  EXPECT_EQ(names_in(run.path()), (Names{"latest", "step-00000100"}));
}

TEST(checkpoint_save_load, a_run_resumed_from_an_older_step_never_deletes_what_it_saves) {
  PrivateFolder run;
  for (int64_t step : {100, 200, 300}) save(run.path(), step, {.keep = 3});
  save(run.path(), 150, {.keep = 1});
  EXPECT_EQ(list_steps(run.path()),
            (Steps{150, 200, 300}));  // those of the other branch are left alone
  EXPECT_EQ(load_mark(run.path()), 150);
}

TEST(checkpoint_save_load, a_run_folder_a_step_folder_and_a_trailing_slash_are_all_found) {
  PrivateFolder run;
  save(run.path(), 100);
  save(run.path(), 200);
  EXPECT_EQ(load_mark(run.path()), 200);
  EXPECT_EQ(load_mark(run.path() + "/"), 200);
  EXPECT_EQ(load_mark(run / "step-00000100"), 100);
  EXPECT_EQ(load_mark(run / "step-00000100/"), 100);
  fs::remove(run / "latest");
  EXPECT_EQ(load_mark(run.path()), 200);
  fs::create_directory(run / "step-00000300");  // no index: not a checkpoint
  fs::create_directory(run / "step-junk");
  EXPECT_EQ(load_mark(run.path()), 200);
}

TEST(checkpoint_save_load, where_there_is_no_checkpoint_the_error_says_so) {
  PrivateFolder run;
  EXPECT_TRUE(contains(message_of<UsageError>([&] { find_checkpoint(run.path()); }),
                       "no checkpoint in " + run.path()));
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { find_checkpoint(run / "absent"); }), "not a folder"));
  save(run.path(), 100);
  spill(run / "latest", "step-00000200\n");
  const std::string text = message_of<Corrupt>([&] { load_mark(run.path()); });
  EXPECT_TRUE(contains(text, "step-00000200") && contains(text, run / "step-00000100")) << text;
  spill(run / "latest", "../elsewhere\n");
  EXPECT_TRUE(contains(message_of<Corrupt>([&] { load_mark(run.path()); }), "latest"));
}

TEST(checkpoint_save_load,
     a_state_that_differs_is_refused_naming_the_first_difference_and_left_alone) {
  PrivateFolder run;
  save(run.path(), 100);
  auto refused = [&](auto&& change) {
    TestState state(-1);
    change(state);
    const TestState before = [&] {
      TestState copy = state;
      for (auto& [name, t] : copy.tensors) t = t.clone();
      return copy;
    }();
    const std::string text =
        message_of<UsageError>([&] { load_step(run.path(), std::ref(state)); });
    EXPECT_TRUE(state.same_as(before));
    return text;
  };
  EXPECT_TRUE(contains(refused([](auto& s) { s.put("model.more", at::ones({1})); }),
                       "has no tensor 'model.more'"));
  EXPECT_TRUE(
      contains(refused([](auto& s) { s.tensors.erase("data.mask"); }), "holds tensor 'data.mask'"));
  EXPECT_TRUE(contains(refused([](auto& s) {
                         s.put("model.fc.weight", at::ones({3, 2}));
                       }),
                       "[2, 3] there and [3, 2]"));
  EXPECT_TRUE(contains(refused([](auto& s) { s.put("model.fc.bias", at::ones({2})); }),
                       "BF16 there and Float"));
  TestState state(1);
  int64_t number = 0;
  auto more = [&](StateVisitor& v) { state(v), v.value("train.more", number); };
  EXPECT_TRUE(contains(message_of<UsageError>([&] { load_step(run.path(), more); }),
                       "no value 'train.more'"));
  auto other_type = [&](StateVisitor& v) {
    for (auto& [name, t] : state.tensors) v.tensor(name, t);
    v.value("train.step", state.loss);
  };
  EXPECT_TRUE(contains(message_of<UsageError>([&] { load_step(run.path(), other_type); }),
                       "int there and double"));
}

TEST(checkpoint_save_load, what_cannot_be_saved_is_refused_before_the_disk_is_touched) {
  PrivateFolder run;
  auto one = at::ones({4});
  auto twice = [&](StateVisitor& v) { v.tensor("a", one), v.tensor("a", one); };
  auto part = [&](StateVisitor& v) { v.tensor({"a", {8}, {4}, {4}}, one); };
  auto dtype = [&](StateVisitor& v) { v.tensor("a", at::ones({1}, at::kComplexFloat)); };
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { save_step(run / "r", 1, twice); }), "'a' twice"));
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { save_step(run / "r", 1, part); }), "part of a tensor"));
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { save_step(run / "r", 1, dtype); }), "ComplexFloat"));
  EXPECT_TRUE(names_in(run.path()).empty());
  EXPECT_THROW(save(run.path(), -1), UsageError);
  EXPECT_THROW(save(run.path(), 1, {.keep = 0}), UsageError);
}

TEST(checkpoint_save_load, a_tensor_whose_name_its_file_reserves_is_refused_by_name) {
  PrivateFolder run;
  auto one = at::ones({4});
  for (const std::string name : {"model.__metadata__", "__metadata__"}) {
    const auto walk = [&](StateVisitor& v) { v.tensor(name, one); };
    EXPECT_TRUE(contains(message_of<UsageError>([&] { save_step(run / "r", 1, walk); }),
                         "'" + name + "' would be called '__metadata__'"));
  }
  EXPECT_TRUE(names_in(run.path()).empty());
  save_step(run / "r", 1, [&](StateVisitor& v) { v.tensor("model.__metadata__.w", one); });
  load_step(run / "r", [&](StateVisitor& v) { v.tensor("model.__metadata__.w", one); });
}

TEST(checkpoint_save_load,
     every_flipped_byte_of_every_file_is_detected_and_if_checked_first_nothing_is_loaded) {
  PrivateFolder run;
  save(run.path(), 100);
  int files = 0;
  for (const std::string& name : names_in(run / "step-00000100")) {
    const std::string path = run / "step-00000100/" + name;
    const std::string good = slurp(path);
    ++files;
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      spill(path, bad);
      EXPECT_THROW(verify_checkpoint(run / "step-00000100"), Error) << name << " byte " << i;
      if (i % 16 == 0) {
        TestState state(-1);
        EXPECT_THROW(load_step(run.path(), std::ref(state), {.check_first = true}), Error)
            << name << " byte " << i;
        EXPECT_TRUE(state.same_as(TestState(-1)));
        EXPECT_THROW(load_step(run.path(), std::ref(state)), Error) << name << " byte " << i;
      }
    }
    for (size_t n : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
      spill(path, good.substr(0, n));
      EXPECT_TRUE(
          contains(message_of<Corrupt>([&] { verify_checkpoint(run / "step-00000100"); }), path))
          << n;
    }
    fs::remove(path);
    EXPECT_THROW(load_mark(run.path()), Error);
    spill(path, good);
  }
  EXPECT_EQ(files, 3);
  EXPECT_EQ(load_mark(run.path()), 100);
}

TEST(checkpoint_save_load, advice_after_a_question_is_a_sentence_of_its_own) {
  PrivateFolder run;
  save(run.path(), 100);
  save(run.path(), 200);
  fs::rename(run / "step-00000200", run / "step-00000300");
  TestState loaded(-1);
  const std::string said =
      message_of<Corrupt>([&] { load_step(run / "step-00000300", std::ref(loaded)); });
  EXPECT_TRUE(contains(said, "holds step 200: was the folder renamed? The newest good checkpoint"))
      << said;
}

TEST(checkpoint_save_load, a_damaged_newest_names_its_file_and_the_good_one_before) {
  PrivateFolder run;
  for (int64_t step : {100, 200, 300}) save(run.path(), step, {.keep = 3});
  for (int64_t step : {200, 300}) {
    const std::string path = run / step_folder_name(step) + "/model.safetensors";
    std::string bytes = slurp(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    spill(path, bytes);
  }
  const std::string text = message_of<Corrupt>([&] { load_mark(run.path()); });
  EXPECT_TRUE(contains(text, run / "step-00000300/model.safetensors")) << text;
  EXPECT_TRUE(contains(text, "fc.bias")) << text;  // the tensor
  EXPECT_TRUE(contains(text, run / "step-00000100")) << text;
  EXPECT_EQ(load_mark(run / "step-00000100"), 100);
  fs::remove_all(run / "step-00000100");
  EXPECT_TRUE(contains(message_of<Corrupt>([&] { load_mark(run.path()); }),
                       "no good checkpoint before it"));
}

TEST(checkpoint_save_load, files_of_two_checkpoints_that_change_places_are_detected) {
  PrivateFolder run;
  save(run.path(), 100);
  save(run.path(), 200);
  fs::copy_file(run / "step-00000100/state.safetensors", run / "step-00000200/state.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(contains(message_of<Corrupt>([&] { load_mark(run.path()); }),
                       "step-00000200/state.safetensors"));
  fs::rename(run / "step-00000100", run / "step-00000900");
  EXPECT_TRUE(
      contains(message_of<Corrupt>([&] { load_mark(run / "step-00000900"); }), "holds step 100"));
}

}  // namespace save_load_test
