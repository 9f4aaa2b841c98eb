// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/init.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/models/model.h"
#include "trireme/tensor/random/random.h"

namespace init_test {

using namespace trireme;

namespace {
bool equal(Model& a, Model& b) {
  for (const auto& item : a.named_parameters())
    if (!item.value().equal(b.named_parameters()[item.key()])) return false;
  return true;
}
ModelOptions tiny(const std::string& type) {
  ModelOptions o;
  o.type = type;
  o.mlp_sizes = {8, 4, 3};
  o.gpt = {.layers = 2, .width = 64, .heads = 2, .context = 16};
  return o;
}
}  // namespace

TEST(models_init, weights_are_a_function_of_the_seed_whatever_was_drawn_before) {
  for (auto type : {"mlp", "net", "gpt"}) {
    auto a = make_model(tiny(type), 7);
    at::manual_seed(123);
    at::rand({100});
    EXPECT_TRUE(equal(*a, *make_model(tiny(type), 7))) << type;
    EXPECT_FALSE(equal(*a, *make_model(tiny(type), 8))) << type;
  }
}

TEST(models_init, a_parameter_is_keyed_by_its_name_alone) {
  auto small = tiny("gpt"), large = tiny("gpt");
  large.gpt.layers = 3;
  auto a = make_model(small, 7)->named_parameters(), b = make_model(large, 7)->named_parameters();
  EXPECT_TRUE(a["blocks.1.attn.qkv.weight"].equal(b["blocks.1.attn.qkv.weight"]));
  auto expected = at::empty({192, 64});
  normal_(expected, stable_hash({7, stable_hash("blocks.1.attn.qkv.weight")}), 0, 0.02);
  EXPECT_TRUE(a["blocks.1.attn.qkv.weight"].equal(expected));
}

TEST(models_init, gpt_has_gpt2s_spreads) {
  auto p = make_model(tiny("gpt"), 7)->named_parameters();
  EXPECT_NEAR(p["wte.weight"].std().item<double>(), 0.02, 5e-4);
  EXPECT_NEAR(p["blocks.0.attn.proj.weight"].std().item<double>(), 0.02 / 2, 5e-4);
  EXPECT_NEAR(p["blocks.1.mlp.down.weight"].std().item<double>(), 0.02 / 2, 5e-4);
  EXPECT_TRUE(p["blocks.0.mlp.up.bias"].eq(0).all().item<bool>());
  EXPECT_TRUE(p["blocks.0.ln1.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(p["ln_f.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(p["ln_f.bias"].eq(0).all().item<bool>());
}

TEST(models_init, mlp_and_net_have_pytorchs_bounds) {
  auto p = make_model(tiny("net"), 7)->named_parameters();
  for (auto [name, fan_in] : {std::pair{"conv2", 500.0}, {"fc1", 2000.0}}) {
    const double bound = 1 / std::sqrt(fan_in);
    const auto w = p[std::string(name) + ".weight"], b = p[std::string(name) + ".bias"];
    EXPECT_LE(w.abs().max().item<double>(), bound * 1.0001);
    EXPECT_GT(w.abs().max().item<double>(), bound * 0.99);
    EXPECT_LE(b.abs().max().item<double>(), bound * 1.0001);
    EXPECT_GT(b.abs().max().item<double>(), bound * 0.7);
  }
}

TEST(models_init, unknown_types_are_refused) {
  EXPECT_THROW(make_model(tiny("bert"), 1), UsageError);
}

}  // namespace init_test
