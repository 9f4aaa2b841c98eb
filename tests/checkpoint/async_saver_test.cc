// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/async_saver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <thread>

#include "tests/checkpoint/split_state.h"
#include "tests/support/processes.h"
#include "tests/support/ranks.h"
#include "trireme/base/failpoint.h"
#include "trireme/checkpoint/save/snapshot.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/wrappers/forwarding_backend.h"
#include "trireme/tensor/file_view.h"

namespace async_saver_test {

using namespace trireme;
using namespace trireme::test;

namespace {

using Steps = std::vector<int64_t>;

struct Armed {
  explicit Armed(const std::string& text) { set_failpoints(text); }
  ~Armed() { set_failpoints(""); }
};

ShardedSaveOptions options_of(const Seat& seat, int keep = 2) { return {seat.layout(), keep}; }

/// What a rank shows: a range of a weight, and a number.
struct Part {
  std::string name = "model.w";
  int64_t begin = 0, count = 0;
  at::ScalarType dtype = at::kFloat;
  int64_t number = 0;

  at::Tensor values() const { return at::arange(begin, begin + count, at::kDouble).to(dtype); }
  StateWalk walk(const at::Tensor& t) {
    return [this, t](StateVisitor& v) {
      v.tensor(Slice::range(name, {10}, begin, count), t);
      v.value("number", number);
    };
  }
};

/// Floats in a file, seen as offloaded state is.
class InFile {
 public:
  InFile(const std::string& path, int64_t numel, float value)
      : bytes_(static_cast<size_t>(numel) * sizeof(float)), path_(path) {
    fill(value);
    const int fd = ::open(path_.c_str(), O_RDONLY);
    void* at = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED) throw std::runtime_error("mmap");
    const std::shared_ptr<const void> owner(
        at, [n = bytes_](const void* p) { ::munmap(const_cast<void*>(p), n); });
    tensor = at::empty({numel}, at::kFloat);
    tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(file_view(at, owner));
  }
  /// In place, as the next step of an optimizer does.
  void fill(float value) const {
    const std::vector<float> values(bytes_ / sizeof(float), value);
    UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT, 0600));
    if (::pwrite(fd.get(), values.data(), bytes_, 0) != static_cast<ssize_t>(bytes_))
      throw std::runtime_error("pwrite");
  }
  at::Tensor tensor;

 private:
  const size_t bytes_;
  const std::string path_;
};

}  // namespace

TEST(checkpoint_async_saver, a_step_holds_what_the_state_was_when_save_returned) {
  for (const auto& [world, shards, stage] :
       {std::tuple{1, 1, 1}, {2, 2, 1}, {2, 2, 3}, {4, 4, 3}, {4, 2, 3}}) {
    PrivateFolder run;
    const Seat seat{0, world, shards, stage};
    run_threads(world, [&](Group g) {
      const Seat mine{g.rank(), world, shards, stage};
      AsyncSaver saver(run.path(), g);
      SplitState state(mine, 0);
      for (int64_t step : {1, 2, 3}) {
        SplitState now(mine, static_cast<double>(step));
        for (size_t i = 0; i < state.tensors.size(); ++i)
          state.tensors[i].second.copy_(now.tensors[i].second);
        state.step = step, state.steps = now.steps;
        saver.save(step, std::ref(state), options_of(mine));
        for (auto& [slice, t] : state.tensors) t.fill_(-1);  // training goes on
      }
      EXPECT_EQ(saver.wait(), run / "step-00000003");
      EXPECT_EQ(saver.wait(), "") << "nothing is under way";
    });
    EXPECT_EQ(list_steps(run.path()), (Steps{2, 3}));
    for (const char* step : {"step-00000002", "step-00000003"}) {
      EXPECT_TRUE(all_load(run / step, seat)) << step;
      verify_checkpoint(run / step);
      for (const std::string& name : names_in(run / step))
        EXPECT_EQ(name.find("written"), std::string::npos) << name;
    }
  }
}

TEST(checkpoint_async_saver, its_files_are_those_of_a_save_that_waits) {
  PrivateFolder a, b;
  const Seat seat{0, 3, 3, 3};
  save_split(a.path(), 7, seat);
  run_threads(3, [&](Group g) {
    AsyncSaver saver(b.path(), g);
    SplitState state(seat_of(g, 3), 7);
    saver.save(7, std::ref(state), options_of(seat_of(g, 3)));
    saver.wait();
  });
  const std::vector<std::string> names = names_in(a / "step-00000007");
  EXPECT_EQ(names_in(b / "step-00000007"), names);
  for (const std::string& name : names)
    EXPECT_EQ(slurp(b / ("step-00000007/" + name)), slurp(a / ("step-00000007/" + name))) << name;
}

