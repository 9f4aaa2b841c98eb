// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/store.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/net/secret.h"
#include "trireme/store/file/file_store.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

namespace store_test {

using namespace trireme;
using namespace std::chrono_literals;

// The same facts of every store: in memory, over TCP with a secret, over a Unix socket, at the
// serving rank, in a file, under a prefix.
namespace {

using trireme::testing::has;

Deadline soon() { return Deadline::after(10s); }

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Store>(StoreServer&)> open;
  bool is_unix = false;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

net::Credentials& credentials() {
  static net::Credentials own{"store_test", net::Secret(net::generate_secret())};
  return own;
}
std::unique_ptr<Store> connect_to(StoreServer& server) {
  return TcpStore::connect(server.endpoints()[0], credentials(), soon());
}

std::unique_ptr<Store> open_file(StoreServer&) {
  static PrivateFolder folder;
  return FileStore::join(folder / net::random_token(), {"store_test", 0, 1, 0}, soon());
}

const Kind kKinds[] = {
    {"memory",
     [](StoreServer&) -> std::unique_ptr<Store> { return std::make_unique<MemoryStore>(); }},
    {"serving_rank", [](StoreServer& s) { return s.local_store(); }},
    {"tcp", connect_to},
    {"unix", connect_to, true},
    {"file", open_file},
    {"file_prefix",
     [](StoreServer& s) -> std::unique_ptr<Store> {
       return std::make_unique<PrefixStore>(open_file(s), "a/b");
     }},
    {"prefix",
     [](StoreServer& s) -> std::unique_ptr<Store> {
       return std::make_unique<PrefixStore>(connect_to(s), "a/b");
     }},
};

class store_store : public ::testing::TestWithParam<Kind> {
 protected:
  store_store()
      : server_({credentials()}, GetParam().is_unix ? net::Endpoint::unix_abstract(
                                                          "trireme-test-" + net::random_token())
                                                    : net::Endpoint::tcp({"127.0.0.1", 0})),
        store_(GetParam().open(server_)) {}

  StoreServer server_;
  std::unique_ptr<Store> store_;
};

template <class E>
std::string what_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace

TEST_P(store_store, keeps_what_was_set) {
  std::string bytes("\0\xff\n bytes", 9);
  store_->set("k", bytes);
  EXPECT_EQ(store_->get("k", soon()), bytes);
  store_->set("k", "");
  EXPECT_EQ(store_->get("k", soon()), "");
  EXPECT_EQ(store_->try_get("k"), "");
  EXPECT_EQ(store_->try_get("other"), std::nullopt);
}

TEST_P(store_store, get_and_wait_time_out_naming_the_missing_keys) {
  store_->set("here", "1");
  auto what = what_of<Timeout>([&] { store_->get("gone", Deadline::after(20ms)); });
  EXPECT_TRUE(has(what, "gone'")) << what;
  what = what_of<Timeout>([&] { store_->wait({"here", "gone", "too"}, Deadline::after(20ms)); });
  EXPECT_TRUE(has(what, "gone'") && has(what, "too'")) << what;
  EXPECT_FALSE(has(what, "here'")) << what;
  EXPECT_EQ(store_->get("here", Deadline::after(0s)), "1");  // and the connection lives
  EXPECT_THROW(store_->wait({"gone"}, Deadline::after(0s)), Timeout);
}

TEST_P(store_store, a_waiter_wakes_when_the_last_key_comes) {
  auto other = store_->clone(soon());
  auto waiter = std::async(std::launch::async, [&] {
    other->wait({"a", "b"}, soon());
    return other->get("c", Deadline::never());
  });
  store_->set("a", "1");
  store_->add("b", 1);
  store_->compare_set("c", "", "three");
  EXPECT_EQ(waiter.get(), "three");
}

TEST_P(store_store, adds_from_nothing_and_in_text) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->get("n", soon()), "-2");
  store_->set("n", "40");
  EXPECT_EQ(store_->add("n", 2), 42);
  store_->set("n", "forty");
  EXPECT_TRUE(has(what_of<UsageError>([&] { store_->add("n", 1); }), "n'"));
  store_->set("n", std::to_string(INT64_MAX));
  EXPECT_THROW(store_->add("n", 1), UsageError);
  EXPECT_EQ(store_->get("n", soon()), std::to_string(INT64_MAX));
}

