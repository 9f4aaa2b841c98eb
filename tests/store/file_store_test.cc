// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/file/file_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <thread>

#include "tests/store/child.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/rendezvous/join.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/file/file_lock.h"

namespace file_store_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::Child;

namespace {

using trireme::testing::has;

namespace fs = std::filesystem;

Deadline soon() { return Deadline::after(10s); }
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

std::unique_ptr<FileStore> join(const std::string& path, uint32_t rank = 0, uint32_t world = 2,
                                Deadline deadline = soon()) {
  return FileStore::join(path, {"job", 0, world, rank}, deadline);
}

/// Enters as `rank`, says so and waits to be killed.
auto stay(const std::string& path, uint32_t rank, uint32_t attempt = 0) {
  return [=](const Child::Parent& parent) {
    auto store = FileStore::join(path, {"job", attempt, 2, rank}, soon());
    store->set("from", std::to_string(rank));
    parent.tell("in");
    parent.hear();
  };
}

struct QuietLog {
  QuietLog() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~QuietLog() { set_log_sink({}); }
};

RankEnv ranks(int world, int rank) {
  RankEnv env;
  env.world_size = world;
  env.rank = rank;
  env.job_id = "job";
  return env;
}

}  // namespace

TEST(store_file_store, the_last_one_removes_the_file) {
  PrivateFolder folder;
  auto path = folder / "store";
  auto a = join(path, 0);
  auto b = join(path, 1);
  a->set("k", "v");
  EXPECT_EQ(b->get("k", soon()), "v");
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  auto again = b->clone(soon());
  a.reset();
  b.reset();
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(again->get("k", soon()), "v");
  again.reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST(store_file_store, an_empty_file_is_as_good_as_none) {
  PrivateFolder folder;
  auto path = folder / "store";
  UniqueFd made(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));  // as mktemp does
  join(path)->set("k", "v");
  EXPECT_FALSE(fs::exists(path));
}

TEST(store_file_store, what_a_killed_job_left_behind_is_refused_at_once_with_what_to_do) {
  PrivateFolder folder;
  auto path = folder / "store";
  for (uint32_t rank : {0u, 1u}) {  // also where the new rank's own place is free
    Child child(stay(path, rank));
    ASSERT_EQ(child.hear(), "in");
    auto pid = std::to_string(child.pid());
    child.kill();
    auto start = Clock::now();
    auto what = what_of<UsageError>([&] { join(path, 0); });
    EXPECT_LT(seconds_since(start), 2);
    EXPECT_TRUE(has(what, path) && has(what, "process " + pid) && has(what, "Delete the file"))
        << what;
    fs::remove(path);
  }
}

TEST(store_file_store, another_job_s_file_is_refused_whether_it_lives_or_not) {
  PrivateFolder folder;
  auto path = folder / "store";
  Child child(stay(path, 0));
  ASSERT_EQ(child.hear(), "in");
  FileStore::Member other{"other", 0, 2, 1};
  auto what = what_of<UsageError>([&] { FileStore::join(path, other, soon()); });
  EXPECT_TRUE(has(what, "in use by job 'job'")) << what;
  child.kill();
  what = what_of<UsageError>([&] { FileStore::join(path, other, soon()); });
  EXPECT_TRUE(has(what, "left behind by job 'job'") && has(what, "Delete the file")) << what;
}

TEST(store_file_store, the_next_attempt_takes_over_what_the_last_left_behind) {
  PrivateFolder folder;
  auto path = folder / "store";
  Child child(stay(path, 0));
  ASSERT_EQ(child.hear(), "in");
  FileStore::Member next{"job", 1, 2, 0};
  auto what = what_of<Timeout>([&] { FileStore::join(path, next, Deadline::after(20ms)); });
  EXPECT_TRUE(has(what, "still lives")) << what;
  child.kill();
  auto store = FileStore::join(path, next, soon());
  EXPECT_EQ(store->num_keys(), 0);
  what = what_of<UsageError>([&] { join(path, 1); });
  EXPECT_TRUE(has(what, "attempt 1") && has(what, "attempt 0")) << what;
}

