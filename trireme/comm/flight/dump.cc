// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "trireme/base/philox.h"
#include "trireme/base/process/flight_variables.h"
#include "trireme/comm/flight/recorder.h"

namespace trireme {

int flight_dump(const std::string& folder) { return write_all_down(0, folder.c_str()); }

namespace flight {
namespace {

// snprintf is not for signal handlers.
class Text {
 public:
  Text(char* to, size_t room) : to_(to), room_(room) { to_[0] = '\0'; }
  Text& operator<<(const char* s) noexcept {
    while (*s && n_ + 1 < room_) to_[n_++] = *s++;
    to_[n_] = '\0';
    return *this;
  }
  Text& operator<<(int64_t value) noexcept {
    char digits[24];
    size_t i = sizeof digits;
    digits[--i] = '\0';
    uint64_t left = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    do digits[--i] = static_cast<char>('0' + left % 10);
    while (left /= 10);
    if (value < 0) digits[--i] = '-';
    return *this << (digits + i);
  }
  Text& hex(uint64_t value) noexcept {
    char digits[17] = {};
    for (int i = 15; i >= 0; --i, value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
    return *this << digits;
  }

 private:
  char* to_;
  size_t room_, n_ = 0;
};

int64_t clock_ns(clockid_t clock) noexcept {
  timespec t{};
  ::clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

class Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}
  void put(const void* bytes, size_t n) noexcept {
    sum_.add(bytes, n);
    raw(bytes, n);
  }
  bool finish() noexcept {
    const uint64_t sum = sum_.value();
    raw(&sum, sizeof sum);
    return ok_;
  }

