// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/ports.h"

// Wrong input: one sentence that says what, where and what to do; 2 for what the user typed, 1 for
// the rest; no hang, nobody left. On two ranks, where the second must not repeat the first.
namespace trireme::testing::bad_input_test {
namespace {

/// A folder with tiny.json and gpt.json; commands run in it.
class faults_bad_input : public ::testing::Test {
 protected:
  void SetUp() override {
    write(folder_ / "tiny.json", kTinyMlp);
    write(folder_ / "gpt.json", kTinyGpt);
    write(folder_ / "corpus.txt", std::string(400, 'x'));
  }
  Command start(Arguments words, const Environment& env = {}) {
    return Command(trireme(std::move(words)), {env, folder_.path()});
  }
  /// `trireme train CONFIG --set …` on two ranks.
  void expect_train(const std::string& config, const Arguments& sets, int code,
                    const std::vector<std::string>& words, const Environment& env = {}) {
    Arguments all{"train", config, "--nproc-per-node", "2", "--run-dir", "run"};
    for (const auto& set : sets) all.insert(all.end(), {"--set", set});
    Command train(trireme(all), {env, folder_.path()});
    expect_refusal(train, code, words);
  }
  /// A run folder with one checkpoint.
  void train_once() {
    Command train = start({"train", "tiny.json", "--nproc-per-node", "2", "--run-dir", "run"});
    ASSERT_EQ(train.finish(), 0) << train.err;
  }
  std::string path(const std::string& name) const { return folder_ / name; }

