// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/call_board.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "trireme/base/clock.h"

namespace trireme::rpc::detail {
namespace {

constexpr int kTries = 8;  // places that are looked at
constexpr auto kRelaxed = std::memory_order_relaxed;

void copy_text(char* to, size_t room, std::string_view text) {
  const size_t n = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

/// A line that is put together without the heap.
class PlainLine {
 public:
  void add(const char* text) noexcept {
    while (*text && size_ + 1 < sizeof text_) text_[size_++] = *text++;
  }
  void add(uint64_t number) noexcept {
    char digits[20];
    int n = 0;
    do digits[n++] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    while (n > 0 && size_ + 1 < sizeof text_) text_[size_++] = digits[--n];
  }
  void write(int fd) noexcept {
    [[maybe_unused]] const auto n = ::write(fd, text_, size_);
    size_ = 0;
  }
  const char* text() noexcept {
    text_[size_] = '\0';
    return text_;
  }

 private:
  char text_[1536];
  size_t size_ = 0;
};

}  // namespace

CallBoard::CallBoard(const std::string& worker, const std::string& folder) {
  copy_text(worker_, sizeof worker_, worker);
  copy_text(folder_, sizeof folder_, folder);
  copy_text(file_, sizeof file_, worker);
  for (char* c = file_; *c; ++c)
    if (!std::isalnum(static_cast<unsigned char>(*c)) && *c != '-' && *c != '_') *c = '_';
}

int CallBoard::put(CallDirection direction, std::string_view method, std::string_view peer,
                   int64_t now_ns) noexcept {
  uint64_t words[2 * kTextWords] = {};
  std::memcpy(words, method.data(), std::min(method.size(), 8 * kTextWords));
  std::memcpy(words + kTextWords, peer.data(), std::min(peer.size(), 8 * kTextWords));
  const uint64_t number = next_.fetch_add(1, kRelaxed);
  for (uint64_t i = 0; i < kTries; ++i) {
    const auto at = static_cast<size_t>((number + i * 61) % kPlaces);
    Place& place = places_[at];
    uint64_t free = 0;
    const uint64_t version = 2 * number + 1;
    if (place.version.load(kRelaxed) != 0 ||
        !place.version.compare_exchange_strong(free, version, std::memory_order_acquire))
      continue;
    place.direction.store(static_cast<uint64_t>(direction), std::memory_order_release);
    place.since_ns.store(now_ns, std::memory_order_release);
    for (size_t w = 0; w < 2 * kTextWords; ++w)
      place.text[w].store(words[w], std::memory_order_release);
    place.version.store(version + 1, std::memory_order_release);
    return static_cast<int>(at);
  }
  return kNone;
}

void CallBoard::take(int place) noexcept {
  if (place != kNone)
    places_[static_cast<size_t>(place)].version.store(0, std::memory_order_release);
}

bool CallBoard::read(const Place& place, Seen& seen) const noexcept {
  constexpr auto acquire = std::memory_order_acquire;
  const uint64_t before = place.version.load(acquire);
  if (before == 0 || before % 2 == 1) return false;
  uint64_t words[2 * kTextWords];
  seen.direction = static_cast<CallDirection>(place.direction.load(acquire));
  seen.since_ns = place.since_ns.load(acquire);
  for (size_t w = 0; w < 2 * kTextWords; ++w) words[w] = place.text[w].load(acquire);
  if (place.version.load(kRelaxed) != before) return false;  // it ended meanwhile
  std::memcpy(seen.method, words, 8 * kTextWords);
  std::memcpy(seen.peer, words + kTextWords, 8 * kTextWords);
  seen.method[8 * kTextWords] = seen.peer[8 * kTextWords] = '\0';
  return true;
}

std::vector<CallUnderWay> CallBoard::now() const {
  std::vector<CallUnderWay> calls;
  const int64_t now = now_ns();
  Seen seen{};
  for (const Place& place : places_)
    if (read(place, seen))
      calls.push_back({seen.direction, seen.method, seen.peer,
                       static_cast<double>(now - seen.since_ns) * 1e-9});
  return calls;
}

bool CallBoard::write_down(int signal, const char* folder) noexcept {
  const char* const where = folder ? folder : folder_;
  if (!*where) return false;
  int fd = -1;
  const int64_t now = now_ns();
  PlainLine line;
  Seen seen{};
  for (const Place& place : places_) {
    if (!read(place, seen)) continue;
    if (fd < 0) {
      ::mkdir(where, 0777);  // its parents are a launcher's, or the user's
      line.add(where);
      line.add("/");
      line.add(file_);
      line.add("-");
      line.add(static_cast<uint64_t>(::getpid()));
      line.add(".calls");
      fd = ::open(line.text(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      if (fd < 0) return false;
      line = PlainLine();
      line.add("calls under way of worker '");
      line.add(worker_);
      line.add("' (pid ");
      line.add(static_cast<uint64_t>(::getpid()));
      line.add(signal ? "), at signal " : ")");
      if (signal) line.add(static_cast<uint64_t>(signal));
      line.add("\n");
      line.write(fd);
    }
    line.add(seen.direction == CallDirection::made ? "  waits for '" : "  runs '");
    line.add(seen.method);
    line.add(seen.direction == CallDirection::made ? "' on worker '" : "' for worker '");
    line.add(seen.peer);
    line.add("', since ");
    line.add(static_cast<uint64_t>(std::max<int64_t>(0, now - seen.since_ns) / 1'000'000));
    line.add(" ms\n");
    line.write(fd);
  }
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

}  // namespace trireme::rpc::detail
