// SPDX-License-Identifier: Apache-2.0
// Saving and loading 1 GiB with checksums (ranks are threads that hold it alike, and then each its
// share, as with ZeRO-3), against this program's own writes of as many bytes (each rank its share:
// 8 MiB at a time, then fsync) and its own reads of them (each rank what it holds, 8 MiB at a
// time), both from a cold page cache; the bound is 85 %. Writes past the page cache (O_DIRECT) of
// as many bytes stand beside; what is read was written so on both sides, because a virtual machine
// has to find memory for pages that were never in the cache. Rounds alternate; figures are medians,
// and void while others use the machine.
//   cmake --build build/release --target checkpoint_files
//   build/release/bench/checkpoint_files FOLDER [ROUNDS] [MIB] [RANKS...]
// Loads are load()'s; those with LoadOptions::check_first, which read twice, stand beside.
// checkpoint_files FOLDER once MIB RANKS replicated|sharded: one save and one cold load, as JSON
// (bench/checkpoint_vs_torch.py calls it).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "bench/checkpoint_state.h"
#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/comm/start/run.h"

using namespace trireme;
using namespace trireme::bench;
namespace fs = std::filesystem;

namespace {

constexpr size_t kPiece = size_t{8} << 20;

/// No byte of the files below is in the page cache any more.
void make_cold(const std::string& folder) {
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    if (!item.is_regular_file()) continue;
    const UniqueFd fd(::open(item.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::fsync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

void write_plainly(const std::string& path, const char* bytes, int64_t size, int64_t at, int more) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | more, 0644));
  for (int64_t done = 0; done < size; done += kPiece) {
    const auto n = std::min<size_t>(kPiece, static_cast<size_t>(size - done));
    if (::pwrite(fd.get(), bytes + done, n, at + done) != static_cast<ssize_t>(n))
      fail<Error>("{}: {}", path, errno_text());
  }
  if (::fsync(fd.get()) != 0) fail<Error>("{}: {}", path, errno_text());
}

void read_plainly(const std::string& path, char* into, int64_t size, int64_t at) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (int64_t done = 0; done < size; done += kPiece) {
    const auto n = std::min<size_t>(kPiece, static_cast<size_t>(size - done));
    if (::pread(fd.get(), into + done, n, at + done) != static_cast<ssize_t>(n))
      fail<Error>("{}: {}", path, errno_text());
  }
}

struct Free {
  void operator()(char* p) const { std::free(p); }
};

void measure(const std::string& folder, int ranks, int rounds, int64_t mib, bool replicated) {
  ForeignLoad load;
  run_threads(ranks, [&](Group group) {
    at::set_num_threads(threads_of_rank(ranks));
    const bool first = group.rank() == 0;
    BenchState state(mib, group.rank(), ranks, replicated, 1);
    const int64_t all = mib * kMiB, share = all / ranks, begin = share * group.rank();
    const std::unique_ptr<char, Free> own(
        static_cast<char*>(std::aligned_alloc(4096, static_cast<size_t>(all))));
    std::memset(own.get(), 1, static_cast<size_t>(all));
    const std::string run = folder + "/run", plain = folder + "/plain";
    auto fresh = [&] {
      if (first) {
        fs::remove_all(folder);
        fs::create_directories(folder);
        ::sync();
      }
      group.barrier();
    };
    auto cold = [&] {
      if (first) make_cold(folder);
      group.barrier();
    };
    auto load = [&](bool check_first) {
      cold();
      state.zero();
      const Taken taken = together(group, [&] {
        load_step(run, std::ref(state), {.group = group, .check_first = check_first});
      });
      check<Error>(state.has(1), "what was loaded is not what was saved");
      return taken;
    };
    Pairs saves, loads, checked_loads, direct_saves;
    for (int r = 0; r < rounds; ++r) {
      Taken ours, theirs, direct, our_load, our_checked_load, their_load;
      auto save_ours = [&] {
        fresh();
        ours = together(group, [&] {
          save_sharded_step(run, 1, std::ref(state), group,
                            {.layout = replicated ? "replicated" : "zero stage 3"});
        });
        our_load = load(false);
        our_checked_load = load(true);
      };
      auto write_theirs = [&] {
        fresh();
        theirs = together(group, [&] { write_plainly(plain, own.get() + begin, share, begin, 0); });
        fresh();
        direct = together(group,
                          [&] { write_plainly(plain, own.get() + begin, share, begin, O_DIRECT); });
        cold();
        their_load = together(group, [&] {
          read_plainly(plain, own.get(), replicated ? all : share, replicated ? 0 : begin);
        });
      };
      r % 2 ? save_ours() : write_theirs();
      r % 2 ? write_theirs() : save_ours();
      saves.add(ours, theirs);
      direct_saves.add(ours, direct);
      loads.add(our_load, their_load);
      checked_loads.add(our_checked_load, their_load);
    }
    if (!first) return;
    auto part = [](const Pairs& pairs) { return 100 / median(pairs.ratios()); };
    std::printf(
        "%d rank%s, %lld MiB%s, %d rounds, medians\n"
        "save  %s: %.0f %% of its speed (bound 85 %%)\n"
        "      %s: %.0f %%\n"
        "load  %s: %.0f %% of its speed (bound 85 %%)\n"
        "      %s: %.0f %%, with LoadOptions::check_first\n",
        ranks, ranks == 1 ? "" : "s", static_cast<long long>(mib),
        ranks == 1   ? ""
        : replicated ? " that all hold alike"
                     : " of which each holds its share",
        rounds, saves.text("own writes").c_str(), part(saves),
        direct_saves.text("own direct writes").c_str(), part(direct_saves),
        loads.text("own cold reads").c_str(), part(loads),
        checked_loads.text("own cold reads").c_str(), part(checked_loads));
  });
  std::printf("%s\n", verdict(load.part()).c_str());
  std::fflush(stdout);
}

void once(const std::string& folder, int64_t mib, int ranks, bool replicated) {
  run_threads(ranks, [&](Group group) {
    at::set_num_threads(threads_of_rank(ranks));
    BenchState state(mib, group.rank(), ranks, replicated, 1);
    if (group.rank() == 0) fs::remove_all(folder);
    const Taken saved = together(group, [&] {
      save_sharded_step(folder, 1, std::ref(state), group,
                        {.layout = replicated ? "replicated" : "zero stage 3"});
    });
    if (group.rank() == 0) make_cold(folder);
    state.zero();
    const Taken loaded =
        together(group, [&] { load_step(folder, std::ref(state), {.group = group}); });
    check<Error>(state.has(1), "what was loaded is not what was saved");
    if (group.rank() == 0)
      std::printf("{\"save_s\": %.6f, \"load_s\": %.6f}\n", saved.wall, loaded.wall);
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "checkpoint_files FOLDER [ROUNDS] [MIB] [RANKS...]\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/trireme-bench-files";
  if (argc == 6 && std::string(argv[2]) == "once") {
    once(folder, std::atoll(argv[3]), std::atoi(argv[4]), std::string(argv[5]) == "replicated");
  } else {
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
    const int64_t mib = argc > 3 ? std::atoll(argv[3]) : 1024;
    std::vector<int> ranks{1, 2};
    if (argc > 4) ranks.clear();
    for (int i = 4; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
    for (int n : ranks)
      for (const bool replicated : {true, false})
        if (replicated || n > 1) measure(folder, n, rounds, mib, replicated);
  }
  fs::remove_all(folder);
}
