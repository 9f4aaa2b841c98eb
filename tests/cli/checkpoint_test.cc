// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/refusals.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"

namespace trireme::testing::checkpoint_test {
namespace {

using nlohmann::json;
using namespace trireme::test;

struct Answer {
  int code;
  std::string out, err;
  json parsed() const { return json::parse(out); }
};

Answer checkpoint(Arguments words) {
  words.insert(words.begin(), "checkpoint");
  Command command(trireme(words));
  const int code = command.finish();
  return {code, command.out, command.err};
}

Answer through_shell(const std::string& line) {
  Command command({"sh", "-c", line});
  const int code = command.finish();
  return {code, command.out, command.err};
}

const std::vector<WrittenTensor> kTensors{
    {"model.fc.weight", "F32", {3, 2}, counted(6)},
    {"model.fc.bias", "F32", {2}, counted(2)},
    {"optim.exp_avg.fc.weight", "F32", {3, 2}, counted(6, 0.5)},
};
const std::map<std::string, IndexValue> kValues{{"train.step", int64_t{100}}, {"train.loss", 0.25}};

std::string write_replicated(const std::string& run, int64_t step) {
  return write_test_step(run, step, kTensors, kValues);
}

/// The same state, of more ranks: weights split by columns, or in boxes of all kinds.
std::string write_split(const std::string& run, int64_t step, int64_t world) {
  auto tensors = kTensors;
  std::vector<Box>& weight = tensors[0].boxes;
  if (world == 2)
    weight = {{{0, 0}, {3, 1}}, {{0, 1}, {3, 1}}};
  else
    weight = {{{0, 0}, {1, 2}}, {{1, 0}, {1, 1}}, {{1, 1}, {1, 1}}, {{2, 0}, {1, 2}}};
  tensors[2].boxes = {{{0, 0}, {1, 2}}, {{1, 0}, {2, 2}}};
  return write_test_step(run, step, tensors, kValues, world);
}

TEST(cli_checkpoint, ls_shows_steps_the_latest_leftovers_and_what_was_set_aside) {
  PrivateFolder run;
  write_replicated(run.path(), 100);
  write_split(run.path(), 200, 2);
  std::filesystem::create_directory(run / ".tmp-step-00000300-new-1-00000001");
  std::filesystem::rename(write_replicated(run.path(), 50), run / "damaged-step-00000050");
  write_text(run / "latest", "step-00000200\n");
  auto ls = checkpoint({"ls", run.path()});
  EXPECT_EQ(ls.code, 0) << ls.err;
  for (const char* part : {"STEP ", "step-00000100", "good, latest", "zero stage 3",
                           ".tmp-step-00000300", "damaged-step-00000050", "set aside"})
    EXPECT_TRUE(has(ls.out, part)) << part << "\n" << ls.out;
  ls = checkpoint({"ls", run.path(), "--json"});
  const json all = ls.parsed();
  ASSERT_EQ(all["steps"].size(), 2u);
  EXPECT_EQ(all["steps"][0]["name"], "step-00000100");
  EXPECT_EQ(all["steps"][1]["ranks"], 2);
  EXPECT_EQ(all["steps"][1]["state"], "good");
  EXPECT_EQ(all["latest"], "step-00000200");
  EXPECT_EQ(all["leftovers"].size(), 1u);
  EXPECT_EQ(all["set_aside"][0]["name"], "damaged-step-00000050");
}

TEST(cli_checkpoint, ls_calls_a_short_file_or_a_latest_that_is_gone_damage) {
  PrivateFolder run;
  std::filesystem::resize_file(write_replicated(run.path(), 1) + "/model.safetensors", 20);
  write_replicated(run.path(), 2);
  auto ls = checkpoint({"ls", run.path()});
  EXPECT_EQ(ls.code, 1);
  EXPECT_TRUE(has(ls.out, "model.safetensors has 20 bytes; the index says")) << ls.out;
  EXPECT_TRUE(has(ls.err, "1 of 2 checkpoints")) << ls.err;
  std::filesystem::remove_all(run / "step-00000001");
  write_text(run / "latest", "step-00000009\n");
  ls = checkpoint({"ls", run.path(), "--json"});
  EXPECT_EQ(ls.code, 1);
  EXPECT_TRUE(has(ls.parsed()["latest_fault"], "names step-00000009, which is not there"));
}

// As of another user's run: what may not be read is not known to be damaged.
TEST(cli_checkpoint, ls_calls_a_step_that_cannot_be_read_unreadable) {
  for (const char* file : {"trireme.index.json", ""}) {
    PrivateFolder run;
    for (int64_t step : {1, 2}) write_replicated(run.path(), step);
    const std::string fault = file[0] ? "open:EIO" : "stat:EIO";
    Command ls(
        trireme({"checkpoint", "ls", run.path(), "--json"}),
        {{{"TRIREME_FILE_FAULTS", "only=/step-00000001/" + std::string(file) + "," + fault}}, {}});
    EXPECT_EQ(ls.finish(), 1);
    EXPECT_TRUE(has(ls.err, "1 of 2 checkpoints in " + run.path() +
                                " cannot be read, which does not show that it is damaged"))
        << ls.err;
    const json all = json::parse(ls.out);
    EXPECT_EQ(all["steps"][0]["state"], "unreadable");
    EXPECT_TRUE(has(all["steps"][0]["faults"][0], "Input/output error")) << all;
    EXPECT_EQ(all["steps"][1]["state"], "good");
    Command text(
        trireme({"checkpoint", "ls", run.path()}),
        {{{"TRIREME_FILE_FAULTS", "only=/step-00000001/" + std::string(file) + "," + fault}}, {}});
    EXPECT_EQ(text.finish(), 1);
    EXPECT_TRUE(has(text.out, "step-00000001: unreadable: ")) << text.out;
    EXPECT_FALSE(has(text.out, "damaged")) << text.out;
  }
}

TEST(cli_checkpoint, diff_refuses_a_tolerance_that_is_no_finite_number) {
  PrivateFolder run;
  const std::string a = write_replicated(run.path(), 1), b = write_replicated(run.path(), 2);
  for (const char* x : {"nan", "inf", "-inf", "1e999", "-1", "x"}) {
    const auto diff = checkpoint({"diff", a, b, "--atol=" + std::string(x)});
    EXPECT_EQ(diff.code, 2) << x;
    EXPECT_TRUE(has(diff.err, "'" + std::string(x) + "' is no tolerance: give a finite number"))
        << diff.err;
    EXPECT_EQ(diff.out, "");
  }
}

TEST(cli_checkpoint, show_says_kinds_tensors_boxes_and_values) {
  PrivateFolder run;
  write_split(run.path(), 100, 2);
  auto show = checkpoint({"show", run.path(), "--values"});
  ASSERT_EQ(show.code, 0) << show.err;
  for (const char* part :
       {"step 100, saved by 2 ranks (zero stage 3), in version 3 of the format",
        "optim.exp_avg  1        24 B", "[0, 1] + [3, 1] in model-rank00001.safetensors",
        "train.loss  double 0.25", "train.step  int 100"})
    EXPECT_TRUE(has(show.out, part)) << part << "\n" << show.out;
  show = checkpoint({"show", run / "step-00000100", "--tensors", "optim.*", "--json", "-"});
  const json all = show.parsed();
  EXPECT_EQ(all["tensor_count"], 3);
  ASSERT_EQ(all["tensors"].size(), 1u);
  EXPECT_EQ(all["tensors"]["optim.exp_avg.fc.weight"]["parts"][1]["offsets"], (json{1, 0}));
  EXPECT_EQ(all["kinds"]["model"]["bytes"], 32);
  EXPECT_FALSE(all.contains("values"));
  PrivateFolder other;
  show = checkpoint({"show", run.path(), "--json=" + (other / "show.json")});
  EXPECT_TRUE(has(show.out, "step 100"));
  EXPECT_EQ(json::parse(read_file(other / "show.json"))["step"], 100);
}

TEST(cli_checkpoint, verify_names_file_and_tensor_of_a_flipped_byte) {
  PrivateFolder run;
  write_replicated(run.path(), 1);
  const std::string folder = write_split(run.path(), 2, 2);
  auto verify = checkpoint({"verify", run.path(), "--all"});
  EXPECT_EQ(verify.code, 0) << verify.out;
  EXPECT_TRUE(has(verify.out, "step-00000002: good; ")) << verify.out;
  EXPECT_TRUE(has(verify.out, "/s)")) << verify.out;
  flip_byte(folder + "/model-rank00001.safetensors", 2);
  flip_byte(folder + "/state-rank00000.safetensors", 2);
  verify = checkpoint({"verify", folder});
  EXPECT_EQ(verify.code, 1);
  EXPECT_TRUE(has(verify.out,
                  "model-rank00001.safetensors: tensor 'fc.weight': block 0 does not "
                  "fit its checksum (bytes 0 to 11 of 12)"))
      << verify.out;
  EXPECT_TRUE(has(verify.out, "state-rank00000.safetensors: tensor 'optim.exp_avg.fc.weight'"));
  verify = checkpoint({"verify", run.path(), "--all", "--json"});
  EXPECT_EQ(verify.code, 1);
  const json all = verify.parsed();
  EXPECT_EQ(all["good"], false);
  EXPECT_EQ(all["steps"][0]["good"], true);
  ASSERT_EQ(all["steps"][1]["faults"].size(), 2u);
  EXPECT_EQ(all["steps"][1]["faults"][0]["tensor"], "model.fc.weight");
  EXPECT_EQ(all["steps"][1]["faults"][0]["blocks"], (json{0, 0}));
}

TEST(cli_checkpoint, steps_of_older_versions_are_shown_verified_and_compared) {
  for (const char* version : {"1", "2"}) {
    const std::string folder =
        trireme::testing::source_path() + "/tests/formats/checkpoint-v" + version;
    const auto show = checkpoint({"show", folder, "--json"});
    ASSERT_EQ(show.code, 0) << show.err;
    EXPECT_EQ(std::to_string(show.parsed()["version"].get<int>()), version);
    EXPECT_EQ(checkpoint({"verify", folder}).code, 0);
    EXPECT_EQ(checkpoint({"diff", folder, folder}).code, 0);
  }
}

TEST(cli_checkpoint, diff_of_two_layouts_is_empty) {
  PrivateFolder run;
  const std::string one = write_replicated(run / "a", 100), two = write_split(run / "b", 100, 2),
                    four = write_split(run / "c", 100, 4);
  for (const auto& [a, b] : {std::pair{one, two}, {two, four}, {four, one}}) {
    const auto diff = checkpoint({"diff", a, b});
    EXPECT_EQ(diff.code, 0) << diff.out << diff.err;
    EXPECT_TRUE(has(diff.out, "all 5 are equal\n")) << diff.out;
  }
}

TEST(cli_checkpoint, diff_says_what_differs_and_by_how_much) {
  PrivateFolder run;
  const std::string a = write_replicated(run / "a", 100);
  auto tensors = kTensors;
  tensors[0].bytes = bytes_of_list(std::vector<float>{0, 1, 2, 3, 4.5, 5});
  tensors[1] = {"model.fc.bias", "F64", {2}, std::string(16, '\0')};
  tensors[2].name = "optim.exp_avg.other";
  const std::string b = write_test_step(run / "b", 100, tensors, {{"train.step", int64_t{101}}});
  auto diff = checkpoint({"diff", a, b});
  EXPECT_EQ(diff.code, 1);
  for (const char* part :
       {"model.fc.weight: 1 element differs, by at most 0.5; the first is at [2, 0]",
        "model.fc.bias: F32 in A, F64 in B", "optim.exp_avg.fc.weight: only in A",
        "optim.exp_avg.other: only in B", "train.loss: only in A",
        "train.step: int 100 in A, int 101 in B"})
    EXPECT_TRUE(has(diff.out, part)) << part << "\n" << diff.out;
  diff = checkpoint({"diff", a, b, "--tensors", "*.weight", "--json"});
  EXPECT_EQ(diff.code, 1);
  EXPECT_EQ(diff.parsed()["differences"][0]["largest"], 0.5);
  EXPECT_EQ(diff.parsed()["differences"][0]["first"], (json{2, 0}));
  EXPECT_EQ(checkpoint({"diff", a, b, "--tensors", "model.*.weight", "--atol", "0.5"}).code, 0);
  EXPECT_EQ(checkpoint({"diff", a, b, "--tensors", "model.*.weight", "--atol", "0.4"}).code, 1);
  EXPECT_EQ(checkpoint({"diff", a, run / "none"}).code, 2);
  std::filesystem::remove(b + "/model.safetensors");
  diff = checkpoint({"diff", a, b, "--tensors", "model.*.weight"});
  EXPECT_EQ(diff.code, 2);
  EXPECT_TRUE(has(diff.err, "model.safetensors is missing")) << diff.err;
}

TEST(cli_checkpoint, prune_deletes_old_steps_but_not_while_a_run_saves) {
  PrivateFolder run;
  for (int64_t step : {1, 2, 3, 4}) write_replicated(run.path(), step);
  auto prune = checkpoint({"prune", run.path(), "--keep", "1", "--keep-every", "2", "--dry-run"});
  EXPECT_EQ(prune.code, 0) << prune.err;
  EXPECT_EQ(prune.out,
            "would delete step-00000001\nwould delete step-00000003\nkept step-00000002\n"
            "kept step-00000004, the latest\n");
  {
    StepDraft saving(run.path(), 5);
    prune = checkpoint({"prune", run.path(), "--keep", "1"});
    EXPECT_EQ(prune.code, 1);
    EXPECT_TRUE(has(prune.err, "another process is saving a checkpoint in")) << prune.err;
  }
  EXPECT_EQ(list_steps(run.path()).size(), 4u);
  prune = checkpoint({"prune", run.path(), "--keep", "2", "--json"});
  EXPECT_EQ(prune.parsed()["deleted"], (json{"step-00000001", "step-00000002"}));
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{3, 4}));
}

