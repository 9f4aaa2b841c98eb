// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/models/bert.h"
#include "trireme/models/question_losses.h"

// The question-answering network and its losses against PyTorch's own modules, in float64.
namespace trireme::question_reference_test {
namespace {

using trireme::testing::Command;
using trireme::testing::source_path;

constexpr int64_t kLength = 7;
constexpr double kSmoothing = 0.1;

/// The network of torch_questions.py, with its formula's parameters.
struct Net {
  BertOptions options{.vocab = 23,
                      .width = 12,
                      .layers = 2,
                      .heads = 3,
                      .inner = 20,
                      .positions = 9,
                      .dropout = 0,
                      .attention_dropout = 0};
  BertEmbeddings embeddings{options};
  BertLayer first{options}, second{options};
  BertPooler pooler{options};
  QuestionHeads heads{options};
  std::map<std::string, at::Tensor> parameters;  // sorted by name

  Net() {
    add(embeddings, "bert.embeddings.");
    add(first, "bert.encoder.layer.0.");
    add(second, "bert.encoder.layer.1.");
    add(pooler, "bert.pooler.");
    add(heads, "heads.");
    const at::NoGradGuard no_grad;
    int64_t number = 0;
    for (auto& [name, p] : parameters) {
      const at::Tensor x = at::arange(p.numel(), at::kDouble).mul(0.7).add(number++).sin().mul(0.3);
      p.copy_(x.view_as(p).add(name.ends_with("LayerNorm.weight") ? 1 : 0));
    }
  }

  void add(torch::nn::Module& part, const std::string& path) {
    part.to(at::kDouble);
    for (const auto& item : part.named_parameters())
      parameters.emplace(path + item.key(), item.value());
  }

  std::vector<at::Tensor> forward(const at::Tensor& ids, const at::Tensor& types,
                                  const at::Tensor& seen) {
    const at::Tensor mask = bert_mask(seen);
    const at::Tensor hidden =
        second.forward(first.forward(embeddings.forward(ids, types), mask), mask);
    return heads.forward(hidden, pooler.forward(hidden));
  }
};

void expect_close(const at::Tensor& ours, const nlohmann::json& theirs, const std::string& what) {
  const auto values = theirs.get<std::vector<double>>();
  ASSERT_EQ(ours.numel(), static_cast<int64_t>(values.size())) << what;
  const at::Tensor difference = ours.detach().flatten() - at::tensor(values, at::kDouble);
  EXPECT_LT(difference.abs().max().item<double>(), 1e-6) << what;
}

TEST(models_question_reference, heads_losses_and_gradients_are_those_of_torchs_own_modules) {
  Command python({"/usr/bin/python3", source_path("/tests/models/torch_questions.py")});
  const int status = python.finish(std::chrono::seconds(180));
  if (status == 77 || status == 127) GTEST_SKIP() << "python3-torch is not installed";
  ASSERT_EQ(status, 0) << python.err;
  const auto told = nlohmann::json::parse(python.out);

  Net net;
  const at::Tensor at_place = at::arange(kLength, at::kLong).unsqueeze(0);
  const at::Tensor ids = at::arange(5 * kLength, at::kLong).mul(5).remainder(23).view({5, kLength}),
                   seen = at_place.lt(at::tensor({7, 5, 7, 4, 6}, at::kLong).unsqueeze(1))
                              .to(at::kLong),
                   types = at_place.gt(2).to(at::kLong).mul(seen),
                   starts = at::tensor({3, -1, 4, 3, -1}, at::kLong),
                   ends = at::tensor({5, -1, 6, 3, -1}, at::kLong),
                   labels = at::tensor({0, 4, 2, 3, 4}, at::kLong);
  const auto outputs = net.forward(ids, types, seen);
  ASSERT_EQ(told["gradients"].size(), net.parameters.size());
  const char* names[] = {"start", "end", "classes", "start_position", "end_position"};
  for (size_t i = 0; i < outputs.size(); ++i)
    expect_close(outputs[i], told["outputs"][names[i]], names[i]);

  using Heads = QuestionHeads;
  const auto position = [&](Heads::Output output, const at::Tensor& at) {
    return squared_error_of_rows(outputs[output], at.to(at::kDouble).div(kLength)) /
           rows_that_count(at);
  };
  const auto place = [&](Heads::Output output, const at::Tensor& at) {
    return cross_entropy_of_rows(outputs[output], at) / rows_that_count(at);
  };
  const at::Tensor& classes = outputs[Heads::classes];
  const std::vector<std::pair<std::string, at::Tensor>> losses{
      {"start", place(Heads::start, starts)},
      {"end", place(Heads::end, ends)},
      {"start_position", position(Heads::start_position, starts)},
      {"end_position", position(Heads::end_position, ends)},
      {"cross_entropy", cross_entropy_of_rows(classes, labels) / 5},
      {"focal", focal_loss_of_rows(classes, labels, 2) / 5},
      {"smoothed", smoothed_cross_entropy_of_rows(classes, labels, kSmoothing) / 5}};
  at::Tensor total = at::zeros({}, at::kDouble);
  for (size_t k = 0; k < losses.size(); ++k) {
    const auto& [name, loss] = losses[k];
    EXPECT_NEAR(loss.item<double>(), told["losses"][name].get<double>(), 1e-6) << name;
    total = total + loss * static_cast<double>(k + 1);
  }
  total.backward();
  double most = 0;
  for (const auto& [name, p] : net.parameters) {
    ASSERT_TRUE(p.grad().defined()) << name;
    most = std::max(most, p.grad().abs().max().item<double>());
    expect_close(p.grad(), told["gradients"][name], name);
  }
  EXPECT_GT(most, 0.1);  // they are not all next to nothing
}

}  // namespace
}  // namespace trireme::question_reference_test
