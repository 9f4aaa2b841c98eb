// SPDX-License-Identifier: Apache-2.0
// Offload to disk: OffloadFile (checksums, one thread) against a loop that does nothing but keep
// the same number of blocks in flight, as fio does: sequential, O_DIRECT, 1 MiB, 8 in flight, on
// files of the same size in the same folder. Pairs alternate; the figure is the median of their
// ratios, and is void while others use the machine. fio's own number stands beside, where it is
// installed.
//   cmake --build build/release --target offload && build/release/bench/offload FOLDER [PAIRS]
//   [MIB]
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#ifdef TRIREME_HAS_LIBURING
#include <liburing.h>
#endif

#include "bench/foreign_load.h"
#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/shard/offload/offload_file.h"

using namespace trireme;

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBlock = kMiB;
constexpr int kDepth = 8;
constexpr size_t kRequest = 64 * kMiB;  // what an optimizer moves at once

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What fio does.
class Peer {
 public:
  Peer(const std::string& folder, size_t bytes) : bytes_(bytes), memory_(offload_memory(kRequest)) {
    fd_.reset(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600));
    if (!fd_) fd_.reset(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    const int error = fd_ ? ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(bytes)) : errno;
    check<ResourceError>(error == 0, "{}: {}", folder, errno_text(error));
    std::memset(memory_.get(), 0x5a, kRequest);
#ifdef TRIREME_HAS_LIBURING
    uring_ = ::io_uring_queue_init(kDepth, &ring_, 0) == 0;
#endif
  }
  ~Peer() {
#ifdef TRIREME_HAS_LIBURING
    if (uring_) ::io_uring_queue_exit(&ring_);
#endif
  }
  const char* name() const { return uring_ ? "io_uring" : "pread/pwrite"; }

  /// Bytes a second.
  double run(bool write) {
    const auto begin = Clock::now();
    const size_t blocks = bytes_ / kBlock;
    if (uring_)
      in_flight(write, blocks);
    else
      for (size_t b = 0; b < blocks; ++b) moved(one(write, b));
    return static_cast<double>(bytes_) / seconds_since(begin);
  }

 private:
  char* memory(size_t block) {
    return static_cast<char*>(memory_.get()) + block * kBlock % kRequest;
  }
  static void moved(int64_t result) {
    check<ResourceError>(result == static_cast<int64_t>(kBlock), "the peer's loop: {}", result);
  }
  ssize_t one(bool write, size_t b) {
    const auto at = static_cast<off_t>(b * kBlock);
    return write ? ::pwrite(fd_.get(), memory(b), kBlock, at)
                 : ::pread(fd_.get(), memory(b), kBlock, at);
  }
  void in_flight([[maybe_unused]] bool write, [[maybe_unused]] size_t blocks) {
#ifdef TRIREME_HAS_LIBURING
    size_t issued = 0, done = 0;
    while (done < blocks) {
      for (; issued < blocks && issued - done < kDepth; ++issued) {
        io_uring_sqe* e = ::io_uring_get_sqe(&ring_);
        if (write)
          ::io_uring_prep_write(e, fd_.get(), memory(issued), kBlock, issued * kBlock);
        else
          ::io_uring_prep_read(e, fd_.get(), memory(issued), kBlock, issued * kBlock);
      }
      ::io_uring_submit_and_wait(&ring_, 1);
      for (io_uring_cqe* c; ::io_uring_peek_cqe(&ring_, &c) == 0; ++done) {
        moved(c->res);
        ::io_uring_cqe_seen(&ring_, c);
      }
    }
#endif
  }

  size_t bytes_;
  std::shared_ptr<void> memory_;
  UniqueFd fd_;
  bool uring_ = false;
#ifdef TRIREME_HAS_LIBURING
  io_uring ring_{};
#endif
};

