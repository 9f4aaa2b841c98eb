// SPDX-License-Identifier: Apache-2.0
// etcd's gateway as Trireme asks it: by what etcd 3.4 answers, by what strangers do, and by a real
// one.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/answering_server.h"
#include "tests/support/etcd_server.h"
#include "tests/support/ports.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/etcd/client.h"
#include "trireme/rendezvous/etcd/messages.h"
#include "trireme/rendezvous/etcd/publication.h"

namespace trireme::etcd_test {
namespace {

using std::chrono::seconds;
using testing::AnsweringServer;
using testing::EtcdServer;
using testing::eventually;
using testing::http_answer;

// As etcd 3.4.23 answers: what is zero, false or empty is left out, and whole numbers are texts.
constexpr const char* kHeader =
    R"("header":{"cluster_id":"166","member_id":"17","revision":"2","raft_term":"2"})";
std::string answer(const std::string& rest) {
  return std::string("{") + kHeader + (rest.empty() ? "" : ",") + rest + "}";
}

TEST(rendezvous_etcd_messages, are_those_of_the_gateway) {
  EXPECT_STREQ(etcd::get_message("/a").path, "/v3/kv/range");
  EXPECT_EQ(etcd::get_message("/a").json, R"({"key":"L2E="})");
  EXPECT_EQ(etcd::put_if_absent_message("/a", "hello", 7).json,
            R"({"compare":[{"create_revision":"0","key":"L2E=","result":"EQUAL",)"
            R"("target":"CREATE"}],"failure":[{"request_range":{"key":"L2E="}}],)"
            R"("success":[{"request_put":{"key":"L2E=","lease":"7","value":"aGVsbG8="}}]})");
  EXPECT_EQ(etcd::grant_message(10).json, R"({"TTL":"10"})");
  EXPECT_EQ(etcd::keep_alive_message(-5).json, R"({"ID":"-5"})");
}

TEST(rendezvous_etcd_messages, answers_of_3_4_are_understood) {
  EXPECT_EQ(etcd::read_value(answer("")), std::nullopt);
  EXPECT_EQ(etcd::read_value(answer(R"("kvs":[{"key":"L2E=","value":"aGVsbG8="}],"count":"1")")),
            "hello");
  EXPECT_EQ(etcd::read_value(answer(R"("kvs":[{"key":"L2E="}],"count":"1")")), "");
  EXPECT_EQ(etcd::read_put_if_absent(
                answer(R"("succeeded":true,"responses":[{"response_put":{"header":{}}}])")),
            std::nullopt);
  EXPECT_EQ(etcd::read_put_if_absent(answer(
                R"("responses":[{"response_range":{"kvs":[{"key":"L2E=","value":"AP8="}]}}])")),
            std::string("\0\xff", 2));
  EXPECT_EQ(etcd::read_grant(answer(R"("ID":"4027522181892498693","TTL":"3")")),
            4027522181892498693);
  EXPECT_TRUE(etcd::read_keep_alive("{\"result\":" + answer(R"("ID":"4","TTL":"3")") + "}\n"));
  EXPECT_FALSE(etcd::read_keep_alive("{\"result\":" + answer(R"("ID":"4")") + "}\n"));
  const auto refusal = etcd::read_refusal(
      R"({"error":"etcdserver: x","message":"etcdserver: requested lease not found","code":5})");
  EXPECT_EQ(refusal.code, etcd::kNotFound);
  EXPECT_EQ(refusal.text, "etcdserver: requested lease not found");
  EXPECT_EQ(etcd::read_refusal("<html>").code, -1);
  EXPECT_EQ(etcd::read_refusal("Not Found\n").code, -1);
}

TEST(rendezvous_etcd_messages, every_length_of_a_value_comes_back) {
  std::string value;
  for (int n = 0; n < 70; ++n) {
    const auto put = nlohmann::json::parse(etcd::put_if_absent_message("k", value, 1).json);
    const std::string sent = put["success"][0]["request_put"]["value"];
    EXPECT_EQ(sent.size() % 4, 0u);
    EXPECT_EQ(etcd::read_value(answer(R"("kvs":[{"value":")" + sent + R"("}])")), value);
    value += static_cast<char>(n * 37);
  }
}

TEST(rendezvous_etcd_messages, other_bytes_are_Corrupt) {
  for (const std::string& bad :
       {std::string(""), std::string("null"), std::string("[]"), std::string("{}"),
        std::string("{\"header\":{},\"kvs\":5}"), std::string("{\"header\":{},\"kvs\":[5]}"),
        std::string("{\"header\":{},\"kvs\":[{\"value\":\"*\"}]}"),
        std::string("{\"header\":{},\"kvs\":[{\"value\":7}]}"), std::string(200000, '[')})
    EXPECT_THROW(etcd::read_value(bad), Corrupt) << bad.substr(0, 80);
  for (const std::string& bad :
       {answer(""), answer(R"("succeeded":"yes")"), answer(R"("responses":[])"),
        answer(R"("responses":[{"response_range":{}}])"),
        answer(R"("responses":[{"response_range":[]}])")})
    EXPECT_THROW(etcd::read_put_if_absent(bad), Corrupt) << bad;
  for (const std::string& bad : {answer(""), answer(R"("ID":"x")"), answer(R"("ID":{})"),
                                 answer(R"("ID":"99999999999999999999")")})
    EXPECT_THROW(etcd::read_grant(bad), Corrupt) << bad;
  EXPECT_THROW(etcd::read_keep_alive(answer("")), Corrupt);
}

class rendezvous_etcd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!net::has_http()) GTEST_SKIP() << "no libcurl";
  }
  static EtcdClient client(const std::vector<std::string>& endpoints) {
    EtcdServers servers;
    for (const auto& endpoint : endpoints) servers.urls.push_back("http://" + endpoint);
    return EtcdClient(servers);
  }
  static std::string nobody() { return "127.0.0.1:" + std::to_string(testing::free_tcp_port()); }
  /// The kind of the error and its text.
  static std::string refusal(const std::string& endpoint, Duration limit = seconds(5)) try {
    EtcdClient etcd = client({endpoint});
    etcd.set_answer_limit(limit);
    etcd.get("/x");
    return "an answer";
  } catch (const Error& error) {
    return std::string(error.kind()) + " " + error.what();
  }
};

