// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/serialize.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/support/paths.h"
#include "trireme/data/distributed_sampler.h"

namespace sampler_test {

using namespace trireme;

// sampler-v1.pt and sampler-v2.pt are places of one rank of two, 7 samples into epoch 3 of 40, as
// those versions saved them.
namespace {

const std::string kFolder = trireme::testing::source_path("/tests/formats/");

void is_there(const std::string& name) {
  DistributedSampler sampler(40, 2, 1, {.seed = 5});
  torch::load(sampler, kFolder + name);
  EXPECT_EQ(sampler.epoch(), 3u) << name;
  EXPECT_EQ(sampler.position(), 7u) << name;
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 3u) << name;
  EXPECT_EQ(sampler.next(40)->size(), 13u) << name;
}

}  // namespace

TEST(formats_sampler, each_version_is_read) {
  is_there("sampler-v1.pt");
  is_there("sampler-v2.pt");
}

TEST(formats_sampler, version_2_is_what_is_written) {
  DistributedSampler sampler(40, 2, 1, {.seed = 5});
  sampler.set_epoch(3);
  sampler.reset();
  sampler.next(10);
  sampler.consumed(7);
  std::ostringstream out;
  torch::save(sampler, out);
  if (std::getenv("TRIREME_UPDATE_GOLDEN")) torch::save(sampler, kFolder + "sampler-v2.pt");
  torch::serialize::InputArchive now, fixture;
  std::istringstream in(out.str());
  now.load_from(in);
  fixture.load_from(kFolder + "sampler-v2.pt");
  EXPECT_EQ(now.keys(), fixture.keys());
  for (const auto& key : fixture.keys()) {
    c10::IValue a, b;
    now.read(key, a);
    fixture.read(key, b);
    EXPECT_EQ(a, b) << key;
  }
}

}  // namespace sampler_test
