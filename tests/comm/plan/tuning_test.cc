// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan/tuning.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace tuning_test {

using namespace trireme;

namespace {

const HostShape kShape{"Some \"CPU\" @ 2.0 GHz", 16, 4, "gloo"};

TuningTable filled() {
  TuningTable t(kShape);
  t.add({"all_reduce", 4, 1024, Algorithm::tree, 1e-5});
  t.add({"all_reduce", 4, 1024, Algorithm::ring, 3e-5});
  t.add({"all_reduce", 4, 1 << 20, Algorithm::ring, 1e-3});
  t.add({"all_reduce", 4, 1 << 20, Algorithm::tree, 2e-3});
  t.add({"all_reduce", 8, 1024, Algorithm::halving_doubling, 0.1});
  return t;
}

std::string refusal(const std::string& text) {
  try {
    TuningTable::parse(text, "t.json");
  } catch (const Error& e) {
    return std::string(e.kind()) + ": " + e.what();
  }
  return "";
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  check<UsageError>(at != std::string::npos, "no {} in {}", from, text);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST(comm_plan_tuning, the_nearest_size_and_its_fastest_algorithm) {
  const TuningTable t = filled();
  EXPECT_EQ(t.choose("all_reduce", 4, 0), Algorithm::tree);
  EXPECT_EQ(t.choose("all_reduce", 4, 30'000), Algorithm::tree);
  EXPECT_EQ(t.choose("all_reduce", 4, 36'000), Algorithm::ring);
  EXPECT_EQ(t.choose("all_reduce", 4, size_t{1} << 40), Algorithm::ring);
  EXPECT_EQ(t.choose("all_reduce", 8, 5), Algorithm::halving_doubling);
  EXPECT_EQ(t.choose("all_reduce", 2, 5), std::nullopt);
  EXPECT_EQ(t.choose("broadcast", 4, 5), std::nullopt);
  EXPECT_EQ(t.choose("all_reduce", 4, 1 << 20, [](Algorithm a) { return a != Algorithm::ring; }),
            Algorithm::tree);
  EXPECT_EQ(t.choose("all_reduce", 8, 5, [](Algorithm a) { return a == Algorithm::ring; }),
            std::nullopt);
}

TEST(comm_plan_tuning, a_second_measurement_replaces_the_first) {
  TuningTable t = filled();
  const size_t before = t.measurements().size();
  t.add({"all_reduce", 4, 1024, Algorithm::ring, 1e-9});
  EXPECT_EQ(t.measurements().size(), before);
  EXPECT_EQ(t.choose("all_reduce", 4, 1024), Algorithm::ring);
  for (double bad : {0.0, -1.0, double(NAN), double(INFINITY)})
    EXPECT_THROW(t.add({"all_reduce", 4, 1024, Algorithm::ring, bad}), UsageError);
  EXPECT_THROW(t.add({"", 4, 1024, Algorithm::ring, 1}), UsageError);
  EXPECT_THROW(t.add({"all_reduce", 0, 1024, Algorithm::ring, 1}), UsageError);
}

TEST(comm_plan_tuning, saved_and_loaded_it_is_the_same_and_private) {
  PrivateFolder folder;
  auto env = [&](const char* name) {
    static std::string value;
    value = folder / "deep/cache";
    return std::strcmp(name, "XDG_CACHE_HOME") == 0 ? value.c_str() : nullptr;
  };
  const std::string path = TuningTable::path_for(kShape, env);
  EXPECT_EQ(path, (folder / "deep/cache") + "/trireme/tuning-" + kShape.hash() + ".json");
  EXPECT_FALSE(TuningTable::load(kShape, path));
  filled().save(path);
  const auto back = TuningTable::load(kShape, path);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text(), filled().text());
  EXPECT_EQ(back->shape(), kShape);
  EXPECT_EQ(back->measurements().size(), 5u);
  struct stat s;
  ASSERT_EQ(::stat((folder / "deep/cache/trireme").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
  HostShape other = kShape;
  other.cores = 17;
  EXPECT_THROW(TuningTable::load(other, path), Corrupt);
}

TEST(comm_plan_tuning, the_place_is_the_users_cache) {
  auto home = [](const char* name) {
    return std::strcmp(name, "HOME") == 0             ? "/home/you"
           : std::strcmp(name, "XDG_CACHE_HOME") == 0 ? "relative"  // does not count
                                                      : nullptr;
  };
  EXPECT_EQ(TuningTable::path_for(kShape, home),
            "/home/you/.cache/trireme/tuning-" + kShape.hash() + ".json");
  EXPECT_THROW(TuningTable::path_for(kShape, [](const char*) { return nullptr; }), ResourceError);
}

TEST(comm_plan_tuning, shapes_that_differ_have_other_files) {
  std::set<std::string> hashes;
  for (const char* cpu : {"a", "b"})
    for (int cores : {1, 11})
      for (int ranks : {1, 11})
        for (const char* backend : {"local", "gloo"}) {
          const HostShape shape{cpu, cores, ranks, backend};
          EXPECT_EQ(shape.hash().size(), 16u);
          hashes.insert(shape.hash());
        }
  EXPECT_EQ(hashes.size(), 16u);
  const HostShape here = HostShape::here(2, "local");
  EXPECT_GE(here.cores, 1);
  EXPECT_FALSE(here.cpu.empty());
  EXPECT_EQ(here, HostShape::here(2, "local"));
}

TEST(comm_plan_tuning, the_cpu_is_the_first_model_name) {
  EXPECT_EQ(cpu_name("processor\t: 0\nmodel name\t: Best  CPU\x01 9 \nmodel name : Other\n"),
            "Best CPU 9");
  EXPECT_EQ(cpu_name("processor\t: 0\n"), "unknown");
  EXPECT_EQ(cpu_name("model name"), "unknown");
  EXPECT_EQ(cpu_name("model name :   "), "unknown");
}

TEST(comm_plan_tuning, broken_files_are_refused_by_name) {
  const std::string good = filled().text();
  EXPECT_EQ(refusal(good), "");
  const std::string seconds = "\"seconds\":1e-05";
  for (const std::string& bad : std::vector<std::string>{
           "",
           "{}",
           "[]",
           "null",
           good.substr(0, good.size() / 2),
           good + "x",
           with(good, "trireme.tuning", "somebody.else"),
           with(good, "\"version\": 1", "\"version\": 0"),
           with(good, "\"version\": 1", "\"version\": \"1\""),
           with(good, "\"cores\":16", "\"cores\":17"),
           with(good, "\"cores\":16", "\"cores\":-1"),
           with(good, "\"tree\"", "\"bush\""),
           with(good, seconds, "\"seconds\":0"),
           with(good, seconds, "\"seconds\":1e999"),
           with(good, seconds, "\"seconds\":true"),
           with(good, "\"bytes\":1024", "\"bytes\":-1"),
           with(good, "\"bytes\":1024", "\"bytes\":99999999999999999999"),
           with(good, "\"bytes\":1024", "\"bytes\":9007199254740993"),
           with(good, "\"ranks\":4", "\"ranks\":4.5"),
           with(good, "\"ranks\":4", "\"ranks\":0"),
           with(good, "\"op\":\"all_reduce\"", "\"op\":\"\""),
           with(good, "\"op\":\"all_reduce\"", "\"op\":\"a\",\"op\":\"b\""),
           with(good, "\"measured\": [", "\"measured\": [[[[[[[[[[[]]]]]]]]]],"),
           with(good, "\"measured\": [", "\"measured\": [7,"),
           std::string(size_t{2} << 20, ' '),
           std::string(100'000, '[')}) {
    EXPECT_EQ(refusal(bad).rfind("Corrupt: t.json", 0), 0u)
        << refusal(bad) << "\nfor: " << bad.substr(0, 300);
  }
  const std::string newer = refusal(with(good, "\"version\": 1", "\"version\": 2"));
  EXPECT_EQ(newer.rfind("UsageError: t.json is of version 2, this trireme reads up to 1", 0), 0u)
      << newer;
}

TEST(comm_plan_tuning, every_prefix_and_every_flipped_byte_is_read_or_refused) {
  const std::string good = filled().text();
  for (size_t n = 0; n + 1 < good.size(); ++n) EXPECT_NE(refusal(good.substr(0, n)), "") << n;
  for (size_t i = 0; i < good.size(); ++i)
    for (unsigned char flip : {0x01, 0x10, 0x80}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      refusal(bad);  // must not throw anything else
    }
}

}  // namespace tuning_test
