// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/words.h"

#include "trireme/launch/flags/text.h"

namespace trireme {

std::vector<std::string> words_of(int argc, char** argv) {
  return argc > 1 ? std::vector<std::string>(argv + 1, argv + argc) : std::vector<std::string>();
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = launch::nearest(word, known);
  return near.empty() ? "" : ": did you mean " + near + "?";
}

}  // namespace trireme