TEST(cli_checkpoint, a_json_file_that_cannot_be_written_is_found_before_anything_is_deleted) {
  PrivateFolder run, folder;
  for (int64_t step : {1, 2}) write_replicated(run.path(), step);
  const auto prune = checkpoint({"prune", run.path(), "--keep", "1", "--json", folder / "none/x"});
  EXPECT_EQ(prune.code, 1);
  EXPECT_TRUE(has(prune.err, "cannot write " + folder / "none/x")) << prune.err;
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(checkpoint({"ls", run.path(), "--json", folder.path()}).code, 2) << "a folder";
}

TEST(cli_checkpoint, a_json_file_may_be_a_link_or_standard_output) {
  PrivateFolder run, folder;
  write_replicated(run.path(), 1);
  std::filesystem::create_symlink("target", folder / "link");
  EXPECT_EQ(checkpoint({"ls", run.path(), "--json", folder / "link"}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(json::parse(read_file(folder / "target"))["steps"].size(), 1u);
  const auto both = checkpoint({"ls", run.path(), "--json", "/dev/stdout"});
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_TRUE(has(both.out, "STEP") && has(both.out, "\"latest\": \"step-00000001\"")) << both.out;
}

TEST(cli_checkpoint, steps_are_looked_for_where_the_run_says_that_it_saves) {
  PrivateFolder run, steps;
  for (const int64_t step : {1, 2, 3}) write_replicated(steps.path(), step);
  write_text(run / "config.json", json{{"checkpoint", {{"folder", steps.path()}}}}.dump());
  const std::string said = run.path() + " has its steps in " + steps.path();
  for (const Arguments& words : {Arguments{"ls", run.path()},
                                 {"show", run.path()},
                                 {"verify", run.path(), "--all"},
                                 {"diff", run.path(), run.path()},
                                 {"export", run.path(), run / "out.pt"}}) {
    const Answer answer = checkpoint(words);
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_TRUE(has(answer.err, said)) << answer.err;
    EXPECT_TRUE(words[0] != "ls" || has(answer.out, "step-00000003")) << answer.out;
  }
  EXPECT_EQ(checkpoint({"ls", run.path(), "--json"}).parsed()["steps"].size(), 3u);
  // What is deleted somebody has named: another run may save there by now.
  const Answer pruned = checkpoint({"prune", run.path(), "--keep", "1"});
  EXPECT_EQ(pruned.code, 2);
  EXPECT_TRUE(has(pruned.err, "are in " + steps.path() + ", where another run may save by now"))
      << pruned.err;
  EXPECT_EQ(checkpoint({"ls", steps.path(), "--json"}).parsed()["steps"].size(), 3u);
  // Older ones of its own are told of, and are what prune deletes: they were named.
  for (const int64_t step : {7, 8}) write_replicated(run.path(), step);
  const Answer both = checkpoint({"ls", run.path()});
  EXPECT_TRUE(has(both.out, "step-00000003") && !has(both.out, "step-00000007")) << both.out;
  EXPECT_TRUE(has(both.err, said + ", and older ones of its own")) << both.err;
  EXPECT_EQ(checkpoint({"show", run / "step-00000007"}).code, 0);
  EXPECT_EQ(checkpoint({"prune", run.path(), "--keep", "1"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(run / "step-00000007"));
  EXPECT_TRUE(std::filesystem::exists(steps / "step-00000001"));
  // What is not there is said of both folders.
  PrivateFolder other;
  write_text(other / "config.json", R"({"checkpoint": {"folder": "/nothing/is/here"}})");
  const Answer none = checkpoint({"show", other.path()});
  EXPECT_NE(none.code, 0);
  EXPECT_TRUE(has(none.err, other.path()) && has(none.err, "/nothing/is/here")) << none.err;
}

TEST(cli_checkpoint, an_index_that_lies_is_refused_with_a_sentence) {
  const std::pair<const char*, std::pair<const char*, const char*>> rows[] = {
      {"not a file name that we write", {"\"model.safetensors\":", "\"../model.safetensors\":"}},
      {"shape of more than 2^63 elements",
       {"\"shape\":[3,2]", "\"shape\":[4611686018427387904,4611686018427387904]"}},
      {"digits of checksums",
       {"\"shape\":[2],\"parts\":[{\"file\":\"model.safetensors\","
        "\"offsets\":[0],\"lengths\":[2]",
        "\"shape\":[1099511627776],\"parts\":[{\"file\":"
        "\"model.safetensors\",\"offsets\":[0],\"lengths\":[1099511627776]"}},
      {"blocks of no bytes", {"\"block\": 1048576", "\"block\": 0"}}};
  for (const auto& [part, change] : rows) {
    PrivateFolder run;
    const std::string folder = write_replicated(run.path(), 1);
    rewrite_index(folder, change.first, change.second);
    const auto show = checkpoint({"show", folder});
    EXPECT_EQ(show.code, 1) << part;
    EXPECT_TRUE(has(show.err, part)) << show.err;
    EXPECT_EQ(show.out, "");
    const auto verify = checkpoint({"verify", folder});
    EXPECT_EQ(verify.code, 1) << part;
    EXPECT_TRUE(has(verify.out, part)) << verify.out;
    EXPECT_EQ(checkpoint({"diff", folder, folder}).code, 2);
    EXPECT_EQ(checkpoint({"ls", run.path()}).code, 1);
  }
}

TEST(cli_checkpoint, names_cannot_write_to_the_terminal) {
  PrivateFolder run;
  const std::string name = "model.\x1b[2J\n\u202e\u009b\x7fgrün";
  write_test_step(run / "a", 1, {{name, "F32", {1}, counted(1)}},
                  {{"train.note", std::string("\x1b]0;x\a")}});
  write_test_step(run / "b", 1, {{name, "F32", {1}, bytes_of_list(std::vector<float>{2})}});
  flip_byte(run / "b/step-00000001/model.safetensors", 1);
  for (const Arguments& words : {Arguments{"show", run / "a", "--values"},
                                 {"show", run / "a", "--values", "--json"},
                                 {"diff", run / "a", run / "b"},
                                 {"verify", run / "b"},
                                 {"verify", run / "b", "--json"}}) {
    const auto answer = checkpoint(words);
    for (const char* bad : {"\x1b", "\u202e", "\u009b", "\x7f"})
      EXPECT_FALSE(has(answer.out + answer.err, bad)) << words[0];
  }
  EXPECT_TRUE(
      has(checkpoint({"show", run / "a"}).out, "model.\\x1b[2J\\x0a\\u{202e}\\x9b\\x7fgrün  F32"));
}

TEST(cli_checkpoint, a_folder_that_is_empty_missing_or_not_to_be_read) {
  PrivateFolder run;
  auto ls = checkpoint({"ls", run.path()});
  EXPECT_EQ(ls.code, 0);
  EXPECT_TRUE(has(ls.out, "no checkpoint in")) << ls.out;
  for (const char* verb : {"show", "verify"}) {
    const auto answer = checkpoint({verb, run.path()});
    EXPECT_EQ(answer.code, 2) << verb;
    EXPECT_TRUE(has(answer.err, "no checkpoint in")) << answer.err;
  }
  EXPECT_EQ(checkpoint({"prune", run.path(), "--keep", "1"}).code, 2);
  EXPECT_TRUE(has(checkpoint({"ls", run / "none"}).err, "there is no folder"));
  std::filesystem::permissions(run.path(), std::filesystem::perms::none);
  const Arguments as_others{"setpriv", "--inh-caps=-all",
                            "--bounding-set=-dac_override,-dac_read_search", "--"};
  for (const char* verb : {"ls", "show", "verify"}) {
    Arguments words = trireme({"checkpoint", verb, run.path()});
    if (::geteuid() == 0) words.insert(words.begin(), as_others.begin(), as_others.end());
    Command command(words);
    EXPECT_EQ(command.finish(), 1) << verb;
    EXPECT_TRUE(has(command.err, "Permission denied")) << command.err;
  }
  std::filesystem::permissions(run.path(), std::filesystem::perms::owner_all);
}

TEST(cli_checkpoint, usage_is_one_sentence_and_code_2) {
  PrivateFolder run;
  const std::string step = write_replicated(run.path(), 1);
  const std::pair<Arguments, const char*> rows[] = {
      {{}, "subcommand is required"},
      {{"ls"}, "RUN is required"},
      {{"ls", run.path(), "--jsn"}, "did you mean --json?"},
      {{"ls", step}, "is one step"},
      {{"show", run.path(), "--tensors", "none*"}, "no tensor of"},
      {{"diff", step}, "B is required"},
      {{"diff", step, step, "--atol", "-1"}, "--atol"},
      {{"prune", run.path()}, "--keep K is required"},
      {{"prune", run.path(), "--keep", "0"}, "--keep"},
      {{"lss", run.path()}, "did you mean ls?"},
  };
  for (const auto& [words, part] : rows) {
    const auto answer = checkpoint(words);
    EXPECT_EQ(answer.code, 2) << part;
    EXPECT_TRUE(has(answer.err, part)) << answer.err;
    EXPECT_EQ(answer.out, "");
  }
}

TEST(cli_checkpoint, a_reader_that_leaves_early_is_no_error) {
  PrivateFolder run;
  std::vector<WrittenTensor> tensors;  // more than a pipe takes
  for (int i = 0; i < 3000; ++i)
    tensors.push_back({"model.layer." + std::to_string(i), "F32", {1}, counted(1)});
  write_test_step(run.path(), 1, tensors);
  const std::string show = trireme_program() + " checkpoint show " + run.path();
  for (const std::string& line :
       {show + " | head -n 1", "trap '' PIPE; " + show + " | head -n 1"}) {
    const auto answer = through_shell(line);
    EXPECT_EQ(answer.code, 0);
    EXPECT_EQ(answer.err, "");
    EXPECT_EQ(answer.out, run / "step-00000001\n");
  }
  EXPECT_TRUE(has(through_shell(show + " > /dev/full").err, "cannot write to stdout"));
}

TEST(cli_checkpoint, every_json_is_one_document_that_python_reads) {
  PrivateFolder run;
  for (int64_t step : {1, 2, 3}) write_split(run.path(), step, 2);
  for (const std::string& words :
       {"ls " + run.path(), "show --values " + run.path(), "verify --all " + run.path(),
        "diff " + run.path() + " " + (run / "step-00000001"),
        "prune --keep 1 --dry-run " + run.path()}) {
    const auto answer = through_shell(trireme_program() + " checkpoint " + words +
                                      " --json | python3 -m json.tool");
    EXPECT_EQ(answer.code, 0) << words << "\n" << answer.err;
    EXPECT_EQ(answer.err, "");
  }
}

}  // namespace
}  // namespace trireme::testing::checkpoint_test
