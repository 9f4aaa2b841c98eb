// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/comm/start/run.h"
#include "trireme/config/config.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/train/run.h"
#include "trireme/train/step.h"

// Small training runs for tests/train and tests/parity: configurations of which a step takes
// milliseconds, runs of them on threads, and comparisons of what came out.
namespace trireme::testing {

using Sets = std::vector<std::string>;

/// 16 KiB of text that a model can learn something from, in one file (so that its held-out part is
/// the last part of the bytes, whatever the folder is called).
inline std::string write_corpus(const PrivateFolder& folder, const std::string& name = "text.txt") {
  static constexpr const char* kWords[] = {"oar",  "bank", "hull", "keel",   "prow",
                                           "mast", "sail", "helm", "stroke", "row"};
  std::string text;
  for (uint32_t i = 1; text.size() < (16u << 10); i = i * 1664525u + 1013904223u)
    text += std::string(kWords[(i >> 16) % 10]) + ((i >> 24) % 7 ? " " : "\n");
  write_file_atomic(folder / name, text);
  return folder / name;
}

/// A GPT of two blocks on text: dropout, AdamW with decay, clipping that bites, a cosine.
inline Config tiny_gpt(const std::string& corpus, const Sets& sets = {}) {
  return Config::from_text("gpt.json",
                           R"({
    "model": {"type": "gpt", "layers": 2, "width": 32, "heads": 2, "context": 16, "dropout": 0.1},
    "data": {"type": "corpus", "paths": [")" +
                               corpus + R"("], "extensions": []},
    "train_batch_size": 16,
    "gradient_clipping": 0.5,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}},
    "scheduler": {"type": "cosine", "params": {"warmup_num_steps": 2}},
    "training": {"steps": 6}
  })",
                           sets);
}

/// An MLP or the Net on rendered digits: SGD with momentum and decay.
inline Config digits(const std::string& model, const Sets& sets = {}) {
  const std::string hidden = model == "mlp" ? R"(, "hidden": [32])" : "";
  return Config::from_text(model + ".json",
                           R"({
    "model": {"type": ")" + model +
                               "\"" + hidden + R"(},
    "data": {"type": "digits", "train_samples": 256, "validation_samples": 50},
    "train_batch_size": 16,
    "gradient_clipping": 0,
    "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}},
    "training": {"steps": 6}
  })",
                           sets);
}

/// Copies of a model's parameters in name order of their registration. ZeRO-3: on every rank.
inline NamedTensors weights_of(const Run& run) {
  std::optional<FullySharded::Gathered> whole;
  if (auto* sharded = dynamic_cast<FullySharded*>(run.gradients->sharded()))
    whole.emplace(*sharded);
  NamedTensors all;
  for (const auto& item : run.model->named_parameters())
    all.emplace_back(item.key(), item.value().detach().clone());
  return all;
}

/// The mean gradient of the step that was just done.
inline NamedTensors gradients_of(const Run& run, int64_t weight) {
  NamedTensors all;
  for (const auto& [name, p] : run.gradients->parameters())
    if (p.grad().defined())  // under ZeRO ranks have shards of them
      all.emplace_back(name, p.grad().detach().clone() / static_cast<double>(weight));
  return all;
}

/// What a rank's run came to.
struct Trained {
  NamedTensors first_gradients, weights;
  std::vector<double> losses, norms;
};

inline Trained train_on(const Config& config, Group group, int64_t steps) {
  Run run = build_run(config, group);
  start_data(run, config);
  Trained result;
  for (int64_t i = 0; i < steps; ++i) {
    const StepReport r = train_step(run);
    if (i == 0) result.first_gradients = gradients_of(run, r.weight);
    result.losses.push_back(r.loss);
    result.norms.push_back(r.grad_norm);
  }
  result.weights = weights_of(run);
  return result;
}

/// The first tensor that differs in a bit (or in shape or name); "" when all are the same.
inline std::string first_difference(const NamedTensors& a, const NamedTensors& b) {
  if (a.size() != b.size()) return "another number of tensors";
  for (size_t i = 0; i < a.size(); ++i) {
    const at::Tensor x = a[i].second.contiguous(), y = b[i].second.contiguous();
    if (a[i].first != b[i].first || x.sizes() != y.sizes() || x.scalar_type() != y.scalar_type() ||
        std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) != 0)
      return a[i].first;
  }
  return "";
}

/// Largest ‖a - b‖ / ‖b‖ over the tensors.
inline double relative_distance(const NamedTensors& a, const NamedTensors& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const at::Tensor x = a[i].second.to(at::kDouble), y = b[i].second.to(at::kDouble);
    most = std::max(most, (x - y).norm().item<double>() / (y.norm().item<double>() + 1e-30));
  }
  return most;
}

/// n thread ranks train; each one's result.
inline std::vector<Trained> train_on_threads(int n, const Config& config, int64_t steps) {
  std::vector<Trained> all(static_cast<size_t>(n));
  run_threads(
      n, [&](Group g) { all[static_cast<size_t>(g.rank())] = train_on(config, g, steps); },
      std::chrono::seconds(60));
  return all;
}

}  // namespace trireme::testing