TEST(store_file_store, a_rank_twice_and_another_world_are_refused_by_name) {
  PrivateFolder folder;
  auto path = folder / "store";
  auto a = join(path, 0);
  EXPECT_TRUE(has(what_of<UsageError>([&] { join(path, 0); }), "rank 0 of this job is taken"));
  auto what = what_of<UsageError>([&] { join(path, 1, 3); });
  EXPECT_TRUE(has(what, "world of 3") && has(what, "one of 2")) << what;
  join(path, 1)->set("k", "v");
  EXPECT_EQ(a->get("k", soon()), "v");
}

TEST(store_file_store, the_next_group_waits_until_the_last_has_left) {
  PrivateFolder folder;
  auto path = folder / "store";
  auto a = join(path, 0);
  auto b = join(path, 1);
  b->set("k", "v");
  a.reset();
  auto what = what_of<Timeout>([&] { join(path, 0, 2, Deadline::after(20ms)); });
  EXPECT_TRUE(has(what, "rank 1") && has(what, "has not left")) << what;
  auto next = std::async(std::launch::async, [&] { return join(path, 0, 5); });
  b->set("more", "v");
  b.reset();
  EXPECT_EQ(next.get()->num_keys(), 0);
}

TEST(store_file_store, processes_and_threads_lose_no_add) {
  PrivateFolder folder;
  auto path = folder / "store";
  constexpr int kProcesses = 3, kThreads = 2, kAdds = 100;
  std::vector<std::unique_ptr<Child>> children;
  for (int p = 0; p < kProcesses; ++p)
    children.push_back(std::make_unique<Child>([&, p](const Child::Parent& parent) {
      auto store = join(path, static_cast<uint32_t>(p) + 1, kProcesses + 1);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([own = std::shared_ptr<Store>(store->clone(soon()))] {
          for (int i = 0; i < kAdds; ++i) own->add("n", 1);
        });
      for (auto& thread : threads) thread.join();
      store->add("done", 1);
      parent.tell("done");
      parent.hear();
    }));
  auto store = join(path, 0, kProcesses + 1);
  for (auto& child : children) EXPECT_EQ(child->hear(), "done");
  EXPECT_EQ(store->get("n", soon()), std::to_string(kProcesses * kThreads * kAdds));
  EXPECT_EQ(store->get("done", soon()), std::to_string(kProcesses));
}

TEST(store_file_store, ranks_meet_at_a_path_and_again) {
  PrivateFolder folder;
  auto path = folder / "store";
  std::vector<std::future<void>> all;
  for (int r = 0; r < 3; ++r)
    all.push_back(std::async(std::launch::async, [&, r] {
      for (int round = 0; round < 3; ++round) {
        ServerHandle server;
        auto store = open_store(ranks(3, r), "file://" + path, soon(), server);
        EXPECT_FALSE(server.serving());
        EXPECT_EQ(store->describe(), "file://" + path);
        auto key = "said/" + std::to_string(round);
        store->add(key, 1);
        while (store->get(key, soon()) != "3") std::this_thread::yield();
        EXPECT_EQ(member(*store, (r + 1) % 3)->pid, ::getpid());
      }
    }));
  for (auto& rank : all) rank.get();
  EXPECT_FALSE(fs::exists(path));
}

TEST(store_file_store, a_rank_that_never_comes_is_named) {
  PrivateFolder folder;
  ServerHandle server;
  auto what = what_of<Timeout>([&] {
    open_store(ranks(2, 1), "file://" + (folder / "store"), Deadline::after(50ms), server);
  });
  EXPECT_TRUE(has(what, "missing: rank 0")) << what;
  EXPECT_FALSE(fs::exists(folder / "store"));
}

