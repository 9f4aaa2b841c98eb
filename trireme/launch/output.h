// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/process/signal_inbox.h"

namespace trireme::launch {

/// A console that may be slow (a pager, a full pipe): bytes wait here, and the launcher goes on
/// watching its workers.
class Console {
 public:
  explicit Console(int fd) : fd_(fd) {}
  void add(std::string_view bytes);
  bool has_room() const { return waiting_.size() < kMostWaiting; }
  bool is_empty() const { return waiting_.empty(); }
  int fd() const { return fd_; }
  void write_some();  // call when poll says POLLOUT

 private:
  static constexpr size_t kMostWaiting = 1 << 20;
  int fd_;
  std::string waiting_;
  bool broken_ = false;
};

/// Where the workers' stdout and stderr go: inherited, to files, or through the launcher to files
/// and, line by line with a prefix, to the console.
class TRIREME_API Output {
 public:
  /// `folder` holds <local rank>/{stdout,stderr}.log; "": neither --redirects nor --tee was given.
  /// `first_rank`: of this node.
  Output(const RunOptions& options, std::string folder, const std::string& prefix_template,
         int first_rank);

  struct Ends {
    UniqueFd out;  // empty: inherit
    UniqueFd err;
  };
  /// For the worker that is about to start. Makes the files.
  Ends open(int local_rank);

  /// What poll(2) should watch; then, with what it found, serve().
  void add_to(std::vector<pollfd>& fds) const;
  void serve(const std::vector<pollfd>& fds);
  /// When all workers are gone: what is left in the pipes, then the console, until it took
  /// everything or another signal comes (SIGCHLD says nothing new here).
  void finish(SignalInbox& inbox);

 private:
  struct Stream {
    UniqueFd pipe;
    UniqueFd file;
    std::string path;
    std::string prefix;
    std::string line;  // begun, not ended
    Console* console;
  };
  UniqueFd open_stream(int local_rank, int which);
  void read_some(Stream& stream);
  static void end_line(Stream& stream);

  const RunOptions& options_;
  std::string folder_;
  std::string prefix_template_;
  int first_rank_;
  std::array<Console, 2> consoles_{Console(1), Console(2)};
  std::vector<std::unique_ptr<Stream>> streams_;
};

/// "${role_name} ${role_rank} ${local_rank} ${rank}" filled in.
TRIREME_API std::string line_prefix(std::string text, const Role& role, int local_rank, int rank);

/// Where nothing else is asked for: "[default0]:" by local rank, "[server0]:" where roles are
/// counted.
TRIREME_API std::string default_prefix(const RunOptions& options);

}  // namespace trireme::launch
