// SPDX-License-Identifier: Apache-2.0
// What an asynchronous save costs training, for a state of 1 GiB that the ranks (threads) hold
// alike:
//   wait   AsyncSaver::save(), from the second on, against copying as many bytes to memory that is
//          warm by as many threads; the bound is 1.2
//   all    … and what the writing takes from a loop that keeps every core busy meanwhile: the time
//          from the call until the step is published, less the time in which the loop does as much
//          when nothing is saved; against that copy and one checksum of the bytes by one thread of
//          each rank; the bound is 1.5
// Rounds alternate; figures are medians, and void while others use the machine.
//   cmake --build build/release --target checkpoint_async
//   build/release/bench/checkpoint_async FOLDER [ROUNDS] [MIB] [RANKS...]
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "bench/checkpoint_state.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/comm/start/run.h"

using namespace trireme;
using namespace trireme::bench;

namespace {

/// Threads that compute in their cores' own caches and count what they have done.
class Loop {
 public:
  explicit Loop(int threads) : counts_(static_cast<size_t>(threads)) {
    for (auto& count : counts_) threads_.emplace_back([this, &count] { run(count); });
  }
  ~Loop() {
    ends_ = true;
    for (auto& t : threads_) t.join();
  }
  void go(bool on) { goes_ = on; }
  int64_t done() const {
    int64_t sum = 0;
    for (const auto& count : counts_) sum += count;
    return sum;
  }

 private:
  void run(std::atomic<int64_t>& count) {
    std::vector<float> x(2048, 1.0f);
    while (!ends_) {
      if (!goes_) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        continue;
      }
      for (int i = 0; i < 16; ++i)
        for (float& v : x) v = v * 0.999f + 0.001f;
      if (x[7] > 2) return;  // never
      ++count;
    }
  }
  std::vector<std::atomic<int64_t>> counts_;
  std::vector<std::thread> threads_;
  std::atomic<bool> ends_ = false, goes_ = false;
};

void copy_all(const BenchState& state, int64_t begin, int64_t bytes, char* to) {
  at::parallel_for(0, bytes / kMiB, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last;) {  // runs as long as tensors allow
      const int64_t at = begin + i * kMiB, each = 16 * kMiB;
      const int64_t n = std::min(last - i, (each - at % each) / kMiB);
      std::memcpy(
          to + i * kMiB,
          static_cast<const char*>(state.tensors[static_cast<size_t>(at / each)].data_ptr()) +
              at % each,
          static_cast<size_t>(n * kMiB));
      i += n;
    }
  });
}

void measure(const std::string& folder, int ranks, int rounds, int64_t mib) {
  ForeignLoad load;
  run_threads(ranks, [&](Group group) {
    at::set_num_threads(threads_of_rank(ranks));
    BenchState state(mib, group.rank(), ranks, true, 1);
    const int64_t share = mib * kMiB / ranks, begin = share * group.rank();
    std::vector<char> copy(static_cast<size_t>(share), 1);
    AsyncSaver saver(fmt::format("{}/async-{}", folder, ranks), group);
    Loop loop(threads_of_rank(ranks));
    int64_t step = 0;
    auto save = [&] { saver.save(++step, std::ref(state), {.layout = "replicated", .keep = 1}); };
    save();
    saver.wait();
    Pairs waits, takes;
    std::vector<double> writes;
    for (int r = 0; r < rounds; ++r) {
      const Taken copied = together(group, [&] { copy_all(state, begin, share, copy.data()); });
      const Taken summed = together(group, [&] {
        volatile uint64_t sum = Checksum::number_of(copy.data(), copy.size());
        (void)sum;
      });
      // As much of the loop as there is without a save.
      int64_t before = loop.done();
      const Taken calm = together(group, [&] {
        loop.go(true);
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        loop.go(false);
      });
      const double rate = static_cast<double>(loop.done() - before) / calm.wall;
      before = loop.done();
      Taken waited;
      const Taken all = together(group, [&] {
        waited = together(group, save);
        loop.go(true);
        saver.wait();
        loop.go(false);
      });
      // What the loop did not do, as time.
      const double taken = all.wall - static_cast<double>(loop.done() - before) / rate;
      waits.add(waited, copied);
      takes.add({taken, 0}, {copied.wall + summed.wall, copied.cpu + summed.cpu});
      writes.push_back(all.wall - waited.wall);
    }
    if (group.rank() == 0)
      std::printf(
          "%d rank%s, %lld MiB, %d rounds, medians\n"
          "wait  %s (bound 1.20)\n"
          "all   %s (bound 1.50); the disk took %.2f s\n",
          ranks, ranks == 1 ? "" : "s", static_cast<long long>(mib), rounds,
          waits.text("the copy").c_str(), takes.text("copy + checksum").c_str(), median(writes));
  });
  std::printf("%s\n", verdict(load.part()).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "checkpoint_async FOLDER [ROUNDS] [MIB] [RANKS...]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  const int64_t mib = argc > 3 ? std::atoll(argv[3]) : 1024;
  std::vector<int> ranks{1, 2};
  if (argc > 4) ranks.clear();
  for (int i = 4; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
  const std::string folder = std::string(argv[1]) + "/trireme-bench-async";
  for (int n : ranks) measure(folder, n, rounds, mib);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}
