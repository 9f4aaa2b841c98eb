// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <typeinfo>
#include <vector>

#include "tests/train/run_folders.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/trainer.h"

// What differs between two runs of which one key has another value.
namespace key_effects_test {

using namespace trireme;
using namespace trireme::testing;

enum class Seen {
  weights,    // after three steps, in bits
  rates,      // of the first 40 steps
  steps,      // that the run will have
  held_out,   // samples of it, and what is evaluated
  scale,      // of the loss, after three steps
  words,      // of the run's start line: sharding, precision, recompute, exchange
  batches,    // micro × accumulation
  files,      // of the run's folder
  threads,    // of the loader
  refused,    // the second value, by its name: there is one that this run can have
  elsewhere,  // by the test that `a` names
};

struct Row {
  const char* key;
  Seen seen;
  std::string a, b;  // two values; "": not given
  Sets beside = {};
  std::string base = "mlp";  // or gpt, documents
  int ranks = 1;
  Sets with_b = {};  // what means something beside the second value alone
};

inline int loader_threads() {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    found += name == "trireme-data";
  }
  return found;
}

class Effects {
 public:
  std::string of(const Row& row, const std::string& value) {
    Sets sets = row.beside;
    if (!value.empty()) sets.push_back(std::string(row.key) + "=" + value);
    std::string seen;
    run_threads(
        row.ranks,
        [&](Group g) {
          const std::string mine = look(row, config_of(row, sets), g);
          if (g.rank() == 0) seen = mine;
        },
        std::chrono::seconds(120));
    return seen;
  }

 private:
  Config config_of(const Row& row, Sets sets) {
    if (row.base == "mlp") return digits("mlp", sets);
    if (row.base == "gpt") return tiny_gpt(corpus_, sets);
    const std::string section = "data_efficiency.data_sampling.dynamic_batching.";
    Sets all = {"data.type=documents", "data_efficiency.enabled=true",
                "data_efficiency.data_sampling.enabled=true", section + "enabled=true",
                section + "max_tokens=96"};
    all.insert(all.end(), sets.begin(), sets.end());
    return tiny_gpt(documents_, all);
  }

  std::string look(const Row& row, const Config& config, Group g) {
    if (row.seen == Seen::files) return files(config, g);
    trireme::Run run = build_run(config, g);
    std::ostringstream text;
    switch (row.seen) {
      case Seen::rates:
        for (int64_t s = 0; s < 40; ++s) text << run.lr->lr_at(s) << " ";
        break;
      case Seen::steps:
        text << run.steps;
        break;
      case Seen::held_out: {
        const Evaluation e = evaluate(run);
        text << (run.held_out ? run.held_out->size() : 0) << " " << e.weight;
        break;
      }
      case Seen::words:
        for (const std::string& part :
             run.setup)  // a rate is measured, and so never twice the same
          if (part.find("bfloat16 products") == std::string::npos) text << part;
        text << run.exchange->text();
        for (const auto& feature : run.features) text << typeid(*feature).name();
        break;
      case Seen::batches:
        text << run.batches.micro << " " << run.batches.accumulation;
        break;
      default: {
        start_data(run, config);
        const int threads = loader_threads();
        for (int i = 0; i < 3; ++i) train_step(run);
        if (row.seen == Seen::threads) text << threads;
        if (row.seen == Seen::scale) text << run.scaling->loss_scale();
        if (row.seen == Seen::weights)
          for (const auto& [name, w] : weights_of(run)) {
            const at::Tensor flat = w.contiguous();
            text << name;
            text.write(static_cast<const char*>(flat.data_ptr()),
                       static_cast<std::streamsize>(flat.nbytes()));
          }
      }
    }
    return text.str();
  }

  std::string files(const Config& config, Group g) {
    const std::string dir = folder_ / ("run" + std::to_string(runs_++));
    std::filesystem::create_directories(dir);
    TrainOptions options;
    options.run_dir = dir;
    train(config, g, options);
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir))
      names.insert(entry.path().filename());
    std::string text;
    for (const auto& name : names) text += name + " ";
    if (config.has("monitor.metrics") &&
        std::filesystem::exists(config.get_string("monitor.metrics")))
      text += "metrics";
    return text;
  }

  PrivateFolder folder_;
  std::string corpus_ = write_corpus(folder_), documents_ = write_documents();
  int runs_ = 0;

  std::string write_documents() {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      for (int k = 0; k <= i * 7 % 11; ++k) text += static_cast<char>('a' + (i + k) % 26);
      text += "\n\n";
    }
    write_file_atomic(folder_ / "documents.txt", text);
    return folder_ / "documents.txt";
  }
};

inline Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Row gpt(Row row) {
  row.base = "gpt";
  return row;
}
inline Row on(int ranks, Row row) {
  row.ranks = ranks;
  return row;
}
inline Row named(const char* key, const char* test) { return {key, Seen::elsewhere, test, ""}; }

}  // namespace key_effects_test
