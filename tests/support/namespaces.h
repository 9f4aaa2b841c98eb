// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string>

#include "tests/support/command.h"

// Hosts for tests: network namespaces, each with an interface "eth0" of its own, on one bridge.
// Abstract Unix sockets do not cross them, so ranks in two of them share no memory.
namespace trireme::testing {

class Hosts {
 public:
  /// 10.77.0.1, .2, …; why() says why there are none.
  explicit Hosts(int count) : count_(count), id_("trireme" + std::to_string(::getpid())) {
    if (::geteuid() != 0) {
      why_ = "network namespaces want root";
      return;
    }
    if (!run({"ip", "netns", "add", bridge()})) {
      why_ = "cannot make a network namespace here: " + said_;
      return;
    }
    made_ = 1;
    bool fine = in(bridge(), {"ip", "link", "add", "br0", "type", "bridge"}) &&
                in(bridge(), {"ip", "link", "set", "br0", "up"});
    for (int h = 0; fine && h < count; ++h) {
      const std::string there = "p" + std::to_string(h);
      fine = run({"ip", "netns", "add", name(h)});
      made_ += fine;
      fine = fine &&
             in(bridge(), {"ip", "link", "add", there, "type", "veth", "peer", "name", "eth0",
                           "netns", name(h)}) &&
             in(bridge(), {"ip", "link", "set", there, "master", "br0", "up"}) &&
             in(name(h), {"ip", "addr", "add", address(h) + "/24", "dev", "eth0"}) &&
             in(name(h), {"ip", "link", "set", "eth0", "up"}) &&
             in(name(h), {"ip", "link", "set", "lo", "up"});
    }
    if (!fine) why_ = "cannot join network namespaces here: " + said_;
  }
  ~Hosts() {
    if (!made_) return;
    for (int h = 0; h + 1 < made_; ++h) run({"ip", "netns", "del", name(h)});
    run({"ip", "netns", "del", bridge()});
  }
  Hosts(const Hosts&) = delete;

  const std::string& why() const { return why_; }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  std::string name(int host) const { return id_ + "h" + std::to_string(host); }
  /// The words that run a program on a host.
  Arguments on(int host, const Arguments& program) const {
    Arguments words{"ip", "netns", "exec", name(host)};
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
  /// What leaves a host goes at this rate from now on, "1gbit".
  bool limit(int host, const std::string& rate) {
    return in(name(host), {"tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate,
                           "burst", "256kb", "latency", "50ms"});
  }
  /// Nothing reaches the host any more, and nobody is told.
  bool cut(int host) {
    return in(bridge(), {"ip", "link", "set", "p" + std::to_string(host), "down"});
  }
  /// What `host` sends to `other` is lost from now on, and what comes from there arrives.
  bool cut_one_way(int host, int other) {
    return in(name(host), {"ip", "neigh", "replace", address(other), "lladdr", "02:00:00:00:00:01",
                           "dev", "eth0", "nud", "permanent"});
  }
  bool mend(int host) {
    return in(bridge(), {"ip", "link", "set", "p" + std::to_string(host), "up"});
  }

 private:
  std::string bridge() const { return id_ + "br"; }
  bool run(const Arguments& words) {
    Command command(words);
    const bool fine = command.finish() == 0;
    said_ = command.err;
    return fine;
  }
  bool in(const std::string& space, Arguments words) {
    words.insert(words.begin(), {"ip", "netns", "exec", space});
    return run(words);
  }

  int count_, made_ = 0;
  std::string id_, why_, said_;
};

}  // namespace trireme::testing
