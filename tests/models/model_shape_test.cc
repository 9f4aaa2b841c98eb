// SPDX-License-Identifier: Apache-2.0
// The planner's networks are these.
#include "trireme/planner/model_shape.h"

#include <gtest/gtest.h>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/models/parallel_gpt.h"

namespace model_shape_test {

using namespace trireme;

namespace {

void equal(const ModelGeometry& g) {
  ModelOptions o;
  o.type = g.type;
  o.mlp_sizes = g.mlp_sizes;
  o.gpt = {g.layers, g.width, g.heads, g.context, g.vocab, g.dropout, g.tied_head};
  const auto model = make_model(o, 1);
  const ModelShape shape = model_shape(g);
  const auto parameters = model->named_parameters();
  ASSERT_EQ(parameters.size(), shape.parameters.size()) << g.type;
  int64_t all = 0;
  for (size_t i = 0; i < shape.parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].key(), shape.parameters[i].name);
    EXPECT_EQ(parameters[i].value().sizes().vec(), shape.parameters[i].shape)
        << shape.parameters[i].name;
    all += parameters[i].value().numel();
  }
  EXPECT_EQ(shape.numel(), all);
  const auto children = model->named_children();
  ASSERT_EQ(children.size(), shape.modules.size()) << g.type;
  for (size_t i = 0; i < shape.modules.size(); ++i) {
    EXPECT_EQ(children[i].key(), shape.modules[i].name);
    int64_t of_child = 0;
    for (const auto& p : children[i].value()->parameters()) of_child += p.numel();
    EXPECT_EQ(shape.modules[i].parameters, of_child) << shape.modules[i].name;
  }
}

void expect_shapes(const Model& model, const ModelShape& shape, const std::string& what) {
  const auto parameters = model.named_parameters();
  check<Error>(parameters.size() == shape.parameters.size(), "{}: {} parameters instead of {}",
               what, parameters.size(), shape.parameters.size());
  for (size_t i = 0; i < shape.parameters.size(); ++i) {
    const auto& [name, sizes, unit, savers] = shape.parameters[i];
    check<Error>(parameters[i].key() == name, "{}: {} instead of {}", what, parameters[i].key(),
                 name);
    check<Error>(parameters[i].value().sizes().vec() == sizes, "{}: the shape of {}", what, name);
  }
}

}  // namespace

TEST(models_model_shape, parts_of_ranks_are_those_of_the_real_network) {
  ModelGeometry g;
  g.layers = 4, g.width = 24, g.heads = 12, g.context = 10, g.vocab = 301;
  for (const bool tied : {true, false})
    for (const int stages : {1, 2, 4})
      for (const int tp : {1, 2, 3, 4}) {
        g.tied_head = tied;
        ParallelGptOptions o;
        static_cast<GptOptions&>(o) = {g.layers, g.width,   g.heads,    g.context,
                                       g.vocab,  g.dropout, g.tied_head};
        run_threads(tp, [&](Group group) {
          for (int s = 0; s < stages; ++s) {
            ModelPart part;
            part.tp = tp;
            part.tp_rank = group.rank();
            auto mine = o;
            if (stages > 1)
              part.stages =
                  mine.stages = {pipeline::divide_blocks(g.layers, stages)[static_cast<size_t>(s)]};
            expect_shapes(
                ParallelGpt(TensorParallel(group), mine, 1), model_shape(g, part),
                fmt::format("rank {} of {}, stage {} of {}", part.tp_rank, tp, s, stages));
          }
        });
      }
}

TEST(models_model_shape, stages_of_a_whole_layer_network_are_those_of_the_real_one) {
  ModelGeometry g;
  g.layers = 4, g.width = 24, g.heads = 4, g.context = 10, g.vocab = 300, g.tied_head = true;
  const auto all = pipeline::divide_blocks(g.layers, 4);
  for (const std::vector<pipeline::StageBlocks>& stages :
       {std::vector{all[0], all[3]}, std::vector{all[1], all[2]}, std::vector{all[3]}}) {
    ModelOptions o;
    o.gpt = {g.layers, g.width, g.heads, g.context, g.vocab, g.dropout, g.tied_head};
    o.gpt.stages = stages;
    ModelPart part;
    part.stages = stages;
    expect_shapes(*make_model(o, 1), model_shape(g, part), "stages");
  }
}

TEST(models_model_shape, names_shapes_and_order_are_those_of_the_real_networks) {
  ModelGeometry g;
  for (bool tied : {true, false}) {
    g.layers = 3, g.width = 24, g.heads = 4, g.context = 10, g.vocab = 300, g.tied_head = tied;
    equal(g);
  }
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{5, 3}, {784, 256, 10}, {4, 8, 9, 2}}) {
    ModelGeometry m;
    m.type = "mlp";
    m.mlp_sizes = sizes;
    equal(m);
  }
  for (const char* type : {"net", "convnet"}) {
    ModelGeometry m;
    m.type = type;
    equal(m);
  }
}

}  // namespace model_shape_test
