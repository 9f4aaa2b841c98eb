// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/address.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"

namespace address_test {

using namespace trireme;
using namespace trireme::net;

TEST(net_address, reads_what_it_writes) {
  for (std::string text : {"node1:29500", "10.0.0.1:0", "[::1]:29500", "[fe80::1%eth0]:65535"})
    EXPECT_EQ(parse_address(text).text(), text);
  EXPECT_EQ(parse_address("[::1]:7"), (Address{"::1", 7}));
}

TEST(net_address, takes_a_default_port) {
  EXPECT_EQ(parse_address("node1", 5), (Address{"node1", 5}));
  EXPECT_EQ(parse_address("::1", 5), (Address{"::1", 5}));
  EXPECT_EQ(parse_address("[::1]", 5), (Address{"::1", 5}));
  EXPECT_EQ(parse_address("node1:6", 5), (Address{"node1", 6}));
}

TEST(net_address, refuses_the_rest_in_a_sentence_with_the_text) {
  for (std::string text :
       {"", ":1", "node1", "node1:", "node1:x", "node1:65536", "node1:-1", "node1: 1", "::1:29500",
        "[::1", "[::1]29500", "[]:1", "a b:1", "http://a:1", "node1:1 "}) {
    try {
      parse_address(text);
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("'" + text + "'"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(parse_address(std::string(300, 'a') + ":1"), UsageError);
}

TEST(net_address, loopback_is_decided_by_the_text) {
  for (auto host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (auto host :
       {"", "10.0.0.1", "127.evil.example", "localhost.example", "128.0.0.1", "0.0.0.0"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(net_address, resolves_numeric_hosts) {
  auto found = resolve({"127.0.0.1", 80});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text(), "127.0.0.1:80");
  EXPECT_TRUE(found[0].is_loopback());
}

TEST(net_address, names_a_host_that_does_not_resolve) {
  try {
    resolve({"256.256.256.256", 80});
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("256.256.256.256"), std::string::npos);
  }
}

TEST(net_address, endpoints_read_what_they_write) {
  for (std::string text : {"tcp://node1:29500", "tcp://[::1]:1", "unix:@trireme-0-abc"})
    EXPECT_EQ(Endpoint::parse(text).text(), text);
  EXPECT_EQ(Endpoint::parse("node1:29500").text(), "tcp://node1:29500");
  for (std::string text : {"", "unix:@", "unix:/tmp/x", "http://a:1", "tcp://a", "file:///a"})
    EXPECT_THROW(Endpoint::parse(text), UsageError) << text;
  EXPECT_THROW(Endpoint::unix_abstract(std::string(108, 'x')), UsageError);
  EXPECT_NO_THROW(Endpoint::unix_abstract(std::string(107, 'x')));
}

}  // namespace address_test
