// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/fd.h"
#include "trireme/base/process/process_mark.h"
#include "trireme/channel/channel.h"
#include "trireme/channel/local/bell.h"
#include "trireme/channel/local/lent_memory.h"
#include "trireme/channel/local/letter.h"
#include "trireme/channel/local/message_format.h"
#include "trireme/channel/local/ring.h"
#include "trireme/channel/local/their_windows.h"

namespace trireme::channel::local {

/// Bodies below this travel in the ring, and the receiver copies them into memory of its own: that
/// is less than lending a block and taking it back.
constexpr uint64_t kLendFrom = uint64_t{16} << 10;
/// Bytes of bodies that the receiver has been sent and has not yet looked at, above which no other
/// long message is copied: one that never reads costs no more memory than this and one message.
constexpr uint64_t kMostAhead = uint64_t{64} << 20;

/// What a channel is made of once its ends have met (meet.cc).
struct Joined {
  Peer peer;
  pid_t pid = 0;  // of the peer; 0: not known
  UniqueFd socket, pidfd;
  ::trireme::local::Window lane_out, lane_in, peer_bell;
  std::shared_ptr<Bell> own_bell;
  uint64_t most_window_bytes = 0;
};

/// One end of a channel. send(), empty(), unsent() and close(): any thread. Below them stand what
/// the hub calls, on the thread that is in serve().
class LocalChannel final : public Channel, public std::enable_shared_from_this<LocalChannel> {
 public:
  explicit LocalChannel(Joined joined);
  ~LocalChannel() override;

  bool send(Message message) override;
  uint64_t unsent() const override { return unsent_.load(std::memory_order_relaxed); }
  std::shared_ptr<void> empty(uint64_t bytes) override;
  void close(const std::string& why) override;
  const Peer& peer() const override { return peer_; }

  void set_receiver(std::shared_ptr<Receiver> receiver) { receiver_ = std::move(receiver); }
  /// Calls the receiver with what has come, for at most `most` messages. Returns how many calls it
  /// made.
  int take(int most);
  enum class Pumped : uint8_t { nothing, more, chunk };
  /// Sends a part of what waits; of long messages a chunk, if it `may` copy one. `more`: there is
  /// more that can go now; `chunk`: that was one, and there may be more.
  Pumped pump(bool may_copy);
  /// Whether take() or pump() has something to do.
  bool ready() const;
  int socket() const { return socket_.get(); }
  int pidfd() const { return pidfd_.get(); }
  /// The socket has something, or the peer has gone.
  void look(bool socket_readable, bool gone);
  /// A letter of the peer's about its windows. Corrupt: about something else; ResourceError.
  void heard(const ReceivedLetter& letter);
  bool finished() const { return finished_; }
  /// The hub ends: the peer learns so, and the receiver hears nothing more.
  void abandon();

 private:
  struct Outgoing {
    Message message;
    uint64_t bytes = 0;  // as unsent() counts it
    std::vector<std::optional<LentPlace>> lent{};
    size_t next = 0;                // body that is placed next
    std::shared_ptr<void> block{};  // into which it is being copied
    uint64_t copied = 0;            // of it
    uint64_t lent_bytes = 0;
    std::unique_ptr<MessageWriter> writer{};
  };
  enum class Step : uint8_t { idle, moved, blocked };

  // send.cc
  uint64_t copied_bytes(const Message& message) const;
  bool put_at_once(const Message& message);
  bool place(Outgoing& out, uint64_t most);
  bool write(Outgoing& out, RecordKind kind, uint64_t most);
  bool flush_short(std::vector<Outgoing>& done);
  Step step_long();
  bool too_far_ahead();
  void sent(const Outgoing& out);
  void went_ahead(uint64_t lent_bytes);

  // receive.cc
  std::shared_ptr<const void> lent_by_peer(const LentPlace& place, uint64_t bytes);
  void read_letters();
  void wake_sender();
  int finish();

  // local_channel.cc
  void end(const std::string& why, const std::string& told);
  std::string who() const;
  Lane* lane_out() const { return reinterpret_cast<Lane*>(out_memory_.base()); }
  Lane* lane_in() const { return returns_->lane(); }

  const ProcessMark mark_;
  const Peer peer_;
  const pid_t pid_;
  const std::shared_ptr<Bell> own_bell_;
  Bell peer_bell_;
  ::trireme::local::Window out_memory_;
  UniqueFd socket_, pidfd_;  // until finished
  std::shared_ptr<LentMemory> memory_;
  const std::shared_ptr<Returns> returns_;

  std::mutex out_mutex_;
  std::vector<std::optional<LentPlace>> places_;  // by out_mutex_, as the next five
  RingWriter out_;
  std::deque<Outgoing> short_;                       // found no room; in order
  std::deque<Outgoing> long_;                        // the first of them is the serving thread's
  std::deque<std::pair<uint64_t, uint64_t>> ahead_;  // head behind a message, bytes lent with it
  uint64_t ahead_bytes_ = 0;
  std::atomic<uint64_t> queued_{0};  // of short_ and long_
  std::atomic<uint64_t> unsent_{0};

  std::mutex why_mutex_;
  std::string why_;  // by why_mutex_
  std::atomic<bool> over_{false};

  // The serving thread's.
  std::shared_ptr<Receiver> receiver_;
  RingReader in_;
  MessageReader short_in_, long_in_;
  MessageReader::Resolve resolve_;
  TheirWindows windows_;
  uint64_t taken_ = 0;       // bytes since the sender was last looked after
  bool gone_ = false;        // the peer
  bool blocked_ = false;     // pump() waits for room, which begins at
  uint64_t blocked_at_ = 0;  // this count of Lane::taken
  bool finished_ = false;
};

}  // namespace trireme::channel::local
