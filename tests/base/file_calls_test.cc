// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/file_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/command.h"
#include "tests/support/file_log.h"
#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/rank_label.h"

namespace file_calls_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Kinds = std::vector<std::string>;

Kinds kinds_of(const std::vector<LoggedCall>& calls) {
  Kinds kinds;
  for (const auto& call : calls) kinds.push_back(call.kind);
  return kinds;
}

std::string plan(size_t number, const std::string& fault, const std::string& only) {
  return "only=" + only + "," + std::to_string(number) + ":" + fault;
}

/// What `call` throws, "" for nothing.
std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return std::string(e.kind()) + ": " + e.what();
  }
  return "";
}

const Kinds kAtomicWrite{"create", "write", "fsync", "close", "rename", "open", "fsync"};

}  // namespace

TEST(base_file_calls, every_call_is_numbered_with_its_kind_and_its_paths) {
  PrivateFolder folder;
  const auto calls =
      calls_of(folder.path(), [&] { write_file_atomic(folder / "file", "some bytes"); });
  EXPECT_EQ(kinds_of(calls), kAtomicWrite);
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].number, static_cast<int64_t>(i) + 1);
  EXPECT_EQ(calls[1].path, calls[0].path);  // a descriptor's
  EXPECT_EQ(calls[1].result, 10);
  EXPECT_EQ(calls[4].to, folder / "file");
  EXPECT_EQ(calls[6].path, folder.path());
}

TEST(base_file_calls, each_call_that_fails_is_told_with_its_path_and_reason_and_leaves_old_or_new) {
  for (const auto& [fault, reason] : {std::pair{"ENOSPC", "No space left on device"},
                                      {"EIO", "Input/output error"},
                                      {"EROFS", "Read-only file system"},
                                      {"EDQUOT", "Disk quota exceeded"}})
    for (size_t n = 1; n <= kAtomicWrite.size(); ++n) {
      PrivateFolder folder;
      const std::string file = folder / "file";
      write_file_atomic(file, "old");
      std::string text;
      {
        const FileFaults faults(plan(n, fault, folder.path()));
        text = thrown_by([&] { write_file_atomic(file, "new"); });
      }
      EXPECT_TRUE(text.starts_with("ResourceError: ") && text.ends_with(reason)) << n << text;
      EXPECT_NE(text.find(folder.path()), std::string::npos) << text;
      EXPECT_EQ(read_file(file), n <= 5 ? "old" : "new") << n;
      EXPECT_EQ(list_folder(folder.path()), Kinds{"file"}) << n;
    }
}

TEST(base_file_calls, killed_before_or_after_each_call_a_file_is_the_old_one_or_the_new) {
  for (size_t n = 1; n <= kAtomicWrite.size(); ++n)
    for (const char* fault : {"kill-before", "kill-after"}) {
      PrivateFolder folder;
      const std::string file = folder / "file";
      write_file_atomic(file, "old");
      EXPECT_EQ(
          end_of_child(plan(n, fault, folder.path()), [&] { write_file_atomic(file, "new"); }),
          "killed");
      const bool renamed = n > 5 || (n == 5 && std::string(fault) == "kill-after");
      EXPECT_EQ(read_file(file), renamed ? "new" : "old") << n << fault;
    }
}

TEST(base_file_calls, short_reads_and_writes_are_continued) {
  PrivateFolder folder;
  const std::string file = folder / "file";
  {
    const FileFaults faults("1:short,2:short,only=" + folder.path());
    write_file_atomic(file, "twelve bytes");
  }
  EXPECT_EQ(read_file(file), "twelve bytes");
  const auto calls = calls_of(folder.path(), [&] { write_file_atomic(file, "twelve bytes"); });
  EXPECT_EQ(calls[1].result, 12);
  PrivateFolder logs;
  {
    const FileFaults faults("1:short,count=" + (logs / "log") + ",only=" + folder.path());
    write_file_atomic(file, "twelve bytes");
  }
  const auto halved = read_file_log(logs / "log");
  EXPECT_EQ(halved[1].result, 6);
  EXPECT_EQ(halved[2].result, 6);
  const FileFaults faults("1:short,only=" + folder.path());
  EXPECT_EQ(read_file(file), "twelve bytes");
}

TEST(base_file_calls, a_sync_fails_from_a_number_on_once) {
  PrivateFolder folder;
  const FileFaults faults("1:fsync-fails,only=" + folder.path());
  EXPECT_EQ(thrown_by([&] { write_file_atomic(folder / "file", "x"); }),
            "ResourceError: cannot sync " + (folder / "file") + ": Input/output error");
  write_file_atomic(folder / "file", "x");
}

