// SPDX-License-Identifier: Apache-2.0
// An index of 40,000 parts: how long a rank takes to read it, and to plan its load in the layout in
// which it was saved and in another. The bounds are 0.3 s and 0.1 s. Medians of rounds, of CPU
// time: one thread does it, and waits for nothing (the file is in the page cache).
//   cmake --build build/release --target checkpoint_index && build/release/bench/checkpoint_index
#include <sys/mman.h>
#include <time.h>

#include <cstdio>
#include <filesystem>

#include "bench/checkpoint_state.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/load/compare.h"
#include "trireme/checkpoint/load/verify.h"

using namespace trireme;
using namespace trireme::bench;

namespace {

constexpr int kRounds = 9;
constexpr int64_t kColumns = 1024;

/// `tensors` of float32 rows, each saved by `ranks` ranks that had equal runs of its rows.
struct Scene {
  int64_t tensors, ranks, rows;

  std::string name(int64_t i) const { return fmt::format("model.blocks.{}.mlp.weight", i); }
  Slice rows_of(int64_t i, int64_t rank, int64_t of) const {
    const int64_t begin = rows * rank / of, end = rows * (rank + 1) / of;
    return {name(i), {rows, kColumns}, {begin, 0}, {end - begin, kColumns}};
  }
  CheckpointIndex index() const {
    CheckpointIndex index;
    index.step = 1;
    index.world = ranks;
    index.layout = ranks == 1 ? "replicated" : "zero stage 3";
    for (int64_t i = 0; i < tensors; ++i) {
      IndexTensor& t = index.tensors[name(i)];
      t.dtype = "F32";
      for (int64_t r = 0; r < ranks; ++r) {
        IndexPart& part = t.parts.emplace_back();
        part.slice = rows_of(i, r, ranks);
        part.file = place_of(name(i), ranks == 1 ? -1 : r).file;
        const int64_t bytes = part.slice.numel() * 4;
        for (int64_t b = 0; b < (bytes + index.block - 1) / index.block; ++b)
          part.blocks.push_back(static_cast<uint64_t>(i * 1000 + b) * 0x9e3779b97f4a7c15);
        index.files[part.file] = {100, "0123456789abcdef"};
      }
    }
    for (int v = 0; v < 100; ++v) index.values[fmt::format("train.value{}", v)] = int64_t{v};
    return index;
  }
};

double cpu_now() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median_of(const std::function<double()>& seconds) {
  std::vector<double> all;
  for (int r = 0; r < kRounds; ++r) all.push_back(seconds());
  return median(all);
}

void measure(const Scene& scene, const std::string& run) {
  const std::string folder = run + "/step-00000001";
  std::filesystem::create_directories(folder);
  const CheckpointIndex index = scene.index();
  double wrote = 0;
  std::string text;
  wrote = median_of([&] {
    const auto begin = cpu_now();
    text = index_text(index);
    return cpu_now() - begin;
  });
  write_file_atomic(folder + "/" + CheckpointIndex::kFileName, text);
  const double read = median_of([&] {
    const auto begin = cpu_now();
    const OpenedStep opened(folder, "");
    return cpu_now() - begin;
  });
  const OpenedStep opened(folder, "");
  // Addresses without memory: a plan looks at no element.
  const auto room = static_cast<size_t>(scene.tensors * scene.rows * kColumns * 4);
  void* nowhere =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check<ResourceError>(nowhere != MAP_FAILED, "mmap of {} bytes: {}", room, errno_text());
  auto plan = [&](int64_t rank, int64_t of) {
    std::vector<std::pair<Slice, at::Tensor>> mine;
    for (int64_t i = 0; i < scene.tensors; ++i) {
      const Slice slice = scene.rows_of(i, rank, of);
      char* at = static_cast<char*>(nowhere) + i * scene.rows * kColumns * 4;
      if (slice.numel() > 0) mine.emplace_back(slice, at::from_blob(at, slice.lengths, at::kFloat));
    }
    std::vector<int64_t> values(100);
    return median_of([&] {
      const auto begin = cpu_now();
      LoadOptions options;
      Comparer comparer(opened, options);
      for (const auto& [slice, t] : mine) comparer.tensor(slice, t);
      for (size_t v = 0; v < values.size(); ++v)
        comparer.value(fmt::format("train.value{}", v), values[v]);
      comparer.finish();
      const auto known = comparer.known();
      const BlocksWanted wanted = blocks_wanted(opened, comparer.plan, true);
      check<Error>(!wanted.ends.empty() && !known.empty(), "nothing was planned");
      return cpu_now() - begin;
    });
  };
  const double same = plan(scene.ranks / 2, scene.ranks),
               other = plan(1, scene.ranks == 1 ? 4 : scene.ranks * 3 / 4), whole = plan(0, 1);
  std::printf(
      "%6lld tensors of %4lld parts, %5.1f MB: written %.3f s, read %.3f s (bound 0.3); a "
      "rank's plan, as saved %.3f s, for other ranks %.3f s, of everything %.3f s (bound "
      "0.1)\n",
      static_cast<long long>(scene.tensors), static_cast<long long>(scene.ranks),
      static_cast<double>(text.size()) / 1e6, wrote, read, same, other, whole);
  std::fflush(stdout);
}

}  // namespace

int main() {
  ForeignLoad load;
  for (const Scene& scene : {Scene{40'000, 1, 512}, Scene{5'000, 8, 4096}, Scene{625, 64, 32768},
                             Scene{40, 1000, 512'000}}) {
    PrivateFolder run;
    measure(scene, run.path());
  }
  std::printf("%s\n", verdict(load.part()).c_str());
}
