// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/tied_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/grad/tied_net.h"
#include "tests/support/refusals.h"
#include "trireme/tensor/tensor_overlaps.h"

namespace tied_tensors_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

std::vector<std::string> names_of(const NamedTensors& list) {
  std::vector<std::string> names;
  for (const auto& [name, t] : list) names.push_back(name);
  return names;
}

}  // namespace

TEST(tensor_tied_tensors, each_is_listed_once_under_its_first_name) {
  const at::Tensor a = at::ones({2}), b = at::ones({2}), none;
  TiedNames tied;
  const auto once =
      unique_tensors({{"a", a}, {"b", b}, {"c", a}, {"a", a}, {"x", none}, {"y", none}, {"d", b}},
                     &tied, {{"known", b}});
  EXPECT_EQ(names_of(once), (std::vector<std::string>{"a", "x", "y"}));
  EXPECT_EQ(tied, (TiedNames{{"b", "known"}, {"c", "a"}, {"d", "known"}}));
  // Equal values, a view of all and an alias are other tensors.
  EXPECT_EQ(unique_tensors({{"a", a}, {"b", b}, {"v", a.view({2})}, {"d", a.detach()}}).size(), 4u);
}

TEST(tensor_tied_tensors, a_modules_lists_are_those_of_pythons_pytorch) {
  TiedNet net = tied_net();
  TiedNames tied;
  EXPECT_EQ(names_of(named_parameters(*net, &tied)),
            (std::vector<std::string>{"head", "a.weight", "a.bias", "first.weight", "first.bias",
                                      "b.weight", "b.bias"}));
  EXPECT_EQ(tied, (TiedNames{{"emb.weight", "head"},
                             {"again.weight", "first.weight"},
                             {"again.bias", "first.bias"}}));
  EXPECT_EQ(names_of(named_buffers(*net)), std::vector<std::string>{"scale"});
  EXPECT_EQ(net->named_parameters().size(), 10u);  // LibTorch's
}

TEST(tensor_tied_tensors, patterns_find_the_first_name_by_any) {
  const TiedNames tied{{"head", "emb.weight"}, {"out", "emb.weight"}, {"again.bias", "first.bias"}};
  EXPECT_EQ(with_first_names({"x", "head", "*.bias", "o?t"}, tied),
            (std::vector<std::string>{"x", "head", "emb.weight", "*.bias", "first.bias", "o?t",
                                      "emb.weight"}));
}

TEST(tensor_tied_tensors, overlaps_are_views_and_aliases_and_not_neighbours) {
  TensorOverlaps known;
  at::Tensor whole = at::zeros({4, 6});
  known.add("whole", whole);
  EXPECT_TRUE(known.find(whole.detach())->same);
  EXPECT_FALSE(known.find(whole.view({6, 4}))->same);
  EXPECT_FALSE(known.find(whole.t())->same);
  EXPECT_EQ(known.find(whole.select(0, 3))->name, "whole");
  EXPECT_FALSE(known.find(at::zeros({4, 6})).has_value());
  EXPECT_FALSE(known.find(whole.narrow(0, 0, 0)).has_value());

  TensorOverlaps parts;
  at::Tensor line = at::zeros({10});
  parts.add("front", line.narrow(0, 0, 5));
  EXPECT_FALSE(parts.find(line.narrow(0, 5, 5)).has_value());
  EXPECT_EQ(parts.find(line.narrow(0, 4, 5))->name, "front");
  // set_data() gives a tensor another's memory.
  at::Tensor other = at::ones({5});
  other.set_data(line.narrow(0, 0, 5));
  EXPECT_TRUE(parts.find(other)->same);
  // Nothing is kept alive, and what has gone is met by nobody.
  at::Tensor gone = at::zeros({1000});
  parts.add("gone", gone);
  EXPECT_EQ(gone.storage().use_count(), 1u);
  gone = at::Tensor();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(parts.find(at::zeros({1000})).has_value());
}

TEST(tensor_tied_tensors, a_refusal_names_both) {
  const at::Tensor a = at::ones({4}), b = at::ones({4});
  EXPECT_EQ(refusal([&] {
              refuse_overlaps("who", {{"a", a}, {"b", b}}, {{"c", at::ones({4})}});
            }),
            "");
  // What stays where it is may overlap.
  EXPECT_EQ(refusal([&] {
              refuse_overlaps("who", {{"a", a}}, {{"b", b}, {"c", b.view({2, 2})}});
            }),
            "");
  for (const auto& others :
       {NamedTensors{{"v", a.narrow(0, 1, 2)}}, NamedTensors{{"v", a.detach()}}}) {
    const std::string said = refusal([&] { refuse_overlaps("who", {{"a", a}}, others); });
    EXPECT_TRUE(has(said, "who: 'v' shares memory with 'a'")) << said;
    EXPECT_TRUE(has(said, "register one tensor under both names")) << said;
  }
}

}  // namespace tied_tensors_test
