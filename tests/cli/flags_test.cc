// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "trireme/base/version.h"

namespace trireme::testing::flags_test {
namespace {

TEST(cli_flags, a_mistyped_flag_of_any_verb_names_the_nearest) {
  const std::pair<Arguments, const char*> rows[] = {
      {{"train", "a.json", "--nproc-per-nod", "2"}, "did you mean --nproc-per-node?"},
      {{"train", "a.json", "--overwrit"}, "did you mean --overwrite?"},
      {{"train", "a.json", "--run_dirr=x"}, "did you mean --run-dir?"},
      {{"summary", "a.json", "--nproc-per-nod=2"}, "did you mean --nproc-per-node?"},
      {{"generate", "run", "--promt", "x"}, "did you mean --prompt?"},
      {{"config", "check", "a.json", "--wrld", "2"}, "did you mean --world?"},
      {{"config", "show", "a.json", "--jsn=-"}, "did you mean --json?"},
      {{"bench", "all_reduce", "--round", "2"}, "did you mean --rounds?"},
      {{"bench", "all_reduce", "--cpu-bindin", "2"}, "did you mean --cpu-binding?"},
      {{"doctor", "--quik"}, "did you mean --quick?"},
      {{"trace", "flight", "--allow-incomplet", "x"}, "did you mean --allow-incomplete?"},
      {{"checkpoint", "prune", "x", "--kep", "2"}, "did you mean --keep?"},
      {{"version", "--jso", "-"}, "did you mean --json?"},
      {{"job", "slurm", "a.json", "--run-di", "x"}, "did you mean --run-dir?"},
      {{"run", "--nproc-per-nod", "2", "true"}, "did you mean --nproc-per-node?"},
  };
  for (const auto& [words, part] : rows) {
    Command command(trireme(words));
    EXPECT_EQ(command.finish(), 2) << words[0];
    EXPECT_NE(command.err.find(part), std::string::npos) << words[0] << ": " << command.err;
    EXPECT_EQ(command.out, "");
  }
}

TEST(cli_flags, switches_take_no_value) {
  for (const char* flag : {"--overwrite=1", "--take-over=yes", "--force=0"}) {
    Command command(trireme({"train", "a.json", flag}));
    EXPECT_EQ(command.finish(), 2);
    EXPECT_NE(command.err.find("takes no value"), std::string::npos) << command.err;
  }
}

TEST(cli_flags, the_version_is_the_librarys) {
  Command command(trireme({"version", "--json", "-"}));
  ASSERT_EQ(command.finish(), 0) << command.err;
  EXPECT_EQ(nlohmann::json::parse(command.out).at("trireme"), version());
  EXPECT_NE(std::string(version()), "");
}

}  // namespace
}  // namespace trireme::testing::flags_test
