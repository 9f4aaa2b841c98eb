// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/forked.h"
#include "trireme/base/file.h"
#include "trireme/rendezvous/join.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/file/file_store.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/tcp_store.h"

namespace fork_test {

// A child of a fork() has its parent's connections to the store.
using namespace trireme;
using namespace trireme::testing;

namespace {

const auto kSoon = std::chrono::seconds(10);

std::string every_call_is_refused(Store& store) {
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"set", [&] { store.set("k", "child"); }},
      {"get", [&] { store.get("k", Deadline::after(kSoon)); }},
      {"try_get", [&] { store.try_get("k"); }},
      {"add", [&] { store.add("n", 1); }},
      {"compare_set", [&] { store.compare_set("k", "parent", "child"); }},
      {"wait", [&] { store.wait({"k"}, Deadline::after(kSoon)); }},
      {"missing", [&] { store.missing({"k"}); }},
      {"delete_key", [&] { store.delete_key("k"); }},
      {"count_keys", [&] { store.count_keys(""); }},
      {"clone", [&] { store.clone(Deadline::after(kSoon)); }},
  };
  std::string wrong;
  for (auto& [name, call] : calls) wrong += refused_in_child(name, call);
  return wrong;
}

/// `look`: another client of the same table.
void expect_no_harm(std::unique_ptr<Store> store, Store& look) {
  store->set("k", "parent");
  store->set_will("gone", "yes");
  for (ChildEnd end : {ChildEnd::exit_at_once, ChildEnd::exit}) {
    ForkedChild child(end, [&] {
      std::string wrong = every_call_is_refused(*store);
      store.reset();
      return wrong;
    });
    for (int i = 0; i < 100; ++i) EXPECT_EQ(store->get("k", Deadline::after(kSoon)), "parent");
    EXPECT_EQ(child.ended(), "");
    for (int i = 0; i < 100; ++i) EXPECT_EQ(store->get("k", Deadline::after(kSoon)), "parent");
    EXPECT_EQ(look.try_get("gone"), std::nullopt);
    EXPECT_EQ(look.missing({"left/0"}).size(), 1u) << "the child said that the rank left";
  }
}

}  // namespace

TEST(store_fork, a_child_that_uses_its_parents_connection_is_refused_and_does_no_harm) {
  StoreServer::Options options;
  options.credentials.job_id = "job";
  StoreServer server(options);
  const net::Credentials credentials{"job", std::nullopt};
  const auto at = server.endpoints().front();
  auto look = TcpStore::connect(at, credentials, Deadline::after(kSoon));
  expect_no_harm(TcpStore::connect(at, credentials, Deadline::after(kSoon)), *look);
}

TEST(store_fork, a_child_of_a_member_does_not_say_that_its_rank_left) {
  StoreServer::Options options;
  options.credentials.job_id = "job";
  StoreServer server(options);
  auto look = server.local_store();
  expect_no_harm(std::make_unique<trireme::detail::MemberStore>(
                     TcpStore::connect(server.endpoints().front(), {"job", std::nullopt},
                                       Deadline::after(kSoon)),
                     0),
                 *look);
}

TEST(store_fork, a_child_that_uses_its_parents_file_is_refused_and_does_no_harm) {
  PrivateFolder folder;
  const std::string path = folder / "store";
  auto store = FileStore::join(path, {"job", 0, 1, 0}, Deadline::after(kSoon));
  auto look = store->clone(Deadline::after(kSoon));
  expect_no_harm(std::move(store), *look);
}

TEST(store_fork, a_child_that_uses_a_copy_of_a_table_in_memory_is_refused) {
  auto store = std::make_unique<MemoryStore>();
  auto look = store->clone(Deadline::never());
  expect_no_harm(std::move(store), *look);
}

// Else the child would wait for the server's thread, which it has not got, and for clients that are
// its parent's.
TEST(store_fork, a_child_of_the_process_that_serves_ends_at_once_and_the_store_goes_on) {
  StoreServer::Options options;
  options.credentials.job_id = "job";
  ServerHandle handle(std::make_unique<StoreServer>(options));
  auto client = TcpStore::connect(handle.server()->endpoints().front(), {"job", std::nullopt},
                                  Deadline::after(kSoon));
  client->set("k", "v");
  ForkedChild child(ChildEnd::exit, [&] {
    ServerHandle gone = std::move(handle);
    return std::string();
  });
  EXPECT_EQ(child.ended(), "");
  EXPECT_EQ(client->try_get("k"), "v");
  EXPECT_EQ(handle.server()->clients(), 1u);
  client.reset();
  EXPECT_TRUE(handle.close(Deadline::after(kSoon)));
}

// Else a data loader's process would keep its parent among the clients as long as it lives.
TEST(store_fork, a_store_is_left_though_a_child_has_a_copy_of_its_connection) {
  StoreServer::Options options;
  options.credentials.job_id = "job";
  StoreServer server(options);
  auto client =
      TcpStore::connect(server.endpoints().front(), {"job", std::nullopt}, Deadline::after(kSoon));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    ::close(ends[1]);
    char byte;
    return std::string(::read(ends[0], &byte, 1) == 0 ? "" : "the pipe said something");
  });
  EXPECT_EQ(server.clients(), 1u);
  client.reset();
  EXPECT_TRUE(server.wait_until_clients_left(Deadline::after(kSoon)));
  ::close(ends[1]);  // the child may go now
  EXPECT_EQ(child.ended(), "");
  ::close(ends[0]);
}

}  // namespace fork_test
