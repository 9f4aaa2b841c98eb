// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/device_check.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/file.h"

namespace trireme::device_check_test {
namespace {

Config with_device(const std::string& device) {
  return Config::from_text("there.json", R"({"device": ")" + device + "\"}");
}

/// What was asked, and an answer for it.
struct Asked {
  std::vector<DeviceQuestion> questions;
  DeviceAnswer answer{"no such device", "", 0};
  AskDevice ask() {
    return [this](const DeviceQuestion& q) {
      questions.push_back(q);
      return answer;
    };
  }
};

}  // namespace

TEST(front_device_check, nobody_is_asked_about_the_cpu) {
  const PrivateFolder root;
  Asked asked;
  for (const char* device : {"cpu", "auto"}) {
    const DeviceAnswer found = find_device(with_device(device), {}, asked.ask(), root.path());
    EXPECT_EQ(found.refusal, "");
    EXPECT_EQ(found.kind, "cpu");
  }
  EXPECT_TRUE(asked.questions.empty());
}

TEST(front_device_check, auto_is_asked_about_where_a_gpus_driver_is) {
  for (const char* node : {"nvidiactl", "nvmap", "dxg"}) {
    const PrivateFolder root;
    std::filesystem::create_directory(root / "dev");
    write_file_atomic(root / "dev" + std::string("/") + node, "");
    Asked asked;
    asked.answer = {"", "cuda", 5};
    EXPECT_EQ(find_device(with_device("auto"), {}, asked.ask(), root.path()).kind, "cuda") << node;
    ASSERT_EQ(asked.questions.size(), 1u);
    EXPECT_EQ(asked.questions[0].device, "auto");
  }
}

TEST(front_device_check, a_refusal_begins_with_the_keys_place_and_the_question_is_passed_on) {
  Asked asked;
  const DeviceAnswer found =
      find_device(with_device("cuda:3"), {.first = 4, .ranks = 2, .memory = true}, asked.ask());
  EXPECT_EQ(found.refusal, "there.json:1:12: no such device");
  ASSERT_EQ(asked.questions.size(), 1u);
  EXPECT_EQ(asked.questions[0].device, "cuda:3");
  EXPECT_EQ(asked.questions[0].first, 4);
  EXPECT_EQ(asked.questions[0].ranks, 2);
  EXPECT_TRUE(asked.questions[0].memory);
}

TEST(front_device_check, without_somebody_to_ask_nothing_is_refused) {
  const DeviceAnswer found = find_device(with_device("cuda"), {}, {});
  EXPECT_EQ(found.refusal, "");
  EXPECT_EQ(found.kind, "");
}

}  // namespace trireme::device_check_test