TEST_P(store_store, compare_set_changes_only_what_was_expected) {
  EXPECT_EQ(store_->compare_set("k", "something", "x"), "");
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  EXPECT_EQ(store_->compare_set("k", "", "one"), "one");
  EXPECT_EQ(store_->compare_set("k", "", "two"), "one");
  EXPECT_EQ(store_->compare_set("k", "one", "two"), "two");
  EXPECT_EQ(store_->get("k", soon()), "two");
}

TEST_P(store_store, deletes_and_counts) {
  EXPECT_EQ(store_->num_keys(), 0);
  store_->set("a/1", "x");
  store_->set("a/2", "x");
  store_->set("b", "x");
  EXPECT_EQ(store_->num_keys(), 3);
  EXPECT_EQ(store_->count_keys("a/"), 2);
  EXPECT_EQ(store_->count_keys("z"), 0);
  EXPECT_TRUE(store_->delete_key("a/1"));
  EXPECT_FALSE(store_->delete_key("a/1"));
  EXPECT_EQ(store_->num_keys(), 2);
}

TEST_P(store_store, says_what_is_missing) {
  store_->set("a", "");
  EXPECT_TRUE(store_->check({"a"}));
  EXPECT_FALSE(store_->check({"a", "b"}));
  EXPECT_EQ(store_->missing({"c", "a", "b"}), (std::vector<std::string>{"c", "b"}));
  EXPECT_TRUE(store_->check({}));
}

TEST_P(store_store, refuses_keys_and_values_beyond_the_limits_and_lives_on) {
  EXPECT_THROW(store_->set("", "x"), UsageError);
  EXPECT_THROW(store_->set(std::string(Store::kMaxKeyBytes + 1, 'k'), "x"), UsageError);
  EXPECT_THROW(store_->set("k", std::string(Store::kMaxValueBytes + 1, 'x')), UsageError);
  std::string largest(Store::kMaxValueBytes, 'x');
  store_->set("k", largest);
  EXPECT_TRUE(store_->get("k", soon()) == largest);
}

TEST_P(store_store, counts_every_add_of_many_threads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([store = std::shared_ptr<Store>(store_->clone(soon()))] {
      for (int i = 0; i < 100; ++i) store->add("n", 1);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store_->get("n", soon()), "800");
}

TEST_P(store_store, one_of_many_wins_a_compare_set) {
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t, store = std::shared_ptr<Store>(store_->clone(soon()))] {
      auto mine = std::to_string(t);
      winners += store->compare_set("leader", "", mine) == mine;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST_P(store_store, a_will_is_not_carried_out_after_a_goodbye) {
  auto other = store_->clone(soon());
  EXPECT_THROW(other->set_will("", "x"), UsageError);
  EXPECT_THROW(other->set_will("k", std::string(Store::kMaxValueBytes + 1, 'x')), UsageError);
  other->set_will("will", "first");
  other->set_will("will", "second");
  EXPECT_EQ(other->num_keys(), 0);
  other->clear_will();
  other->clear_will();
  other->set_will("will", "third");
  other.reset();
  auto third = store_->clone(soon());
  EXPECT_THROW(store_->get("will", Deadline::after(150ms)), Timeout);
  EXPECT_EQ(third->num_keys(), 0);
}

INSTANTIATE_TEST_SUITE_P(, store_store, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

TEST(store_prefix, does_not_see_other_prefixes) {
  auto inner = std::make_shared<MemoryStore>();
  PrefixStore a(inner, "a"), b(inner, "b");
  a.set("k", "of a");
  EXPECT_FALSE(b.check({"k"}));
  EXPECT_EQ(b.num_keys(), 0);
  EXPECT_EQ(inner->get("a/k", soon()), "of a");
  EXPECT_EQ(a.missing({"x"}), std::vector<std::string>{"x"});
}

}  // namespace store_test
