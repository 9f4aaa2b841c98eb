// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/fetch_step.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/launch/nodes/part_transfer.h"
#include "trireme/net/address.h"

namespace trireme::launch::fetch_step_test {
namespace {

const std::function<bool()> kNever = [] { return false; };

/// Three hosts, of which the n-th holds what rank n had and, as its neighbour's copy, what the rank
/// before it had: three bytes each.
class launch_fetch_step : public ::testing::Test {
 protected:
  launch_fetch_step() {
    step_.save = "save", step_.step = 8;
    for (size_t h = 0; h < 3; ++h) {
      servers_.push_back(std::make_unique<PartServer>(net::Listener::loopback(), credentials_));
      hosts_.push_back({0, {}, net::Address{"127.0.0.1", servers_[h]->port()}.text(), 1 << 20});
      offer(h);
    }
    step_.ranks = {{3, {0, 1}}, {3, {1, 2}}, {3, {0, 2}}};
  }
  void offer(size_t host) {
    std::vector<UniqueFd> memories;
    std::vector<PartServer::Offer> offers;
    for (const size_t rank : {host, (host + 2) % 3}) {
      memories.push_back(part_memory(3));
      EXPECT_EQ(::pwrite(memories.back().get(), text_of(rank).data(), 3, 0), 3);
      offers.push_back({"save", static_cast<int64_t>(rank), memories.back().get()});
    }
    servers_[host]->offer("steps", offers);
  }
  static std::string nobody() {
    const net::Listener gone = net::Listener::loopback();
    return gone.endpoint().address.text();
  }
  static std::string text_of(size_t rank) { return "ra" + std::to_string(rank); }
  /// What host `here` gets, as "rank:bytes …".
  std::string fetched(size_t here) const {
    std::string all;
    for (const HandedSnapshot& part : fetch_step(step_, hosts_, here, credentials_, kNever)) {
      std::string bytes(3, ' ');
      EXPECT_EQ(::pread(part.fd.get(), bytes.data(), 3, 0), 3);
      all += (all.empty() ? "" : " ") + std::to_string(part.rank) + ":" + bytes;
    }
    return all;
  }

  const net::Credentials credentials_{"job", net::Secret(net::generate_secret())};
  std::vector<std::unique_ptr<PartServer>> servers_;
  SpreadStep step_;
  std::vector<HostParts> hosts_;
};

TEST_F(launch_fetch_step, a_host_gets_what_it_does_not_hold_and_nothing_else) {
  EXPECT_EQ(fetched(0), "1:ra1");
  EXPECT_EQ(fetched(1), "2:ra2");
  EXPECT_EQ(fetched(2), "0:ra0");
  hosts_.push_back({-1, {}, "", 1 << 20});  // one that has just come
  EXPECT_EQ(fetched(3), "0:ra0 1:ra1 2:ra2");
  for (SpreadStep::Rank& rank : step_.ranks) rank.hosts = {0, 1, 2, 3};
  servers_.clear();
  EXPECT_EQ(fetched(3), "") << "it asks others for what it holds";
}

TEST_F(launch_fetch_step, what_one_host_does_not_give_comes_from_the_other_that_holds_it) {
  hosts_.push_back({-1, {}, "", 1 << 20});
  for (size_t lost = 0; lost < 3; ++lost) {
    servers_[lost]->offer("steps", {});
    EXPECT_EQ(fetched(3), "0:ra0 1:ra1 2:ra2") << "it holds nothing any more";
    offer(lost);
    const std::string address = std::exchange(hosts_[lost].address, nobody());
    EXPECT_EQ(fetched(3), "0:ra0 1:ra1 2:ra2") << "it has gone";
    hosts_[lost].address = "";
    EXPECT_EQ(fetched(3), "0:ra0 1:ra1 2:ra2") << "it could not listen";
    hosts_[lost].address = address;
  }
}

TEST_F(launch_fetch_step, a_part_that_nobody_gives_is_told_with_what_each_of_them_said) {
  servers_[1]->offer("steps", {});
  servers_[2].reset();
  try {
    fetched(0);
    FAIL() << "it came from nobody";
  } catch (const ResourceError& error) {
    const std::string text = error.what();
    for (const char* part : {"of step 8, what rank 1 had did not come from node ",
                             "from node 1: ", "from node 2: ", "it holds none of that save"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  for (HostParts& host : hosts_) host.address.clear();
  EXPECT_THROW(fetched(0), ResourceError);
}

TEST_F(launch_fetch_step, an_attempt_that_is_over_asks_nobody_else) {
  try {
    fetch_step(step_, hosts_, 0, credentials_, [] { return true; });
    FAIL() << "it was waited for";
  } catch (const ResourceError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("from node "), text.rfind("from node ")) << text;
  }
}

}  // namespace
}  // namespace trireme::launch::fetch_step_test
