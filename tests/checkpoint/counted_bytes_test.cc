// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "tests/checkpoint/file_faults.h"
#include "tests/checkpoint/rank_processes.h"
#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/ranks.h"
#include "trireme/base/fd.h"
#include "trireme/base/rank_label.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/steps/step_file.h"
#include "trireme/comm/start/run.h"

// What a save and a load move, counted at their file calls.
namespace counted_bytes_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;

namespace {

/// Whether the file system of these tests tells what is in its page cache (tmpfs does not): else a
/// load asks for bytes a second time which, in memory, are nobody's reads.
bool tells_what_is_cached(const std::string& folder) {
  write_file_atomic(folder + "/probe", "x");
  const UniqueFd fd(::open((folder + "/probe").c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  const iovec into{&byte, 1};
  const bool tells = ::preadv2(fd.get(), &into, 1, 0, RWF_NOWAIT) == 1;
  ::unlink((folder + "/probe").c_str());
  return tells;
}

/// Bytes that this process has had from storage: what the page cache gave does not count.
int64_t from_storage() {
  std::ifstream io("/proc/self/io");
  for (std::string line; std::getline(io, line);)
    if (line.starts_with("read_bytes:")) return std::stoll(line.substr(line.find(' ')));
  return 0;
}

/// No byte of the folder's files is in the page cache any more.
void make_cold(const std::string& folder) {
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const UniqueFd fd(::open(item.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::fsync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

constexpr const char* kNoAnswer = "the file system of $TMPDIR does not tell what is cached";

constexpr int64_t kMiB = int64_t{1} << 20;

/// Tensors of odd sizes. A rank shows all of each, or a flat range that is its share.
class Weights {
 public:
  Weights(int rank, int shards, float mark) {
    int64_t numel = 0;
    for (const auto& shape : shapes()) numel += Slice::whole("", shape).numel();
    const int64_t chunk = (numel + shards - 1) / shards, mine = chunk * (rank % shards);
    int64_t at = 0;
    for (size_t i = 0; i < shapes().size(); ++i) {
      const std::string name = fmt::format("model.w{}", i);
      const int64_t n = Slice::whole("", shapes()[i]).numel();
      const int64_t begin = std::clamp(mine - at, int64_t{0}, n);
      const int64_t end = std::clamp(mine + chunk - at, int64_t{0}, n);
      if (begin < end) slices.push_back(Slice::range(name, shapes()[i], begin, end - begin));
      at += n;
    }
    for (const Slice& s : slices) {
      const int64_t begin = s.flat ? s.flat->begin : 0;
      tensors.push_back(
          (at::arange(begin, begin + s.numel(), at::kFloat) * mark).view(s.local_shape()));
      bytes += s.numel() * 4;
    }
  }
  static const std::vector<std::vector<int64_t>>& shapes() {
    static const std::vector<std::vector<int64_t>> list{
        {1000, 1003}, {7}, {3, 300'001}, {6'500'000}, {64, 65, 66}, {1}, {5, 1'500'000}};
    return list;
  }
  void operator()(StateVisitor& v) {
    for (size_t i = 0; i < slices.size(); ++i) v.tensor(slices[i], tensors[i]);
  }
  bool same_as(const Weights& other) const {
    bool same = tensors.size() == other.tensors.size();
    for (size_t i = 0; same && i < tensors.size(); ++i) same = tensors[i].equal(other.tensors[i]);
    return same;
  }

  std::vector<Slice> slices;
  std::vector<at::Tensor> tensors;
  int64_t bytes = 0;
};

/// Bytes that calls of a kind moved, by rank; and how often each byte behind the headers was.
struct Moved {
  Moved(const std::vector<LoggedCall>& calls, const std::string& kind,
        const std::map<std::string, int64_t>& heads = {}) {
    for (const LoggedCall& call : calls) {
      const std::string name = call.path.substr(call.path.rfind('/') + 1);
      if (call.kind != kind || !name.ends_with(".safetensors")) continue;
      const auto head = heads.find(name);
      const int64_t begin = std::max(call.offset, head == heads.end() ? int64_t{0} : head->second);
      const int64_t end = call.offset + call.result;
      if (begin >= end) continue;
      by_rank[call.rank] += end - begin;
      all += end - begin;
      ++edges[name][begin];
      --edges[name][end];
    }
  }
  /// How often the bytes were moved between the first and the last that were: {fewest, most}.
  std::pair<int, int> times() const {
    std::pair<int, int> found{1 << 30, 0};
    for (const auto& [name, list] : edges) {
      int now = 0;
      for (auto at = list.begin(); at != list.end() && std::next(at) != list.end(); ++at) {
        now += at->second;
        found = {std::min(found.first, now), std::max(found.second, now)};
      }
    }
    return found;
  }
  int64_t fullest() const {
    int64_t n = 0;
    for (const auto& [rank, bytes] : by_rank) n = std::max(n, bytes);
    return n;
  }
  std::map<int, int64_t> by_rank;
  std::map<std::string, std::map<int64_t, int>> edges;
  int64_t all = 0;
};

struct Layout {
  int world, shards;
  const char* text;
};
constexpr Layout kLayouts[] = {{1, 1, "replicated"},   {2, 1, "replicated"},
                               {4, 1, "replicated"},   {2, 2, "zero stage 3"},
                               {4, 4, "zero stage 3"}, {4, 2, "dp_shard 2"}};

void save(const std::string& run, const Layout& layout, bool async) {
  run_threads(layout.world, [&](Group g) {
    const ThreadRankScope label(g.rank());
    Weights state(g.rank(), layout.shards, 1);
    if (!async) {
      save_sharded_step(run, 1, std::ref(state), g, {.layout = layout.text});
      return;
    }
    AsyncSaver saver(run, g);
    saver.save(1, std::ref(state), {.layout = layout.text});
    saver.wait();
  });
}

std::map<std::string, int64_t> heads_of(const std::string& folder) {
  std::map<std::string, int64_t> heads;
  for (const auto& [name, file] : read_step_index(folder).files)
    heads[name] = static_cast<int64_t>(StepFile(folder, name, file).head_size());
  return heads;
}

int64_t parts_of(const std::string& folder) {
  int64_t n = 0;
  for (const auto& [name, t] : read_step_index(folder).tensors)
    n += static_cast<int64_t>(t.parts.size());
  return n;
}

}  // namespace

TEST(checkpoint_counted_bytes, a_save_writes_each_byte_once_and_ranks_write_alike) {
  for (const Layout& layout : kLayouts)
    for (const bool async : {false, true}) {
      PrivateFolder run;
      const auto what =
          fmt::format("{} of {} shards, async {}", layout.world, layout.shards, async);
      const Moved moved(calls_of(run.path(), [&] { save(run.path(), layout, async); }), "pwrite");
      uint64_t size = 0;
      for (const auto& [name, file] : read_step_index(run / "step-00000001").files)
        size += file.size;
      EXPECT_EQ(moved.all, static_cast<int64_t>(size)) << what;
      EXPECT_EQ(moved.times(), std::pair(1, 1)) << what;
      EXPECT_EQ(moved.by_rank.size(), static_cast<size_t>(layout.world)) << what;
      EXPECT_LE(static_cast<double>(moved.fullest()),
                1.1 * static_cast<double>(moved.all) / layout.world)
          << what;
    }
}

TEST(checkpoint_counted_bytes, a_host_reads_each_byte_once_and_no_more_than_two_blocks_beside) {
  for (const Layout& from : kLayouts) {
    PrivateFolder run;
    if (!tells_what_is_cached(run.path())) GTEST_SKIP() << kNoAnswer;
    save(run.path(), from, false);
    const std::string folder = run / "step-00000001";
    const int64_t whole = Weights(0, 1, 1).bytes, slack = 2 * kMiB * parts_of(folder);
    make_cold(folder);
    const int64_t first = from_storage();
    read_file(folder + "/" + read_step_index(folder).files.begin()->first, size_t{1} << 30);
    const bool tells_of_storage = from_storage() > first;
    for (const Layout& to : kLayouts) {
      const bool check_first = (to.world + from.shards) % 2 != 0;
      const auto what = fmt::format("{} of {} → {} of {}, checked first {}", from.world,
                                    from.shards, to.world, to.shards, check_first);
      make_cold(folder);
      const int64_t before = from_storage();
      const auto calls = calls_of(run.path(), [&] {
        run_threads(to.world, [&](Group g) {
          const ThreadRankScope label(g.rank());
          Weights state(g.rank(), to.shards, 0);
          load_step(folder, std::ref(state), {.group = g, .check_first = check_first});
          EXPECT_TRUE(state.same_as(Weights(g.rank(), to.shards, 1))) << what;
        });
      });
      // Storage is asked for each byte once, whoever copies it how often from the page cache. The
      // kernel reads on behind what it is asked for.
      const int64_t stored = from_storage() - before;
      if (tells_of_storage) {
        EXPECT_GE(stored, whole) << what;
        EXPECT_LE(stored, whole + whole / 8 + slack) << what;
      }
      const Moved moved(calls, "pread", heads_of(folder));
      const bool alone_with_it = to.shards == to.world;
      if (!check_first && !alone_with_it) {
        EXPECT_LE(moved.all, whole * (to.world / to.shards) + slack * to.world) << what;
      } else {
        // What the kernel does not give from the cache at once is asked for again: some pages, more
        // of them while others fill the cache. Twice would be far more.
        EXPECT_GE(moved.all, whole) << what;
        EXPECT_LE(moved.all, whole + whole / 8) << what;
        EXPECT_LE(static_cast<double>(moved.fullest()),
                  1.1 * static_cast<double>(whole) / to.world + 2.0 * kMiB)
            << what;
        // From memory: where ranks fill what they read, the blocks at their borders alone, which
        // are of two of them; else all that they want, but for what the kernel does not give.
        const int64_t cached = Moved(calls, "pread-cached").all;
        EXPECT_GE(cached, check_first ? whole * (to.world / to.shards) - whole / 8 : 0) << what;
        EXPECT_LE(cached, check_first ? whole * to.world : 2 * kMiB * (to.world - 1)) << what;
      }
      EXPECT_EQ(Moved(calls, "read").all, 0) << what;
      // One rank by itself reads what it wants, to whole blocks.
      Weights one(to.world - 1, to.shards, 0);
      const Moved alone(
          calls_of(run.path(), [&] { load_step(folder, std::ref(one), {.partial = true}); }),
          "pread", heads_of(folder));
      EXPECT_TRUE(one.same_as(Weights(to.world - 1, to.shards, 1))) << what;
      EXPECT_LE(alone.all, one.bytes + slack) << what;
    }
  }
}

TEST(checkpoint_counted_bytes, of_a_column_only_the_blocks_that_it_crosses_are_read) {
  PrivateFolder run;
  if (!tells_what_is_cached(run.path())) GTEST_SKIP() << kNoAnswer;
  for (const int64_t row : {2 * kMiB, kMiB / 2}) {  // of 8 and of 2 MiB
    const std::vector<int64_t> shape{8 * kMiB / row, row};
    at::Tensor whole = at::arange(8 * kMiB, at::kFloat).view(shape);
    save_step(run.path(), 1, [&](StateVisitor& v) { v.tensor("model.w", whole); });
    const int64_t quarter = row / 4;
    const Slice column{"model.w", shape, {0, quarter}, {shape[0], quarter}};
    at::Tensor mine = at::zeros({shape[0], quarter});
    const auto calls = calls_of(run.path(), [&] {
      load_step(run.path(), [&](StateVisitor& v) { v.tensor(column, mine); }, {.partial = true});
    });
    EXPECT_TRUE(mine.equal(whole.narrow(1, quarter, quarter)));
    const Moved moved(calls, "pread", heads_of(run / "step-00000001"));
    const int64_t crossed = std::max<int64_t>(quarter * 4, kMiB) * shape[0];
    EXPECT_GE(moved.all, crossed) << row;
    EXPECT_LE(moved.all, crossed + kMiB) << row;
    EXPECT_EQ(moved.times().first, 0) << row;
  }
}

}  // namespace counted_bytes_test
