// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/faults/job.h"
#include "tests/interop/weight_files.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"

// Runs of examples/qa with a tiny encoder, and what they report.
namespace trireme::testing {

using Sets = std::vector<std::string>;
using interop::testing::Floats;
using interop::testing::safetensors_text;

inline std::string qa_program() { return build_path("/examples/qa"); }
inline std::string qa_config(const std::string& name) {
  return source_path("/examples/qa/" + name + ".json");
}

/// Two blocks of width 16; 48 drawn questions, three steps an epoch.
inline const Sets kTinyEncoder = {"amp.enabled=false",        "train_batch_size=16",
                                  "optimizer.params.lr=1e-3", "qa.batch_split=4",
                                  "qa.vocab_size=128",        "qa.hidden_size=16",
                                  "qa.num_hidden_layers=2",   "qa.num_attention_heads=2",
                                  "qa.intermediate_size=32",  "qa.max_position_embeddings=32"};
inline const Sets kDrawn = {"qa.dummy_dataset_len=48", "qa.max_seq_len=16", "qa.max_question_len=4",
                            "qa.warmup_coef=0.5"};

/// The program with a configuration and these settings, without its launcher's flags.
inline Arguments qa_words(const std::string& run, const Sets& sets,
                          const std::string& config = "dummy") {
  Arguments words{qa_program(), qa_config(config), "--run-dir", run};
  std::vector<Sets> all{kTinyEncoder};
  if (config == "dummy") all.push_back(kDrawn);
  all.push_back(sets);
  for (const Sets& list : all)
    for (const std::string& set : list) words.insert(words.end(), {"--set", set});
  return words;
}

struct QaRun {
  std::string folder, said;
  std::vector<double> losses, rates;
  std::vector<std::map<std::string, double>> evaluations;
};

class QaRuns : public ::testing::Test {
 protected:
  static constexpr Duration kPatience = std::chrono::seconds(60);

  void SetUp() override {
    if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  }

  static Arguments words(int ranks, const std::string& run, const Sets& sets,
                         const std::string& config = "dummy") {
    Arguments all = qa_words(run, sets, config);
    all.insert(all.end(), {"--nproc-per-node", std::to_string(ranks)});
    return all;
  }
  QaRun run_of(const Arguments& words, const std::string& folder) const {
    Command job(words, {{}, folder_.path()});
    EXPECT_EQ(job.finish(kPatience), 0) << job.out << job.err;
    QaRun run{folder, job.out + job.err, {}, {}, {}};
    for (const auto& line : json_lines(folder + "/metrics.jsonl")) {
      const std::string event = line.value("event", "");
      if (event == "eval") {
        run.evaluations.emplace_back();
        for (const auto& [name, value] : line.items())
          if (value.is_number()) run.evaluations.back()[name] = value;
      }
      if (!event.empty()) continue;
      run.losses.push_back(line.at("loss"));
      run.rates.push_back(line.at("lr"));
    }
    return run;
  }
  QaRun finished(const std::string& name, int ranks, const Sets& sets = {},
                 const std::string& config = "dummy") const {
    return run_of(words(ranks, folder_ / name, sets, config), folder_ / name);
  }
  /// In a folder of its own, or with "" in that of the run.
  QaRun resumed(const std::string& name, int ranks, const std::string& from,
                const Sets& sets = {}) const {
    const std::string run =
        name.empty() ? std::filesystem::path(from).parent_path().string() : folder_ / name;
    Arguments words{qa_program(), "--resume", from, "--nproc-per-node", std::to_string(ranks)};
    if (!name.empty()) words.insert(words.end(), {"--run-dir", run});
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return run_of(words, run);
  }

  /// The tensors of the tiny encoder, by Hugging Face's names.
  static std::vector<Floats> bert_of(const std::string& gamma, const std::string& beta) {
    std::vector<Floats> all;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      all.push_back({"bert." + name, std::move(shape), static_cast<float>(all.size()), 1e-3f});
    };
    const auto norm = [&](const std::string& at) {
      add(at + ".LayerNorm." + gamma, {16});
      add(at + ".LayerNorm." + beta, {16});
    };
    const auto linear = [&](const std::string& at, int64_t in, int64_t out) {
      add(at + ".weight", {out, in});
      add(at + ".bias", {out});
    };
    add("embeddings.word_embeddings.weight", {128, 16});
    add("embeddings.position_embeddings.weight", {32, 16});
    add("embeddings.token_type_embeddings.weight", {2, 16});
    norm("embeddings");
    for (const std::string layer : {"encoder.layer.0.", "encoder.layer.1."}) {
      for (const char* of : {"query", "key", "value"})
        linear(layer + "attention.self." + of, 16, 16);
      linear(layer + "attention.output.dense", 16, 16);
      norm(layer + "attention.output");
      linear(layer + "intermediate.dense", 16, 32);
      linear(layer + "output.dense", 32, 16);
      norm(layer + "output");
    }
    linear("pooler.dense", 16, 16);
    return all;
  }

  PrivateFolder folder_;
};

}  // namespace trireme::testing
