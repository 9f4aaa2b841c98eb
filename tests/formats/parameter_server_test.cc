// SPDX-License-Identifier: Apache-2.0
// parameter-server-v1/ is the folder of a server of parameters with one worker that had made two
// steps. It must load for ever.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/rpc/server/servers.h"
#include "tests/support/paths.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme::parameter_server_format_test {
namespace {

using namespace rpc_server_test;

const std::string kFixture = testing::source_path("/tests/formats/parameter-server-v1");

/// SGD with a momentum of 0.9 by hand: gradients 1, 2, 3, 4, then -1, 0, 1, 2, at a rate of 0.5.
const at::Tensor kWeight = at::tensor({0.55f, 0.1f, -0.35f, -0.8f}).reshape({2, 2});
/// Rows 0 and 3 had a gradient of 1 in the first step, row 3 in the second.
at::Tensor items() {
  at::Tensor rows = at::zeros({6, 2});
  rows[0] = -0.5, rows[3] = -1.0;
  return rows;
}

}  // namespace

TEST(formats_parameter_server, version_1_goes_on_from_its_step) {
  const PrivateFolder folder("parameter-server");
  std::filesystem::copy(kFixture, folder / "0", std::filesystem::copy_options::recursive);
  Servers all(
      1,
      {.workers = 1,
       .optimizer = [](NamedTensors p) { return make_sgd(std::move(p), {.momentum = 0.9}); }},
      folder.path());
  auto me = all.job.start("trainer0");
  at::Tensor weight = at::zeros({2, 2}).set_requires_grad(true), seen = at::zeros({1}, at::kLong);
  auto options = all.client(0);
  options.tables = {{"items", 6, 2}};
  rpc::ParameterClient client(me, {{"layer.weight", weight}, {"seen", seen}}, options);
  EXPECT_EQ(client.steps(), 2);
  EXPECT_TRUE(at::allclose(weight.detach(), kWeight, 1e-6, 1e-6)) << weight;
  EXPECT_EQ(seen.item<int64_t>(), 7);
  rpc::ShardedEmbedding table(client, "items");
  EXPECT_TRUE(at::equal(table(at::arange(6)).detach(), items()));
  // The momentum is there, too: it alone moves the weight.
  weight.mutable_grad() = at::zeros({2, 2});
  client.step(1);
  const at::Tensor momentum = at::tensor({-0.1f, 1.8f, 3.7f, 5.6f}).reshape({2, 2});
  EXPECT_TRUE(at::allclose(weight.detach(), kWeight - 0.9 * momentum, 1e-5, 1e-5)) << weight;
  client.leave();
  me.shutdown({.graceful = false, .deadline = kPlenty});
}

TEST(formats_parameter_server, version_1_has_its_tensors_and_numbers_under_the_names_of_the_page) {
  const std::string step = kFixture + "/step-00000002";
  EXPECT_EQ(list_steps(kFixture), std::vector<int64_t>{2});
  const SafetensorsFile model(step + "/model.safetensors");
  EXPECT_TRUE(at::allclose(model.tensor("layer.weight"), kWeight, 1e-6, 1e-6));
  EXPECT_TRUE(at::equal(model.tensor("items"), items()));
  EXPECT_EQ(model.tensor("seen").item<int64_t>(), 7);
  EXPECT_EQ(text_in_step(step, "server.place"), "server 0 of 1");
  EXPECT_EQ(text_in_step(step, "server.lost"), "");
  EXPECT_EQ(text_in_step(step, "server.clocks"), "2");
  const std::string index = read_file(step + "/trireme.index.json");
  for (const char* name :
       {R"("server.step": {"int":2})", R"("optim.step": {"int":2})",
        R"("optim.steps.items": {"int":2})", R"("optim.momentum.layer.weight": {"dtype":"F32")"})
    EXPECT_NE(index.find(name), index.npos) << name;
}

}  // namespace trireme::parameter_server_format_test