TEST(store_file_store, a_full_disk_is_a_clear_error_and_changes_nothing) {
  PrivateFolder folder;
  auto store = join(folder / "store");
  auto other = store->clone(soon());
  store->set("k", "before");
  set_failpoints("store.append=error(28)");
  auto what = what_of<ResourceError>([&] { store->set("k", "after"); });
  EXPECT_TRUE(has(what, folder / "store") && has(what, "No space left")) << what;
  EXPECT_THROW(store->add("n", 1), ResourceError);
  EXPECT_THROW(join(folder / "store", 1), ResourceError);
  set_failpoints("");
  EXPECT_EQ(store->get("k", soon()), "before");
  EXPECT_EQ(other->get("k", soon()), "before");
  EXPECT_EQ(other->add("n", 1), 1);
}

TEST(store_file_store, a_write_that_went_half_way_is_taken_back) {
  PrivateFolder folder;
  auto path = folder / "store";
  Child child([&](const Child::Parent& parent) {
    auto store = join(path, 1);
    store->set("k", "before");
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{static_cast<rlim_t>(fs::file_size(path)) + 100, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      store->set("k", std::string(1000, 'x'));
    } catch (const ResourceError& error) {
      store->set("still", "fits");
      parent.tell(error.what());
    }
    parent.hear();
  });
  auto what = child.hear();
  EXPECT_TRUE(has(what, path) && has(what, "File too large")) << what;
  auto store = join(path, 0);
  EXPECT_EQ(store->get("k", soon()), "before");
  EXPECT_EQ(store->get("still", soon()), "fits");
}

TEST(store_file_store, a_small_disk_fills_and_a_read_only_one_is_refused) {
  PrivateFolder folder;
  Child child([&](const Child::Parent& parent) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0)
      return parent.tell("no mounts here: " + errno_text());
    {
      auto store = join(folder / "store");
      store->set("k", "before");
      auto full = what_of<ResourceError>([&] {
        for (int i = 0; i < 100; ++i) store->set("large", std::string(4000, 'x'));
      });
      if (store->get("k", soon()) != "before") full = "it forgot";
      parent.tell(full);
    }
    parent.tell(fs::exists(folder / "store") ? "it stays" : "removed");
    ::mount(nullptr, folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr);
    parent.tell(what_of<ResourceError>([&] { join(folder / "store"); }));
  });
  auto full = child.hear();
  if (has(full, "no mounts here")) GTEST_SKIP() << full;
  EXPECT_TRUE(has(full, folder / "store") && has(full, "No space left")) << full;
  EXPECT_EQ(child.hear(), "removed");
  auto what = child.hear();
  EXPECT_TRUE(has(what, folder / "store") && has(what, "Read-only file system")) << what;
}

TEST(store_file_store, a_record_cut_short_by_its_writer_s_death_is_written_over) {
  PrivateFolder folder;
  auto path = folder / "store";
  auto store = join(path, 0);
  store->set("k", "v");
  auto record =
      detail::encode({detail::FileRecord::Type::put, "k", std::string(500, 'x'), 0, 0, 0});
  {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND));
    ASSERT_EQ(::write(fd.get(), record.data(), record.size() - 1),
              static_cast<ssize_t>(record.size() - 1));
  }
  EXPECT_EQ(store->get("k", soon()), "v");
  auto other = join(path, 1);
  EXPECT_EQ(other->get("k", soon()), "v");
  store->set("k", "w");
  EXPECT_EQ(other->get("k", soon()), "w");
}

TEST(store_file_store, a_shortened_or_damaged_file_is_an_error_that_names_it) {
  PrivateFolder folder;
  auto path = folder / "store";
  {
    QuietLog log;
    auto store = join(path, 0);
    store->set("k", "v");
    fs::resize_file(path, fs::file_size(path) - 3);
    auto what = what_of<Corrupt>([&] { store->try_get("k"); });
    EXPECT_TRUE(has(what, path)) << what;
  }
  fs::remove(path);
  {
    QuietLog log;
    auto store = join(path, 0);
    auto at = fs::file_size(path);
    store->set("key", "value");
    UniqueFd fd(::open(path.c_str(), O_WRONLY));
    ASSERT_EQ(::pwrite(fd.get(), "X", 1, static_cast<off_t>(at + 16)), 1);
    auto what = what_of<Corrupt>([&] { join(path, 1); });
    EXPECT_TRUE(has(what, path) && has(what, "byte " + std::to_string(at)) &&
                has(what, "Delete it"))
        << what;
  }
}