 private:
  void raw(const void* bytes, size_t n) noexcept {
    const char* at = static_cast<const char*>(bytes);
    while (ok_ && n) {
      const ssize_t done = ::write(fd_, at, n);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        ok_ = false;
      else
        at += done, n -= static_cast<size_t>(done);
    }
  }
  int fd_;
  bool ok_ = true;
  Checksum sum_;
};

// The layout of Record in a file, without its atomics.
struct PlainRecord {
  uint64_t seq, count, posted_ticks, done_ticks;
  uint8_t op, dtype, red, state;
  int32_t root, tag;
  uint32_t site;
  uint64_t spare[2];
};
static_assert(sizeof(PlainRecord) == sizeof(Record));

// Records are copied one by one, because their owner may be writing.
PlainRecord snapshot(const Record& r) noexcept {
  constexpr auto acquire = std::memory_order_acquire;
  PlainRecord p{};
  p.seq = r.seq.load(acquire);
  if (p.seq == 0) return p;
  p.count = r.count.load(acquire);
  p.posted_ticks = r.posted_ticks.load(acquire);
  p.done_ticks = r.done_ticks.load(acquire);
  p.op = static_cast<uint8_t>(r.op.load(acquire));
  p.dtype = static_cast<uint8_t>(r.dtype.load(acquire));
  p.red = static_cast<uint8_t>(r.red.load(acquire));
  p.state = static_cast<uint8_t>(r.state.load(acquire));
  p.root = r.root.load(acquire);
  p.tag = r.tag.load(acquire);
  p.site = r.site.load(acquire);
  return r.seq.load(std::memory_order_relaxed) == p.seq ? p : PlainRecord{};
}

/// Returns the number of places up to the last that was ever used.
uint64_t used(const Record (&records)[kRecords]) noexcept {
  for (uint64_t n = kRecords; n > 0; --n)
    if (records[n - 1].seq.load(std::memory_order_relaxed)) return n;
  return 0;
}

void put_records(Writer& out, const Record* records, uint64_t count) noexcept {
  PlainRecord some[32];
  for (uint64_t at = 0; at < count; at += 32) {
    const uint64_t n = std::min<uint64_t>(32, count - at);
    for (uint64_t i = 0; i < n; ++i) some[i] = snapshot(records[at + i]);
    out.put(some, n * sizeof(PlainRecord));
  }
}

void copy_end(char* to, size_t room, const std::string& text) {
  const std::string end = text.size() < room ? text : text.substr(text.size() - room + 1);
  std::memcpy(to, end.c_str(), end.size() + 1);
}

}  // namespace

void Checksum::add(const void* bytes, size_t n) noexcept {
  const char* at = static_cast<const char*>(bytes);
  for (size_t i = 0; i + 8 <= n; i += 8) {
    uint64_t word;
    std::memcpy(&word, at + i, 8);
    sum_ = mix64(sum_ ^ word) + 0x9E3779B97F4A7C15u;
  }
}

bool make_folder(const char* folder) noexcept {
  if (::access(folder, F_OK) == 0) return false;
  char path[4096];
  Text(path, sizeof path) << folder;
  for (char* at = path + 1; *at; ++at) {
    if (*at != '/') continue;
    *at = '\0';
    ::mkdir(path, 0777);
    *at = '/';
  }
  return ::mkdir(path, 0777) == 0;
}

std::string flight_folder() {
  const std::string folder = flight_folder_in([](const char* name) -> std::optional<std::string> {
    if (const char* value = std::getenv(name)) return value;
    return std::nullopt;
  });
  return folder.empty() ? "" : std::filesystem::absolute(folder).string();
}

Dumper::Dumper(const Ring* ring, const Owner& owner, const std::string& folder)
    : ring_(ring),
      header_([&] {
        DumpHeader h{};
        std::memcpy(h.magic, kDumpMagic, sizeof h.magic);
        h.version = kDumpVersion;
        h.byte_order = kByteOrder;
        h.header_bytes = sizeof(DumpHeader);
        h.record_bytes = sizeof(Record);
        h.site_bytes = sizeof(Site);
        h.writer = h.rank = owner.rank;
        h.size = owner.size;
        h.world_rank = owner.world_rank;
        h.pid = ::getpid();
        h.generation = owner.generation;
        copy_end(h.backend, sizeof h.backend, owner.backend);
        copy_end(h.group, sizeof h.group, owner.group);
        if (::gethostname(h.host, sizeof h.host - 1) != 0) h.host[0] = '\0';
        return h;
      }()),
      folder_(folder),
      enrolment_(owner.group.empty() ? nullptr : this) {}

Dumper::~Dumper() = default;

bool Dumper::write_down(int signal, const char* folder) noexcept {
  DumpHeader header = header_;
  header.reason = signal ? DumpReason::signal : DumpReason::asked;
  header.signal = signal;
  return write(*ring_, header, folder ? folder : folder_.c_str());
}

bool Dumper::dump_failure(const char* why) noexcept {
  DumpHeader header = header_;
  header.reason = DumpReason::failure;
  Text(header.why, sizeof header.why) << why;
  return write(*ring_, header, folder_.c_str());
}

bool Dumper::dump_for(const Ring& ring, int rank, int world_rank, int pid) noexcept {
  DumpHeader header = header_;
  header.reason = DumpReason::by_peer;
  header.rank = rank;
  header.world_rank = world_rank;
  header.pid = pid;
  char path[4096];
  path_of(header, folder_.c_str(), path, sizeof path);
  return ::access(path, F_OK) != 0 && write(ring, header, folder_.c_str());
}

void Dumper::path_of(const DumpHeader& h, const char* folder, char* path,
                     size_t room) const noexcept {
  char group[sizeof h.group];
  std::memcpy(group, h.group, sizeof group);
  for (char& c : group)
    if (c == '/' || (c > 0 && c < ' ')) c = '.';
  Text text(path, room);
  text << folder << "/" << group << "-";
  text.hex(h.generation) << "-rank" << h.rank << ".flight";
}

bool Dumper::write(const Ring& ring, DumpHeader& h, const char* folder) const noexcept {
  if (!*folder || !*h.group || ::getpid() != header_.pid)
    return false;  // a forked child is not the rank
  make_folder(folder);
  char path[4096], temporary[4096];
  path_of(h, folder, path, sizeof path);
  Text(temporary, sizeof temporary)
      << path << "." << static_cast<int64_t>(::getpid()) << "." << h.writer << ".tmp";
  const int fd = ::open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  h.record_count = used(ring.calls);
  h.pair_count = used(ring.pairs);
  h.site_count = std::min<uint64_t>(ring.site_count.load(std::memory_order_acquire), kSites);
  h.born_ticks = ring_->born_ticks;
  h.born_ns = ring_->born_ns;
  h.dump_ns = clock_ns(CLOCK_MONOTONIC);
  h.dump_ticks = ticks_are_time() ? ticks() : static_cast<uint64_t>(h.dump_ns);
  h.dump_wall_ns = clock_ns(CLOCK_REALTIME);
  Writer out(fd);
  out.put(&h, sizeof h);
  put_records(out, ring.calls, h.record_count);
  put_records(out, ring.pairs, h.pair_count);
  out.put(ring.sites, h.site_count * sizeof(Site));
  const bool ok = out.finish();
  ::close(fd);
  if (ok && ::rename(temporary, path) == 0) return true;
  ::unlink(temporary);
  return false;
}

}  // namespace flight
}  // namespace trireme
