// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/net/auth.h"
#include "trireme/net/listener.h"

// How a part of a step comes from the launcher that holds it to one that asks for it. After the
// handshake of net/auth.h, with the job's secret:
//   wanted   which save, whose part                                    who asks
//   head     its bytes, or why there are none                          who holds it
//   bytes    the next of them, at most kPartPiece at a time
//   end      the XXH3 of all
// docs/control_protocol.md is the grammar.
namespace trireme::launch {

inline constexpr size_t kPartPiece = size_t{4} << 20;

/// Gives away parts that are offered, each in a thread of its own.
class TRIREME_API PartServer {
 public:
  /// ResourceError.
  PartServer(net::Listener listener, net::Credentials credentials);
  ~PartServer();
  PartServer(const PartServer&) = delete;

  uint16_t port() const { return listener_.endpoint().address.port; }
  struct Offer {
    std::string save;
    int64_t rank = 0;
    int fd = -1;  // sealed memory; copied
  };
  /// In place of what was offered under this name before.
  void offer(const std::string& name, const std::vector<Offer>& parts);

 private:
  struct Part {
    std::string name, save;
    int64_t rank = 0;
    std::shared_ptr<UniqueFd> memory;
  };
  struct Guest {
    net::Socket socket;
    std::atomic<bool> gone{false};
    std::thread thread;
  };
  void receive();
  void serve(Guest& guest);
  void give(net::Socket& socket, const std::string& peer);
  std::shared_ptr<UniqueFd> find(const std::string& save, int64_t rank);
  void forget_the_gone();

  net::Listener listener_;
  const net::Credentials credentials_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<Part> parts_;
  std::list<Guest> guests_;  // of the thread that receives them
  std::thread thread_;
};

/// The part, in sealed memory. `ends`: asked between pieces; with true nothing is waited for any
/// more. PeerLost, Timeout: who holds it is gone, or sends nothing for seconds. Corrupt: what came
/// is not what was sent. ResourceError: it is not there, or there is no memory for it. UsageError:
/// another secret.
TRIREME_API UniqueFd fetch_part(const std::string& address, const net::Credentials& credentials,
                                const std::string& save, int64_t rank, uint64_t bytes,
                                const std::function<bool()>& ends);

/// Memory for a part, with all of its pages there. ResourceError.
TRIREME_API UniqueFd part_memory(uint64_t bytes);

}  // namespace trireme::launch
