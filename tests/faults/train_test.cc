// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"

// `trireme train` and `trireme generate` as a user starts them.
namespace trireme::testing::train_test {
namespace {

namespace fs = std::filesystem;

TEST(faults_train, the_mlp_example_makes_a_run_folder) {
  PrivateFolder folder;
  const std::string run = folder / "run";
  Command train(
      trireme({"train", trireme::testing::source_path("/examples/mlp.json"), "--nproc-per-node",
               "2", "--steps", "20", "--run-dir", run, "--metrics", folder / "m.jsonl"}));
  ASSERT_EQ(train.finish(), 0) << train.err;
  EXPECT_EQ(train.out, "");
  EXPECT_TRUE(train.left_nothing());

  const auto lines = json_lines(run + "/metrics.jsonl");
  ASSERT_GE(lines.size(), 22u);
  EXPECT_EQ(lines.front().at("event"), "start");
  EXPECT_EQ(lines.front().at("schema"), 1);
  EXPECT_EQ(lines.front().at("world"), 2);
  EXPECT_EQ(lines.front().at("seed"), 42);
  EXPECT_TRUE(lines.front().at("config_hash").is_string());
  EXPECT_EQ(lines.back().at("event"), "done");
  EXPECT_EQ(lines.back().at("steps"), 20);
  EXPECT_NE(train.err.find("CPU: rank "), std::string::npos) << train.err;
  EXPECT_LE(lines.back().at("cpu_idlest"), lines.back().at("cpu_busiest"));
  EXPECT_GT(lines.back().at("cpu_idlest"), 0);
  int steps = 0;
  for (const auto& line : lines) {
    if (line.contains("event")) continue;
    EXPECT_EQ(line.at("step"), ++steps);
    for (const char* key : {"loss", "grad_norm", "lr", "step_ms", "samples_per_s", "tokens_per_s"})
      EXPECT_TRUE(line.at(key).is_number()) << key << " in " << line;
  }
  EXPECT_EQ(steps, 20);
  EXPECT_EQ(step_folders(run), std::vector<std::string>{"step-00000020"});
  EXPECT_EQ(latest_step(run), 20);
  EXPECT_EQ(nlohmann::json::parse(read_file(run + "/config.json"), nullptr, true, true)
                .at("training")
                .at("steps"),
            20);
  EXPECT_EQ(read_file(folder / "m.jsonl"), read_file(run + "/metrics.jsonl"));
}

TEST(faults_train, backend_across_hosts_and_check_are_keys) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  auto run = [&](const std::string& name, const Arguments& sets) {
    Arguments words = {"train", config, "--nproc-per-node", "2", "--run-dir", folder / name};
    for (const auto& set : sets) words.insert(words.end(), {"--set", set});
    return trireme(words);
  };
  Command local(run("local", {}));
  ASSERT_EQ(local.finish(), 0) << local.err;
  EXPECT_EQ(local.err.find("collectives by"), std::string::npos) << local.err;
  Command hybrid(run("hybrid", {"comm.backend=hybrid", "comm.across=gloo", "comm.check=each",
                                "comm.timeout_s=60"}));
  ASSERT_EQ(hybrid.finish(), 0) << hybrid.err;
  EXPECT_NE(hybrid.err.find("collectives by hybrid"), std::string::npos) << hybrid.err;
  EXPECT_TRUE(hybrid.left_nothing());
  const auto losses = [&](const std::string& name) {
    std::vector<double> all;
    for (const auto& line : json_lines(folder / (name + "/metrics.jsonl")))
      if (!line.contains("event")) all.push_back(line.at("loss"));
    return all;
  };
  EXPECT_EQ(losses("hybrid").size(), 6u);
  EXPECT_EQ(losses("hybrid"), losses("local")) << "one host: its own sums";
  Command alone(run("wrong", {"comm.check=each"}));
  EXPECT_EQ(alone.finish(), 2);
  EXPECT_NE(alone.err.find("comm.check applies when comm.backend is gloo or mpi or hybrid"),
            std::string::npos)
      << alone.err;
}

TEST(faults_train, resume_goes_on_where_the_run_stopped) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command whole(trireme(
      {"train", config, "--nproc-per-node", "2", "--steps", "10", "--run-dir", folder / "whole"}));
  ASSERT_EQ(whole.finish(), 0) << whole.err;
  Command first(
      trireme({"train", config, "--nproc-per-node", "2", "--steps", "6", "--run-dir", run}));
  ASSERT_EQ(first.finish(), 0) << first.err;
  Command second(trireme({"train", "--resume", run, "--nproc-per-node", "2", "--steps", "10"}));
  ASSERT_EQ(second.finish(), 0) << second.err;
  EXPECT_EQ(steps_in(run + "/metrics.jsonl"),
            (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(json_lines(run + "/metrics.jsonl").back().at("steps"), 10);
  // Weights, momentum and the place in the data came back: the same bytes as in one go.
  EXPECT_EQ(read_file(run + "/step-00000010/model.safetensors"),
            read_file(folder / "whole/step-00000010/model.safetensors"));
}

TEST(faults_train, resume_without_a_path_takes_the_newest_run_of_the_configuration) {
  Command first(trireme({"train", "tiny.json"}));  // fails: the file is not there yet
  EXPECT_EQ(first.finish(), 2) << first.err;
  PrivateFolder folder;
  write(folder / "tiny.json", kTinyMlp);
  Command one(trireme({"train", "tiny.json", "--nproc-per-node", "2"}), {{}, folder.path()});
  ASSERT_EQ(one.finish(), 0) << one.err;
  Command two(trireme({"train", "tiny.json", "--nproc-per-node", "2", "--steps", "9", "--resume"}),
              {{}, folder.path()});
  ASSERT_EQ(two.finish(), 0) << two.err;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(folder / "runs/tiny")) runs.push_back(entry);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(latest_step(runs[0].string()), 9);
}

TEST(faults_train, later_files_and_set_override) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp),
                    more = write(folder / "more.json", R"({"training": {"steps": 3, "seed": 7}})"),
                    run = folder / "run";
  Command train(trireme({"train", config, more, "--set", "training.steps=2", "--run-dir", run}));
  ASSERT_EQ(train.finish(), 0) << train.err;
  const auto lines = json_lines(run + "/metrics.jsonl");
  EXPECT_EQ(lines.front().at("seed"), 7);
  EXPECT_EQ(lines.front().at("world"), 1);
  EXPECT_EQ(lines.back().at("steps"), 2);
}