TEST(store_file_store, what_is_no_store_s_file_is_refused_and_left_alone) {
  PrivateFolder folder;
  auto path = folder / "notes.txt";
  auto refuse = [&](const std::string& bytes) {
    write_file_atomic(path, bytes);
    ::chmod(path.c_str(), 0600);
    std::string what;
    try {
      join(path);
    } catch (const Error& error) {
      what = std::string(error.kind()) + ": " + error.what();
    }
    EXPECT_EQ(read_file(path), bytes);
    return what;
  };
  EXPECT_TRUE(
      has(refuse("dear diary"), "Corrupt: " + path + " is not the file of a Trireme store"));
  EXPECT_TRUE(has(refuse("TRIR"), "Corrupt: "));
  EXPECT_TRUE(has(refuse(detail::file_start()), "Corrupt: "));
  auto newer = detail::file_start();
  newer[8] = 9;
  auto what = refuse(newer);
  EXPECT_TRUE(has(what, "Mismatch: ") && has(what, "version 9") && has(what, "version 1")) << what;
  ::chmod(path.c_str(), 0666);
  EXPECT_TRUE(has(what_of<UsageError>([&] { join(path); }), "others than user"));
  EXPECT_TRUE(has(what_of<ResourceError>([&] { join(folder.path()); }), folder.path()));
  EXPECT_TRUE(has(what_of<ResourceError>([&] { join(folder / "none/store"); }), "none/store"));
  ASSERT_EQ(::symlink(path.c_str(), (folder / "link").c_str()), 0);
  EXPECT_THROW(join(folder / "link"), ResourceError);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(has(what_of<UsageError>([&] { join(folder / "pipe"); }), "regular file"));
}

TEST(store_file_store, a_file_deleted_under_the_job_is_the_end_of_it) {
  PrivateFolder folder;
  auto path = folder / "store";
  auto store = join(path, 0);
  fs::remove(path);
  EXPECT_TRUE(has(what_of<PeerLost>([&] { store->set("k", "v"); }), "deleted"));
  auto next = join(path, 0);
  EXPECT_THROW(store->clone(soon()), PeerLost);
  store.reset();
  EXPECT_TRUE(fs::exists(path));  // not its own
}

TEST(store_file_store, a_lock_that_nobody_gives_back_is_a_timeout) {
  PrivateFolder folder;
  auto path = folder / "store";
  auto store = join(path, 0);
  store->set_answer_limit(30ms);
  UniqueFd fd(::open(path.c_str(), O_RDWR));
  detail::FileLock held(fd.get(), detail::kLogLock, detail::LockMode::exclusive, soon(), path);
  auto what = what_of<Timeout>([&] { store->set("k", "v"); });
  EXPECT_TRUE(has(what, path) && has(what, "lock")) << what;
  EXPECT_THROW(join(path, 1, 2, Deadline::after(10ms)), Timeout);
}

TEST(store_file_store, two_threads_on_one_object_are_told) {
  PrivateFolder folder;
  auto store = join(folder / "store");
  std::atomic<bool> stop{false};
  std::atomic<int> told{0};
  auto use = [&] {
    while (!stop) {
      try {
        store->try_get("k");
      } catch (const UsageError& error) {
        if (has(error.what(), "two threads")) ++told;
        stop = true;
      }
    }
  };
  std::thread a(use), b(use);
  a.join();
  b.join();
  EXPECT_GE(told, 1);
}

}  // namespace file_store_test
