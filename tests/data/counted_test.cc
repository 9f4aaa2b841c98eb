// SPDX-License-Identifier: Apache-2.0
// A loop over LibTorch's loader that is saved and resumed, whatever the loader has drawn ahead.
#include "trireme/data/counted.h"

#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/serialize.h>

#include <array>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace counted_test {

using namespace trireme;

namespace {

struct Numbers : torch::data::datasets::Dataset<Numbers, int64_t> {
  explicit Numbers(size_t n) : n(n) {}
  int64_t get(size_t index) override { return static_cast<int64_t>(index); }
  torch::optional<size_t> size() const override { return n; }
  size_t n;
};

struct Case {
  size_t size, world, rank, batch, workers;
  bool sampler_drops, loader_drops;
};

using Batches = std::vector<std::vector<int64_t>>;

DistributedSampler sampler_of(const Case& c) {
  return {c.size, c.world, c.rank, {.drop_last = c.sampler_drops}};
}

auto loader_of(const Case& c, const DistributedSampler& sampler) {
  return torch::data::make_data_loader(
      Numbers(c.size), sampler,
      torch::data::DataLoaderOptions(c.batch).workers(c.workers).drop_last(c.loader_drops));
}

std::string saved(const DistributedSampler& sampler) {
  std::stringstream file;
  torch::save(sampler, file);
  return file.str();
}

void load(DistributedSampler& sampler, const std::string& text) {
  std::istringstream file(text);
  torch::load(sampler, file);
}

constexpr size_t kEpochs = 3;

// As people write it: from the sampler's epoch on, until `stop` batches are done in all.
Batches train(const Case& c, DistributedSampler& sampler, size_t stop, std::string* state) {
  auto loader = loader_of(c, sampler);
  Batches done;
  for (size_t epoch = sampler.epoch(); epoch < kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : counted(*loader, sampler)) {
      done.push_back(batch);
      if (done.size() == stop) {
        *state = saved(sampler);
        return done;
      }
    }
  }
  return done;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(data_counted, a_resumed_loop_goes_on_with_the_next_batch) {
  for (size_t workers : {0, 1, 2, 4})
    for (auto [size, world, rank] : {std::array<size_t, 3>{23, 1, 0}, {23, 2, 1}, {40, 3, 2}})
      for (bool sampler_drops : {false, true})
        for (bool loader_drops : {false, true}) {
          const Case c{size, world, rank, 4, workers, sampler_drops, loader_drops};
          DistributedSampler whole = sampler_of(c);
          const Batches all = train(c, whole, 0, nullptr);
          ASSERT_GE(all.size(), 6u);
          for (size_t k = 1; k <= all.size(); k += workers == 0 ? 1 : 2) {
            std::string state;
            DistributedSampler first = sampler_of(c), second = sampler_of(c);
            Batches seen = train(c, first, k, &state);
            load(second, state);
            const Batches rest = train(c, second, 0, nullptr);
            seen.insert(seen.end(), rest.begin(), rest.end());
            ASSERT_EQ(seen, all) << "after batch " << k << ", " << workers << " workers, " << size
                                 << " samples on " << world << " ranks, drop_last " << sampler_drops
                                 << loader_drops;
          }
        }
}

TEST(data_counted, a_loop_that_tells_by_itself_resumes_alike) {
  const Case c{40, 2, 0, 4, 2, false, false};
  DistributedSampler whole = sampler_of(c), first = sampler_of(c), second = sampler_of(c);
  const Batches all = train(c, whole, 0, nullptr);
  auto loader = loader_of(c, first);
  size_t taken = 0;
  for (auto& batch : *loader) {
    first.consumed(batch.size());
    if (++taken == 2) break;
  }
  EXPECT_GT(first.index(), first.position()) << "the loader is ahead";
  load(second, saved(first));
  EXPECT_EQ(second.position(), 8u);
  const Batches rest = train(c, second, 0, nullptr);
  EXPECT_EQ(rest.front(), all[2]);
}

TEST(data_counted, saving_what_nobody_counted_is_refused_with_what_to_do) {
  for (size_t workers : {0, 2}) {
    const Case c{40, 2, 0, 4, workers, false, false};
    DistributedSampler sampler = sampler_of(c);
    EXPECT_EQ(refusal([&] { saved(sampler); }), "") << "nothing is drawn";
    auto loader = loader_of(c, sampler);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for ([[maybe_unused]] auto& batch : *loader) {
        const std::string said = refusal([&] { saved(sampler); });
        EXPECT_NE(said.find("counted(*loader, sampler)"), std::string::npos) << said;
      }
      EXPECT_NE(refusal([&] { saved(sampler); }), "") << "nor at the end of the epoch";
    }
    sampler.set_epoch(2);
    EXPECT_EQ(refusal([&] { saved(sampler); }), "") << "the beginning of an epoch is a place";
  }
}

