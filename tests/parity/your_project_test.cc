// SPDX-License-Identifier: Apache-2.0
// examples/your_project is built as a user would build it, against the build tree and against an
// install tree.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::your_project_test {
namespace {

struct Result {
  int status = -1;
  std::string text;  // stdout and stderr
};

Result run(const std::vector<std::string>& command, const std::string& log) {
  std::filesystem::create_directories(std::filesystem::path(log).parent_path());
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  Result result;
  const int failed = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return result;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.text = read_file(log);
  return result;
}

/// Configures and builds the example against the package in `package_dir`; the program's path.
void build(const std::string& package_dir, const std::string& dir, const std::string& log) {
  Result result =
      run({"cmake", "-S", trireme::testing::source_path("/examples/your_project"), "-B", dir, "-G",
           "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_COMPILER=" TRIREME_CXX_COMPILER,
           "-DCMAKE_CXX_COMPILER_LAUNCHER=" TRIREME_CXX_LAUNCHER, "-Dtrireme_DIR=" + package_dir},
          log);
  ASSERT_EQ(result.status, 0) << result.text;
  result = run({"cmake", "--build", dir}, log);
  ASSERT_EQ(result.status, 0) << result.text;
}

// Folders that stay: a second run of the tests compiles nothing.
const std::string kFolder = trireme::testing::build_path("/your_project");

TEST(parity_your_project, trains_alone_when_built_against_the_build_tree) {
  const std::string dir = kFolder + "/from_build_tree";
  build(trireme::testing::build_path(), dir, kFolder + "/build_tree.log");
  if (HasFatalFailure()) return;
  const Result result = run({dir + "/your_program"}, kFolder + "/build_tree.log");
  EXPECT_EQ(result.status, 0) << result.text;
  EXPECT_EQ(result.text.rfind("1 ranks, loss 0.", 0), 0u) << result.text;
}

TEST(parity_your_project, trains_with_two_ranks_when_built_against_the_install_tree) {
  const std::string dir = kFolder + "/from_install_tree", prefix = kFolder + "/prefix";
  const std::string log = kFolder + "/install_tree.log";
  const Result installed =
      run({"cmake", "--install", trireme::testing::build_path(), "--prefix", prefix}, log);
  ASSERT_EQ(installed.status, 0) << installed.text;
  build(prefix + "/" TRIREME_PACKAGE_DIR, dir, log);
  if (HasFatalFailure()) return;
  // Started by the installed command.
  const Result result = run({prefix + "/bin/trireme", "run", "--standalone", "--nproc-per-node",
                             "2", dir + "/your_program"},
                            log);
  EXPECT_EQ(result.status, 0) << result.text;
  EXPECT_NE(result.text.find("2 ranks, loss 0."), std::string::npos) << result.text;
}

}  // namespace
}  // namespace trireme::your_project_test
