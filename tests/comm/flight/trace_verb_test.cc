// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/refusals.h"

namespace trace_verb_test {

// `trireme trace flight`, as a person calls it.
using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

const std::string kProgram = trireme::testing::build_path("/bin/trireme");
const std::string kDumps = trireme::testing::source_path("/tests/formats/flight-v1");

struct Ran {
  int code;
  std::string out, err;
};

Ran trace(Arguments words) {
  words.insert(words.begin(), {kProgram, "trace"});
  Command command(words);
  const int code = command.finish();
  return {code, command.out, command.err};
}

bool one_sentence(const std::string& err) {
  return std::count(err.begin(), err.end(), '\n') == 1 && err.rfind("trireme: error: ", 0) == 0;
}

}  // namespace

TEST(comm_flight_trace_verb, one_sentence_and_then_the_last_calls_of_each_rank) {
  const Ran ran = trace({"flight", kDumps});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(
      ran.out.substr(0, ran.out.find('\n')),
      "rank 1 called reduce(float64[1000], max, root 0) at train.cc:30 as its call 2 of group "
      "world where rank 0 called reduce(float64[1001], max, root 0) at train.cc:31");
  EXPECT_TRUE(has(ran.out, "group world, rank 1 (pid ") && has(ran.out, "broadcast(int64[3]"));
  EXPECT_FALSE(has(trace({"flight", kDumps, "--last", "1"}).out, "broadcast(int64[3]"));
}

TEST(comm_flight_trace_verb, the_same_as_json) {
  const Ran ran = trace({"flight", kDumps, "--json", "-"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["verdict"], "different_call");
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["seq"], 2);
  EXPECT_EQ(json["ranks"][1]["calls"][0]["op"], "broadcast");
  EXPECT_TRUE(json["missing"].empty());
}

TEST(comm_flight_trace_verb, missing_ranks_are_named_and_allowed_where_asked) {
  PrivateFolder folder;
  const std::string file = "world-0123456789abcdef-rank1.flight";
  std::filesystem::copy_file(kDumps + "/" + file, folder / file);
  Ran ran = trace({"flight", folder.path()});
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "no dump of rank 0 of group world is in")) << ran.err;
  EXPECT_TRUE(has(ran.out, "all ranks agree")) << ran.out;
  ran = trace({"flight", folder.path(), "--allow-incomplete"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(has(ran.err, "no dump of rank 0 of group world is in")) << ran.err;
}

TEST(comm_flight_trace_verb, bad_files_and_flags_are_one_sentence) {
  PrivateFolder folder;
  const std::string bytes = read_file(kDumps + "/world-0123456789abcdef-rank1.flight");
  auto with = [&](std::string text) {
    write_file_atomic(folder / "a.flight", text);
    return trace({"flight", folder.path()});
  };
  Ran ran = with(bytes.substr(0, 700));
  EXPECT_TRUE(ran.code == 1 && one_sentence(ran.err) && has(ran.err, "truncated")) << ran.err;
  ran = with("hello");
  EXPECT_TRUE(ran.code == 1 && one_sentence(ran.err) && has(ran.err, "is not a dump")) << ran.err;
  std::string changed = bytes;
  changed[1000] = static_cast<char>(changed[1000] ^ 1);
  ran = with(changed);
  EXPECT_TRUE(ran.code == 1 && one_sentence(ran.err) && has(ran.err, "checksum")) << ran.err;
  changed = bytes;
  changed[8] = 9;
  ran = with(changed);
  EXPECT_TRUE(ran.code == 2 && one_sentence(ran.err) && has(ran.err, "version 9")) << ran.err;
  for (const Arguments& words :
       {Arguments{"flight"}, Arguments{"flight", "/nowhere"}, Arguments{"flight", "a", "b"},
        Arguments{"flight", kDumps, "--last", "x"}, Arguments{"flight", kDumps, "--frobnicate"},
        Arguments{"frobnicate"}}) {
    ran = trace(words);
    EXPECT_TRUE(ran.code == 2 && one_sentence(ran.err)) << ran.err;
  }
  EXPECT_EQ(trace({"--help"}).code, 0);
}

}  // namespace trace_verb_test
