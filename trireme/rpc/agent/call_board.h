// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/process/signals.h"

namespace trireme::rpc::detail {

enum class CallDirection : uint64_t { made = 1, answered = 2 };

/// A call that is under way, as the board shows it.
struct CallUnderWay {
  CallDirection direction = CallDirection::made;
  std::string method;  // its beginning, if it is long
  std::string peer;    // who answers, or who called
  double seconds = 0;  // since it began
};

/// The calls of a worker that are under way, for who asks what a process that hangs is doing: a
/// signal handler reads it beside the threads that write. Of more than kPlaces the later ones are
/// not shown. put() and take(): any thread; no lock, no allocation.
class CallBoard final : public SignalWriter {
 public:
  static constexpr int kNone = -1;
  static constexpr size_t kPlaces = 512;

  /// `worker`: its name. `folder`: where to, where a signal does not say; "": nowhere.
  CallBoard(const std::string& worker, const std::string& folder);

  /// The place of a call that begins; kNone: there is no room.
  int put(CallDirection direction, std::string_view method, std::string_view peer,
          int64_t now_ns) noexcept;
  void take(int place) noexcept;

  std::vector<CallUnderWay> now() const;
  /// Writes <worker>-<pid>.calls, lines for people, where there is a call.
  bool write_down(int signal, const char* folder) noexcept override;

 private:
  static constexpr size_t kTextWords = 8;  // of either text
  struct alignas(64) Place {
    // Odd while it is written; 0: it is free.
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> direction{0};
    std::atomic<int64_t> since_ns{0};
    std::array<std::atomic<uint64_t>, 2 * kTextWords> text{};
  };
  struct Seen {
    CallDirection direction;
    int64_t since_ns;
    char method[8 * kTextWords + 1], peer[8 * kTextWords + 1];
  };
  bool read(const Place& place, Seen& seen) const noexcept;

  std::array<Place, kPlaces> places_;
  std::atomic<uint64_t> next_{0};
  char worker_[257];  // its name, and
  char file_[320];    // that of its file: other characters are '_'
  char folder_[1024];
};

}  // namespace trireme::rpc::detail
