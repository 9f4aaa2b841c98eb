// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/fd.h"
#include "trireme/channel/channel.h"
#include "trireme/channel/local/lane.h"
#include "trireme/comm/local/arena.h"

// What two workers say on the Unix socket between them: who they are, with the memory that they
// share, and later the windows that come and go. Each message of the socket is one letter.
//
//   opener                             hub
//   hello  (token, name) + its lane →
//   bell + its doorbell              →
//                                    ← welcome (token, name) + its lane,  or refusal
//                                    ← bell + its doorbell
//   window + memory, dropped         ↔ window + memory, dropped (also before the welcome)
namespace trireme::channel::local {

constexpr uint32_t kLetterMagic = 0x6c635254;  // "TRcl"
constexpr size_t kTokenBytes = 32;
constexpr size_t kTextBytes = 240;

enum class LetterKind : uint32_t {
  hello = 1,
  bell = 2,
  welcome = 3,
  refusal = 4,
  window = 5,
  dropped = 6
};

/// Why a hub sends an opener away.
enum class Refusal : uint32_t { token = 1, generation = 2, version = 3, unwanted = 4 };

struct Letter {
  uint32_t magic = kLetterMagic;
  uint32_t version = kSharedVersion;
  LetterKind kind = LetterKind::hello;
  uint32_t number = 0;      // of the window; why it is a refusal
  uint64_t generation = 0;  // of the job
  uint64_t bytes = 0;       // of the memory that comes with it
  uint32_t text_bytes = 0;
  uint32_t spare = 0;
  char token[kTokenBytes] = {};
  char text[kTextBytes] = {};  // the worker's name

  std::string name() const { return {text, text_bytes}; }
  void set_text(std::string_view words);
};
static_assert(sizeof(Letter) == 312);

struct ReceivedLetter {
  enum State : uint8_t {
    nothing,        // yet
    closed,         // nor will there be
    letter,         // of our version, its lengths within bounds
    other_version,  // only `magic` and `version` are to be read
    damaged         // not a letter
  } state = nothing;
  Letter content;
  UniqueFd fd;
  bool lost_fd = false;  // it came with one for which this process had no room

  bool is_of_windows() const {
    return state == letter &&
           (content.kind == LetterKind::window || content.kind == LetterKind::dropped);
  }
};
ReceivedLetter receive_letter(int socket);
/// False: the socket is full, or nobody reads at the other end.
bool send_letter(int socket, const Letter& letter, int fd);

/// Where a hub is found: "local:NAME:KNOCK:ANSWER:BELL". Whoever knows it may knock, and knows the
/// answer of the hub that published it.
struct LocalAddress {
  std::string socket;  // of the abstract address
  std::string knock, answer;
  int bell = 0;  // the descriptor of its doorbell in its process
  std::string text() const;
  /// UsageError.
  static LocalAddress parse(const std::string& text);
};

/// Memory that came in a letter: mapped if it is what it should be. Corrupt; ResourceError.
::trireme::local::Window map_shared(const UniqueFd& fd, uint64_t bytes, const std::string& whose);

}  // namespace trireme::channel::local
