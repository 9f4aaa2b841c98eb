// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/config_words.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/front/words.h"
#include "trireme/launch/flags/options.h"

namespace trireme {

ConfigWords read_config_words(const std::string& name, const std::string& help,
                              const std::vector<OwnFlag>& flags,
                              const std::vector<std::string>& words) {
  ConfigWords read;
  std::vector<OwnFlag> all = flags;
  all.push_back({"--set", OwnFlag::a_value, [&](const std::string& v) { read.sets.push_back(v); }});
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i], value;
    if (word == "-h" || word == "--help") {
      read.help = true;
      return read;
    }
    if (!word.starts_with('-')) {
      read.files.push_back(word);
      continue;
    }
    const auto equals = word.find('=');
    const bool has_value = equals != std::string::npos;
    if (has_value) value = word.substr(equals + 1), word.resize(equals);
    std::replace(word.begin(), word.end(), '_', '-');
    const auto flag = std::find_if(all.begin(), all.end(),
                                   [&](const OwnFlag& known) { return known.name == word; });
    if (flag == all.end()) {
      std::vector<std::string> known{"--help"};
      for (const OwnFlag& own : all) known.push_back(own.name);
      fail<UsageError>("{}: there is no flag {}{}; '{}' lists them", name, word,
                       did_you_mean(word, launch::with_run_flags(known)), help);
    }
    check<UsageError>(flag->takes != OwnFlag::nothing || !has_value, "{}: {} takes no value", name,
                      word);
    const bool next_is_value =
        flag->takes == OwnFlag::a_value || (flag->takes == OwnFlag::perhaps_a_value &&
                                            i + 1 < words.size() && flag->is_value(words[i + 1]));
    if (!has_value && next_is_value) {
      check<UsageError>(i + 1 < words.size(), "{}: {} needs a value", name, word);
      value = words[++i];
    }
    if (!flag->key.empty())
      read.sets.push_back(flag->key + "=" + value);
    else
      flag->set(value);
  }
  return read;
}

}  // namespace trireme
