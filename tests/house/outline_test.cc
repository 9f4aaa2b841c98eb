// SPDX-License-Identifier: Apache-2.0
// The outline of a training step in docs/design.md is train/step.cc with less detail: what it calls
// is called there, in that order.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::outline_test {
namespace {

std::string text_of(const std::string& file) {
  const std::string text = read_file(trireme::testing::source_path("/" + file));
  return std::regex_replace(text, std::regex("//[^\n]*"), "");
}

/// The first block of C++ under a heading.
std::string block_under(const std::string& page, const std::string& heading) {
  const size_t at = page.find("\n" + heading + "\n");
  if (at == std::string::npos) return {};
  const std::string open = "```cpp\n";
  const size_t begin = page.find(open, at);
  if (begin == std::string::npos) return {};
  return page.substr(begin + open.size(),
                     page.find("```", begin + open.size()) - begin - open.size());
}

/// "run.gradients->close(" and the like, in the order of the text.
std::vector<std::string> calls_in(const std::string& code) {
  static const std::regex call(
      R"([A-Za-z_][A-Za-z0-9_]*(?:(?:->|\.|::)[A-Za-z_][A-Za-z0-9_]*)*\()");
  static const std::regex keyword(R"((if|for|while|return|switch)\()");
  std::vector<std::string> calls;
  for (std::sregex_iterator it(code.begin(), code.end(), call), end; it != end; ++it)
    if (!std::regex_match(it->str(), keyword)) calls.push_back(it->str());
  return calls;
}

}  // namespace

TEST(house_outline, of_the_step_calls_what_the_code_calls_in_its_order) {
  const auto calls = calls_in(block_under(text_of("docs/design.md"), "### The step"));
  ASSERT_GE(calls.size(), 10u);
  const std::string code = text_of("trireme/train/step.cc");
  size_t at = 0;
  for (const std::string& call : calls) {
    if (code.find(call) == std::string::npos) {
      ADD_FAILURE() << "train/step.cc does not call " << call << ")";
      continue;
    }
    const size_t next = code.find(call, at);
    EXPECT_NE(next, std::string::npos)
        << "train/step.cc calls " << call << ") before what stands above it in the outline";
    if (next != std::string::npos) at = next;
  }
}

// What comes first in a step comes first in its outline: nothing is left out at either end.
TEST(house_outline, of_the_step_begins_with_its_data_and_ends_with_the_loss_scale) {
  const auto calls = calls_in(block_under(text_of("docs/design.md"), "### The step"));
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls[1], "train_on(");
  EXPECT_EQ(calls[2], "next_batch(");
  EXPECT_EQ(calls.back(), "run.scaling->update(");
}

}  // namespace trireme::outline_test