TEST(faults_train, generate_prints_the_prompt_and_as_many_bytes_as_asked) {
  PrivateFolder folder;
  write(folder / "gpt.json", kTinyGpt);
  write(folder / "corpus.txt",
        std::string(40, 'a') + "template <class T> struct S;\n" + std::string(80, 'b'));
  Command train(trireme({"train", "gpt.json", "--nproc-per-node", "2", "--run-dir", "run"}),
                {{}, folder.path()});
  ASSERT_EQ(train.finish(), 0) << train.err;
  const std::string prompt = "template <";
  for (const char* path : {"run", "run/step-00000004"}) {
    Command generate(trireme({"generate", path, "--prompt", prompt, "--tokens", "25"}),
                     {{}, folder.path()});
    ASSERT_EQ(generate.finish(), 0) << generate.err;
    EXPECT_EQ(generate.out.substr(0, prompt.size()), prompt);
    EXPECT_EQ(generate.out.size(), prompt.size() + 25 + 1);  // and a newline
    EXPECT_EQ(generate.err, "");
  }
}

TEST(faults_train, json_is_written_to_a_file_or_to_stdout) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  Command shown(trireme({"config", "show", config, "--json", "-"}));
  ASSERT_EQ(shown.finish(), 0) << shown.err;
  EXPECT_EQ(nlohmann::json::parse(shown.out, nullptr, true, true).at("training").at("steps"), 6);
  Command bench(trireme({"bench", "all_reduce", "--nproc-per-node", "2", "-b", "4", "-e", "1K",
                         "-f", "16", "--rounds", "2", "--json", folder / "b.jsonl"}));
  ASSERT_EQ(bench.finish(), 0) << bench.err;
  std::vector<int64_t> sizes;
  for (const auto& row : json_lines(folder / "b.jsonl")) {
    if (row.contains("event")) continue;
    for (const char* key : {"op", "backend", "ranks", "bytes", "dtype", "memory", "time_us",
                            "algbw", "busbw", "wrong"})
      EXPECT_TRUE(row.contains(key)) << key << " in " << row;
    EXPECT_EQ(row.at("wrong"), 0);
    sizes.push_back(row.at("bytes"));
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 64, 1024}));
}

TEST(faults_train, a_job_leaves_no_descriptor_and_no_shared_memory_file_behind) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  auto shared_files = [] {
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/dev/shm", error))
      if (const auto name = entry.path().filename().string();
          name.find("trireme") != std::string::npos)
        names.insert(name);
    return names;
  };
  const auto descriptors = open_descriptors();
  const auto files = shared_files();
  {
    Command train(endless_job(config, folder / "run"), {kSlowSteps, {}});
    ASSERT_TRUE(train.wait_for("step:")) << train.err;
    for (int rank : {0, 1}) {
      const pid_t worker = train.rank(rank);
      ASSERT_GT(worker, 0);
      // Windows of shared memory are mapped and closed: nothing to inherit, nothing to run out of.
      for (int fd : numbers_in("/proc/" + std::to_string(worker) + "/fd")) {
        std::error_code error;
        const auto target = fs::read_symlink(
            "/proc/" + std::to_string(worker) + "/fd/" + std::to_string(fd), error);
        EXPECT_EQ(target.string().find("memfd:"), std::string::npos) << target;
      }
    }
    train.send(SIGINT);
    EXPECT_EQ(train.finish(), 130) << train.err;
    EXPECT_TRUE(train.left_nothing());
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  // Those of other tests' jobs come and go; what this one has left would stay.
  for (const std::string& name : shared_files()) {
    if (files.contains(name)) continue;
    const auto is_gone = [&] { return !shared_files().contains(name); };
    EXPECT_TRUE(eventually(is_gone, std::chrono::seconds(60))) << name;
  }
}

}  // namespace
}  // namespace trireme::testing::train_test