// As the optimizer does: three buffers, the next request is issued before the last is waited for.
class Ours {
 public:
  Ours(const OffloadFileOptions& options, size_t bytes) : file_(options, bytes), bytes_(bytes) {
    for (auto& m : memory_) std::memset((m = offload_memory(kRequest)).get(), 0x5a, kRequest);
  }
  const OffloadFile& file() const { return file_; }
  double run(bool write) {
    const auto begin = Clock::now();
    OffloadFile::Request under_way[3];
    for (size_t i = 0; i < bytes_ / kRequest; ++i) {
      auto& r = under_way[i % 3];
      r.wait();
      const uint64_t at = i * kRequest;
      r = write ? file_.write(at, memory_[i % 3], kRequest)
                : file_.read(at, memory_[i % 3], kRequest);
    }
    for (auto& r : under_way) r.wait();
    return static_cast<double>(bytes_) / seconds_since(begin);
  }

 private:
  OffloadFile file_;
  size_t bytes_;
  std::shared_ptr<void> memory_[3];
};

/// Bytes a second; 0: no fio here.
double fio(const std::string& folder, size_t bytes, bool write) {
  const std::string path = folder + "/trireme-bench-fio-" + std::to_string(::getpid());
  const std::string command = fmt::format(
      "fio --name=t --filename='{}' --rw={} --bs={} --size={} --direct=1 "
      "--ioengine=io_uring --iodepth={} --output-format=terse --terse-version=3 "
      "2>/dev/null",
      path, write ? "write" : "read", kBlock, bytes, kDepth);
  std::string text;
  if (FILE* out = ::popen(command.c_str(), "r")) {
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), out)) > 0;) text.append(buffer, n);
    ::pclose(out);
  }
  ::unlink(path.c_str());
  std::istringstream fields(text);
  std::string field;
  for (int i = 0; i <= (write ? 47 : 6); ++i)
    if (!std::getline(fields, field, ';')) return 0;
  return std::atof(field.c_str()) * 1024;  // KiB/s
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: offload FOLDER [PAIRS] [MIB]\n"), 2;
  const std::string folder = argv[1];
  const int pairs = argc > 2 ? std::max(5, std::atoi(argv[2])) : 9;
  const size_t mib = argc > 3 ? static_cast<size_t>(std::max(64, std::atoi(argv[3]))) : 512;
  const size_t bytes = mib * kMiB / kRequest * kRequest;
  bool good = true;
  try {
    Peer peer(folder, bytes);
    for (auto engine : {OffloadEngine::automatic, OffloadEngine::threads}) {
      for (bool direct : {true, false}) {
        OffloadFileOptions options;
        options.folder = folder;
        options.engine = engine;
        options.direct = direct;
        Ours ours(options, bytes);
        if (engine == OffloadEngine::automatic && direct)
          std::printf("%zu MiB in %s, blocks of 1 MiB, %d in flight; the peer: %s\n", bytes / kMiB,
                      folder.c_str(), kDepth, peer.name());
        for (bool write : {true, false}) {
          ours.run(true);  // both files have their blocks
          peer.run(true);
          std::vector<double> ratios, mine, theirs;
          ForeignLoad load;
          for (int p = 0; p < pairs; ++p) {
            double a = 0, b = 0;
            if (p % 2) a = ours.run(write);
            b = peer.run(write);
            if (p % 2 == 0) a = ours.run(write);
            ratios.push_back(a / b), mine.push_back(a), theirs.push_back(b);
          }
          const bool judged = engine == OffloadEngine::automatic && direct;
          const double ratio = median(ratios), foreign = load.part();
          std::printf("%-8s %-6s %-5s  %7.0f MB/s  peer %7.0f  ratio %.2f%s  foreign load %.2f%s\n",
                      ours.file().engine(), ours.file().direct() ? "direct" : "cached",
                      write ? "write" : "read", median(mine) / 1e6, median(theirs) / 1e6, ratio,
                      judged ? " (at least 0.80)" : "", foreign, foreign > 0.05 ? " VOID" : "");
          if (judged) good = good && ratio >= 0.8;
          if (judged)
            if (const double f = fio(folder, bytes, write); f > 0)
              std::printf("%-8s %-6s %-5s  %7.0f MB/s\n", "fio", "direct", write ? "write" : "read",
                          f / 1e6);
        }
      }
    }
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
  return good ? 0 : 1;
}
