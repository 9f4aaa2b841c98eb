// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/balance/memory_backoff.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "tests/support/refusals.h"
#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/gradients/gradient_noise.h"
#include "trireme/train/report/step_metrics.h"
#include "trireme/train/saving.h"

namespace memory_backoff_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr const char* kNoMemory =
    "[enforce fail at alloc_cpu.cpp:66] DefaultCPUAllocator: not enough memory: you tried to "
    "allocate 1048576 bytes.";

/// A rank with memory for so many samples at once: forward, or backward when `late`, fails beyond.
class SmallMemory : public Compute {
 public:
  SmallMemory(std::unique_ptr<Compute> inner, int64_t rows, bool late)
      : inner_(std::move(inner)), rows_(rows), late_(late) {}
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override {
    if (inputs.at(0).size(0) <= rows_) return inner_->forward_list(inputs);
    if (!late_) throw c10::Error(c10::SourceLocation(), kNoMemory);
    auto y = inner_->forward_list(inputs);
    y.at(0).register_hook([](const at::Tensor&) -> at::Tensor { throw std::bad_alloc(); });
    return y;
  }
  void set_rows(int64_t rows) { rows_ = rows; }

 private:
  std::unique_ptr<Compute> inner_;
  int64_t rows_;
  bool late_;
};

Config config_of(Sets sets = {}) {
  sets.insert(sets.begin(), {"balance.mode=throughput", "balance.every=100000"});
  return digits("mlp", sets);
}

struct Started {
  explicit Started(const Config& config, Group g) : run(build_run(config, g)) {
    start_data(run, config);
  }
  SmallMemory* has_memory_for(int64_t rows, bool late = false) {
    auto compute = std::make_unique<SmallMemory>(std::move(run.compute), rows, late);
    SmallMemory* memory = compute.get();
    run.compute = std::move(compute);
    return memory;
  }
  trireme::Run run;
};

}  // namespace

TEST(train_memory_backoff, knows_when_memory_was_short) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(c10::Error(c10::SourceLocation(), kNoMemory)));
  EXPECT_TRUE(is_out_of_memory(
      std::runtime_error("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8")));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA out of memory. Tried to allocate 2 GiB")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("shape mismatch")));
  EXPECT_FALSE(is_out_of_memory(PeerLost("rank 1 ran out of memory")));
}

TEST(train_memory_backoff, what_libtorch_throws_is_known) {
  try {
    at::empty({int64_t{1} << 60});
    FAIL() << "a pebibyte";
  } catch (const std::exception& e) {
    EXPECT_TRUE(is_out_of_memory(e)) << e.what();
  }
}

TEST(train_memory_backoff, a_rank_halves_its_micro_batch_and_trains_on_the_same_samples) {
  for (const bool late : {false, true})
    for (const int accumulation : {1, 2}) {
      const Config config =
          config_of({"gradient_accumulation_steps=" + std::to_string(accumulation)});
      const int whole = 8 / accumulation;
      NamedTensors expected, got;
      run_threads(2, [&](Group g) {
        Started s(config, g);
        for (int i = 0; i < 5; ++i) train_step(s.run);
        if (g.rank() == 0) expected = weights_of(s.run);
      });
      run_threads(2, [&](Group g) {
        Started s(config, g);
        if (g.rank() == 1) s.has_memory_for(3, late);
        std::string news;
        double loss = 0;
        for (int i = 0; i < 5; ++i) {
          const StepReport r = train_step(s.run);
          EXPECT_EQ(r.weight, 16);
          EXPECT_NE(r.loss, loss);
          loss = r.loss;
          news += s.run.find<MemoryBackoff>()->news();
        }
        EXPECT_EQ(news, fmt::format("rank 1 ran out of memory at {} samples: micro-batches of 2 "
                                    "from here on",
                                    4))
            << whole;
        EXPECT_EQ(s.run.find<MemoryBackoff>()->limits(), (std::vector<int64_t>{0, 2}));
        if (g.rank() == 0) got = weights_of(s.run);
      });
      EXPECT_LT(relative_distance(got, expected), 1e-6) << late << " " << accumulation;
    }
}

TEST(train_memory_backoff, gradients_leave_while_backward_runs_once_a_size_has_fitted) {
  run_threads(2, [](Group g) {
    Started s(config_of({"comm.bucket_mb=0.001"}), g);
    train_step(s.run);
    const Batch batch = next_batch(s.run);
    EXPECT_EQ(contributions(s.run, batch), 1);
    const Batch larger = {s.run.train_data->get({0, 1, 2, 3, 4, 5, 6, 7, 8})};
    EXPECT_EQ(contributions(s.run, larger), Gradients::kAsManyAsCome);
  });
}

TEST(train_memory_backoff, memory_that_is_lost_later_is_mended_too) {
  run_threads(2, [](Group g) {
    Started s(config_of(), g);
    SmallMemory* memory = g.rank() == 0 ? s.has_memory_for(8) : nullptr;
    for (int i = 0; i < 3; ++i) train_step(s.run);
    if (memory) memory->set_rows(4);
    train_step(s.run);
    EXPECT_EQ(s.run.find<MemoryBackoff>()->limits(), (std::vector<int64_t>{4, 0}));
  });
}