  PrivateFolder folder_;
};

// ── the command line ────────────────────────────────────────────────────────────────────────────

TEST_F(faults_bad_input, no_configuration) {
  Command train = start({"train"});
  expect_refusal(train, 2, {"name a configuration", "trireme train examples/gpt.json"});
}

TEST_F(faults_bad_input, a_configuration_that_is_not_there) {
  Command train = start({"train", "absent.json"});
  expect_refusal(train, 2, {"absent.json"});
}

TEST_F(faults_bad_input, an_unknown_flag_names_the_nearest) {
  Command train = start({"train", "tiny.json", "--metric", "m.jsonl"});
  expect_refusal(train, 2, {"--metric", "did you mean --metrics?"});
}

TEST_F(faults_bad_input, an_unknown_flag_of_run_names_the_nearest) {
  Command run = start({"run", "--nproc-per-nod", "2", "true"});
  expect_refusal(run, 2, {"--nproc-per-nod", "did you mean --nproc-per-node?"});
}

TEST_F(faults_bad_input, an_unknown_verb_names_the_nearest) {
  Command train = start({"trian", "tiny.json"});
  expect_refusal(train, 2, {"trian", "did you mean 'train'?"});
}

TEST_F(faults_bad_input, a_program_that_is_not_there) {
  Command run = start({"run", "./absent"});
  expect_refusal(run, 2, {"./absent"});
}

TEST_F(faults_bad_input, a_rank_count_that_is_no_number) {
  Command train = start({"train", "tiny.json", "--nproc-per-node", "two"});
  expect_refusal(train, 2, {"--nproc-per-node=two"});
}

TEST_F(faults_bad_input, a_port_in_use) {
  const TakenPort taken;
  ASSERT_GT(taken.port(), 0);
  const auto port = std::to_string(taken.port());
  Command train = start(
      {"train", "tiny.json", "--nproc-per-node", "2", "--master-port", port, "--run-dir", "run"});
  expect_refusal(train, 1, {port, "Address already in use", "Choose another --master-port"});
}

// ── the configuration ───────────────────────────────────────────────────────────────────────────

TEST_F(faults_bad_input, an_unknown_key_names_the_nearest) {
  write(path("typo.json"), "{\n  \"training\": {\"stepz\": 3}\n}");
  Command train = start({"train", "tiny.json", "typo.json"});
  expect_refusal(train, 2, {"typo.json:2", "training.stepz", "training.steps"});
}

TEST_F(faults_bad_input, a_value_of_the_wrong_type) {
  write(path("typo.json"), "{\n  \"training\": {\"steps\": \"many\"}\n}");
  Command train = start({"train", "tiny.json", "typo.json"});
  expect_refusal(train, 2, {"typo.json:2", "training.steps", "an integer", "many"});
}

TEST_F(faults_bad_input, text_that_is_no_JSON_is_shown_with_its_line) {
  write(path("broken.json"), "{\n  \"training\": {\n");
  Command train = start({"train", "broken.json"});
  expect_refusal(train, 2, {"broken.json:"});
}

TEST_F(faults_bad_input, a_batch_that_does_not_divide) {
  expect_train("tiny.json", {"train_batch_size=7"}, 2, {"train_batch_size", "7", "2"});
}

TEST_F(faults_bad_input, a_corpus_for_a_model_that_reads_digits) {
  expect_train("tiny.json", {"data.type=corpus"}, 2, {"data.type", "corpus", "mlp"});
}

// ── data ────────────────────────────────────────────────────────────────────────────────────────

TEST_F(faults_bad_input, a_corpus_that_is_not_there) {
  expect_train("gpt.json", {"data.paths=[\"absent.txt\"]"}, 2,
               {"absent.txt", "does not exist", "check the path"});
}

TEST_F(faults_bad_input, an_empty_corpus) {
  write(path("corpus.txt"), "");
  expect_train("gpt.json", {}, 2, {"corpus.txt", "is empty", "give files with text"});
}

TEST_F(faults_bad_input, a_corpus_shorter_than_a_context) {
  write(path("corpus.txt"), "12345");
  expect_train("gpt.json", {}, 2, {"corpus.txt", "bytes", "give more text or a shorter context"});
}

TEST_F(faults_bad_input, a_file_that_cannot_be_read) {
  std::filesystem::permissions(path("corpus.txt"), std::filesystem::perms::none);
  Arguments words = trireme({"train", "gpt.json", "--nproc-per-node", "2", "--run-dir", "run"});
  if (::geteuid() == 0) {  // root reads everything, unless it gives that up
    const Arguments as_others{"setpriv", "--inh-caps=-all",
                              "--bounding-set=-dac_override,-dac_read_search", "--"};
    words.insert(words.begin(), as_others.begin(), as_others.end());
  }
  Command train(words, {{}, folder_.path()});
  expect_refusal(train, 1, {"corpus.txt", "Permission denied"});
}

class faults_bad_idx : public faults_bad_input {
 protected:
  static std::string header(uint32_t magic, std::vector<uint32_t> sizes) {
    std::string text;
    sizes.insert(sizes.begin(), magic);
    for (uint32_t number : sizes)
      for (int shift : {24, 16, 8, 0}) text += static_cast<char>(number >> shift);
    return text;
  }
  void write_idx(const std::string& images) {
    std::filesystem::create_directory(path("idx"));
    const std::string labels = header(0x801, {4}) + std::string(4, '\1');
    for (const char* part : {"train", "t10k"}) {
      write(path("idx/") + part + "-images-idx3-ubyte", images);
      write(path("idx/") + part + "-labels-idx1-ubyte", labels);
    }
  }
  void expect_idx(int code, const std::vector<std::string>& words) {
    expect_train("tiny.json",
                 {"data.type=mnist", "data.path=\"idx\"", "model.inputs=784", "model.outputs=10"},
                 code, words);
  }
};

TEST_F(faults_bad_idx, a_wrong_magic) {
  write_idx(header(0x804, {4, 28, 28}) + std::string(4 * 784, '\7'));
  expect_idx(1, {"train-images-idx3-ubyte", "0x00000804", "0x00000803"});
}

TEST_F(faults_bad_idx, a_truncated_file) {
  write_idx(header(0x803, {4, 28, 28}) + std::string(3 * 784, '\7'));
  expect_idx(1, {"train-images-idx3-ubyte", "is truncated"});
}

TEST_F(faults_bad_idx, a_folder_without_the_files) {
  std::filesystem::create_directory(path("idx"));
  expect_idx(2, {"train-images-idx3-ubyte", "does not exist", "data.path"});
}

TEST_F(faults_bad_idx, whole_files_train) {
  write_idx(header(0x803, {4, 28, 28}) + std::string(4 * 784, '\7'));
  Command train =
      start({"train", "tiny.json", "--set", "data.type=mnist", "--set", "data.path=\"idx\"",
             "--set", "model.inputs=784", "--set", "model.outputs=10", "--run-dir", "run"});
  EXPECT_EQ(train.finish(), 0) << train.err;
}

// ── training ────────────────────────────────────────────────────────────────────────────────────

TEST_F(faults_bad_input, a_loss_that_is_not_a_number) {
  expect_train("tiny.json", {"optimizer.params.lr=1e30", "training.steps=50", "data.type=dummy"}, 1,
               {"step", "Lower the learning rate"});
}

TEST_F(faults_bad_input, an_exploding_step_is_never_saved) {
  Command train = start({"train", "tiny.json", "--nproc-per-node", "2", "--run-dir", "run", "--set",
                         "optimizer.params.lr=1e30", "--steps", "50"});
  EXPECT_EQ(train.finish(), 1) << train.err;
  EXPECT_TRUE(step_folders(path("run")).empty());
}

TEST_F(faults_bad_input, a_run_folder_that_cannot_be_made) {
  write(path("file"), "");
  Command train = start({"train", "tiny.json", "--run-dir", "file/run"});
  expect_refusal(train, 1, {"file/run", "file: it is there and not a folder"});
}

// ── checkpoints ─────────────────────────────────────────────────────────────────────────────────

TEST_F(faults_bad_input, a_truncated_checkpoint) {
  train_once();
  const std::string model = path("run/step-00000006/model.safetensors");
  std::filesystem::resize_file(model, std::filesystem::file_size(model) - 10);
  Command again = start({"train", "--resume", "run", "--nproc-per-node", "2", "--steps", "9"});
  expect_refusal(again, 1, {"model.safetensors", "bytes", "There is no good checkpoint before it"});
}

TEST_F(faults_bad_input, a_flipped_byte_names_the_checkpoint_to_take_instead) {
  Command train = start({"train", "tiny.json", "--nproc-per-node", "2", "--run-dir", "run", "--set",
                         "checkpoint.every=3"});
  ASSERT_EQ(train.finish(), 0) << train.err;
  const std::string model = path("run/step-00000006/model.safetensors");
  std::string bytes = read_file(model);
  bytes[bytes.size() - 5] ^= 1;
  write(model, bytes);
  Command again = start({"train", "--resume", "run", "--nproc-per-node", "2", "--steps", "9"});
  expect_refusal(again, 1, {"checksum", "run/step-00000003"});
  Command older =
      start({"train", "--resume", "run/step-00000003", "--nproc-per-node", "2", "--steps", "5"});
  EXPECT_EQ(older.finish(), 0) << older.err;
  EXPECT_EQ(latest_step(path("run")), 5);
}

TEST_F(faults_bad_input, a_newer_checkpoint_names_both_versions) {
  train_once();
  const std::string index = path("run/step-00000006/trireme.index.json");
  std::string text = read_file(index);
  const std::string version = "\"version\": 3,";
  ASSERT_NE(text.find(version), std::string::npos);
  text.replace(text.find(version), version.size(), "\"version\": 7,");
  write(index, text);
  Command again = start({"train", "--resume", "run", "--nproc-per-node", "2", "--steps", "9"});
  expect_refusal(again, 2, {"trireme.index.json", "version 7", "version 3", "newer trireme"});
}

TEST_F(faults_bad_input, a_checkpoint_of_another_model) {
  train_once();
  Command again = start({"train", "tiny.json", "--resume", "run", "--nproc-per-node", "2",
                         "--run-dir", "other", "--set", "model.hidden=[9]", "--steps", "9"});
  expect_refusal(again, 2, {"step-00000006", "shape", "another model"});
}

TEST_F(faults_bad_input, generate_needs_a_run) {
  Command generate = start({"generate", "nowhere"});
  expect_refusal(generate, 2, {"nowhere", "folder of a run"});
}

TEST_F(faults_bad_input, generate_needs_a_gpt) {
  train_once();
  Command generate = start({"generate", "run"});
  expect_refusal(generate, 2, {"mlp", "only gpt writes text"});
}

// ── the world ───────────────────────────────────────────────────────────────────────────────────

/// A rank that its own launcher starts: the worker itself, with torchrun's variables.
class faults_bad_world : public faults_bad_input {
 protected:
  void SetUp() override {
    faults_bad_input::SetUp();
    std::filesystem::create_directory(path("run"));
    // The job is named after its port: one that no other test has.
    port_ = std::min(free_tcp_port(), 65000);
  }
  Arguments worker(const std::string& config) const {
    return {worker_program(), "train", "--config", path(config), "--run-dir", path("run")};
  }
  Environment rank(int rank, Environment more = {}) const {
    more.insert({{"RANK", std::to_string(rank)},
                 {"WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "127.0.0.1"},
                 {"MASTER_PORT", std::to_string(port_)}});
    return more;
  }
  int port_ = 0;
};

TEST_F(faults_bad_world, a_world_that_never_completes_names_who_is_missing) {
  write(path("short.json"), tiny_mlp_with(R"({"comm": {"timeout_s": 1}})"));
  Command alone(worker("short.json"), {rank(0), {}});
  const auto start = Clock::now();
  expect_refusal(alone, 1, {"1 of 2 ranks joined", "missing: rank 1"});
  EXPECT_LT(seconds_since(start), 1 + 5 * kSlack);
}

TEST_F(faults_bad_world, the_one_who_comes_alone_without_rank_0_says_so) {
  write(path("short.json"), tiny_mlp_with(R"({"comm": {"timeout_s": 1}})"));
  Command alone(worker("short.json"), {rank(1), {}});
  expect_refusal(alone, 1, {"rank 0", "running"});
}

TEST_F(faults_bad_world, a_wrong_secret) {
  write(path("short.json"), tiny_mlp_with(R"({"comm": {"timeout_s": 3}})"));
  for (const char* name : {"one", "two"}) {
    write(path(name), std::string(64, name[0]) + "\n");
    std::filesystem::permissions(path(name), std::filesystem::perms::owner_read);
  }
  // One rank on a host, as far as they know: they meet over TCP.
  Command rank0(worker("short.json"),
                {rank(0, {{"TRIREME_SECRET_FILE", path("one")}, {"LOCAL_WORLD_SIZE", "1"}}), {}});
  Command rank1(worker("short.json"),
                {rank(1, {{"TRIREME_SECRET_FILE", path("two")}, {"LOCAL_WORLD_SIZE", "1"}}), {}});
  expect_refusal(rank1, 2, {"wrong secret", "TRIREME_SECRET_FILE"});
  expect_refusal(rank0, 1, {"missing: rank 1", "wrong secret"});
}

TEST_F(faults_bad_world, no_secret_across_hosts) {
  Command alone(worker("tiny.json"),
                {rank(0, {{"LOCAL_WORLD_SIZE", "1"}, {"HOME", path("run")}}), {}});
  expect_refusal(alone, 2, {"secret", "LOCAL_WORLD_SIZE=2"});
}

TEST_F(faults_bad_world, variables_that_contradict_each_other) {
  Command alone(worker("tiny.json"), {rank(2), {}});
  expect_refusal(alone, 2, {"RANK=2", "WORLD_SIZE=2"});
}

}  // namespace
}  // namespace trireme::testing::bad_input_test