TEST(checkpoint_async_saver, a_failed_write_of_one_rank_is_every_rank_s_error_at_the_next_call) {
  for (int failing : {0, 1, 2}) {
    PrivateFolder run;
    const Seat seat{0, 3, 3, 3};
    save_split(run.path(), 100, seat);
    std::vector<std::string> texts(3);
    run_threads(3, [&](Group g) {
      AsyncSaver saver(run.path(), g);
      SplitState state(seat_of(g, 3), 200);
      if (g.rank() == 0)
        set_failpoints(fmt::format("checkpoint.write#{}=error({})", failing, ENOSPC));
      g.barrier();
      saver.save(200, std::ref(state), options_of(state.seat));
      texts[static_cast<size_t>(g.rank())] = trireme::testing::outcome_of([&] { saver.wait(); });
      EXPECT_EQ(list_steps(run.path()), (Steps{100}));
      EXPECT_EQ(hidden_files(run.path()), 0u);
      g.barrier();
      if (g.rank() == 0) set_failpoints("");
      g.barrier();
      SplitState later(seat_of(g, 3), 300);  // the same saver, when there is space again
      saver.save(300, std::ref(later), options_of(later.seat));
      saver.wait();
    });
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts.front());
      EXPECT_TRUE(contains(text, "ResourceError: checkpoint of step 200 was not saved: ") &&
                  contains(text, fmt::format("rank {}", failing)) &&
                  contains(text, "cannot write " + run.path()))
          << text;
    }
    EXPECT_TRUE(all_load(run / "step-00000300", seat));
    EXPECT_TRUE(all_load(run / "step-00000100", seat));
  }
}

TEST(checkpoint_async_saver,
     ranks_that_do_not_fit_together_are_refused_before_anything_is_written) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    AsyncSaver saver(run / "r", g);
    const std::string text = trireme::testing::outcome_of([&] {
      saver.save(1, [&](StateVisitor& v) {
        v.tensor(Slice::range("model.w", {10}, 0, 6), at::ones({6}));
      });
    });
    EXPECT_TRUE(contains(text, "UsageError") && contains(text, "elements 6 to 9 are in none"))
        << text;
    EXPECT_FALSE(saver.busy());
    EXPECT_FALSE(std::filesystem::exists(run / "r"));
  });
}

TEST(checkpoint_async_saver, its_end_publishes_what_is_under_way) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  run_threads(2, [&](Group g) {
    SplitState state(seat_of(g, 2), 5);
    AsyncSaver saver(run.path(), g);
    saver.save(5, std::ref(state), options_of(state.seat));
  });
  EXPECT_TRUE(all_load(run.path(), seat));
}

TEST(checkpoint_async_saver, it_keeps_two_buffers_of_what_the_rank_writes) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    at::Tensor w = at::ones({1 << 20});
    AsyncSaver saver(run.path(), g);
    const StateWalk walk = [&](StateVisitor& v) { v.tensor("model.w", w); };
    EXPECT_EQ(saver.memory_bytes(), 0);
    saver.save(1, walk);
    // Halves of 4 MiB, which lie in memory as in their file's pages.
    const int64_t both = saver.memory_bytes();
    EXPECT_GE(both, 4 << 20);
    EXPECT_LE(both, (4 << 20) + 2 * (32 << 10)) << "beside what each says of itself";
    for (int64_t step : {2, 3}) {
      saver.save(step, walk);
      EXPECT_EQ(saver.memory_bytes(), both);
    }
    saver.wait();
  });
}

// Other values are not another plan; another name, dtype or part is, on whichever rank.
TEST(checkpoint_async_saver, who_writes_what_is_decided_again_when_a_rank_holds_something_else) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    AsyncSaver saver(run.path(), g);
    Part part{.begin = 5 * g.rank(), .count = 5};
    int64_t step = 0;
    const auto saved = [&] {
      part.number = ++step;
      saver.save(step, part.walk(part.values() + static_cast<double>(step)));
      const std::string folder = saver.wait();
      at::Tensor whole = at::zeros({10}, at::kDouble).to(part.dtype);
      int64_t number = 0;
      load_step(folder, [&](StateVisitor& v) {
        v.tensor(part.name, whole);
        v.value("number", number);
      });
      EXPECT_EQ(number, step);
      EXPECT_TRUE(whole.equal((at::arange(10, at::kDouble) + step).to(part.dtype))) << step;
      return saver.plans();
    };
    EXPECT_EQ(saved(), 1);
    EXPECT_EQ(saved(), 1);
    EXPECT_EQ(saved(), 1);
    part.name = "model.v";
    EXPECT_EQ(saved(), 2);
    part.dtype = at::kDouble;
    EXPECT_EQ(saved(), 3);
    EXPECT_EQ(saved(), 3);
    part.begin = g.rank() == 0 ? 0 : 3;
    part.count = g.rank() == 0 ? 3 : 7;
    EXPECT_EQ(saved(), 4);
    if (g.rank() == 1) part.begin = 0, part.count = 10;  // rank 0's 3 are two ranks' now
    if (g.rank() == 0) part.begin = 0, part.count = 10;
    EXPECT_EQ(saved(), 5);
    EXPECT_EQ(saved(), 5);
  });
}

