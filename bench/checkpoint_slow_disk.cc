// SPDX-License-Identifier: Apache-2.0
// Steps of a loop that keeps every core busy while an AsyncSaver saves to a disk of 1 MB/s
// (base/file slows this process's writes down), against its steps when nothing is saved. The call
// of save() is a part of its step. Stretches alternate, each kind first in turn; the figure is the
// median of the ratios of their mean steps, void while others use the machine; the bound is 3 %.
//   cmake --build build/release --target checkpoint_slow_disk
//   build/release/bench/checkpoint_slow_disk FOLDER [PAIRS] [MIB]
#include <filesystem>

#include "bench/checkpoint_state.h"
#include "trireme/base/file/file_faults.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/comm/start/run.h"

using namespace trireme;
using namespace trireme::bench;

namespace {

// Short, so that a pair meets one mood of a virtual machine; many pairs make up for the noise.
constexpr auto kStretch = std::chrono::seconds(3);

/// About 20 ms on each core.
double train_step(std::vector<float>& x, int threads) {
  const auto begin = Clock::now();
  const auto n = static_cast<int64_t>(x.size()) / threads;
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t)
      for (int i = 0; i < 6000; ++i)
        for (int64_t j = t * n; j < (t + 1) * n; ++j)
          x[static_cast<size_t>(j)] = x[static_cast<size_t>(j)] * 0.999f + 0.001f;
  });
  return seconds_since(begin);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "checkpoint_slow_disk FOLDER [PAIRS] [MIB]\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/trireme-bench-slow-disk";
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 15;
  const int64_t mib = argc > 3 ? std::atoll(argv[3]) : 32;
  std::filesystem::create_directories(folder);
  ForeignLoad load;
  run_threads(1, [&](Group group) {
    const int threads = threads_of_rank(1);
    at::set_num_threads(threads);
    BenchState state(mib, 0, 1, true, 1);
    std::vector<float> x(static_cast<size_t>(threads) * 4096, 1.0f);
    AsyncSaver saver(folder, group);
    int64_t step = 0, saves = 0;
    saver.save(++step, std::ref(state), {.layout = "replicated", .keep = 1});
    saver.wait();
    Pairs steps;
    for (int p = 0; p < pairs; ++p) {
      auto stretch = [&](bool saving) {
        const auto begin = Clock::now();
        int64_t n = 0;
        for (; Clock::now() - begin < kStretch; ++n) {
          if (saving && !saver.busy())
            saver.save(++step, std::ref(state), {.layout = "replicated", .keep = 1}), ++saves;
          train_step(x, threads);
        }
        return seconds_since(begin) / static_cast<double>(n);
      };
      double calm = 0;
      if (p % 2 == 0) calm = stretch(false);
      set_file_faults("only=" + std::filesystem::canonical(folder).string() + ",slow=1000000");
      const double saving = stretch(true);
      set_file_faults("");
      saver.wait();
      if (p % 2 == 1) calm = stretch(false);
      steps.add({saving, 0}, {calm, 0});
    }
    const auto ratios = steps.ratios();
    std::printf(
        "%lld MiB to a disk of 1 MB/s, %d pairs, %lld saves: a step %.2f ms, calm %.2f ms; "
        "%+.1f %% [%+.1f, %+.1f] (bound 3 %%)\n",
        static_cast<long long>(mib), pairs, static_cast<long long>(saves), 1e3 * median(steps.ours),
        1e3 * median(steps.theirs), 100 * (median(ratios) - 1),
        100 * (*std::min_element(ratios.begin(), ratios.end()) - 1),
        100 * (*std::max_element(ratios.begin(), ratios.end()) - 1));
  });
  std::printf("%s\n", verdict(load.part()).c_str());
  std::filesystem::remove_all(folder);
}