TEST(data_counted, more_than_was_drawn_cannot_be_consumed) {
  DistributedSampler sampler(40, 2, 0), other(40, 2, 0);
  sampler.reset();
  sampler.next(4);
  EXPECT_NE(refusal([&] { sampler.consumed(5); }).find("4 are drawn"), std::string::npos);
  const Case c{40, 2, 0, 4, 0, false, false};
  auto loader = loader_of(c, sampler);
  EXPECT_NE(refusal([&] {
              for ([[maybe_unused]] auto& batch : counted(*loader, other)) break;
            }).find("is this the sampler of the loop's loader"),
            std::string::npos);
}

TEST(data_counted, batches_out_of_order_have_no_place) {
  DistributedSampler sampler(40, 2, 0);
  auto loader = torch::data::make_data_loader(
      Numbers(40), sampler, torch::data::DataLoaderOptions(4).workers(2).enforce_ordering(false));
  EXPECT_NE(refusal([&] { counted(*loader, sampler); }).find("enforce_ordering(true)"),
            std::string::npos);
}

TEST(data_counted, a_place_in_another_order_is_refused) {
  DistributedSampler sampler(40, 2, 0, {.seed = 3});
  sampler.reset();
  sampler.next(6);
  sampler.consumed(6);
  const std::string state = saved(sampler);
  auto said = [&](DistributedSampler other) { return refusal([&] { load(other, state); }); };
  EXPECT_NE(said({41, 2, 0, {.seed = 3}}).find("its size is 40"), std::string::npos);
  EXPECT_NE(said({40, 2, 0, {.seed = 4}}).find("seed"), std::string::npos);
  EXPECT_NE(said({40, 2, 0, {.shuffle = false, .seed = 3}}).find("shuffle"), std::string::npos);
  EXPECT_NE(said({40, 2, 0, {.seed = 3, .drop_last = true}}).find("drop_last"), std::string::npos);
  EXPECT_NE(said({40, 5, 0, {.seed = 3}}).find("2 ranks have taken 6 samples each"),
            std::string::npos);
  EXPECT_EQ(said({40, 2, 1, {.seed = 3}}), "") << "every rank is at the same place";
}

TEST(data_counted, other_ranks_go_on_where_the_first_ones_were) {
  for (size_t world : {1, 3, 4}) {
    std::vector<std::string> states;
    std::set<size_t> seen;
    for (size_t rank = 0; rank < 2; ++rank) {
      DistributedSampler sampler(48, 2, rank);
      sampler.reset();
      const auto drawn = sampler.next(6);
      seen.insert(drawn->begin(), drawn->end());
      sampler.consumed(6);
      states.push_back(saved(sampler));
    }
    for (size_t rank = 0; rank < world; ++rank) {
      DistributedSampler sampler(48, world, rank);
      load(sampler, states[0]);
      sampler.reset();
      while (auto indices = sampler.next(5))
        for (const size_t i : *indices) EXPECT_TRUE(seen.insert(i).second) << "twice";
    }
    EXPECT_EQ(seen.size(), 48u) << world << " ranks";
  }
}

// Version 1 had {"epoch", "index"} and nothing else.
TEST(data_counted, an_archive_of_version_1_is_read_with_a_warning) {
  torch::serialize::OutputArchive out;
  out.write("epoch", c10::IValue(int64_t{3}));
  out.write("index", c10::IValue(int64_t{7}));
  std::stringstream file;
  out.save_to(file);
  std::string warned;
  set_log_sink([&](LogLevel, std::string_view text) { warned += text; });
  DistributedSampler sampler(40, 2, 1);
  load(sampler, file.str());
  set_log_sink({});
  EXPECT_EQ(sampler.epoch(), 3u);
  EXPECT_EQ(sampler.position(), 7u);
  EXPECT_NE(warned.find("counted the samples drawn"), std::string::npos) << warned;
}

TEST(data_counted, an_archive_of_a_newer_version_is_refused) {
  torch::serialize::OutputArchive out;
  out.write("trireme_sampler", c10::IValue(int64_t{3}));
  std::stringstream file;
  out.save_to(file);
  DistributedSampler sampler(40, 2, 1);
  EXPECT_NE(refusal([&] { load(sampler, file.str()); }).find("a version newer than 2"),
            std::string::npos);
}

}  // namespace counted_test