TEST(train_memory_backoff, one_sample_that_does_not_fit_ends_the_run_on_every_rank) {
  std::vector<std::string> said(2);
  try {
    run_threads(2, [&](Group g) {
      Started s(config_of(), g);
      if (g.rank() == 1) s.has_memory_for(0);
      try {
        train_step(s.run);
      } catch (const Error& e) {
        said[static_cast<size_t>(g.rank())] = std::string(e.kind()) + ": " + e.what();
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const Error&) {
  }
  EXPECT_EQ(said[1].rfind("ResourceError: rank 1 ran out of memory at one sample in step 1", 0), 0u)
      << said[1];
  EXPECT_TRUE(has(said[0], "rank 1 failed in step 1: rank 1 ran out of memory at one sample"))
      << said[0];
}

TEST(train_memory_backoff, gradients_that_have_left_are_not_begun_again) {
  // Every size fits at first; then memory is lost behind the first bucket.
  std::string said;
  try {
    run_threads(2, [&](Group g) {
      Started s(config_of({"comm.bucket_mb=0.001"}), g);
      for (int i = 0; i < 2; ++i) train_step(s.run);
      if (g.rank() == 1)
        s.run.model->named_parameters()["layers.0.weight"].register_hook(
            [](const at::Tensor&) -> at::Tensor { throw std::bad_alloc(); });
      try {
        train_step(s.run);
      } catch (const Error& e) {
        if (g.rank() == 1) said = std::string(e.kind()) + ": " + e.what();
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const Error&) {
  }
  EXPECT_TRUE(has(said, "ResourceError: rank 1 ran out of memory at 8 samples in step 3") &&
              has(said, "Lower balance.max_samples"))
      << said;
}

TEST(train_memory_backoff, without_it_out_of_memory_ends_the_run) {
  EXPECT_THROW(run_threads(2,
                           [](Group g) {
                             Started s(config_of({"balance.memory_backoff=false"}), g);
                             EXPECT_EQ(s.run.find<MemoryBackoff>(), nullptr);
                             s.has_memory_for(3);
                             train_step(s.run);
                           }),
               std::exception);
}

namespace {
/// Memory is short once: in that forward, counted from 1.
class ShortOnce : public Compute {
 public:
  ShortOnce(std::unique_ptr<Compute> inner, int at) : inner_(std::move(inner)), left_(at) {}
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override {
    if (--left_ == 0) throw std::bad_alloc();
    return inner_->forward_list(inputs);
  }

 private:
  std::unique_ptr<Compute> inner_;
  int left_;
};
}  // namespace

TEST(train_memory_backoff, a_part_that_is_done_again_is_counted_once_in_the_gradient_noise) {
  auto noise = [](bool short_of_memory) {
    double samples = 0;
    run_threads(2, [&](Group g) {
      Started s(config_of({"monitor.gradient_noise_scale=true", "gradient_accumulation_steps=2"}),
                g);
      // In the second micro-batch of step 2, when the first has been counted.
      if (short_of_memory && g.rank() == 1)
        s.run.compute = std::make_unique<ShortOnce>(std::move(s.run.compute), 4);
      for (int i = 0; i < 2; ++i) train_step(s.run);
      if (g.rank() == 0) samples = s.run.find<GradientNoise>()->noise().samples();
    });
    return samples;
  };
  const double plain = noise(false);
  EXPECT_NEAR(noise(true), plain, 1e-3 * std::abs(plain));
}

TEST(train_memory_backoff, a_checkpoint_keeps_what_ranks_found_out) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    Started s(config_of(), g);
    if (g.rank() == 1) s.has_memory_for(2);
    train_step(s.run);
    save_run(s.run, folder.path(), 2);
    g.barrier();
  });
  run_threads(2, [&](Group g) {
    trireme::Run run = build_run(config_of(), g);
    load_run(run, folder.path());
    start_data(run, config_of());
    EXPECT_EQ(run.find<MemoryBackoff>()->limits(), (std::vector<int64_t>{0, 2}));
    EXPECT_EQ(next_batch(run).size(), g.rank() == 1 ? 4u : 1u);
  });
}

TEST(train_memory_backoff, on_other_ranks_limits_begin_anew_and_one_line_says_so) {
  PrivateFolder folder;
  const Config config = config_of({"train_batch_size=12"});
  run_threads(2, [&](Group g) {
    Started s(config, g);
    if (g.rank() == 1) s.has_memory_for(2);
    train_step(s.run);
    EXPECT_EQ(s.run.find<MemoryBackoff>()->limits(), (std::vector<int64_t>{0, 1}));
    save_run(s.run, folder.path(), 2);
    g.barrier();
  });
  for (const int ranks : {1, 3})
    run_threads(ranks, [&](Group g) {
      Started s(config, g);
      load_run(s.run, folder.path());
      EXPECT_EQ(s.run.find<MemoryBackoff>()->limits(),
                std::vector<int64_t>(static_cast<size_t>(ranks), 0));
      const std::vector<std::string> news = news_of(s.run);
      EXPECT_EQ(std::count(news.begin(), news.end(),
                           "balance: the checkpoint is of 2 ranks: what fitted their memory (rank "
                           "1: 1 sample) is left out, and is found out again"),
                1)
          << ::testing::PrintToString(news);
      EXPECT_EQ(news_of(s.run), std::vector<std::string>{}) << "said once";
      EXPECT_EQ(next_batch(s.run).size(), 1u);
    });
}

}  // namespace memory_backoff_test