TEST(checkpoint_async_saver, what_does_not_fit_together_is_refused_also_where_it_did_before) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    AsyncSaver saver(run.path(), g);
    Part part{.begin = 5 * g.rank(), .count = 5, .number = 1};
    const auto save = [&](int64_t step) {
      saver.save(step, part.walk(part.values()));
      saver.wait();
    };
    save(1);
    part.number = 1 + g.rank();
    std::string text = trireme::testing::outcome_of([&] { save(2); });
    EXPECT_TRUE(contains(text, "UsageError") &&
                contains(text, "the value 'number' is 1 on rank 0 and 2 on rank 1"))
        << text;
    part.number = 3;
    if (g.rank() == 1) part.count = 4;  // nobody holds element 9
    text = trireme::testing::outcome_of([&] { save(3); });
    EXPECT_TRUE(contains(text, "UsageError") && contains(text, "elements 9 to 9 are in none"))
        << text;
    part.count = 5;
    save(4);
    save(5);
    EXPECT_EQ(saver.plans(), 2) << "the refusals began it anew, once";
    EXPECT_EQ(list_steps(run.path()), (Steps{4, 5}));
  });
}

TEST(checkpoint_async_saver, what_lies_in_a_file_is_not_copied_into_memory) {
  constexpr int64_t kNumel = 3 << 18;  // 3 MiB: blocks, and neighbours in the step's file
  PrivateFolder run, disk;
  run_threads(2, [&](Group g) {
    const std::string mine = "optim.m" + std::to_string(g.rank());
    InFile state(disk / mine, kNumel, 7);
    at::Tensor beside = at::full({100}, 3.F);
    AsyncSaver saver(run.path(), g);
    const StateWalk walk = [&](StateVisitor& v) {
      v.tensor(mine, state.tensor);
      v.tensor("own" + std::to_string(g.rank()), beside);
    };
    for (int64_t step : {1, 2, 3}) {
      state.fill(static_cast<float>(10 * step + g.rank()));
      saver.save(step, walk);
      state.fill(-1);  // training goes on
      beside.fill_(static_cast<float>(step));
    }
    saver.wait();
    EXPECT_LE(saver.memory_bytes(), 2 * (32 << 10)) << "the 3 MiB are not among them";
    EXPECT_EQ(saver.plans(), 1);
    g.barrier();
    for (int rank : {0, 1}) {
      at::Tensor loaded = at::zeros({kNumel}), other = at::zeros({100});
      load_step(run / "step-00000003",
                [&](StateVisitor& v) {
                  v.tensor("optim.m" + std::to_string(rank), loaded);
                  v.tensor("own" + std::to_string(rank), other);
                },
                {.partial = true});
      EXPECT_TRUE(loaded.equal(at::full({kNumel}, 30.F + rank)));
      EXPECT_TRUE(other.equal(at::full({100}, 2.F)));
    }
  });
  verify_checkpoint(run / "step-00000003");
}

TEST(checkpoint_async_saver, a_disk_without_room_for_what_lies_in_a_file_is_every_rank_s_error) {
  PrivateFolder run, disk;
  run_threads(2, [&](Group g) {
    InFile state(disk / std::to_string(g.rank()), 1000, 1);
    AsyncSaver saver(run.path(), g);
    const StateWalk walk = [&](StateVisitor& v) {
      v.tensor("optim.m" + std::to_string(g.rank()), state.tensor);
    };
    if (g.rank() == 0) set_failpoints(fmt::format("checkpoint.write#1=error({})", ENOSPC));
    g.barrier();
    const std::string text = trireme::testing::outcome_of([&] { saver.save(1, walk); });
    g.barrier();
    if (g.rank() == 0) set_failpoints("");
    EXPECT_TRUE(contains(text, "ResourceError: checkpoint of step 1 was not saved: rank 1: ") &&
                contains(text, "cannot write " + run.path()) && contains(text, "No space left"))
        << text;
    EXPECT_FALSE(saver.busy());
    g.barrier();
    saver.save(2, walk);
    EXPECT_EQ(saver.wait(), run / "step-00000002");
    EXPECT_EQ(hidden_files(run.path()), 0u);
  });
}