TEST_F(rendezvous_etcd, who_is_no_etcd_is_refused_in_one_sentence_with_its_address) {
  for (const std::string& bytes :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n"), http_answer("<html>hello</html>"),
        http_answer("Not Found\n", "404 Not Found"), http_answer("{}"), http_answer("[1]"),
        http_answer("", "301 Moved"), http_answer(std::string(300000, '['))}) {
    const AnsweringServer server(bytes);
    const std::string said = refusal(server.endpoint());
    EXPECT_TRUE(said.starts_with("UsageError etcd cannot be used. " + server.endpoint() +
                                 ": this is no etcd of version 3.4 or later: "))
        << said;
    EXPECT_LT(said.size(), 400u) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

TEST_F(rendezvous_etcd, one_that_may_answer_later_is_PeerLost) {
  const net::Listener silent = net::Listener::loopback();
  EXPECT_EQ(refusal(silent.endpoint().address.text(), seconds(1)),
            "PeerLost etcd does not answer. " + silent.endpoint().address.text() +
                ": no answer within 1 s");
  const AnsweringServer leaderless(http_answer(
      R"({"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14})",
      "503 Service Unavailable"));
  EXPECT_EQ(refusal(leaderless.endpoint()),
            "PeerLost etcd does not answer. " + leaderless.endpoint() + ": etcdserver: no leader");
  const AnsweringServer balancer(http_answer("<html>", "502 Bad Gateway"));
  EXPECT_TRUE(refusal(balancer.endpoint()).starts_with("PeerLost"));
  EXPECT_TRUE(refusal(nobody()).starts_with("PeerLost"));
}

TEST_F(rendezvous_etcd, what_it_says_is_printed_harmlessly) {
  const AnsweringServer server(
      http_answer("{\"code\":9,\"message\":\"\\u001b[31mred\\nline\"}", "400 Bad Request"));
  EXPECT_EQ(refusal(server.endpoint()),
            "UsageError etcd cannot be used. " + server.endpoint() + ": it refuses: ?[31mred?line");
}

/// A real one, fresh for each test.
class rendezvous_real_etcd : public rendezvous_etcd {
 protected:
  void SetUp() override {
    if (const auto why = EtcdServer::missing(); !why.empty()) GTEST_SKIP() << why;
    etcd_ = std::make_unique<EtcdServer>();
    ASSERT_TRUE(etcd_->answers()) << etcd_->log();
  }
  static EtcdPublication::Key key(const std::string& value) {
    EtcdPublication::Key key{"/trireme/job/store", value};
    key.keep_alive_every = std::chrono::milliseconds(100);
    key.ttl = seconds(2);
    return key;
  }
  std::unique_ptr<EtcdServer> etcd_;
};

TEST_F(rendezvous_real_etcd, a_key_is_put_once_and_goes_with_its_lease) {
  EtcdClient etcd = etcd_->client();
  EXPECT_EQ(etcd.get("/a"), std::nullopt);
  const int64_t lease = etcd.grant(seconds(60)), other = etcd.grant(seconds(60));
  EXPECT_EQ(etcd.put_if_absent("/a", std::string("one\0\xff", 5), lease).value,
            std::string("one\0\xff", 5));
  EXPECT_EQ(etcd.put_if_absent("/a", "two", other).value, std::string("one\0\xff", 5));
  EXPECT_TRUE(etcd.keep_alive(lease));
  EXPECT_EQ(etcd.local_host(), "127.0.0.1");
  etcd.revoke(lease);
  EXPECT_EQ(etcd.get("/a"), std::nullopt);
  EXPECT_FALSE(etcd.keep_alive(lease));
  EXPECT_TRUE(etcd.put_if_absent("/a", "three", lease).lease_ended);
  EXPECT_NO_THROW(etcd.revoke(lease));
}