TEST(base_file_calls, a_disk_that_is_full_from_a_number_on_still_reads_and_deletes) {
  PrivateFolder folder;
  write_file_atomic(folder / "file", "old");
  const FileFaults faults("2+:ENOSPC,only=" + folder.path());
  EXPECT_NE(thrown_by([&] { write_file_atomic(folder / "file", "new"); }), "");
  EXPECT_NE(thrown_by([&] { make_folders(folder / "more"); }), "");
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(list_folder(folder.path()), Kinds{"file"});
  remove_tree(folder / "file");
  EXPECT_TRUE(list_folder(folder.path()).empty());
}

TEST(base_file_calls, all_calls_of_a_kind_fail) {
  PrivateFolder folder;
  const FileFaults faults("rename:EINVAL,only=" + folder.path());
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(thrown_by([&] {
                  write_file_atomic(folder / "file", "x");
                }).ends_with("/file: Invalid argument"));
}

TEST(base_file_calls, paths_and_ranks_that_are_not_asked_for_are_not_numbered) {
  PrivateFolder folder, other;
  const FileFaults faults("1:EIO,rank=3,only=" + folder.path());
  write_file_atomic(other / "file", "x");
  write_file_atomic(folder / "file", "x");
  const ThreadRankScope rank(3);
  write_file_atomic(other / "file", "x");
  EXPECT_NE(thrown_by([&] { write_file_atomic(folder / "file", "x"); }), "");
}

