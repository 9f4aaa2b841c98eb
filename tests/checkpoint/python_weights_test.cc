// SPDX-License-Identifier: Apache-2.0
// A GPT-2 that Python wrote computes here what it computes there.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/base/mapped_file.h"
#include "trireme/checkpoint/load_weights.h"
#include "trireme/checkpoint/steps/exchange/import_weights.h"
#include "trireme/interop/torch_file.h"
#include "trireme/interop/weights/array_reader.h"
#include "trireme/interop/weights/gpt2_names.h"
#include "trireme/models/gpt.h"

namespace trireme::testing::python_weights_test {
namespace {

constexpr int kWithout = 77;

at::Tensor tensor_of(const std::string& path, const std::string& name) {
  const interop::TorchFile file(path);
  for (const interop::NamedArray& array : file.arrays())
    if (array.name == name) {
      at::Tensor out = at::empty(array.shape, array.dtype == "I64" ? at::kLong : at::kFloat);
      copy_elements(array, file.bytes(), {static_cast<uint8_t*>(out.data_ptr()), out.nbytes()});
      return out;
    }
  throw Error("no " + name);
}

Gpt gpt(bool tied) {
  GptOptions o;
  o.layers = 2, o.width = 8, o.heads = 2, o.context = 6, o.vocab = 11, o.dropout = 0;
  o.tied_head = tied;
  return Gpt(o, 5);
}

double distance_of_logits(const std::string& weights, bool tied, const std::string& expected) {
  Gpt model = gpt(tied);
  load_weights(weights, [&](StateVisitor& v) {
    for (const auto& item : model.named_parameters())
      v.tensor("model." + item.key(), item.value().detach());
  });
  const at::Tensor want = tensor_of(expected, tied ? "tied" : "untied");
  return (model.forward(tensor_of(expected, "input")) - want).abs().max().item<double>() /
         want.abs().max().item<double>();
}

TEST(checkpoint_python_weights, a_gpt2_of_python_gives_the_same_logits_here) {
  PrivateFolder folder;
  Command python({"/usr/bin/python3", trireme::testing::source_path("/tests/interop/gpt2.py"),
                  "make", folder.path()});
  const int status = python.finish(std::chrono::seconds(120));
  if (status == kWithout) GTEST_SKIP() << "python3-torch is not installed";
  ASSERT_EQ(status, 0) << python.err;
  const std::string expected = folder / "expected.pt";
  for (const char* tied : {"gpt2.pt", "plain.pt", "gpt2.safetensors", "bin"})
    EXPECT_LT(distance_of_logits(folder / tied, true, expected), 1e-5) << tied;
  EXPECT_LT(distance_of_logits(folder / "untied.pt", false, expected), 1e-5);

  // By way of an import.
  interop::ArrayReader reader;
  interop::WeightSource source = interop::open_weights(folder / "gpt2.pt");
  interop::take_gpt2_names(source, interop::TiedHead::dropped,
                           [&](const auto& a, const auto& b) { return reader.same(a, b); });
  import_weights(source, folder / "run", 0);
  EXPECT_LT(distance_of_logits(folder / "run", true, expected), 1e-5);
}

}  // namespace
}  // namespace trireme::testing::python_weights_test