TEST(checkpoint_async_saver, rank_0_hears_by_itself_when_its_step_is_published) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    AsyncSaver saver(run.path(), g);
    EXPECT_FALSE(saver.ended());
    std::atomic<int> calls = 0;
    bool there = false;
    SplitState state(seat_of(g, 2), 5);
    saver.save(5, std::ref(state), options_of(state.seat), [&] {
      there = std::filesystem::exists(run / "step-00000005");
      ++calls;
    });
    if (g.rank() == 0) {
      EXPECT_TRUE(trireme::testing::eventually([&] { return saver.ended(); }));
      EXPECT_FALSE(saver.busy());
    }
    saver.wait();
    EXPECT_FALSE(saver.ended()) << "none is under way";
    EXPECT_EQ(calls, g.rank() == 0 ? 1 : 0);
    EXPECT_EQ(there, g.rank() == 0);
  });
}

namespace {

/// Notes the threads that call into a group.
class WatchedBackend final : public trireme::detail::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  trireme::detail::Token post(const trireme::detail::Call& call) override {
    note();
    return ForwardingBackend::post(call);
  }
  void wait(trireme::detail::Token token, Duration timeout) override {
    note();
    ForwardingBackend::wait(token, timeout);
  }
  bool completed(trireme::detail::Token token) override {
    note();
    return ForwardingBackend::completed(token);
  }
  void progress() override {
    note();
    ForwardingBackend::progress();
  }
  std::set<std::thread::id> threads() const {
    std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  void note() {
    std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
  }
  mutable std::mutex mutex_;
  std::set<std::thread::id> threads_;
};

}  // namespace

TEST(checkpoint_async_saver, its_thread_never_uses_the_group) {
  PrivateFolder run;
  run_threads(2, [&](Group plain) {
    const auto watched = std::make_shared<WatchedBackend>(
        std::shared_ptr<trireme::detail::Backend>(std::shared_ptr<void>(), plain.get()));
    std::thread::id by;  // who publishes
    {
      AsyncSaver saver(run.path(), Group(watched));
      SplitState state(seat_of(plain, 2), 5);
      for (int64_t step : {5, 6})
        saver.save(step, std::ref(state), options_of(state.seat),
                   [&] { by = std::this_thread::get_id(); });
      saver.wait();
    }
    EXPECT_EQ(watched->threads(), std::set{std::this_thread::get_id()});
    if (plain.rank() == 0) {
      EXPECT_NE(by, std::thread::id());
    }
  });
  EXPECT_EQ(list_steps(run.path()), (Steps{5, 6}));
}

// Its thread would wait for a file that nobody writes any more.
TEST(checkpoint_async_saver, its_end_does_not_wait_for_ranks_that_are_lost) {
  PrivateFolder run;
  save_split(run.path(), 1, Seat{0, 2, 2, 3});
  const Armed slow("checkpoint.write#1=sleep(4000)");
  std::atomic<double> waited = -1;
  EXPECT_ANY_THROW(run_threads(2, [&](Group g) {
    SplitState state(seat_of(g, 2), 5);
    auto saver = std::make_unique<AsyncSaver>(run.path(), g);
    saver->save(5, std::ref(state), options_of(state.seat));
    if (g.rank() == 1) {
      g.abort("out of luck");
      return;
    }
    EXPECT_THROW(g.barrier(), PeerLost);
    const auto begin = Clock::now();
    saver.reset();
    waited = seconds_since(begin);
    throw std::runtime_error("as a program would");
  }));
  EXPECT_GE(waited, 0);
  EXPECT_LT(waited, 3);
  EXPECT_EQ(list_steps(run.path()), (Steps{1}));
}

TEST(checkpoint_async_saver, memory_that_is_not_there_is_an_error_that_names_its_size) {
  SnapshotMemory memory;
  const std::string text = trireme::testing::outcome_of([&] { memory.reserve(size_t{1} << 60); });
  EXPECT_TRUE(contains(text, "ResourceError") && contains(text, "1152921504606846976 bytes"))
      << text;
  EXPECT_NE(memory.reserve(100), nullptr);
}

}  // namespace async_saver_test
