// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/channel/local/hub.h"
#include "trireme/channel/local/letter.h"
#include "trireme/channel/local/local_channel.h"

namespace trireme::channel::local {

class LocalHub final : public Hub {
 public:
  explicit LocalHub(LocalOptions options);
  ~LocalHub() override;

  std::string address() const override { return address_.text(); }
  std::shared_ptr<Channel> open(const std::string& address, const Peer& expected,
                                std::shared_ptr<Receiver> receiver, Deadline deadline) override;
  int serve(Deadline deadline) override;
  void interrupt() override;

 private:
  /// One thread at a time serves; this one has until the deadline to become it.
  class Turn {
   public:
    Turn(LocalHub& hub, const Deadline& deadline);
    ~Turn();
    Turn(const Turn&) = delete;
    explicit operator bool() const { return has_; }

   private:
    LocalHub& hub_;
    bool has_ = false;
  };
  void check_may_wait(const char* what) const;

  // A connection that has not shown who it is.
  struct Stranger {
    UniqueFd socket;
    pid_t pid = 0;
    Deadline patience = Deadline::never();
    std::optional<Letter> hello{};
    UniqueFd lane{};
  };

  // local_hub.cc
  int pass(bool& more);
  bool ready() const;
  void look();
  int slice_ms() const;
  void take_list();

  // meet.cc
  void accept_strangers();
  bool hear(Stranger& stranger);
  void welcome(Stranger& stranger, const Letter& bell, const UniqueFd& bell_fd);
  void refuse(Stranger& stranger, Refusal why) const;
  std::shared_ptr<LocalChannel> join(UniqueFd socket, pid_t pid, const Letter& hello,
                                     ::trireme::local::Window lane_out, const UniqueFd& lane_fd,
                                     const Letter& bell, const UniqueFd& bell_fd);
  Letter letter(LetterKind kind, const std::string& token) const;
  bool send_both(int socket, const Letter& first, const UniqueFd& lane, const Deadline& deadline);
  void wake(const LocalAddress& to, pid_t pid) const;
  UniqueFd reach(const LocalAddress& to, const Peer& expected, const Deadline& deadline);
  ReceivedLetter await_letter(int socket, const Peer& expected, const Deadline& deadline,
                              std::vector<ReceivedLetter>& early);
  void add(std::shared_ptr<LocalChannel> channel);

  const ProcessMark mark_;
  const LocalOptions options_;
  LocalAddress address_;
  UniqueFd listener_, bell_fd_;
  std::shared_ptr<Bell> bell_;
  std::atomic<bool> interrupted_{false};

  std::mutex list_mutex_;
  std::vector<std::shared_ptr<LocalChannel>>
      added_;  // by list_mutex_; the serving thread takes them
  std::atomic<bool> any_added_{false};

  std::atomic<bool> taken_{false};
  std::atomic<std::thread::id> who_serves_{};
  std::atomic<int> waiting_{0};  // for their turn
  std::mutex turn_mutex_;        // only where somebody waits
  std::condition_variable turn_over_;

  // The serving thread's.
  std::vector<std::shared_ptr<LocalChannel>> channels_;
  size_t first_to_copy_ = 0;  // whose turn it is to copy a chunk
  std::list<Stranger> strangers_;
  std::vector<pollfd> polled_;
  uint32_t serves_ = 0;
  Clock::time_point next_look_{}, opening_until_{};
};

/// A lane or a doorbell of our own, with the descriptor to pass on. ResourceError.
::trireme::local::Window make_lane(UniqueFd& fd);
::trireme::local::Window make_bell(UniqueFd& fd);

}  // namespace trireme::channel::local