TEST(base_file_calls, close_gives_the_descriptor_back_also_where_it_fails) {
  PrivateFolder folder;
  const int fd = ::open((folder / "file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const FileFaults faults("1:EIO,only=" + folder.path());
  EXPECT_EQ(file_calls::close(fd), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST(base_file_calls, calls_that_come_back_later_are_numbered_as_they_begin) {
  PrivateFolder folder, logs;
  UniqueFd fd(::open((folder / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const char bytes[] = "12345678";
  auto call = [&](int64_t offset) {
    return file_calls::before({.kind = FileCallKind::pwrite,
                               .fd = fd.get(),
                               .bytes = bytes,
                               .size = 8,
                               .offset = offset});
  };
  EXPECT_EQ(call(0), nullptr);  // nothing is planned
  const FileFaults faults("2:EIO,3:short,record=" + (logs / "log") + ",only=" + folder.path());
  const auto first = call(0), second = call(8), third = call(16);
  third->done(4);
  first->done(8);
  second->done(-EIO);
  EXPECT_EQ(first->error(), 0);
  EXPECT_EQ(second->error(), EIO);
  EXPECT_EQ(third->size(), 4u);
  const auto lines = read_file_log(logs / "log");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].number, 3);
  EXPECT_EQ(lines[1].number, 1);
  EXPECT_EQ(lines[2].result, -EIO);
  EXPECT_EQ(read_file(logs / "log.data"), "123412345678");
}

TEST(base_file_calls, a_plan_that_cannot_be_read_is_refused_in_a_sentence) {
  for (const auto& [text, why] :
       {std::pair{"17", "write NUMBER:WHAT"},
        {":EIO", "'' is not a number from 1"},
        {"0:EIO", "'0' is not a number from 1"},
        {"x:EIO", "'x' is not a number"},
        {"99999999999999999999:EIO", "is not a number"},
        {"1:", "unknown fault"},
        {"1:EPERM", "unknown fault; use kill-before"},
        {"1+:short", "only an error of the system goes with '+', not short"},
        {"rename:kill-after", "goes with a kind of calls, not kill-after"},
        {"only=", "nothing behind the '='"},
        {"only=x", "name no fault, no rate, no count and no record"},
        {"rank=-1,1:EIO", "is not a number"},
        {"where=x", "unknown word; use only, rank, slow, count or record"},
        {"slow=0", "'0' is not a number from 1"},
        {"slow=1MB", "is not a number"},
        {"count=a,record=b", "leave count out"}}) {
    const std::string said = thrown_by([&, t = std::string(text)] { set_file_faults(t); });
    EXPECT_TRUE(said.starts_with("UsageError: file fault") && said.find(why) != std::string::npos)
        << text << ": " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(trireme::detail::file_faults_armed());
}

TEST(base_file_calls, DISABLED_writes_a_file_where_it_is_told) {
  write_file_atomic(std::getenv("FILE_CALLS_TEST_FILE"), "new");
}

TEST(base_file_calls, a_plan_is_taken_from_the_environment) {
  PrivateFolder folder;
  const auto run = [&](const std::string& faults) {
    return Command(
        {std::filesystem::read_symlink("/proc/self/exe").string(),
         "--gtest_filter=*DISABLED_writes_a_file*", "--gtest_also_run_disabled_tests"},
        {{{"TRIREME_FILE_FAULTS", faults}, {"FILE_CALLS_TEST_FILE", folder / "file"}}, {}});
  };
  Command killed = run("5:kill-before,only=" + folder.path());
  EXPECT_EQ(killed.finish(), 128 + SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  Command wrong = run("5:nonsense");
  EXPECT_EQ(wrong.finish(), 0) << wrong.err;
  EXPECT_TRUE(wrong.err.starts_with(
      "trireme: error: TRIREME_FILE_FAULTS: file fault '5:nonsense': unknown fault"))
      << wrong.err;
  EXPECT_EQ(read_file(folder / "file"), "new");
}

TEST(base_file_calls, a_folder_that_cannot_be_asked_is_an_error_and_not_an_empty_one) {
  PrivateFolder folder;
  write_file_atomic(folder / "file", "x");
  const std::string path = folder.path();
  const std::string reason = ": Input/output error";
  for (size_t n = 1; n <= 4; ++n) {  // opendir, and a readdir for each of ., .., file
    const FileFaults faults(plan(n, "EIO", path));
    EXPECT_EQ(thrown_by([&] { list_folder(path); }), "ResourceError: cannot list " + path + reason);
  }
  const FileFaults faults("1+:EIO,only=" + path);
  EXPECT_EQ(thrown_by([&] { path_kind(path); }), "ResourceError: cannot look at " + path + reason);
  EXPECT_NE(thrown_by([&] { make_folders(path + "/more"); }), "");
  EXPECT_NE(thrown_by([&] { remove_tree(path); }), "");
}

TEST(base_file_calls, folders_are_made_with_their_parents_each_synced_and_removed_with_all) {
  PrivateFolder folder;
  const std::string made = folder / "a/b/c";
  const auto calls = calls_of(folder.path(), [&] { make_folders(made); });
  size_t syncs = 0;
  for (const auto& call : calls) syncs += call.syncs();
  EXPECT_EQ(syncs, 3u);
  make_folders(made + "/");
  EXPECT_EQ(path_kind(made), PathKind::folder);
  write_file_atomic(made + "/file", "12");
  uint64_t size = 0;
  EXPECT_EQ(path_kind(made + "/file", &size), PathKind::file);
  EXPECT_EQ(size, 2u);
  EXPECT_EQ(path_kind(made + "/file/beyond"), PathKind::nothing);
  EXPECT_NE(thrown_by([&] { make_folders(made + "/file/beyond"); }).find("not a folder"),
            std::string::npos);
  std::filesystem::create_directory_symlink(made, folder / "link");
  remove_tree(folder / "link");
  EXPECT_EQ(path_kind(made + "/file"), PathKind::file);
  remove_tree(folder / "a");
  remove_tree(folder / "a");
  EXPECT_TRUE(list_folder(folder.path()).empty());
  for (const auto& [path, parent] :
       {std::pair{"a", "."}, {"/a", "/"}, {"a/b", "a"}, {"a/b/", "a"}, {"/", "/"}, {"a//", "."}})
    EXPECT_EQ(parent_folder(path), parent) << path;
}

TEST(base_file_calls, a_slow_disk_takes_writes_at_its_rate_and_those_on_others_at_once) {
  PrivateFolder slow, quick;
  const FileFaults faults("only=" + slow.path() + ",slow=1000000");
  const std::string bytes(100'000, 'x');
  auto begin = Clock::now();
  for (int i = 0; i < 3; ++i) write_file_atomic(slow / "file", bytes);
  EXPECT_GE(seconds_since(begin), 0.3);
  EXPECT_EQ(read_file(slow / "file"), bytes);
  write_file_atomic(slow / "file", std::string(1'000'000, 'y'));
  begin = Clock::now();
  write_file_atomic(quick / "file", std::string(1'000'000, 'y'));
  EXPECT_LT(seconds_since(begin), 0.9) << "it did not wait for the other's second";
}

TEST(base_file_calls, links_and_touches_are_numbered_and_fail_like_others) {
  PrivateFolder folder;
  write_file_atomic(folder / "a", "bytes");
  const auto calls = calls_of(folder.path(), [&] {
    EXPECT_EQ(file_calls::link(folder / "a", folder / "b"), 0);
    EXPECT_EQ(file_calls::touch(folder / "b"), 0);
  });
  EXPECT_EQ(kinds_of(calls), (Kinds{"link", "touch"}));
  EXPECT_EQ(calls[0].to, folder / "b");
  const FileFaults faults("link:EOPNOTSUPP,touch:EROFS,lock:ENOLCK,only=" + folder.path());
  EXPECT_EQ(file_calls::link(folder / "a", folder / "c"), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(file_calls::touch(folder / "a"), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
}

}  // namespace file_calls_test