TEST_F(rendezvous_real_etcd, the_servers_of_a_list_stand_in_for_each_other) {
  const AnsweringServer stranger("SSH-2.0-OpenSSH_9.2\r\n");
  EtcdClient etcd = client({nobody(), stranger.endpoint(), etcd_->endpoint()});
  EXPECT_EQ(etcd.get("/a"), std::nullopt);
  EXPECT_EQ(etcd.get("/a"), std::nullopt);
  EXPECT_EQ(stranger.served(), 1) << "the one that answered is asked first";
  etcd_->kill();
  EXPECT_THROW(etcd.get("/a"), PeerLost);
}

TEST_F(rendezvous_real_etcd, a_publication_lives_and_ends_with_its_object) {
  EtcdClient etcd = etcd_->client();
  std::string theirs;
  auto ours = EtcdPublication::publish(etcd, key("ours"), &theirs);
  ASSERT_TRUE(ours);
  EXPECT_FALSE(EtcdPublication::publish(etcd, key("late"), &theirs));
  EXPECT_EQ(theirs, "ours");
  EXPECT_EQ(etcd_->count(), 2u) << "a key and its lease";
  ours.reset();
  EXPECT_EQ(etcd_->count(), 0u);
}

TEST_F(rendezvous_real_etcd, a_publication_outlives_its_lease_and_a_deletion) {
  EtcdClient etcd = etcd_->client();
  std::string theirs;
  const auto ours = EtcdPublication::publish(etcd, key("ours"), &theirs);
  ASSERT_TRUE(ours);
  etcd_->ask("/v3/kv/deleterange", {{"key", "L3RyaXJlbWUvam9iL3N0b3Jl"}});
  EXPECT_TRUE(eventually([&] { return etcd.get("/trireme/job/store") == "ours"; }));
  const auto leases = etcd_->ask("/v3/lease/leases", nlohmann::json::object());
  ASSERT_EQ(leases.at("leases").size(), 1u);
  for (const auto& lease : leases.at("leases"))
    etcd.revoke(std::stoll(lease["ID"].get<std::string>()));
  EXPECT_TRUE(eventually([&] { return etcd.get("/trireme/job/store") == "ours"; }));
  EXPECT_EQ(ours->replaced(), std::nullopt);
}

TEST_F(rendezvous_real_etcd, a_publication_that_was_replaced_says_so_and_leaves_the_other_alone) {
  EtcdClient etcd = etcd_->client();
  std::string theirs;
  auto ours = EtcdPublication::publish(etcd, key("ours"), &theirs);
  ASSERT_TRUE(ours);
  // "theirs", as if ours had been lost while etcd and its launcher could not reach each other.
  etcd_->ask("/v3/kv/put", {{"key", "L3RyaXJlbWUvam9iL3N0b3Jl"}, {"value", "dGhlaXJz"}});
  EXPECT_TRUE(eventually([&] { return ours->replaced() == "theirs"; }));
  ours.reset();
  EXPECT_EQ(etcd.get("/trireme/job/store"), "theirs");
}

TEST_F(rendezvous_real_etcd, a_publication_is_there_again_after_etcd_was) {
  EtcdClient etcd = etcd_->client();
  std::string theirs;
  auto ours = EtcdPublication::publish(etcd, key("ours"), &theirs);
  ASSERT_TRUE(ours);
  etcd_->kill();
  ASSERT_TRUE(etcd_->start()) << etcd_->log();
  EXPECT_TRUE(eventually([&] { return etcd_->get("/trireme/job/store") == "ours"; }));
  // The death of a publisher is a lease that nobody keeps alive.
  etcd_->send(SIGSTOP);
  const auto start = Clock::now();
  ours.reset();
  EXPECT_LT(Clock::now() - start, seconds(6)) << "it does not wait for an etcd that is silent";
  etcd_->send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return etcd_->count() == 0; }));
}

TEST_F(rendezvous_real_etcd, one_that_wants_a_password_is_refused_with_what_to_do) {
  const std::string root = "root";
  etcd_->ask("/v3/auth/user/add", {{"name", root}, {"password", root}});
  etcd_->ask("/v3/auth/role/add", {{"name", root}});
  etcd_->ask("/v3/auth/user/grant", {{"user", root}, {"role", root}});
  etcd_->ask("/v3/auth/enable", nlohmann::json::object());
  const std::string said = refusal(etcd_->endpoint());
  EXPECT_TRUE(said.starts_with("UsageError etcd cannot be used. " + etcd_->endpoint() +
                               ": it asks for a user and a password"))
      << said;
}

}  // namespace
}  // namespace trireme::etcd_test
